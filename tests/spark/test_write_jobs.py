"""Write jobs without a JVM: schemas, files, commits, aborts. pylance says what is in the tables."""

from __future__ import annotations

import dataclasses
import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import lance_io
from lance_io import runtime
from lance_io.commit.commit_loop import commit
from lance_io.dataset.distributed import job_commit as committing
from lance_io.dataset.distributed.job_commit import CommitOptions, commit_steps
from lance_io.dataset.distributed.job_files import abort_steps
from lance_io.dataset.distributed.write_job import job_digits, write_target
from lance_io.errors import AlreadyExists, CommitConflictError, LanceError, NotFound, SchemaError
from lance_io.plans.plan import drive_async
from lance_io.spark import cleanup_job
from lance_io.spark.engine import table_place
from lance_io.spark.write.write_casts import RowMisfit
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from tests.spark.jobs import ID, Job, batch, files, ids, referenced, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG, TEXT, FLOATS = spark.LongType(), spark.StringType(), spark.ArrayType(spark.FloatType())


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


# -- versions and files ----------------------------------------------------------------------------------------------


def test_a_job_is_one_version_that_names_it(path: str) -> None:
    Job(path).run(range(5), [], range(5, 9))
    Job(path, job_id="nightly 7", commit_message="more", **{"properties.team": "a"}).run([9], [10])
    assert ids(path) == list(range(11))
    table = lance.dataset(path)
    assert table.version == 2
    properties = table.read_transaction(2).transaction_properties
    assert properties == {"lance_io.job": "nightly 7", "team": "a", "__lance_commit_message": "more"}
    named = [name for name in files(path) if name.endswith(f"{job_digits('nightly 7')}.lance")]
    assert len(named) == 2 and files(path) == referenced(path)
    assert lance_io.dataset(path).count_rows() == 11


def test_rows_of_no_task_make_no_version(path: str) -> None:
    Job(path).run([], [])
    assert lance.dataset(path).version == 1 and ids(path) == []
    Job(path).run([], [])
    assert lance.dataset(path).version == 1
    Job(path, overwrite=True).run([])
    assert lance.dataset(path).version == 2


def test_a_missing_table_is_not_created_when_that_is_not_wanted(path: str) -> None:
    with pytest.raises(NotFound, match="create is false"):
        Job(path, create="false")


def test_a_hard_number_of_rows(path: str) -> None:
    Job(path, max_rows_per_file=4).run(range(10), range(10, 14))
    assert [fragment.count_rows() for fragment in lance.dataset(path).get_fragments()] == [4, 4, 2, 4]


def test_no_runts_at_the_end(path: str) -> None:
    """Files of 64 KiB: what is left after the last full one joins it, unless it is as much again."""
    given = struct(id=LONG, blob=spark.BinaryType())
    noise = random.Random(1)
    rows = [(number, noise.randbytes(32)) for number in range(5_000)]
    job = Job(path, given, max_bytes_per_file="64k")
    batches = [batch(given, rows[start : start + 50]) for start in range(0, 5_000, 50)]
    job.writer.commit([job.writer.write(iter(batches))])
    assert ids(path) == list(range(5_000))
    sizes = [Path(path, "data", name).stat().st_size for name in referenced(path)]
    assert len(sizes) == 3 and min(sizes) >= 57 << 10
    Job(path, given, max_bytes_per_file="16k").run([(number, b"x" * 1024) for number in range(5_000, 5_100)])
    (count,) = [fragment.count_rows() for fragment in lance.dataset(path).get_fragments()][len(sizes) :]
    assert count == 100, "which take less as they are stored"


def test_an_attempt_that_fails_leaves_nothing(path: str) -> None:
    job = Job(path)

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(ID, range(1000))
        raise RuntimeError("the input broke")

    with pytest.raises(RuntimeError, match="the input broke"):
        job.writer.write(broken())
    assert not files(path)


def test_two_attempts_share_no_file(path: str) -> None:
    job = Job(path)
    one, two = job.write(range(3), range(3))
    assert not set(one.files.paths) & set(two.files.paths)
    job.writer.commit([one])
    assert ids(path) == [0, 1, 2]
    assert cleanup_job(path, job.writer.job.job_id) == sorted(two.files.paths)
    assert files(path) == referenced(path) and ids(path) == [0, 1, 2]


def test_a_missing_message_commits_nothing(path: str) -> None:
    job = Job(path)
    with pytest.raises(LanceError, match="partition 1 sent no message"):
        job.writer.commit([*job.write([1]), None])
    assert not Path(path, "_versions").exists()


