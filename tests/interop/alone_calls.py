"""A program that has imported `lance_io` and nothing else, and calls what it is given by name.

python -m tests.interop.alone_calls WAY TABLE WORK < NAMES > OUTCOMES

WAY      forked: each call in a process of its own, forked before anything was opened
         late: all in one thread, which begins when the main thread has come to its end
         beside: all in one process that has imported pylance before
TABLE    folder with the table `t.lance` of `make_history`, `blobs.lance` and `rows.csv`; each call has a copy
WORK     an empty folder
NAMES    JSON, a list of texts: `Class.name`, or `lance-io command`
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_io
from tests.interop.awaited import TWINS, Awaited, AwaitedLibrary, wait_for
from tests.interop.table_calls import CHANGES, READS, is_rows, keyed, plain, refs, rows

if TYPE_CHECKING:
    from collections.abc import Callable

RECEIVERS: dict[str, Callable[[Any], Any]] = {
    "LanceDataset": lambda t: t,
    "LanceFragment": lambda t: t.get_fragments()[0],
    "LanceScanner": lambda t: t.scanner(filter="a > 2"),
    "Tags": lambda t: t.tags,
    "Branches": lambda t: t.branches,
    "LanceStats": lambda t: t.stats,
    "DatasetDelta": lambda t: t.delta(1),
    "DatasetOptimizer": lambda t: t.optimize,
    "MergeInsertBuilder": lambda t: t.merge_insert("a").when_matched_update_all(),
    "SqlQueryBuilder": lambda t: t.sql("SELECT a FROM dataset WHERE a > 3 ORDER BY a"),
    "SqlQuery": lambda t: t.sql("SELECT a FROM dataset WHERE a > 3 ORDER BY a").build(),
}
# of calls that need some; what is neither here nor in `table_calls` is called without
ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "LanceDataset.commit_existing_index_segments": lambda: ("a_idx", "a", []),
    "LanceDataset.create_index_uncommitted": lambda: ("a", "BTREE"),
    "LanceDataset.create_index": lambda: ("a", "IVF_FLAT"),
    "LanceDataset.create_scalar_index": lambda: ("a", "BTREE"),
    "LanceDataset.get_ivf_model": lambda: ("a_idx",),
    "LanceDataset.get": lambda: ("a", [2]),
    "LanceDataset.index_statistics": lambda: ("a_idx",),
    "LanceDataset.merge_existing_index_segments": lambda: ([],),
    "LanceDataset.merge_index_metadata": lambda: ("00000000-0000-4000-8000-000000000000", "INVERTED"),
    "LanceDataset.prewarm_index": lambda: ("a_idx",),
    "LanceStats.index_stats": lambda: ("a_idx",),
    "LanceDataset.filter": lambda: (import_module("pyarrow.compute").field("a") > 2,),
    "LanceDataset.join": lambda: (keyed(), "a"),
    "LanceDataset.sort_by": lambda: ("a",),
    "LanceDataset.replace_schema": lambda: (rows(1).schema,),
    "LanceFragment.delete_rows": lambda: ([0],),
    "LanceScanner.head": lambda: (2,),
    "LanceScanner.take": lambda: ([0],),
    "MergeInsertBuilder.analyze_plan": lambda: (rows(3),),
    "MergeInsertBuilder.explain_plan": lambda: (rows(3).schema,),
    "MergeInsertBuilder.conflict_retries": lambda: (3,),
    "MergeInsertBuilder.data_storage_version": lambda: ("2.1",),
    "MergeInsertBuilder.mark_sstables_as_compacted": lambda: ([],),
    "MergeInsertBuilder.retry_timeout": lambda: (timedelta(seconds=9),),
    "MergeInsertBuilder.target_bases": lambda: (["none"],),
    "MergeInsertBuilder.use_index": lambda: (False,),
    "MergeInsertBuilder.write_mode": lambda: ("rewrite_rows",),
    "SqlQueryBuilder.table_name": lambda: ("dataset",),
    "SqlQueryBuilder.blob_handling": lambda: ("all_binary",),
    "SqlQueryBuilder.batch_size": lambda: (2,),
    "SqlQueryBuilder.batch_size_bytes": lambda: (2,),
}
# of the table `blobs.lance`
BLOB_READS: dict[str, Callable[[Any], Any]] = {
    "LanceDataset.read_blobs": lambda t: t.read_blobs("b", indices=[1]),
    "LanceDataset.read_blob_ranges": lambda t: t.read_blob_ranges("b", [(0, 1, 2)], selector="indices"),
    "LanceDataset.take_items": lambda t: t.take_items("l", [(2, 1), (0, 0)]).to_pylist(),
    "LanceDataset.take_blobs": lambda t: [one.readall() for one in t.take_blobs("b", indices=[0, 2])],
}
# of asynchronous faces, where they are not called as their twins
ASYNC_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "AsyncDataset.aclose": lambda t, at: t.aclose(),
    "AsyncDataset.branches": lambda t, at: refs(t.branches()),
    "AsyncDataset.delete_branch": lambda t, at: (t.delete_branch("side"), t.branches()),
    "AsyncDataset.latest_version": lambda t, at: t.latest_version(),
    "AsyncDataset.of": lambda t, at: t.of(lance_io.dataset(at)).count_rows(),
    "AsyncDataset.open": lambda t, at: t.open(at, 2).count_rows(),
    "AsyncDataset.replace_branch_metadata": lambda t, at: t.replace_branch_metadata("side", {"k": "v"}),
    "AsyncDataset.tags": lambda t, at: refs(t.tags()),
    "AsyncDataset.take_blob": lambda t, at: wait_for(blob_of(f"{at}/../blobs.lance")),
    "AsyncDataset.take_blobs": lambda t, at: [
        one.read() for one in t.open(f"{at}/../blobs.lance").take_blobs("b", indices=[0, 2])
    ],
    "AsyncDataset.to_sync": lambda t, at: t.to_sync().count_rows(),
    "AsyncDataset.tracked_files": lambda t, at: sorted(
        (one["version"], one["type"], one["path"]) for batch in t.tracked_files() for one in batch.to_pylist()
    ),
    "AsyncDataset.write": lambda t, at: t.write(rows(50), t, mode="append").count_rows(),
}
FIRST_WAYS = {one.partition(":")[0]: one for one in reversed([*READS, *CHANGES])}
COMMANDS = {
    "write": "rows.csv t.lance --mode append",
    "update": "t.lance s='u' --where a=5",
    "merge": "t.lance rows.csv --on a",
    "delete": "t.lance a=2 --yes",
    "add-column": "t.lance b a+1",
    "drop-column": "t.lance s",
    "restore": "t.lance --version 2",
    "tag": "t.lance list",
    "branch": "t.lance list",
    "clone": "t.lance clone.lance --deep",
    "diff": "t.lance 2 5",
    "cleanup": "t.lance --older-than 0s --yes",
    "compact": "t.lance",
    "bench": "t.lance --take-rows 2",
    "search": "t.lance u --in s",
}
MASKS = [
    (r"0x[0-9a-f]{6,}", "ADDRESS"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+", "UUID"),
    (r"[01]{20,}[0-9a-f]{20,}|[0-9a-f]{32,}", "NAME"),
    (r"datetime\.datetime\([^()]*\)", "TIME"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+\d\d:\d\d|Z)?", "TIME"),
    (r"(?<![\d.])\d{16,}\b", "MOMENT"),  # microseconds and nanoseconds of the clock
]
TIMED = (
    "lance-io bench",
    "lance-io doctor",
    "lance-io write",
    "LanceScanner.analyze_plan",
    "MergeInsertBuilder.analyze_plan",
    "AsyncScanner.analyze_plan",
    "AsyncMergeInsertBuilder.analyze_plan",
)  # their numbers are times


async def blob_of(uri: str) -> bytes:
    """The last blob, by the way that only the asynchronous face has."""
    async with lance_io.AsyncDataset.open(uri) as table, table.take_blob("b", 2) as blob:
        return await blob.read()


def opened(kind: str, uri: str) -> Any:
    """A table, by the face that objects of a class are of."""
    return Awaited(wait_for(lance_io.AsyncDataset.open(uri))) if kind in TWINS else lance_io.dataset(uri)


def receiver(kind: str, uri: str) -> Any:
    """An object of a class, of the table at `uri`."""
    return RECEIVERS[TWINS.get(kind, kind)](opened(kind, uri))


def called(name: str, folder: Path) -> Any:
    """What a call gives, of a fresh copy of the table in `folder`."""
    if name.startswith("lance-io "):
        return commanded(name.removeprefix("lance-io "), folder)
    kind, _, member = name.partition(".")
    same = FIRST_WAYS.get(f"{TWINS[kind]}.{member}", f"{TWINS[kind]}.{member}") if kind in TWINS else name
    uri = f"{folder}/t.lance"
    if name in ASYNC_CALLS:
        return ASYNC_CALLS[name](opened(kind, uri), uri)
    if same in BLOB_READS:
        return BLOB_READS[same](opened(kind, f"{folder}/blobs.lance"))
    if same in READS:
        return READS[same](opened(kind, uri))
    if same in CHANGES:
        table = opened(kind, uri)
        changed = CHANGES[same](AwaitedLibrary() if kind in TWINS else lance_io, table, uri)
        return shown(changed), table.version, table.count_rows()
    value = getattr(receiver(kind, uri), member)
    if callable(value):
        value = value(*ARGUMENTS.get(same, tuple)())
    return value


def commanded(command: str, folder: Path) -> Any:
    """Exit code and output of `lance-io`."""
    os.chdir(folder)
    sys.argv = ["lance-io", command, *COMMANDS.get(command, "t.lance").split()]
    output = os.open("output", os.O_CREAT | os.O_RDWR)
    before = [os.dup(1), os.dup(2)]
    try:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            from lance_io.cli.main import main

            main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os.dup2(before[0], 1)
        os.dup2(before[1], 2)
    return "worked" if code == 0 else f"failed: {code}", re.sub(r"[ ─]+", " ", Path("output").read_text())


def shown(value: Any) -> str:
    """A value as text that says what is in it."""
    if isinstance(value, (list, tuple)) or is_rows(value):
        return repr(plain(value))
    if isinstance(value, dict):  # entries of messages come in any order
        return repr(sorted(value.items()))
    if hasattr(value, "__next__"):
        return repr([one.to_pylist() for one in value])
    if type(value).__module__.startswith("pandas."):
        return repr(value.to_dict())
    return repr(value)


def outcome(name: str, source: str, work: str) -> str:
    """What a call gives or raises, without what differs from copy to copy."""
    folder = Path(work, re.sub(r"\W+", "_", name))
    shutil.copytree(source, folder)
    try:
        text = shown(called(name, folder))
    except BaseException as error:
        text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    text = text.replace(str(folder), "FOLDER")
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    if name in TIMED:
        text = re.sub(r"[\d.,]+ ?([kMG]i?B|[mµn]?s\b)?", "N", text)
    return text


def in_child(call: Callable[[], str]) -> str:
    """What a call gives in a process of its own, forked for it."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with suppress(BaseException), os.fdopen(writing, "w") as answer:
            answer.write(call())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def loaded_by(kind: str, source: str) -> str:
    """The modules that making an object of a class loads, in their order."""
    before = set(sys.modules)
    receiver(kind, f"{source}/t.lance")
    return " ".join(name for name in sys.modules if name not in before)


