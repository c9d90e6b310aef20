"""The streaming source without a JVM: what lies between two offsets, however a stream is cut into batches."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader

import lance_io
from lance_io.errors import NotFound, UnsupportedError, UsageError
from lance_io.spark.options import parse_options
from lance_io.spark.stream.stream_source import LanceStreamReader, UnlimitedStreamReader, stream_reader
from lance_io.spark.stream.version_rows import Allowance, Offset, VersionRows
from tests.spark.jobs import Job, struct

if TYPE_CHECKING:
    from pathlib import Path


with_limits = pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "getDefaultReadLimit"), reason="limits came with pyspark 4.2"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def options(path: str, **more: Any) -> Any:
    return parse_options({"path": path, **{name: str(value) for name, value in more.items()}}, "stream_read")


def reader(path: str, schema: spark.StructType | None = None, **more: Any) -> LanceStreamReader:
    return stream_reader(options(path, **more), schema or struct(id=spark.LongType()))


def latest_offset(source: LanceStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """As Spark asks for it."""
    if isinstance(source, UnlimitedStreamReader):
        return source.latestOffset()
    return source.latestOffset(start, source.getDefaultReadLimit())


def drain(source: LanceStreamReader, start: dict[str, Any]) -> tuple[list[list[Any]], dict[str, Any]]:
    """All batches from an offset on, as lists of their rows, and the last offset."""
    batches: list[list[Any]] = []
    while (end := latest_offset(source, start)) != start:
        rows = [row for part in source.partitions(start, end) for one in source.read(part) for row in one.to_pylist()]
        batches.append(rows)
        start = end
    return batches, start


def ids(batches: list[list[Any]]) -> list[list[int]]:
    return [[row["id"] for row in rows] for rows in batches]


def test_a_snapshot_and_then_what_is_added(path: str) -> None:
    Job(path).run([1, 2], [3])
    lance.dataset(path).delete("id = 2")
    source = reader(path)
    assert source.initialOffset() == {"version": 0}
    batches, start = drain(source, source.initialOffset())
    assert ids(batches) == [[1, 3]]
    Job(path).run([4])
    Job(path).run([5], [6])
    batches, start = drain(source, start)
    assert ids(batches) == [[4, 5, 6]]
    assert drain(source, start)[0] == []


def test_only_later_versions(path: str) -> None:
    for number in range(4):
        Job(path).run([number])
    assert ids(drain(reader(path, starting_version=2), {"version": 0})[0]) == [[2, 3]]
    assert ids(drain(reader(path, starting_version=0), {"version": 0})[0]) == [[0, 1, 2, 3]]
    for number in (5, 99):
        with pytest.raises(NotFound, match=rf"starting_version={number}: the newest version of .* is 4"):
            drain(reader(path, starting_version=number), {"version": 0})
    batches, start = drain(reader(path, starting_version=4), {"version": 0})
    assert not any(batches)
    Job(path).run([4])
    assert ids(drain(reader(path, starting_version=4), start)[0]) == [[4]]


@with_limits
def test_limits_take_whole_fragments(path: str) -> None:
    Job(path).run([1, 2, 3], [4], [5], [6, 7])
    Job(path).run([8], [9, 10])
    batches, _ = drain(reader(path, max_rows_per_trigger=2), {"version": 0})
    assert ids(batches) == [[1, 2, 3], [4, 5], [6, 7], [8], [9, 10]]
    batches, start = drain(reader(path, max_bytes_per_trigger=1), {"version": 0})
    assert ids(batches) == [[1, 2, 3], [4], [5], [6, 7], [8], [9, 10]]
    Job(path).run([11], [12], [13])
    Job(path).run([14])
    batches, _ = drain(reader(path, max_rows_per_trigger=2), start)
    assert ids(batches) == [[11, 12], [13, 14]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Appends, with an index, a compaction and new columns in between."""
    at = str(tmp_path_factory.mktemp("history") / "t.lance")
    Job(at).run([0], [1, 2], [3])
    Job(at).run([4], [5])
    lance.dataset(at).optimize.compact_files()
    Job(at).run([6, 7])
    Job(at, struct(id=spark.LongType(), text=spark.StringType()), mergeSchema="true").run([(8, "a")], [(9, "b")])
    lance.dataset(at).update_config({"a": "b"})
    Job(at).run([10])
    return at


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.booleans())
@settings(max_examples=25)
def test_however_it_is_cut_each_row_comes_once(history: str, sizes: list[int], from_start: bool) -> None:
    rows = VersionRows(options(history, **({"starting_version": 0} if from_start else {})))
    newest = rows.newest()
    start, seen = Offset(), []
    for step in range(50):
        end = rows.after(start, newest, Allowance(rows=sizes[step % len(sizes)]))
        assert Offset.of(end.to_json()) == end
        if end == start:
            break
        again = VersionRows(rows.options)  # as after a restart
        for part in again.between(start, end):
            opened = again.opened(part.version)
            for place in part.fragment_indices:
                fragment = lance_io.dataset(history, version=part.version).get_fragments()[place]
                assert fragment.fragment_id == opened.fragment_ids[place]
                seen += fragment.to_table(columns=["id"])["id"].to_pylist()
        start = end
    assert seen == list(range(11))


