"""What pylance takes by position is taken by position here."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import lance
import lance.optimize
import pyarrow as pa
import pytest

import lance_io
import lance_io.optimize
from lance_io import AsyncDataset
from lance_io.fragment import DataFile

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 40
QUERY = {"column": "v", "q": [3.0, 0.0], "k": 5}
ROWS = pa.table(
    {
        "i": range(NUM_ROWS),
        "v": pa.array([[float(i), 0.0] for i in range(NUM_ROWS)], pa.list_(pa.float32(), 2)),
    }
)
OF_DATASETS: dict[str, tuple[Any, ...]] = {
    "scanner": (["i"], None, None, None, QUERY, 3, None, 4, 4, True, None, None, None),
    "to_table": (["i"], "i > 3", None, None, QUERY, 3, None, 4, 4, True),
    "to_batches": (["i"], None, 7, 2, None, 3, None, 4, 4, True),
    "to_pandas": (["i"], None, None, None, QUERY, 3, 4, 4, True),
}
OF_FRAGMENTS: dict[str, tuple[Any, ...]] = {
    "to_table": (["i"], "i > 3", 6, 1, True, True, "all_binary", None, None, 1 << 20, None, None, None, None),
    "to_pandas": (["i"], "i > 3", 6, 1, 4, True, True, "bytes", None),
}


def shown(answer: Any) -> Any:
    """What methods gave, as plain values."""
    if hasattr(answer, "to_table"):
        answer = answer.to_table()
    if hasattr(answer, "to_pylist"):
        return answer.to_pylist()
    if hasattr(answer, "to_dict"):
        return answer.to_dict("records")
    return [batch.to_pylist() for batch in answer]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    lance.write_dataset(ROWS, str(tmp_path / "t"))
    return str(tmp_path / "t")


@pytest.mark.parametrize("method", OF_DATASETS)
def test_scans_of_datasets(uri: str, method: str) -> None:
    given = OF_DATASETS[method]
    expected = shown(getattr(lance.dataset(uri), method)(*given))
    assert shown(getattr(lance_io.dataset(uri), method)(*given)) == expected

    async def run() -> None:
        async with AsyncDataset.open(uri) as ds:
            answer = getattr(ds, method)(*given)
            if method == "scanner":
                answer = answer.to_table()
            found = [batch async for batch in answer] if method == "to_batches" else await answer
            assert shown(found) == expected

    asyncio.run(run())


@pytest.mark.parametrize("method", OF_FRAGMENTS)
def test_scans_of_fragments(uri: str, method: str) -> None:
    given = OF_FRAGMENTS[method]
    expected = shown(getattr(lance.dataset(uri).get_fragments()[0], method)(*given))
    assert shown(getattr(lance_io.dataset(uri).get_fragments()[0], method)(*given)) == expected

    async def run() -> None:
        async with AsyncDataset.open(uri) as ds:
            assert shown(await getattr(ds.get_fragments()[0], method)(*given)) == expected

    asyncio.run(run())


def test_every_position_is_pylances() -> None:
    """One position more is refused by both, and an argument that is given twice."""
    for cases, theirs, ours in (
        (OF_DATASETS, lance.LanceDataset, lance_io.LanceDataset),
        (OF_FRAGMENTS, lance.LanceFragment, lance_io.LanceFragment),
    ):
        for method, given in cases.items():
            known = inspect.signature(getattr(theirs, method)).parameters.values()
            assert len(given) + 1 == sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in known)
            assert getattr(ours, method).__name__ == method


def test_wrong_positions(uri: str) -> None:
    ds = lance_io.dataset(uri)
    with pytest.raises(TypeError, match=r"to_table\(\) takes at most 10 arguments by position, found 11"):
        ds.to_table(*OF_DATASETS["to_table"], 1)
    with pytest.raises(TypeError, match=r"to_table\(\) got multiple values for argument 'nearest'"):
        ds.to_table(*OF_DATASETS["to_table"], nearest=QUERY)


def test_options_of_a_compaction(tmp_path: Path) -> None:
    found = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        library.write_dataset(ROWS, uri, max_rows_per_file=10)
        options = library.optimize.CompactionOptions(target_rows_per_fragment=20, num_threads=1)
        assert options == {"target_rows_per_fragment": 20, "num_threads": 1} and isinstance(options, dict)
        compaction = library.optimize.Compaction
        plan = compaction.plan(library.dataset(uri), options)
        results = [task.execute(library.dataset(uri)) for task in plan.tasks]
        dataset = library.dataset(uri)
        compaction.commit(dataset, results, options)
        found.append([plan.num_tasks(), *[one.count_rows() for one in dataset.get_fragments()]])
        empty = compaction.execute(dataset, library.optimize.CompactionOptions(target_rows_per_fragment=20))
        assert empty.fragments_removed == 0
    assert found[0] == found[1]


def test_options_of_a_compaction_on_a_loop(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(ROWS, uri, max_rows_per_file=10)

    async def run() -> None:
        async with AsyncDataset.open(uri) as ds:
            options = lance_io.optimize.CompactionOptions(target_rows_per_fragment=20)
            plan = await lance_io.optimize.AsyncCompaction.plan(ds, options)
            assert plan.num_tasks() == 2
            assert (await lance_io.optimize.AsyncCompaction.execute(ds, options)).fragments_added == 2

    asyncio.run(run())


def test_positions_of_a_blob() -> None:
    for library in (lance, lance_io):
        blob = library.blob.Blob.from_uri("file:///x", 5, 7)
        assert (blob.uri, blob.position, blob.size) == ("file:///x", 5, 7)


def test_the_path_of_a_data_file_is_an_attribute_of_its_class() -> None:
    assert "path" in dir(DataFile)
    assert inspect.getattr_static(DataFile, "path") is DataFile.path
