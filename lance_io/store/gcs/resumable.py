"""Uploads in parts: a resumable upload of Google's, which takes them one after the other.

    PUT session, Content-Range: bytes 0-16777215/*        308, Range: bytes=0-16777215     so much is kept
    PUT session, Content-Range: bytes 16777216-20000000/20000001     200                   the object is there
    PUT session, Content-Range: bytes */*                 308, Range: ...                  how much is kept?

All but the last must be multiples of 256 KiB; what is over waits for the next one. Nothing shows in the bucket before
the last, and what was begun and left is forgotten by Google after a week. The session's URL lets whoever has it
write: it is not shown.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from lance_io.errors import NotFound
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.gcs.json_client import Request
from lance_io.store.gcs.resources import OCTETS, nothing, written

if TYPE_CHECKING:
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.cloud.connections import Connections
    from lance_io.store.counters import Operation
    from lance_io.store.gcs.gcs_state import GcsState
    from lance_io.store.gcs.gcs_store import GcsStore
    from lance_io.store.gcs.json_client import Answer, JsonClient

STEP_BYTES: Final = 256 << 10
_MORE: Final = 308  # what has come is kept, go on
_KEPT: Final = re.compile(r"bytes=0-(\d{1,19})")


class ResumableWriter:
    """See the module's description, and `PartWriter`. Parts may come in any order; each waits for its turn."""

    def __init__(self, store: GcsStore, key: str, session: str, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._session = session
        self._if_absent = if_absent
        self._turn = asyncio.Condition()
        self._taken_bytes = 0  # of the parts whose turn has been
        self._sent_bytes = 0  # that Google has
        self._over_bytes = b""  # the last of them, not a whole step
        self._is_unsure = False  # how many bytes it has
        self._failed = False
        self._over = False

    def __repr__(self) -> str:
        return f"ResumableWriter({self._key!r})"

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a part when all before it have gone, again if need be."""
        try:
            async with self._turn:
                await self._turn.wait_for(lambda: self._failed or self._taken_bytes == offset_bytes)
            if self._failed:
                raise StoreFailure("an earlier part of this upload failed", path=self._key, operation="part")
            body = data if isinstance(data, bytes) else bytes(data)
            if self._over_bytes:
                body = self._over_bytes + body
            whole = len(body) // STEP_BYTES * STEP_BYTES
            if whole:
                await self._send(body if whole == len(body) else body[:whole])
            self._over_bytes = body[whole:]
            self._taken_bytes += len(data)
        except BaseException:
            self._failed = True  # those behind it must not wait for ever
            raise
        finally:
            async with self._turn:
                self._turn.notify_all()

    async def _send(self, body: bytes) -> None:
        """Have so many more bytes kept: all of them, though an answer may say that only some were."""
        begin = self._sent_bytes
        end = begin + len(body)

        async def once(loop: Connections[GcsState]) -> None:
            client = await loop.state.client()
            if self._is_unsure:
                self._note(await self._ask(client, b"", "bytes */*", (200, 201, _MORE)), begin, end)
            while self._sent_bytes < end:
                before = self._sent_bytes
                rest = body[before - begin :] if before > begin else body
                self._is_unsure = True
                self._note(await self._ask(client, rest, f"bytes {before}-{end - 1}/*", (_MORE,)), before, end)
                if self._sent_bytes == before:
                    raise Transient("no byte of a part was kept", path=self._key, operation="part")

        await self._store.call_repeatedly("part", self._key, once, num_bytes=len(body))

    def _note(self, answer: Answer, least: int, most: int) -> None:
        """How many bytes are kept, by an answer."""
        match = _KEPT.fullmatch(answer.headers.get("range", ""))
        kept = 0 if match is None else int(match[1]) + 1
        if not least <= kept <= most:
            raise StoreFailure(
                f"the upload has {kept} bytes, expected {least} to {most}", path=self._key, operation="part"
            )
        self._sent_bytes, self._is_unsure = kept, False

    async def _ask(self, client: JsonClient, body: bytes, content_range: str, right: tuple[int, ...]) -> Answer:
        headers = {**OCTETS, "Content-Range": content_range}
        operation = "put_create" if self._if_absent else "part"
        request = Request("PUT", self._session, headers=headers, data=body, right=right)
        return await client.ask(operation, self._key, request)

    async def complete(self) -> ObjectMeta:
        """Make the object visible; sent once if it is to be created, else until an answer comes."""
        if self._failed:
            raise StoreFailure("a part of this upload failed, it cannot be completed", path=self._key)
        begin, body = self._sent_bytes, self._over_bytes
        size_bytes = begin + len(body)
        span = f"bytes {begin}-{size_bytes - 1}/{size_bytes}" if body else f"bytes */{size_bytes}"

        operation: Operation = "put_create" if self._if_absent else "put"

        async def once(loop: Connections[GcsState]) -> ObjectMeta:
            client = await loop.state.client()
            answer = None
            if self._is_unsure:
                answer = await self._ask(client, b"", f"bytes */{size_bytes}", (200, 201, _MORE))
            if answer is None or answer.status == _MORE:
                self._is_unsure = True
                answer = await self._ask(client, body, span, (200, 201))
            return written(answer, self._key, operation, size_bytes)

        try:
            meta = await self._store.call_repeatedly(
                operation, self._key, once, num_bytes=len(body), decides=self._if_absent
            )
        except NotFound:  # the upload is no more: completed, or forgotten
            if self._if_absent:
                raise
            meta = await self._store.head(self._key)
            if meta.size_bytes != size_bytes:
                raise StoreFailure(
                    f"the upload is gone, and the object of {meta.size_bytes} bytes there is not its result of "
                    f"{size_bytes} bytes",
                    path=self._key,
                ) from None
        self._over = True
        return meta

    async def abort(self) -> None:
        """Forget what was sent."""
        if self._over:
            return
        self._over = self._failed = True
        try:
            await self._store.call(
                "delete", self._key, Request("DELETE", self._session, right=(200, 204, 499)), nothing
            )
        except NotFound:
            pass  # completed after all, or forgotten
