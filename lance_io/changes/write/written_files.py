"""Cache of the columns of data files that this process wrote lately: commits need not read them."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final

from lance_io.file.open.data_file import FileSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.write.file_bytes import WrittenFile
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.levels.path import LeafPath
    from lance_io.store.api import ObjectStore

FIELDS_MAX: Final = 1 << 16  # of all cached files: some dozen MiB at most

_lock = Lock()


class _ColumnCache:
    """Files by store and key, the latest last."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, str], tuple[Schema, FileVersion, int]] = OrderedDict()
        self._num_fields = 0

    def add(self, store_and_key: tuple[str, str], schema: Schema, version: FileVersion, num_fields: int) -> None:
        """Remember a file; evicts the oldest ones above `FIELDS_MAX`."""
        with _lock:
            self._forget(store_and_key)
            self._files[store_and_key] = schema, version, num_fields
            self._num_fields += num_fields
            while self._num_fields > FIELDS_MAX:
                self._forget(next(iter(self._files)))

    def _forget(self, store_and_key: tuple[str, str]) -> None:
        file = self._files.pop(store_and_key, None)
        self._num_fields -= 0 if file is None else file[2]

    def find(self, store_and_key: tuple[str, str]) -> tuple[Schema, FileVersion] | None:
        """Schema and version of a file; None on a cache miss."""
        with _lock:
            file = self._files.get(store_and_key)
        return None if file is None else file[:2]


_CACHE: Final = _ColumnCache()


def remember_written(store: ObjectStore, written: WrittenFile, schema: Schema) -> None:
    """Remember the schema of a complete data file."""
    _CACHE.add((store.identity, written.path), schema, written.version, 1 + len(written.field_ids))


def written_columns(store: ObjectStore, key: str) -> Sequence[LeafPath] | None:
    """Paths of the columns of a data file, in their order; None if this process did not write it lately."""
    file = _CACHE.find((store.identity, key))
    return None if file is None else FileSchema.of(*file).paths
