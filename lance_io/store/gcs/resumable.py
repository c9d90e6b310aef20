"""Uploads in parts: a Google resumable upload, which takes parts in order.

    PUT session, Content-Range: bytes 0-16777215/*                   308, Range: bytes=0-16777215   received bytes
    PUT session, Content-Range: bytes 16777216-20000000/20000001     200                            the object exists
    PUT session, Content-Range: bytes */*                            308, Range: ...                query received bytes

Every part but the last must be a multiple of 256 KiB; remaining bytes are sent with the next part. The object appears
only after the last part; Google drops abandoned uploads after a week. Messages hide the session's URL, because it
grants write access.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from lance_io.errors import NotFound
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.gcs.json_client import Request
from lance_io.store.gcs.resources import OCTETS, ignore_answer, written

if TYPE_CHECKING:
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.cloud.connections import Connections
    from lance_io.store.counters import Operation
    from lance_io.store.gcs.gcs_state import GcsState
    from lance_io.store.gcs.gcs_store import GcsStore
    from lance_io.store.gcs.json_client import Answer, JsonClient

STEP_BYTES: Final = 256 << 10
_MORE: Final = 308  # incomplete: continue
_KEPT: Final = re.compile(r"bytes=0-(\d{1,19})")


class ResumableWriter:
    """See the module's docstring and `PartWriter`. Parts may arrive in any order; each waits for its turn."""

    def __init__(self, store: GcsStore, key: str, session: str, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._session = session
        self._if_absent = if_absent
        self._turn = asyncio.Condition()
        self._accepted_bytes = 0  # in parts whose turn has passed
        self._sent_bytes = 0  # received by Google
        self._pending = b""  # accepted but unsent: less than `STEP_BYTES`
        self._must_query = False  # whether `_sent_bytes` is uncertain
        self._failed = False
        self._is_finished = False

    def __repr__(self) -> str:
        return f"ResumableWriter({self._key!r})"

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a part after all earlier ones, with retries."""
        try:
            async with self._turn:
                await self._turn.wait_for(lambda: self._failed or self._accepted_bytes == offset_bytes)
            if self._failed:
                raise StoreFailure("an earlier part of this upload failed", path=self._key, operation="part")
            body = data if isinstance(data, bytes) else bytes(data)
            if self._pending:
                body = self._pending + body
            whole = len(body) // STEP_BYTES * STEP_BYTES
            if whole:
                await self._send(body if whole == len(body) else body[:whole])
            self._pending = body[whole:]
            self._accepted_bytes += len(data)
        except BaseException:
            self._failed = True  # later parts must not wait forever
            raise
        finally:
            async with self._turn:
                self._turn.notify_all()

    async def _send(self, body: bytes) -> None:
        """Send all bytes of `body`; an answer may report that Google received only some of them."""
        begin = self._sent_bytes
        end = begin + len(body)

        async def once(loop: Connections[GcsState]) -> None:
            client = await loop.state.client()
            if self._must_query:
                self._note(await self._put_session(client, b"", "bytes */*", (200, 201, _MORE)), begin, end)
            while self._sent_bytes < end:
                before = self._sent_bytes
                rest = body[before - begin :] if before > begin else body
                self._must_query = True
                self._note(await self._put_session(client, rest, f"bytes {before}-{end - 1}/*", (_MORE,)), before, end)
                if self._sent_bytes == before:
                    raise Transient("no byte of a part was kept", path=self._key, operation="part")

        await self._store.call_with_retries("part", self._key, once, num_bytes=len(body))

    def _note(self, answer: Answer, least: int, most: int) -> None:
        """Take the number of received bytes from an answer."""
        match = _KEPT.fullmatch(answer.headers.get("range", ""))
        kept = 0 if match is None else int(match[1]) + 1
        if not least <= kept <= most:
            raise StoreFailure(
                f"the upload has {kept} bytes, expected {least} to {most}", path=self._key, operation="part"
            )
        self._sent_bytes, self._must_query = kept, False

    async def _put_session(
        self, client: JsonClient, body: bytes, content_range: str, accepted: tuple[int, ...]
    ) -> Answer:
        headers = {**OCTETS, "Content-Range": content_range}
        operation = "put_create" if self._if_absent else "part"
        request = Request("PUT", self._session, headers=headers, data=body, accepted=accepted)
        return await client.send(operation, self._key, request)

    async def complete(self) -> ObjectMeta:
        """Make the object visible; sent once if `if_absent`, else with retries."""
        if self._failed:
            raise StoreFailure("a part of this upload failed, it cannot be completed", path=self._key)
        begin, body = self._sent_bytes, self._pending
        size_bytes = begin + len(body)
        span = f"bytes {begin}-{size_bytes - 1}/{size_bytes}" if body else f"bytes */{size_bytes}"

        operation: Operation = "put_create" if self._if_absent else "put"

        async def once(loop: Connections[GcsState]) -> ObjectMeta:
            client = await loop.state.client()
            answer = None
            if self._must_query:
                answer = await self._put_session(client, b"", f"bytes */{size_bytes}", (200, 201, _MORE))
            if answer is None or answer.status == _MORE:
                self._must_query = True
                answer = await self._put_session(client, body, span, (200, 201))
            return written(answer, self._key, operation, size_bytes)

        try:
            meta = await self._store.call_with_retries(
                operation, self._key, once, num_bytes=len(body), decides=self._if_absent
            )
        except NotFound:  # the upload is completed or dropped
            if self._if_absent:
                raise
            meta = await self._store.head(self._key)
            if meta.size_bytes != size_bytes:
                raise StoreFailure(
                    f"the upload is gone, and the object of {meta.size_bytes} bytes there is not its result of "
                    f"{size_bytes} bytes",
                    path=self._key,
                ) from None
        self._is_finished = True
        return meta

    async def abort(self) -> None:
        """Drop the upload."""
        if self._is_finished:
            return
        self._is_finished = self._failed = True
        try:
            await self._store.call(
                "delete", self._key, Request("DELETE", self._session, accepted=(200, 204, 499)), ignore_answer
            )
        except NotFound:
            pass  # completed after all, or dropped