# -- schemas ---------------------------------------------------------------------------------------------------------


def test_nullability_is_the_tables(path: str) -> None:
    """`not null` of literals and ranges makes no other schema."""
    Job(path).run([1])
    assert lance.dataset(path).schema.field("id").nullable
    Job(path, struct(id=LONG)).run([2, None])
    table = lance.dataset(path).to_table()
    assert table["id"].to_pylist() == [1, 2, None]


def test_columns_are_matched_by_name(path: str) -> None:
    Job(path, struct(id=LONG, text=TEXT)).run([(1, "a")])
    Job(path, struct(text=TEXT, id=LONG)).run([("b", 2)])
    Job(path, struct(text=TEXT, _rowid=LONG, _rowaddr=LONG, _fragid=LONG)).run([("c", 7, 8, 9)])
    table = lance.dataset(path).to_table()
    assert table.to_pylist() == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": None, "text": "c"}]
    with pytest.raises(SchemaError, match=r"Text \(the table has text\)"):
        Job(path, struct(id=LONG, Text=TEXT))
    with pytest.raises(SchemaError, match="no column"):
        Job(path, struct(_rowid=LONG))


def test_a_required_column_has_to_come(path: str) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    lance.write_dataset(pa.table({"id": [1], "text": ["a"]}, schema=required), path)
    with pytest.raises(SchemaError, match="column id is missing"):
        Job(path, struct(text=TEXT))
    with pytest.raises(RowMisfit, match="row 1, column id: expected int64 not null"):
        Job(path, struct(id=LONG)).run([2, None])


def test_new_columns_come_with_their_rows(path: str) -> None:
    Job(path).run([1])
    with pytest.raises(SchemaError, match="mergeSchema=true"):
        Job(path, struct(id=LONG, text=TEXT))
    Job(path, struct(id=LONG, text=TEXT), mergeSchema="true").run([(2, "b")])
    table = lance.dataset(path)
    assert table.version == 2
    assert table.to_table().to_pylist() == [{"id": 1, "text": None}, {"id": 2, "text": "b"}]
    assert type(table.read_transaction(2).operation).__name__ == "Merge"
    assert "lance_io.job" in table.read_transaction(2).transaction_properties


def test_new_members_come_with_their_rows(path: str) -> None:
    """Also those of two jobs at once; a job that lacks members writes nulls."""

    def given(*members: str) -> spark.StructType:
        inner = spark.StructType([spark.StructField("v", LONG), *(spark.StructField(name, TEXT) for name in members)])
        return struct(id=LONG, s=spark.StructType([spark.StructField("x", LONG), spark.StructField("in", inner)]))

    Job(path, given()).run([(1, {"x": 1, "in": {"v": 1}}), (2, None)])
    with pytest.raises(SchemaError, match=r"no member s\.in\.y, which mergeSchema=true adds"):
        Job(path, given("y"))
    one, two = Job(path, given("y"), mergeSchema="true"), Job(path, given("z"), mergeSchema="true")
    messages = two.write([(4, {"x": 4, "in": {"v": 4, "z": "z"}})])
    one.run([(3, {"x": 3, "in": {"v": 3, "y": "y"}})])
    two.writer.commit(messages)
    Job(path, given()).run([(5, {"x": 5, "in": None})])
    expected = [
        {"id": 1, "s": {"x": 1, "in": {"v": 1, "y": None, "z": None}}},
        {"id": 2, "s": None},
        {"id": 3, "s": {"x": 3, "in": {"v": 3, "y": "y", "z": None}}},
        {"id": 4, "s": {"x": 4, "in": {"v": 4, "y": None, "z": "z"}}},
        {"id": 5, "s": {"x": 5, "in": None}},
    ]
    assert lance_io.dataset(path).to_table().to_pylist() == expected
    assert lance.dataset(path).to_table().to_pylist() == expected
    table = lance.dataset(path)
    names = [type(table.read_transaction(number).operation).__name__ for number in range(1, 5)]
    assert names == ["Overwrite", "Merge", "Merge", "Append"]


