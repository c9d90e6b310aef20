"""Uploads in parts: nothing shows in the bucket before the last step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import NotFound
from lance_io.store.api import ObjectMeta
from lance_io.store.failures import StoreFailure
from lance_io.store.retry import ONCE

if TYPE_CHECKING:
    from lance_io.store.api import Buffer, PutMode
    from lance_io.store.s3 import S3Store


class S3PartWriter:
    """A multipart upload; see `PartWriter`."""

    def __init__(self, store: S3Store, key: str, upload_id: str, mode: PutMode) -> None:
        self._store = store
        self._name = {"Key": key, "UploadId": upload_id}
        self._key = key
        self._mode = mode
        self._parts: list[dict[str, Any]] = []
        self._size_bytes = 0
        self._over = False

    async def write_part(self, data: Buffer) -> None:
        """Send the next part; its number is fixed before the first wait."""
        body = data if isinstance(data, bytes) else bytes(data)
        part: dict[str, Any] = {"PartNumber": len(self._parts) + 1}
        self._parts.append(part)
        self._size_bytes += len(body)
        arguments = {"Body": body, **part, **self._name}
        answer = await self._store.call("part", self._key, "upload_part", arguments, num_bytes=len(body))
        part["ETag"] = answer["ETag"]

    async def complete(self) -> ObjectMeta:
        """Make the object visible; sent once."""
        if any("ETag" not in part for part in self._parts):
            raise StoreFailure("a part of this upload failed, it cannot be completed", path=self._key)
        arguments: dict[str, Any] = {"MultipartUpload": {"Parts": self._parts}, **self._name}
        if self._mode == "create":
            arguments["IfNoneMatch"] = "*"
        answer = await self._store.call(
            "put_create" if self._mode == "create" else "put",
            self._key,
            "complete_multipart_upload",
            arguments,
            policy=ONCE,
        )
        self._over = True
        return ObjectMeta(self._key, self._size_bytes, answer.get("ETag"))

    async def abort(self) -> None:
        """Drop the parts."""
        if self._over:
            return
        self._over = True
        try:
            await self._store.call("delete", self._key, "abort_multipart_upload", self._name)
        except NotFound:
            pass  # somebody's clean-up was faster
