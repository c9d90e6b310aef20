"""A closed `AsyncDataset`: every call that reads or changes the table is refused, and nothing is written.

The calls are drawn from the classes of what is asynchronous: a new one is tried by itself, and needs an entry below
only where it takes arguments.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.optimizer import AsyncCompaction, AsyncDatasetOptimizer
from lance_io.errors import LanceError
from lance_io.not_offered import DatasetNotOffered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": pa.array([b"x", b"yy", None], pa.large_binary())})
ROWS = ROWS.cast(pa.schema([ROWS.schema.field(0), ROWS.schema.field(1).with_metadata({"lance-encoding:blob": "true"})]))
MORE = ROWS.slice(0, 1)
KEYED = pa.table({"a": pa.array([1], pa.int64()), "m": ["new"]})


async def made_by_everything(table: lance_io.AsyncDataset) -> dict[str, Any]:
    """The dataset, and one of each kind of thing that comes from it and works asynchronously."""
    (fragment,) = table.get_fragments()
    (blob, *_) = await table.take_blobs("b", indices=[0])
    return {
        "dataset": table,
        "optimizer": table.optimize,
        "compaction": AsyncCompaction,
        "task": (await AsyncCompaction.plan(table, {"target_rows_per_fragment": 10})),
        "merge": table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all(),
        "fragment": fragment,
        "fragment session": fragment.open_session(["a"]),
        "delta": table.delta(begin_version=0, end_version=1),
        "stats": table.stats,
        "scanner": table.scanner(["a"]),
        "scanner of fragment": fragment.scanner(columns=["a"]),
        "blob": blob,
        "query": table.sql("SELECT a FROM dataset").build(),
    }


def operation(table: Any) -> Any:
    return lance_io.LanceOperation.Delete([], [0], "true")


# arguments of calls that take some, given the closed dataset and a folder for copies
ARGUMENTS: dict[str, Callable[[Any, str], tuple[Any, ...]]] = {
    "add_bases": lambda t, to: ([lance_io.DatasetBasePath(to, "more")],),
    "add_columns": lambda t, to: ({"c": "a + 1"},),
    "alter_columns": lambda t, to: ({"path": "a", "name": "z"},),
    "checkout_version": lambda t, to: (1,),
    "commit": lambda t, to: (t, operation(t), 1),
    "commit_batch": lambda t, to: (t, [lance_io.Transaction(1, lance_io.LanceOperation.Append([]))]),
    "create_branch": lambda t, to: ("new",),
    "deep_clone": lambda t, to: (f"{to}/deep", 1),
    "delete": lambda t, to: ("a = 1",),
    "delete_branch": lambda t, to: ("side",),
    "delete_config_keys": lambda t, to: (["k"],),
    "drop_columns": lambda t, to: (["a"],),
    "drop_index": lambda t, to: ("none",),
    "commit_existing_index_segments": lambda t, to: ("none", "a", []),
    "create_index": lambda t, to: ("a", "IVF_PQ"),
    "create_index_uncommitted": lambda t, to: ("a", "BTREE"),
    "create_scalar_index": lambda t, to: ("a", "BTREE"),
    "get_ivf_model": lambda t, to: ("none",),
    "index_statistics": lambda t, to: ("none",),
    "index_stats": lambda t, to: ("none",),
    "merge_existing_index_segments": lambda t, to: ([],),
    "merge_index_metadata": lambda t, to: ("00000000-0000-4000-8000-000000000000", "INVERTED"),
    "get": lambda t, to: ("a", [1]),
    "prewarm_index": lambda t, to: ("none",),
    "head": lambda t, to: (1,),
    "insert": lambda t, to: (MORE,),
    "merge": lambda t, to: (KEYED, "a"),
    "merge_insert": lambda t, to: ("a",),
    "read_blob_ranges": lambda t, to: ("b", [(0, 0, 1)]),
    "read_blobs": lambda t, to: ("b", None, None, [0]),
    "read_transaction": lambda t, to: (1,),
    "replace_branch_metadata": lambda t, to: ("side", {"k": "v"}),
    "replace_field_metadata": lambda t, to: ("a", {"k": "v"}),
    "replace_schema_metadata": lambda t, to: ({"k": "v"},),
    "sample": lambda t, to: (1,),
    "shallow_clone": lambda t, to: (f"{to}/shallow", 1),
    "slice": lambda t, to: (0, 1),
    "sql": lambda t, to: ("SELECT a FROM dataset",),
    "take": lambda t, to: ([0],),
    "take_blob": lambda t, to: ("b", 0),
    "take_items": lambda t, to: ("a", [(0, 0)]),
    "take_blobs": lambda t, to: ("b", None, None, [0]),
    "update": lambda t, to: ({"a": "a + 1"},),
    "update_config": lambda t, to: ({"k": "v"},),
    "update_field_metadata": lambda t, to: ({"a": {"k": "v"}},),
    "update_metadata": lambda t, to: ({"k": "v"},),
    "update_schema_metadata": lambda t, to: ({"k": "v"},),
    "write": lambda t, to: (MORE, t, None, "append"),
    "compaction.commit": lambda t, to: (t, []),
    "compaction.execute": lambda t, to: (t,),
    "compaction.plan": lambda t, to: (t,),
    "fragment.create": lambda t, to: (t, MORE),
    "fragment.create_from_file": lambda t, to: ("file.lance", t, 0),
    "fragment.delete_rows": lambda t, to: ([0],),
    "fragment.merge_columns": lambda t, to: ({"c": "a + 1"},),
    "fragment.update_columns": lambda t, to: (MORE.drop_columns(["b"]), "a", "a"),
    "merge.analyze_plan": lambda t, to: (MORE,),
    "merge.execute": lambda t, to: (MORE,),
    "merge.execute_uncommitted": lambda t, to: (MORE,),
    "optimizer.enable_auto_cleanup": lambda t, to: ({"interval": 1, "older_than_seconds": 1},),
    "blob.read_range": lambda t, to: (0, 1),
    "blob.read_ranges": lambda t, to: ([(0, 1)],),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "read_blob_ranges": {"selector": "indices"},
    "cleanup_old_versions": {"older_than": timedelta(0)},
}
# what is no call of the table: it opens or removes a place, closes, or looks at what is at hand
APART = {
    *("dataset.aclose", "dataset.drop", "dataset.open", "dataset.of", "dataset.to_sync", "blob.aclose"),
    *("dataset.base_paths", "dataset.config", "dataset.fragment_ids", "dataset.get_fragment", "dataset.get_fragments"),
    *("dataset.get_version", "dataset.io_stats_incremental", "dataset.io_stats_snapshot", "dataset.session"),
    *("dataset.latest_storage_options", "fragment.data_files", "fragment.deletion_file", "blob.size", "blob.tell"),
    "blob.seek",
}
# what makes something whose calls are tried
MAKERS = {
    *("dataset.delta", "dataset.merge_insert", "dataset.scanner", "dataset.sql", "fragment.open_session"),
    "fragment.scanner",
}


def calls_of(name: str, thing: Any) -> set[str]:
    """The public methods of a thing."""
    kind = thing if inspect.isclass(thing) else type(thing)
    hidden = set(dir(DatasetNotOffered)) | set(dir(AsyncDatasetOptimizer.optimize_indices))
    found = {one for one in dir(kind) if not one.startswith("_") and one not in hidden}
    if name == "merge":  # its clauses change the builder
        found -= {one for one in found if not inspect.iscoroutinefunction(getattr(kind, one, None))}
    return {
        one
        for one in found
        if callable(getattr(kind, one, None)) or not hasattr(inspect.getattr_static(kind, one), "fget")
    } - {"optimize_indices"}


async def ended(answer: Any) -> Any:
    """What a call comes to, whatever kind of asynchronous thing it gave."""
    if hasattr(answer, "__aiter__"):
        return [one async for one in answer]
    if hasattr(answer, "__aenter__"):
        async with answer as entered:
            return entered
    return await answer


def files(filesystem: Any, folder: str) -> dict[str, Any]:
    return {path: one["size"] for path, one in filesystem.find(folder, detail=True).items()}


@pytest.fixture(params=["local disk", "far away"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SimpleNamespace:
    """Where a call runs in a thread, and where it runs on the engine."""
    filesystem = fsspec.filesystem("file")
    options = {} if request.param == "local disk" else {"filesystem": filesystem}
    return SimpleNamespace(filesystem=filesystem, folder=str(tmp_path), options=options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_every_call_is_refused(place: SimpleNamespace) -> None:
    uri = f"{place.folder}/t.lance"
    lance_io.write_dataset(ROWS, uri, **place.options, data_storage_version="2.1")
    table = await lance_io.AsyncDataset.open(uri, **place.options)
    things = await made_by_everything(table)
    (things["task"],) = things["task"].tasks or [None]
    await (await lance_io.AsyncDataset.open(uri, **place.options)).create_branch("side")
    before = files(place.filesystem, place.folder)
    await table.aclose()
    tried, wrong = 0, {}
    for name, thing in things.items():
        for call in sorted(calls_of(name, thing)):
            if f"{name.split()[0]}.{call}" in APART | MAKERS:
                continue
            given = ARGUMENTS.get(f"{name}.{call}", ARGUMENTS.get(call, lambda t, to: ()))(table, place.folder)
            tried += 1
            try:
                wrong[f"{name}.{call}"] = await ended(getattr(thing, call)(*given, **OPTIONS.get(call, {})))
            except LanceError as error:
                wrong[f"{name}.{call}"] = error
            except RuntimeError as error:
                if "the dataset was closed" not in str(error):
                    wrong[f"{name}.{call}"] = error
            if files(place.filesystem, place.folder) != before:
                wrong[f"{name}.{call} writes"] = files(place.filesystem, place.folder)
                break
    assert not wrong
    assert tried > 80
    assert table.version == 1
    assert table.schema.names == ["a", "b"]
    assert table.to_sync().count_rows() == 3


async def test_what_a_write_or_commit_made_is_closed_too(tmp_path: Path) -> None:
    made = await lance_io.AsyncDataset.write(MORE, tmp_path / "t.lance")
    again = await lance_io.AsyncDataset.commit(made, lance_io.LanceOperation.Append([]), 1)
    several = [lance_io.Transaction(1, lance_io.LanceOperation.Append([]))]
    together = (await lance_io.AsyncDataset.commit_batch(made, several))["dataset"]
    for table in (made, again, together):
        await table.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await table.count_rows()
        with pytest.raises(RuntimeError, match="closed"):
            await table.insert(MORE)
    assert lance_io.dataset(tmp_path / "t.lance").version == 3
