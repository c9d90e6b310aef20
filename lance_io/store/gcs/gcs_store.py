"""Tables in Google Cloud Storage.

GETs of objects and listings go over connections of our own (`http/`); gcsfs sends all else, and GETs where it was
chosen or a proxy is between (`gcsfs_gets.py`). An object's etag is its generation: with it a write can be made
conditional, and unlike Google's own it stays the same when only metadata change.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

from lance_io.errors import NotFound, UsageError
from lance_io.store.api import ALL, Capabilities, ObjectMeta
from lance_io.store.cloud.cloud_store import CloudStore
from lance_io.store.cloud.connections import Connections
from lance_io.store.cloud.loop_clients import share_clients
from lance_io.store.failures import answered_with
from lance_io.store.gcs.gcs_options import GcsOptions, parse_gcs, token_given
from lance_io.store.gcs.gcs_site import GcsSite
from lance_io.store.gcs.gcs_state import GcsState
from lance_io.store.gcs.json_client import OBJECT, OBJECTS, Answer, Request, missing_library
from lance_io.store.gcs.resources import (
    FIELDS,
    OCTETS,
    document,
    meta_of,
    nothing,
    page_of,
    session_of,
    written,
)
from lance_io.store.policies.download import Download
from lance_io.store.profile import CLOUD
from lance_io.store.storage_options import planning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from lance_io.store.api import Buffer, Durability, Selection
    from lance_io.store.counters import Operation, StoreStats
    from lance_io.store.gcs.resumable import ResumableWriter
    from lance_io.store.profile import StoreProfile
    from lance_io.store.provided_options import OptionsSource

T = TypeVar("T")

LIST_PAGE: Final = 1000  # what Google gives at once
DELETES_AT_ONCE: Final = 64


def open_gcs(bucket: str, options: Mapping[str, str], source: OptionsSource | None = None) -> GcsStore:
    """The store of a bucket by storage options (lower-case names) and environment; makes no request.

    source  who gives others, which stand before these
    Raises `UsageError` for options that make no sense, `ModuleNotFoundError` if the client library is missing.
    """
    for package in ("httptools", "aiohttp", "gcsfs"):
        if find_spec(package) is None:  # it is imported when it is first needed
            raise missing_library(package)
    given = {} if source is None else source.first(options).options
    options = {**options, **given}
    parsed = parse_gcs(bucket, options)
    if source is not None and not parsed.skip_signature and token_given(given) is not None:
        parsed = replace(parsed, service_account=None, credentials=None, token=None, provided=source)
    return GcsStore(parsed, profile=CLOUD.with_options(planning(options)).within_descriptors())


class GcsDownload(Download):
    """A download that knows which generation its object is."""

    _generation: str | None = None

    @property
    def version(self) -> str | None:
        """See `Download`."""
        return self._generation

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """See `Download`."""
        super().begin(status, headers)
        self._generation = headers.get("x-goog-generation")

    def adopt(self, other: Download) -> None:
        """See `Download`."""
        super().adopt(other)
        self._generation = other.version


class GcsStore(CloudStore[GcsState]):
    """One bucket. Usable from any event loop and after a fork; `repr` and errors show no credentials."""

    scheme = "gs"
    options: GcsOptions
    download_kind = GcsDownload

    def __init__(self, options: GcsOptions, *, profile: StoreProfile = CLOUD, stats: StoreStats | None = None) -> None:
        able = Capabilities(create_unproven=options.endpoint is not None)
        super().__init__(options, options.identity, able, profile, stats)

    def connect(self) -> Connections[GcsState]:
        """See `CloudStore`: our own HTTP client, unless gcsfs was chosen, or a proxy is between, unknown to it."""
        options, connections_max, user = self.options, self.profile.connections_max, object()
        state = share_clients(GcsState, options, connections_max, user)
        if options.transport == "http" and state.proxy is None:
            from lance_io.store.http.gets import HttpGets

            own = HttpGets(GcsSite(options, state), options.identity, connections_max, self.stats, *options.pool_idle)
            return Connections(self, state, user, own, None)
        from lance_io.store.gcs.gcsfs_gets import GcsfsGets

        return Connections(self, state, user, None, GcsfsGets(options, state))

    # -- reading ----------------------------------------------------------------------------------------------------

    async def head(self, key: str) -> ObjectMeta:
        """Size, generation and time of an object."""
        request = Request("GET", OBJECT, (self.options.bucket, key), {"fields": FIELDS})
        return await self.call("head", key, request, lambda answer: meta_of(document(answer, key, "head"), key, "head"))

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix, a page of up to 1,000 per request."""
        query = {"prefix": prefix, "fields": f"items({FIELDS}),prefixes,nextPageToken"}
        after = asked.start_after
        if after is not None:
            query["startOffset"] = after  # which is among the answers
        if asked.delimiter is not None:
            query["delimiter"] = asked.delimiter
        rest = asked.limit
        while rest is None or rest > 0:
            page_size = LIST_PAGE if rest is None else min(LIST_PAGE, rest + (after is not None))
            entries, token = await self._list_page({**query, "maxResults": str(page_size)}, prefix)
            for entry in entries:
                if after is not None and entry.key <= after:
                    continue
                if rest == 0:
                    return
                yield entry
                rest = None if rest is None else rest - 1
            if not token:
                return
            query["pageToken"] = token

    async def _list_page(self, query: Mapping[str, str], prefix: str) -> tuple[Sequence[ObjectMeta], str]:
        """Its entries, and what the next page is asked for with, empty after the last."""

        async def once(loop: Connections[GcsState]) -> tuple[Sequence[ObjectMeta], str]:
            if loop.own is not None:
                return await loop.own.ask(query, prefix, "list", partial(page_of, prefix=prefix))
            client = await loop.state.client()
            answer = await client.ask("list", prefix, Request("GET", OBJECTS, (self.options.bucket,), query))
            with answered_with(answer.headers):
                return page_of(answer.body, prefix)

        return await self.call_repeatedly("list", prefix, once)

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
        condition = _condition(if_absent, if_match, key)
        operation: Operation = "put_create" if if_absent else "put"
        query = {"uploadType": "media", "name": key, "fields": FIELDS, **condition}
        request = Request("POST", self._upload_url, (self.options.bucket,), query, self._octets, body)
        made = partial(written, key=key, operation=operation, size_bytes=len(body))
        return await self.call(operation, key, request, made, decides=bool(condition))

    @property
    def _octets(self) -> Mapping[str, str]:
        """What content is said to be."""
        content_type = self.options.content_type
        return OCTETS if content_type is None else {"Content-Type": content_type}

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> ResumableWriter:
        """Start an upload in parts."""
        from lance_io.store.gcs.resumable import ResumableWriter

        query = {"uploadType": "resumable", "name": key, "fields": FIELDS, **_condition(if_absent, None, key)}
        headers = {"X-Upload-Content-Type": self._octets["Content-Type"]}
        request = Request("POST", self._upload_url, (self.options.bucket,), query, headers)
        session = await self.call("part", key, request, partial(session_of, key=key))
        return ResumableWriter(self, key, session, if_absent=if_absent)

    async def copy(self, source: str, key: str) -> None:
        """Write an object with the content of another, without its bytes coming here."""
        bucket, query = self.options.bucket, {"fields": "done,rewriteToken"}
        while True:  # large ones between classes of storage go in steps
            request = Request("POST", f"{OBJECT}/rewriteTo/{OBJECT}", (bucket, source, bucket, key), query)
            found = await self.call("put", key, request, partial(document, key=key, operation="put"))
            if found.get("done", True):
                return
            query["rewriteToken"] = str(found.get("rewriteToken", ""))

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, some at once."""
        rest = list(dict.fromkeys(keys))
        while rest:
            some, rest = rest[:DELETES_AT_ONCE], rest[DELETES_AT_ONCE:]
            failed = [
                error
                for error in await asyncio.gather(*map(self._delete_one, some), return_exceptions=True)
                if error is not None
            ]
            if failed:
                raise failed[0]

    async def _delete_one(self, key: str) -> None:
        try:
            await self.call("delete", key, Request("DELETE", OBJECT, (self.options.bucket, key)), nothing)
        except NotFound:
            pass

    # -- inside -----------------------------------------------------------------------------------------------------

    @property
    def _upload_url(self) -> str:
        """Where uploads go, the bucket left open."""
        return f"{self.options.base}/upload/storage/v1/b/{{}}/o"

    async def call(
        self,
        operation: Operation,
        key: str,
        request: Request,
        understand: Callable[[Answer], T],
        *,
        decides: bool = False,
    ) -> T:
        """Make a request, again if that may help, also where its answer is not understood.

        understand  what an answer says; raises `Transient` for nonsense
        decides     as in `call_repeatedly`
        """

        async def once(loop: Connections[GcsState]) -> T:
            client = await loop.state.client()
            return understand(await client.ask(operation, key, request))

        return await self.call_repeatedly(operation, key, once, num_bytes=len(request.data or b""), decides=decides)


def _condition(if_absent: bool, if_match: str | None, key: str) -> dict[str, str]:
    """What a write has to meet, as a parameter."""
    if if_absent:
        return {"ifGenerationMatch": "0"}
    if if_match is None:
        return {}
    if not if_match.isdecimal():
        raise UsageError(f"{key}: expected the etag that this store gave, a number, found {if_match!r}")
    return {"ifGenerationMatch": if_match}