def test_names_that_differ_in_case_only(path: str) -> None:
    """Without the JAR no setting of Spark says whether they are of one column: such rows are refused."""
    inner = spark.StructType([spark.StructField("x", LONG)])
    Job(path, struct(id=LONG, s=inner)).run([(1, {"x": 1})])
    upper = spark.StructType([spark.StructField("X", LONG)])
    for given, message in (
        (struct(id=LONG, s=inner, ID=LONG), "column ID differs from id in case only"),
        (struct(id=LONG, s=upper), r"column s\.X differs from s\.x in case only"),
        (struct(id=LONG, new=LONG, New=LONG), "column New differs from new in case only"),
    ):
        with pytest.raises(SchemaError, match=message):
            Job(path, given, mergeSchema="true")
    Job(path, struct(id=LONG, ID=LONG, s=upper), mergeSchema="true", caseSensitive="true").run([(2, 3, {"X": 4})])
    assert lance.dataset(path).to_table().to_pylist() == [
        {"id": 1, "s": {"x": 1, "X": None}, "ID": None},
        {"id": 2, "s": {"x": None, "X": 4}, "ID": 3},
    ]


def test_new_columns_of_a_table_with_row_ids_and_an_index(path: str) -> None:
    """New rows have ids of their own, and old ones stay where the index says."""
    rows = pa.table({"id": pa.array(range(6), pa.int64())})
    table = lance.write_dataset(rows, path, enable_stable_row_ids=True, max_rows_per_file=3)
    table.create_scalar_index("id", "BTREE")
    table.delete("id = 1")
    Job(path, struct(id=LONG, text=TEXT), mergeSchema="true").run([(7, "b")], [(8, None)])
    for opened in (lance.dataset(path), lance_io.dataset(path)):
        ids_of_rows = opened.to_table(with_row_id=True).to_pydict()
        assert ids_of_rows == {
            "id": [0, 2, 3, 4, 5, 7, 8],
            "text": [None] * 5 + ["b", None],
            "_rowid": [0, 2, 3, 4, 5, 6, 7],
        }
        assert opened.to_table(filter="id >= 5").to_pydict() == {"id": [5, 7, 8], "text": [None, "b", None]}


def test_new_columns_beside_another_job_with_new_columns(path: str) -> None:
    """Field ids are given out when the columns are added, and the files of the second job follow."""
    Job(path).run([1])
    nested = spark.StructType([spark.StructField("x", LONG), spark.StructField("y", TEXT)])
    one = Job(path, struct(id=LONG, a=TEXT), mergeSchema="true")
    two = Job(path, struct(id=LONG, b=nested, a=TEXT), mergeSchema="true")
    messages = two.write([(3, {"x": 30, "y": "y"}, "two")])
    one.run([(2, "one")])
    two.writer.commit(messages)
    expected = [
        {"id": 1, "a": None, "b": None},
        {"id": 2, "a": "one", "b": None},
        {"id": 3, "a": "two", "b": {"x": 30, "y": "y"}},
    ]
    assert lance.dataset(path).to_table().to_pylist() == expected
    assert lance_io.dataset(path).to_table().to_pylist() == expected
    assert lance.dataset(path).version == 3


