"""Jobs on whole tables: planned once, run as tasks that may run twice or stop, committed once. No Spark needed."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset import distributed
from lance_io.errors import CommitConflictError, OperationError, SchemaError
from lance_io.plans.plan import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FRAGMENTS = 6
ROWS = 200  # of a fragment
DIM = 16
WORDS = "kettle tea rain window bread roof leaf cup".split()


def make_rows(first: int = 0, num_rows: int = FRAGMENTS * ROWS) -> pa.Table:
    """Numbers, texts of a few words, vectors."""
    draw = np.random.default_rng(first)
    words = draw.choice(WORDS, (num_rows, 5))
    vectors = draw.standard_normal(num_rows * DIM).astype(np.float32)
    return pa.table(
        {
            "id": np.arange(first, first + num_rows),
            "day": draw.integers(0, 9, num_rows),
            "text": [" ".join(some) for some in words],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIM),
        }
    )


class Table:
    """A table of six fragments on disk, some rows deleted, and a twin of it."""

    def __init__(self, folder: Path) -> None:
        self.uri, self.twin = str(folder / "t.lance"), str(folder / "twin.lance")
        lance.write_dataset(make_rows(), self.uri, max_rows_per_file=ROWS)
        lance.dataset(self.uri).delete("id % 17 = 3")
        shutil.copytree(self.uri, self.twin)
        self.place = distributed.TablePlace.of_process(self.uri, {})

    def files(self, folder: str) -> set[str]:
        """Files below a folder of the table, temporary ones included."""
        below = Path(self.uri, folder)
        return {str(path.relative_to(below)) for path in below.rglob("*") if path.is_file()}

    def live_data(self) -> set[str]:
        """Data files of the newest version."""
        fragments = lance_io.dataset(self.uri).get_fragments()
        return {file.path for fragment in fragments for file in fragment.data_files()}

    def segments(self) -> set[str]:
        """Folders of index segments."""
        return set(os.listdir(Path(self.uri, "_indices")))

    def live_segments(self) -> set[str]:
        """Index segments of the newest version."""
        indices = lance_io.dataset(self.uri).describe_indices()
        return {segment.uuid for index in indices for segment in index.segments}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def sent(value: Any) -> Any:
    """A value as another process gets it."""
    return pickle.loads(pickle.dumps(value))


def run_all(table: Table, planned: tuple[Any, Sequence[Any]]) -> list[Any]:
    """The results of all tasks."""
    job, parts = planned
    return [sent(sent(job).run(table.place, sent(part))) for part in parts]


def finish(table: Table, planned: tuple[Any, Sequence[Any]]) -> dict[str, Any]:
    """Run all tasks and commit."""
    outcome: dict[str, Any] = sent(planned[0]).commit(table.place, run_all(table, planned))
    return outcome


# -- indices -----------------------------------------------------------------------------------------------------------


def answers(uri: str, index_type: str) -> Iterator[Any]:
    """What an index answers, by both libraries."""
    for library in (lance_io, lance):
        dataset = library.dataset(uri)
        if index_type.startswith("IVF"):
            for seed in range(4):
                q = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
                nearest = {"column": "v", "q": q, "k": 12, "minimum_nprobes": 3, "maximum_nprobes": 3}
                rows = dataset.to_table(columns=["id"], nearest=nearest)
                yield sorted(zip(rows["_distance"].to_pylist(), rows["id"].to_pylist(), strict=True))
        elif index_type == "INVERTED":
            for words in ("kettle", "tea rain", "window bread cup"):
                rows = dataset.to_table(columns=["id"], full_text_query=words)
                yield sorted(zip(rows["id"].to_pylist(), np.round(rows["_score"].to_numpy(), 5).tolist(), strict=True))
        else:
            for text in (
                "id = 77",
                "id IN (5, 600, 1199, 20)",
                "id > 300 AND id < 420",
                "day = 4",
            ):
                yield sorted(dataset.to_table(columns=["id"], filter=text)["id"].to_pylist())


INDICES: dict[str, tuple[str, dict[str, Any]]] = {
    "BTREE": ("id", {"zone_size": 64}),
    "BITMAP": ("day", {}),
    "ZONEMAP": ("id", {"rows_per_zone": 64}),
    "INVERTED": ("text", {"with_position": True}),
    "IVF_PQ": ("v", {"num_partitions": 5, "num_sub_vectors": 4, "num_bits": 4, "sample_rate": 40}),
    "IVF_FLAT": ("v", {"num_partitions": 5, "metric": "cosine"}),
}


@pytest.mark.parametrize("index_type", INDICES)
def test_four_tasks_answer_as_one_process(table: Table, index_type: str) -> None:
    column, options = INDICES[index_type]
    planned = distributed.plan_index(table.place, column, index_type, "mine", options=options, num_segments=4)
    assert [len(part.fragment_ids) for part in planned[1]] == [1, 2, 1, 2]
    outcome = finish(table, planned)
    twin = lance_io.dataset(table.twin)
    if index_type.startswith("IVF"):
        twin.create_index(column, index_type, "mine", **options)
    else:
        twin.create_scalar_index(column, index_type, "mine", **({} if index_type in ("BTREE", "ZONEMAP") else options))
    (index,) = lance_io.dataset(table.uri).describe_indices()
    assert (outcome["version"], outcome["name"], outcome["segments"]) == (3, "mine", 4)
    assert (index.name, len(index.segments)) == ("mine", 4)
    assert lance.dataset(table.uri).stats.index_stats("mine")["num_unindexed_rows"] == 0
    assert [*answers(table.uri, index_type)] == [*answers(table.twin, index_type)]
    assert table.segments() == table.live_segments()
    assert outcome["bytes"] == sum(Path(table.uri, "_indices", name).stat().st_size for name in table.files("_indices"))


def test_tasks_that_run_twice_leave_no_files(table: Table) -> None:
    """Results of one part count once; files of results that the planner never saw go, too."""
    planned = distributed.plan_index(table.place, "id", "BTREE", num_segments=4)
    job, parts = planned
    results = run_all(table, planned)
    again = run_all(table, planned)  # speculation: these are lost, but for one
    killed = Path(table.uri, "_indices", str(UUID(uuid4().hex[:-16] + job.digits)))
    killed.mkdir()
    (killed / ".tmp-half").write_bytes(b"half a file")
    with pytest.raises(OperationError, match="the results of 4 tasks, found those of 3"):
        job.commit(table.place, results[:3])
    assert job.commit(table.place, [results[0], again[0], *results[1:]])["segments"] == 4
    assert table.segments() == table.live_segments()
    assert len(table.segments()) == 4
    assert [part.number for part in parts] == [0, 1, 2, 3]


def test_an_aborted_job_leaves_nothing(table: Table) -> None:
    data = table.files("data")
    for planned in (
        distributed.plan_index(table.place, "id", "BTREE", num_segments=4),
        distributed.plan_compacted(table.place, {"target_rows_per_fragment": 400}),
        distributed.plan_columns(table.place, {"x": "id * 2"}, cores=1),
    ):
        run_all(table, planned)
        assert planned[0].abort(table.place) > 0
        assert (table.files("_indices"), table.files("data")) == (set(), data)
        assert os.listdir(Path(table.uri, "_indices")) == []
    assert lance.dataset(table.uri).version == 2


def stop_at_once(stop: Callable[[], None]) -> None:
    stop()


def test_a_stopped_task_leaves_nothing(table: Table) -> None:
    data = table.files("data")
    for job, parts in (
        distributed.plan_index(table.place, "text", "INVERTED", num_segments=4),
        distributed.plan_index(table.place, "v", "IVF_FLAT", options={"num_partitions": 2}, num_segments=4),
        distributed.plan_compacted(table.place, {"target_rows_per_fragment": 400}),
    ):
        with pytest.raises(Stopped):
            job.run(table.place, parts[0], stop_at_once)
        assert (table.files("_indices"), table.files("data")) == (set(), data)
    stops: list[Callable[[], None]] = []

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        if stops and batch["id"][0].as_py() >= ROWS:  # in the second fragment of the part
            stops[0]()
        return pa.record_batch({"y": batch["id"]})

    job, parts = distributed.plan_columns(table.place, slow, read_columns=["id"], cores=1)
    assert len(parts[1].fragment_ids) == 2
    with pytest.raises(Stopped):
        job.run(table.place, parts[0 if len(parts[0].fragment_ids) > 1 else 1], stops.append)
    assert table.files("data") == data


def test_an_index_meets_other_writers(table: Table) -> None:
    """Appended rows stay uncovered; after a compaction the job has to be planned again, and leaves no files."""
    planned = distributed.plan_index(table.place, "id", "BTREE", num_segments=3)
    results = run_all(table, planned)
    lance.write_dataset(make_rows(5000, 10), table.uri, mode="append")
    planned[0].commit(table.place, results)
    (index,) = lance_io.dataset(table.uri).describe_indices()
    assert sorted(i for segment in index.segments for i in segment.fragment_ids) == [*range(FRAGMENTS)]
    for library in (lance_io, lance):
        rows = library.dataset(table.uri).to_table(columns=["id"], filter="id IN (7, 5003)")
        assert sorted(rows["id"].to_pylist()) == [7, 5003]
    planned = distributed.plan_index(table.place, "id", "BTREE", num_segments=3)
    results = run_all(table, planned)
    lance.dataset(table.uri).optimize.compact_files(target_rows_per_fragment=1000)
    kept = table.live_segments()
    with pytest.raises(CommitConflictError) as error:
        planned[0].commit(table.place, results)
    assert error.value.retryable and planned[0].repeats
    assert table.live_segments() == kept
    assert not [name for name in table.segments() if name.replace("-", "").endswith(planned[0].digits)]


def test_an_index_on_no_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "none.lance")
    lance.write_dataset(make_rows().slice(0, 0), uri)
    place = distributed.TablePlace.of_process(uri, {})
    for column, kind, options in (("id", "BTREE", {}), ("v", "IVF_PQ", {"num_partitions": 2, "num_sub_vectors": 4})):
        job, parts = distributed.plan_index(place, column, kind, options=options, num_segments=4)
        assert [part.fragment_ids for part in parts] == [()]
        assert job.commit(place, [job.run(place, part) for part in parts])["segments"] == 1
    lance_io.write_dataset(make_rows(), uri, mode="append", max_rows_per_file=ROWS)
    job, parts = distributed.plan_optimized_indices(place, num_segments=2)
    assert len(parts) == 4
    outcome = job.commit(place, [sent(job).run(place, sent(part)) for part in parts])
    assert (outcome["segments_removed"], outcome["segments_added"]) == (2, 4)
    stats = lance.dataset(uri).stats
    assert [stats.index_stats(name)["num_unindexed_rows"] for name in ("id_idx", "v_idx")] == [0, 0]
    ivf = lance_io.dataset(uri).stats.index_stats("v_idx")
    assert len({str(segment["centroids"]) for segment in ivf["indices"]}) == 1  # one model for both


def test_optimized_indices_equal_those_of_one_process(table: Table) -> None:
    for uri in (table.uri, table.twin):
        dataset = lance_io.dataset(uri)
        dataset.create_scalar_index("id", "BTREE")
        dataset.create_scalar_index("text", "INVERTED")
        dataset.create_index("v", "IVF_FLAT", num_partitions=4)
        lance_io.write_dataset(make_rows(5000, 300), uri, mode="append", max_rows_per_file=100)
    kinds = ("BTREE", "INVERTED", "IVF_FLAT")
    for given in ({"num_indices_to_merge": 0}, {}, {"retrain": True}):
        outcome = finish(table, distributed.plan_optimized_indices(table.place, **given))
        lance_io.dataset(table.twin).optimize.optimize_indices(**given)
        assert outcome["segments_added"] == 3
        covered = [
            [[sorted(segment.fragment_ids) for segment in index.segments] for index in dataset.describe_indices()]
            for dataset in map(lance_io.dataset, (table.uri, table.twin))
        ]
        assert covered[0] == covered[1]
        for kind in kinds:
            assert [*answers(table.uri, kind)] == [*answers(table.twin, kind)]
        if "num_indices_to_merge" in given:
            for uri in (table.uri, table.twin):
                lance.write_dataset(make_rows(9000, 50), uri, mode="append")
    version = lance.dataset(table.uri).version
    nothing = distributed.plan_optimized_indices(table.place)
    assert nothing[1] == []
    assert finish(table, nothing) == {"version": version, "segments_removed": 0, "segments_added": 0, "bytes": 0}


# -- columns -----------------------------------------------------------------------------------------------------------


def doubled(batch: pa.RecordBatch) -> Any:
    """A pandas frame of a new column."""
    return pa.record_batch({"twice": pa.array([2 * x for x in batch["id"].to_pylist()], pa.int64())}).to_pandas()


def test_columns_equal_those_of_one_process(table: Table) -> None:
    expressions = {"total": "id * 2 + day", "words": "upper(text)"}
    outcome = finish(table, distributed.plan_columns(table.place, expressions, cores=1))
    assert (outcome["version"], outcome["fragments"]) == (3, FRAGMENTS)
    finish(table, distributed.plan_columns(table.place, doubled, read_columns=["id"], cores=2))
    assert finish(table, distributed.plan_columns(table.place, {"none": "cast(null as int)"}))["bytes"] == 0
    twin = lance.dataset(table.twin)
    twin.add_columns(expressions)
    twin.add_columns(lance.batch_udf(pa.schema({"twice": pa.int64()}))(doubled), read_columns=["id"])
    twin.add_columns({"none": "cast(null as int)"})
    mine = lance.dataset(table.uri)
    assert mine.to_table().equals(twin.to_table())
    assert mine.schema == twin.schema
    assert table.files("data") == table.live_data()
    with pytest.raises((OperationError, SchemaError), match="total"):
        distributed.plan_columns(table.place, {"total": "id"})


def test_columns_are_added_beside_other_writers(table: Table) -> None:
    """Rows that others append, rewrite or compact meanwhile have the columns, and no file is left."""
    planned = distributed.plan_columns(table.place, {"twice": "id * 2"}, cores=1)
    results = run_all(table, planned)
    lance.write_dataset(make_rows(5000, 30), table.uri, mode="append")
    lance.dataset(table.uri).update({"day": "99"}, where="id = 8")
    lance.dataset(table.uri).delete("id = 9")
    again = [*results, *run_all(table, planned)]
    outcome = planned[0].commit(table.place, again)
    rows = lance.dataset(table.uri).to_table(columns=["id", "day", "twice"]).to_pylist()
    assert len(rows) == FRAGMENTS * ROWS - 71 + 30 - 1
    assert all(row["twice"] == 2 * row["id"] for row in rows)
    assert [row["day"] for row in rows if row["id"] == 8] == [99]
    assert outcome["version"] == 6
    assert table.files("data") >= table.live_data()
    of_job = {name for name in table.files("data") if name.removesuffix(".lance").endswith(planned[0].digits)}
    assert of_job <= table.live_data()
    # a column that another writer adds takes the ids
    planned = distributed.plan_columns(table.place, {"thrice": "id * 3"}, cores=1)
    results = run_all(table, planned)
    lance.dataset(table.uri).add_columns({"other": "id"})
    with pytest.raises(CommitConflictError):
        planned[0].commit(table.place, results)
    assert not [name for name in table.files("data") if planned[0].digits in name]


# -- compaction --------------------------------------------------------------------------------------------------------


def test_a_compaction_whose_tasks_run_twice(table: Table) -> None:
    planned = distributed.plan_compacted(table.place, {"target_rows_per_fragment": 2 * ROWS})
    assert len(planned[1]) > 1
    first, second = run_all(table, planned), run_all(table, planned)
    outcome = planned[0].commit(table.place, [*second[:1], *first, *second[1:]])
    twin = lance_io.dataset(table.twin)
    metrics = twin.optimize.compact_files(target_rows_per_fragment=2 * ROWS)
    assert (outcome["fragments_removed"], outcome["fragments_added"]) == (6, metrics.fragments_added)
    assert lance.dataset(table.uri).to_table().equals(twin.to_table())
    of_job = {name for name in table.files("data") if name.removesuffix(".lance").endswith(planned[0].digits)}
    assert of_job == table.live_data()
    # a compaction that loses to a delete removes its files
    planned = distributed.plan_compacted(table.place, {"target_rows_per_fragment": 10 * ROWS})
    results = run_all(table, planned)
    lance.dataset(table.uri).delete("id = 10")
    lance.dataset(table.uri).update({"day": "1"}, where="id = 11")
    with pytest.raises(CommitConflictError):
        planned[0].commit(table.place, results)
    assert not [name for name in table.files("data") if planned[0].digits in name]
