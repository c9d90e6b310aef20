"""The libraries behind one interface, each as its users would call it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from benchmarks.latency.callers import waits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

T = TypeVar("T")
Rows = list[int]
Keys = list[int]
Options = dict[str, str]

OURS, OUR_LOOP, PYLANCE, PYLANCE_AS_IS = "lance_io", "lance_io loop", "pylance", "pylance as it comes"
OURS_CACHED = "lance_io, disk cache"
OURS_EARLY, OURS_LATE = "lance_io, all at once", "lance_io, all late"
PYLANCE_WIDE = "pylance unlimited"
LANCEDB, PARQUET = "lancedb", "parquet"
UNLIMITED = {
    "LANCE_AIMD_INITIAL_RATE": "50000",
    "LANCE_AIMD_MAX_RATE": "50000",
    "LANCE_AIMD_BURST_CAPACITY": "5000",
}
MORE_THREADS = {"LANCE_CPU_THREADS": "64", "LANCE_IO_THREADS": "256"}


def filter_of(column: str, keys: Keys) -> str:
    """The filter of rows that have one of some keys."""
    return f"{column} = {keys[0]}" if len(keys) == 1 else f"{column} IN ({', '.join(map(str, keys))})"


class Contender:
    """One library and one table at a time.

    environment  variables that its process needs
    """

    environment: ClassVar[dict[str, str]] = {}

    def __init__(self, options: Options) -> None:
        self.options = options

    def open(self, uri: str) -> None:
        """Open the newest version of a table, as by its URI and storage options alone."""
        raise NotImplementedError

    def open_version(self, uri: str, version: int) -> None:
        """Open one version of a table."""
        raise NotImplementedError

    def version(self) -> int | None:
        """The version that is open; None where it has no number."""
        return None

    def take(self, rows: Rows, columns: list[str] | None) -> pa.Table:
        """Rows of the open table."""
        raise NotImplementedError

    def search(self, column: str, query: Any, asked: dict[str, Any]) -> pa.Table:
        """The nearest rows of the open table; `asked` has the other parameters of `nearest`. For words the best `k`."""
        raise NotImplementedError

    def look_up(self, column: str, keys: Keys, columns: list[str], by_key: bool) -> pa.Table:
        """Rows of keys by the index of a column: by a filter, or by a look-up if `by_key` and the library has it."""
        raise NotImplementedError

    def load_index(self, column: str) -> None:
        """Read the index of a column into memory."""
        raise NotImplementedError

    def key_waits(self, column: str, keys: Iterator[int], columns: list[str], callers: int) -> list[float]:
        """Look-ups of a key each by many callers at once; returns how long each waited."""
        raise NotImplementedError

    def scan(self, columns: list[str] | None, where: str | None = None) -> int:
        """Go through the open table batch by batch; returns the number of rows. `where` is for libraries of Lance."""
        raise NotImplementedError

    def waits(self, picks: Iterator[Rows], callers: int, for_s: float | None) -> list[float]:
        """Takes by many callers at once; returns how long each waited."""
        raise NotImplementedError

    def reads(self) -> int | None:
        """Requests that read, as the library counts them since it was last asked; None where it does not count."""
        return None

    def write(self, rows: pa.Table, uri: str, mode: str) -> None:
        """Write rows: `create`, `append`, `overwrite`."""
        raise NotImplementedError

    def delete(self, uri: str, predicate: str) -> None:
        """Open by URI and delete rows."""
        raise NotImplementedError

    def append_waits(self, batches: Iterator[pa.RecordBatch], uri: str, callers: int, for_s: float) -> list[float]:
        """Appends to one table by many callers at once, each of one batch; returns how long each waited."""
        raise NotImplementedError

    def waits_during_scan(
        self, picks: Iterator[Rows], callers: int, for_s: float | None, columns: list[str] | None
    ) -> list[float]:
        """Takes while another thread scans the same table again and again."""
        over = threading.Event()

        def scan() -> None:
            while not over.is_set():
                self.scan(columns)

        scanning = threading.Thread(target=scan)
        scanning.start()
        try:
            return self.waits(picks, callers, for_s)
        finally:
            over.set()
            scanning.join()


class Lance(Contender):
    """What both libraries of Lance have in common: the same API.

    library  the module
    """

    library: Any
    dataset: Any

    def open(self, uri: str) -> None:
        self.dataset = self.library.dataset(uri, storage_options=self.options)

    def open_version(self, uri: str, version: int) -> None:
        self.dataset = self.library.dataset(uri, version, storage_options=self.options)

    def version(self) -> int | None:
        return int(self.dataset.version)

    def take(self, rows: Rows, columns: list[str] | None) -> pa.Table:
        table: pa.Table = self.dataset.take(rows, columns=columns)
        return table

    def search(self, column: str, query: Any, asked: dict[str, Any]) -> pa.Table:
        if isinstance(query, str):
            words = {"query": query, "columns": [column]}
            best: pa.Table = self.dataset.to_table(columns=["id", "_score"], full_text_query=words, limit=asked["k"])
            return best
        nearest = {"column": column, "q": query, **asked}
        table: pa.Table = self.dataset.to_table(columns=["id", "_distance"], nearest=nearest)
        return table

    def look_up(self, column: str, keys: Keys, columns: list[str], by_key: bool) -> pa.Table:
        table: pa.Table = self.dataset.to_table(columns=columns, filter=filter_of(column, keys))
        return table

    def load_index(self, column: str) -> None:
        self.dataset.prewarm_index(f"{column}_idx")

    def scan(self, columns: list[str] | None, where: str | None = None) -> int:
        return sum(batch.num_rows for batch in self.dataset.to_batches(columns=columns, filter=where))

    def reads(self) -> int | None:
        return int(self.dataset.io_stats_incremental().read_iops)

    def write(self, rows: pa.Table, uri: str, mode: str) -> None:
        self.library.write_dataset(rows, uri, mode=mode, storage_options=self.options)

    def delete(self, uri: str, predicate: str) -> None:
        self.library.dataset(uri, storage_options=self.options).delete(predicate)


class Ours(Lance):
    """`lance_io`; callers await on a loop of their own, the engine has its thread."""

    def __init__(self, options: Options) -> None:
        import lance_io

        super().__init__(options)
        self.library = lance_io

    def waits(self, picks: Iterator[Rows], callers: int, for_s: float | None) -> list[float]:
        return asyncio.run(waits_of(self._opened().take, picks, callers, for_s))

    def look_up(self, column: str, keys: Keys, columns: list[str], by_key: bool) -> pa.Table:
        if not by_key:
            return super().look_up(column, keys, columns, by_key)
        table: pa.Table = self.dataset.get(column, keys, columns)
        return table

    def key_waits(self, column: str, keys: Iterator[int], columns: list[str], callers: int) -> list[float]:
        opened = self._opened()
        return asyncio.run(waits_of(lambda key: opened.get(column, [key], columns), keys, callers))

    def append_waits(self, batches: Iterator[pa.RecordBatch], uri: str, callers: int, for_s: float) -> list[float]:
        self.open(uri)
        return asyncio.run(waits_of(partial(self._opened().insert, group_commit=True), batches, callers, for_s))

    def _opened(self) -> Any:
        return self.library.AsyncDataset.of(self.dataset)


class OursCached(Ours):
    """`lance_io` with a disk cache, whose processes find it by the environment."""

    environment: ClassVar[dict[str, str]] = {
        "LANCE_IO_DISK_CACHE": os.path.join(tempfile.gettempdir(), f"lance_io-bench-cache-{os.getpid()}")
    }


class OursEarly(Ours):
    """`lance_io` that is told to read all columns of a filtered scan at once."""

    late = False

    def scan(self, columns: list[str] | None, where: str | None = None) -> int:
        batches = self.dataset.to_batches(columns=columns, filter=where, late_materialization=self.late)
        return sum(batch.num_rows for batch in batches)


class OursLate(OursEarly):
    """The same, told to look each row that passes up by itself."""

    late = True


class OurLoop(Ours):
    """`lance_io` whose callers are on the engine's own loop: one thread for everything."""

    def waits(self, picks: Iterator[Rows], callers: int, for_s: float | None) -> list[float]:
        from lance_io.runtime import run

        return run(waits_of(self._opened().take, picks, callers, for_s))


