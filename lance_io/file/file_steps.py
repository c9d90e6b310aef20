"""Computations on one file that ask for bytes, and how several of them share their rounds.

A file computation is a generator that yields one of

    Ranges   bytes of the file; it is sent `Fetched`
    Suffix   the end of a file whose size is unknown; it is sent `FetchedSuffix`
    Wait     somebody else is loading a cache entry; it is sent None when that is done (look again)

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
MANY_RANGES: Final = 64  # numpy looks at so many faster than Python


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
    """Wait until a load by somebody else has ended, however it ended."""

    future: Future[Any]


Request: TypeAlias = Ranges | Suffix | Wait
Answer: TypeAlias = Fetched | FetchedSuffix | None
FileSteps: TypeAlias = Generator[Request, Any, T]


class AnyFile(Protocol):
    """A file as requests name it: as the manifest describes it, or opened.

    size_bytes  0 where that is not known
    """

    @property
    def key(self) -> str:
        """The object."""
        ...

    @property
    def size_bytes(self) -> int:
        """Of all of it."""
        ...


@dataclass(slots=True, eq=False)
class Independent:
    """Computations on several files that need not wait for each other; answered by the list of their results."""

    steps: Sequence[tuple[AnyFile, FileSteps[Any]]]


@dataclass(slots=True, eq=False)
class ReadJoined:
    """Byte ranges of several files, one round, whose bytes are used up before the next one.

    files   that have ranges
    ranges  of all of them, those of each behind those of the one before
    bounds  i[n + 1]: the file i has those from `bounds[i]` to `bounds[i + 1]`
    use     looks at what was fetched of one, given its place, on any thread, and holds nothing of it afterwards; called
            for each where all of them are much memory

    Answered by what was fetched of all together, in one buffer, or by a list: what was fetched of each, or None where
    that has been used.
    """

    files: Sequence[AnyFile]
    ranges: Ranges
    bounds: Sequence[int]
    use: Callable[[int, Fetched], None]

    def of_file(self, at: int) -> Ranges:
        """The ranges of one."""
        return self.ranges.part(self.bounds[at], self.bounds[at + 1])


AskedOfFiles: TypeAlias = "list[tuple[AnyFile, Request]] | Independent | ReadJoined"
FilesSteps: TypeAlias = Generator[AskedOfFiles, Any, T]
"""The same on several files: each yield is the requests of one round, and is sent the answers; or one of the above."""


@dataclass(slots=True, eq=False)
class Tail:
    """The end of a file that was read to open it: it serves the ranges inside it while its scan lasts."""

    start: int
    buffer: Any


def side_by_side(steps: Sequence[tuple[AnyFile, FileSteps[T]]]) -> FilesSteps[list[T]]:
    """Run computations on several files in lock step: what all of them ask for is one round."""
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
            # What is waited for may be a load of ours: those that can go on go first.
            waiting = [one for one in live if type(one[1]) is Wait]
            ready = [one for one in live if type(one[1]) is not Wait]
            ready, live = (ready, waiting) if ready else (waiting, [])
            answers = yield [(steps[at][0], request) for at, request in ready]
            for (at, _), answer in zip(ready, answers, strict=True):
                advance(at, answer)
        return results
    finally:
        for _, step in steps:
            step.close()


def fetch_apart(wanted: Sequence[Ranges], tail: Tail | None) -> Steps[list[Fetched]]:
    """One round for several lists of ranges, and what was fetched of each; the tail serves those that lie in it."""
    parts: list[Fetched | None] = [None] * len(wanted)
    if tail is not None:
        for at, one in enumerate(wanted):
            if len(one) and _first(one) >= tail.start:
                parts[at] = Fetched(tail.buffer, one.starts - tail.start)
    asked = [at for at, part in enumerate(parts) if part is None]
    if asked:
        fetched = yield from served_by(tail, fetch(merge_ranges([wanted[at] for at in asked])))
        position = 0
        for at in asked:
            end = position + len(wanted[at])
            parts[at] = Fetched(fetched.buffer, fetched.offsets[position:end])
            position = end
    return [part for part in parts if part is not None]


def one_request(request: Request) -> FileSteps[Any]:
    """A computation that asks for one thing, and gives the answer."""
    return (yield request)


def served_by(tail: Tail | None, steps: Steps[T]) -> Steps[T]:
    """Answer ranges that the tail holds from the tail, and ask only for what lies before it."""
    if tail is None:
        return (yield from steps)
    try:
        wanted = next(steps)
        while True:
            if len(wanted) and _first(wanted) >= tail.start:
                fetched = Fetched(tail.buffer, wanted.starts - tail.start)
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
    """Where the first byte is."""
    starts = ranges.starts
    return min(starts.tolist()) if len(starts) < MANY_RANGES else int(starts.min())


def _last(ranges: Ranges) -> int:
    """Where the last byte ends."""
    ends = ranges.ends
    return max(ends.tolist()) if len(ends) < MANY_RANGES else int(ends.max())


def _split(tail: Tail, wanted: Ranges) -> Steps[Fetched]:
    """Some ranges reach into the tail: fetch what lies before it, and put the two together."""
    border = tail.start
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
