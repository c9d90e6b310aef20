"""Writes record batches to data files, each of which is a new fragment.

    batches --cut at max_rows_per_file and max_bytes_per_file--> one `FileWriter` at a time --> fragments of id 0

A file ends in two steps: it is completed (its rows and metadata are written), then published (it becomes visible at
its key). Only the last file of a write waits between the two, until its commit. The rows come from the caller's thread
or loop; encoding and uploading run concurrently. A write that fails or is cancelled removes its files.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.changes.write.input_data import Rows
from lance_io.changes.write.written_files import remember_written
from lance_io.errors import LanceError, OperationError, SchemaError, UnsupportedError, UsageError
from lance_io.file.write.blob_pages import managed_blob_name
from lance_io.file.write.dictionary_limit import DictionaryLimit, has_narrow_dictionaries
from lance_io.file.write.file_bytes import NEARLY, PAGE_BYTES, FileWriter
from lance_io.file.write.file_writing import FileWriting
from lance_io.file.write.uploads import remove_files, sidecar_key
from lance_io.format.version import V0_1
from lance_io.io import trace_events
from lance_io.lazy_names import lazy_module
from lance_io.limits import ROWS_PER_BATCH, VALUE_BYTES_MAX
from lance_io.records import dataclass
from lance_io.table.manifest.flags import manages_blobs
from lance_io.table.manifest.fragment import DataFile, Fragment
from lance_io.table.manifest.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_io.changes.write.input_data import AsyncRows
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.commit.commit_files import CommitFiles
    from lance_io.file.write import batched_writer
    from lance_io.file.write.batched_writer import BatchedFileWriter
    from lance_io.file.write.blob_pages import PayloadReader
    from lance_io.file.write.file_bytes import WrittenFile
    from lance_io.file.write.page_sizes import PageSizes
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata import describe
    from lance_io.reads.metadata import fragment_metadata as descriptions
    from lance_io.store.api import Durability
    from lance_io.store.url import Location
else:
    describe = lazy_module("lance_io.reads.metadata.describe")  # only needed with `progress=`
    descriptions = lazy_module("lance_io.reads.metadata.fragment_metadata")
    batched_writer = lazy_module("lance_io.file.write.batched_writer")  # imports the writer of 0.1, rarely needed

T = TypeVar("T")

ROWS_PER_FILE: Final = 1 << 20
BYTES_PER_FILE: Final = 90 << 30
# Batches are cut into slices of about 1/16 of a file; the writer checks the byte limit after each slice.
SLICES_PER_FILE: Final = 16
# A byte limit does not end a file that is below both minimums.
ROWS_PER_FILE_MIN: Final = 1024
BYTES_PER_FILE_MIN: Final = PAGE_BYTES // 2  # any full page of a plain column has more


def data_file_name() -> str:
    """A new random name: 24 binary digits that spread keys over a store's partitions, then hex (spec: table, 1.1)."""
    random = os.urandom(16)
    return f"{int.from_bytes(random[:3], 'big'):024b}{random[3:].hex()}.lance"


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of a data file: it ends at `rows`, or at about `num_bytes` stored bytes.

    page_bytes          bytes of leaf data at which a page ends, None for the default
    cache_bytes         bytes of leaf data that may wait for their pages, None for one full page of each leaf
    blob_references     whether blobs may be URIs of objects outside of the table
    value_bytes_max     largest size of a value in bytes, None for the default
    overlaps            whether pages are encoded while the writer waits for the next rows
    group_rows          only for file version 0.1: rows of a batch
    allow_null_loss     only for file version 0.1: whether nulls that it cannot hold may be written as other values
    omitted_struct_ids  only for file version 0.1: structs that the file's list of field ids omits
    """

    rows: int = ROWS_PER_FILE
    num_bytes: int = BYTES_PER_FILE
    page_bytes: int | None = None
    cache_bytes: int | None = None
    blob_references: bool = False
    value_bytes_max: int | None = None
    group_rows: int = ROWS_PER_BATCH
    allow_null_loss: bool = True
    omitted_struct_ids: frozenset[int] = frozenset()
    overlaps: bool = False

    def __post_init__(self) -> None:
        limits = {
            "rows_per_file": self.rows,
            "bytes_per_file": self.num_bytes,
            "page_bytes": self.page_bytes,
            "rows_per_group": self.group_rows,
        }
        for name, value in limits.items():
            if value is not None and value < 1:
                raise UsageError(f"max_{name} must be at least 1, got {value}")
        if self.value_bytes_max is not None and self.value_bytes_max < 1:
            raise UsageError(f"max_decoded_bytes must be at least 1, got {self.value_bytes_max}")
        if self.cache_bytes is not None and self.cache_bytes < 0:
            raise UsageError(f"data_cache_bytes must not be negative, got {self.cache_bytes}")

    def of_version(self, version: FileVersion) -> FileLimits:
        """These limits for a file version: files of 0.1 have whole batches, so `rows` is rounded up to batches."""
        if version != V0_1:
            return self
        group_rows = min(self.group_rows, self.rows)
        return replace(self, group_rows=group_rows, rows=-(-self.rows // group_rows) * group_rows)

    def rows_per_slice(self, batch: pa.RecordBatch) -> int:
        """Number of rows of the slices that a batch is cut into, so that a slice is small in comparison to a file."""
        row_bytes: int = max(1, batch.nbytes // max(1, batch.num_rows))
        file_bytes = max(self.num_bytes, min(ROWS_PER_FILE_MIN * row_bytes, PAGE_BYTES))
        return max(1, file_bytes // SLICES_PER_FILE // row_bytes)

    @property
    def options(self) -> dict[str, Any]:
        """The limits that apply inside of a file, as keywords of its writer."""
        page_bytes = min(PAGE_BYTES, self.page_bytes or PAGE_BYTES)
        return {
            "page_bytes": page_bytes,
            "cache_bytes": self.cache_bytes,
            "blob_references": self.blob_references,
            "overlaps": self.overlaps,
            "value_bytes_max": self.value_bytes_max or VALUE_BYTES_MAX,
        }


_DEFAULT_LIMITS: Final = FileLimits()


def is_above_minimum(num_rows: int, num_bytes: int) -> bool:
    """Whether a file with these rows and bytes is so large that a byte limit may end it."""
    return num_rows >= ROWS_PER_FILE_MIN or num_bytes >= BYTES_PER_FILE_MIN


def is_full_sized(num_rows: int, num_bytes: int, limit_bytes: int) -> bool:
    """Whether a file is about as large as a byte limit allows."""
    return num_bytes >= limit_bytes * NEARLY and is_above_minimum(num_rows, num_bytes)


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that receives data files.

    location  folder that directly contains the files
    base_id   id of the base path, None for the table's own folder
    """

    location: Location
    base_id: int | None = None

    @classmethod
    def of_table(cls, location: Location) -> DataFolder:
        """The data folder of a table or branch."""
        return cls(location.below(DATA))