def test_columns_that_come_later_are_null_before(path: str) -> None:
    Job(path).run([1])
    wide = struct(id=spark.LongType(), text=spark.StringType())
    Job(path, wide, mergeSchema="true").run([(2, "b")])
    batches, _ = drain(reader(path, wide, starting_version=0), {"version": 0})
    assert batches == [[{"id": 1, "text": None}, {"id": 2, "text": "b"}]]


def test_limits_are_refused_where_spark_has_none(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(DataSourceStreamReader, "getDefaultReadLimit", raising=False)
    Job(path).run([1])
    with pytest.raises(UnsupportedError, match=r"need pyspark 4\.2"):
        reader(path, max_rows_per_trigger=2)


def test_changes_stop_the_stream(path: str) -> None:
    Job(path).run([1, 2])
    _, start = drain(reader(path), {"version": 0})
    table = lance.dataset(path)
    changes = [
        (lambda: table.delete("id = 1"), "Delete"),
        (lambda: lance.dataset(path).update({"id": "7"}, where="id = 2"), "Update"),
        (lambda: lance.dataset(path, version=1).restore(), "Restore"),
        (lambda: Job(path, overwrite=True).run([3]), "Overwrite"),
        (lambda: lance.dataset(path).alter_columns({"path": "id", "data_type": pa.int32()}), "Merge"),
    ]
    for change, name in changes:
        change()
        version = lance.dataset(path).version
        with pytest.raises(UsageError, match=rf"version {version} of .* was made by {name}"):
            drain(reader(path), {"version": version - 1, "done": 0, "snapshot": False})
    lance.dataset(path).alter_columns({"path": "id", "data_type": pa.int64()})
    Job(path).run([4])
    assert ids(drain(reader(path, skip_changes="true"), start)[0]) == [[4]]


def test_a_version_that_was_cleaned_up(path: str) -> None:
    from datetime import timedelta

    for number in range(3):
        Job(path).run([number])
    lance.dataset(path).cleanup_old_versions(timedelta(0))
    with pytest.raises(UsageError, match=r"version 2 of .* was cleaned up"):
        drain(reader(path), {"version": 1, "done": 0, "snapshot": False})


def test_a_table_that_was_made_anew(path: str) -> None:
    """It has fewer versions than the stream has read: waiting for more would pass over the first ones."""
    for number in range(3):
        Job(path).run([number])
    _, start = drain(reader(path), {"version": 0})
    shutil.rmtree(path)
    Job(path).run([7])
    with pytest.raises(UsageError, match=r"has read version 3 of .*, whose newest version is 1: .* created again"):
        drain(reader(path), start)


@with_limits
def test_available_now_ends_with_what_was_there(path: str) -> None:
    Job(path).run([1])
    source = reader(path)
    source.prepareForTriggerAvailableNow()
    Job(path).run([2])
    batches, start = drain(source, {"version": 0})
    assert ids(batches) == [[1]]
    assert ids(drain(reader(path), start)[0]) == [[2]]


@pytest.mark.parametrize("offset", [{}, {"version": -1}, {"version": "1"}, {"version": 1, "snapshot": 3}, {"v": 1}])
def test_offsets_of_others_are_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not of this source"):
        Offset.of(offset)
