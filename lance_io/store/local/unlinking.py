"""Removing many files: the file system frees what they held side by side, where one thread would wait for each."""

from __future__ import annotations

import os
import threading
from dataclasses import field
from typing import TYPE_CHECKING, Final

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

_THREADS_MAX: Final = 8
_KEYS_OF_A_THREAD_MIN: Final = 32


@dataclass()
class Unlinked:
    """What became of some files.

    done     keys of those that are not there any more, whether they were or not
    folders  where there were some
    failed   the first key that could not be removed, and why; the ones after it may be there still
    """

    done: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    failed: tuple[str, OSError | ValueError] | None = None


def unlink_all(keys: Sequence[str]) -> Unlinked:
    """Remove files, many of them by several threads; ends early after a failure, and tells of it."""
    num_threads = min(_THREADS_MAX, max(1, len(keys) // _KEYS_OF_A_THREAD_MIN))
    found = [Unlinked() for _ in range(num_threads)]
    stop = threading.Event()
    threads = []
    try:
        for number in range(1, num_threads):
            thread = threading.Thread(
                target=_unlink, args=(keys[number::num_threads], found[number], stop), daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the program is at its end
                _unlink(keys[number::num_threads], found[number], stop)
            else:
                threads.append(thread)
        _unlink(keys[::num_threads], found[0], stop)
        for thread in threads:
            thread.join()
    finally:  # Ctrl-C: nothing is removed any more when it arrives at the caller
        stop.set()
        for thread in threads:
            thread.join()
    return Unlinked(
        [key for each in found for key in each.done],
        set().union(*(each.folders for each in found)),
        next((each.failed for each in found if each.failed is not None), None),
    )


def _unlink(keys: Sequence[str], found: Unlinked, stop: threading.Event) -> None:
    for key in keys:
        if stop.is_set():
            return
        try:
            os.unlink(key)
            found.folders.add(key.rpartition("/")[0])
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            found.failed = (key, error)
            stop.set()
            return
        found.done.append(key)
