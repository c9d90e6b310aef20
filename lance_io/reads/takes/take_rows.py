"""Random access: chosen rows by position, row id or address, in the requested order with repetitions.

    requested rows -> (fragment index, offset) -> distinct ascending rows of each fragment -> one read of all columns
    and fragments -> one permutation per column, if the order needs it

All steps work on arrays; no Python object exists per row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import StoreError, UsageError
from lance_io.file.open.leaf_projection import Projection as FileProjection
from lance_io.file.row_indices import row_numbers
from lance_io.file.take.take_pieces import PIECE_BYTES
from lance_io.format.per_schema import PerSchema
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import numbers
from lance_io.levels.join import TooManyValues
from lance_io.levels.layout import BatchLayout
from lance_io.levels.retype import batch_as, concat
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.plan import Call, Import
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_starts, load_row_columns, load_row_id_index
from lance_io.reads.rows.read_rows import RowReader
from lance_io.reads.rows.row_arithmetic import (
    OFFSET_BITS,
    OFFSET_MASK,
    Grouped,
    group_by_fragment,
    group_rows,
    halves_of,
)
from lance_io.reads.version.column_lists import (
    COMPILER,
    PreparedCache,
    Projection,
    Selection,
    as_list,
    columns_key,
    project_taken,
)
from lance_io.records import dataclass
from lance_io.runtime import cpu_pool
from lance_io.spans import distinct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.file.take.take_files import Taken
    from lance_io.file.take.take_pieces import PiecewiseTake
    from lance_io.plans.plan import Plan
    from lance_io.reads.blobs import blob_values
    from lance_io.reads.blobs.blob_values import BlobBinaries
    from lance_io.reads.rows import item_columns, rebatch
    from lance_io.reads.takes import ordered_pieces
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    Groups = tuple[tuple[int, IntArray], ...]
else:
    blob_values = lazy_module("lance_io.reads.blobs.blob_values")
    item_columns = lazy_module("lance_io.reads.rows.item_columns")  # for expressions
    rebatch = lazy_module("lance_io.reads.rows.rebatch")  # for rows without columns
    ordered_pieces = lazy_module("lance_io.reads.takes.ordered_pieces")  # for rows out of order


_SHARED: Final[PerSchema[PreparedCache]] = PerSchema("takes of its columns")


class RowNotFound(StoreError, UsageError):
    """A requested row that the table does not have."""


class RowDeleted(RowNotFound, NotImplementedError):
    """A deleted row requested by address, which pylance reports as not supported."""


def take_positions(state: DatasetState, indices: Any, columns: Selection) -> Plan[pa.Table]:
    """Rows by position among live rows.

    indices  numbers in any order, repetitions allowed
    Raises `OverflowError` for a negative number and `OSError` for one that is too large.
    """
    grouped = yield from group_positions(state, row_numbers(indices))
    prepared = yield from prepare_columns(state, columns)
    return (yield from take_grouped(state, grouped, prepared))


def warm(state: DatasetState, columns: Selection) -> Plan[None]:
    """Load everything but rows that takes of these columns need, as far as the search cache allows."""
    prepared = yield from prepare_columns(state, columns)
    yield from load_live_starts(state)
    yield from load_live(
        state, [fragment_index for fragment_index in state.all_fragment_indexes if state.has_deletions[fragment_index]]
    )
    if state.has_stable_row_ids:
        yield from load_row_id_index(state)
    if prepared.reader is not None:
        yield from prepared.reader.warm(state.all_fragment_indexes)


def take_row_ids(state: DatasetState, row_ids: Any, columns: Selection) -> Plan[pa.Table]:
    """Rows by row id; ids of deleted rows are left out, the others keep their order.

    Raises `OSError` for an address outside of every fragment (in a table without stable row ids).
    """
    numbers = row_numbers(row_ids)
    fragment_indexes, offsets = yield from locate_row_ids(state, numbers)
    exists = fragment_indexes >= 0
    if not exists.all():
        fragment_indexes, offsets = fragment_indexes[exists], offsets[exists]
    prepared = yield from prepare_columns(state, columns)
    return (yield from take_grouped(state, group_rows(fragment_indexes, offsets), prepared))


def take_row_addresses(state: DatasetState, addresses: IntArray, columns: Selection) -> Plan[pa.Table]:
    """Rows that are left, by address. Raises `OSError` for an address outside of every fragment."""
    fragment_indexes, offsets = yield from locate_addresses(state, addresses)
    prepared = yield from prepare_columns(state, columns)
    return (yield from take_grouped(state, group_rows(fragment_indexes, offsets), prepared))


def group_positions(state: DatasetState, positions: IntArray) -> Plan[Grouped]:
    """Rows given by position, grouped by fragment for reading. Raises `OSError` for a position that is too large."""
    starts = yield from load_live_starts(state)
    grouped = group_by_fragment(positions, starts)
    if grouped is None:
        last, num_rows = int(positions.max()), int(starts[-1])
        raise RowNotFound(f"row {last} does not exist, the table has {num_rows} rows", path=state.location.uri)
    touched = [fragment_index for fragment_index, _ in grouped.groups if state.has_deletions[fragment_index]]
    if not touched:
        return grouped
    live = yield from load_live(state, touched)  # positions and offsets of a fragment have the same order
    groups = tuple((p, live[p].offsets(within) if p in live else within) for p, within in grouped.groups)
    return Grouped(groups, grouped.restore)


def locate_addresses(state: DatasetState, addresses: IntArray) -> Plan[tuple[IntArray, IntArray]]:
    """`(fragment indexes, offsets)` of rows given by address; both -1 for a deleted row."""
    fragment_ids, offsets = addresses >> OFFSET_BITS, addresses & OFFSET_MASK
    fragment_indexes = state.find_fragment_indexes(fragment_ids)
    if len(fragment_indexes) and (fragment_indexes < 0).any():
        bad = int(np.flatnonzero(fragment_indexes < 0)[0])
        raise RowNotFound(
            f"row address {int(addresses[bad])} belongs to non-existent fragment: {int(fragment_ids[bad])}",
            path=state.location.uri,
        )
    sizes = state.physical_rows[fragment_indexes]
    if (offsets >= sizes).any():
        bad = int(np.flatnonzero(offsets >= sizes)[0])
        raise RowNotFound(
            f"row address {int(addresses[bad])}: fragment {int(fragment_ids[bad])} has {int(sizes[bad])} rows",
            path=state.location.uri,
        )
    touched = [
        fragment_index for fragment_index in distinct(fragment_indexes).tolist() if state.has_deletions[fragment_index]
    ]
    live = yield from load_live(state, touched)
    gone = np.zeros(len(fragment_indexes), dtype=np.bool_)
    for fragment_index in touched:
        here = fragment_indexes == fragment_index
        gone[here] = live[fragment_index].is_deleted(offsets[here])
    return np.where(gone, -1, fragment_indexes), np.where(gone, -1, offsets)


def locate_row_ids(state: DatasetState, row_ids: IntArray) -> Plan[tuple[IntArray, IntArray]]:
    """`(fragment indexes, offsets)` of rows given by row id; both -1 for an unknown id."""
    if not state.has_stable_row_ids:
        return (yield from locate_addresses(state, row_ids))
    index = yield from load_row_id_index(state)
    unsigned, exists = index.lookup(row_ids.astype(np.uint64))
    # fragment ids above 31 bits lead to negative addresses, which are refused below
    addresses = unsigned.astype(np.int64)
    fragment_indexes = np.full(len(row_ids), -1, dtype=np.int64)
    offsets = np.full(len(row_ids), -1, dtype=np.int64)
    fragment_indexes[exists], offsets[exists] = yield from locate_addresses(state, addresses[exists])
    return fragment_indexes, offsets


@dataclass(frozen=True, slots=True)
class TakeColumns:
    """The consequences of a column list for takes.

    projection      output columns
    schema          their Arrow schema
    names           top-level columns read, in the order of the reader's arrays
    reads           their leaves; None if only system columns are read
    has_binaries    blob columns come as binary
    layout          layout of a batch of the columns read; None if that batch is not yet the result
    items           leaves of which only some items of each list are read: `split_items`
    """

    projection: Projection
    schema: pa.Schema
    names: tuple[str, ...]
    reads: FileProjection | None
    has_binaries: bool
    layout: BatchLayout | None
    items: Mapping[int, IntArray]

    @classmethod
    def of(cls, state: DatasetState, projection: Projection) -> TakeColumns:
        """The consequences of these output columns."""
        items: Mapping[int, IntArray] = {}
        if any([output.computed is not None for output in projection.outputs]):
            projection, items = item_columns.split_items(state.schema, projection)
        fields = state.pruned_fields(projection.data_paths)
        schema = projection.arrow_schema
        names = tuple(field.name for field in fields)
        reads = FileProjection(fields) if fields else None
        has_binaries = _binaries(state, projection) is not None
        is_as_read = projection.plain_names == list(names) and not (has_binaries or projection.is_retyped)
        is_as_read = is_as_read and reads is not None and schema.types == [field.arrow_type for field in reads.fields]
        layout = BatchLayout.of(schema) if is_as_read else None
        return cls(projection, schema, names, reads, has_binaries, layout, items)


@dataclass(frozen=True, slots=True)
class PreparedTake:
    """Shared by all takes of the same columns of a version.

    reader  reads the columns; None if only system columns are read
    """

    columns: TakeColumns
    reader: RowReader | None


def prepare(state: DatasetState, projection: Projection) -> PreparedTake:
    """Prepare takes of these columns."""
    return _with_reader(state, TakeColumns.of(state, projection))


def _with_reader(state: DatasetState, columns: TakeColumns) -> PreparedTake:
    return PreparedTake(columns, None if columns.reads is None else RowReader(state, columns.reads.again()))


def prepare_columns(state: DatasetState, columns: Any, blob_handling: str | None = None) -> Plan[PreparedTake]:
    """Prepare takes of a column list; the result is cached."""
    columns = as_list(columns)
    key = ("take", blob_handling, columns_key(columns))
    prepared: PreparedTake | None = state.prepared.get(key)
    if prepared is None:
        if isinstance(columns, dict):
            yield Import(COMPILER)
        prepared = _with_reader(state, _columns(state, key, columns, blob_handling))
        state.prepared.put(key, prepared)
    return prepared


def _columns(state: DatasetState, key: Any, columns: Any, blob_handling: str | None) -> TakeColumns:
    """The meaning of a column list in the version's schema, cached with the schema, which most versions share."""
    shared = _SHARED.get(state.schema) or _SHARED.keep(state.schema, PreparedCache())
    take_columns: TakeColumns | None = shared.get(key)
    if take_columns is None:
        take_columns = TakeColumns.of(state, state.shown(project_taken(state.schema, columns), blob_handling))
        shared.put(key, take_columns)
    return take_columns


