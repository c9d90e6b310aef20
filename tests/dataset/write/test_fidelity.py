"""Tables of every type: what we write is read by pylance and changed by it, and we change what it made.

Whole tables of the cases of the format, many columns at once; `LANCE_IO_FIDELITY=cases` takes each case alone at its
full size. Pylance is excused where it fails with a table of its own in the same way.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lance_io
from lance_io.errors import UnsupportedError
from tests.encodings.cases import Case, all_cases
from tests.encodings.test_random_types import COLUMNS, EXAMPLES, ODDS, lists_of_struct_vectors, make_table, run_examples
from tests.file.test_writer_cases import packs_what_cannot_be
from tests.interop.comparing import (
    assert_same,
    attempt,
    by_key,
    check_reads,
    fails_in_pylance,
    is_aborted,
    picked,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 200  # of a bundle
COLUMNS_PER_BUNDLE = 32


def with_key(table: pa.Table) -> pa.Table:
    return table.append_column("key", pa.array(range(len(table)), pa.int64()))


def bundle(cases: list[Case]) -> pa.Table:
    """A table with a column for each case, all of the same number of rows."""
    tables = [case.table() for case in cases]
    fields = [table.schema.field(0).with_name(f"c{i}") for i, table in enumerate(tables)]
    columns = [cycled(table.column(0)) for table in tables]
    return with_key(pa.Table.from_arrays(columns, schema=pa.schema(fields)))


def cycled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Rows from the middle, in a slice, or all rows again and again."""
    if len(column) >= ROWS:
        return column.slice((len(column) - ROWS) // 2, ROWS)
    return pa.chunked_array([chunk for _ in range(-(-ROWS // len(column))) for chunk in column.chunks]).slice(0, ROWS)


ALONE = (  # vectors of structs are read wrong by pylance beside other columns; these have long rows, or none
    "vector of struct",
    "long rows",
    "row of 100000 empties",
    "no rows",
    "no rows of list",
)


def subjects() -> list[Any]:
    """What to write, as a list of cases, and the file version."""
    found = []
    for version in ("2.1", "2.2"):
        cases = [case for case in all_cases() if version in case.versions]
        if os.environ.get("LANCE_IO_FIDELITY") == "cases":
            found += [pytest.param([case], version, id=f"{case.name}@{version}") for case in cases]
            continue
        cases = [case for case in cases if case.name not in ALONE]
        for start in range(0, len(cases), COLUMNS_PER_BUNDLE):
            group = cases[start : start + COLUMNS_PER_BUNDLE]
            found.append(pytest.param(group, version, id=f"{group[0].name} to {group[-1].name}@{version}"))
    return found


def in_pieces(table: pa.Table, seed: int) -> pa.Table:
    """The same rows in chunks that are slices of larger arrays."""
    dice = random.Random(seed)
    cuts = sorted(dice.randrange(len(table) + 1) for _ in range(4))
    bounds = zip([0, *cuts], [*cuts, len(table)], strict=True)
    return pa.concat_tables([table.slice(start, end - start) for start, end in bounds])


# -- what pylance does on top ------------------------------------------------------------------------------------------


def moved(table: pa.Table) -> tuple[Callable[[Any], Any], pa.Table]:
    """An update: the rows are written again, with another key."""
    keys = table["key"].to_pylist()
    new = pa.array([key + 1_000_000 if key % 7 == 0 else key for key in keys], pa.int64())
    return (
        lambda t: t.update({"key": "key + 1000000"}, where="key % 7 = 0"),
        table.set_column(table.column_names.index("key"), "key", new),
    )


def thinned(table: pa.Table) -> tuple[Callable[[Any], Any], pa.Table]:
    kept = [i for i, key in enumerate(table["key"].to_pylist()) if key % 5 != 1]
    return lambda t: t.delete("key % 5 = 1"), picked(table, kept)


def compacted(table: pa.Table) -> tuple[Callable[[Any], Any], pa.Table]:
    return lambda t: t.optimize.compact_files(target_rows_per_fragment=1 << 20), table


def appended(table: pa.Table) -> tuple[Callable[[Any], Any], pa.Table]:
    more = picked(table, range(min(20, len(table))))
    keys = pa.array([key + 2_000_000 for key in more["key"].to_pylist()], pa.int64())
    more = more.set_column(more.column_names.index("key"), "key", keys)
    return lambda t: t.insert(more), pa.concat_tables([table, more])


def merged(table: pa.Table) -> tuple[Callable[[Any], Any], pa.Table]:
    """The first rows get the values of the last ones."""
    count = min(10, len(table) // 2)
    given = picked(table, range(len(table) - count, len(table)))
    given = given.set_column(given.column_names.index("key"), "key", table["key"].slice(0, count).combine_chunks())
    left = picked(table, range(count, len(table)))

    def merge(t: Any) -> None:
        t.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(given)

    return merge, pa.concat_tables([left, given])


def widened(table: pa.Table) -> tuple[Callable[[Any], Any], pa.Table]:
    twice = pa.array([key * 2 for key in table["key"].to_pylist()], pa.int64())
    return lambda t: t.add_columns({"twice": "key * 2"}), table.append_column("twice", twice)


CHANGES = (thinned, moved, appended, merged, compacted, widened)


# how pylance fails at a page of fixed-size lists, in mini-blocks, whose items are all null
NULL_ITEMS_PANIC = "Unexpected data block type in value encoder's miniblock_fsl"


def fails_alike(error: BaseException, action: Callable[[Any], Any], table: pa.Table, options: dict[str, Any]) -> bool:
    """Whether pylance gives up in the same words when it writes these rows itself and changes them.

    Asked where there is no table of its own beside ours: it reads some rows that it cannot write, those of
    `NULL_ITEMS_PANIC`, and fails when a change writes them again, whoever wrote them first.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = attempt(lambda: action(lance.write_dataset(table, folder + "/t", **options)))
    if is_aborted(error):
        return own is not None and NULL_ITEMS_PANIC in str(own)
    return own is not None and (type(own), str(own)) == (type(error), str(error))


def change_both(table: pa.Table, ours: str, theirs: str | None, options: dict[str, Any]) -> tuple[pa.Table, list[str]]:
    """Let pylance make every change on top of both tables; gives the rows at the end, and what it cannot do.

    theirs   the same rows as pylance wrote them; None where it could not
    options  for pylance to write them
    """
    failures = []
    for change in CHANGES:
        action, result = change(table)
        error = attempt(lambda action=action: action(lance.dataset(ours)))
        failed_there = theirs is not None and attempt(lambda a=action, at=theirs: a(lance.dataset(at))) is not None
        if error is not None:
            is_excused = failed_there if theirs is not None else fails_alike(error, action, table, options)
            assert is_excused, f"{change.__name__}: {error}"
            failures.append(change.__name__)
            continue
        table = result
        theirs = None if failed_there else theirs
        check_reads(ours, table, libraries=(lance_io,), in_order=False)
    return table, failures


# -- what we do on top -------------------------------------------------------------------------------------------------


def change_as_we_do(uri: str, table: pa.Table) -> pa.Table:
    """Append in another order of columns, delete, restore."""
    before = lance_io.dataset(uri)
    more = picked(table, range(len(table) // 2, len(table)))
    keys = pa.array([key + 5_000_000 for key in more["key"].to_pylist()], pa.int64())
    more = more.set_column(more.column_names.index("key"), "key", keys)
    lance_io.write_dataset(in_pieces(more.select(more.column_names[::-1]), 3), uri, mode="append", max_rows_per_file=40)
    lance_io.dataset(uri).delete("key % 3 = 0")
    expected = pa.concat_tables([table, more])
    kept = [i for i, key in enumerate(expected["key"].to_pylist()) if key % 3 != 0]
    check_reads(uri, picked(expected, kept), libraries=(lance_io,), in_order=False)
    found = lance.dataset(uri).to_table()
    assert_same(by_key(found), by_key(picked(expected, kept)))
    before.restore()
    return table


def reads_of_pylance(uri: str, table: pa.Table) -> bool:
    """Whether pylance reads a table right; False where it fails."""
    try:
        check_reads(uri, table, libraries=(lance,))
    except BaseException as error:
        if not fails_in_pylance(error) and not isinstance(error, AssertionError):
            raise
        return False
    return True


def can_pylance(table: pa.Table, version: str) -> bool:
    """Whether pylance reads what it writes of this table."""
    with tempfile.TemporaryDirectory() as folder:
        if attempt(lambda: lance.write_dataset(table, folder + "/t", data_storage_version=version)) is not None:
            return False
        return reads_of_pylance(folder + "/t", table)


def check(table: pa.Table, version: str, folder: Path, rows_per_file: int) -> None:
    """A table written by us through all changes."""
    ours, theirs = str(folder / "ours"), str(folder / "theirs")
    options: dict[str, Any] = {"max_rows_per_file": rows_per_file, "data_storage_version": version}
    lance_io.write_dataset(in_pieces(table, len(table)), ours, **options)
    check_reads(ours, table, libraries=(lance_io,))
    twin: str | None = theirs if attempt(lambda: lance.write_dataset(table, theirs, **options)) is None else None
    if not reads_of_pylance(ours, table):
        assert twin is None or not reads_of_pylance(theirs, table)
        return
    table, failures = change_both(table, ours, twin, options)
    if not failures:
        check_reads(ours, table, libraries=(lance,), in_order=False)
    change_as_we_do(ours, table)
    check_reads(ours, table, libraries=(lance_io,) if failures else (lance, lance_io), in_order=False)
    if twin is not None and not failures:
        change_as_we_do(theirs, table)


@pytest.mark.parametrize(("cases", "version"), subjects())
def test_cases_live_through_changes_by_both(cases: list[Case], version: str, tmp_path: Path) -> None:
    table = bundle(cases) if len(cases) > 1 else with_key(cases[0].table())
    check(table, version, tmp_path, max(1, -(-len(table) // 3)))


@settings(run_examples, max_examples=max(1, EXAMPLES // 4))
@given(COLUMNS, ODDS, st.sampled_from([1, 20, 90]), st.booleans())
def test_random_types_live_through_changes_by_both(columns: Any, odds: Any, count: int, many_files: bool) -> None:
    version, *fields = columns
    assume(not any(lists_of_struct_vectors(field.type) for field in fields))
    table = with_key(make_table(fields, odds, count))
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(table, version, Path(folder), -(-len(table) // 3) if many_files else 1000)
        except UnsupportedError as error:
            # of packed structs with members that cannot be packed, pylance takes those whose rows are all null
            packs = any(map(packs_what_cannot_be, fields)) or "packed struct" in error.message
            assert packs or not can_pylance(table, version)


# -- what these tests found --------------------------------------------------------------------------------------------


MINI_BLOCK = {"lance-encoding:structural-encoding": "miniblock"}
VECTOR = pa.list_(pa.int8(), 2)


def vectors(rows: pa.Array) -> pa.Table:
    schema = pa.schema([pa.field("c", rows.type, metadata=MINI_BLOCK), pa.field("key", pa.int64())])
    return pa.Table.from_arrays([rows, pa.array(range(len(rows)), pa.int64())], schema=schema)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_null_vectors_hide_no_null_items(version: str, tmp_path: Path) -> None:
    """pylance writes no mini-block of null items only. A null row beside them must not be made of such, too."""
    items = pa.array([None, None, 5, 6], pa.int8())
    table = vectors(pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True])))
    assert table["c"].to_pylist() == [[None, None], None]
    changed = table.set_column(1, "key", pa.array([1_000_000, 1_000_001]))
    for library in (lance, lance_io):
        uri = tmp_path / library.__name__
        library.write_dataset(table, uri, data_storage_version=version)
        lance.dataset(uri).update({"key": "key + 1000000"})
        check_reads(uri, changed)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_vectors_of_nulls_are_what_pylance_cannot_write(version: str, tmp_path: Path) -> None:
    """Should this fail, `fails_alike` may have become unnecessary."""
    table = vectors(pa.array([[None, None]] * 3, VECTOR))
    options = {"data_storage_version": version}
    error = attempt(lambda: lance.write_dataset(table, tmp_path / "theirs", **options))
    assert NULL_ITEMS_PANIC in str(error)
    check(table, version, tmp_path, 1000)
    action, _ = moved(table)
    assert fails_alike(error, action, table, options)
    assert fails_alike(RuntimeError("Task was aborted"), action, table, options)
    assert not fails_alike(ValueError(str(error)), action, table, options)
    assert not fails_alike(error, action, vectors(pa.array([[1, None]] * 3, VECTOR)), options)