def test_new_columns_while_another_job_adds_some(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table changes between the look at it and the commit of the columns: they are added to the newest version."""
    Job(path).run([1])
    others = [Job(path, struct(id=LONG, a=TEXT), mergeSchema="true")]

    def late(*arguments: Any) -> Any:
        while others:
            others.pop().run([(2, "one")])
        return commit(*arguments)

    monkeypatch.setattr(committing, "commit", late)
    Job(path, struct(id=LONG, b=TEXT), mergeSchema="true").run([(3, "two")])
    expected = [{"id": 1, "a": None, "b": None}, {"id": 2, "a": "one", "b": None}, {"id": 3, "a": None, "b": "two"}]
    assert lance.dataset(path).to_table().to_pylist() == expected
    assert lance_io.dataset(path).to_table().to_pylist() == expected


def test_a_dropped_column_does_not_come_back(path: str) -> None:
    """Its id is still in the data files."""
    Job(path, struct(id=LONG, old=TEXT)).run([(1, "old")])
    lance.dataset(path).drop_columns(["old"])
    Job(path, struct(id=LONG, new=TEXT), mergeSchema="true").run([(2, "new")])
    expected = [{"id": 1, "new": None}, {"id": 2, "new": "new"}]
    assert lance.dataset(path).to_table().to_pylist() == expected
    assert lance_io.dataset(path).to_table().to_pylist() == expected


def test_a_job_with_new_columns_that_dies_leaves_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(path).run([1])
    given = struct(id=LONG, text=TEXT)
    job = Job(path, given, mergeSchema="true", job_id="j")
    messages = job.write([(2, "b")])
    with monkeypatch.context() as patch:
        patch.setattr(committing, "commit", lambda *_: (_ for _ in ()).throw(RuntimeError("died")))
        with pytest.raises(RuntimeError, match="died"):
            job.writer.commit(messages)
    job.writer.abort(messages)
    assert lance.dataset(path).version == 1 and files(path) == referenced(path)
    Job(path, given, mergeSchema="true", job_id="j").run([(2, "b")])
    assert lance.dataset(path).to_table().to_pylist() == [{"id": 1, "text": None}, {"id": 2, "text": "b"}]
    assert lance.dataset(path).version == 2


def test_overwrite_keeps_the_schema_unless_told(path: str) -> None:
    Job(path, struct(id=LONG, text=TEXT)).run([(1, "a")])
    Job(path, overwrite=True).run([2])
    assert lance.dataset(path).to_table().to_pylist() == [{"id": 2, "text": None}]
    with pytest.raises(SchemaError, match="number"):
        Job(path, struct(number=LONG), overwrite=True)
    Job(path, struct(number=LONG), overwrite=True, overwriteSchema="true").run([3])
    assert lance.dataset(path).to_table().to_pylist() == [{"number": 3}]
    assert lance.dataset(path).version == 3
    assert lance.dataset(path, version=1).to_table().to_pylist() == [{"id": 1, "text": "a"}]


def test_vectors(path: str) -> None:
    given = struct(id=LONG, Vec=FLOATS)
    Job(path, given, **{"vec.arrow.fixed-size-list.size": 2}).run([(1, [1.0, 2.0])])
    assert lance.dataset(path).schema.field("Vec").type == pa.list_(pa.float32(), 2)
    Job(path, given).run([(2, [3.0, 4.0]), (3, None)])
    assert lance.dataset(path).to_table()["Vec"].to_pylist() == [[1.0, 2.0], [3.0, 4.0], None]
    job = Job(path, given)
    batches = [batch(given, [(4, [1.0, 2.0]), (5, [1.0, 2.0])]), batch(given, [(6, [1.0, 2.0]), (7, [1.0])])]
    with pytest.raises(RowMisfit) as caught:
        job.writer.write(iter(batches))
    assert (caught.value.row, caught.value.column) == (3, "Vec")
    assert "expected fixed_size_list<item: float>[2] (2 items, not 1), found [1.0]" in str(caught.value)
    assert files(path) == referenced(path)


def test_an_overwritten_schema_is_that_of_the_data(path: str) -> None:
    """Whatever the column was before: its metadata or the option make vectors, nothing else does."""
    plain = spark.StructField("v", FLOATS)
    threes = spark.StructField("v", FLOATS, metadata={"arrow.fixed-size-list.size": 3})
    texts = spark.StructField("v", spark.ArrayType(TEXT))
    size = "v.arrow.fixed-size-list.size"
    for field, options, row, stored in [
        (plain, {size: 2}, [1.0, 2.0], pa.list_(pa.float32(), 2)),
        (threes, {}, [1.0, 2.0, 3.0], pa.list_(pa.float32(), 3)),
        (texts, {}, ["a"], pa.list_(pa.string())),
        (threes, {size: 1}, [1.0], pa.list_(pa.float32(), 1)),
        (plain, {}, [1.0, 2.0], pa.list_(pa.float32())),
    ]:
        Job(path, spark.StructType([field]), overwrite=True, overwriteSchema="true", **options).run([(row,)])
        assert lance.dataset(path).schema.field("v").type == stored
        assert lance.dataset(path).to_table()["v"].to_pylist() == [row]


def test_vectors_whose_names_differ_in_case(path: str) -> None:
    fields = [spark.StructField(n, FLOATS, metadata={"arrow.fixed-size-list.size": s}) for n, s in (("V", 2), ("v", 3))]
    for _ in range(2):
        Job(path, spark.StructType(fields), overwrite=True, overwriteSchema="true").run([([1.0] * 2, [1.0] * 3)])
    assert [field.type.list_size for field in lance.dataset(path).schema] == [2, 3]


def test_texts_become_json_where_the_table_has_it(path: str) -> None:
    """Columns, and what is in structs, lists and maps; pylance reads it."""
    nested = pa.struct([("l", pa.list_(pa.json_())), ("m", pa.map_(pa.string(), pa.json_()))])
    schema = pa.schema([("j", pa.json_()), ("s", nested)])
    lance_io.write_dataset(pa.RecordBatchReader.from_batches(schema, []), path)
    given = struct(
        j=TEXT,
        s=spark.StructType(
            [spark.StructField("l", spark.ArrayType(TEXT)), spark.StructField("m", spark.MapType(TEXT, TEXT))]
        ),
    )
    Job(path, given).run([('{"a":1}', {"l": ["[1]", None], "m": [("k", "true")]}), (None, None)])
    rows = [
        {"j": '{"a":1}', "s": {"l": ["[1]", None], "m": [("k", "true")]}},
        {"j": None, "s": None},
    ]
    assert lance_io.dataset(path).to_table().to_pylist() == rows
    assert lance.dataset(path).to_table().to_pylist() == rows
    with pytest.raises(RowMisfit, match=r"row 1, column j: expected JSON .*found 'not json'"):
        Job(path, given).run([("1", None), ("not json", None)])


def test_empty_arrays_have_items_of_void(path: str) -> None:
    """Spark's types of `array()`, `array(array())` and `map()`."""
    void = spark.ArrayType(spark.NullType(), containsNull=False)
    Job(path, struct(id=LONG, a=void, b=spark.ArrayType(void, containsNull=False))).run([(1, [], [[]])])
    assert lance.dataset(path).to_table().to_pylist() == [{"id": 1, "a": [], "b": [[]]}]
    Job(path, struct(id=LONG, a=spark.ArrayType(spark.NullType()))).run([(2, [None])])
    Job(f"{path}2", struct(a=FLOATS)).run([[1.0]])
    Job(f"{path}2", struct(a=void)).run([[]])
    assert lance.dataset(f"{path}2").to_table()["a"].to_pylist() == [[1.0], []]
    with pytest.raises(SchemaError, match="column m: maps with keys of VOID"):
        Job(f"{path}3", struct(m=spark.MapType(spark.NullType(), spark.NullType(), valueContainsNull=False)))


@pytest.mark.parametrize("dtype", [pa.string(), pa.int64()])
def test_narrow_dictionaries_of_many_batches(path: str, dtype: pa.DataType) -> None:
    """pylance reads rows of several batches together: their dictionaries are one."""
    keys = pa.array(range(128)).cast(dtype)
    lance.write_dataset(pa.table({"d": keys[:1].dictionary_encode().cast(pa.dictionary(pa.int8(), dtype))}), path)
    given = struct(d=TEXT if dtype == pa.string() else LONG)
    job = Job(path, given)
    rows = [keys[start : start + 40] for start in (0, 80, 30, 88, 0)]
    job.writer.commit([job.writer.write(batch(given, one.to_pylist()) for one in rows)])
    found = lance.dataset(path).to_table()
    assert found.schema.field("d").type == pa.dictionary(pa.int8(), dtype)
    assert found["d"].to_pylist() == [keys[0].as_py(), *pa.concat_arrays(rows).to_pylist()]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_bytes_become_blobs_where_the_table_has_them(path: str, version: str) -> None:
    """Inside the file, in a file that several share, in one of their own; pylance reads them."""
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    first: pa.Array = pa.array([b"first"], pa.large_binary())
    if version == "2.2":
        field, first = lance.blob_field("b"), lance.blob_array([b"first"])
    table = pa.Table.from_arrays([pa.array([0]), first], schema=pa.schema([pa.field("id", pa.int64()), field]))
    lance.write_dataset(table, path, data_storage_version=version)
    blobs = [b"", None, b"one", b"x" * 100_000, b"y" * (5 << 20)]
    given = struct(b=spark.BinaryType(), id=LONG)
    Job(path, given).run([(blob, number) for number, blob in enumerate(blobs[:3], 1)], [(blobs[3], 4), (blobs[4], 5)])
    found = lance.dataset(path).to_table(blob_handling="all_binary").to_pylist()
    assert found == [{"id": number, "b": blob} for number, blob in enumerate([b"first", *blobs])]
    assert lance_io.dataset(path).to_table(blob_handling="all_binary").to_pylist() == found
    job = Job(path, given)
    messages = job.write([(blobs[4], 6)])
    assert version == "2.1" or any(name.endswith(".blob") for message in messages for name in message.files.paths)
    job.writer.abort(messages)
    assert {file.name for file in Path(path, "data").glob("*.lance")} == referenced(path)


def test_arrays_of_bytes_become_lists_of_blobs(path: str) -> None:
    field = pa.field("l", pa.list_(lance.blob_field("item")))
    schema = pa.schema([pa.field("id", pa.int64()), field])
    lance_io.write_dataset([], path, schema=schema, data_storage_version="2.2")
    rows: list[list[bytes | None] | None] = [[b"", None, b"one"], None, [], [b"x" * 100_000]]
    given = struct(id=LONG, l=spark.ArrayType(spark.BinaryType()))
    Job(path, given).run(list(enumerate(rows[:2])), list(enumerate(rows[2:], 2)))
    expected = [{"id": number, "l": row} for number, row in enumerate(rows)]
    for library in (lance, lance_io):
        assert library.dataset(path).to_table(blob_handling="all_binary").to_pylist() == expected


def test_a_column_called_as_the_fragments_are_is_written(path: str) -> None:
    """Only Spark's reader makes a column of that name; a table may have one of its own."""
    lance.write_dataset(pa.table({"id": [1], "_fragid": [70]}), path)
    Job(path, struct(id=LONG, _fragid=LONG)).run([(2, 71)])
    assert lance.dataset(path).to_table().to_pylist() == [{"id": 1, "_fragid": 70}, {"id": 2, "_fragid": 71}]


def test_an_older_file_version_is_kept(path: str) -> None:
    lance.write_dataset(pa.table({"id": [1]}), path, data_storage_version="2.1")
    Job(path).run([2])
    versions = {file.file_minor_version for one in lance.dataset(path).get_fragments() for file in one.data_files()}
    assert versions == {1} and ids(path) == [1, 2]
    Job(path, overwrite=True, data_storage_version="2.2").run([3])
    assert lance.dataset(path).data_storage_version == "2.2"


# -- others at the same time -----------------------------------------------------------------------------------------


def test_two_appends_both_land(path: str) -> None:
    Job(path).run([0])
    one, two = Job(path), Job(path)
    messages = one.write([1])
    two.run([2])
    one.writer.commit(messages)
    assert ids(path) == [0, 1, 2]


def test_two_jobs_that_create_the_table_both_land(path: str) -> None:
    given = struct(text=TEXT, id=LONG)
    one, two = Job(path, given), Job(path)
    messages = one.write([("a", 1)])
    two.run([2])
    with pytest.raises(SchemaError, match="no longer has the column text"):
        one.writer.commit(messages)
    one = Job(path, given, mergeSchema="true")
    messages = one.write([("a", 1)])
    one.writer.commit(messages)
    assert sorted(lance.dataset(path).to_table().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "text": "a"},
        {"id": 2, "text": None},
    ]


