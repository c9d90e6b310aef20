"""Common base of cloud stores: reads, retries of all other calls, connections of each event loop.

Requests are retried only here, so that attempts are counted and do not multiply. A conditional write is sent once:
after a lost answer, only reading the object back shows which writer won.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from lance_io.errors import LanceError
from lance_io.lazy_names import lazy_module
from lance_io.store.bounds import check_range
from lance_io.store.cloud.connections import Connections, keep_connected, release
from lance_io.store.cloud.loop_clients import Clients
from lance_io.store.counters import StoreStats
from lance_io.store.failures import CredentialsRefused, OutcomeUnknown, Throttled, Transient, Unsent, note_bucket
from lance_io.store.forking import never_finalize, survive_fork
from lance_io.store.offers import flow
from lance_io.store.policies.download import Download
from lance_io.store.policies.logical_read import Reading, call_on_done, read_through

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lance_io.store import upload as uploads
    from lance_io.store.api import Buffer, Capabilities, Durability, ObjectMeta
    from lance_io.store.cloud.client_options import ClientOptions
    from lance_io.store.counters import Operation
    from lance_io.store.offers import OnRangesDone, OnRetry, StartedRead, WantedRange
    from lance_io.store.policies.logical_read import Sending
    from lance_io.store.policies.throttle import QueuePosition
    from lance_io.store.profile import StoreProfile
else:
    uploads = lazy_module("lance_io.store.upload")

T = TypeVar("T")

_CATEGORIES: dict[Operation, str] = {"get": "read", "head": "read", "list": "list"}  # all others: "write"


class CloudStore(Generic[Clients]):
    """One bucket. Usable from any event loop and after a fork; `repr` and errors show no credentials.

    Subclasses implement `connect`; they list, head, put, copy and delete through `call_with_retries`.
    """

    scheme: str
    download_kind: type[Download] = Download  # for whole objects and suffixes

    def __init__(
        self,
        options: ClientOptions,
        identity: str,
        capabilities: Capabilities,
        profile: StoreProfile,
        stats: StoreStats | None,
    ) -> None:
        self.options = options
        self.profile = profile
        self.stats = stats or StoreStats()
        self.identity = identity
        self.capabilities = capabilities
        self._loops: dict[asyncio.AbstractEventLoop, Connections[Clients]] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, release, self._loops).atexit = False
        survive_fork(self)

    def connect(self) -> Connections[Clients]:
        """New connections for the running loop; sends no request."""
        raise NotImplementedError

    def start_over(self) -> None:
        """After a fork: forget all connections without closing them, as they belong to the parent."""
        never_finalize(dict(self._loops))
        self._loops.clear()
        self._lock = threading.Lock()

    def linger(self) -> None:
        """Stay connected briefly, even without further references; from any thread. See `connections.py`."""
        for loop in list(self._loops):
            if loop.is_running():
                loop.call_soon_threadsafe(keep_connected, self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity!r})"

    @property
    def origin(self) -> tuple[ClientOptions, StoreProfile]:
        """Options and profile; stores with equal ones are interchangeable."""
        return self.options, self.profile

    @property
    def access(self) -> str:
        """Identifies the credentials without a secret: their owner or their source."""
        return self.options.access

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of an object; resumes at the current offset if the connection breaks."""
        if start < 0 or end <= start:
            check_range(key, start, end, 0)
            return b""
        download = Download.of_range(key, start, end)
        await self.download(download)
        return download.buffer()

    def start_ranges(
        self, requests: Sequence[WantedRange], on_done: OnRangesDone, on_retry: OnRetry
    ) -> Sequence[StartedRead]:
        """See `StartReads`."""
        sending = self._sending()
        started: list[StartedRead] = []
        if sending.range_gets is not None:
            started += sending.range_gets(sending, self._sending, on_done, on_retry).begin(requests)
        for key, start, end, memory, operation, tag in requests[len(started) :]:
            download = Download.of_range(key, start, end, memory)
            on_end = partial(call_on_done, on_done)
            reading = Reading(self._sending, download, on_end, operation, partial(on_retry, tag), tag)
            reading.start()
            started.append(reading)
        return started

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The last bytes of an object, its size and etag, in one request."""
        download = self.download_kind.of_suffix(key, max(1, num_bytes))
        await self.download(download)
        tail = download.buffer()
        return tail if num_bytes > 0 else b"", download.size_bytes, download.version

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        download = self.download_kind.of_object(key)
        await self.download(download)
        return download.buffer(), download.meta()

    # -- writing ----------------------------------------------------------------------------------------------------

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> uploads.PartUpload:
        """Start writing an object of any size; sends no request yet."""
        return uploads.PartUpload(self, key, if_absent=if_absent, content_length_hint=content_length_hint)  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        with self._lock:
            connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()

    # -- for the stores ---------------------------------------------------------------------------------------------

    async def download(self, download: Download) -> None:
        """Read a download, with retries."""
        await read_through(self._sending, download, flow.get())

    async def call_with_retries(
        self,
        operation: Operation,
        key: str,
        once: Callable[[Connections[Clients]], Awaitable[T]],
        *,
        num_bytes: int = 0,
        decides: bool = False,
    ) -> T:
        """Make a call, with retries where they may help.

        once       makes one attempt; raises only our errors
        num_bytes  payload size, for the counters
        decides    whether this is a conditional write: sent only once, raises `OutcomeUnknown` without an answer
        """
        clock = asyncio.get_running_loop().time
        position: QueuePosition | None = None
        began_s, attempts = clock(), 0
        is_renewed = False  # whether this call has renewed the credentials
        while True:
            loop = self._loop()  # looked up for each attempt: the previous one may be closed
            gate = loop.gates[_CATEGORIES.get(operation, "write")]
            attempts += 1
            failure: Transient | CredentialsRefused | None = None
            position = await gate.enter(position)
            self.stats.begin(operation, key)
            done, generation = False, loop.state.credentials.generation
            try:
                answer = await once(loop)
                done = True
                return answer
            except Transient as error:
                failure = error
            except CredentialsRefused as error:
                failure = error
            except LanceError as error:
                note_bucket(error, self.options.bucket, attempts)
                raise
            finally:
                self.stats.end(operation, num_bytes if done else 0, failed=not done)
                gate.leave(failure if isinstance(failure, Transient) else None)
            if isinstance(failure, CredentialsRefused):
                note_bucket(failure, self.options.bucket, attempts)
                if is_renewed or not await self._renewed(loop, generation, failure):
                    raise failure
                is_renewed = True
                self.stats.retry(operation)
                continue
            if isinstance(failure, Throttled):
                self.stats.throttled(operation)
            assert failure is not None
            if decides and not isinstance(failure, Unsent):
                failure = _outcome_unknown(failure)
            may_retry = not isinstance(failure, OutcomeUnknown)
            await self._pause(operation, failure, attempts, clock() - began_s, may_retry=may_retry)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _sending(self) -> Sending:
        return self._loop().sending

    async def _renewed(self, loop: Connections[Clients], generation: int, refused: CredentialsRefused) -> bool:
        """Whether there are other credentials than the refused ones. Raises our errors if no source has any."""
        try:
            return await loop.state.credentials.renewed(generation)
        except LanceError as error:
            error.path = error.path or refused.path
            error.copy_request_info(refused)
            note_bucket(error, self.options.bucket)
            raise

    async def _pause(
        self, operation: Operation, failure: Transient, attempts: int, elapsed_s: float, *, may_retry: bool
    ) -> None:
        """Wait until the next attempt, or raise the failure after the last one."""
        asked = failure.retry_after_s if isinstance(failure, Throttled) else None
        pause_s = self.options.retry.pause_s(attempts, elapsed_s, random.random(), asked) if may_retry else None
        if pause_s is None:
            note_bucket(failure, self.options.bucket, attempts)
            raise failure
        self.stats.retry(operation)
        await asyncio.sleep(pause_s)

    def _loop(self) -> Connections[Clients]:
        """Connections of the running loop, created at first use."""
        running = asyncio.get_running_loop()
        connections = self._loops.get(running)
        if connections is None:
            with self._lock:
                for loop in [loop for loop in self._loops if loop.is_closed()]:
                    self._loops.pop(loop).detach()
                connections = self._loops[running] = self.connect()
        return connections


def _outcome_unknown(failure: Transient) -> OutcomeUnknown:
    """The error of a conditional write that was sent and failed with `failure`."""
    unknown = OutcomeUnknown(
        f"it is unknown whether this write was applied; read the object back ({failure.message})",
        path=failure.path,
        operation=failure.operation,
        status=failure.status,
    )
    unknown.retry_after_s = failure.retry_after_s if isinstance(failure, Throttled) else None
    return unknown.copy_request_info(failure)
