"""Writes several small files as a batch: each as whole and durable as a single write, with fewer flushes.

    write all under temporary names, start writeback of all
    fsync each          the first one commits the file system's journal for the others, too
    rename all
    fsync each folder   once

A journaling file system commits its journal once for all files in it; written one by one, each file waits for a commit
of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lance_io.store.api import Buffer
    from lance_io.store.local.atomic_writes import NewFile

_OPEN_MAX: Final = 256  # files that are open at once


def write_batch(
    contents: Mapping[str, Buffer], begin: Callable[[str], NewFile], end: Callable[[str, int], None]
) -> Iterator[str]:
    """Write files, replacing existing ones; yields each key before working on it.

    begin  opens a temporary file for a key
    end    called with key and length of each file after its rename

    After a failure, renamed files stay, and no temporary file does. Raises the errors of the system, and
    `OutcomeUnknown` if names may not be durable.
    """
    items = iter(contents.items())
    folders: dict[str, tuple[str, NewFile]] = {}
    while some := list(islice(items, _OPEN_MAX)):
        with ExitStack() as opened:
            files: list[tuple[str, NewFile, int]] = []
            for key, data in some:
                yield key
                file = begin(key)
                opened.callback(file.discard)
                files.append((key, file, file.write([data], 0)))
                file.begin_flush()
            for key, file, _ in files:
                yield key
                file.flush()
            for key, file, num_bytes in files:
                yield key
                file.give_name(if_absent=False)
                end(key, num_bytes)
                folders.setdefault(file.folder, (key, file))
    for key, file in folders.values():
        yield key
        file.flush_name()
