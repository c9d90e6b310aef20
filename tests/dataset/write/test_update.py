"""`update`: the same call of both libraries gives the same table, and what fails leaves it as it was."""

from __future__ import annotations

import asyncio
import datetime
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import CommitConflictError
from lance_io.table.manifest.row_ids import decode_row_ids, encode_row_ids

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.float64()),
        ("s", pa.string()),
        ("u", pa.uint8()),
        ("t", pa.timestamp("us")),
        pa.field("n", pa.int64(), nullable=False),
        ("f", pa.bool_()),
        ("l", pa.list_(pa.int32())),
        ("d", pa.decimal128(10, 2)),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {
            "a": i,
            "b": None if i % 5 == 3 else i * 1.5,
            "s": None if i % 4 == 2 else str(i) if i % 2 else f"text {i}",
            "u": i % 7,
            "t": datetime.datetime(2020, 1, 1 + i),
            "n": i,
            "f": None if i % 3 == 1 else i % 2 == 0,
            "l": None if i % 6 == 4 else list(range(i % 4)),
            "d": Decimal(i) / 4,
            "st": None if i % 5 == 1 else {"x": i, "y": f"y{i}"},
        }
        for i in range(30)
    ],
    schema=SCHEMA,
)
SYSTEM = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]

UPDATES: dict[str, tuple[dict[str, str], Any]] = {
    "all rows": ({"a": "a + 1"}, None),
    "some rows": ({"a": "a * 2", "s": "concat(s, '!')"}, "a % 3 = 0"),
    "by expression": ({"b": "b / 2"}, pc.field("a") < 13),
    "a whole fragment": ({"b": "null"}, "a >= 10 and a < 20"),
    "no row": ({"b": "1"}, "a > 1000"),
    "by row id": ({"s": "'this'"}, "_rowid in (3, 17)"),
    "by null": ({"b": "0"}, "b is null"),
    "text to number": ({"a": "'12'"}, None),
    "fraction to number": ({"a": "1.7"}, None),
    "float to number": ({"a": "b"}, None),
    "number to text": ({"s": "a"}, None),
    "float to text": ({"s": "b"}, None),
    "boolean to text": ({"s": "f"}, None),
    "time to text": ({"s": "t"}, None),
    "text to time": ({"t": "'2021-01-01'"}, None),
    "number to time": ({"t": "n"}, None),
    "time to number": ({"n": "t"}, None),
    "boolean to number": ({"a": "true"}, None),
    "number to boolean": ({"f": "a"}, None),
    "text to boolean": ({"f": "'true'"}, None),
    "list literal": ({"l": "[1, 2, 3]"}, None),
    "list of a column": ({"l": "make_array(a, 7)"}, None),
    "null list": ({"l": "null"}, "a < 5"),
    "text to decimal": ({"d": "'1.239'"}, None),
    "float to decimal": ({"d": "b"}, None),
    "struct": ({"st": "named_struct('x', a, 'y', s)"}, "a < 20"),
    "part of a struct": ({"st": "named_struct('x', a)"}, None),
    "member": ({"n": "coalesce(st.x, 7)"}, None),
    "other case": ({"a": "A + 1"}, None),
    "double quotes are text": ({"s": '"q"'}, None),
    "several": ({"a": "n", "u": "5", "f": "s is null"}, "n % 2 = 1"),
}
REFUSED: dict[str, tuple[Any, Any]] = {
    "too large": ({"u": "300"}, None),
    "negative": ({"u": "-1"}, None),
    "too large in a row": ({"u": "a * 1000"}, None),
    "no number": ({"a": "'x'"}, None),
    "no number in a row": ({"a": "s"}, None),
    "null": ({"n": "null"}, None),
    "null in a row": ({"n": "b"}, None),
    "division by zero": ({"a": "1 / 0"}, None),
    "division by zero in a row": ({"a": "a / (a - 5)"}, None),
    "no such column": ({"zz": "1"}, None),
    "no such column in an expression": ({"a": "zz"}, None),
    "target of another case": ({"A": "1"}, None),
    "member": ({"st.x": "1"}, None),
    "nothing": ({}, None),
    "no expression": ({"a": ""}, None),
    "no text": ({"a": 1}, None),
    "row id": ({"a": "_rowid"}, None),
    "unknown function": ({"a": "nope(a)"}, None),
    "case": ({"a": "case when a > 1 then 2 else 3 end"}, None),
    "aggregate": ({"a": "count(a)"}, None),
    "filter of no such column": ({"a": "1"}, "zz > 1"),
    "filter that is no condition": ({"a": "1"}, "a"),
    "literal of another type in the filter": ({"a": "1"}, "a > 'x'"),
}


