"""Requests and the physical reads that answer them.

A request is one submission: ranges of one file, answered together or failed together. A read is one call of the
store. Requests that are admitted together share reads, so the two refer to each other:

    Request.reads    the reads that hold its bytes
    Read.holders     the requests that still need it; a read without holders is not sent, or cancelled
    Read.payer       the holder whose ticket is charged for the read's bytes: a shared buffer is counted once, and as
                     long as any request holds it

Nothing here awaits; `dispatch.py` drives these objects.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from lance_io import _kernels
from lance_io.io.buffer_pool import POOLED_BYTES_MIN, buffer_pool
from lance_io.io.estimates import charge_apart
from lance_io.io.stats import join_sinks
from lance_io.limits import KIB
from lance_io.spans import Fetched, Ranges, int64s
from lance_io.store.failures import ShortRead
from lance_io.store.offers import WantedRange

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from lance_io.io.budget import Priority, Ticket
    from lance_io.io.dispatch import Operation
    from lance_io.io.stats import Sinks
    from lance_io.spans import IntArray
    from lance_io.store.api import ObjectReads
    from lance_io.store.offers import PlanReads, StartedRead

# A small answer that is kept must not keep a large merged buffer in memory: it is copied out.
PINNED_BYTES_MAX = 64 * KIB
PINNED_RATIO_MAX = 4

_NO_OFFSETS: IntArray = np.empty(0, dtype=np.int64)


class Merging(NamedTuple):
    """Rules for merging requests into shared reads.

    mode            "take": merge requests of equal priority, one batch of rows; "scan": all that are admitted together
    gap_bytes_max   ranges no further apart than this share a read
    read_bytes_max  maximum length of a read
    """

    mode: Literal["take", "scan"]
    gap_bytes_max: int
    read_bytes_max: int


class Request:
    """One submission of ranges.

    operation  the scan or take that it belongs to
    key        key of the object
    ranges     the requested ranges
    num_bytes  the sum of their lengths
    merging    rules for sharing reads
    priority   smaller is more urgent
    ticket     its ticket in the budget; None for metadata, which is admitted before everything else
    sinks      the statistics that count its reads
    """

    __slots__ = (
        "answer",
        "destination",
        "ended",
        "error",
        "key",
        "left",
        "lingering",
        "merging",
        "num_bytes",
        "num_missing",
        "offsets",
        "operation",
        "priority",
        "ranges",
        "reads",
        "sinks",
        "ticket",
        "waiter",
    )

    def __init__(
        self,
        operation: Operation,
        key: str,
        ranges: Ranges,
        num_bytes: int,
        merging: Merging,
        priority: Priority,
        ticket: Ticket | None,
        sinks: Sinks,
    ) -> None:
        self.operation = operation
        self.key = key
        self.ranges = ranges
        self.num_bytes = num_bytes
        self.merging = merging
        self.priority = priority
        self.ticket = ticket
        self.sinks = sinks
        self.reads: list[Read] = []
        self.num_missing = 0  # pieces that have not arrived
        self.offsets: IntArray = _NO_OFFSETS
        self.destination: Any = None  # buffer that joins several pieces
        self.answer: Any = None
        self.error: BaseException | None = None
        self.ended = False  # answer or error is set
        self.left = False  # consumed, cancelled or failed
        self.lingering = 0  # cancelled reads that still run
        self.waiter: asyncio.Future[None] | None = None

    @property
    def group(self) -> tuple[object, ...]:
        """Requests of one group may share reads when they are admitted together."""
        if self.merging.mode == "take":
            return (self.key, self.merging, self.priority)
        return (self.key, self.merging)

    def waiting(self) -> asyncio.Future[None]:
        """A future that is done when answer or error is set."""
        if self.waiter is None:
            self.waiter = asyncio.get_running_loop().create_future()
        return self.waiter

    def end(self) -> None:
        """Wake the waiters: answer or error is set."""
        self.ended = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def expect(self, num_pieces: int, offsets: IntArray, num_bytes: int) -> None:
        """Prepare for an answer of `num_pieces` pieces, `num_bytes` in all, with ranges starting at `offsets`."""
        self.num_missing = num_pieces
        self.offsets = offsets
        if self.merging.mode == "take" and num_bytes >= POOLED_BYTES_MIN and not self.ranges.keep:
            self.destination = buffer_pool().allocate(num_bytes)
        elif num_pieces > 1:
            self.destination = np.empty(num_bytes, dtype=np.uint8)

    def room(self, offset: int, num_bytes: int) -> memoryview | None:
        """The memory for a piece of the answer, for a store that can receive into it; None if there is none yet."""
        if self.destination is None:
            return None
        return memoryview(self.destination)[offset : offset + num_bytes]

    def receive_placed(self) -> bool:
        """Record a piece that was received into `room`. True when the answer is complete."""
        self.num_missing -= 1
        if self.num_missing == 0:
            self.answer = Fetched(self.destination, self.offsets)
            self.destination = None  # the consumer of the answer owns all of it
        return self.num_missing == 0

    def receive(self, source: memoryview, start: int, end: int, offset: int) -> bool:
        """Put bytes `start` to `end` of a read's buffer at `offset`. True when the answer is complete."""
        if self.destination is not None:
            memoryview(self.destination)[offset : offset + end - start] = source[start:end]
            return self.receive_placed()
        self.num_missing -= 1
        piece: Any = source[start:end]
        if self.ranges.keep and _pins(end - start, len(source)):
            piece = bytes(piece)
        self.answer = Fetched(piece, self.offsets)
        return self.num_missing == 0


