"""Rows to the bytes of one data file of version 0.1, without any I/O (spec: legacy 0.1, section 9).

Rows are queued until there are enough for a batch. For each batch, the pages of all fields are written one after the
other, in schema order. The writer holds less than a batch of rows, and the location and bounds of each page.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.encodings.v0_1.dictionary_growth import DictionaryGrowth
from lance_io.encodings.v0_1.write_batches import Node, flatten, lost_nulls
from lance_io.encodings.v0_1.write_statistics import ColumnStatistics, has_statistics
from lance_io.errors import SchemaError, UsageError
from lance_io.file.write.file_bytes import WrittenFile
from lance_io.file.write.uploads import GatheredWrites
from lance_io.file.write.write_plan import file_plan
from lance_io.format.schema import Field, Schema
from lance_io.format.v0_1.batch_end import encode_end, encode_page_table, statistics_schema
from lance_io.format.version import V0_1
from lance_io.levels.join import holds_dictionary, join_arrays
from lance_io.levels.leaf_sums import LeafSums, check_sums
from lance_io.levels.portable import copy_array
from lance_io.levels.text_check import check_texts
from lance_io.limits import KIB, ROWS_PER_BATCH
from lance_io.plans.cpu_requests import Compute
from lance_io.table.transaction.draft import WRITER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lance_io.file.write.uploads import Sink
    from lance_io.plans.plan import Plan
    from lance_io.spans import IntArray

WRITTEN_AT_ONCE_BYTES: Final = 1024 * KIB  # pages share a write of this size
ROWS_MAX: Final = (1 << 31) - 1  # per file: row counts have 32 bits


@dataclass(frozen=True, slots=True, eq=False)
class BatchOptions:
    """Options and state that the files of one write share.

    group_rows          rows per batch
    allow_null_loss     whether nulls that the format cannot hold may be written as other values
    omitted_struct_ids  structs that the files' lists of field ids omit; structs have no pages
    dictionaries        dictionaries of all rows
    lost                names of the fields with such lost nulls, in order
    """

    group_rows: int = ROWS_PER_BATCH
    allow_null_loss: bool = True
    omitted_struct_ids: frozenset[int] = frozenset()
    dictionaries: DictionaryGrowth = dataclasses.field(default_factory=DictionaryGrowth)
    lost: dict[str, None] = dataclasses.field(default_factory=dict)

    def with_dictionaries(self, schema: Schema) -> Schema:
        """The schema with the values of its dictionary fields so far."""
        return Schema(tuple(_with_dictionary(field, self.dictionaries) for field in schema.fields), schema.metadata)


class BatchedFileWriter:
    """The plans that write one data file of version 0.1, with the methods of `FileWriter`.

    checks_rows  whether to compare checksums of the stored rows with those of the pages
    first_row    as for `FileWriter`
    """

    def __init__(
        self,
        path: str,
        schema: Schema,
        sink: Sink,
        options: BatchOptions,
        *,
        checks_rows: bool = False,
        first_row: int | None = 0,
    ) -> None:
        self._first_row = first_row
        schema = schema.without_packing()
        self.path = path
        self.schema = schema
        self.version = V0_1
        self.num_rows = 0
        self.size_bytes = 0
        self._plan = plan = file_plan(schema, V0_1)
        self._dictionary_columns = [at for at in plan.text_columns if holds_dictionary(schema.fields[at].arrow_type)]
        self._options = options
        self._group_rows = options.group_rows
        self._dictionaries = options.dictionaries
        self._metadata = dict(schema.metadata)
        self._writes = GatheredWrites(sink, WRITTEN_AT_ONCE_BYTES)
        self._checks_rows = checks_rows
        self._sums_in: defaultdict[int, LeafSums] = defaultdict(LeafSums)  # by field id
        self._sums_out: defaultdict[int, LeafSums] = defaultdict(LeafSums)
        self._waiting: list[list[pa.Array]] = []
        self._waiting_rows = 0
        self._row_starts = [0]
        self._page_entries: list[tuple[int, int, int, int]] = []
        leaves = (leaf for field in schema.fields for leaf in _outside_lists(field) if has_statistics(leaf))
        self._statistics = {leaf.id: ColumnStatistics(leaf) for leaf in sorted(leaves, key=lambda leaf: leaf.id)}

    @property
    def held_bytes(self) -> int:
        """Bytes of the queued rows."""
        return sum(array.nbytes for arrays in self._waiting for array in arrays)

    def reaches(self, num_bytes: int) -> Plan[bool]:
        """Whether the written batches have reached `num_bytes`."""
        yield from ()
        return self.size_bytes >= num_bytes

    # -- rows -------------------------------------------------------------------------------------------------------

    def ingest(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """As `FileWriter.ingest`; raises `SchemaError` also for nulls that would be lost, unless that is allowed."""
        arrays = [ingest(batch.column(index)) for index, ingest in self._plan.ingesters(batch.schema)]
        if self._first_row is not None:
            check_texts(self.schema.fields, arrays, self._dictionary_columns, self._first_row + self.num_rows)
        pairs = zip(self.schema.fields, arrays, strict=True)
        lost = dict.fromkeys(name for field, array in pairs for name in lost_nulls(field, array))
        if lost and not self._options.allow_null_loss:
            raise SchemaError(
                f"files of version 0.1 cannot hold the nulls of {', '.join(lost)} (allow_null_loss=False)"
            )
        self._options.lost.update(lost)
        fields = self.schema.fields
        return [self._dictionaries.with_keys(field, array) for field, array in zip(fields, arrays, strict=True)]

    def text_check(self, arrays: list[pa.Array]) -> Callable[[], None] | None:
        """As `FileWriter.text_check`, without dictionaries, which `ingest` has checked."""
        columns = [at for at in self._plan.text_columns if at not in self._dictionary_columns]
        if self._first_row is None or not columns:
            return None
        return partial(check_texts, self.schema.fields, arrays, columns, self._first_row + self.num_rows)

    def add(self, arrays: list[pa.Array], num_rows: int, *, held: bool = False) -> Plan[None]:
        """Append the rows of arrays from `ingest`; `held` as in `FileWriter.add`."""
        if not num_rows:
            return
        self.num_rows += num_rows
        if self.num_rows > ROWS_MAX:
            raise UsageError(f"more than {ROWS_MAX} rows in a file of version 0.1; set max_rows_per_file")
        if self._checks_rows:
            num_bytes = sum([array.nbytes for array in arrays])
            yield Compute(partial(self._sum_arrays, arrays, num_rows), lambda: num_bytes)
        self._waiting.append(arrays)
        self._waiting_rows += num_rows
        whole = self._waiting_rows - self._waiting_rows % self._group_rows
        if whole:
            block = self._block()
            yield from self._write([array.slice(0, whole) for array in block])
            self._waiting_rows -= whole
            rest = [array.slice(whole) for array in block]
            self._waiting = [rest if held else [copy_array(array) for array in rest]] if self._waiting_rows else []
        elif not held:
            self._waiting[-1] = [copy_array(array) for array in arrays]
        yield from self._writes.flush()

    def _block(self) -> list[pa.Array]:
        """All queued rows, in one array per field."""
        if len(self._waiting) == 1:
            return self._waiting[0]
        return [join_arrays(list(arrays)) for arrays in zip(*self._waiting, strict=True)]

    def _write(self, arrays: list[pa.Array]) -> Plan[None]:
        """Write these rows as batches, the last of which may be smaller."""
        num_bytes = sum([array.nbytes for array in arrays])
        roots: list[list[Node]] = yield Compute(partial(self._flatten, arrays), lambda: num_bytes)
        num_rows = len(arrays[0])
        starts = np.arange(0, num_rows, self._group_rows, dtype=np.int64)
        ends = np.append(starts[1:], num_rows)
        yield Compute(partial(self._add_statistics, roots, starts, ends), lambda: num_bytes)
        if self._checks_rows:
            yield Compute(partial(self._sum_batches, roots, starts, ends), lambda: num_bytes)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield from self._writes.add(list(self._batch(roots, start, end)))

    def _flatten(self, arrays: list[pa.Array]) -> list[list[Node]]:
        pairs = zip(self.schema.fields, arrays, strict=True)
        return [flatten(field, array, array) for field, array in pairs]

    def _sum_arrays(self, arrays: list[pa.Array], num_rows: int) -> None:
        for node in chain.from_iterable(self._flatten(arrays)):
            for field_id, sums in node.sums(0, num_rows):
                self._sums_in[field_id] += sums

    def _sum_batches(self, roots: list[list[Node]], starts: IntArray, ends: IntArray) -> None:
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            for node in chain.from_iterable(roots):
                for field_id, sums in node.sums(start, end):
                    self._sums_out[field_id] += sums

    def _add_statistics(self, roots: list[list[Node]], starts: IntArray, ends: IntArray) -> None:
        for node in chain.from_iterable(roots):
            statistics = self._statistics.get(node.field_id)
            if statistics is not None and node.array is not None:
                statistics.add(node.array, starts, ends)

    def _batch(self, roots: list[list[Node]], start: int, end: int) -> Iterator[Any]:
        number = len(self._row_starts) - 1
        for node in chain.from_iterable(roots):
            for buffers, (field_id, position, length) in node.pages(start, end, self.size_bytes):
                self._page_entries.append((field_id, number, position, length))
                for buffer in buffers:
                    self.size_bytes += buffer.nbytes
                    yield buffer
        self._row_starts.append(self._row_starts[-1] + end - start)

    # -- the rest of the file -----------------------------------------------------------------------------------------

    def finish(self) -> Plan[WrittenFile]:
        """Write the queued rows and the end of the file, which completes the file."""
        if self._waiting:
            yield from self._write(self._block())
            self._waiting, self._waiting_rows = [], 0
        check_sums(self._sums_in, self._sums_out, self.path)
        ids = sorted({field.id for field in self.schema.walk()} - self._options.omitted_struct_ids)
        num_batches = len(self._row_starts) - 1
        table_at = self.size_bytes
        yield from self._add(encode_page_table(self._page_entries, ids[0], ids[-1], num_batches))
        statistics = None
        if self._statistics:
            described = statistics_schema([column.field for column in self._statistics.values()])
            statistics = described, (yield from self._write_statistics(described))
        schema = self._options.with_dictionaries(self.schema)
        starts = np.array(self._row_starts, dtype=np.int64)
        for part in encode_end(schema, self._metadata, starts, table_at, statistics, self.size_bytes, WRITER):
            yield from self._add(part)
        yield from self._writes.flush()
        return WrittenFile(self.path, self.num_rows, self.size_bytes, tuple(ids), (), V0_1, ())

    def _write_statistics(self, described: Schema) -> Plan[int]:
        """Write the statistics; returns the offset of their page table."""
        entries: list[tuple[int, int, int, int]] = []
        for top, statistics in zip(described.fields, self._statistics.values(), strict=True):
            counts = np.array(statistics.null_counts, "<i8")
            values = [counts.tobytes(), statistics.least, statistics.greatest]
            for field, field_values in zip(top.children, values, strict=True):
                content, at = _values_page(field, field_values, self.size_bytes)
                entries.append((field.id, 0, at, len(counts)))
                yield from self._add(content)
        table_at = self.size_bytes
        yield from self._add(encode_page_table(entries, 0, 4 * len(described) - 1, 1))
        return table_at

    def _add(self, content: bytes) -> Plan[None]:
        self.size_bytes += len(content)
        yield from self._writes.add([content])


def _values_page(field: Field, values: Any, position: int) -> tuple[bytes, int]:
    """A page of statistics: its bytes, and its position for the page table."""
    if isinstance(values, bytes):
        return values, position
    if field.logical_type == "bool":
        return np.packbits(np.array(values, dtype=bool), bitorder="little").tobytes(), position
    if field.logical_type in ("string", "large_string", "binary", "large_binary"):
        texts = [text or b"" for text in values]
        data = b"".join(texts)
        table = position + np.cumsum([0, *map(len, texts)], dtype="<i8")
        return data + table.tobytes(), position + len(data)
    return b"".join(values), position


def _outside_lists(field: Field) -> Iterator[Field]:
    """The leaves below a field that are not inside a list."""
    if field.logical_type == "struct":
        for child in field.children:
            yield from _outside_lists(child)
    elif field.has_column:
        yield field


def _with_dictionary(field: Field, dictionaries: DictionaryGrowth) -> Field:
    if field.logical_type.startswith("dict:"):
        return replace(field, dictionary=dictionaries.encode_values(field))
    children = tuple(_with_dictionary(child, dictionaries) for child in field.children)
    is_same = all(new is old for new, old in zip(children, field.children, strict=True))
    return field if is_same else replace(field, children=children)
