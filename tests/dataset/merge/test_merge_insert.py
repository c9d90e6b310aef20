"""`merge_insert`: the same call of both libraries gives the same table, and what fails leaves it as it was."""

from __future__ import annotations

import itertools
import shutil
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("l", pa.list_(pa.int32())),
    ]
)
NAMES = SCHEMA.names
SYSTEM = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]


def row(key: int | None, mark: str) -> dict[str, Any]:
    number = 1 if key is None else key
    return {
        "a": key,
        "b": None if number % 5 == 4 else f"{mark}{number}",
        "c": None if number % 4 == 3 else number / 2,
        "st": None if number % 7 == 6 else {"x": number, "y": f"{mark}y{number}"},
        "l": None if number % 3 == 2 else list(range(number % 4)),
    }


TARGET = pa.Table.from_pylist([row(key, "t") for key in [*range(24), None, None]], SCHEMA)
SOURCE = pa.Table.from_pylist([row(key, "s") for key in (17, 100, 3, 4, 5, 101, None, 11, 22)], SCHEMA)
CUT = pa.schema([("st", pa.struct([("y", pa.string())])), ("a", pa.int64())])
SOURCES = {
    "full": SOURCE,
    "other order": SOURCE.select(["l", "c", "a", "st", "b"]),
    "partial": SOURCE.select(["c", "a", "l"]),
    "key only": SOURCE.select(["a"]),
    "empty": SOURCE.slice(0, 0),
    "cut struct": pa.Table.from_pylist([{"a": key, "st": {"y": f"z{key}"}} for key in (17, 100, 3, 4, 5, 11)], CUT),
}
CLAUSES: dict[str, Callable[[Any], Any]] = {
    "upsert": lambda b: b.when_matched_update_all().when_not_matched_insert_all(),
    "update": lambda b: b.when_matched_update_all(),
    "insert": lambda b: b.when_not_matched_insert_all(),
    "delete": lambda b: b.when_matched_delete(),
    "delete, insert": lambda b: b.when_matched_delete().when_not_matched_insert_all(),
    "rest": lambda b: b.when_not_matched_by_source_delete(),
    "rest by filter": lambda b: b.when_not_matched_by_source_delete("a < 14 or b is null"),
    "replace": lambda b: (
        b.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete("a < 9")
    ),
    "delete all": lambda b: b.when_matched_delete().when_not_matched_by_source_delete(),
    "some": lambda b: b.when_matched_update_all("source.a > 4 and target.c < 9").when_not_matched_insert_all(),
    "last clause": lambda b: b.when_matched_delete().when_matched_update_all(),
}

FAILS_IN_PYLANCE = {
    *(("delete all", source) for source in SOURCES if source != "key only"),
    *((clauses, "cut struct") for clauses in ("delete, insert", "rest", "rest by filter", "replace", "some")),
}


def fresh(path: Path, *, stable: bool = False, index: str | None = None, version: str | None = None) -> str:
    """Four fragments, of which one has lost a row that the source has."""
    options: dict[str, Any] = {"enable_stable_row_ids": stable, "data_storage_version": version}
    table = lance.write_dataset(TARGET, str(path), max_rows_per_file=7, **options)
    if index is not None:
        table.create_scalar_index("a", index)
    table.delete("a = 4")
    return str(path)


def facts(uri: str) -> dict[str, Any]:
    """What pylance sees in the newest version; the order of rows that a merge wrote is nobody's promise."""
    table = lance.dataset(uri)
    operation = table.read_transaction(table.version).operation
    last = table.get_fragments()[-1].fragment_id if operation.new_fragments else -1
    rows = table.to_table(columns=[*NAMES, *SYSTEM]).to_pylist()
    for one in rows:
        if one["_rowaddr"] >> 32 == last:
            one["_rowid"] = one["_rowid"] if one["_rowid"] < 1 << 32 else "new"
            one["_rowaddr"] = "new"
    return {
        "rows": sorted(rows, key=repr),
        "schema": table.schema,
        "files": [
            (one.fragment_id, one.physical_rows, one.num_deletions, [sorted(file.fields) for file in one.data_files()])
            for one in table.get_fragments()
        ],
        "version": table.version,
        "mode": operation.update_mode,
        "modified": sorted(operation.fields_modified),
        "updated": sorted(one.id for one in operation.updated_fragments),
        "removed": sorted(operation.removed_fragment_ids),
        "offsets": operation.updated_fragment_offsets,
    }


