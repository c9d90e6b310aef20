"""Builds a full text index: worker threads add texts to maps from tokens to documents, which become partitions.

    texts --> one map for each worker --maps reach the memory limit--> one run for each map, on local disk
    runs of a partition --merged token by token--> files of the partition

A run has its tokens in sorted order. A build without spills is one partition. A build that spills begins another
partition when the last one has too many documents, or too many bytes of runs, for a merge within the memory limit.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io import compute as pc
from lance_io.errors import UsageError
from lance_io.index.text.list_elements import ElementRows, list_items
from lance_io.index.text.text_files import (
    METADATA_FILE,
    PartitionFiles,
    Run,
    document_batch,
    index_metadata_file,
    partition_metadata,
)
from lance_io.index.text.tokenizer import analyzer_of, text_buffers
from lance_io.levels.arrays import values_of
from lance_io.levels.jsonb_write import jsonb_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.index.build.index_file import NewIndexFile, RowArray, RunStore
    from lance_io.index.text.text_files import Columns
    from lance_io.index.text.text_parameters import TextParameters

_MAPS_DIVISOR: Final = 2  # maps take 1/2 of the memory limit; a batch of the scan and growing lists take the rest
_DOCUMENT_BYTES: Final = 16  # memory of a merge for each document: three copies of its length of 4 bytes, and a margin
# A partition whose runs exceed 4 times the memory limit gets no more runs. They may exceed the limit itself, because a
# merge holds the lists of one token at a time.
_RUN_BYTES_FACTOR: Final = 4
_TAKE_BYTES: Final = 1 << 20  # bytes of tokens that leave a map at once
_TAKE_BYTES_MIN: Final = 1 << 16  # the least of a spill, which takes a share of the memory limit at once
_SEED: Final = secrets.randbits(64)


class TextBuilder:
    """Builds a full text index over texts, lists of texts, or JSON documents as text.

    parameters      parameters of the index
    format_version  format version of the index files
    make_store      returns a new store for batches of runs that do not fit into memory
    limit_bytes     memory limit
    num_workers     number of threads that add texts
    of_elements     whether each element of a list is a document; otherwise a list is one document
    part            number of the first partition of a part of an index, which is merged later; None for a whole index
    """

    def __init__(
        self,
        parameters: TextParameters,
        format_version: int,
        make_store: Callable[[], RunStore],
        limit_bytes: int,
        num_workers: int,
        *,
        of_elements: bool = False,
        part: int | None = None,
    ) -> None:
        self._parameters = parameters
        self._part = part
        self._metadata = partition_metadata(parameters, format_version)
        self._is_format_1 = format_version == 1
        self._elements = ElementRows() if of_elements else None
        self._analyzer = analyzer_of(parameters)
        self._token_maps = _kernels.TermLists(
            _SEED, num_workers, with_positions=parameters.with_position, keep_empty=of_elements
        )
        self._num_workers = num_workers
        self._limit_bytes = limit_bytes
        self._term_store, self._document_store = make_store(), make_store()
        self._partitions: list[list[Run]] = [[]]
        self._run_bytes = 0  # bytes of the runs of the last partition

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """Add the texts of rows, in the order of the scan."""
        if self._parameters.lance_tokenizer == "json":
            values = values if pa.types.is_large_binary(values.type) else jsonb_values(values, "a document")
        elif self._elements is not None:
            values, element_numbers = self._elements.add(values, rows)
            rows = element_numbers.view(np.uint64)  # `_take_documents` maps them back to rows
        elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            values = _join_texts_of_lists(values)
        data, offsets, is_wide, present = text_buffers(values)
        try:
            self._token_maps.add(self._analyzer, len(values), (data, offsets, is_wide), present, rows)
        except ValueError as error:
            raise UsageError(f"a text cannot be indexed: {error}") from error
        num_bytes = self._token_maps.nbytes + (0 if self._elements is None else self._elements.nbytes)
        if num_bytes * _MAPS_DIVISOR > self._limit_bytes:
            self._spill()

    def files(self) -> Iterator[NewIndexFile]:
        """The files of all partitions, then the index metadata; the caller consumes one before it takes the next."""
        if self._partitions[0]:
            self._spill()
        else:
            self._partitions[0] = [
                self._make_memory_run(worker) for worker, count in enumerate(self._token_maps.num_documents) if count
            ]
        partitions = [runs for runs in self._partitions if runs]
        numbers = [(self._part or 0) + number for number in range(len(partitions))]
        for number, runs in zip(numbers, partitions, strict=True):
            files = PartitionFiles(number, runs, self._parameters, self._metadata, is_format_1=self._is_format_1)
            yield from files.files()
            if self._part is not None:
                name = f"part_{number}_{METADATA_FILE}"
                yield index_metadata_file(self._parameters, [number], self._metadata, name)
        if self._part is None:
            yield index_metadata_file(self._parameters, numbers, self._metadata)
        elif not numbers:
            name = f"part_empty_{self._part}_{METADATA_FILE}"
            yield index_metadata_file(self._parameters, [], self._metadata, name)

    def close(self) -> None:
        """Free memory and local disk."""
        self._term_store.close()
        self._document_store.close()
        self._partitions = []

    def _make_memory_run(self, worker: int) -> Run:
        """A run of the documents and tokens of a worker's map, which stay in memory."""
        batch = self._take_documents(worker)

        def terms() -> Iterator[Columns]:
            while (columns := self._token_maps.take(worker, _TAKE_BYTES)) is not None:
                yield columns

        return Run(len(batch), lambda: values_of(batch.column(1)), lambda: iter([batch]), terms)

    def _take_documents(self, worker: int) -> pa.RecordBatch:
        """Take the documents out of a worker's map: their rows and lengths, and the positions of elements in lists."""
        rows, lengths = self._token_maps.documents(worker)
        if self._elements is None:
            return document_batch(rows, lengths)
        return document_batch(*self._elements.find(np.frombuffer(memoryview(rows), np.int64), lengths))

    def _spill(self) -> None:
        """Write the maps to local disk, as runs of the last partition."""
        counts = self._token_maps.num_documents
        runs = self._partitions[-1]
        num_documents = sum(run.num_documents for run in runs)
        would_be_full = (num_documents + sum(counts)) * _DOCUMENT_BYTES > self._limit_bytes
        if runs and (would_be_full or self._run_bytes > self._limit_bytes * _RUN_BYTES_FACTOR):
            runs = []
            self._partitions.append(runs)
            self._run_bytes = 0
        for worker, count in enumerate(counts):
            if count:
                runs.append(self._write_run(worker, count))
        if self._elements is not None:
            self._elements = ElementRows()

    def _write_run(self, worker: int, num_documents: int) -> Run:
        """Move the documents and tokens of a worker's map to the stores, as a run."""
        documents_at = len(self._document_store)
        self._document_store.add(self._take_documents(worker))
        first_term_batch = len(self._term_store)
        take_bytes = max(_TAKE_BYTES_MIN, self._limit_bytes >> 12)
        while (columns := self._token_maps.take(worker, take_bytes)) is not None:
            batch = _term_batch(columns)
            self._run_bytes += batch.nbytes
            self._term_store.add(batch)
        term_batches = range(first_term_batch, len(self._term_store))
        return Run(
            num_documents,
            lambda: values_of(self._document_store.get(documents_at).column(1)),
            lambda: iter([self._document_store.get(documents_at)]),
            partial(self._read_spilled_terms, term_batches),
        )

    def _read_spilled_terms(self, term_batches: range) -> Iterator[Columns]:
        for number in term_batches:
            yield _term_columns(self._term_store.get(number))


