"""Files that we write, read by pylance and by ourselves: every case of the format, and random nested types."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lance.file import LanceFileReader as PeerReader

from lance_io.errors import UnsupportedError
from lance_io.file.write.writers import LanceFileWriter
from tests.encodings.cases import Case, cases_by_version
from tests.encodings.harness import Opened, storage
from tests.encodings.harness import write as peer_write
from tests.encodings.test_random_types import (
    COLUMNS,
    ODDS,
    failed_inside_pylance,
    lists_of_struct_vectors,
    make_table,
    run_examples,
)

CASES = [
    pytest.param(case, version, tiny_pages, id=f"{case.name}@{version}{' in nine pages' if tiny_pages else ''}")
    for turn, tiny_pages in enumerate((False, True))  # in each version one of them
    for case, version in cases_by_version(turn)
]


def write(path: Path, table: pa.Table, version: str, *, tiny_pages: bool = False) -> None:
    """Write with our writer: one batch, or nine slices and a page for each."""
    cache = {"data_cache_bytes": 1} if tiny_pages else {}
    step = max(1, -(-len(table) // 9)) if tiny_pages else max(1, len(table))
    with LanceFileWriter(path, table.schema, version=version, **cache) as writer:
        for start in range(0, max(1, len(table)), step):
            writer.write_batch(table.slice(start, step))


def same(found: pa.ChunkedArray | pa.Array, expected: pa.ChunkedArray) -> bool:
    found, expected = storage(found), storage(expected)
    return found.equals(expected) or repr(found.to_pylist()) == repr(expected.to_pylist())  # repr: NaN equals itself


def selections(num_rows: int) -> list[np.ndarray]:
    dice = np.random.default_rng(num_rows)
    return [np.unique(dice.integers(0, num_rows, n)) for n in (1, 2, 17, num_rows // 2)] if num_rows else []


def check_with_pylance(path: Path, table: pa.Table) -> None:
    """Scan, ranges and takes by pylance are what was written."""
    peer = PeerReader(str(path))
    assert peer.num_rows() == len(table)
    whole = peer.read_all(batch_size=100_000).to_table()
    dice = np.random.default_rng(len(table) + 1)
    start, end = sorted(dice.integers(0, len(table) + 1, 2).tolist())
    part = peer.read_range(start, end - start, batch_size=1000).to_table()
    for name in table.column_names:
        assert same(whole[name], table[name])
        assert same(part[name], table[name].slice(start, end - start))
    for rows in selections(len(table)):
        taken = peer.take_rows(rows.tolist()).to_table()
        for name in table.column_names:
            assert same(taken[name], table[name].take(pa.array(rows)))


def check_with_ours(path: Path, table: pa.Table) -> None:
    opened = Opened(path)
    whole = opened.read()
    taken = [(rows, opened.take(rows)) for rows in selections(len(table))]
    for i, name in enumerate(table.column_names):
        whole[i].validate(full=True)
        assert same(whole[i], table[name])
        for rows, arrays in taken:
            assert same(arrays[i], table[name].take(pa.array(rows)))


def check(path: Path, table: pa.Table, version: str, *, tiny_pages: bool = False) -> None:
    """Both readers; pylance is excused where it cannot read its own file of the same data either."""
    check_with_ours(path, table)
    try:
        check_with_pylance(path, table)
    except BaseException as error:
        if not failed_inside_pylance(error):
            raise
        if can_pylance(table, version, tiny_pages=tiny_pages):
            raise


def can_pylance(table: pa.Table, version: str, *, tiny_pages: bool = False) -> bool:
    """Whether pylance reads what it writes of this table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "theirs.lance"
        try:
            peer_write(path, table, version, tiny_pages=tiny_pages)
            check_with_pylance(path, table)
        except BaseException as error:
            if not failed_inside_pylance(error) and not isinstance(error, AssertionError):
                raise
            return False
        return True


def packs_what_cannot_be(field: pa.Field) -> bool:
    """Packed structs with members that no page holds: pylance takes them while all rows are null, we never do."""
    if not pa.types.is_nested(field.type):
        return False
    members = [field.type.field(i) for i in range(field.type.num_fields)]
    if pa.types.is_struct(field.type) and b"packed" in (field.metadata or {}):
        return any(pa.types.is_boolean(one.type) or pa.types.is_nested(one.type) for one in members)
    return any(map(packs_what_cannot_be, members))


@pytest.mark.parametrize(("case", "version", "tiny_pages"), CASES)
def test_pylance_reads_what_we_write(case: Case, version: str, tiny_pages: bool, tmp_path: Path) -> None:
    table = case.table()
    path = tmp_path / "one.lance"
    write(path, table, version, tiny_pages=tiny_pages)
    check(path, table, version, tiny_pages=tiny_pages)


@run_examples
@given(COLUMNS, ODDS, st.sampled_from([0, 1, 20, 300, 1100]), st.booleans())
def test_random_types_are_written(columns, odds, count: int, tiny_pages: bool) -> None:
    version, *fields = columns
    assume(not any(lists_of_struct_vectors(field.type) for field in fields))
    table = make_table(fields, odds, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.lance"
        try:
            write(path, table, version, tiny_pages=tiny_pages)
        except UnsupportedError:
            assert any(map(packs_what_cannot_be, fields)) or not can_pylance(table, version)
            return
        check(path, table, version, tiny_pages=tiny_pages)
