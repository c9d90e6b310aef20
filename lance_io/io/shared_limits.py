"""Limits and counters that the datasets of a session share for their reads."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.io.budget import Pool, process_pool
from lance_io.io.slots import SlotChain, Slots
from lance_io.io.stats import IoStats
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from lance_io.io.slots import SlotSource

_LEAST: Final = {"concurrency": 1, "io_buffer_size": 0, "retries": 0, "gap_bytes_max": 0, "read_bytes_max": 1}


@dataclass(eq=False)
class IoScheduler:
    """Limits for the reads of all datasets that you open with one `Session(io_scheduler=...)`.

    Within a session the requests of a scan are sent in the order of its rows. Storage options take precedence over
    `retries`, `timeout`, `gap_bytes_max` and `read_bytes_max`. Local reads do not count for `concurrency`: they run in
    the thread that needs them.

    Args:
        concurrency: Maximum number of concurrent requests for data files of remote stores. None for the limit of each
            store, which holds for the whole process.
        io_buffer_size: Maximum number of bytes that all datasets hold together, read and not yet consumed; also the
            default of a single scan. 0 for no bound; None for the defaults: 80 MiB a scan, and the bound of the
            process.
        retries: Maximum number of retries of a request after a transient failure. None for the store's.
        timeout: Seconds to wait for an answer, plus one second for each MB of it. None for the store's.
        priority: When a store has no free slot, requests of the session with the smallest number are sent first.
        gap_bytes_max: Ranges closer than this many bytes share a request. None for the store's, which is larger for
            scans.
        read_bytes_max: Maximum length of a request in bytes. None for the store's.

    Raises:
        UsageError: A value is out of range or of the wrong type.
    """

    concurrency: int | None = None
    io_buffer_size: int | None = None
    retries: int | None = None
    timeout: float | None = None
    priority: int = 0
    _: KW_ONLY
    gap_bytes_max: int | None = None
    read_bytes_max: int | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise UsageError(f"{name} is a whole number of at least {least}, not {value!r}")
        seconds = self.timeout
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < float("inf")):
            raise UsageError(f"timeout is a number of seconds above 0, not {seconds!r}")
        if type(self.priority) is not int:
            raise UsageError(f"priority is a whole number, not {self.priority!r}")
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Reset slots and counters (after a fork: requests in flight belong to the parent)."""
        self._stats = IoStats()
        self._slots = None if self.concurrency is None else Slots(self.concurrency)
        self._pool = Pool(self.io_buffer_size, within=process_pool) if self.io_buffer_size else None

    @property
    def stats(self) -> IoStats:
        """Counters of all reads through this scheduler; live, so you can read them at any time.

        Returns:
            The `IoStats` of this scheduler, always the same object.
        """
        return self._stats

    @property
    def pool(self) -> Pool:
        """The pool of bytes that its datasets share.

        Returns:
            The pool for `io_buffer_size`, or that of the process.
        """
        return process_pool() if self._pool is None else self._pool

    def slots(self, links: tuple[Slots, ...]) -> SlotSource:
        """Slots for requests, which also take slots of a store.

        Args:
            links: The slots of the store.

        Returns:
            A source of slots with the priority of this scheduler.
        """
        own = () if self._slots is None else (self._slots,)
        return SlotChain(*own, *links, priority=self.priority)

    @property
    def storage_options(self) -> dict[str, str]:
        """Its limits as storage options. Options that you pass for a dataset take precedence.

        Returns:
            Values by option name, only for limits that are set.
        """
        options: dict[str, Any] = {
            "client_max_retries": self.retries,
            "request_timeout": None if self.timeout is None else f"{self.timeout}s",
            "take_gap_bytes": self.gap_bytes_max,
            "scan_gap_bytes": self.gap_bytes_max,
            "take_read_bytes_max": self.read_bytes_max,
            "scan_read_bytes_max": self.read_bytes_max,
            "split_bytes": self.read_bytes_max,
        }
        return {name: str(value) for name, value in options.items() if value is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, ({each.name: getattr(self, each.name) for each in fields(self)},)


def _made_again(values: dict[str, Any]) -> IoScheduler:
    return IoScheduler(**values)
