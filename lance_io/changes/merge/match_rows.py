"""Matching of a merge: joins source and target by key and applies the clauses to updated, deleted and inserted rows.

    source fits in memory      hash table of its keys, scan of the target's key columns, or look-up by an index
    target fits in memory      hash table of its keys, scan of the source
    neither                    keys of both in partitions on local disk, joined partition by partition

Only the target's keys and the columns of conditions are read. All matches are known before anything is written: two
source rows for a target row, or a forbidden match, fail without side effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io.changes.edits.delete_rows import OffsetCollector
from lance_io.changes.join.keyed_rows import KeyedRows
from lance_io.changes.join.row_keys import TABLE_BYTES, key_filter, key_width, partitions, passing_rows
from lance_io.changes.join.spilled_batches import BUCKETS_MAX, Buckets
from lance_io.changes.merge.match_keys import JoinOnSource, JoinOnTarget
from lance_io.changes.merge.merge_clauses import SOURCE, TARGET, side_columns
from lance_io.errors import EvaluationError, OperationError
from lance_io.filters import ComputedColumn, Predicate
from lance_io.filters.expressions.expression_tree import Column, In
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import empty_batch, numbers, true_positions, values_of
from lance_io.levels.portable import copy_array
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import EachInPlan
from lance_io.reads.index.table_indices import key_indices
from lance_io.reads.memory_limit import has_fixed_width, scan_memory_options
from lance_io.reads.rows.value_widths import width_bytes
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.takes.take_rows import take_row_addresses
from lance_io.reads.version.column_lists import OutputColumn, Projection, project
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from lance_io._kernels import SliceFilter
    from lance_io.changes.join.placed_rows import RowPositions
    from lance_io.changes.join.source_rows import SourceRows
    from lance_io.changes.merge.merge_clauses import MergeClauses
    from lance_io.changes.merge.source_fit import SourceFit
    from lance_io.codecs.roaring import U32Array
    from lance_io.filters.expressions import stored_json
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
else:
    stored_json = lazy_module("lance_io.filters.expressions.stored_json")

ROW: Final = "#row"
DELETABLE: Final = "#deletable"
BATCH_ROWS: Final = 1 << 18  # of a batch of small keys
PAIR_BYTES: Final = 24  # of an updated row: its number in the source, address and id
FILTERED_SHARE: Final = 4  # a source with less than 1/4 of the target's rows matches few of them: filter them first
INDEXED_SHARE: Final = 1 << 15  # rows for each row of the source: the page of a key has 4,096 values and addresses
_ROW_BYTES: Final = 16  # of a row in addition to its key: its number or address, perhaps its id


@dataclass(frozen=True, eq=False)
class MergeConditions:
    """Compiled conditions of the clauses.

    update  condition of updates, over two structs; None for always
    rest    condition of deletes of target rows without a match; None for always
    """

    update: Predicate | None
    rest: Predicate | None


class Collision(Exception):
    """A target row has a forbidden match, or a second match."""

    def __init__(self, address: int, *, is_second: bool) -> None:
        super().__init__(address)
        self.address = address
        self.is_second = is_second


class RowMatches:
    """Collects matches; implements `Matches`.

    moves_updated  whether updated rows are deleted from their fragments, because new fragments hold them
    positions      positions of rows in the table, to return pairs in the order of the table, not of the source
    """

    def __init__(
        self,
        clauses: MergeClauses,
        conditions: MergeConditions,
        num_source_rows: int,
        *,
        moves_updated: bool,
        memory_bytes: int,
        positions: RowPositions | None = None,
    ) -> None:
        self.positions = positions
        self.needs_pairs = clauses.matched != "keep"
        self.needs_rest = clauses.deletes_rest
        self.num_updated = 0
        self.num_deleted = 0
        self.is_matched = np.zeros(num_source_rows, np.bool_)
        self._clauses = clauses
        self.conditions = conditions
        self._moves_updated = moves_updated
        self._deleted = OffsetCollector()
        self._patched = OffsetCollector()
        num_buckets = -(-num_source_rows * PAIR_BYTES // memory_bytes) if clauses.matched == "update" else 1
        self._pairs = Buckets(max(1, min(BUCKETS_MAX, num_buckets)), memory_bytes)

    # -- collecting -------------------------------------------------------------------------------------------------

    def add_pairs(
        self, source: pa.RecordBatch, source_rows: IntArray, target: pa.RecordBatch, target_rows: IntArray
    ) -> IntArray:
        """See `Matches.add_pairs`."""
        kept = np.arange(len(source_rows))
        if self._clauses.matched == "fail" and len(kept):
            raise Collision(int(values_of(target.column(ROW_ADDRESS))[target_rows[0]]), is_second=False)
        if self.conditions.update is not None:
            kept = _select(self.conditions.update, source, source_rows, target, target_rows)
            source_rows, target_rows = source_rows[kept], target_rows[kept]
        if not len(kept):
            return kept
        addresses = values_of(target.column(ROW_ADDRESS))[target_rows]
        if self._clauses.matched == "delete":
            self.num_deleted += len(kept)
            self._keep_addresses(self._deleted, addresses)
            return kept
        self.num_updated += len(kept)
        self._keep_addresses(self._deleted if self._moves_updated else self._patched, addresses)
        rows = values_of(source.column(ROW))[source_rows]
        columns = {ROW: numbers(rows), ROW_ADDRESS: numbers(addresses)}
        if ROW_ID in target.schema.names:
            columns[ROW_ID] = numbers(values_of(target.column(ROW_ID))[target_rows])
        self._pairs.add(pa.RecordBatch.from_pydict(columns), self._buckets(rows, addresses))
        return kept

    def raise_second_match(self, target: pa.RecordBatch, row: int) -> None:
        """See `Matches.raise_second_match`. Raises `Collision`."""
        raise Collision(int(values_of(target.column(ROW_ADDRESS))[row]), is_second=True)

    def mark_matched_sources(self, source: pa.RecordBatch, rows: IntArray) -> None:
        """See `Matches.mark_matched_sources`."""
        self.is_matched[values_of(source.column(ROW))[rows]] = True

    def add_unmatched_targets(self, target: pa.RecordBatch) -> None:
        """See `Matches.add_unmatched_targets`."""
        addresses = values_of(target.column(ROW_ADDRESS))
        if self.conditions.rest is not None:
            addresses = addresses[true_positions(target.column(DELETABLE).fill_null(False))]
        self.num_deleted += len(addresses)
        self._keep_addresses(self._deleted, addresses)

    def _keep_addresses(self, kept: OffsetCollector, addresses: npt.NDArray[np.uint64]) -> None:
        kept.add_addresses(np.sort(addresses) if (addresses[1:] < addresses[:-1]).any() else addresses)

    def _buckets(self, rows: IntArray, addresses: npt.NDArray[np.uint64]) -> IntArray:
        if self.positions is not None:
            return self.positions.of(addresses) * self._pairs.num_buckets // self.positions.num_rows
        return rows * self._pairs.num_buckets // len(self.is_matched)

    # -- results ------------------------------------------------------------------------------------------------------

    def deleted(self) -> dict[int, U32Array]:
        """Offsets of deleted rows, including moved ones, by fragment id. Empties the collection."""
        return self._deleted.take_by_fragment()

    def patched(self) -> dict[int, U32Array]:
        """Offsets of rows updated in place, by fragment id. Empties the collection."""
        return self._patched.take_by_fragment()

    def updated(self) -> Iterable[tuple[int, int, pa.RecordBatch]]:
        """Pairs in the order of the source: ranges of source rows with their pairs (row, address, perhaps id)."""
        num_buckets, num_rows = self._pairs.num_buckets, len(self.is_matched)
        for bucket in range(num_buckets):
            parts = list(self._pairs.take(bucket))
            if not parts:
                continue
            pairs = pa.concat_batches(parts)
            start, end = (-(-edge * num_rows // num_buckets) for edge in (bucket, bucket + 1))
            order = _in_order(values_of(pairs.column(ROW)), values_of(pairs.column(ROW_ADDRESS)), start, end)
            yield start, end, pairs.take(numbers(order))

    def updated_in_table(self) -> Iterable[pa.RecordBatch]:
        """Pairs in the order of the table, if there are `positions`: source row, address, perhaps id."""
        for bucket in range(self._pairs.num_buckets):
            parts = list(self._pairs.take(bucket))
            if parts:
                pairs = pa.concat_batches(parts)
                yield pairs.take(numbers(np.argsort(values_of(pairs.column(ROW_ADDRESS)), kind="stable")))

    def close(self) -> None:
        """Free memory and local disk."""
        self._pairs.close()


def _in_order(rows: IntArray, addresses: npt.NDArray[np.uint64], start: int, end: int) -> IntArray:
    """The order of pairs by row, of `start .. end`, then by address; without a sort if each row has one pair."""
    pair_of_row = np.full(end - start, -1, np.int64)
    pair_of_row[rows - start] = np.arange(len(rows))
    order = pair_of_row[pair_of_row >= 0]
    return order if len(order) == len(rows) else np.lexsort((addresses, rows))


def _select(
    predicate: Predicate, source: pa.RecordBatch, source_rows: IntArray, target: pa.RecordBatch, target_rows: IntArray
) -> IntArray:
    """Indices of the pairs that pass a condition."""
    sides = []
    for side, batch, rows in ((SOURCE, source, source_rows), (TARGET, target, target_rows)):
        names = side_columns(predicate, side)
        taken = batch.select([f"{side}.{name}" for name in names]).take(numbers(rows))
        try:
            columns = [stored_json.as_stored(column) for column in taken.columns]
        except pa.ArrowInvalid as error:
            raise EvaluationError(f"a condition on the {side} cannot be computed for every row: {error}") from error
        fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        empty = pa.nulls(len(rows), pa.struct([]))
        sides.append(pa.StructArray.from_arrays(columns, fields=fields) if names else empty)
    return predicate.selection(pa.RecordBatch.from_arrays(sides, [SOURCE, TARGET]))


# -- running ---------------------------------------------------------------------------------------------------------


def match_rows(
    state: DatasetState,
    source: SourceRows,
    fit: SourceFit,
    clauses: MergeClauses,
    matches: RowMatches,
    limit_bytes: int,
) -> Plan[str]:
    """Find all matches; returns the join method as text.

    limit_bytes  memory limit of the whole change
    Raises `OperationError` if two source rows match a target row, or if a match is forbidden.
    """
    join = _Join(state, source, fit, clauses, matches, limit_bytes)
    try:
        return (yield from join.run())
    except Collision as collision:
        keys = yield from take_row_addresses(state, np.array([collision.address], np.int64), list(clauses.on))
        shown = ", ".join(f"{name} = {keys.column(name)[0].as_py()}" for name in clauses.on)
        if not collision.is_second:
            raise OperationError(f"Merge insert failed: found matching row with key values: {shown}") from None
        raise OperationError(
            "Ambiguous merge inserts are prohibited: multiple source rows match the same target row on "
            f"({shown}). Please ensure each target row is matched by at most one source row."
        ) from None
    except EvaluationError as error:
        raise OperationError(error.message, path=state.location.uri) from error


def planned_join(num_source_rows: int, num_target_rows: int, row_bytes: tuple[int, int], limit_bytes: int) -> int | str:
    """The join method: "source" or "target" for the build side, or a number of partitions.

    row_bytes  bytes of a source row and of a target row in a hash table
    """
    budget = limit_bytes // 3
    sizes = {"source": num_source_rows * row_bytes[0], "target": num_target_rows * row_bytes[1]}
    smaller = min(sizes, key=lambda side: sizes[side])
    if sizes[smaller] <= budget:
        return smaller
    return min(BUCKETS_MAX, -(-sizes[smaller] // budget) + 1)


class _Join:
    def __init__(
        self,
        state: DatasetState,
        source: SourceRows,
        fit: SourceFit,
        clauses: MergeClauses,
        matches: RowMatches,
        limit_bytes: int,
    ) -> None:
        conditions = matches.conditions
        self._state = state
        self._source = source
        self._fit = fit
        self._on = list(clauses.on)
        self._uses_index = clauses.uses_index
        self._conditions = conditions
        self._matches = matches
        self._limit_bytes = limit_bytes
        self._filters = False
        self._filtered: list[pa.Array] = []  # key column of the source, until its filter is built
        self._filter: SliceFilter | None = None
        self._source_columns = side_columns(conditions.update, SOURCE)
        self._target_columns = side_columns(conditions.update, TARGET)

    def run(self) -> Plan[str]:
        num_rows = int(self._state.physical_rows.sum())
        how = planned_join(self._source.num_rows, num_rows, self._row_bytes(), self._limit_bytes)
        if how == "source":
            self._filters = self._source.num_rows < num_rows // FILTERED_SHARE and not self._matches.needs_rest
            self._filters = self._filters and len(self._on) == 1
            join = JoinOnSource(KeyedRows.joined((yield from self._all_sources())), self._matches)
            wanted, index_name = yield from self._indexed_keys()
            self._filter = None if wanted is not None else key_filter(self._filtered)
            self._filtered.clear()
            yield from self._scan(join.add, wanted)
            join.finish()
            return f"table of the source's keys{'' if wanted is None else f', looked up by index {index_name}'}"
        if how == "target":
            yield from self._on_target()
            return "table of the target's keys"
        assert isinstance(how, int)
        yield from self._partitioned(how)
        return f"{how} partitions"

    def _indexed_keys(self) -> Plan[tuple[Predicate | None, str]]:
        """A filter for the rows of the source's keys, if an index finds them with less to read than a scan; its name.

        Floats are scanned: membership and the keys of a join differ about NaN.
        """
        if not self._filters or not self._uses_index or pt.is_floating(self._type(self._on[0])):
            return None, ""
        if self._source.num_rows * INDEXED_SHARE > int(self._state.physical_rows.sum()):
            return None, ""
        indices = yield from key_indices(self._state, (self._on[0],))
        if not indices:
            return None, ""
        covered = self._state.fragment_indexes_of(list(indices[0].covered))
        if self._source.num_rows * INDEXED_SHARE > int(self._state.physical_rows[covered].sum()):
            return None, ""
        keys = pa.chunked_array(self._filtered, self._type(self._on[0])).unique().drop_null()
        return Predicate(In(Column((self._on[0],)), keys, has_null=False)), indices[0].name

    def _row_bytes(self) -> tuple[int, int]:
        types = [self._state.schema.fields[self._field_index(name)].arrow_type for name in self._on]
        key_bytes = 2 * key_width(types) + TABLE_BYTES + _ROW_BYTES
        source, target = self._source_columns, self._target_columns
        given = self._bytes_of(source)
        if not all(has_fixed_width(self._type(name)) for name in source):
            given = max(given, 2 * self._source.num_bytes // max(1, self._source.num_rows))
        return key_bytes + given, key_bytes + self._bytes_of(target)

    def _type(self, name: str) -> pa.DataType:
        return self._state.schema.fields[self._field_index(name)].arrow_type

    def _field_index(self, name: str) -> int:
        return self._state.schema.names.index(name)

    def _bytes_of(self, names: Sequence[str]) -> int:
        return 2 * int(
            sum(width_bytes(self._state.schema.fields[self._field_index(name)].arrow_type) for name in names)
        )

    # -- the source -------------------------------------------------------------------------------------------------

    def _all_sources(self) -> Plan[list[KeyedRows]]:
        parts: list[KeyedRows] = []
        for start, _, load in self._source.pieces():
            piece = yield from load
            if self._filters:
                keys = self._fit.column(piece, self._on[0])
                # a slice of a spilled piece would keep the whole of it mapped, and so resident
                self._filtered.append(copy_array(keys) if self._source.is_spilled else keys)
            keyed = yield self._compute(partial(self._keyed_source, start, piece), piece)
            parts.append(keyed.kept() if self._source.is_spilled else keyed)
        return parts or [self._keyed_source(0, self._empty_piece())]

    def _empty_piece(self) -> pa.RecordBatch:
        return empty_batch(self._source.schema)

    def _keyed_source(self, start: int, piece: pa.RecordBatch) -> KeyedRows:
        names = [ROW, *(f"{SOURCE}.{name}" for name in self._source_columns)]
        columns = [numbers(np.arange(start, start + piece.num_rows, dtype=np.int64))]
        columns += [self._fit.column(piece, name) for name in self._source_columns]
        keys = [self._fit.column(piece, name) for name in self._on]
        return KeyedRows.of(keys, pa.RecordBatch.from_arrays(columns, names))[0]

    # -- the target -------------------------------------------------------------------------------------------------

    def _scan(self, take: Any, wanted: Predicate | None = None) -> Plan[None]:
        """Scan the target; calls `take` with rows that have keys. wanted: filter of the rows; None for all."""
        state = self._state
        projection = self._target_projection()
        options = scan_options(
            filter=wanted,
            with_row_id=state.has_stable_row_ids,
            with_row_address=True,
            batch_size=self._batch_rows(projection),
            **scan_memory_options(self._limit_bytes),
        )

        def add(batch: pa.RecordBatch) -> Plan[None]:
            yield self._compute(partial(self._add_target, take, batch), batch)

        yield EachInPlan(projected_batches(state, options, projection), add)

    def _batch_rows(self, projection: Projection) -> int:
        width = sum(map(width_bytes, projection.arrow_schema.types))
        return max(1 << 10, min(BATCH_ROWS, int(self._limit_bytes / 32 / max(1.0, width))))

    def _target_projection(self) -> Projection:
        state = self._state
        names = list(dict.fromkeys([*self._on, *self._target_columns]))
        outputs = list(project(state.schema, names).outputs)
        if self._conditions.rest is not None:
            computed = ComputedColumn(self._conditions.rest.expression, pa.bool_())
            outputs.append(OutputColumn(DELETABLE, (), pa.field(DELETABLE, pa.bool_()), computed))
        system = [ROW_ID] if state.has_stable_row_ids else []
        return Projection(tuple(outputs), None).with_system(*system, ROW_ADDRESS)

    def _add_target(self, take: Any, batch: pa.RecordBatch) -> None:
        if self._filter is not None:
            batch = batch.take(passing_rows(self._filter, batch.column(self._on[0])))
        kept = {name: batch.column(name) for name in (ROW_ADDRESS, ROW_ID, DELETABLE) if name in batch.schema.names}
        kept |= {f"{TARGET}.{name}": batch.column(name) for name in self._target_columns}
        columns = pa.RecordBatch.from_arrays(list(kept.values()), list(kept))
        keyed, without = KeyedRows.of([batch.column(name) for name in self._on], columns)
        if without is not None and self._matches.needs_rest:
            self._matches.add_unmatched_targets(without)
        if keyed.columns.num_rows:
            take(keyed)

    def _on_target(self) -> Plan[None]:
        parts: list[KeyedRows] = []
        yield from self._scan(parts.append)
        if not parts:
            return
        join = JoinOnTarget(KeyedRows.joined(parts), self._matches)
        parts.clear()
        for start, _, load in self._source.pieces():
            piece = yield from load
            yield self._compute(lambda start=start, piece=piece: join.add(self._keyed_source(start, piece)), piece)
        join.finish()

    # -- partitioned join ---------------------------------------------------------------------------------------------

    def _partitioned(self, num_partitions: int) -> Plan[None]:
        sides = [Buckets(num_partitions, self._limit_bytes // 12) for _ in range(2)]
        try:
            for start, _, load in self._source.pieces():
                piece = yield from load
                add = lambda start=start, piece=piece: _put(sides[0], self._keyed_source(start, piece))  # noqa: E731
                yield self._compute(add, piece)
            yield from self._scan(partial(_put, sides[1]))
            for partition in range(num_partitions):
                join = partial(self._join_partition, *(side.take(partition) for side in sides))
                yield Compute(join, lambda: self._limit_bytes)
        finally:
            for side in sides:
                side.close()

    def _join_partition(self, source: Iterable[pa.RecordBatch], target: Iterable[pa.RecordBatch]) -> None:
        if self._source.num_rows <= int(self._state.physical_rows.sum()):
            sources = [KeyedRows.unpacked(batch) for batch in source]
            if not sources:
                for batch in target if self._matches.needs_rest else ():
                    self._matches.add_unmatched_targets(KeyedRows.unpacked(batch).columns)
                return
            by_source = JoinOnSource(KeyedRows.joined(sources), self._matches)
            for batch in target:
                by_source.add(KeyedRows.unpacked(batch))
            by_source.finish()
            return
        targets = [KeyedRows.unpacked(batch) for batch in target]
        if not targets:
            for _ in source:  # frees its batches
                pass
            return
        by_target = JoinOnTarget(KeyedRows.joined(targets), self._matches)
        for batch in source:
            by_target.add(KeyedRows.unpacked(batch))
        by_target.finish()

    def _compute(self, work: Any, batch: pa.RecordBatch) -> Compute[Any]:
        return Compute(work, partial(getattr, batch, "nbytes"))


def _put(side: Buckets, rows: KeyedRows) -> None:
    side.add(rows.packed(), partitions(rows.keys, side.num_buckets))
