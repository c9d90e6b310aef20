"""Reads a data file through the room under test, as the dataset room does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from lance.file import LanceFileReader as PeerReader
from lance.file import LanceFileWriter

from lance_io.file.file_requests import read_file_sync
from lance_io.file.open.file_source import FileRef, FragmentSource, ReadContext
from lance_io.file.open.open_file import open_standalone
from lance_io.file.table_reader import TableReader
from lance_io.io.cache import SearchCache
from lance_io.plans.plan import drive_sync
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, table: pa.Table, version: str, *, tiny_pages: bool = False) -> None:
    """Write with pylance: one page per column, or (in nine batches) one page per batch."""
    cache = {"data_cache_bytes": 1} if tiny_pages else {}
    with LanceFileWriter(str(path), table.schema, version=version, **cache) as writer:
        step = max(1, -(-len(table) // 9)) if tiny_pages else max(1, len(table))
        for start in range(0, max(1, len(table)), step):
            writer.write_batch(table.slice(start, step).combine_chunks())


def peer_table(path: Path) -> pa.Table:
    """What pylance reads."""
    return PeerReader(str(path)).read_all(batch_size=100_000).to_table()


class Opened:
    """One file as a fragment, read without a loop."""

    def __init__(self, path: Path, cache_bytes: int = 1 << 28) -> None:
        location = resolve_uri(str(path))
        self.context = ReadContext(location.store, SearchCache(cache_bytes))
        size = path.stat().st_size
        first = FileRef(location.path, size, (), ())
        file = self.file = read_file_sync(open_standalone(self.context, first), self.context, location.path)
        leaves = tuple(leaf.leaf.id for leaf in file.paths)
        ref = FileRef(location.path, size, leaves, tuple(range(len(leaves))))
        self.source = FragmentSource(file.num_rows, (ref,))
        self.reader = TableReader(self.context, file.descriptor.schema.fields)

    def take(self, rows) -> list[pa.Array]:
        return drive_sync(self.reader.take([(self.source, rows)]))

    def read(self) -> list[pa.ChunkedArray]:
        return drive_sync(self.reader.read([(self.source, 0, self.file.num_rows)]))

    def scan(self, start: int, end: int, batch_rows: int | None) -> list[pa.ChunkedArray]:
        batches = list(self.reader.scan_sync([(self.source, start, end)], batch_rows))
        fields = self.file.descriptor.schema.fields
        return [
            pa.chunked_array([batch.arrays[i] for batch in batches], type=field.describe_blobs().arrow_type)
            for i, field in enumerate(fields)
        ]


def storage(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, dictionaries decoded, so that two ways of storing the same values are equal."""
    if isinstance(array, pa.ChunkedArray):
        array = (
            pa.concat_arrays([storage(chunk) for chunk in array.chunks])
            if array.num_chunks
            else pa.array([], array.type)
        )
    if pa.types.is_dictionary(array.type):
        return array.cast(array.type.value_type)
    return array


def assert_same(found: pa.Array | pa.ChunkedArray, expected: pa.Array | pa.ChunkedArray) -> None:
    """Equal values and a valid array; types may differ in metadata only."""
    found.validate(full=True)
    found, expected = storage(found), storage(expected)
    if found.equals(expected):
        return
    assert len(found) == len(expected)
    assert found.to_pylist() == expected.to_pylist()