class NewFiles:
    """The data files of one write.

    `write` completes and publishes the files one by one, except the last one, which it only completes.
    `publish_for_commit` publishes the last file, in the same round as other requests that precede the commit.

    location              folder of the table (or branch)
    schema                schema of the files, in the order of the batches' columns; its metadata say whether the
                          table manages blobs
    progress              called when a file begins, and with its fragment when it is complete
    new_name              returns a new file name
    new_blob_name         returns a new name for a file of managed blobs
    folders               folders that receive the files in turn; None for the table's own
    payloads              reads blobs that batches reference in other files
    checks_rows           whether checksums of the rows are compared with those of the pages
    checks_texts          whether strings that are not UTF-8 are refused; off for strings that are in the table already
    ends_before_overflow  whether a file ends before a dictionary overflows its index type; if not, rows are refused
    fragments             written fragments, of id 0; empty if there are no rows
    """

    def __init__(
        self,
        location: Location,
        schema: Schema,
        version: FileVersion,
        limits: FileLimits = _DEFAULT_LIMITS,
        *,
        progress: FragmentWriteProgress | None = None,
        durability: Durability | None = None,
        new_name: Callable[[], str] = data_file_name,
        new_blob_name: Callable[[], str] = managed_blob_name,
        folders: Sequence[DataFolder] | None = None,
        payloads: PayloadReader | None = None,
        checks_rows: bool = False,
        checks_texts: bool = True,
        ends_before_overflow: bool = True,
    ) -> None:
        self.location = location
        self._folders = folders or (DataFolder.of_table(location),)
        self._next_folders = cycle(self._folders)
        self._folder = self._folders[0]
        self.fragments: list[Fragment] = []
        self._new_name = new_name
        self._schema = schema
        self._version = version
        self._limits = limits.of_version(version)
        self._progress = progress
        self._blob_table = location if manages_blobs(schema.metadata) else None
        if self._blob_table is not None and any(folder.base_id is not None for folder in self._folders):
            raise UnsupportedError("a table that manages its blobs takes rows into its own folder only")
        self._options = {
            "durability": durability,
            "blob_table": self._blob_table,
            "new_blob_name": new_blob_name,
            "payloads": payloads,
            "checks_rows": checks_rows,
            **limits.options,
        }
        self._warned_of: set[str] = set()
        self._batch_options = _batch_options(self._limits) if version == V0_1 else None
        self._page_sizes: PageSizes | None = None
        self._file: FileWriting | None = None
        self._ends_before_overflow = ends_before_overflow
        self._dictionary_limit = DictionaryLimit() if version != V0_1 and has_narrow_dictionaries(schema) else None
        self._is_full = False
        self._first_row = 0 if checks_texts else None  # number of the next file's first row, for errors about texts
        self._name = ""
        self._written_keys: dict[int | None, list[str]] = {}  # by id of the base path
        self._commit_files: CommitFiles | None = None

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, rows: Rows | AsyncRows) -> Plan[None]:
        """Write all rows, and complete the last file."""
        is_held = isinstance(rows, Rows) and rows.is_held
        self._options["overlaps"] = is_held or self._limits.overlaps
        while (batch := (yield NextBatch(rows))) is not None:
            yield from self.add(batch, held=is_held)
        yield from self.complete_last_file()

    def add(self, batch: pa.RecordBatch, *, held: bool = False) -> Plan[None]:
        """Write a batch.

        held  whether the batch's memory stays alive and unchanged until the file is complete, so needs no copy
        """
        for rows in self._cut(batch):
            yield from self._end_file_before_overflow(rows)
            file = self._file or self._open()
            yield from file.write(rows, held=held)
            yield from self._end_if_full()

    def _end_file_before_overflow(self, rows: pa.RecordBatch) -> Plan[None]:
        """End the file if these rows would exceed the index type of a dictionary column.

        Raises `OperationError` if full dictionaries must not end a file.
        """
        if self._dictionary_limit is None or (problem := self._dictionary_limit.add(rows)) is None:
            return
        if not self._ends_before_overflow:
            raise OperationError(f"{problem}: use a wider index type, such as int32")
        if self._file is not None:
            yield from self._complete_file()
            yield from self._publish_file()
        self._dictionary_limit.clear()
        self._dictionary_limit.add(rows)

    def copy_pages(self, write_pages: Callable[[FileWriter], Plan[None]]) -> Plan[None]:
        """Call `write_pages`, which copies encoded pages into the open file. All of their rows go into one file."""
        file = self._file or self._open()
        yield from file.copy(write_pages)
        yield from self._end_if_full()

    def complete_last_file(self) -> Plan[None]:
        """Complete the open file after the last rows. It becomes visible when it is published."""
        if self._file is not None:
            yield from self._complete_file()
        self._warn_of_lost_nulls()

    def _warn_of_lost_nulls(self) -> None:
        if self._batch_options is not None and (lost := self._batch_options.lost.keys() - self._warned_of):
            names = ", ".join(name for name in self._batch_options.lost if name in lost)
            self._warned_of |= lost
            text = f"files of version 0.1 hold no nulls except those of strings; the nulls of {names} are lost"
            warnings.warn(f"{text} (write_dataset refuses them with allow_null_loss=False)", UserWarning, stacklevel=3)

    @property
    def schema(self) -> Schema:
        """Schema of the files. In version 0.1 it has the values of the dictionaries, and is valid after all rows."""
        if self._batch_options is None:
            return self._schema
        schema = self._batch_options.with_dictionaries(self._schema)
        for field in schema.walk():
            if field.logical_type.startswith("dict:") and field.dictionary is None:
                raise SchemaError(
                    f"v1 dictionary field '{field.name}' is missing dictionary metadata: to create a table of file "
                    "version 0.1 with dictionaries, write at least one row"
                )
        return schema

    def complete_and_publish_file(self) -> Plan[None]:
        """End the open file before it is full; later rows go into another one."""
        yield from self.complete_last_file()
        if self._file is not None:
            yield from self._publish_file()

    def keep_written_files(self) -> None:
        """Make `roll_back` keep the files that are complete by now."""
        self._written_keys.clear()

    def publish_last_file(self) -> Plan[None]:
        """Make the last file visible at its key; no version refers to it yet."""
        if self._file is not None:
            yield from self._publish_file()

    def publish_for_commit(self, commit_files: CommitFiles) -> Plan[None]:
        """Make the last file visible for a commit, whose outcome decides whether `roll_back` may remove the files."""
        self._commit_files = commit_files
        commit_files.add_data(self._table_folder_keys)
        yield from self.publish_last_file()

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch into slices that end where a file must end, and are small in comparison to a file."""
        start = 0
        if not batch.num_rows:
            return
        slice_bytes = self._limits.num_bytes // SLICES_PER_FILE
        rows_max = batch.num_rows
        if batch.get_total_buffer_size() * batch.num_columns > slice_bytes:  # an upper bound, cheaper than `nbytes`
            rows_max = self._limits.rows_per_slice(batch)
        while start < batch.num_rows:
            rows_left = self._limits.rows - (0 if self._file is None else self._writer.num_rows)
            num_rows = min(rows_left, rows_max, batch.num_rows - start)
            yield batch if num_rows == batch.num_rows else batch.slice(start, num_rows)
            start += num_rows

    @property
    def _writer(self) -> FileWriter | BatchedFileWriter:
        assert self._file is not None
        return self._file.writer

    def _end_if_full(self) -> Plan[None]:
        yield from self._check_if_full()
        if self._is_full:
            yield from self._complete_file()
            yield from self._publish_file()

    def _check_if_full(self) -> Plan[None]:
        """Set `_is_full` if the open file has reached a limit."""
        assert self._file is not None
        writer, limits = self._writer, self._limits
        self._is_full = writer.num_rows >= limits.rows
        if not self._is_full and is_above_minimum(writer.num_rows, writer.size_bytes):
            self._is_full = yield from self._file.reaches(limits.num_bytes)

    def _open(self) -> FileWriting:
        self._name, self._folder, self._is_full = self._new_name(), next(self._next_folders), False
        location = self._folder.location
        key = location.key(self._name)
        options = {**self._options, "first_row": self._first_row, "page_sizes": self._page_sizes}
        self._file = FileWriting(
            location.store, key, self._schema, self._version, batches=self._batch_options, **options
        )
        if isinstance(self._file.writer, FileWriter):
            self._page_sizes = self._file.writer.page_sizes  # shared by all files of this write
        if self._progress is not None:
            self._progress.begin(descriptions.FragmentMetadata(0, [], 0))
        return self._file

    def _complete_file(self) -> Plan[None]:
        assert self._file is not None
        written = yield from self._file.finish()
        sidecar_keys = [sidecar_key(written.path, name, self._blob_table) for name in written.sidecars]
        self._written_keys.setdefault(self._folder.base_id, []).extend([written.path, *sidecar_keys])
        remember_written(self._folder.location.store, written, self._schema)
        self.fragments.append(new_fragment(self._name, written, self._folder.base_id))
        if self._first_row is not None:
            self._first_row += written.num_rows
        if trace_events.listeners:
            trace_events.emit_files("create", "data", [self._name])
        if self._progress is not None:
            self._progress.complete(describe.fragment_metadata(self.fragments[-1]))

    def _publish_file(self) -> Plan[None]:
        assert self._file is not None
        yield from self._file.close()
        self._file = None
        if self._dictionary_limit is not None:
            self._dictionary_limit.clear()

    # -- rolling back a failed write ----------------------------------------------------------------------------------

    @property
    def _table_folder_keys(self) -> Sequence[str]:
        """Keys of the files in the table's own folder."""
        return self._written_keys.get(None, ())

    def roll_back(self, cause: BaseException) -> Plan[None]:
        """Remove the files of a failed write, unless a version may refer to them.

        cause  error of the write; gets a note if the files could not be removed
        """
        if self._commit_files is not None:
            if not self._commit_files.may_remove:
                return
            self._commit_files.drop_data(self._table_folder_keys)
        try:
            if self._file is not None:
                yield from self._file.abort()
            stores = {folder.base_id: folder.location.store for folder in self._folders}
            for base_id, keys in self._written_keys.items():
                yield from remove_files(stores[base_id], keys)
        except LanceError as error:
            cause.add_note(f"also: the written files could not be removed: {error}")


