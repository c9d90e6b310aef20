"""Uploads of a data file and of its sidecar files.

<stem>/<name>     sidecar, beside the data file
_blobs/<name>     sidecar below the table's folder, if the table manages its blobs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Invoke
from lance_io.plans.store_requests import Remove
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Durability, ObjectMeta, ObjectStore, SyncUpload, Upload
    from lance_io.store.offers import SyncWrites
    from lance_io.store.url import Location


def key_beside(key: str, name: str, table: Location | None = None) -> str:
    """The key of a sidecar of a data file, in the folder named as the data file without its suffix.

    table  folder of the table, to which names that begin with `_blobs/` are relative
    """
    if table is not None and name.startswith(f"{BLOB_FOLDER}/"):
        return table.key(name)
    folder, slash, file_name = key.rpartition("/")
    stem = file_name.removesuffix(".lance")
    return f"{folder}{slash}{stem}/{name}"


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """Request: open an upload of an object."""

    store: ObjectStore
    key: str
    durability: Durability | None = None

    def answer_sync(self) -> SyncUpload:
        """See `Request`."""
        return cast("SyncWrites", self.store).open_upload_sync(self.key, durability=self.durability)

    async def answer_async(self) -> Upload:
        """See `Request`."""
        return await self.store.open_upload(self.key, durability=self.durability)


class Sink(Protocol):
    """Takes the bytes of a data file and of its sidecars."""

    def write(self, buffers: Sequence[Any], beside: str | None = None) -> Plan[None]:
        """Append buffers to the data file, or to the sidecar `beside`."""

    def complete(self, beside: str) -> Plan[None]:
        """Complete the sidecar `beside`."""


class FileUploads:
    """The uploads of one data file. It is not visible before `close`, and a sidecar not before `complete`.

    key    key of the data file
    table  folder whose `_blobs/` takes payloads; None if they lie beside the data file
    """

    def __init__(
        self, store: ObjectStore, key: str, *, durability: Durability | None = None, table: Location | None = None
    ) -> None:
        self._store = store
        self._key = key
        self._table = table
        self._durability: Durability | None = durability
        self._uploads: dict[str | None, Any] = {}  # `SyncUpload`s or `Upload`s, depending on the driver
        self._whole: list[str] = []

    def write(self, buffers: Sequence[Any], beside: str | None = None) -> Plan[None]:
        """See `Sink`."""
        upload = self._uploads.get(beside) or (yield from self._open(beside))
        yield Invoke(upload.write, (buffers,))

    def complete(self, beside: str) -> Plan[None]:
        """See `Sink`."""
        self._whole.append(self._key_of(beside))  # before the upload ends, so that `abort` removes it in any case
        yield Invoke(self._uploads.pop(beside).close)

    def close(self) -> Plan[ObjectMeta]:
        """Make the data file visible. Its sidecars must be complete."""
        upload = self._uploads.get(None) or (yield from self._open(None))
        meta: ObjectMeta = yield Invoke(upload.close)
        self._whole.clear()
        return meta

    def abort(self) -> Plan[None]:
        """Remove all written objects. Idempotent; no effect after `close`."""
        for upload in self._uploads.values():
            yield Invoke(upload.abort)
        whole, self._whole = self._whole, []
        if whole:
            yield Remove(self._store, whole)

    def _open(self, beside: str | None) -> Plan[Any]:
        key = self._key if beside is None else self._key_of(beside)
        upload = self._uploads[beside] = yield OpenUpload(self._store, key, self._durability)
        return upload

    def _key_of(self, beside: str) -> str:
        return key_beside(self._key, beside, self._table)


class GatheredWrites:
    """Combines writes to larger ones, in order and per file.

    num_bytes  size from which a write is worth a request of its own
    """

    def __init__(self, sink: Sink, num_bytes: int) -> None:
        self._sink = sink
        self._flush_bytes = num_bytes
        self._buffers: list[Any] = []
        self._num_bytes = 0
        self._beside: str | None = None

    def add(self, buffers: Sequence[Any], beside: str | None = None) -> Plan[None]:
        """Append buffers; writes them once there are enough."""
        if beside != self._beside:
            yield from self.flush()
            self._beside = beside
        self._buffers += buffers
        self._num_bytes += sum([memoryview(buffer).nbytes for buffer in buffers])
        if self._num_bytes >= self._flush_bytes:
            yield from self.flush()

    def flush(self) -> Plan[None]:
        """Write the pending buffers."""
        if self._buffers:
            yield from self._sink.write(self._buffers, self._beside)
            self._buffers, self._num_bytes = [], 0
