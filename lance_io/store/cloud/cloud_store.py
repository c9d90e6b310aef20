"""A store in the cloud, but for its dialect: reads, attempts of all other calls, connections of each event loop.

Requests are repeated here and nowhere else, so that attempts are counted and do not multiply. A write under a
condition is sent once: after a lost answer only reading back tells who won.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from lance_io.errors import LanceError
from lance_io.lazy_names import later
from lance_io.store.bounds import check_range
from lance_io.store.cloud.connections import Connections, keep_connected, release
from lance_io.store.cloud.loop_clients import Clients
from lance_io.store.counters import StoreStats
from lance_io.store.failures import CredentialsRefused, OutcomeUnknown, Throttled, Transient, Unsent, name_bucket
from lance_io.store.forking import never_finalize, survive_fork
from lance_io.store.offers import flow
from lance_io.store.policies.download import Download
from lance_io.store.policies.logical_read import Reading, end_alone, read_through

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lance_io.store import upload as uploads
    from lance_io.store.api import Buffer, Capabilities, Durability, ObjectMeta
    from lance_io.store.cloud.client_options import ClientOptions
    from lance_io.store.counters import Operation
    from lance_io.store.offers import RangesEnded, StartedRead, ToldAgain, WantedRange
    from lance_io.store.policies.logical_read import Sending
    from lance_io.store.policies.throttle import Place
    from lance_io.store.profile import StoreProfile
else:
    uploads = later("lance_io.store.upload")

T = TypeVar("T")

_CATEGORIES: dict[Operation, str] = {"get": "read", "head": "read", "list": "list"}  # all others: "write"


class CloudStore(Generic[Clients]):
    """One bucket. Usable from any event loop and after a fork; `repr` and errors show no credentials.

    A store of its own says how it connects (`connect`); it lists, heads, puts, copies and deletes by
    `call_repeatedly`.
    """

    scheme: str
    download_kind: type[Download] = Download  # of whole objects and their ends

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
        """Connections for the running loop; makes no request."""
        raise NotImplementedError

    def start_over(self) -> None:
        """Forget all connections without closing them (after a fork): they are the parent's."""
        never_finalize(dict(self._loops))
        self._loops.clear()
        self._lock = threading.Lock()

    def linger(self) -> None:
        """Stay connected for a moment, even if nobody holds this any more; from any thread. See `connections.py`."""
        for loop in list(self._loops):
            if loop.is_running():
                loop.call_soon_threadsafe(keep_connected, self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity!r})"

    @property
    def origin(self) -> tuple[ClientOptions, StoreProfile]:
        """What this was made of: stores with the same can stand for each other."""
        return self.options, self.profile

    @property
    def access(self) -> str:
        """What tells these credentials from others, without a secret: whose they are, or where they are looked for."""
        return self.options.access

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of an object; resumed at the byte reached should the connection break."""
        if start < 0 or end <= start:
            check_range(key, start, end, 0)
            return b""
        download = Download.of_range(key, start, end)
        await self.download(download)
        return download.buffer()

    def start_ranges(self, wanted: Sequence[WantedRange], ended: RangesEnded, told: ToldAgain) -> Sequence[StartedRead]:
        """See `StartReads`."""
        sending = self._sending()
        begun: list[StartedRead] = []
        if sending.range_gets is not None:
            begun += sending.range_gets(sending, self._sending, ended, told).begin(wanted)
        for key, start, end, memory, operation, tag in wanted[len(begun) :]:
            download = Download.of_range(key, start, end, memory)
            reading = Reading(self._sending, download, partial(end_alone, ended), operation, partial(told, tag), tag)
            reading.start()
            begun.append(reading)
        return begun

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of an object, its size, its etag: one request."""
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
        """Start writing an object of any size; makes no request yet."""
        return uploads.PartUpload(self, key, if_absent=if_absent, content_length_hint=content_length_hint)  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        with self._lock:
            connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()

    # -- for the stores ---------------------------------------------------------------------------------------------

    async def download(self, download: Download) -> None:
        """Attempts until all bytes are here."""
        await read_through(self._sending, download, flow.get())

    async def call_repeatedly(
        self,
        operation: Operation,
        key: str,
        once: Callable[[Connections[Clients]], Awaitable[T]],
        *,
        num_bytes: int = 0,
        decides: bool = False,
    ) -> T:
        """Make a call, again if that may help.

        once       makes one attempt, and raises errors of ours only
        num_bytes  payload sent, for the counters
        decides    a write under a condition: once sent, it is not sent again; `OutcomeUnknown` without an answer
        """
        clock = asyncio.get_running_loop().time
        place: Place | None = None
        began_s, attempts = clock(), 0
        is_renewed = False  # the credentials, for this
        while True:
            loop = self._loop()  # those of the attempt before may have been closed meanwhile, and would open anew
            gate = loop.gates[_CATEGORIES.get(operation, "write")]
            attempts += 1
            failure: Transient | CredentialsRefused | None = None
            place = await gate.enter(place)
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
                name_bucket(error, self.options.bucket, attempts)
                raise
            finally:
                self.stats.end(operation, num_bytes if done else 0, failed=not done)
                gate.leave(failure if isinstance(failure, Transient) else None)
            if isinstance(failure, CredentialsRefused):
                name_bucket(failure, self.options.bucket, attempts)
                if is_renewed or not await self._renewed(loop, generation, failure):
                    raise failure
                is_renewed = True
                self.stats.retry(operation)
                continue
            if isinstance(failure, Throttled):
                self.stats.throttled(operation)
            assert failure is not None
            if decides and not isinstance(failure, Unsent):
                failure = _is_undecided(failure)
            again = not isinstance(failure, OutcomeUnknown)
            await self._pause(operation, failure, attempts, clock() - began_s, again=again)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _sending(self) -> Sending:
        return self._loop().sending

    async def _renewed(self, loop: Connections[Clients], generation: int, refused: CredentialsRefused) -> bool:
        """Whether there are other credentials than those refused. Raises our errors: nobody gives any."""
        try:
            return await loop.state.credentials.renewed(generation)
        except LanceError as error:
            error.path = error.path or refused.path
            error.asked_as(refused)
            name_bucket(error, self.options.bucket)
            raise

    async def _pause(
        self, operation: Operation, failure: Transient, attempts: int, elapsed_s: float, *, again: bool
    ) -> None:
        """Wait until the next attempt, or raise the failure if there shall be none."""
        asked = failure.retry_after_s if isinstance(failure, Throttled) else None
        pause_s = self.options.retry.pause_s(attempts, elapsed_s, random.random(), asked) if again else None
        if pause_s is None:
            name_bucket(failure, self.options.bucket, attempts)
            raise failure
        self.stats.retry(operation)
        await asyncio.sleep(pause_s)

    def _loop(self) -> Connections[Clients]:
        """What belongs to the running loop; made at first use."""
        running = asyncio.get_running_loop()
        found = self._loops.get(running)
        if found is None:
            with self._lock:
                for loop in [loop for loop in self._loops if loop.is_closed()]:
                    self._loops.pop(loop).detach()
                found = self._loops[running] = self.connect()
        return found


def _is_undecided(failure: Transient) -> OutcomeUnknown:
    """A deciding write was sent and failed with this: nobody knows whether it was applied."""
    unknown = OutcomeUnknown(
        f"it is unknown whether this write was applied; read the object back ({failure.message})",
        path=failure.path,
        operation=failure.operation,
        status=failure.status,
    )
    unknown.retry_after_s = failure.retry_after_s if isinstance(failure, Throttled) else None
    return unknown.asked_as(failure)
