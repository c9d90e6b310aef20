"""Files and fragments as the manifest describes them, and the context that reads share."""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lance_io.io.budget import process
from lance_io.lazy_names import lazy_module
from lance_io.limits import IO_BUFFER_BYTES, VALUE_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection

    from lance_io.file.open.kept_ends import KeptEnds
    from lance_io.io import scheduler as schedulers
    from lance_io.io.budget import Pool
    from lance_io.io.cache import SearchCache
    from lance_io.io.scheduler import Merge, OpenSchedulers, ReadScheduler
    from lance_io.io.shared_limits import IoScheduler
    from lance_io.store.api import ObjectReads
else:
    schedulers = lazy_module("lance_io.io.scheduler")

DEAD: Final = -2  # field id of a dead column
_SHARED_COLUMNS_MAX: Final = 64
_SEARCHED_SHARE: Final = 64  # of the fields: beyond this, building the dictionary is faster than searching


@dataclass(frozen=True, slots=True)
class FileRef:
    """One data file as the manifest describes it.

    key             object key in the store
    size_bytes      of the whole file; 0 if the manifest has no size
    field_ids       ids of the leaf fields stored in it (`DEAD`: a dead column; lower ids are spilled lineage); an id
                    that occurs twice has one column
    column_indices  the column of each field, parallel to `field_ids`; -1 for a field that is not read from this file
    about_bytes     approximate size, if the manifest has only that of its pages; otherwise 0
    """

    key: str
    size_bytes: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...]
    about_bytes: int = field(default=0, compare=False)
    _columns: dict[int, int] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def columns(self) -> dict[int, int]:
        """The column of each readable field. Files with the same columns share this dictionary: do not change it."""
        if self._columns is None:
            object.__setattr__(self, "_columns", _columns_of(self.field_ids, self.column_indices))
        assert self._columns is not None
        return self._columns

    def columns_of(self, field_ids: Collection[int]) -> dict[int, int]:
        """The column of each of these fields that is readable. Searches for a few fields of a wide file one by one."""
        if self._columns is None and len(field_ids) * _SEARCHED_SHARE <= len(self.field_ids):
            return {each: column for each in field_ids if (column := self._search_column(each)) >= 0}
        columns = self.columns
        return {each: columns[each] for each in field_ids if each in columns}

    def _search_column(self, field_id: int) -> int:
        try:
            return -1 if field_id in (-1, DEAD) else self.column_indices[self.field_ids.index(field_id)]
        except (ValueError, IndexError):
            return -1


@lru_cache(maxsize=_SHARED_COLUMNS_MAX)
def _columns_of(field_ids: tuple[int, ...], column_indices: tuple[int, ...]) -> dict[int, int]:
    pairs = zip(field_ids, column_indices, strict=False)
    return {fid: column for fid, column in pairs if fid not in (-1, DEAD) and column >= 0}


@dataclass(frozen=True, slots=True)
class FragmentSource:
    """The files of one fragment; `num_rows` counts physical rows, including deleted ones."""

    num_rows: int
    files: tuple[FileRef, ...]


@dataclass(slots=True, eq=False)
class ReadContext:
    """Shared context of all reads of a dataset.

    store            the object store
    cache            search cache, shared through a session
    io_buffer_bytes  limit of bytes read and not yet consumed, per scan
    checks_values    whether to check that decoded values are in the range of their types (`value_check.py`)
    has_indexes_at_end  whether files likely have their page indexes right before the metadata, as our writer puts them
    schedulers       collects the schedulers of reads that end when their owner closes; None if reads have no owner
    shared           scheduler that the reads of a session share, or None
    value_bytes_max  limit of the decoded bytes of a value
    ends             keeps the ends of files for later reads of the same scan; None where none follow
    """

    store: ObjectReads
    cache: SearchCache
    io_buffer_bytes: int = IO_BUFFER_BYTES
    checks_values: bool = False
    has_indexes_at_end: bool = True
    schedulers: OpenSchedulers | None = None
    shared: IoScheduler | None = None
    value_bytes_max: int = VALUE_BYTES_MAX
    ends: KeptEnds | None = None

    @property
    def pool(self) -> Pool:
        """The memory budget that this and other reads share."""
        return process.pool if self.shared is None else self.shared.pool

    def scheduler(self, merge: Merge = "take") -> ReadScheduler:
        """A scheduler for one operation on the engine's loop; close it if the operation ends early."""
        scheduler = schedulers.ReadScheduler(
            self.store, merge=merge, budget_bytes=self.io_buffer_bytes, shared=self.shared
        )
        if self.schedulers is not None:
            self.schedulers.add(scheduler)
        return scheduler
