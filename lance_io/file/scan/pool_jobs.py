"""What a scan in the caller's thread has done on the CPU pool, and how many bytes that holds.

With one processor a thread that waits for another gains nothing: the caller does what it needs itself. Only when it
goes away with a batch are the jobs behind it handed over, and those that were not begun are taken back afterwards.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_io import limits
from lance_io.file.scan.decoded_parts import PartRoom
from lance_io.io.stats import count_held
from lance_io.records import dataclass
from lance_io.runtime import cpu_count, cpu_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from lance_io.io.budget import Pool
    from lance_io.io.stats import Sinks

T = TypeVar("T")
J = TypeVar("J", bound="PoolJob[Any]")


def ahead_bytes_max(num_cpus: int) -> int:
    """What a scan may decode before it is needed: more where more processors have to be kept busy."""
    return max(limits.SCAN_AHEAD_BYTES, limits.SCAN_PART_BYTES * num_cpus)


@dataclass(slots=True, eq=False, repr=False)
class PoolJob(Generic[T]):
    """What a thread of the pool reads and decodes at once.

    work        does it, given the job; None once its result has been asked for
    num_bytes   what will be read
    expected_bytes  what it will be decoded to, as far as that is known
    is_held     whether these bytes are counted as held
    kept_bytes  decoded and counted as held
    sizes       of the parts that were decoded and not used, in bytes
    is_dropped  whether nobody wants what it is decoded to
    """

    work: Callable[[Any], T] | None
    num_bytes: int = 0
    expected_bytes: int = 0
    is_held: bool = field(default=False, init=False)
    kept_bytes: int = field(default=0, init=False)
    sizes: deque[int] = field(default_factory=deque, init=False)
    is_dropped: bool = field(default=False, init=False)
    _future: Future[T] | None = field(default=None, init=False)

    def hand_over(self) -> None:
        """Let the pool do it, unless it has been told before or is done."""
        if self.work is not None and self._future is None:
            self._future = cpu_pool().submit(self.work, self)

    def result(self) -> T:
        """What it is decoded to; asked for once."""
        if self._future is not None:
            found = self._future.result()
            self._future = self.work = None  # the future would hold all of it until the last part is used
            return found
        work, self.work = self.work, None
        assert work is not None, "done once"
        return work(self)

    def take_back(self) -> bool:
        """Whether nobody has begun it; the pool will not begin it any more then."""
        if self.work is None or (self._future is not None and not self._future.cancel()):
            return False
        self._future = None
        return True


class JobQueue(deque[J]):
    """Jobs of a scan in order: batches of the first are being given out, those behind it are ahead of need.

    held      counts their bytes
    is_alone  there is one processor: the pool begins nothing before `go_ahead`
    """

    def __init__(self, held: HeldBytes) -> None:
        super().__init__()
        self._held = held
        self.is_alone = held.num_cpus == 1

    def begin(self, job: J) -> None:
        """One more job, which the pool may begin."""
        self.append(job)
        self._held.take(job)
        if not self.is_alone:
            job.hand_over()

    def go_ahead(self) -> None:
        """The caller goes away: the pool may begin what it has not needed so far, if it is alone."""
        for job in self:
            job.hand_over()

    def close(self) -> None:
        """Let go of what has not begun, and of what nobody will use."""
        for job in self:
            if job.take_back():
                self._held.give_back(job)
            self._held.drop(job)
        self.clear()
        self._held.end()


class HeldBytes:
    """Bytes that a scan holds, bounded as in a `Budget`; thread-safe, because the threads that decode give back.

    Pieces that are read and decoded count for the scan and for what it shares with others; when they are decoded, what
    they became counts for the latter, until the consumer asks for what comes behind them.

    capacity_bytes  the bound of what is read and not decoded; 0 for none
    pool            the bound that it shares with others
    num_cpus        processors that the scan may use

    What jobs that nobody needs yet are decoded to, or will be, has a bound of its own (`limits.SCAN_AHEAD_BYTES`).
    """

    def __init__(self, capacity_bytes: int, pool: Pool, sinks: Sinks) -> None:
        self._capacity_bytes = capacity_bytes
        self._pool = pool
        self._sinks = sinks
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._ahead_bytes = 0  # decoded, or to be, of jobs
        self.num_cpus = cpu_count()
        self._ahead_bytes_max = ahead_bytes_max(self.num_cpus)
        self._in_use: dict[int, int] = {}  # decoded bytes of the pieces that batches are cut from, by leaf

    def has_room(self, num_bytes: int, expected_bytes: int = 0) -> bool:
        """May so many bytes be read ahead of need, and decoded to so many?"""
        if self._capacity_bytes and self._held_bytes + num_bytes > self._capacity_bytes:
            return False
        is_within = not expected_bytes or self._ahead_bytes + expected_bytes <= self._ahead_bytes_max
        return is_within and max(num_bytes, expected_bytes) <= self._pool.avail_bytes

    def has_turn(self, num_bytes: int, expected_bytes: int, num_jobs: int) -> bool:
        """`has_room`, for a job behind so many others: of few jobs each processor has one, however large they are."""
        if self.has_room(num_bytes, expected_bytes):
            return True
        return num_jobs < self.num_cpus and expected_bytes <= self._pool.avail_bytes and self.has_room(num_bytes)

    def part_room(self) -> PartRoom:
        """Counts what is decoded on demand."""
        return PartRoom(self._pool.charge, lambda num_bytes: self.has_room(0, num_bytes))

    def take(self, job: PoolJob[Any]) -> None:
        """Count the bytes of a job."""
        self._charge(job, 1, is_held=True)

    def give_back(self, job: PoolJob[Any]) -> None:
        """Once, whoever comes first: a caller that is interrupted may not know that the pool has the job."""
        self._charge(job, -1, is_held=False)

    def _charge(self, job: PoolJob[Any], sign: int, *, is_held: bool) -> None:
        with self._lock:
            if job.is_held == is_held:
                return
            job.is_held = is_held
            self._held_bytes += sign * job.num_bytes
            self._ahead_bytes += sign * job.expected_bytes
        self._pool.charge(sign * job.expected_bytes)
        count_held(self._sinks, sign * job.num_bytes)

    def claim(self, job: PoolJob[Any], num_bytes: int) -> bool:
        """Whether a job, which is under way, may be decoded to so many bytes more than expected (fewer: below 0)."""
        with self._lock:
            if not job.is_held or (num_bytes > 0 and self._ahead_bytes + num_bytes > self._ahead_bytes_max):
                return False
            self._ahead_bytes += num_bytes
            job.expected_bytes += num_bytes
        self._pool.charge(num_bytes)
        return True

    def keep(self, job: PoolJob[Any], sizes: Sequence[int]) -> None:
        """What a job did is decoded, and waits for the consumer, unless nobody wants it.

        sizes  of its parts, in bytes
        """
        num_bytes = sum(sizes)
        with self._lock:
            if job.is_dropped:
                return
            job.sizes = deque(sizes)
            job.kept_bytes = num_bytes
            self._ahead_bytes += num_bytes
        self._pool.charge(num_bytes)

    def use(self, job: PoolJob[Any], leaf_id: int) -> None:
        """The consumer goes on from the part of a leaf before to the next one of the job."""
        with self._lock:
            num_bytes = job.sizes.popleft()
            job.kept_bytes -= num_bytes
            self._ahead_bytes -= num_bytes
            used_bytes = self._in_use.get(leaf_id, 0)
            self._in_use[leaf_id] = num_bytes
        if used_bytes:
            self._pool.charge(-used_bytes)

    def use_together(self, job: PoolJob[Any], leaf_ids: Sequence[int]) -> None:
        """`use` for the next part of each of some leaves."""
        with self._lock:
            sizes = [job.sizes.popleft() for _ in leaf_ids]
            job.kept_bytes -= sum(sizes)
            self._ahead_bytes -= sum(sizes)
            used_bytes = sum([self._in_use.get(leaf_id, 0) for leaf_id in leaf_ids])
            self._in_use.update(zip(leaf_ids, sizes, strict=True))
        if used_bytes:
            self._pool.charge(-used_bytes)

    def drop(self, job: PoolJob[Any]) -> None:
        """Nobody wants what a job is decoded to."""
        with self._lock:
            job.is_dropped = True
            kept_bytes, job.kept_bytes = job.kept_bytes, 0
            self._ahead_bytes -= kept_bytes
        self._pool.charge(-kept_bytes)

    def end(self) -> None:
        """No more batches are cut."""
        with self._lock:
            used_bytes = sum(self._in_use.values())
            self._in_use.clear()
        self._pool.charge(-used_bytes)