def test_two_jobs_that_create_the_same_table(path: str) -> None:
    one, two = Job(path, struct(id=LONG, text=TEXT)), Job(path, struct(text=TEXT, id=LONG))
    messages = one.write([(1, "one")])
    two.run([("two", 2)])
    one.writer.commit(messages)
    assert sorted(lance.dataset(path).to_table().to_pylist(), key=lambda row: row["id"]) == [
        {"text": "one", "id": 1},
        {"text": "two", "id": 2},
    ]


def test_overwrite_wins_over_appends(path: str) -> None:
    Job(path).run([0])
    job = Job(path, overwrite=True)
    messages = job.write([1])
    Job(path).run([2])
    job.writer.commit(messages)
    assert ids(path) == [1]


def test_the_second_of_two_overwrites_is_refused(path: str) -> None:
    Job(path).run([0])
    job = Job(path, overwrite=True)
    messages = job.write([1])
    Job(path, overwrite=True).run([2])
    with pytest.raises(CommitConflictError, match="preempted by concurrent transaction Overwrite"):
        job.writer.commit(messages)
    job.writer.abort(messages)
    assert ids(path) == [2] and len(files(path)) == 2


def test_an_append_to_rows_that_were_replaced_is_refused(path: str) -> None:
    Job(path).run([0])
    for options in ({}, {"mergeSchema": "true"}):
        given = struct(id=LONG, text=TEXT) if options else ID
        job = Job(path, given, **options)
        before = files(path)
        messages = job.write([(1, "a") if options else 1])
        written = files(path) - before
        Job(path, overwrite=True).run([2])
        version = lance.dataset(path).version
        with pytest.raises(CommitConflictError, match="incompatible"):
            job.writer.commit(messages)
        job.writer.abort(messages)
        assert lance.dataset(path).version == version and lance.dataset(path).schema.names == ["id"]
        assert written and not written & files(path)
    assert ids(path) == [2]