def merge_both(tmp_path: Path, source: Any, clauses: Callable[[Any], Any], on: Any = "a", **table: Any) -> None:
    """The same merge by both libraries on copies of one table."""
    theirs = fresh(tmp_path / "theirs", **table)
    ours = str(shutil.copytree(theirs, tmp_path / "ours"))
    expected = clauses(lance.dataset(theirs).merge_insert(on)).execute(source)
    merged = lance_io.dataset(ours)
    assert clauses(merged.merge_insert(on)).execute(source) == expected
    assert facts(ours) == facts(theirs)
    assert merged.version == lance.dataset(theirs).version
    assert merged.to_table().equals(lance.dataset(ours).to_table())
    lance.dataset(ours).validate()


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    ("clauses", "source"),
    [
        (clauses, source)
        for clauses, source in itertools.product(CLAUSES, SOURCES)
        if (clauses, source) not in FAILS_IN_PYLANCE
    ],
)
def test_merges_are_those_of_pylance(tmp_path: Path, clauses: str, source: str, stable: bool) -> None:
    merge_both(tmp_path, SOURCES[source], CLAUSES[clauses], stable=stable)


@pytest.mark.parametrize("index", ["BTREE", "BITMAP"])
@pytest.mark.parametrize("clauses", ["upsert", "update", "insert", "delete", "replace"])
@pytest.mark.parametrize("source", ["full", "partial", "key only"])
def test_with_an_index_on_the_key(tmp_path: Path, source: str, clauses: str, index: str) -> None:
    rows = SOURCES[source].filter(pa.compute.is_valid(SOURCES[source]["a"]))  # pylance loses null keys
    merge_both(tmp_path, rows, CLAUSES[clauses], stable=clauses == "upsert", index=index)


@pytest.mark.parametrize("mode", ["rewrite_rows", "auto"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_indices_cover_what_they_do_in_pylance(tmp_path: Path, mode: str, stable: bool) -> None:
    theirs = fresh(tmp_path / "theirs", stable=stable)
    table = lance.dataset(theirs)
    for column, kind in (("a", "BTREE"), ("b", "BITMAP"), ("c", "ZONEMAP")):
        table.create_scalar_index(column, kind)
    ours = str(shutil.copytree(theirs, tmp_path / "ours"))
    rows = SOURCES["partial"].filter(pa.compute.is_valid(SOURCES["partial"]["a"])).select(["a", "c"])
    covered = []
    for library, uri in ((lance, theirs), (lance_io, ours)):
        CLAUSES["update"](library.dataset(uri).merge_insert("a")).write_mode(mode).execute(rows)
        found = lance.dataset(uri)
        with pytest.warns(DeprecationWarning):
            described = {one["name"]: sorted(one["fragment_ids"]) for one in found.list_indices()}
        answers = [found.to_table(filter=text).sort_by("a").to_pylist() for text in ("a = 17", "b = 't3'", "c > 5")]
        covered.append((described, answers))
    assert covered[1] == covered[0]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_that_the_source_lacks_are_kept(tmp_path: Path, version: str) -> None:
    values = [b"a" * 10, None, b"", b"x" * 100_000, b"y" * 3_000_000, b"z"]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = lance.blob_array(values) if version == "2.2" else pa.array(values, pa.large_binary())
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), field]) if version == "2.1" else None
    rows = pa.table({"id": range(6), "v": range(6), "b": blobs}, schema=schema)
    uri = str(tmp_path / "t")
    lance.write_dataset(rows, uri, data_storage_version=version, max_rows_per_file=4)
    table = lance_io.dataset(uri)
    done = CLAUSES["upsert"](table.merge_insert("id")).execute(
        pa.table({"id": [5, 4, 3, 1, 9], "v": [50, 40, 30, 10, 90]})
    )
    assert done == {"num_inserted_rows": 1, "num_updated_rows": 4, "num_deleted_rows": 0}
    found = lance.dataset(uri)
    assert found.to_table(columns=["id", "v"]).to_pydict() == {
        "id": [0, 2, 5, 4, 3, 1, 9],
        "v": [0, 2, 50, 40, 30, 10, 90],
    }
    read = [None if one is None else one.read() for one in found.take_blobs("b", indices=list(range(7)))]
    assert read == [values[0], values[2], values[5], values[4], values[3], None, None]
    again = rows.slice(3, 2).set_column(1, "v", pa.array([300, 400]))
    assert CLAUSES["upsert"](table.merge_insert("id")).execute(again)["num_updated_rows"] == 2
    assert lance.dataset(uri).take_blobs("b", indices=[6])[0].read() == values[4]