def take_grouped(
    state: DatasetState, grouped: Grouped, take: PreparedTake, items: Sequence[Mapping[int, IntArray]] | None = None
) -> Plan[pa.Table]:
    """The rows of `grouped`, in the requested order.

    Returns several batches if they are many bytes, or if a dictionary column has more values than its indices can tell
    apart.

    items  of each group, if lists hold only single items of the rows: `TableReader.pieces`
    """
    try:
        return (yield from _take_at_once(state, grouped, take, items))
    except TooManyValues:
        if grouped.num_asked < 2 or items is not None:
            raise
    first, second = halves_of(grouped)  # each half has fewer dictionary values
    taken = yield from take_grouped(state, first, take)
    return pa.concat_tables([taken, (yield from take_grouped(state, second, take))])


def _take_at_once(
    state: DatasetState, grouped: Grouped, take: PreparedTake, items: Sequence[Mapping[int, IntArray]] | None
) -> Plan[pa.Table]:
    prepared, schema = take.columns, take.columns.schema
    if not grouped.groups:
        return pa.Table.from_batches([], schema=schema)  # empty_table() lacks nested extension types
    if take.reader is None:
        batch = yield from _output_batch(state, prepared, grouped.groups, [], grouped.num_asked)
        ordered = grouped.restore if len(schema) else None
        return pa.Table.from_batches([batch] if ordered is None else [batch.take(numbers(ordered))], schema=schema)
    if prepared.items:
        items = item_columns.items_of_rows(prepared.items, [len(offsets) for _, offsets in grouped.groups])
    pieces = take.reader.pieces(grouped.groups, prepared.layout, items)
    num_rows, taken = yield from take.reader.read_piece(pieces)
    if pieces.is_done:
        batch = taken
        if not isinstance(taken, pa.RecordBatch):
            batch = yield from _as_batch(state, prepared, grouped.groups, taken)
        if grouped.restore is None:
            return pa.Table.from_batches([batch], schema=schema)
        batches: list[pa.RecordBatch] = yield Compute(
            partial(ordered_pieces.reordered, batch, grouped.restore), batch.get_total_buffer_size
        )
        return pa.Table.from_batches(batches, schema=schema)
    first, taken = [(num_rows, taken)], []  # this frame must not hold the piece
    return pa.Table.from_batches((yield from _take_rest(state, grouped, take, pieces, first)), schema=schema)