def _join_texts_of_lists(values: pa.Array) -> pa.Array:
    """One text for each list: the texts in it, at any depth, with a space in between. Nulls are left out."""
    items, starts = list_items(values)
    while pa.types.is_nested(items.type):
        items, inner_starts = list_items(items)
        starts = inner_starts[starts]
    if items.null_count:
        valid = items.is_valid()
        flags = valid.to_numpy(zero_copy_only=False)
        valid_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(flags, dtype=np.int64)))
        items, starts = items.filter(valid), valid_before[starts]
    lists = pa.LargeListArray.from_arrays(pa.array(starts), items.cast(pa.large_string()))
    return pc.binary_join(lists, pa.scalar(" ", pa.large_string()))


_TERMS: Final = pa.schema(
    [
        pa.field("token", pa.large_binary(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("documents", pa.large_binary(), nullable=False),
        pa.field("positions", pa.large_binary(), nullable=False),
    ]
)


def _term_batch(columns: Columns) -> pa.RecordBatch:
    """A batch around the buffers of tokens, for a store."""
    memory = [pa.py_buffer(column) for column in columns]
    count = memory[2].size // 4

    def strings(first: int) -> pa.Array:
        return pa.Array.from_buffers(pa.large_binary(), count, [None, *memory[first : first + 2]])

    counts = pa.Array.from_buffers(pa.int32(), count, [None, memory[2]])
    return pa.RecordBatch.from_arrays([strings(0), counts, strings(3), strings(5)], schema=_TERMS)


def _term_columns(batch: pa.RecordBatch) -> Columns:
    """The inverse of `_term_batch`."""
    tokens, counts, documents, positions = (column.buffers() for column in batch.columns)
    columns: list[Any] = [tokens[1], tokens[2], counts[1], *documents[1:], *positions[1:]]
    return tuple(b"" if buffer is None else buffer for buffer in columns)
