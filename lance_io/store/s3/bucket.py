"""Tables in S3 and compatible services.

aiobotocore finds credentials and sends PUT, HEAD, DELETE and multipart uploads. We sign GETs and listings and send them
over our own connections (`http/`); those of S3 Express go through aiobotocore (`client_gets.py`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lance_io.errors import LanceError, NotFound, UnsupportedError
from lance_io.store.api import ALL, Capabilities, ObjectMeta
from lance_io.store.cloud.client_options import SLOWEST_BYTES_PER_S
from lance_io.store.cloud.cloud_store import CloudStore
from lance_io.store.cloud.connections import Connections
from lance_io.store.cloud.loop_clients import share_clients
from lance_io.store.costs import MINIO_GETS, has_cost_options
from lance_io.store.failures import Transient, note_bucket
from lance_io.store.profile import CLOUD, S3_EXPRESS
from lance_io.store.s3.bucket_options import S3Options, parse_s3, provided_keys
from lance_io.store.s3.client_sends import counted_sends
from lance_io.store.s3.encryption import checksum_arguments, customer_arguments
from lance_io.store.s3.error_codes import client_error, coded_error
from lance_io.store.s3.listing import PLAIN_NAMES, list_page
from lance_io.store.s3.loop_state import LoopState, load_library, missing_library
from lance_io.store.s3.oss_options import as_s3_options
from lance_io.store.s3.site import S3Site
from lance_io.store.storage_options import planning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from lance_io.store.api import Buffer, Durability, Selection
    from lance_io.store.counters import Operation, StoreStats
    from lance_io.store.profile import StoreProfile
    from lance_io.store.provided_options import OptionsSource
    from lance_io.store.s3.multipart import S3PartWriter

LIST_METHOD = "list_objects_v2"
UNDECIDED = (
    "does no conditional writes (aws_conditional_put is 'disabled'), so concurrent writers could overwrite each "
    "other's versions; pass a commit_lock, or use an external manifest store (s3+ddb://)"
)
LIST_PAGE = 1000  # S3's maximum per listing and deletion


def open_s3(bucket: str, options: Mapping[str, str], source: OptionsSource | None = None) -> S3Store:
    """The store of a bucket by storage options (lower-case names) and environment; sends no request.

    source  provider of options, which override `options`
    Raises `UsageError` for invalid options, `ModuleNotFoundError` if the client library is missing.
    """
    for package in ("httptools", "aiohttp", "aiobotocore"):
        if find_spec(package) is None:  # imported on demand
            raise missing_library(package)
    provided = {} if source is None else source.first(options).options
    options = {**options, **provided}
    parsed = parse_s3(bucket, options)
    if source is not None and not parsed.skip_signature and provided_keys(provided) is not None:
        parsed = replace(parsed, access_key=None, secret_key=None, token=None, profile=None, provided=source)
    planned = planning(options)
    profile = (S3_EXPRESS if parsed.express else CLOUD).with_options(planned)
    if not parsed.is_amazon and not has_cost_options(planned):  # plans reads as for S3, without costs
        profile = replace(profile, costs=MINIO_GETS)
    return S3Store(parsed, profile=profile.within_descriptors())


def open_oss(bucket: str, options: Mapping[str, str]) -> S3Store:
    """The store of a bucket in Alibaba OSS, an S3-compatible service, by pylance's options for it."""
    return open_s3(bucket, as_s3_options(options))


