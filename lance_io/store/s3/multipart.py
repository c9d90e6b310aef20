"""Uploads in parts: the object appears only after the last step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import NotFound
from lance_io.store.api import ObjectMeta
from lance_io.store.failures import StoreFailure

if TYPE_CHECKING:
    from lance_io.store.api import Buffer
    from lance_io.store.s3.bucket import S3Store


class S3PartWriter:
    """A multipart upload; see `PartWriter`. S3's part numbers start at 1."""

    def __init__(self, store: S3Store, key: str, upload_id: str, *, if_absent: bool) -> None:
        self._store = store
        self._name = {"Key": key, "UploadId": upload_id}
        self._key = key
        self._if_absent = if_absent
        self._etags: dict[int, str] = {}
        self._checksums: dict[int, dict[str, str]] = {}  # if the options request them
        self._size_bytes = 0
        self._num_started = 0
        self._is_finished = False

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a part, with retries: resending a part is idempotent."""
        self._num_started = max(self._num_started, number + 1)
        body = data if isinstance(data, bytes) else bytes(data)
        arguments = {"Body": body, "PartNumber": number + 1, **self._name}
        answer = await self._store.call("part", self._key, "upload_part", arguments, num_bytes=len(body))
        self._etags[number] = answer["ETag"]
        name = f"Checksum{self._store.options.checksum_algorithm}"
        self._checksums[number] = {name: answer[name]} if name in answer else {}
        self._size_bytes += len(body)

    async def complete(self) -> ObjectMeta:
        """Make the object visible; sent once if `if_absent`, else with retries."""
        if len(self._etags) < self._num_started:
            raise StoreFailure("a part of this upload failed, it cannot be completed", path=self._key)
        parts = [
            {"PartNumber": number + 1, "ETag": self._etags[number], **self._checksums[number]}
            for number in sorted(self._etags)
        ]
        arguments: dict[str, Any] = {"MultipartUpload": {"Parts": parts}, **self._name}
        if self._if_absent:
            arguments["IfNoneMatch"] = "*"
        try:
            answer = await self._store.call(
                "put_create" if self._if_absent else "put",
                self._key,
                "complete_multipart_upload",
                arguments,
                decides=self._if_absent,
            )
        except NotFound:  # the upload does not exist (any more)
            meta = await self._find_completed(len(parts))
        else:
            meta = ObjectMeta(self._key, self._size_bytes, answer.get("ETag"))
        self._is_finished = True
        return meta

    async def _find_completed(self, num_parts: int) -> ObjectMeta:
        """The object, if an earlier attempt created it and its answer was lost; raises `NotFound` otherwise."""
        meta = await self._store.head(self._key)
        parts_text = (meta.etag or "").strip('"').rpartition("-")[2]  # an upload's etag ends in its number of parts
        if meta.size_bytes != self._size_bytes or (parts_text.isdecimal() and int(parts_text) != num_parts):
            raise StoreFailure(
                f"the upload is gone, and the object of {meta.size_bytes} bytes there is not its result of "
                f"{self._size_bytes} bytes",
                path=self._key,
            )
        return meta

    async def abort(self) -> None:
        """Drop the parts."""
        if self._is_finished:
            return
        self._is_finished = True
        try:
            await self._store.call("delete", self._key, "abort_multipart_upload", self._name)
        except NotFound:
            pass  # completed after all, or already cleaned up
