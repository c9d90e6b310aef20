"""Removes many files: several threads let the file system free their blocks in parallel."""

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
    """Result of removing files.

    done     keys of files that do not exist any more, including files that were missing before
    folders  of the removed files
    failed   the first key that could not be removed, and its error; files after it may still exist
    """

    done: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    failed: tuple[str, OSError | ValueError] | None = None


def unlink_all(keys: Sequence[str]) -> Unlinked:
    """Remove files, many of them with several threads; stops early after a failure, and reports it."""
    num_threads = min(_THREADS_MAX, max(1, len(keys) // _KEYS_OF_A_THREAD_MIN))
    results = [Unlinked() for _ in range(num_threads)]
    stop = threading.Event()
    threads = []
    try:
        for number in range(1, num_threads):
            thread = threading.Thread(
                target=_unlink, args=(keys[number::num_threads], results[number], stop), daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the system allows no more threads, or the interpreter is shutting down
                _unlink(keys[number::num_threads], results[number], stop)
            else:
                threads.append(thread)
        _unlink(keys[::num_threads], results[0], stop)
        for thread in threads:
            thread.join()
    finally:  # after Ctrl-C nothing is removed any more once the caller sees it
        stop.set()
        for thread in threads:
            thread.join()
    return Unlinked(
        [key for each in results for key in each.done],
        set().union(*(each.folders for each in results)),
        next((each.failed for each in results if each.failed is not None), None),
    )


def _unlink(keys: Sequence[str], result: Unlinked, stop: threading.Event) -> None:
    for key in keys:
        if stop.is_set():
            return
        try:
            os.unlink(key)
            result.folders.add(key.rpartition("/")[0])
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            result.failed = (key, error)
            stop.set()
            return
        result.done.append(key)