@pytest.mark.parametrize(("clauses", "source"), sorted(FAILS_IN_PYLANCE))
def test_what_fails_in_pylance(tmp_path: Path, clauses: str, source: str) -> None:
    rows = SOURCES[source]
    upserts = clauses in ("replace", "some")
    table = lance_io.dataset(fresh(tmp_path / "t"))
    before = table.to_table().to_pylist()
    CLAUSES[clauses](table.merge_insert("a")).execute(rows)
    given = {one["a"]: one for one in rows.to_pylist()}
    kept = {
        "delete all": lambda one: False,
        "delete, insert": lambda one: one["a"] not in given,
        "rest": lambda one: one["a"] in given,
        "rest by filter": lambda one: (
            one["a"] in given or not ((one["a"] is not None and one["a"] < 14) or one["b"] is None)
        ),
        "some": lambda one: True,
        "replace": lambda one: one["a"] in given or (one["a"] if one["a"] is not None else 99) >= 9,
    }[clauses]
    expected = {one["a"]: dict(one) for one in before if kept(one) and one["a"] is not None}
    for key, one in given.items():
        counts = clauses == "replace" or (key in expected and key > 4 and (expected[key]["c"] or 99) < 9)
        if key in expected and upserts and counts:
            expected[key]["st"] = {**(expected[key]["st"] or {"x": None}), "y": one["st"]["y"]}
        elif key not in {each["a"] for each in before} and (upserts or clauses == "delete, insert"):
            expected[key] = {"a": key, "b": None, "c": None, "st": {"x": None, **one["st"]}, "l": None}
    found = table.to_table().to_pylist()
    assert {one["a"]: one for one in found if one["a"] is not None} == expected
    assert lance.dataset(table.uri).to_table().to_pylist() == found


def test_null_keys_are_not_lost_where_there_is_an_index(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t", index="BTREE"))
    done = table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(SOURCE)
    assert done == {"num_inserted_rows": 4, "num_updated_rows": 5, "num_deleted_rows": 0}
    assert lance.dataset(table.uri).count_rows("a is null and b = 's1'") == 1
    assert lance.dataset(table.uri).count_rows("a = 17 and b = 's17'") == 1


@pytest.mark.parametrize("mode", ["rewrite_rows", "rewrite_columns", "auto"])
@pytest.mark.parametrize("index", [None, "BTREE"])
def test_write_modes(tmp_path: Path, mode: str, index: str | None) -> None:
    rows = SOURCES["partial"].filter(pa.compute.is_valid(SOURCES["partial"]["a"]))
    merge_both(tmp_path, rows, lambda b: b.when_matched_update_all().write_mode(mode), index=index, stable=True)


def test_an_index_need_not_decide_how_rows_are_written(tmp_path: Path) -> None:
    rows = SOURCES["partial"].slice(0, 5)
    merge_both(tmp_path, rows, lambda b: CLAUSES["upsert"](b).use_index(False), index="BTREE")


def test_several_keys(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{**row(3, "t"), "l": [9]}, row(5, "x"), row(9, "t"), row(None, "t")], SCHEMA)
    merge_both(tmp_path, rows, CLAUSES["upsert"], on=["b", "a", "b"], stable=True)


