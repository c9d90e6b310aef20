"""Calls that change a table beside calls that build and keep an index: on a handle that missed the other call."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import lance_io
from tests.commit.stale_calls import LIBRARIES, Outcome, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa

SIZE: Final = int(os.environ.get("LANCE_IO_STALE_CALLS", "1"))
COMPACTION: Final[dict[str, Any]] = {"target_rows_per_fragment": 1000}
ROLES: Final = (("pylance", "ours"), ("ours", "ours"), ("ours", "pylance"))


def run_pair(
    calls: Mapping[str, Callable[[Any], Any]], base: Path, first: str, other: str, second: str, mine: str
) -> tuple[Outcome, Path]:
    """The outcome of `mine` on a handle that missed `other`, and the table.

    first, second  libraries of `other` and of `mine`
    """
    folder = base.parent / f"copy-{len(list(base.parent.iterdir()))}"
    shutil.copytree(base, folder, copy_function=os.link)
    stale = LIBRARIES[second].dataset(str(folder))
    calls[other](LIBRARIES[first].dataset(str(folder)))
    return outcome(calls[mine], stale), folder


def check_rows(folder: Path, where: str) -> tuple[Any, Any, pa.Table, list[str]]:
    """Check that both libraries read the same rows and indices.

    Returns the table of each library, its rows, and the names of its indices.
    """
    ours, theirs = lance_io.dataset(str(folder)), LIBRARIES["pylance"].dataset(str(folder))
    table = theirs.to_table()
    assert sorted(map(repr, ours.to_table().to_pylist())) == sorted(map(repr, table.to_pylist())), where
    names = [sorted(index.name for index in dataset.describe_indices()) for dataset in (ours, theirs)]
    assert names[0] == names[1], where
    return ours, theirs, table, names[0]
