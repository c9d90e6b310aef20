"""Uploads of a data file and of its sidecar files.

<stem>/<name>     sidecar, beside the data file
_blobs/<name>     sidecar below the table's folder, if the table manages its blobs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Invoke
from lance_io.plans.store_requests import Remove, RemoveEmptyFolders
from lance_io.records import dataclass
from lance_io.store.offers import HoldsFolders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Durability, ObjectMeta, ObjectStore, SyncUpload, Upload
    from lance_io.store.offers import SyncWrites
    from lance_io.store.url import Location


def sidecar_key(key: str, name: str, table: Location | None = None) -> str:
    """The key of a sidecar of the data file `key`: in the folder that has the data file's name without its suffix.

    table  folder of the table; sidecars with names that begin with `_blobs/` lie below it
    """
    if table is not None and name.startswith(f"{BLOB_FOLDER}/"):
        return table.key(name)
    folder, slash, file_name = key.rpartition("/")
    stem = file_name.removesuffix(".lance")
    return f"{folder}{slash}{stem}/{name}"


def remove_files(store: ObjectStore, keys: Sequence[str]) -> Plan[None]:
    """Remove data files and sidecars, and the folders of the sidecars where a store keeps empty folders."""
    if keys:
        yield Remove(store, tuple(keys))
    if isinstance(store, HoldsFolders):
        folders = {key.rpartition("/")[0] for key in keys if key.endswith(".blob")}
        for folder in sorted(folders):
            if not folder.endswith(f"/{BLOB_FOLDER}"):  # which all data files share
                yield RemoveEmptyFolders(store, folder)


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

    def write(self, buffers: Sequence[Any], sidecar: str | None = None) -> Plan[None]:
        """Append buffers to the data file, or to the sidecar of this name."""

    def complete(self, sidecar: str) -> Plan[None]:
        """Complete the sidecar of this name."""


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
        self._completed_keys: list[str] = []

    def write(self, buffers: Sequence[Any], sidecar: str | None = None) -> Plan[None]:
        """See `Sink`."""
        upload = self._uploads.get(sidecar) or (yield from self._open(sidecar))
        yield Invoke(upload.write, (buffers,))

    def complete(self, sidecar: str) -> Plan[None]:
        """See `Sink`."""
        self._completed_keys.append(self._key_of(sidecar))  # before it ends, so that `abort` removes it in any case
        yield Invoke(self._uploads.pop(sidecar).close)

    def close(self) -> Plan[ObjectMeta]:
        """Make the data file visible. Its sidecars must be complete."""
        upload = self._uploads.get(None) or (yield from self._open(None))
        meta: ObjectMeta = yield Invoke(upload.close)
        self._completed_keys.clear()
        return meta

    def abort(self) -> Plan[None]:
        """Remove all written objects. Idempotent; no effect after `close`."""
        for upload in self._uploads.values():
            yield Invoke(upload.abort)
        keys, self._completed_keys = self._completed_keys, []
        yield from remove_files(self._store, keys)

    def _open(self, sidecar: str | None) -> Plan[Any]:
        key = self._key if sidecar is None else self._key_of(sidecar)
        upload = self._uploads[sidecar] = yield OpenUpload(self._store, key, self._durability)
        return upload

    def _key_of(self, sidecar: str) -> str:
        return sidecar_key(self._key, sidecar, self._table)


class GatheredWrites:
    """Combines writes to the same file to larger ones, in order.

    num_bytes  size from which a write is worth a request of its own
    """

    def __init__(self, sink: Sink, num_bytes: int) -> None:
        self._sink = sink
        self._flush_bytes = num_bytes
        self._buffers: list[Any] = []
        self._num_bytes = 0
        self._sidecar: str | None = None

    def add(self, buffers: Sequence[Any], sidecar: str | None = None) -> Plan[None]:
        """Append buffers; writes them once there are enough."""
        if sidecar != self._sidecar:
            yield from self.flush()
            self._sidecar = sidecar
        self._buffers += buffers
        self._num_bytes += sum([memoryview(buffer).nbytes for buffer in buffers])
        if self._num_bytes >= self._flush_bytes:
            yield from self.flush()

    def flush(self) -> Plan[None]:
        """Write the pending buffers."""
        if self._buffers:
            yield from self._sink.write(self._buffers, self._sidecar)
            self._buffers, self._num_bytes = [], 0
