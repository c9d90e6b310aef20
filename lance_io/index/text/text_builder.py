"""Builds a full text index: texts grow maps from tokens to documents, which are merged to partitions.

    texts --workers--> a map each --all maps reach their limit--> runs of sorted tokens on local disk
    runs --one after the other, token by token--> the rows of a partition

A build that fits into memory is one partition, and so is one that spills, up to the number of documents whose lengths
fit into the merge's share of the memory.
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

_MAPS_SHARE: Final = 2  # the rest: a batch of the scan, and lists while they grow
_PARTITION_SHARE: Final = 16  # bytes of memory for each document of a partition: its length, thrice while it is merged
_RUN_BYTES_MAX: Final = 4  # bytes of a partition's runs for each byte of memory: one token's lists are a part of them
_TAKEN_BYTES: Final = 1 << 20
_TAKEN_BYTES_MIN: Final = 1 << 16
_SEED: Final = secrets.randbits(64)


class TextBuilder:
    """Builds a full text index over texts, lists of texts, or JSON documents as text.

    parameters      of the index
    format_version  of its files
    make_store      returns a place for runs that do not fit into memory
    limit_bytes     of memory
    num_workers     threads
    of_elements     whether each element of a list is a document
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
        self._is_first = format_version == 1
        self._elements = ElementRows() if of_elements else None
        self._analyzer = analyzer_of(parameters)
        self._lists = _kernels.TermLists(
            _SEED, num_workers, with_positions=parameters.with_position, keep_empty=of_elements
        )
        self._num_workers = num_workers
        self._limit_bytes = limit_bytes
        self._terms, self._documents = make_store(), make_store()
        self._partitions: list[list[Run]] = [[]]
        self._run_bytes = 0  # of the last partition

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        if self._parameters.lance_tokenizer == "json":
            values = values if pa.types.is_large_binary(values.type) else jsonb_values(values, "a document")
        elif self._elements is not None:
            values, numbers = self._elements.add(values, rows)
            rows = numbers.view(np.uint64)
        elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            values = joined_lists(values)
        data, offsets, is_wide, present = text_buffers(values)
        try:
            self._lists.add(self._analyzer, len(values), (data, offsets, is_wide), present, rows)
        except ValueError as error:
            raise UsageError(f"a text cannot be indexed: {error}") from error
        num_bytes = self._lists.nbytes + (0 if self._elements is None else self._elements.nbytes)
        if num_bytes * _MAPS_SHARE > self._limit_bytes:
            self._spill()

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        if self._partitions[0]:
            self._spill()
        else:
            self._partitions[0] = [
                self._held_run(worker) for worker, num in enumerate(self._lists.num_documents) if num
            ]
        partitions = [runs for runs in self._partitions if runs]
        numbers = [(self._part or 0) + number for number in range(len(partitions))]
        for number, runs in zip(numbers, partitions, strict=True):
            files = PartitionFiles(number, runs, self._parameters, self._metadata, is_first=self._is_first)
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
        self._terms.close()
        self._documents.close()
        self._partitions = []

    def _held_run(self, worker: int) -> Run:
        """The documents of a worker, in memory."""
        batch = self._documents_of(worker)

        def terms() -> Iterator[Columns]:
            while (columns := self._lists.take(worker, _TAKEN_BYTES)) is not None:
                yield columns

        return Run(len(batch), lambda: values_of(batch.column(1)), lambda: iter([batch]), terms)

    def _documents_of(self, worker: int) -> pa.RecordBatch:
        """The documents of a worker's map."""
        rows, lengths = self._lists.documents(worker)
        if self._elements is None:
            return document_batch(rows, lengths)
        return document_batch(*self._elements.find(np.frombuffer(memoryview(rows), np.int64), lengths))

    def _spill(self) -> None:
        """Write the maps to local disk, as runs of the last partition."""
        counts = self._lists.num_documents
        runs = self._partitions[-1]
        num_documents = sum(run.num_documents for run in runs)
        is_full = (num_documents + sum(counts)) * _PARTITION_SHARE > self._limit_bytes
        if runs and (is_full or self._run_bytes > self._limit_bytes * _RUN_BYTES_MAX):
            runs = []
            self._partitions.append(runs)
            self._run_bytes = 0
        for worker, count in enumerate(counts):
            if count:
                runs.append(self._spilled_run(worker, count))
        if self._elements is not None:
            self._elements = ElementRows()

    def _spilled_run(self, worker: int, num_documents: int) -> Run:
        number = len(self._documents)
        self._documents.add(self._documents_of(worker))
        first = len(self._terms)
        taken_bytes = max(_TAKEN_BYTES_MIN, self._limit_bytes >> 12)
        while (columns := self._lists.take(worker, taken_bytes)) is not None:
            batch = _term_batch(columns)
            self._run_bytes += batch.nbytes
            self._terms.add(batch)
        numbers = range(first, len(self._terms))
        return Run(
            num_documents,
            lambda: values_of(self._documents.get(number).column(1)),
            lambda: iter([self._documents.get(number)]),
            partial(self._spilled_terms, numbers),
        )

    def _spilled_terms(self, numbers: range) -> Iterator[Columns]:
        for number in numbers:
            yield _term_columns(self._terms.get(number))


def joined_lists(values: pa.Array) -> pa.Array:
    """One text for each list: its items, with a space in between, and those of its lists. Nulls are left out."""
    items, starts = list_items(values)
    while pa.types.is_nested(items.type):
        items, inner = list_items(items)
        starts = inner[starts]
    if items.null_count:
        valid = items.is_valid()
        kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(valid.to_numpy(zero_copy_only=False), dtype=np.int64)))
        items, starts = items.filter(valid), kept[starts]
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
    memory = [pa.py_buffer(column) for column in columns]
    count = memory[2].size // 4

    def strings(first: int) -> pa.Array:
        return pa.Array.from_buffers(pa.large_binary(), count, [None, *memory[first : first + 2]])

    counts = pa.Array.from_buffers(pa.int32(), count, [None, memory[2]])
    return pa.RecordBatch.from_arrays([strings(0), counts, strings(3), strings(5)], schema=_TERMS)


def _term_columns(batch: pa.RecordBatch) -> Columns:
    tokens, counts, documents, positions = (column.buffers() for column in batch.columns)
    columns: list[Any] = [tokens[1], tokens[2], counts[1], *documents[1:], *positions[1:]]
    return tuple(b"" if buffer is None else buffer for buffer in columns)
