"""What tests of both libraries on one table share: reading by every way, and comparing rows whatever their type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import lance_io
from tests.encodings.harness import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

LIBRARIES = (lance, lance_io)


def same_values(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> bool:
    """Whether both hold the same values; NaN equals itself."""
    one, other = storage(found), storage(expected)
    return one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist())


def assert_same(found: pa.Table, expected: pa.Table, where: str = "") -> None:
    """Same columns, in the same order, with the same values."""
    assert found.column_names == expected.column_names, where
    assert len(found) == len(expected), where
    for name in found.column_names:
        found[name].validate(full=True)
        assert same_values(found[name], expected[name]), f"{where} {name}: {found[name].type}"


def picked(table: pa.Table, rows: Iterable[int]) -> pa.Table:
    """Rows by position; from a copy without slices, of which pyarrow picks wrong ones where vectors are nested."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    copy = pa.ipc.open_stream(sink.getvalue()).read_all()
    return copy.take(pa.array(list(rows), pa.int64()))


def by_key(table: pa.Table) -> pa.Table:
    """Rows in the order of the column `key`: changes may move them."""
    return picked(table, np.argsort(table["key"].to_numpy(), kind="stable"))


def check_reads(
    uri: str | Path, expected: pa.Table, *, libraries: tuple[Any, ...] = LIBRARIES, in_order: bool = True
) -> None:
    """Each library's scan gives `expected`, and its ranges and takes are parts of its scan."""
    for library in libraries:
        table, name = library.dataset(str(uri)), library.__name__
        whole = table.to_table()
        assert table.count_rows() == len(whole)
        assert_same(*((whole, expected) if in_order else (by_key(whole), by_key(expected))), f"{name} scan")
        dice = np.random.default_rng(len(expected))
        start, end = sorted(dice.integers(0, len(expected) + 1, 2).tolist())
        part = table.to_table(offset=start, limit=end - start)
        assert_same(part, picked(whole, range(start, end)), f"{name} range")
        wanted = dice.integers(0, len(expected), 17).tolist() if len(expected) else []
        assert_same(table.take(wanted), picked(whole, wanted), f"{name} take")


def fails_in_pylance(error: BaseException) -> bool:
    """Whether this is how pylance gives up on data that it cannot handle: refusals and panics."""
    known = ("PanicException", "OSError", "ValueError", "ArrowInvalid", "NotImplementedError")
    return type(error).__name__ in known or is_aborted(error)


def is_aborted(error: BaseException) -> bool:
    """Whether this is a panic in the midst of a merge, of which pylance does not say the words."""
    return type(error) is RuntimeError and str(error) == "Task was aborted"


def attempt(action: Callable[[], Any]) -> BaseException | None:
    """What an action of pylance raised, if it gave up."""
    try:
        action()
    except BaseException as error:
        if not fails_in_pylance(error):
            raise
        return error
    return None
