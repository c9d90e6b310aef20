"""The files of one segment: written, read back, and removed if no version can name them.

A builder describes a file as a stream of batches (`lance_io.index.build.index_file`); making a batch is CPU work, so on
a loop it runs in the pool. Some of the written rows are kept, and are compared with the same rows of the finished file:
pylance checks nothing when it commits an index, and a damaged one would fail every filter on its column.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io import compute as pc
from lance_io.errors import LanceError, OperationError, UsageError
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.file_source import FileRef, ReadContext
from lance_io.file.reader import FileAccess
from lance_io.file.write.file_bytes import FileWriter
from lance_io.file.write.file_writing import FileWriting
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import version_of_name
from lance_io.io.cache import SearchCache
from lance_io.levels.arrays import numbers
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.store_requests import List, Remove, RemoveEmptyFolders
from lance_io.proto import table_pb2
from lance_io.store.offers import HoldsFolders
from lance_io.table.manifest.paths import INDICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.index.build.index_file import NewIndexFile
    from lance_io.plans.plan import Plan
    from lance_io.store.url import Location
    from lance_io.table.manifest.index_section import IndexMetadata

_VERSION: Final = version_of_name("2.2")
_LARGE_BYTES: Final = MIB  # of work that makes a batch: never on the loop
_SAMPLES_MAX: Final = 100  # rows of a file that are read back
_SAMPLE_BYTES_MAX: Final = MIB
_SAMPLED_ROWS: Final = 8  # of a batch


class SegmentFiles:
    """The files of one new segment.

    location  folder of the table
    uuid      of the segment
    below     names of folders below that of the segment
    """

    def __init__(self, location: Location, uuid: str, *below: str) -> None:
        self._location = location
        self._folder = location.below(INDICES, uuid, *below)
        self._open: FileWriting | None = None
        self.written: list[table_pb2.IndexFile] = []

    @classmethod
    def of_entry(cls, location: Location, entry: IndexMetadata) -> SegmentFiles:
        """The files of a segment that another process has written, all of them complete."""
        files = cls(location, entry.uuid)
        files.written += entry.message.files if entry.message is not None else ()
        return files

    @property
    def keys(self) -> list[str]:
        """Keys of the complete files."""
        return [self._folder.key(file.path) for file in self.written]

    def check_new(self) -> Plan[None]:
        """Raise `UsageError` if there is a segment of this UUID already: its files must not change."""
        there = yield List(self._location.store, f"{self._folder.path}/")
        if there:
            raise UsageError(
                f"index_uuid: there is a segment of this UUID already; leave it out for a new one ({there[0].key})",
                path=self._location.uri,
            )

    def write(self, files: Iterator[NewIndexFile]) -> Plan[None]:
        """Write all files, and read each back."""
        while (file := (yield _compute(partial(next, files, None)))) is not None:
            yield from self._write(file)

    def _write(self, file: NewIndexFile) -> Plan[None]:
        key = self._folder.key(file.name)
        schema = schema_from_arrow(file.schema)
        writing = self._open = FileWriting(self._location.store, key, schema, _VERSION, first_row=None)
        sample = _Sample(file.schema)
        while (batch := (yield _compute(partial(next, file.batches, None)))) is not None:
            sample.add(batch)
            yield from writing.write(batch, held=True)
        assert isinstance(writing.writer, FileWriter)
        for name, value in file.metadata().items():
            if isinstance(value, str):
                text = value
            else:
                data = value if isinstance(value, bytes) else value.data
                number = yield from writing.add_global_buffer(data)
                text = str(number) if isinstance(value, bytes) else value.text(number)
            writing.writer.add_schema_metadata(name, text)
        done = yield from writing.close()
        self._open = None
        self.written.append(table_pb2.IndexFile(path=file.name, size_bytes=done.size_bytes))
        yield from self._read_back(key, done.size_bytes, sample)

    def _read_back(self, key: str, size_bytes: int, sample: _Sample) -> Plan[None]:
        """Compare rows of a finished file with those that were written."""
        context = ReadContext(self._location.store, SearchCache(_LARGE_BYTES))
        ref = FileRef(key, size_bytes, (), ())
        access: FileAccess = yield ReadFile(context, key, FileAccess.open(context, ref, None), size_bytes)
        if access.file.num_rows != sample.num_rows:
            raise OperationError(
                f"the new index file has {access.file.num_rows:,} rows, {sample.num_rows:,} were written. Nothing was "
                "committed",
                path=key,
            )
        if not sample.rows:
            return
        taken = yield from access.reader.take([(access.source, np.array(sample.rows, np.int64))])
        read = access.to_batch(taken if isinstance(taken, list) else taken.columns, None)
        if not _equal(read, sample.batch()):
            raise OperationError(
                "the new index file holds other rows than were written. Nothing was committed", path=key
            )

    def remove(self, cause: BaseException) -> Plan[None]:
        """Remove all files; a failure to do so is noted at the cause."""
        try:
            if self._open is not None:
                yield from self._open.abort()
            if self.written:
                yield Remove(self._location.store, self.keys)
            store = self._location.store
            if isinstance(store, HoldsFolders):
                yield RemoveEmptyFolders(store, self._folder.path)
        except LanceError as error:
            cause.add_note(f"also: the written index files could not be removed: {error}")


class _Sample:
    """Some rows of a file, with their numbers."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[pa.RecordBatch] = []
        self._random = np.random.default_rng()
        self._num_bytes = 0
        self.num_rows = 0
        self.rows: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of the next batch of the file."""
        first, num_rows = self.num_rows, batch.num_rows
        self.num_rows += num_rows
        if not num_rows or len(self.rows) >= _SAMPLES_MAX or self._num_bytes >= _SAMPLE_BYTES_MAX:
            return
        chosen = np.unique(self._random.integers(0, num_rows, min(num_rows, _SAMPLED_ROWS)))
        part = batch.take(numbers(chosen))
        self.rows += (chosen + first).tolist()
        self._parts.append(part)
        self._num_bytes += part.nbytes

    def batch(self) -> pa.RecordBatch:
        """The rows."""
        return pa.concat_batches(self._parts)


def _equal(read: pa.RecordBatch, written: pa.RecordBatch) -> bool:
    """Whether rows are the same, NaN like any other value."""
    return all(_is_same(left, right) for left, right in zip(read.columns, written.columns, strict=True))


def _is_same(left: pa.Array, right: pa.Array) -> bool:
    if left.type != right.type or len(left) != len(right):
        return False
    if pt.is_dictionary(left.type):  # each file has a dictionary of its own
        return _is_same(left.dictionary_decode(), right.dictionary_decode())
    if pt.is_nested(left.type):
        sizes = [pc.list_value_length(each) for each in (left, right)]
        return bool(sizes[0].equals(sizes[1])) and _is_same(left.flatten(), right.flatten())
    if pt.is_floating(left.type):
        left, right = (each.view(f"int{left.type.bit_width}") for each in (left, right))
    return bool(left.equals(right))


def _compute(work: Any) -> Compute[Any]:
    return Compute(work, lambda: _LARGE_BYTES)
