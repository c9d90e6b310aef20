"""Tables in Azure blob storage.

Azure's library sends PUT, HEAD, DELETE and blocks, without its retries. We authorise GETs and listings and send them
over our own connections (`http/`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import LanceError, NotFound
from lance_io.store.api import ALL, Capabilities, ObjectMeta
from lance_io.store.azure.account_clients import AccountClients, content_settings, missing_library
from lance_io.store.azure.blob_errors import Refused, library_error, unreadable_answer
from lance_io.store.azure.blob_listing import BlobPage, query_page, quote_etag
from lance_io.store.azure.container_options import AzureOptions, parse_azure, provided_credentials
from lance_io.store.azure.container_site import ContainerSite
from lance_io.store.cloud.client_options import SLOWEST_BYTES_PER_S
from lance_io.store.cloud.cloud_store import CloudStore
from lance_io.store.cloud.connections import Connections
from lance_io.store.cloud.loop_clients import share_clients
from lance_io.store.failures import StoreFailure, Transient, note_bucket
from lance_io.store.policies.download import Download
from lance_io.store.profile import CLOUD
from lance_io.store.storage_options import planning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from lance_io.store.api import Buffer, Durability, Selection
    from lance_io.store.azure.blocks import BlockWriter
    from lance_io.store.counters import Operation, StoreStats
    from lance_io.store.profile import StoreProfile
    from lance_io.store.provided_options import OptionsSource

LIST_PAGE = 5000  # Azure's maximum
DELETES_IN_FLIGHT: Final = 32
COPY_PAUSE_S: Final = 0.5  # poll interval of a pending copy
TAIL_ATTEMPTS_MAX: Final = 4  # attempts to read a suffix of an object that changes meanwhile


def open_azure(authority: str, options: Mapping[str, str], source: OptionsSource | None = None) -> AzureStore:
    """The store of a container by storage options (lower-case names) and environment; sends no request.

    authority  the part of the URL before the path
    source     provider of options, which override `options`
    Raises `UsageError` for invalid options, `ModuleNotFoundError` if the client library is missing.
    """
    for package in ("httptools", "aiohttp", "azure.storage.blob", "azure.identity"):
        if not _is_installed(package):  # imported on demand
            raise missing_library(package)
    provided = {} if source is None else source.first(options).options
    options = {**options, **provided}
    parsed = parse_azure(authority, options)
    if source is not None and not parsed.skip_signature and provided_credentials(provided) is not None:
        parsed = replace(parsed, account_key=None, sas_token=None, token=None, provided=source)
    profile = CLOUD.with_options(planning(options))
    return AzureStore(parsed, profile=profile.within_descriptors())


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing, too
        return False


class AzureStore(CloudStore[AccountClients]):
    """One container. Usable from any event loop and after a fork; `repr` and errors show no credentials."""

    scheme = "az"
    options: AzureOptions

    def __init__(
        self, options: AzureOptions, *, profile: StoreProfile = CLOUD, stats: StoreStats | None = None
    ) -> None:
        capabilities = Capabilities(suffix_range=False, create_unproven=not options.is_microsoft)
        super().__init__(options, options.identity, capabilities, profile, stats)

    def connect(self) -> Connections[AccountClients]:
        """See `CloudStore`."""
        from lance_io.store.http.gets import HttpGets

        options, connections_max, user = self.options, self.profile.connections_max, object()
        clients = share_clients(AccountClients, options, connections_max, user)
        site, proxies = ContainerSite(options, clients), options.proxies(clients.tls_settings)
        gets = HttpGets(site, options.identity, connections_max, self.stats, proxies, *options.pool_idle)
        return Connections(self, clients, user, gets, None)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The last bytes of an object, its size and etag. Azure does not support suffix ranges.

        A first request reads the first `num_bytes` and learns the size; a longer object needs a second request.
        """
        wanted = max(1, num_bytes)
        for _ in range(TAIL_ATTEMPTS_MAX):
            start = Download.of_start(key, wanted)
            await self.download(start)
            size_bytes, head = start.size_bytes, start.buffer()
            if size_bytes <= wanted:
                return head if num_bytes > 0 else b"", size_bytes, start.etag
            if num_bytes <= 0:
                return b"", size_bytes, start.etag
            rest = Download.of_range(key, max(wanted, size_bytes - wanted), size_bytes)
            await self.download(rest)
            if (rest.size_bytes, rest.etag) == (size_bytes, start.etag):
                known = memoryview(head)[size_bytes - wanted :]
                return b"".join([known, rest.buffer()]) if len(known) else rest.buffer(), size_bytes, start.etag
        failure = Transient("the object changed while it was read, again and again", path=key, operation="get")
        note_bucket(failure, self.options.bucket)
        raise failure

    async def head(self, key: str) -> ObjectMeta:
        """Size, etag and time of an object."""

        async def get_properties(blob: Any) -> Any:
            return await blob.get_blob_properties()

        properties = await self.call("head", key, get_properties)
        return ObjectMeta(key, properties.size, properties.etag, properties.last_modified)

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix, a page of up to 5,000 per request; also reads pages before `start_after`."""
        rest, marker = asked.limit, None
        while rest is None or rest > 0:
            size = LIST_PAGE if rest is None or asked.start_after is not None else min(LIST_PAGE, rest)
            page = await self._list_page(prefix, asked.delimiter, marker, size)
            for entry in page.entries:
                if asked.start_after is not None and entry.key <= asked.start_after:
                    continue
                yield entry
                rest = None if rest is None else rest - 1
                if rest == 0:
                    return
            if page.next_marker is None:
                return
            marker = page.next_marker

    async def _list_page(self, prefix: str, delimiter: str | None, marker: str | None, size: int) -> BlobPage:
        async def once(loop: Connections[AccountClients]) -> BlobPage:
            if loop.http_gets is not None:
                return await query_page(loop.http_gets, prefix, delimiter, marker, size)
            page: BlobPage = await self._once(
                loop, "list", prefix, lambda container: _list_by_library(container, query), 0
            )
            return page

        query = {"prefix": prefix, "delimiter": delimiter, "marker": marker, "size": size}
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
        condition: dict[str, Any] = {"overwrite": not if_absent, **content_settings(self.options)}

        async def put(blob: Any) -> Any:
            if if_match is not None:
                from azure.core import MatchConditions

                condition.update(etag=if_match, match_condition=MatchConditions.IfNotModified)
            return await blob.upload_blob(body, length=len(body), **condition)

        operation: Operation = "put_create" if if_absent else "put"
        decides = if_absent or if_match is not None
        answer = await self.call(operation, key, put, num_bytes=len(body), decides=decides)
        return ObjectMeta(key, len(body), answer.get("etag"))

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> BlockWriter:
        """Start an upload in blocks; sends no request."""
        from lance_io.store.azure.blocks import BlockWriter

        return BlockWriter(self, key, if_absent=if_absent)

    async def copy(self, source: str, key: str) -> None:
        """Copy an object on the server."""

        async def copy(blob: Any, container: Any) -> Any:
            url = container.get_blob_client(source).url
            sas = self.options.sas_token  # needed to read the source
            return await blob.start_copy_from_url(f"{url}?{sas}" if sas and "?" not in url else url)

        async def look(blob: Any) -> Any:
            return (await blob.get_blob_properties()).copy

        async def once(loop: Connections[AccountClients]) -> Any:
            def begin(container: Any) -> Awaitable[Any]:
                return copy(container.get_blob_client(key), container)

            return await self._once(loop, "put", source, begin, 0)

        state = (await self.call_with_retries("put", key, once))["copy_status"]
        while state == "pending":
            await asyncio.sleep(COPY_PAUSE_S)
            state = (await self.call("head", key, look)).status
        if state != "success":
            failure = StoreFailure(f"the copy of {source} ended as {state!r}", path=key, operation="put")
            note_bucket(failure, self.options.bucket)
            raise failure

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, one request each, up to 32 concurrently."""
        rest = iter(dict.fromkeys(keys))

        async def work() -> None:
            for key in rest:
                await self._delete_object(key)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(DELETES_IN_FLIGHT):
                    group.create_task(work())
        except BaseExceptionGroup as failures:  # the other tasks are cancelled
            raise failures.exceptions[0] from None

    async def _delete_object(self, key: str) -> None:
        async def delete(blob: Any) -> None:
            await blob.delete_blob()

        try:
            await self.call("delete", key, delete)
        except NotFound:
            pass

    # -- inside -----------------------------------------------------------------------------------------------------

    async def call(
        self,
        operation: Operation,
        key: str,
        work: Callable[[Any], Awaitable[Any]],
        *,
        num_bytes: int = 0,
        decides: bool = False,
    ) -> Any:
        """Call `work` with the library's client of a blob, with retries; see `call_with_retries`."""

        async def once(loop: Connections[AccountClients]) -> Any:
            return await self._once(
                loop, operation, key, lambda container: work(container.get_blob_client(key)), num_bytes
            )

        return await self.call_with_retries(operation, key, once, num_bytes=num_bytes, decides=decides)

    async def _once(
        self,
        loop: Connections[AccountClients],
        operation: Operation,
        key: str,
        work: Callable[[Any], Awaitable[Any]],
        num_bytes: int,
    ) -> Any:
        clients = loop.state
        await clients.authorization(key)
        container = await clients.container()
        import aiohttp
        from azure.core.exceptions import AzureError

        try:
            async with asyncio.timeout(self.options.request_timeout_s + num_bytes / SLOWEST_BYTES_PER_S):
                return await work(container)
        except LanceError as error:  # no credentials
            error.path = error.path or key
            raise
        except (Refused, AzureError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise library_error(error, key=key, operation=operation, secrets=clients.secrets) from None
        except ValueError as error:
            raise unreadable_answer(error, key=key, operation=operation, secrets=clients.secrets) from None


async def _list_by_library(container: Any, query: Mapping[str, Any]) -> BlobPage:
    """A page of a listing through the library."""
    prefix, size = query["prefix"], query["size"]
    if query["delimiter"] is None:
        blobs = container.list_blobs(name_starts_with=prefix, results_per_page=size)
    else:
        blobs = container.walk_blobs(name_starts_with=prefix, delimiter=query["delimiter"], results_per_page=size)
    pages = blobs.by_page(query["marker"])
    try:
        page = await anext(pages)
    except StopAsyncIteration:
        return BlobPage([], None)
    entries = []
    async for blob in page:
        if blob.name.endswith("/") and "size" not in vars(blob):
            entries.append(ObjectMeta(blob.name, 0))
        else:
            entries.append(ObjectMeta(blob.name, blob.size, quote_etag(blob.etag), blob.last_modified))
    return BlobPage(entries, pages.continuation_token or None)