def group_of(name: str) -> str:
    """The calls that begin in the same way."""
    kind = name.partition(".")[0]
    return (
        "lance-io"
        if name.startswith("lance-io ")
        else kind
        if {kind, TWINS.get(kind)} & {*RECEIVERS}
        else "LanceDataset"
    )


def forked_group(group: str, names: list[str], source: str, work: str) -> str:
    """The outcomes of calls that begin in the same way, as JSON: what that loads is loaded once, and nothing opened."""
    modules = ["lance_io.cli.main"] if group == "lance-io" else in_child(partial(loaded_by, group, source)).split()
    for module in modules:
        with suppress(ImportError):  # a name that a package gives to something of its own
            import_module(module)
    return json.dumps({name: in_child(partial(outcome, name, source, work)) for name in names})


def forked(names: list[str], source: str, work: str) -> dict[str, str]:
    """The outcome of each call in a process of its own."""
    assert not {"lance", "pyarrow", "asyncio"} & set(sys.modules), "nothing of the calls is loaded yet"
    gc.disable()  # here and in the children, which are short
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(group_of(name), []).append(name)
    found: dict[str, str] = {}
    for group, members in groups.items():
        found |= json.loads(in_child(partial(forked_group, group, members, source, work)))
    return found


def main() -> None:
    """Do what the module says."""
    way, source, work = sys.argv[1:]
    names = json.load(sys.stdin)
    os.environ["COLUMNS"] = "200"

    def answer() -> None:
        each = forked(names, source, work) if way == "forked" else {one: outcome(one, source, work) for one in names}
        sys.stdout.write(json.dumps(each))
        sys.stdout.flush()

    def later() -> None:
        threading.main_thread().join()
        answer()

    if way == "late":
        threading.Thread(target=later).start()
    else:
        if way == "beside":
            import_module("lance")
        answer()


if __name__ == "__main__":
    main()
