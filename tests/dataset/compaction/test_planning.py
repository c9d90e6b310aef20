"""Which fragments are compacted together: the same tasks as pylance's, for many lists of sizes."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction as PeerCompaction
from lance.optimize import CompactionPlan as PeerPlan
from lance.optimize import CompactionTask as PeerTask

import lance_io
from lance_io.errors import UsageError
from lance_io.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path


def write_table(path: Path | str, sizes: list[int], **options: Any) -> None:
    """A table whose fragments have so many rows."""
    start = 0
    for number, size in enumerate(sizes):
        rows = pa.table({"a": pa.array(range(start, start + size), pa.int64())})
        lance.write_dataset(rows, str(path), mode="create" if number == 0 else "append", **options)
        start += size


def task_ids(plan: Any) -> list[list[int]]:
    return [[fragment.id for fragment in task.fragments] for task in plan.tasks]


def both_plans(path: Path, options: dict[str, Any]) -> tuple[list[list[int]], list[list[int]]]:
    mine = Compaction.plan(lance_io.dataset(str(path)), options)
    theirs = PeerCompaction.plan(lance.dataset(str(path)), options)
    assert mine.num_tasks() == theirs.num_tasks() == len(mine.tasks)
    assert mine.read_version == theirs.read_version
    return task_ids(mine), task_ids(theirs)


SIZES = [
    ([5, 5, 100, 5], 50),
    ([10] * 10, 30),
    ([30] * 5, 50),
    ([5], 50),
    ([50, 50], 50),
    ([49, 50, 49], 50),
    ([49, 49, 50, 1, 1, 50, 1], 50),
    ([1] * 20, 7),
    ([100, 3, 3, 100, 3], 10),
    ([20, 25, 30, 35, 40, 45, 50], 50),
    ([60, 60], 1000),
    ([7, 7, 7], 0),
]


@pytest.mark.parametrize(("sizes", "target"), SIZES)
def test_tasks_are_those_of_pylance(tmp_path: Path, sizes: list[int], target: int) -> None:
    path = tmp_path / "t.lance"
    write_table(path, sizes)
    mine, theirs = both_plans(path, {"target_rows_per_fragment": target})
    assert mine == theirs


def test_random_tables_with_deletions(tmp_path: Path) -> None:
    drawn = random.Random(seed_of(22))
    path = tmp_path / "t.lance"
    write_table(path, [drawn.randrange(1, 40) for _ in range(24)])
    ds = lance.dataset(str(path))
    num_rows = ds.count_rows()
    for _ in range(3):
        gone = drawn.sample(range(num_rows), num_rows // 12)
        ds.delete(f"a in ({', '.join(map(str, gone))})")
        for target in [drawn.randrange(1, 90) for _ in range(6)]:
            for extra in (
                {},
                {"materialize_deletions": False},
                {"materialize_deletions_threshold": 0.0},
                {"materialize_deletions_threshold": 1.5},
                {"excluded_fragment_ids": drawn.sample(range(30), 4)},
                {"max_source_fragments": drawn.randrange(1, 20)},
                {"max_source_rows": drawn.randrange(1, 200)},
                {"max_source_bytes": drawn.randrange(1, 20_000)},
            ):
                mine, theirs = both_plans(path, {"target_rows_per_fragment": target, **extra})
                assert mine == theirs, (target, extra)


def test_an_index_divides_the_fragments(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10] * 3)
    lance.dataset(str(path)).create_scalar_index("a", "BTREE")
    lance.write_dataset(pa.table({"a": pa.array(range(30, 40), pa.int64())}), str(path), mode="append")
    lance.write_dataset(pa.table({"a": pa.array(range(40, 50), pa.int64())}), str(path), mode="append")
    mine, theirs = both_plans(path, {"target_rows_per_fragment": 100})
    assert mine == theirs == [[0, 1, 2], [3, 4]]


def test_defaults_come_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10] * 6)
    ds = lance.dataset(str(path))
    ds.update_config({"lance.compaction.target_rows_per_fragment": "20", "lance.compaction.unknown": "x"})
    assert both_plans(path, {})[0] == both_plans(path, {})[1] == [[0, 1], [2, 3], [4, 5]]
    mine, theirs = both_plans(path, {"target_rows_per_fragment": 30})
    assert mine == theirs == [[0, 1, 2], [3, 4, 5]]
    ds.update_config({"lance.compaction.target_rows_per_fragment": "many"})
    for plan, reader in ((Compaction, lance_io), (PeerCompaction, lance)):
        with pytest.raises(ValueError, match="target_rows_per_fragment"):
            plan.plan(reader.dataset(str(path)), {})


@pytest.mark.parametrize(
    "options",
    [
        {"x": 1},
        {"target_rows_per_fragment": -1},
        {"num_threads": -1},
        {"compaction_mode": "q"},
        {"materialize_deletions_threshold": "a"},
        {"data_storage_version": "9"},
        {"data_storage_version": "0.1"},
        {"excluded_fragment_ids": 5},
        {"io_buffer_size": "x"},
        {"max_source_fragments": 0},
        {"max_source_rows": 0},
    ],
)
def test_refused_options_are_those_of_pylance(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "t.lance"
    write_table(path, [10] * 2)
    with pytest.raises(Exception) as theirs:
        PeerCompaction.plan(lance.dataset(str(path)), options)
    with pytest.raises(type(theirs.value)):
        Compaction.plan(lance_io.dataset(str(path)), options)


@pytest.mark.parametrize("options", [{"num_threads": 0}, {"memory_limit": 5}, {"verify": "never"}])
def test_options_that_only_we_refuse(tmp_path: Path, options: dict[str, Any]) -> None:
    write_table(tmp_path / "t.lance", [10] * 2)
    with pytest.raises(UsageError):
        Compaction.plan(lance_io.dataset(str(tmp_path / "t.lance")), options)


@pytest.mark.parametrize("mode", [None, "reencode", "try_binary_copy", "force_binary_copy"])
@pytest.mark.parametrize("stable", [False, True])
def test_plans_tasks_and_results_travel_as_json(tmp_path: Path, *, stable: bool, mode: str | None) -> None:
    """As JSON and pickles; and each library understands the other's."""
    path = tmp_path / "t.lance"
    write_table(path, [10] * 4, enable_stable_row_ids=stable)
    lance.dataset(str(path)).delete("a = 3")
    options: dict[str, Any] = {"target_rows_per_fragment": 15, "excluded_fragment_ids": [77]}
    if mode is not None:
        options["compaction_mode"] = mode
    ds = lance_io.dataset(str(path))
    plan = Compaction.plan(ds, options)
    for again in (CompactionPlan.from_json(plan.json()), pickle.loads(pickle.dumps(plan))):
        assert again == plan
        assert repr(again) == f"CompactionPlan(read_version={ds.version}, tasks=<2 compaction tasks>)"
    peer_plan = PeerCompaction.plan(lance.dataset(str(path)), options)
    assert task_ids(PeerPlan.from_json(plan.json())) == task_ids(CompactionPlan.from_json(peer_plan.json()))
    assert CompactionPlan.from_json(peer_plan.json()).tasks[0] == plan.tasks[0]
    task = plan.tasks[1]
    assert pickle.loads(pickle.dumps(task)) == CompactionTask.from_json(task.json()) == task
    assert PeerTask.from_json(task.json()).read_version == task.read_version
    result = task.execute(ds)
    assert pickle.loads(pickle.dumps(result)) == RewriteResult.from_json(result.json()) == result
    with pytest.raises(UsageError, match="not the JSON of a CompactionTask"):
        CompactionTask.from_json("{}")