def test_the_names_of_keys_count_in_any_case(tmp_path: Path) -> None:
    merge_both(tmp_path, SOURCE, CLAUSES["upsert"], on="A")


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_files_of_every_version(tmp_path: Path, version: str) -> None:
    rows = pa.table({"a": range(30), "s": pa.array([f"s{i % 3}" for i in range(30)]).dictionary_encode()})
    new = pa.table({"a": range(25, 35), "s": pa.array([f"n{i % 3}" for i in range(10)]).dictionary_encode()})
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    lance.write_dataset(rows, str(theirs), data_storage_version=version, max_rows_per_file=10)
    shutil.copytree(theirs, ours)
    if version == "legacy":  # whose dictionaries are the table's, for ever
        new = new.set_column(1, "s", pa.array([f"s{i % 3}" for i in range(10)]).dictionary_encode())
    expected = CLAUSES["upsert"](lance.dataset(str(theirs)).merge_insert("a")).execute(new)
    assert CLAUSES["upsert"](lance_io.dataset(str(ours)).merge_insert("a")).execute(new) == expected
    found, known = (lance.dataset(str(path)).to_table().to_pylist() for path in (ours, theirs))
    assert sorted(found, key=repr) == sorted(known, key=repr)


def test_new_files_of_another_version(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t", version="2.1"))
    CLAUSES["upsert"](table.merge_insert("a")).data_storage_version("2.2").execute(SOURCE)
    assert {file.file_minor_version for one in table.get_fragments() for file in one.data_files()} == {1, 2}
    assert lance.dataset(table.uri).count_rows("b = 's17'") == 1


# -- keys ------------------------------------------------------------------------------------------------------------

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-1, 0, 5, -128, None]),
    "uint64": (pa.uint64(), [0, 1, (1 << 64) - 1, 1 << 63, None]),
    "bool": (pa.bool_(), [True, None]),
    "float16": (pa.float16(), [1.5, -2.0, None]),
    "float32": (pa.float32(), [1.5, float("nan"), -2.0, None]),
    "float64": (pa.float64(), [0.0, -0.0, float("nan"), float("inf"), None]),
    "date": (pa.date32(), [0, 1, 18000, None]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [0, 1, -5, None]),
    "duration": (pa.duration("ns"), [0, 1, -5, None]),
    "string": (pa.string(), ["", "a", "b", "a\0", "x" * 100, None]),
    "large string": (pa.large_string(), ["", "a", "ab", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "fixed binary": (pa.binary(3), [b"abc", b"abd", b"\0\0\0", None]),
    "decimal": (pa.decimal128(10, 2), [Decimal(1), Decimal("2.5"), Decimal(100), None]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, 2], [2, 1], [None], None]),
    "vector": (pa.list_(pa.float32(), 2), [[1.0, 2.0], [2.0, 1.0], None]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": "a"}, {"x": 1, "y": None}, None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_keys_of_every_type(tmp_path: Path, name: str) -> None:
    dtype, values = TYPES[name]
    keys = pa.array(values, dtype)
    there = pa.table({"k": keys.slice(0, len(values) // 2), "v": pa.array(range(len(values) // 2))})
    given = pa.table({"k": keys, "v": pa.array(range(100, 100 + len(values)))})
    lance.write_dataset(there, str(tmp_path / "theirs"))
    shutil.copytree(tmp_path / "theirs", tmp_path / "ours")
    found = []
    for library, path in ((lance, "theirs"), (lance_io, "ours")):
        builder = library.dataset(str(tmp_path / path)).merge_insert("k")
        done = builder.when_matched_update_all().when_not_matched_insert_all().execute(given)
        rows = lance.dataset(str(tmp_path / path)).to_table().to_pylist()
        found.append((done, sorted(map(repr, rows))))
    assert found[1] == found[0]


def test_duplicate_keys(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1, 1, 2, 3, 3], pa.int64()), "v": ["t"] * 5})
    given = pa.table({"a": pa.array([1, 3, 7, 7, 3, None, None], pa.int64()), "v": ["s"] * 7})
    other = pa.table({"a": pa.array([1, 3, 8, 8, None, None], pa.int64()), "v": ["s"] * 6})
    for path in ("theirs", "ours"):
        lance.write_dataset(rows, str(tmp_path / path), max_rows_per_file=2)
    theirs, ours = lance.dataset(str(tmp_path / "theirs")), lance_io.dataset(str(tmp_path / "ours"))
    for clauses in ("insert", "upsert", "delete"):
        rows = {"insert": given, "upsert": other, "delete": other.slice(0, 3)}[clauses]
        expected = CLAUSES[clauses](theirs.merge_insert("a")).execute(rows)
        assert CLAUSES[clauses](ours.merge_insert("a")).execute(rows) == expected, clauses
        assert sorted(ours.to_table().to_pylist(), key=repr) == sorted(theirs.to_table().to_pylist(), key=repr)


def test_two_source_rows_for_one_of_the_table(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")
    before = sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())
    given = SOURCE.take([0, 1, 1, 0])
    for library, clauses in itertools.product((lance, lance_io), ("update", "delete", "upsert", "replace")):
        with pytest.raises(OSError, match=r"multiple source rows match the same target row on \(a = 17\)"):
            CLAUSES[clauses](library.dataset(uri).merge_insert("a")).execute(given)
    after = sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())
    assert [path for path in after if "data" not in path.parts] == [path for path in before if "data" not in path.parts]
    for condition, updated in (("source.b = 'first'", 1), ("source.b = 'none'", 0)):
        mixed = given.set_column(1, "b", pa.array(["first", "x", "x", "second"]))
        results = []
        for library, path in ((lance, "theirs"), (lance_io, "ours")):
            copy = str(shutil.copytree(uri, tmp_path / f"{path}{updated}"))
            results.append(library.dataset(copy).merge_insert("a").when_matched_update_all(condition).execute(mixed))
        assert results[0] == results[1] == {"num_inserted_rows": 0, "num_updated_rows": updated, "num_deleted_rows": 0}


