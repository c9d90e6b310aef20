"""What the datasets of a session share when they read: places for requests, bytes, an order, counters."""

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
    """Bounds and numbers for the reads of all datasets that are opened with one `Session(io_scheduler=...)`.

    concurrency     requests for data files that they have in flight at once, in stores that are waited for; None for
                    no bound but each store's, which holds for the whole process
    io_buffer_size  bytes that they may hold together, read and not yet consumed, and that a scan may which says
                    nothing else; 0 for no bound, None for the defaults: 80 MiB a scan, and the bound of the process
    retries         attempts after the first, of requests that fail in a way that may pass; None for the store's
    timeout         seconds to wait for an answer, and one more for each MB of it; None for the store's
    priority        whose requests go first when a store has no place free: those of the smallest number
    gap_bytes_max   ranges closer than this share a request; None for the store's, which is larger for scans
    read_bytes_max  longest request; None for the store's

    Within a session the requests of a scan go in the order of its rows. Storage options stand above `retries`,
    `timeout`, `gap_bytes_max` and `read_bytes_max`. Local reads take no places: they are done where they are asked for.

    Raises `UsageError` for a number that cannot be.
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
        """Nothing is read (after a fork: what the parent has in flight is the parent's)."""
        self._stats = IoStats()
        self._places = None if self.concurrency is None else Slots(self.concurrency)
        self._pool = Pool(self.io_buffer_size, within=process_pool) if self.io_buffer_size else None

    @property
    def stats(self) -> IoStats:
        """What was read through it so far; read the counters at any time."""
        return self._stats

    @property
    def pool(self) -> Pool:
        """The bound on what is held."""
        return process_pool() if self._pool is None else self._pool

    def slots(self, links: tuple[Slots, ...]) -> SlotSource:
        """Places for requests that take these slots of a store, too."""
        places = () if self._places is None else (self._places,)
        return SlotChain(*places, *links, priority=self.priority)

    @property
    def storage_options(self) -> dict[str, str]:
        """Its numbers as the options of stores, which options that a user gives stand above."""
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