class S3Store(CloudStore[LoopState]):
    """One bucket. Usable from any event loop and after a fork; `repr` and errors show no credentials."""

    scheme = "s3"
    options: S3Options

    def __init__(self, options: S3Options, *, profile: StoreProfile = CLOUD, stats: StoreStats | None = None) -> None:
        capabilities = Capabilities(ordered_list=not options.express, create_unproven=not options.is_amazon)
        if not options.has_conditional_puts:
            capabilities = replace(
                capabilities,
                conditional_create=False,
                create_unproven=False,
                compare_and_swap=False,
                create_refusal=UNDECIDED,
            )
        super().__init__(options, options.identity, capabilities, profile, stats)

    def connect(self) -> Connections[LoopState]:
        """See `CloudStore`; GETs of S3 Express, whose requests are signed by session, go through aiobotocore."""
        options, connections_max, user = self.options, self.profile.connections_max, object()
        state = share_clients(LoopState, options, connections_max, user)
        if options.express:
            from lance_io.store.s3.client_gets import ClientGets

            on_resend = partial(self.stats.sent_again, "get")
            return Connections(self, state, user, None, ClientGets(options, state, on_resend))
        from lance_io.store.http.gets import HttpGets

        site, proxies = S3Site(options, state), options.proxies(state.tls_settings)
        gets = HttpGets(site, options.identity, connections_max, self.stats, proxies, *options.pool_idle)
        return Connections(self, state, user, gets, None)

    # -- reading ----------------------------------------------------------------------------------------------------

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
        """Write an object; a conditional write is sent once, see `ObjectStore.put`."""
        if if_absent or if_match is not None:
            self._require_conditional_put(key)
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

        if if_absent:
            self._require_conditional_put(key)
        answer = await self.call("part", key, "create_multipart_upload", {"Key": key, **self.options.put_arguments})
        return S3PartWriter(self, key, answer["UploadId"], if_absent=if_absent)

    async def copy(self, source: str, key: str) -> None:
        """Copy an object on the server."""
        arguments = {"Key": key, "CopySource": {"Bucket": self.options.bucket, "Key": source}}
        await self.call("put", key, "copy_object", {**arguments, **self.options.put_arguments})

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, up to 1,000 per request."""
        rest = list(dict.fromkeys(keys))
        while rest:
            page, rest = rest[:LIST_PAGE], rest[LIST_PAGE:]
            if len(page) == 1:
                await self._delete_object(page[0])
                continue
            names = {"Objects": [{"Key": key} for key in page], "Quiet": True}
            answer = await self.call("delete", page[0], "delete_objects", {"Delete": names})
            headers = answer["ResponseMetadata"].get("HTTPHeaders", {})
            for error in answer.get("Errors", ()):
                code, message = str(error.get("Code", "")), str(error.get("Message", ""))
                status = 403 if code == "AccessDenied" else 200
                failure = coded_error(
                    status, code, message, headers=headers, key=str(error.get("Key")), operation="delete"
                )
                note_bucket(failure, self.options.bucket)
                raise failure

    async def _delete_object(self, key: str) -> None:
        try:
            await self.call("delete", key, "delete_object", {"Key": key})
        except NotFound:
            pass  # Amazon answers 204, other services 404

    def _require_conditional_put(self, key: str) -> None:
        if not self.options.has_conditional_puts:
            raise UnsupportedError(f"{self.identity} {UNDECIDED}", path=key)

    # -- inside -----------------------------------------------------------------------------------------------------

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
        """Call the client's `method` on this bucket, with retries where they may help.

        num_bytes  payload size, for the counters and the timeout
        decides    whether this is a conditional write: sent only once, raises `OutcomeUnknown` without an answer
        """
        if self.options.read_headers:
            arguments = {**arguments, "RequestPayer": "requester"}
        options = self.options
        arguments = {**arguments, **customer_arguments(options, method), **checksum_arguments(options, method)}

        async def once(loop: Connections[LoopState]) -> dict[str, Any]:
            with counted_sends(partial(self.stats.sent_again, operation)):
                return await self._once(loop, operation, key, method, arguments, num_bytes)

        return await self.call_with_retries(operation, key, once, num_bytes=num_bytes, decides=decides)

    async def _once(
        self,
        loop: Connections[LoopState],
        operation: Operation,
        key: str,
        method: str,
        arguments: dict[str, Any],
        num_bytes: int,
    ) -> dict[str, Any]:
        if method == LIST_METHOD:
            if loop.http_gets is not None:
                return await list_page(loop.http_gets, arguments)
            arguments = {name: value for name, value in arguments.items() if name != PLAIN_NAMES}
        await load_library()
        import aiohttp
        from botocore.exceptions import BotoCoreError, ClientError

        state = loop.state
        try:
            call = getattr(await state.client(), method)
            async with asyncio.timeout(self.options.request_timeout_s + num_bytes / SLOWEST_BYTES_PER_S):
                answer: dict[str, Any] = await call(Bucket=self.options.bucket, **arguments)
                return answer
        except LanceError as error:  # no credentials
            error.path = error.path or key
            raise
        except (BotoCoreError, ClientError) as error:
            raise client_error(error, key=key, operation=operation, secrets=state.secrets) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            message = f"no answer ({type(error).__name__}: {error})"
            raise Transient(message, path=key, operation=operation) from None


def _entries(page: dict[str, Any]) -> list[ObjectMeta]:
    """Objects and folders of a page in key order."""
    entries = [
        ObjectMeta(item["Key"], item["Size"], item.get("ETag"), item.get("LastModified"))
        for item in page.get("Contents", ())
    ]
    entries += [ObjectMeta(item["Prefix"], 0) for item in page.get("CommonPrefixes", ())]
    entries.sort(key=lambda entry: entry.key)
    return entries