def test_rows_that_must_not_match(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t")
    for library in (lance, lance_io):
        builder = library.dataset(uri).merge_insert(["a", "b"]).when_matched_fail().when_not_matched_insert_all()
        with pytest.raises(OSError, match=r"found matching row with key values: a = 3, b = \"?t3"):
            builder.execute(pa.Table.from_pylist([row(50, "x"), row(3, "t")], SCHEMA))
        done = builder.execute(pa.Table.from_pylist([row(50, library.__name__), row(3, library.__name__)], SCHEMA))
        assert done["num_inserted_rows"] == 2


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: dict[str, Callable[[Any], Any]] = {
    "nothing to do": lambda ds: ds.merge_insert("a").execute(SOURCE),
    "no key": lambda ds: ds.merge_insert(),
    "no key either": lambda ds: ds.merge_insert([]),
    "unknown key": lambda ds: ds.merge_insert("zz"),
    "row id as key": lambda ds: ds.merge_insert("_rowid"),
    "key that is no text": lambda ds: ds.merge_insert(5),
    "keys that are no texts": lambda ds: ds.merge_insert(["a", 5]),
    "unknown column": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(
        SOURCE.append_column("z", SOURCE["a"])
    ),
    "other case": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(SOURCE.rename_columns(["A", *NAMES[1:]])),
    "other type": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(pa.table({"a": ["1"]})),
    "source without the key": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(SOURCE.select(["b"])),
    "row ids in the source": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(ds.to_table(with_row_id=True)),
    "condition without prefix": lambda ds: ds.merge_insert("a").when_matched_update_all("b = 'x'").execute(SOURCE),
    "unknown column in the condition": lambda ds: (
        ds.merge_insert("a").when_matched_update_all("source.zz = 'x'").execute(SOURCE)
    ),
    "condition that is none": lambda ds: ds.merge_insert("a").when_matched_update_all("source.a + 1").execute(SOURCE),
    "condition that is no SQL": lambda ds: ds.merge_insert("a").when_matched_update_all("source.a >").execute(SOURCE),
    "condition that is no text": lambda ds: ds.merge_insert("a").when_matched_update_all(5),
    "unknown column in the filter": lambda ds: ds.merge_insert("a").when_not_matched_by_source_delete("zz = 1"),
    "prefix in the filter": lambda ds: ds.merge_insert("a").when_not_matched_by_source_delete("target.a = 1"),
    "filter that is no text": lambda ds: ds.merge_insert("a").when_not_matched_by_source_delete(pa.compute.field("a")),
    "batches without a schema": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(iter(SOURCE.to_batches())),
    "no table": lambda ds: CLAUSES["upsert"](ds.merge_insert("a")).execute(5),
    "negative retries": lambda ds: ds.merge_insert("a").conflict_retries(-1),
    "timeout that is a number": lambda ds: ds.merge_insert("a").retry_timeout(5),
    "unknown mode": lambda ds: ds.merge_insert("a").write_mode("x"),
    "columns of a whole source": lambda ds: (
        ds.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns").execute(SOURCE)
    ),
    "columns of a key": lambda ds: (
        ds.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns").execute(SOURCE.select(["a"]))
    ),
    "columns and inserts": lambda ds: (
        CLAUSES["upsert"](ds.merge_insert("a")).write_mode("rewrite_columns").execute(SOURCES["partial"])
    ),
    "columns and deletions": lambda ds: (
        CLAUSES["delete"](ds.merge_insert("a")).write_mode("rewrite_columns").execute(SOURCES["partial"])
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused_in_the_same_way(tmp_path: Path, name: str) -> None:
    uri = fresh(tmp_path / "t")
    with pytest.raises(Exception) as theirs:
        REFUSED[name](lance.dataset(uri))
    data = sorted((tmp_path / "t" / "data").iterdir())
    with pytest.raises(theirs.type):
        REFUSED[name](lance_io.dataset(uri))
    assert sorted((tmp_path / "t" / "data").iterdir()) == data, "a file of a failed merge stayed"
    assert lance_io.dataset(uri).version == 2


def test_columns_that_may_not_be_null(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table = pa.table({"a": [1, 2], "n": [1, 2]}, schema=schema)
    for library, path in ((lance, "theirs"), (lance_io, "ours")):
        lance.write_dataset(table, str(tmp_path / path))
        merge = library.dataset(str(tmp_path / path)).merge_insert("a").when_matched_update_all
        assert merge().execute(table.select(["a"]))["num_updated_rows"] == 2
        with pytest.raises(OSError, match="non-nullable"):
            merge().when_not_matched_insert_all().execute(table.select(["a"]))
        with pytest.raises(OSError):
            merge().execute(pa.table({"a": [1], "n": pa.array([None], pa.int64())}))
        assert lance.dataset(str(tmp_path / path)).version == 2


TO_BASES: dict[str, Callable[[Any, str], Any]] = {
    "a name": lambda builder, uri: builder.target_bases(["one"]),
    "a path and the table": lambda builder, uri: builder.target_bases([f"{uri}-two", uri]),
    "the table": lambda builder, uri: builder.target_bases([uri]),
    "all": lambda builder, uri: builder.target_all_bases(),
    "all others": lambda builder, uri: builder.target_all_bases(include_primary=False),
}


def files_by_base(uri: str) -> list[list[int | None]]:
    """Base paths of the files of every fragment."""
    return [[file.base_id or None for file in one.metadata.files] for one in lance.dataset(uri).get_fragments()]


@pytest.mark.parametrize("to_bases", TO_BASES)
@pytest.mark.parametrize("has_index", [False, True])
def test_new_fragments_go_to_bases(tmp_path: Path, to_bases: str, has_index: bool) -> None:
    """With an index of the key columns are written for the fragments that are there, which stay where they are."""
    found = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        rows = pa.table({"a": range(8), "b": range(8), "c": range(8)})
        table = lance.write_dataset(rows, uri, max_rows_per_file=4)
        for name in ("one", "two"):
            Path(f"{uri}-{name}").mkdir()
        table.add_bases([lance.DatasetBasePath(f"{uri}-{name}", name) for name in ("one", "two")])
        if has_index:
            table.create_scalar_index("a", "BTREE")
        builder = library.dataset(uri).merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
        TO_BASES[to_bases](builder, uri).execute(pa.table({"a": [1, 6, 20], "b": [7, 8, 9]}))
        found.append((files_by_base(uri), lance_io.dataset(uri).to_table().sort_by("a")))
        assert found[-1][1] == lance.dataset(uri).to_table().sort_by("a")
    assert found[0] == found[1]


def test_bases_that_cannot_be(tmp_path: Path) -> None:
    uri, rows = fresh(tmp_path / "t"), lance.dataset(fresh(tmp_path / "s")).to_table()
    for library in (lance, lance_io):
        builders = [library.dataset(uri).merge_insert("a").when_matched_update_all() for _ in range(4)]
        with pytest.raises(OSError, match="Base reference 'x' not found"):
            builders[0].target_bases(["x"]).execute(rows)
        with pytest.raises(OSError, match="target_bases cannot be empty"):
            builders[1].target_bases([]).execute(rows)
        with pytest.raises(ValueError, match="Cannot specify target_all_bases together with target_bases"):
            builders[2].target_bases(["x"]).target_all_bases().execute(rows)
        with pytest.raises(TypeError):
            builders[3].target_bases("x")


def test_logs_are_not_offered(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="MemWAL"):
        lance_io.dataset(fresh(tmp_path / "t")).merge_insert("a").mark_sstables_as_compacted([])


def test_types_that_lose_nothing_are_taken(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t"))
    schema = [("a", pa.int32()), ("b", pa.large_string()), ("c", pa.float32()), ("l", pa.null())]
    rows = pa.Table.from_pylist([{"a": 1, "b": "one", "c": 2.5}, {"a": 200, "b": None, "c": None}], pa.schema(schema))
    assert CLAUSES["upsert"](table.merge_insert("a")).execute(rows)["num_updated_rows"] == 1
    found = table.to_table(filter="a in (1, 200)", columns=["a", "b", "c", "l"]).to_pylist()
    assert found == [{"a": 1, "b": "one", "c": 2.5, "l": None}, {"a": 200, "b": None, "c": None, "l": None}]
    words = pa.table({"a": pa.array([2]), "b": pa.array(["two"]).dictionary_encode()})
    CLAUSES["update"](table.merge_insert("a")).execute(words)
    assert table.to_table(filter="a = 2")["b"].to_pylist() == ["two"]


# -- sources and plans -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["reader", "batches", "dataset", "pylance", "scanner", "pandas", "dict", "list"])
def test_forms_of_sources(tmp_path: Path, form: str) -> None:
    rows = SOURCE.select(["a", "c"]).filter(pa.compute.is_valid(SOURCE["a"]))
    given: Any = {
        "reader": lambda: rows.to_reader(max_chunksize=2),
        "batches": lambda: iter(rows.to_batches(max_chunksize=3)),
        "dataset": lambda: lance_io.write_dataset(rows, str(tmp_path / "s")),
        "pylance": lambda: lance.write_dataset(rows, str(tmp_path / "s")),
        "scanner": lambda: lance_io.write_dataset(rows, str(tmp_path / "s")).scanner(),
        "pandas": rows.to_pandas,
        "dict": rows.to_pydict,
        "list": rows.to_pylist,
    }[form]()
    table = lance_io.dataset(fresh(tmp_path / "t"))
    done = CLAUSES["upsert"](table.merge_insert("a")).execute(given, schema=rows.schema)
    assert done == {"num_inserted_rows": 3, "num_updated_rows": 5, "num_deleted_rows": 0}
    assert table.count_rows() == 28


def test_a_builder_is_used_again(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t"))
    builder = CLAUSES["upsert"](table.merge_insert("a"))
    rows = SOURCE.filter(pa.compute.is_valid(SOURCE["a"]))
    assert builder.execute(rows)["num_inserted_rows"] == 3
    assert builder.execute(rows) == {"num_inserted_rows": 0, "num_updated_rows": 8, "num_deleted_rows": 0}


def test_a_merge_is_committed_later(tmp_path: Path) -> None:
    uri = fresh(tmp_path / "t", stable=True)
    table = lance_io.dataset(uri)
    transaction, done = CLAUSES["upsert"](table.merge_insert("a")).execute_uncommitted(SOURCE)
    assert done == {"num_inserted_rows": 4, "num_updated_rows": 5, "num_deleted_rows": 0}
    assert table.version == 2 and transaction.read_version == 2
    after = lance_io.LanceDataset.commit(uri, transaction)
    assert after.count_rows() == 29
    assert lance.dataset(uri).to_table(columns=["a"], filter="_row_last_updated_at_version = 3").num_rows == 9


def test_plans_are_told(tmp_path: Path) -> None:
    table = lance_io.dataset(fresh(tmp_path / "t"))
    builder = table.merge_insert("a").when_matched_update_all("source.c > target.c").when_not_matched_insert_all()
    plan = builder.explain_plan()
    begin = 'MergeInsert: on=[a], when_matched=UpdateIf("source.c > target.c"), when_not_matched=InsertAll, '
    assert plan.startswith(begin + "when_not_matched_by_source=Keep")
    assert "projection=[a, c], num_fragments=4" in plan
    assert "LanceTake: projection=[b, st, l]" in builder.explain_plan(
        pa.schema([("a", pa.int64()), ("c", pa.float64())])
    )
    assert "types=[a: int64" in builder.explain_plan(verbose=True)
    with pytest.raises(OSError, match="unexpected"):
        builder.explain_plan(pa.schema([("a", pa.int64()), ("q", pa.int64())]))
    files = sorted((tmp_path / "t").rglob("*"))
    told = builder.analyze_plan(SOURCE)
    assert "num_inserted_rows=4, num_updated_rows=0, num_deleted_rows=0, num_files_written=1" in told
    assert "metrics=[rows=9" in told and "table of the source's keys" in told
    assert sorted((tmp_path / "t").rglob("*")) == files and table.version == 2
    with pytest.raises(ValueError, match="not configured"):
        table.merge_insert("a").explain_plan()


def test_retries_take_a_time(tmp_path: Path) -> None:
    builder = lance_io.dataset(fresh(tmp_path / "t")).merge_insert("a").retry_timeout(timedelta(seconds=3))
    assert CLAUSES["upsert"](builder.conflict_retries(2)).execute(SOURCE)["num_inserted_rows"] == 4