class Read:
    """One call of the store; subclasses define which.

    priority   that of its most urgent holder
    num_bytes  upper bound of its bytes; once answered, its bytes
    queued_s   when it entered the queue, by the loop's clock
    queue_s    how long it waited before it was sent
    is_cached  whether a disk cache answered it
    """

    __slots__ = (
        "holders",
        "is_cached",
        "num_bytes",
        "payer",
        "priority",
        "queue_s",
        "queued_s",
        "sinks",
        "started",
        "state",
        "task",
    )

    def __init__(self, holders: list[Request], num_bytes: int) -> None:
        self.holders = holders
        self.payer = first = holders[0]
        self.priority, self.sinks = first.priority, first.sinks
        if len(holders) > 1:
            self.priority = min([request.priority for request in holders])
            self.sinks = join_sinks([request.sinks for request in holders])
        self.num_bytes = num_bytes
        self.state: Literal["queued", "in flight", "given up", "ended"] = "queued"
        self.queued_s = self.queue_s = 0.0
        self.is_cached = False
        self.task: asyncio.Task[Any] | None = None  # in flight either as a task,
        self.started: StartedRead | None = None  # or as a handle of a store that needs no task

    def note_cached(self) -> None:
        """Record that a disk cache answers it (`store.counters.on_cached`)."""
        self.is_cached = True

    @property
    def is_urgent(self) -> bool:
        """Whether it reads metadata, which ignores the scan's own limit of requests."""
        return self.payer.ticket is None

    def fetch(self, store: ObjectReads) -> Coroutine[Any, Any, Any]:
        """The call of the store."""
        raise NotImplementedError

    def deliver(self, result: Any) -> list[Request]:
        """Pass the result of the call to the holders; returns those whose answer is complete now.

        Sets `num_bytes` to the received size. Raises if the result has the wrong size.
        """
        raise NotImplementedError


class RangeRead(Read):
    """One range of an object, split into the segments of its holders.

    key_range  key of the object, start, end
    segments   (request, start and end in this read, offset in the answer)
    """

    __slots__ = ("_room", "key_range", "segments")

    def __init__(self, start: int, end: int, segments: list[tuple[Request, int, int, int]]) -> None:
        super().__init__([segments[0][0]] if len(segments) == 1 else [item[0] for item in segments], end - start)
        self.key_range = self.payer.key, start, end
        self.segments = segments
        self._room: tuple[Request, memoryview] | None = None  # the memory that receives it, and its request

    def fetch(self, store: ObjectReads) -> Coroutine[Any, Any, Any]:
        """The call of the store."""
        return store.get_range(*self.key_range)

    def wanted(self) -> WantedRange:
        """The range for a store that starts reads; with the memory to receive it, if it is a piece of one answer."""
        room = None
        if len(self.segments) == 1:
            request, _, _, offset = self.segments[0]  # a single holder: the segment is the whole read
            room = request.room(offset, self.num_bytes)
            if room is not None:
                self._room = request, room
        key, start, end = self.key_range
        return WantedRange(key, start, end, room, self.payer.operation.flow, self)

    def is_ahead_of(self, other: RangeRead) -> bool:
        """Whether this read, which is under way, is not slower than another read of the same range."""
        return self.state == "in flight" or self.priority <= other.priority

    def join(self, other: RangeRead) -> None:
        """Also answer the holders of another read of the same range."""
        self.segments += other.segments
        self.holders += other.holders
        for request in other.holders:
            request.reads[request.reads.index(other)] = self

    def deliver(self, result: Any) -> list[Request]:
        """Split the buffer; a `result` of None means that the bytes were received into the given memory."""
        room, self._room = self._room, None
        segments, self.segments = self.segments, []
        complete = []
        if result is None:
            assert room is not None
            placed, view = room
            if len(segments) > 1:  # others have joined: they must not keep that whole answer in memory
                view = memoryview(bytes(view))
        else:
            placed, view = None, memoryview(result).cast("B")
            if len(view) != self.num_bytes:
                key, start, _ = self.key_range
                text = f"expected {self.num_bytes} bytes from {start} on, the store gave {len(view)}"
                raise ShortRead(text, path=key)
        for request, start, end, offset in segments:
            if request.left:
                continue
            if request.receive_placed() if request is placed else request.receive(view, start, end, offset):
                complete.append(request)
        return complete


