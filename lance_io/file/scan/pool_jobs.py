"""Jobs that a scan in the caller's thread runs on the CPU pool, and the bytes that they hold.

On a single core, waiting for another thread gains nothing: the caller runs the jobs that it needs itself. Only when it
returns a batch does it submit the further jobs to the pool; afterwards it cancels those that have not started.
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
    """Limit of the bytes that a scan decodes ahead: more with more cores to keep busy."""
    return max(limits.SCAN_AHEAD_BYTES, limits.SCAN_PART_BYTES * num_cpus)


@dataclass(slots=True, eq=False, repr=False)
class PoolJob(Generic[T]):
    """Unit of work of a pool thread: reads and decodes pieces.

    work            the function to run, given the job; None once its result has been taken
    num_bytes       bytes to read
    expected_bytes  estimate of the decoded bytes
    is_held         whether these bytes are counted as held
    kept_bytes      decoded bytes counted as held
    sizes           bytes of the decoded parts that are not used yet
    is_dropped      whether its result is no longer wanted
    """

    work: Callable[[Any], T] | None
    num_bytes: int = 0
    expected_bytes: int = 0
    is_held: bool = field(default=False, init=False)
    kept_bytes: int = field(default=0, init=False)
    sizes: deque[int] = field(default_factory=deque, init=False)
    is_dropped: bool = field(default=False, init=False)
    _future: Future[T] | None = field(default=None, init=False)

    def submit(self) -> None:
        """Submit it to the pool, unless it has been submitted or is done."""
        if self.work is not None and self._future is None:
            self._future = cpu_pool().submit(self.work, self)

    def result(self) -> T:
        """Its result, which can be taken once; runs it in this thread if it has not been submitted."""
        if self._future is not None:
            result = self._future.result()
            self._future = self.work = None  # the future would hold the whole result until the last part is used
            return result
        work, self.work = self.work, None
        assert work is not None, "runs once"
        return work(self)

    def cancel(self) -> bool:
        """Whether it has not started; if so, the pool does not start it any more."""
        if self.work is None or (self._future is not None and not self._future.cancel()):
            return False
        self._future = None
        return True


class JobQueue(deque[J]):
    """Jobs of a scan in order: the first one provides the current batches, the others run ahead.

    held            counts their bytes
    is_single_core  whether there is one core only: jobs are not submitted before `submit_all`
    """

    def __init__(self, held: HeldBytes) -> None:
        super().__init__()
        self._held = held
        self.is_single_core = held.num_cpus == 1

    def begin(self, job: J) -> None:
        """Append a job, and submit it unless there is a single core."""
        self.append(job)
        self._held.charge_job(job)
        if not self.is_single_core:
            job.submit()

    def submit_all(self) -> None:
        """Submit all jobs; called before a batch is returned to the consumer."""
        for job in self:
            job.submit()

    def close(self) -> None:
        """Cancel jobs that have not started, and release all bytes."""
        for job in self:
            if job.cancel():
                self._held.release_job(job)
            self._held.drop(job)
        self.clear()
        self._held.end()


class HeldBytes:
    """Bytes that a scan holds, limited as in a `Budget`. Thread-safe, because decoding threads release bytes.

    Pieces being read and decoded count for the scan and for the shared pool. Decoded pieces count for the pool until
    the consumer has advanced past them.

    capacity_bytes  limit of bytes read and not decoded; 0 for none
    pool            memory budget shared with other reads
    num_cpus        cores that the scan may use

    The decoded and expected bytes of jobs that run ahead have a limit of their own (`limits.SCAN_AHEAD_BYTES`).
    """

    def __init__(self, capacity_bytes: int, pool: Pool, sinks: Sinks) -> None:
        self._capacity_bytes = capacity_bytes
        self._pool = pool
        self._sinks = sinks
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._ahead_bytes = 0  # decoded or expected bytes of jobs that run ahead
        self.num_cpus = cpu_count()
        self._ahead_bytes_max = ahead_bytes_max(self.num_cpus)
        self._in_use: dict[int, int] = {}  # decoded bytes of the pieces that current batches are cut from, by leaf

    def has_room(self, num_bytes: int, expected_bytes: int = 0) -> bool:
        """Whether `num_bytes` may be read ahead, and `expected_bytes` decoded ahead."""
        if self._capacity_bytes and self._held_bytes + num_bytes > self._capacity_bytes:
            return False
        is_within = not expected_bytes or self._ahead_bytes + expected_bytes <= self._ahead_bytes_max
        return is_within and max(num_bytes, expected_bytes) <= self._pool.avail_bytes

    def has_room_for_job(self, num_bytes: int, expected_bytes: int, num_jobs: int) -> bool:
        """`has_room` for a further job after `num_jobs` jobs: each core gets one job of any size."""
        if self.has_room(num_bytes, expected_bytes):
            return True
        return num_jobs < self.num_cpus and expected_bytes <= self._pool.avail_bytes and self.has_room(num_bytes)

    def part_room(self) -> PartRoom:
        """A counter for the parts that are decoded on demand."""
        return PartRoom(self._pool.charge, lambda num_bytes: self.has_room(0, num_bytes))

    def charge_job(self, job: PoolJob[Any]) -> None:
        """Charge the bytes of a job."""
        self._charge(job, 1, is_held=True)

    def release_job(self, job: PoolJob[Any]) -> None:
        """Release the bytes of a job. Idempotent: an interrupted caller and the pool may both call it."""
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
        """Whether a running job may decode `num_bytes` more than expected (negative: fewer); charges them if so."""
        with self._lock:
            if not job.is_held or (num_bytes > 0 and self._ahead_bytes + num_bytes > self._ahead_bytes_max):
                return False
            self._ahead_bytes += num_bytes
            job.expected_bytes += num_bytes
        self._pool.charge(num_bytes)
        return True

    def keep(self, job: PoolJob[Any], sizes: Sequence[int]) -> None:
        """Charge the decoded result of a job until the consumer uses it, unless the job was dropped.

        sizes  bytes of its parts
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
        """The consumer advances to the job's next part of a leaf, which releases the leaf's previous part."""
        with self._lock:
            num_bytes = job.sizes.popleft()
            job.kept_bytes -= num_bytes
            self._ahead_bytes -= num_bytes
            used_bytes = self._in_use.get(leaf_id, 0)
            self._in_use[leaf_id] = num_bytes
        if used_bytes:
            self._pool.charge(-used_bytes)

    def use_together(self, job: PoolJob[Any], leaf_ids: Sequence[int]) -> None:
        """`use` for the next part of each of these leaves."""
        with self._lock:
            sizes = [job.sizes.popleft() for _ in leaf_ids]
            job.kept_bytes -= sum(sizes)
            self._ahead_bytes -= sum(sizes)
            used_bytes = sum([self._in_use.get(leaf_id, 0) for leaf_id in leaf_ids])
            self._in_use.update(zip(leaf_ids, sizes, strict=True))
        if used_bytes:
            self._pool.charge(-used_bytes)

    def drop(self, job: PoolJob[Any]) -> None:
        """Drop a job: its result is no longer wanted."""
        with self._lock:
            job.is_dropped = True
            kept_bytes, job.kept_bytes = job.kept_bytes, 0
            self._ahead_bytes -= kept_bytes
        self._pool.charge(-kept_bytes)

    def end(self) -> None:
        """Release the parts in use; no more batches are cut."""
        with self._lock:
            used_bytes = sum(self._in_use.values())
            self._in_use.clear()
        self._pool.charge(-used_bytes)
