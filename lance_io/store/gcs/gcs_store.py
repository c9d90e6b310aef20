"""Tables in Google Cloud Storage.

Our own connections (`http/`) carry GETs of objects and listings; gcsfs sends all other requests. An object's
etag is its generation: it works as a condition for writes and, unlike Google's etag, does not change with metadata.
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
from lance_io.store.gcs.gcs_options import GcsOptions, parse_gcs, provided_token
from lance_io.store.gcs.gcs_site import GcsSite
from lance_io.store.gcs.gcs_state import GcsState
from lance_io.store.gcs.json_client import OBJECT, OBJECTS, Answer, Request, missing_library
from lance_io.store.gcs.resources import (
    FIELDS,
    OCTETS,
    document,
    ignore_answer,
    meta_of,
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

LIST_PAGE: Final = 1000  # Google's maximum
DELETES_AT_ONCE: Final = 64


def open_gcs(bucket: str, options: Mapping[str, str], source: OptionsSource | None = None) -> GcsStore:
    """The store of a bucket by storage options (lower-case names) and environment; sends no request.

    source  provider of options, which override `options`
    Raises `UsageError` for invalid options, `ModuleNotFoundError` if the client library is missing.
    """
    for package in ("httptools", "aiohttp", "gcsfs"):
        if find_spec(package) is None:  # imported on demand
            raise missing_library(package)
    provided = {} if source is None else source.first(options).options
    options = {**options, **provided}
    parsed = parse_gcs(bucket, options)
    if source is not None and not parsed.skip_signature and provided_token(provided) is not None:
        parsed = replace(parsed, service_account=None, credentials=None, token=None, provided=source)
    return GcsStore(parsed, profile=CLOUD.with_options(planning(options)).within_descriptors())


class GcsDownload(Download):
    """A download that records the object's generation."""

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
        capabilities = Capabilities(create_unproven=options.endpoint is not None)
        super().__init__(options, options.identity, capabilities, profile, stats)

    def connect(self) -> Connections[GcsState]:
        """See `CloudStore`."""
        from lance_io.store.http.gets import HttpGets

        options, connections_max, user = self.options, self.profile.connections_max, object()
        state = share_clients(GcsState, options, connections_max, user)
        site, proxies = GcsSite(options, state), options.proxies(state.tls_settings)
        gets = HttpGets(site, options.identity, connections_max, self.stats, proxies, *options.pool_idle)
        return Connections(self, state, user, gets, None)

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
            query["startOffset"] = after  # inclusive
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
        """Entries of a page, and the token of the next one, empty after the last."""

        async def once(loop: Connections[GcsState]) -> tuple[Sequence[ObjectMeta], str]:
            if loop.http_gets is not None:
                return await loop.http_gets.query(query, prefix, "list", partial(page_of, prefix=prefix))
            client = await loop.state.client()
            answer = await client.send("list", prefix, Request("GET", OBJECTS, (self.options.bucket,), query))
            with answered_with(answer.headers):
                return page_of(answer.body, prefix)

        return await self.call_with_retries("list", prefix, once)

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
        """Write an object; a conditional write is sent once, see `ObjectStore.put`."""
        body = data if isinstance(data, bytes) else bytes(data)
        condition = _condition(if_absent, if_match, key)
        operation: Operation = "put_create" if if_absent else "put"
        query = {"uploadType": "media", "name": key, "fields": FIELDS, **condition}
        request = Request("POST", self._upload_url, (self.options.bucket,), query, self._content_type_header, body)
        read = partial(written, key=key, operation=operation, size_bytes=len(body))
        return await self.call(operation, key, request, read, decides=bool(condition))

    @property
    def _content_type_header(self) -> Mapping[str, str]:
        """Content-Type header of written objects."""
        content_type = self.options.content_type
        return OCTETS if content_type is None else {"Content-Type": content_type}

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> ResumableWriter:
        """Start an upload in parts."""
        from lance_io.store.gcs.resumable import ResumableWriter

        query = {"uploadType": "resumable", "name": key, "fields": FIELDS, **_condition(if_absent, None, key)}
        headers = {"X-Upload-Content-Type": self._content_type_header["Content-Type"]}
        request = Request("POST", self._upload_url, (self.options.bucket,), query, headers)
        session = await self.call("part", key, request, partial(session_of, key=key))
        return ResumableWriter(self, key, session, if_absent=if_absent)

    async def copy(self, source: str, key: str) -> None:
        """Copy an object on the server."""
        bucket, query = self.options.bucket, {"fields": "done,rewriteToken"}
        while True:  # large objects are copied between storage classes in steps
            request = Request("POST", f"{OBJECT}/rewriteTo/{OBJECT}", (bucket, source, bucket, key), query)
            progress = await self.call("put", key, request, partial(document, key=key, operation="put"))
            if progress.get("done", True):
                return
            query["rewriteToken"] = str(progress.get("rewriteToken", ""))

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, up to 64 concurrently."""
        rest = list(dict.fromkeys(keys))
        while rest:
            batch, rest = rest[:DELETES_AT_ONCE], rest[DELETES_AT_ONCE:]
            failed = [
                error
                for error in await asyncio.gather(*map(self._delete_object, batch), return_exceptions=True)
                if error is not None
            ]
            if failed:
                raise failed[0]

    async def _delete_object(self, key: str) -> None:
        try:
            await self.call("delete", key, Request("DELETE", OBJECT, (self.options.bucket, key)), ignore_answer)
        except NotFound:
            pass

    # -- inside -----------------------------------------------------------------------------------------------------

    @property
    def _upload_url(self) -> str:
        """URL of uploads, with `{}` for the bucket."""
        return f"{self.options.base}/upload/storage/v1/b/{{}}/o"

    async def call(
        self,
        operation: Operation,
        key: str,
        request: Request,
        parse: Callable[[Answer], T],
        *,
        decides: bool = False,
    ) -> T:
        """Send a request, with retries, also after an invalid answer.

        parse    parses an answer; raises `Transient` for an invalid one
        decides  as in `call_with_retries`
        """

        async def once(loop: Connections[GcsState]) -> T:
            client = await loop.state.client()
            return parse(await client.send(operation, key, request))

        return await self.call_with_retries(operation, key, once, num_bytes=len(request.data or b""), decides=decides)


def _condition(if_absent: bool, if_match: str | None, key: str) -> dict[str, str]:
    """Query parameters of a conditional write."""
    if if_absent:
        return {"ifGenerationMatch": "0"}
    if if_match is None:
        return {}
    if not if_match.isdecimal():
        raise UsageError(f"{key}: expected an etag of this store, a number, found {if_match!r}")
    return {"ifGenerationMatch": if_match}