def _batch_options(limits: FileLimits) -> batched_writer.BatchOptions:
    return batched_writer.BatchOptions(limits.group_rows, limits.allow_null_loss, limits.omitted_struct_ids)


def new_fragment(name: str, written: WrittenFile, base_id: int | None = None) -> Fragment:
    """The fragment of a new data file, of id 0 until a commit numbers it.

    base_id  id of the base path that contains the file, None for the table's own folder
    """
    file = DataFile(
        path=name,
        fields=written.field_ids,
        column_indices=written.column_indices,
        version=written.version,
        size_bytes=written.size_bytes,
        base_id=base_id,
    )
    return Fragment(
        id=0,
        files=(file,),
        deletion_file=None,
        physical_rows=written.num_rows,
        row_ids=None,
        created_at_versions=None,
        last_updated_at_versions=None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class NextBatch:
    """A request for the next batch of the caller's rows; the answer is None at the end."""

    rows: Rows | AsyncRows

    def answer_sync(self) -> pa.RecordBatch | None:
        assert isinstance(self.rows, Rows)
        return next(self.rows.batches, None)

    async def answer_async(self) -> pa.RecordBatch | None:
        if isinstance(self.rows, Rows):
            return next(self.rows.batches, None)
        return await anext(self.rows.batches, None)
