"""Computations on one file that request bytes, and rounds that several of them share.

A file computation is a generator that yields one of

    Ranges   bytes of the file; receives `Fetched`
    Suffix   the end of a file of unknown size; receives `FetchedSuffix`
    Wait     another computation is loading a cache entry; receives None when that ends, then retries the cache

and returns its result. Page layouts yield only `Ranges`. Each yield is one round.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from lance_io.encodings.rounds import fetch, merge_ranges
from lance_io.records import dataclass
from lance_io.spans import Fetched, Ranges, Steps

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
MANY_RANGES: Final = 64  # from this number on, numpy is faster than Python


@dataclass(frozen=True, slots=True)
class Suffix:
    """The last `num_bytes` of the file (all of a shorter one)."""

    num_bytes: int


@dataclass(slots=True, eq=False)
class FetchedSuffix:
    """The answer to `Suffix`: the bytes, and the size of the whole file."""

    buffer: Any
    file_bytes: int


@dataclass(slots=True, eq=False)
class Wait:
    """Wait until another computation's load has ended, successfully or not."""

    future: Future[Any]


Request: TypeAlias = Ranges | Suffix | Wait
Answer: TypeAlias = Fetched | FetchedSuffix | None
FileSteps: TypeAlias = Generator[Request, Any, T]


class AnyFile(Protocol):
    """A file that requests refer to: opened, or as the manifest describes it.

    size_bytes  0 if unknown
    """

    @property
    def key(self) -> str:
        """Key of the object."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the whole file."""
        ...


@dataclass(slots=True, eq=False)
class Independent:
    """Computations on several files that run independently; answered with the list of their results."""

    steps: Sequence[tuple[AnyFile, FileSteps[Any]]]


@dataclass(slots=True, eq=False)
class ReadJoined:
    """Byte ranges of several files, fetched in one round; their bytes are used up before the next round.

    files   files with ranges
    ranges  ranges of all files, in order of the files
    bounds  i[n + 1]: file i has the ranges from `bounds[i]` to `bounds[i + 1]`
    use     `use(i, fetched)` processes the bytes of file i on any thread and keeps no reference to them; called per
            file if all files together take too much memory

    The answer is one `Fetched` for all files in one buffer, or a list with `Fetched` per file, None for a file whose
    bytes `use` has processed.
    """

    files: Sequence[AnyFile]
    ranges: Ranges
    bounds: Sequence[int]
    use: Callable[[int, Fetched], None]

    def of_file(self, at: int) -> Ranges:
        """The ranges of file `at`."""
        return self.ranges.part(self.bounds[at], self.bounds[at + 1])


FilesRequest: TypeAlias = "list[tuple[AnyFile, Request]] | Independent | ReadJoined"
FilesSteps: TypeAlias = Generator[FilesRequest, Any, T]
"""A computation on several files: each yield is the list of one round's requests, or `Independent` or `ReadJoined`."""


@dataclass(slots=True, eq=False)
class Tail:
    """The end of a file, read to open it. Serves the ranges inside it while its scan lasts.

    record  is told how many bytes it serves; None where no scan counts them
    """

    start: int
    buffer: Any
    record: Callable[[int], None] | None = None


def side_by_side(steps: Sequence[tuple[AnyFile, FileSteps[T]]]) -> FilesSteps[list[T]]:
    """Run computations on several files in lock step: their requests form one round."""
    results: list[Any] = [None] * len(steps)
    live: list[tuple[int, Request]] = []

    def advance(at: int, answer: Answer) -> None:
        try:
            live.append((at, steps[at][1].send(answer)))
        except StopIteration as done:
            results[at] = done.value

    try:
        for at in range(len(steps)):
            advance(at, None)
        while live:
            # The awaited load may be one of these computations, so those that can proceed go first.
            waiting = [entry for entry in live if type(entry[1]) is Wait]
            ready = [entry for entry in live if type(entry[1]) is not Wait]
            ready, live = (ready, waiting) if ready else (waiting, [])
            answers = yield [(steps[at][0], request) for at, request in ready]
            for (at, _), answer in zip(ready, answers, strict=True):
                advance(at, answer)
        return results
    finally:
        for _, step in steps:
            step.close()


def fetch_each(wanted: Sequence[Ranges], tail: Tail | None) -> Steps[list[Fetched]]:
    """Fetch several lists of ranges in one round, one `Fetched` per list. The tail serves lists that lie in it."""
    parts: list[Fetched | None] = [None] * len(wanted)
    if tail is not None:
        for at, ranges in enumerate(wanted):
            if len(ranges) and _first(ranges) >= tail.start:
                parts[at] = _served(tail, ranges)
    asked = [at for at, part in enumerate(parts) if part is None]
    if asked:
        fetched = yield from serve_from_tail(tail, fetch(merge_ranges([wanted[at] for at in asked])))
        position = 0
        for at in asked:
            end = position + len(wanted[at])
            parts[at] = Fetched(fetched.buffer, fetched.offsets[position:end])
            position = end
    return [part for part in parts if part is not None]


def single_request(request: Request) -> FileSteps[Any]:
    """A computation of one request; returns its answer."""
    return (yield request)


def serve_from_tail(tail: Tail | None, steps: Steps[T]) -> Steps[T]:
    """Answer ranges inside the tail from the tail, and request only the bytes before it."""
    if tail is None:
        return (yield from steps)
    try:
        wanted = next(steps)
        while True:
            if len(wanted) and _first(wanted) >= tail.start:
                fetched = _served(tail, wanted)
            elif len(wanted) and _last(wanted) > tail.start:
                fetched = yield from _split(tail, wanted)
            else:
                fetched = yield wanted
            wanted = steps.send(fetched)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


def _first(ranges: Ranges) -> int:
    """Offset of the first byte."""
    starts = ranges.starts
    return min(starts.tolist()) if len(starts) < MANY_RANGES else int(starts.min())


def _last(ranges: Ranges) -> int:
    """End offset of the last byte."""
    ends = ranges.ends
    return max(ends.tolist()) if len(ends) < MANY_RANGES else int(ends.max())


def _served(tail: Tail, ranges: Ranges) -> Fetched:
    """Ranges that lie in the tail."""
    if tail.record is not None:
        tail.record(ranges.num_bytes)
    return Fetched(tail.buffer, ranges.starts - tail.start)


def _split(tail: Tail, wanted: Ranges) -> Steps[Fetched]:
    """Fetch the bytes before the tail, and append the tail's part to ranges that reach into it."""
    border = tail.start
    if tail.record is not None:
        tail.record(int((wanted.ends - np.maximum(wanted.starts, border)).clip(0).sum()))
    fetched = yield Ranges(np.minimum(wanted.starts, border), np.minimum(wanted.ends, border), wanted.purpose)
    head, end = memoryview(fetched.buffer).cast("B"), memoryview(tail.buffer)
    offsets, parts, size = [], [], 0
    for low, high, at in zip(wanted.starts.tolist(), wanted.ends.tolist(), fetched.offsets.tolist(), strict=True):
        offsets.append(size)
        size += high - low
        if low < border:
            parts.append(head[at : at + min(high, border) - low])
        if high > border:
            parts.append(end[max(low, border) - border : high - border])
    return Fetched(b"".join(parts), np.array(offsets, dtype=np.int64))