class PylanceAsIs(Lance):
    """pylance, whose takes are awaited in threads: one for each caller."""

    def __init__(self, options: Options) -> None:
        import lance

        super().__init__(options)
        self.library = lance

    def waits(self, picks: Iterator[Rows], callers: int, for_s: float | None) -> list[float]:
        return asyncio.run(self._waits(picks, callers, for_s))

    def key_waits(self, column: str, keys: Iterator[int], columns: list[str], callers: int) -> list[float]:
        def look_up(key: int) -> pa.Table:
            return self.look_up(column, [key], columns, by_key=True)

        return asyncio.run(self._in_threads(look_up, keys, callers, None))

    def append_waits(self, batches: Iterator[pa.RecordBatch], uri: str, callers: int, for_s: float) -> list[float]:
        def append(batch: pa.RecordBatch) -> None:
            while True:
                try:
                    self.library.write_dataset(batch, uri, mode="append", storage_options=self.options)
                except OSError as error:  # it gives up where too many have been faster
                    if not any(word in str(error) for word in ("conflict", "contention", "concurrent")):
                        raise
                else:
                    return

        return asyncio.run(self._in_threads(append, batches, callers, for_s))

    async def _waits(self, picks: Iterator[Rows], callers: int, for_s: float | None) -> list[float]:
        return await self._in_threads(self.dataset.take, picks, callers, for_s)

    async def _in_threads(
        self, call: Callable[[T], Any], asked: Iterator[T], callers: int, for_s: float | None
    ) -> list[float]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(callers) as threads:
            return await waits_of(lambda one: loop.run_in_executor(threads, call, one), asked, callers, for_s)


