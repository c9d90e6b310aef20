"""Tables in S3 and in everything that speaks its protocol.

aiobotocore finds credentials and sends PUT, LIST, HEAD, DELETE and multipart uploads; GETs are signed by us and go
over connections of our own (`http/`), or through a client (`client_gets.py`). Requests are repeated here and nowhere
else, so that attempts are counted and do not multiply. A write under a condition is sent once: after a lost answer
only reading back tells who won.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from lance_io.errors import LanceError, NotFound
from lance_io.store.api import ALL, CLOUD, S3_EXPRESS, SLOW_CLIENT, Capabilities, ObjectMeta, flow
from lance_io.store.bounds import check_range
from lance_io.store.costs import MINIO_GETS, tells_costs
from lance_io.store.counters import StoreStats
from lance_io.store.failures import OutcomeUnknown, Throttled, Transient, Unsent, name_bucket
from lance_io.store.forking import never_finalize, survive_fork
from lance_io.store.policies.download import Download
from lance_io.store.policies.logical_read import Reading, end_alone, read_through
from lance_io.store.s3.bucket_options import S3Options, parse_s3
from lance_io.store.s3.connections import Connections, keep_connected, release
from lance_io.store.s3.error_codes import client_error, coded_error
from lance_io.store.s3.listing import PLAIN_NAMES
from lance_io.store.s3.loop_state import SLOWEST_BYTES_PER_S, load_library, missing_library
from lance_io.store.storage_options import planning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from lance_io.store.api import (
        Buffer,
        Durability,
        RangesEnded,
        Selection,
        StartedRead,
        StoreProfile,
        ToldAgain,
        WantedRange,
    )
    from lance_io.store.counters import Operation
    from lance_io.store.policies.logical_read import Sending
    from lance_io.store.policies.throttle import Place
    from lance_io.store.s3.multipart import S3PartWriter
    from lance_io.store.upload import PartUpload

T = TypeVar("T")

LIST_METHOD = "list_objects_v2"
LIST_PAGE = 1000  # what S3 gives and deletes at once
_CATEGORIES: dict[Operation, str] = {"get": "read", "head": "read", "list": "list"}  # all others: "write"


def open_s3(bucket: str, options: Mapping[str, str]) -> S3Store:
    """The store of a bucket by storage options (lower-case names) and environment; makes no request.

    Raises `UsageError` for options that make no sense, `ModuleNotFoundError` if the client library is missing.
    """
    for package in ("httptools", "aiohttp", "aiobotocore"):
        if find_spec(package) is None:  # it is imported when it is first needed
            raise missing_library(package)
    parsed = parse_s3(bucket, options)
    planned = planning(options)
    profile = (S3_EXPRESS if parsed.express else CLOUD if parsed.fast_get else SLOW_CLIENT).with_options(planned)
    if not parsed.is_amazon and not tells_costs(planned):  # reads are planned as from S3, and cost nothing
        profile = replace(profile, costs=MINIO_GETS)
    return S3Store(parsed, profile=profile.within_descriptors())


class S3Store:
    """One bucket. Usable from any event loop and after a fork; `repr` and errors show no credentials."""

    scheme = "s3"

    def __init__(self, options: S3Options, *, profile: StoreProfile = CLOUD, stats: StoreStats | None = None) -> None:
        self.options = options
        self.profile = profile
        self.stats = stats or StoreStats()
        self.identity = options.identity
        self.capabilities = Capabilities(ordered_list=not options.express, create_unproven=not options.is_amazon)
        self._loops: dict[asyncio.AbstractEventLoop, Connections] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, release, self._loops).atexit = False
        survive_fork(self)

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
        return f"S3Store({self.identity!r})"

    @property
    def origin(self) -> tuple[S3Options, StoreProfile]:
        """What this was made of: stores with the same can stand for each other."""
        return self.options, self.profile

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of an object; resumed at the byte reached should the connection break."""
        if start < 0 or end <= start:
            check_range(key, start, end, 0)
            return b""
        download = Download.of_range(key, start, end)
        await self._download(download)
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
        download = Download.of_suffix(key, max(1, num_bytes))
        await self._download(download)
        tail = download.buffer()
        return tail if num_bytes > 0 else b"", download.size_bytes, download.etag

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        download = Download.of_object(key)
        await self._download(download)
        return download.buffer(), download.meta()

    async def head(self, key: str) -> ObjectMeta:
        """Size, etag and time of an object."""
        answer = await self.call("head", key, "head_object", {"Key": key})
        return ObjectMeta(key, answer["ContentLength"], answer.get("ETag"), answer.get("LastModified"))

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix, a page of up to 1,000 per request."""
        arguments: dict[str, Any] = {"Prefix": prefix}
        if asked.start_after is not None:
            arguments["StartAfter"] = asked.start_after
        if asked.delimiter is not None:
            arguments["Delimiter"] = asked.delimiter
        if asked.plain_names:
            arguments[PLAIN_NAMES] = True
        rest = asked.limit
        while rest is None or rest > 0:
            arguments["MaxKeys"] = LIST_PAGE if rest is None else min(LIST_PAGE, rest)
            page = await self.call("list", prefix, LIST_METHOD, arguments)
            for entry in _entries(page):
                yield entry
                rest = None if rest is None else rest - 1
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    # -- writing ----------------------------------------------------------------------------------------------------

    async def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        durability: Durability | None = None,
        in_place: bool = False,
    ) -> ObjectMeta:
        """Write an object; a write under a condition is sent once, see `ObjectStore.put`."""
        body = data if isinstance(data, bytes) else bytes(data)
        arguments: dict[str, Any] = {"Key": key, "Body": body, **self.options.put_arguments}
        if if_absent:
            arguments["IfNoneMatch"] = "*"
        if if_match is not None:
            arguments["IfMatch"] = if_match
        operation: Operation = "put_create" if if_absent else "put"
        decides = if_absent or if_match is not None
        answer = await self.call(operation, key, "put_object", arguments, num_bytes=len(body), decides=decides)
        return ObjectMeta(key, len(body), answer.get("ETag"))

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> S3PartWriter:
        """Start an upload in parts."""
        from lance_io.store.s3.multipart import S3PartWriter

        answer = await self.call("part", key, "create_multipart_upload", {"Key": key, **self.options.put_arguments})
        return S3PartWriter(self, key, answer["UploadId"], if_absent=if_absent)

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> PartUpload:
        """Start writing an object of any size; makes no request yet."""
        from lance_io.store.upload import PartUpload

        return PartUpload(self, key, if_absent=if_absent, content_length_hint=content_length_hint)

    async def copy(self, source: str, key: str) -> None:
        """Write an object with the content of another, without its bytes coming here."""
        arguments = {"Key": key, "CopySource": {"Bucket": self.options.bucket, "Key": source}}
        await self.call("put", key, "copy_object", {**arguments, **self.options.put_arguments})

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, up to 1,000 per request."""
        rest = list(dict.fromkeys(keys))
        while rest:
            page, rest = rest[:LIST_PAGE], rest[LIST_PAGE:]
            if len(page) == 1:
                await self._delete_one(page[0])
                continue
            names = {"Objects": [{"Key": key} for key in page], "Quiet": True}
            answer = await self.call("delete", page[0], "delete_objects", {"Delete": names})
            for error in answer.get("Errors", ()):
                code, message = str(error.get("Code", "")), str(error.get("Message", ""))
                status = 403 if code == "AccessDenied" else 200
                failure = coded_error(status, code, message, key=str(error.get("Key")), operation="delete")
                name_bucket(failure, self.options.bucket)
                raise failure

    async def _delete_one(self, key: str) -> None:
        try:
            await self.call("delete", key, "delete_object", {"Key": key})
        except NotFound:
            pass  # Amazon answers 204; others say what is true

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        with self._lock:
            connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _download(self, download: Download) -> None:
        """Attempts until all bytes are here."""
        await read_through(self._sending, download, flow.get())

    def _sending(self) -> Sending:
        return self._loop().sending

    async def call(
        self,
        operation: Operation,
        key: str,
        method: str,
        arguments: dict[str, Any],
        *,
        num_bytes: int = 0,
        decides: bool = False,
    ) -> dict[str, Any]:
        """Call the client's `method` on this bucket, again if that may help.

        num_bytes  payload sent, for the counters and the time it may take
        decides    a write under a condition: once sent, it is not sent again; `OutcomeUnknown` without an answer
        """
        clock = asyncio.get_running_loop().time
        place: Place | None = None
        began_s, attempts = clock(), 0
        if self.options.read_headers:
            arguments = {**arguments, "RequestPayer": "requester"}
        while True:
            loop = self._loop()  # those of the attempt before may have been closed meanwhile, and would open anew
            gate = loop.gates[_CATEGORIES.get(operation, "write")]
            attempts += 1
            failure: Transient | None = None
            place = await gate.enter(place)
            self.stats.begin(operation, key)
            done = False
            try:
                answer = await self._once(loop, operation, key, method, arguments, num_bytes)
                done = True
                return answer
            except Transient as error:
                failure = error
            except LanceError as error:
                name_bucket(error, self.options.bucket)
                raise
            finally:
                self.stats.end(operation, num_bytes if done else 0, failed=not done)
                gate.leave(failure)
            if isinstance(failure, Throttled):
                self.stats.throttled(operation)
            if decides and not isinstance(failure, Unsent):
                failure = _is_undecided(failure)
            again = not isinstance(failure, OutcomeUnknown)
            await self._pause(operation, failure, attempts, clock() - began_s, again=again)

    async def _once(
        self,
        loop: Connections,
        operation: Operation,
        key: str,
        method: str,
        arguments: dict[str, Any],
        num_bytes: int,
    ) -> dict[str, Any]:
        if method == LIST_METHOD:
            page = loop.list_page(arguments)
            if page is not None:
                return await page
            arguments = {name: value for name, value in arguments.items() if name != PLAIN_NAMES}
        await load_library()
        import aiohttp
        from botocore.exceptions import BotoCoreError, ClientError

        state = loop.state
        try:
            client = await state.client()
            async with asyncio.timeout(self.options.request_timeout_s + num_bytes / SLOWEST_BYTES_PER_S):
                answer: dict[str, Any] = await getattr(client, method)(Bucket=self.options.bucket, **arguments)
            return answer
        except LanceError as error:  # there are no credentials
            error.path = error.path or key
            raise
        except (BotoCoreError, ClientError) as error:
            raise client_error(error, key=key, operation=operation, secrets=state.secrets) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            message = f"no answer ({type(error).__name__}: {error})"
            raise Transient(message, path=key, operation=operation) from None

    async def _pause(
        self, operation: Operation, failure: Transient, attempts: int, elapsed_s: float, *, again: bool
    ) -> None:
        """Wait until the next attempt, or raise the failure if there shall be none."""
        asked = failure.retry_after_s if isinstance(failure, Throttled) else None
        pause_s = self.options.retry.pause_s(attempts, elapsed_s, random.random(), asked) if again else None
        if pause_s is None:
            failure.attempts = attempts
            name_bucket(failure, self.options.bucket)
            raise failure
        self.stats.retry(operation)
        await asyncio.sleep(pause_s)

    def _loop(self) -> Connections:
        """What belongs to the running loop; made at first use."""
        running = asyncio.get_running_loop()
        found = self._loops.get(running)
        if found is None:
            with self._lock:
                for loop in [loop for loop in self._loops if loop.is_closed()]:
                    self._loops.pop(loop).detach()
                found = self._loops[running] = Connections(self.options, self.identity, self.profile, self.stats)
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
    return unknown


def _entries(page: dict[str, Any]) -> list[ObjectMeta]:
    """Objects and folders of a page in key order."""
    entries = [
        ObjectMeta(found["Key"], found["Size"], found.get("ETag"), found.get("LastModified"))
        for found in page.get("Contents", ())
    ]
    entries += [ObjectMeta(found["Prefix"], 0) for found in page.get("CommonPrefixes", ())]
    entries.sort(key=lambda entry: entry.key)
    return entries