def _take_rest(
    state: DatasetState,
    grouped: Grouped,
    take: PreparedTake,
    pieces: PiecewiseTake,
    first: list[tuple[int, Taken]],
) -> Plan[list[pa.RecordBatch]]:
    """The rows from the first piece on.

    first  its number of rows, and them; emptied, so that the piece is freed right after use
    """
    assert take.reader is not None
    ordered = None if grouped.restore is None else ordered_pieces.OrderedPieces(grouped.restore)
    batches: list[pa.RecordBatch] = []
    start = 0
    num_rows, taken = first.pop()
    while num_rows:
        batch = yield from _as_batch(state, take.columns, _some_rows(grouped.groups, start, start + num_rows), taken)
        start += num_rows
        if ordered is None:
            batches.append(batch)
        else:
            yield Compute(partial(ordered.add, batch), batch.get_total_buffer_size)
        del taken, batch  # freed before the next piece is read
        num_rows, taken = (0, []) if start == grouped.num_rows else (yield from take.reader.read_piece(pieces))
    if ordered is None:
        return batches
    batches = yield Compute(lambda: list(ordered.batches()), lambda: PIECE_BYTES)
    return batches


def _some_rows(groups: Groups, start: int, end: int) -> Groups:
    """The rows `start` to `end` of all groups."""
    parts, before = [], 0
    for fragment_index, offsets in groups:
        part = offsets[max(0, start - before) : max(0, end - before)]
        before += len(offsets)
        if len(part):
            parts.append((fragment_index, part))
    return tuple(parts)