class Pylance(PylanceAsIs):
    """pylance with its own limit of requests lifted."""

    environment = UNLIMITED


class PylanceWide(PylanceAsIs):
    """pylance with that limit lifted, and threads for more partitions and requests at once than processors."""

    environment: ClassVar[dict[str, str]] = {**UNLIMITED, **MORE_THREADS}


class Lancedb(Contender):
    """lancedb's async API, with pylance's limit lifted, for it is the same engine."""

    environment = UNLIMITED

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._runner = asyncio.Runner()
        self._table: Any = None

    def open(self, uri: str) -> None:
        self._runner.run(self._open(uri))

    async def _open(self, uri: str) -> None:
        import lancedb

        folder, name = uri.rsplit("/", 1)
        database = await lancedb.connect_async(folder, storage_options=self.options)
        self._table = await database.open_table(name.removesuffix(".lance"))

    async def _take(self, rows: Rows, columns: list[str] | None = None) -> Any:
        query = self._table.take_offsets(rows)
        return await (query if columns is None else query.select(columns)).to_arrow()

    def take(self, rows: Rows, columns: list[str] | None) -> pa.Table:
        return self._runner.run(self._take(rows, columns))

    def scan(self, columns: list[str] | None, where: str | None = None) -> int:
        assert where is None, "filters are compared with pylance alone"
        return self._runner.run(self._scan(columns))

    async def _scan(self, columns: list[str] | None) -> int:
        query = self._table.query()
        batches = await (query if columns is None else query.select(columns)).to_batches()
        return sum([batch.num_rows async for batch in batches])

    def waits(self, picks: Iterator[Rows], callers: int, for_s: float | None) -> list[float]:
        return self._runner.run(waits_of(self._take, picks, callers, for_s))


class Parquet(Contender):
    """The same rows as Parquet, by `pyarrow.dataset` and Arrow's own client."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._dataset: Any = None

    def open(self, uri: str) -> None:
        import pyarrow.dataset
        import pyarrow.fs

        parts = urlsplit(self.options["aws_endpoint"])
        files = pyarrow.fs.S3FileSystem(
            access_key=self.options["aws_access_key_id"],
            secret_key=self.options["aws_secret_access_key"],
            region=self.options["aws_region"],
            endpoint_override=parts.netloc,
            scheme=parts.scheme,
        )
        self._dataset = pyarrow.dataset.dataset(uri.removeprefix("s3://"), filesystem=files, format="parquet")

    def take(self, rows: Rows, columns: list[str] | None) -> pa.Table:
        table: pa.Table = self._dataset.take(rows, columns=columns)
        return table

    def scan(self, columns: list[str] | None, where: str | None = None) -> int:
        assert where is None, "filters are compared with pylance alone"
        return sum(batch.num_rows for batch in self._dataset.to_batches(columns=columns))


CONTENDERS: dict[str, type[Contender]] = {
    OURS: Ours,
    OURS_CACHED: OursCached,
    OURS_EARLY: OursEarly,
    OURS_LATE: OursLate,
    OUR_LOOP: OurLoop,
    PYLANCE: Pylance,
    PYLANCE_WIDE: PylanceWide,
    PYLANCE_AS_IS: PylanceAsIs,
    LANCEDB: Lancedb,
    PARQUET: Parquet,
}