def fresh(path: Path, *, stable: bool = False, version: str | None = None) -> str:
    """Three fragments of ten rows, of which two are deleted."""
    options = {"max_rows_per_file": 10, "enable_stable_row_ids": stable, "data_storage_version": version}
    lance.write_dataset(ROWS, str(path), **options).delete("a in (3, 25)")
    return str(path)


def facts(uri: str) -> dict[str, Any]:
    """What pylance sees in the newest version."""
    table = lance.dataset(uri)
    operation = table.read_transaction(table.version).operation
    return {
        "version": table.version,
        "rows": table.to_table(columns=[*SCHEMA.names, *SYSTEM]).to_pydict(),
        "fragments": [(one.fragment_id, one.physical_rows, one.num_deletions) for one in table.get_fragments()],
        "operation": type(operation).__name__,
        "kept": sorted(operation.fields_for_preserving_frag_bitmap),
        "mode": operation.update_mode,
        "updated": sorted(one.id for one in operation.updated_fragments),
        "removed": sorted(operation.removed_fragment_ids),
    }


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_those_of_pylance(tmp_path: Path, name: str, stable: bool) -> None:
    updates, where = UPDATES[name]
    theirs = fresh(tmp_path / "theirs", stable=stable)
    ours = shutil.copytree(theirs, tmp_path / "ours")
    expected = lance.dataset(theirs).update(updates, where)
    table = lance_io.dataset(ours)
    assert table.update(updates, where) == expected
    assert facts(str(ours)) == facts(theirs)
    assert table.version == lance.dataset(theirs).version
    assert table.to_table().equals(lance.dataset(ours).to_table())


@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused_in_the_same_way(tmp_path: Path, name: str) -> None:
    updates, where = REFUSED[name]
    uri = fresh(tmp_path / "t")
    with pytest.raises(Exception) as theirs:
        lance.dataset(uri).update(updates, where)
    before = sorted(one for one in (tmp_path / "t").rglob("*") if one.is_file() and "data" in one.parts)
    with pytest.raises(theirs.type):
        lance_io.dataset(uri).update(updates, where)
    after = sorted(one for one in (tmp_path / "t").rglob("*") if one.is_file() and "data" in one.parts)
    assert after == before, "a file of a failed update stayed"
    assert lance_io.dataset(uri).version == 2


