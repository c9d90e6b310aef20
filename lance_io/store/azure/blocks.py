"""Uploads in blocks: the blob appears only when the block list is written.

Azure drops unlisted blocks after a week or when the blob is written; nothing else removes them.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any

from lance_io.store.api import ObjectMeta
from lance_io.store.azure.account_clients import content_settings
from lance_io.store.failures import StoreFailure

if TYPE_CHECKING:
    from lance_io.store.api import Buffer
    from lance_io.store.azure.container import AzureStore
    from lance_io.store.counters import Operation


class BlockWriter:
    """An upload in progress; see `PartWriter`. Its block ids differ from those of other uploads."""

    def __init__(self, store: AzureStore, key: str, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._if_absent = if_absent
        self._name = uuid.uuid4().hex
        self._sizes: dict[int, int] = {}
        self._num_started = 0

    def _block_id(self, number: int) -> str:
        """All block ids of a blob must have the same length."""
        return base64.b64encode(f"{self._name}-{number:06}".encode()).decode()

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a block, with retries: resending a block is idempotent."""
        self._num_started = max(self._num_started, number + 1)
        body = data if isinstance(data, bytes) else bytes(data)
        block_id = self._block_id(number)

        async def stage(blob: Any) -> None:
            await blob.stage_block(block_id, body, length=len(body))

        await self._store.call("part", self._key, stage, num_bytes=len(body))
        self._sizes[number] = len(body)

    async def complete(self) -> ObjectMeta:
        """Make the object visible; sent once if `if_absent`, else with retries."""
        from azure.core import MatchConditions
        from azure.storage.blob import BlobBlock

        if len(self._sizes) < self._num_started:
            raise StoreFailure("a part of this upload failed, it cannot be completed", path=self._key)
        blocks = [BlobBlock(self._block_id(number)) for number in sorted(self._sizes)]
        condition = {"match_condition": MatchConditions.IfMissing} if self._if_absent else {}

        async def commit(blob: Any) -> dict[str, Any]:
            answer: dict[str, Any] = await blob.commit_block_list(
                blocks, **condition, **content_settings(self._store.options)
            )
            return answer

        operation: Operation = "put_create" if self._if_absent else "put"
        answer = await self._store.call(operation, self._key, commit, decides=self._if_absent)
        return ObjectMeta(self._key, sum(self._sizes.values()), answer.get("etag"))

    async def abort(self) -> None:
        """Nothing to do: see the module's docstring."""
