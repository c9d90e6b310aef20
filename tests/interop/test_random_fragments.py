"""Random nested types in tables of each version, of several fragments with deletions, written by either library.

Both libraries read every table: scans, ranges and takes, by place and by row id.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lance_io
from lance_io.errors import LanceError
from tests.encodings.test_random_types import (
    EXAMPLES,
    ODDS,
    Odds,
    assert_equal,
    failed_inside_pylance,
    has_vectors_of_vectors,
    leaf_values,
    lists_of_struct_vectors,
    make_table,
    named,
    run_examples,
    types,
)
from tests.encodings.v2_0.test_random_arrays import ValuesWithoutNullStructs, without_packed
from tests.file.test_writer_cases import packs_what_cannot_be

ROWS_MAX = 60
OF_2_1 = st.integers(0, 4).flatmap(lambda depth: named("c", types(depth, "2.1")))
OF_2_2 = st.integers(0, 4).flatmap(lambda depth: named("c", types(depth, "2.2")))
FIELDS = {"0.1": OF_2_1.map(without_packed), "2.0": OF_2_1.map(without_packed), "2.1": OF_2_1, "2.2": OF_2_2}


def make(version: str, field: pa.Field, odds: Odds) -> pa.Table:
    if version in ("2.1", "2.2"):
        table = make_table([field], odds, ROWS_MAX)
    else:
        count = min(ROWS_MAX, 1 + int(3000 / (1 + leaf_values(field.type, 1 + odds.items_max / 2))))
        rows = ValuesWithoutNullStructs(odds).rows(field.type, count)
        table = pa.Table.from_arrays([rows], schema=pa.schema([field]))
    return table.append_column("key", pa.array(range(len(table))))


def attempt(library: Any, uri: str, table: pa.Table, gone: list[int], options: dict[str, Any]) -> BaseException | None:
    """Write a table and delete some rows; what kept a library from it, if anything did."""
    try:
        found = library.write_dataset(table, uri, **options)
        if gone:
            found.delete(f"key in ({', '.join(map(str, gone))})")
        lance.dataset(uri).to_table()
    except BaseException as error:
        if not failed_inside_pylance(error) and not isinstance(error, LanceError):
            raise
        return error
    return None


@pytest.mark.filterwarnings("ignore:files of version 0.1 hold no nulls:UserWarning")
@pytest.mark.parametrize("writer", [lance, lance_io], ids=["pylance", "ours"])
@pytest.mark.parametrize("version", FIELDS)
def test_fragments_with_deletions(version: str, writer: Any) -> None:
    @settings(run_examples, max_examples=max(1, EXAMPLES // 4))
    @given(FIELDS[version], ODDS, st.integers(0, 1 << 30))
    def check(field: pa.Field, odds: Odds, seed: int) -> None:
        assume(not lists_of_struct_vectors(field.type) and not has_vectors_of_vectors(field.type))
        table, dice = make(version, field, odds), random.Random(seed)
        gone = sorted(dice.sample(range(len(table)), len(table) // dice.choice((2, 5, 50))))
        options = {
            "max_rows_per_file": dice.choice((7, 20, 60)),
            "max_rows_per_group": dice.choice((3, 7, 1024)),
            "data_storage_version": version,
        }
        with tempfile.TemporaryDirectory() as folder:
            uri = str(Path(folder) / "t")
            failure = attempt(writer, uri, table, gone, options)
            if failure is not None:
                if writer is lance_io and not packs_what_cannot_be(field):
                    assert attempt(lance, str(Path(folder) / "theirs"), table, gone, options) is not None, failure
                assume(False)
            compare(uri, table.take([key for key in range(len(table)) if key not in gone]), dice)

    check()


def compare(uri: str, written: pa.Table, dice: random.Random) -> None:
    """Both libraries find the same rows; where pylance does not find what was written, that counts as well."""
    theirs, ours = lance.dataset(uri), lance_io.dataset(uri)
    left = theirs.to_table()
    count = len(left)
    assert count == len(written)
    wanted = [dice.randrange(count) for _ in range(40)] if count else []
    start, end = sorted(dice.randrange(count + 1) for _ in range(2))
    found = {
        "scan": (ours.to_table(), left, written),
        "take": (ours.take(wanted), left.take(wanted), written.take(wanted)),
        "range": (
            ours.to_table(offset=start, limit=end - start),
            left.slice(start, end - start),
            written.slice(start, end - start),
        ),
        "batches": (
            pa.Table.from_batches(ours.to_batches(batch_size=11), schema=ours.schema),
            left,
            written,
        ),
    }
    for one, expected, plain in found.values():
        assert one.schema.names == expected.schema.names
        for name in one.schema.names:
            assert_equal(one[name], expected[name], plain[name])
    ids = ours.to_table(columns=["key"], with_row_id=True)
    chosen = [dice.randrange(count) for _ in range(20)] if count else []
    rows = ours._take_rows(ids["_rowid"].take(chosen).to_pylist(), columns=["key"])
    assert rows["key"].to_pylist() == ids["key"].take(chosen).to_pylist()