class PlanRead(Read):
    """All ranges of several requests for one object, for a store that takes whole plans."""

    __slots__ = ()

    def __init__(self, holders: list[Request]) -> None:
        super().__init__(holders, sum(map(charge_apart, holders)))

    def fetch(self, store: ObjectReads) -> Coroutine[Any, Any, Any]:
        """The call of the store."""
        planner: PlanReads = store  # type: ignore[assignment]  # the scheduler has checked it
        # a copy: a holder may leave while the call runs
        requests = list(self.holders)
        return self._fetch(planner, requests)

    async def _fetch(self, store: PlanReads, requests: list[Request]) -> tuple[list[Request], Fetched]:
        ranges = join([request.ranges for request in requests])
        _, gap_bytes, read_bytes = requests[0].merging
        return requests, await store.read_ranges(requests[0].key, ranges, gap_bytes, read_bytes)

    def deliver(self, result: tuple[list[Request], Fetched]) -> list[Request]:
        """Pass the shared buffer to all holders, each with its own offsets."""
        requests, fetched = result
        self.num_bytes = memoryview(fetched.buffer).nbytes
        begin, complete = 0, []
        for request in requests:
            end = begin + len(request.ranges)
            if not request.left:
                request.answer = self._answer_of(request, fetched.buffer, fetched.offsets[begin:end])
                complete.append(request)
            begin = end
        return complete

    def _answer_of(self, request: Request, buffer: Any, offsets: IntArray) -> Fetched:
        if request.ranges.keep and _pins(request.num_bytes, self.num_bytes):
            lengths = request.ranges.ends - request.ranges.starts
            return Fetched(_kernels.gather_ranges(buffer, offsets, lengths), np.cumsum(lengths) - lengths)
        return Fetched(buffer, offsets)


class CallRead(Read):
    """Any other read call, whose result is the answer."""

    __slots__ = ("_call",)

    def __init__(self, request: Request, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__([request], 0)
        self._call = call

    def fetch(self, store: ObjectReads) -> Coroutine[Any, Any, Any]:
        """The call of the store."""
        return self._call()

    def deliver(self, result: Any) -> list[Request]:
        """Pass the result on; its first item is the buffer."""
        self.num_bytes = memoryview(result[0]).nbytes
        self.payer.answer = result
        return [self.payer]


def join(parts: Sequence[Ranges]) -> Ranges:
    """The ranges of several requests, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Ranges(
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        parts[0].purpose,
        any(part.keep for part in parts),
    )


def plan_ranges(requests: list[Request]) -> list[Read]:
    """Plan reads for requests of one group, one per merged range. Prepares each request for its pieces."""
    _, gap_bytes_max, read_bytes_max = requests[0].merging
    wanted = [(request, request.ranges.starts, request.ranges.ends) for request in requests]
    planned, sizes, memory = _kernels.plan_reads(wanted, gap_bytes_max, read_bytes_max)
    reads: list[Read] = [RangeRead(start, end, segments) for start, end, segments in planned]
    _attach(reads)
    offsets, begin = int64s(memory), 0
    for (request, starts, _), num_bytes in zip(wanted, sizes, strict=True):
        end = begin + len(starts)
        request.expect(len(request.reads), offsets[begin:end], num_bytes)
        begin = end
    return reads


def plan_jobs(requests: list[Request]) -> list[Read]:
    """Plan reads for requests of one group on a store that takes plans: jobs of about `read_bytes_max`, in order."""
    read_bytes_max = requests[0].merging.read_bytes_max
    reads: list[Read] = []
    job: list[Request] = []
    job_bytes = 0
    for request in requests:
        if job and job_bytes + request.num_bytes > read_bytes_max:
            reads.append(PlanRead(job))
            job, job_bytes = [], 0
        job.append(request)
        job_bytes += request.num_bytes
    reads.append(PlanRead(job))
    _attach(reads)
    return reads


def _attach(reads: list[Read]) -> None:
    for read in reads:
        for request in read.holders:
            request.reads.append(read)


def _pins(wanted_bytes: int, buffer_bytes: int) -> bool:
    """Whether a kept answer would keep far more memory alive than it needs."""
    return wanted_bytes < PINNED_BYTES_MAX and buffer_bytes > PINNED_RATIO_MAX * wanted_bytes
