"""The columns of data files that this process wrote lately, so that nobody has to read them to know."""

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

FIELDS_MAX: Final = 1 << 16  # in all that is remembered: some dozen MiB at most. Of one layout one file is enough

_lock = Lock()


class _Written:
    """Files by store and key, the latest last."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, str], tuple[Schema, FileVersion, int]] = OrderedDict()
        self._num_fields = 0

    def add(self, place: tuple[str, str], schema: Schema, version: FileVersion, num_fields: int) -> None:
        """Remember one, and forget the first ones where there are too many."""
        with _lock:
            self._forget(place)
            self._files[place] = schema, version, num_fields
            self._num_fields += num_fields
            while self._num_fields > FIELDS_MAX:
                self._forget(next(iter(self._files)))

    def _forget(self, place: tuple[str, str]) -> None:
        found = self._files.pop(place, None)
        self._num_fields -= 0 if found is None else found[2]

    def find(self, place: tuple[str, str]) -> tuple[Schema, FileVersion] | None:
        """Schema and version of one."""
        with _lock:
            found = self._files.get(place)
        return None if found is None else found[:2]


_WRITTEN: Final = _Written()


def remember_written(store: ObjectStore, written: WrittenFile, schema: Schema) -> None:
    """A data file of this schema is complete."""
    _WRITTEN.add((store.identity, written.path), schema, written.version, 1 + len(written.field_ids))


def written_columns(store: ObjectStore, key: str) -> Sequence[LeafPath] | None:
    """The ways to the columns of a data file, in their order; None for one that is not known."""
    found = _WRITTEN.find((store.identity, key))
    return None if found is None else FileSchema.of(*found).paths