def _as_batch(state: DatasetState, prepared: TakeColumns, groups: Groups, taken: Taken) -> Plan[pa.RecordBatch]:
    if isinstance(taken, pa.RecordBatch):
        return taken
    return (yield from _output_batch(state, prepared, groups, taken, sum([len(offsets) for _, offsets in groups])))


def _output_batch(
    state: DatasetState, prepared: TakeColumns, groups: Groups, arrays: Sequence[pa.Array], num_asked: int
) -> Plan[pa.RecordBatch]:
    """The output columns of arrays that were read; without columns, a batch of `num_asked` rows."""
    columns = dict(zip(prepared.names, arrays, strict=True))
    binaries = _binaries(state, prepared.projection) if prepared.has_binaries else None
    if binaries is not None:
        yield from binaries.replace(columns, [(fragment_index, len(offsets)) for fragment_index, offsets in groups])
    yield from _add_system(state, prepared.projection, groups, columns)
    if not prepared.projection.outputs:
        return rebatch.empty_columns(num_asked, prepared.schema)
    names = prepared.projection.plain_names
    if names is None:
        num_rows = sum(len(offsets) for _, offsets in groups)
        chosen = [output.values(columns, num_rows) for output in prepared.projection.outputs]
    else:
        chosen = [columns[name] for name in names]
    return batch_as(chosen, prepared.schema, retype=prepared.projection.is_retyped)


def _add_system(
    state: DatasetState, projection: Projection, groups: Groups, columns: dict[str, pa.Array]
) -> Plan[None]:
    names = projection.system_names
    if not names:
        return
    row_columns = yield from load_row_columns(state, [fragment_index for fragment_index, _ in groups], names)
    for name in names:
        columns[name] = concat([row_columns.make(name, fragment_index, offsets) for fragment_index, offsets in groups])


def sample(state: DatasetState, num_rows: int, columns: Selection, *, randomize_order: bool) -> Plan[pa.Table]:
    """See `LanceDataset.sample`; on a loop a thread draws."""
    starts = yield from load_live_starts(state)
    draw = partial(sample_positions, num_rows, int(starts[-1]), randomize_order=randomize_order)
    positions: Sequence[int] = yield Call(draw, cpu_pool())
    return (yield from take_positions(state, positions, columns))


def sample_positions(num_rows: int, population: int, *, randomize_order: bool) -> Sequence[int]:
    """Positions of a random sample without repetitions. Raises `ValueError` if it is larger than the table."""
    import random

    chosen = random.sample(range(population), num_rows)
    return chosen if randomize_order else sorted(chosen)


def _binaries(state: DatasetState, projection: Projection) -> BlobBinaries | None:
    """Reader of the blobs that come as bytes; None if there are none."""
    if not state.schema.has_blobs:
        return None

    return blob_values.wanted_binaries(state, projection)


def take_fragment_positions(
    state: DatasetState, fragment_index: int, positions: IntArray, columns: Selection
) -> Plan[pa.Table]:
    """Rows of one fragment by position among its live rows.

    Blobs of version 1 come as bytes, like from a file reader and as in pylance; others as descriptions.

    positions  ascending, repetitions allowed
    Raises `OSError` if they do not ascend or lie outside of the fragment.
    """
    if len(positions) > 1 and (positions[1:] < positions[:-1]).any():
        raise RowNotFound("Requested row indices are not strictly increasing", path=state.location.uri)
    live = (yield from load_live(state, [fragment_index]))[fragment_index]
    if len(positions) and int(positions[-1]) >= live.num_live:
        raise RowNotFound(
            f"row {int(positions[-1])} does not exist, fragment {state.fragment_ids[fragment_index]} has "
            f"{live.num_live} rows",
            path=state.location.uri,
        )
    fragment_indexes = np.full(len(positions), fragment_index, dtype=np.int64)
    has_first_kind = state.schema.has_blobs and any(field.is_blob for field in state.schema.walk())
    prepared = yield from prepare_columns(state, columns, "all_binary" if has_first_kind else None)
    return (yield from take_grouped(state, group_rows(fragment_indexes, live.offsets(positions)), prepared))