def test_more_than_one_statement_is_refused(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t"))
    with pytest.raises(ValueError, match="behind `;`"):
        table.update({"a": "1; drop"})
    assert table.update({"s": "'a;b';"}, "a = 1") == {"num_rows_updated": 1}
    assert table.to_table(filter="a = 1")["s"].to_pylist() == ["a;b"]


def test_all_expressions_see_the_old_row(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t"))
    table.update({"a": "n + 100", "n": "a + 1000", "u": "a + n"}, "a < 20")
    found = table.to_table(filter="a >= 100").to_pydict()
    assert found["a"] == [i + 100 for i in range(20) if i != 3]
    assert found["n"] == [i + 1000 for i in range(20) if i != 3]
    assert found["u"] == [2 * i for i in range(20) if i != 3]


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_files_of_every_version(tmp_path: Path, version: str) -> None:
    rows = pa.table({"a": range(30), "s": pa.array([f"s{i % 3}" for i in range(30)]).dictionary_encode()})
    lance.write_dataset(rows, str(tmp_path / "theirs"), data_storage_version=version, max_rows_per_file=10)
    ours = shutil.copytree(tmp_path / "theirs", tmp_path / "ours")
    for library, path in ((lance, tmp_path / "theirs"), (lance_io, ours)):
        library.dataset(str(path)).update({"a": "a + 100"}, "a % 4 = 1")
    assert lance.dataset(str(ours)).to_table().equals(lance.dataset(str(tmp_path / "theirs")).to_table())
    versions = {file.file_major_version for one in lance_io.dataset(ours).get_fragments() for file in one.data_files()}
    assert len(versions) == 1


def test_new_files_of_another_version(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t", version="2.1"))
    table.update({"a": "0"}, "a < 5", data_storage_version="2.2")
    assert lance.dataset(table.uri).count_rows("a = 0") == 4
    assert len({one.metadata.files[0].file_minor_version for one in table.get_fragments()}) == 2
    with pytest.raises(OSError, match="mixed"):
        table.update({"a": "0"}, data_storage_version="legacy")


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_of_touched_rows_are_written_anew(tmp_path: Path, version: str) -> None:
    values = [b"a" * 10, None, b"", b"x" * 100_000, b"y" * 5_000_000, b"z"]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = lance.blob_array(values) if version == "2.2" else pa.array(values, pa.large_binary())
    schema = pa.schema([("id", pa.int64()), field]) if version == "2.1" else None
    rows = pa.table({"id": pa.array(range(6)), "b": blobs}, schema=schema)
    uri = str(tmp_path / "t")
    lance.write_dataset(rows, uri, data_storage_version=version)
    lance_io.dataset(uri).update({"id": "id + 100"}, "id != 2")
    table = lance.dataset(uri)
    assert table.to_table(columns=["id"])["id"].to_pylist() == [2, 100, 101, 103, 104, 105]
    found = [None if one is None else one.read() for one in table.take_blobs("b", indices=list(range(6)))]
    assert found == [b"", values[0], None, values[3], values[4], values[5]]


@pytest.mark.parametrize("library", [lance, lance_io])
def test_a_stale_update_sees_what_others_changed(tmp_path: Path, library: Any) -> None:
    uri = fresh(tmp_path / "t")
    stale = lance_io.dataset(uri)
    other = library.dataset(uri)
    other.update({"a": "a + 1"}, "n = 7")
    other.delete("n = 8")
    assert stale.update({"a": "a + 1"}, "n in (7, 8)") == {"num_rows_updated": 1}
    assert stale.to_table(filter="n in (7, 8)")["a"].to_pylist() == [9]


def test_a_stale_update_without_retries_is_a_conflict(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")
    stale = lance_io.dataset(uri)
    lance.dataset(uri).update({"a": "0"}, "n = 7")
    before = set((tmp_path / "t" / "data").iterdir())
    with pytest.raises(CommitConflictError):
        stale.update({"a": "a + 1"}, "n = 7", conflict_retries=0)
    assert set((tmp_path / "t" / "data").iterdir()) == before


async def test_concurrent_updates_of_one_row_are_all_there(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")

    async def count() -> None:
        table = await AsyncDataset.open(uri)
        for _ in range(5):
            await table.update({"a": "a + 1"}, "n = 7", conflict_retries=1000)

    await asyncio.gather(*(count() for _ in range(4)))
    assert lance.dataset(uri).to_table(filter="n = 7")["a"].to_pylist() == [27]


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [5],
        [3, 4, 5],
        [9, 2, 5],
        [0, 1, 3, 4, 6],
        list(range(0, 5000, 2)),
        [i for i in range(3000) if i % 500],
        [1, 70_000],
        [1 << 40, 3, 1 << 63],
        [0, (1 << 64) - 1],
        list(range(100_000, 0, -3)),
    ],
    ids=lambda ids: f"{len(ids)} ids",
)
def test_encoded_row_ids_are_read_again(ids: list[int]) -> None:
    given = np.array(ids, dtype=np.uint64)
    assert decode_row_ids(encode_row_ids(given), len(given)).tolist() == ids
