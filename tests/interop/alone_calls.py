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
from tests.interop.table_calls import CHANGES, READS, is_rows, keyed, plain, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    "LanceDataset.take_blobs": lambda t: [one.readall() for one in t.take_blobs("b", indices=[0, 2])],
}
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
)  # their numbers are times


def called(name: str, folder: Path) -> Any:
    """What a call gives, of a fresh copy of the table in `folder`."""
    if name.startswith("lance-io "):
        return commanded(name.removeprefix("lance-io "), folder)
    if name in BLOB_READS:
        return BLOB_READS[name](lance_io.dataset(f"{folder}/blobs.lance"))
    table = lance_io.dataset(f"{folder}/t.lance")
    if name in READS:
        return READS[name](table)
    if name in CHANGES:
        changed = CHANGES[name](lance_io, table, f"{folder}/t.lance")
        return shown(changed), table.version, table.count_rows()
    kind, _, member = name.partition(".")
    value = getattr(RECEIVERS[kind](table), member)
    if callable(value):
        value = value(*ARGUMENTS.get(name, tuple)())
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


def loaded_by_opening(source: str) -> str:
    """The modules that opening a table loads, in their order."""
    before = set(sys.modules)
    lance_io.dataset(f"{source}/t.lance")
    return " ".join(name for name in sys.modules if name not in before)


def forked(names: list[str], source: str, work: str) -> Iterator[str]:
    """The outcome of each call in a process of its own.

    Where all begin by opening a table, what that loads is loaded once, before.
    """
    assert not {"lance", "pyarrow", "asyncio"} & set(sys.modules), "nothing of the calls is loaded yet"
    is_first = True
    for name in names:
        if is_first and not name.startswith("lance-io "):
            is_first = False
            for module in in_child(partial(loaded_by_opening, source)).split():
                with suppress(ImportError):  # a name that a package gives to something of its own
                    import_module(module)
        yield in_child(partial(outcome, name, source, work))


def main() -> None:
    """Do what the module says."""
    way, source, work = sys.argv[1:]
    names = json.load(sys.stdin)
    os.environ["COLUMNS"] = "200"

    def answer() -> None:
        found = forked(names, source, work) if way == "forked" else (outcome(name, source, work) for name in names)
        results = dict(zip(names, found, strict=True))
        sys.stdout.write(json.dumps(results))
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
