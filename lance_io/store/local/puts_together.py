"""Several small files that are written as one: each as whole and durable as by itself, for fewer flushes.

    write all under temporary names, let the disk begin with all of them
    fsync each          the first brings what the file system has noted of the others, too
    give all their names
    fsync each folder   once

A file system with a journal commits what it has noted once for all files that are in it, where each alone waits for a
commit of its own.
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


def put_together(
    contents: Mapping[str, Buffer], begin: Callable[[str], NewFile], end: Callable[[str, int], None]
) -> Iterator[str]:
    """Write files, replacing what may be there; gives each key when it is about to be worked on.

    begin  begins a file, given its key
    end    called for each that has its name, with its length

    Whatever fails, names that were given stay, and no temporary file does. Raises what the system raises, and
    `OutcomeUnknown` where it cannot say that names are durable.
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