BESIDE: dict[str, Callable[[lance.LanceDataset], Any]] = {
    "compact": lambda table: table.optimize.compact_files(),
    "delete": lambda table: table.delete("id = 0"),
    "index": lambda table: table.create_scalar_index("id", "BTREE"),
    "config": lambda table: table.update_config({"a": "b"}),
}


@pytest.mark.parametrize("other", BESIDE)
def test_what_else_happens_does_not_stop_an_append(path: str, other: str) -> None:
    Job(path).run([0], [1])
    job = Job(path)
    messages = job.write([2])
    BESIDE[other](lance.dataset(path))
    job.writer.commit(messages)
    assert lance.dataset(path).version == 3 + (other == "compact")  # which reserves the number of its fragment first
    assert ids(path) == ([1, 2] if other == "delete" else [0, 1, 2])
    assert lance.dataset(path).to_table(filter="id >= 2")["id"].to_pylist() == [2]


def test_attempts_after_the_first(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often the commit loop may try; what it does then is tested where it is."""
    Job(path).run([0])
    inner, asked = committing.commit, []  # type: ignore[attr-defined]

    def commit(target: Any, request: Any) -> Any:
        asked.append(request.max_retries)
        return (yield from inner(target, request))

    monkeypatch.setattr(committing, "commit", commit)
    for options in ({}, {"commit_retries": 0}, {"commit_retries": 3}):
        Job(path, **options).run([1])
    assert asked == [21, 1, 4]


# -- idempotence -----------------------------------------------------------------------------------------------------


def test_a_job_id_counts_once(path: str) -> None:
    Job(path, job_id="a").run([1])
    before = files(path)
    again = Job(path, job_id="a")
    assert again.writer.job.is_done
    again.run([1])
    assert lance.dataset(path).version == 1 and files(path) == before
    Job(path, job_id="b").run([2])
    Job(path, job_id="a", job_id_search=1).run([1])  # searched in the newest version only
    assert ids(path) == [1, 1, 2]


def test_a_job_id_that_another_run_has_committed_meanwhile(path: str) -> None:
    Job(path).run([0])
    slow = Job(path, job_id="a")
    messages = slow.write([1])
    Job(path, job_id="a").run([1])
    slow.writer.commit(messages)
    assert ids(path) == [0, 1] and files(path) == referenced(path)


# -- aborts ----------------------------------------------------------------------------------------------------------


def test_an_abort_after_the_commit_removes_nothing(path: str) -> None:
    """Spark calls it when the process that committed dies before it has answered."""
    for rows in ([1], [2]):
        job = Job(path)
        messages = job.write(rows)
        job.writer.commit(messages)
        job.writer.abort(messages)
        lance.dataset(path).optimize.compact_files()
        job.writer.abort(messages)
    assert ids(path) == [1, 2]
    assert lance.dataset(path, version=1).to_table()["id"].to_pylist() == [1]


BLOBS = struct(id=LONG, b=spark.BinaryType())


def blob_rows(*numbers: int) -> list[Any]:
    return [(number, bytes([number]) * size) for number in numbers for size in (10, 30)]


def blob_table(path: str) -> None:
    """A table whose blobs of more than 20 bytes have files of their own, while others share one."""
    field = lance.blob_field("b", inline_size_threshold=2, dedicated_size_threshold=20)
    ids, blobs = zip(*blob_rows(0), strict=True)
    rows = pa.table([pa.array(ids), lance.blob_array(blobs)], schema=pa.schema([("id", pa.int64()), field]))
    lance.write_dataset(rows, path, data_storage_version="2.2")


def beside(path: str) -> set[str]:
    """Names of the data files that have files of blobs beside them, of which each has two."""
    folders = [file.parent.name for file in Path(path, "data").rglob("*.blob")]
    assert {folders.count(name) for name in folders} == {2}
    return {f"{name}.lance" for name in folders}


def rows_of(path: str, version: int | None = None) -> list[Any]:
    table = lance.dataset(path, version=version).to_table(blob_handling="all_binary")
    return [(row["id"], row["b"]) for row in table.to_pylist()]


def test_what_lies_beside_data_files_goes_with_them(path: str) -> None:
    """By an abort, and by a cleanup of the job, whose lost attempt is as a killed task leaves it."""
    blob_table(path)
    job = Job(path, BLOBS)
    job.writer.abort(job.write(blob_rows(1), blob_rows(2)))
    assert beside(path) == referenced(path)
    job = Job(path, BLOBS, job_id="j")
    lost, kept, killed = job.write(blob_rows(1), blob_rows(1), blob_rows(1))
    job.writer.commit([kept])
    (unfinished,) = [name for name in killed.files.paths if name.endswith(".lance")]
    Path(path, unfinished).unlink()
    assert len(beside(path)) == 4
    left = {*lost.files.paths, *killed.files.paths} - {unfinished}
    assert len(left) == 3 + 2
    assert cleanup_job(path, "j") == sorted(left)
    assert beside(path) == referenced(path)
    assert rows_of(path) == blob_rows(0, 1)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_late_abort_removes_nothing_that_a_version_has(path: str, is_replaced: bool) -> None:
    """The version that the commit made has been cleaned up; another one has its rows, if not the newest."""
    blob_table(path)
    job = Job(path, BLOBS)
    messages = job.write(blob_rows(1), blob_rows(2))
    job.writer.commit(messages)
    Job(path, BLOBS).run(blob_rows(3))
    if is_replaced:
        Job(path, BLOBS, overwrite=True).run(blob_rows(4))
    lance.dataset(path).cleanup_old_versions(timedelta(0), retain_versions=1 + is_replaced, delete_unverified=True)
    assert [each["version"] for each in lance.dataset(path).versions()] == ([3, 4] if is_replaced else [3])
    before = beside(path)
    job.writer.abort(messages)
    assert beside(path) == before
    assert rows_of(path, 3) == blob_rows(0, 1, 2, 3)


def test_an_abort_before_the_commit_removes_the_files(path: str) -> None:
    Job(path).run([0])
    job = Job(path)
    messages = job.write([1], [2])
    job.writer.abort([*messages, None])
    assert files(path) == referenced(path)


def test_an_abort_of_a_table_that_cannot_be_read_removes_nothing(path: str) -> None:
    Job(path).run([0])
    job = Job(path)
    messages = job.write([1])
    Job(path).run([2])
    newest = min(Path(path, "_versions").glob("*.manifest"))
    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) // 2])
    job.writer.abort(messages)
    assert len(files(path)) == 3


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH])
@pytest.mark.parametrize("is_new", [False, True])
def test_every_write_of_a_commit_may_fail(path: str, fault: Fault, is_new: bool) -> None:
    """Whatever happens to the n-th one, an abort afterwards leaves a table with all of the rows or none."""
    call = 0
    while True:
        at = f"{path}-{fault.name}-{call}"
        if not is_new:
            Job(at).run([0])
        job = Job(at)
        messages = job.write([1], [2])
        store = FaultyStore(write_target(table_place(job.writer.options)).location.store, {call: fault})
        error = _commit_through(store, job, messages)
        if len(store.seen) <= call:
            break
        if error is not None:
            job.writer.abort(messages)
        known = [0] * (not is_new)
        if is_new and not list(Path(at, "_versions").glob("*.manifest")):
            assert error is not None
        else:
            assert ids(at) in ([*known, 1, 2], known if error is not None else None)
            assert referenced(at) <= files(at)
        call += 1
    assert call >= 2


def _commit_through(store: Any, job: Job, messages: list[Any]) -> BaseException | None:
    target = write_target(table_place(job.writer.options))
    target = dataclasses.replace(target, location=dataclasses.replace(target.location, store=store))
    try:
        runtime.run(drive_async(commit_steps(target, job.writer.job, [one.files for one in messages], CommitOptions())))
    except (LanceError, Crashed) as error:
        return error
    return None


def test_an_abort_while_the_outcome_is_open_removes_nothing(path: str) -> None:
    """A transaction file without its version: the create may still arrive."""
    Job(path).run([0])
    job = Job(path)
    messages = job.write([1])
    writes = 0
    while True:  # the create of the manifest is the last write that matters
        store = FaultyStore(write_target(table_place(job.writer.options)).location.store, {writes: Fault.CRASH})
        if _commit_through(store, job, messages) is None or list(Path(path, "_transactions").glob("1-*")):
            break
        writes += 1
    target = write_target(table_place(job.writer.options))
    outcome = runtime.run(drive_async(abort_steps(target, job.writer.job, [one.files for one in messages])))
    assert "left to cleanup" in outcome
    assert len(files(path)) == 2


def test_overwrite_of_a_table_that_came_meanwhile(path: str) -> None:
    job = Job(path, overwrite=True)
    messages = job.write([1])
    Job(path).run([2])
    with pytest.raises((CommitConflictError, AlreadyExists)):
        job.writer.commit(messages)
    job.writer.abort(messages)
    assert ids(path) == [2] and files(path) == referenced(path)
