"""Random access: chosen rows by position, row id or address, in the order asked, repetitions included.

    rows asked for -> (place of the fragment, offset) -> each fragment's rows once and ascending -> one read of all
    columns and fragments -> one permutation per column, if the order asks for it

Everything is an array; no Python object exists per row.
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
from lance_io.lazy_names import later
from lance_io.levels.arrays import numbers
from lance_io.levels.join import TooManyValues
from lance_io.levels.layout import BatchLayout
from lance_io.levels.retype import batch_as, concat
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.plan import Call, Import
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_starts, load_row_columns, load_row_id_index
from lance_io.reads.rows.item_columns import items_of_rows, split_items
from lance_io.reads.rows.read_rows import RowReader
from lance_io.reads.rows.rebatch import empty_columns
from lance_io.reads.rows.row_arithmetic import (
    OFFSET_BITS,
    OFFSET_MASK,
    Grouped,
    group_by_fragment,
    group_rows,
    halves_of,
)
from lance_io.reads.takes.ordered_pieces import OrderedPieces, reordered
from lance_io.reads.version.column_lists import (
    COMPILER,
    Prepared,
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
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

    Groups = tuple[tuple[int, IntArray], ...]
else:
    blob_values = later("lance_io.reads.blobs.blob_values")


_SHARED: Final[PerSchema[Prepared]] = PerSchema("takes of its columns")


class RowNotFound(StoreError, UsageError):
    """A row was asked for that the table does not have."""


class RowDeleted(RowNotFound, NotImplementedError):
    """A row was asked for by an address where one was deleted; pylance says that it does not support that."""


def take_positions(state: DatasetState, indices: Any, columns: Selection) -> Plan[pa.Table]:
    """Rows by their position among the rows that are left.

    indices  numbers in any order, repetitions allowed
    Raises `OverflowError` for a negative number and `OSError` for one that is too large.
    """
    grouped = yield from group_positions(state, row_numbers(indices))
    prepared = yield from prepare_columns(state, columns)
    return (yield from take_grouped(state, grouped, prepared))


def warm(state: DatasetState, columns: Selection) -> Plan[None]:
    """Load what takes of these columns need besides their rows, as far as the search cache goes."""
    prepared = yield from prepare_columns(state, columns)
    yield from load_live_starts(state)
    yield from load_live(state, [place for place in state.all_places if state.has_deletions[place]])
    if state.has_stable_row_ids:
        yield from load_row_id_index(state)
    if prepared.reader is not None:
        yield from prepared.reader.warm(state.all_places)


def take_row_ids(state: DatasetState, row_ids: Any, columns: Selection) -> Plan[pa.Table]:
    """Rows by row id; ids of deleted rows are left out, the others keep their order.

    Raises `OSError` for an address outside of every fragment (in a table without stable row ids).
    """
    numbers = row_numbers(row_ids)
    places, offsets = yield from locate_row_ids(state, numbers)
    found = places >= 0
    if not found.all():
        places, offsets = places[found], offsets[found]
    prepared = yield from prepare_columns(state, columns)
    return (yield from take_grouped(state, group_rows(places, offsets), prepared))


def take_row_addresses(state: DatasetState, addresses: IntArray, columns: Selection) -> Plan[pa.Table]:
    """Rows that are left, by address. Raises `OSError` for an address outside of every fragment."""
    places, offsets = yield from locate_addresses(state, addresses)
    prepared = yield from prepare_columns(state, columns)
    return (yield from take_grouped(state, group_rows(places, offsets), prepared))


def group_positions(state: DatasetState, positions: IntArray) -> Plan[Grouped]:
    """Rows given by position, grouped by fragment for reading. Raises `OSError` for a position that is too large."""
    starts = yield from load_live_starts(state)
    grouped = group_by_fragment(positions, starts)
    if grouped is None:
        last, num_rows = int(positions.max()), int(starts[-1])
        raise RowNotFound(f"row {last} was asked for, the table has {num_rows} rows", path=state.location.uri)
    touched = [place for place, _ in grouped.groups if state.has_deletions[place]]
    if not touched:
        return grouped
    live = yield from load_live(state, touched)  # positions and offsets of a fragment have the same order
    groups = tuple((p, live[p].offsets(within) if p in live else within) for p, within in grouped.groups)
    return Grouped(groups, grouped.restore)


def locate_addresses(state: DatasetState, addresses: IntArray) -> Plan[tuple[IntArray, IntArray]]:
    """`(places, offsets)` of rows given by address; both -1 for a deleted row."""
    fragment_ids, offsets = addresses >> OFFSET_BITS, addresses & OFFSET_MASK
    places = state.places_of(fragment_ids)
    if len(places) and (places < 0).any():
        bad = int(np.flatnonzero(places < 0)[0])
        raise RowNotFound(
            f"row address {int(addresses[bad])} belongs to non-existent fragment: {int(fragment_ids[bad])}",
            path=state.location.uri,
        )
    sizes = state.physical_rows[places]
    if (offsets >= sizes).any():
        bad = int(np.flatnonzero(offsets >= sizes)[0])
        raise RowNotFound(
            f"row address {int(addresses[bad])}: fragment {int(fragment_ids[bad])} has {int(sizes[bad])} rows",
            path=state.location.uri,
        )
    touched = [place for place in distinct(places).tolist() if state.has_deletions[place]]
    live = yield from load_live(state, touched)
    gone = np.zeros(len(places), dtype=np.bool_)
    for place in touched:
        here = places == place
        gone[here] = live[place].is_deleted(offsets[here])
    return np.where(gone, -1, places), np.where(gone, -1, offsets)


def locate_row_ids(state: DatasetState, row_ids: IntArray) -> Plan[tuple[IntArray, IntArray]]:
    """`(places, offsets)` of rows given by row id; both -1 for an id that no row has (any more)."""
    if not state.has_stable_row_ids:
        return (yield from locate_addresses(state, row_ids))
    index = yield from load_row_id_index(state)
    unsigned, found = index.lookup(row_ids.astype(np.uint64))
    addresses = unsigned.astype(np.int64)  # a fragment id above 31 bits gives a negative one, which is refused below
    places = np.full(len(row_ids), -1, dtype=np.int64)
    offsets = np.full(len(row_ids), -1, dtype=np.int64)
    places[found], offsets[found] = yield from locate_addresses(state, addresses[found])
    return places, offsets


@dataclass(frozen=True, slots=True)
class TakeColumns:
    """What follows for takes from a table's schema and the columns that are wanted.

    projection      output columns
    schema          their Arrow schema
    names           top-level columns read, in the order of the reader's arrays
    reads           their leaves; None when only system columns are wanted
    has_binaries    blob columns are wanted as binary
    layout          of a batch of the columns read, where that is the result as it stands
    items           of which leaves only some items of each list are read: `split_items`
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
        """What follows for these output columns."""
        projection, items = split_items(state.schema, projection)
        fields = state.pruned_fields(projection.data_paths)
        schema = projection.arrow_schema
        names = tuple(one.name for one in fields)
        reads = FileProjection(fields) if fields else None
        has_binaries = _binaries(state, projection) is not None
        is_as_read = projection.plain_names == list(names) and not (has_binaries or projection.is_retyped)
        is_as_read = is_as_read and reads is not None and schema.types == [one.arrow_type for one in reads.fields]
        layout = BatchLayout.of(schema) if is_as_read else None
        return cls(projection, schema, names, reads, has_binaries, layout, items)


@dataclass(frozen=True, slots=True)
class PreparedTake:
    """What every take of the same columns of a version shares.

    reader  reads the columns; None when only system columns are wanted
    """

    columns: TakeColumns
    reader: RowReader | None


def prepare(state: DatasetState, projection: Projection) -> PreparedTake:
    """What takes of these columns share."""
    return _with_reader(state, TakeColumns.of(state, projection))


def _with_reader(state: DatasetState, columns: TakeColumns) -> PreparedTake:
    return PreparedTake(columns, None if columns.reads is None else RowReader(state, columns.reads.again()))


def prepare_columns(state: DatasetState, columns: Any, blob_handling: str | None = None) -> Plan[PreparedTake]:
    """The same for a column list, remembered from one take to the next."""
    columns = as_list(columns)
    key = ("take", blob_handling, columns_key(columns))
    found: PreparedTake | None = state.prepared.get(key)
    if found is None:
        if isinstance(columns, dict):
            yield Import(COMPILER)
        found = _with_reader(state, _columns(state, key, columns, blob_handling))
        state.prepared.put(key, found)
    return found


def _columns(state: DatasetState, key: Any, columns: Any, blob_handling: str | None) -> TakeColumns:
    """What a column list means in the version's schema, remembered with that: most versions share one."""
    shared = _SHARED.get(state.schema) or _SHARED.keep(state.schema, Prepared())
    found: TakeColumns | None = shared.get(key)
    if found is None:
        found = TakeColumns.of(state, state.shown(project_taken(state.schema, columns), blob_handling))
        shared.put(key, found)
    return found


def take_grouped(
    state: DatasetState, grouped: Grouped, take: PreparedTake, items: Sequence[Mapping[int, IntArray]] | None = None
) -> Plan[pa.Table]:
    """The rows of `grouped`, in the order in which they were asked for.

    Several batches where they are many bytes, or where a dictionary column has more values than indices tell apart.

    items  of each group, where the lists are to hold single items of the rows: `TableReader.pieces`
    """
    try:
        return (yield from _take_at_once(state, grouped, take, items))
    except TooManyValues:
        if grouped.num_asked < 2 or items is not None:
            raise
    first, second = halves_of(grouped)  # are read by themselves: their values are fewer
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
        items = items_of_rows(prepared.items, [len(offsets) for _, offsets in grouped.groups])
    pieces = take.reader.pieces(grouped.groups, prepared.layout, items)
    num_rows, taken = yield from take.reader.read_piece(pieces)
    if num_rows == sum([len(offsets) for _, offsets in grouped.groups]):
        batch = yield from _as_batch(state, prepared, grouped.groups, taken)
        if grouped.restore is None:
            return pa.Table.from_batches([batch], schema=schema)
        found: list[pa.RecordBatch] = yield Compute(
            partial(reordered, batch, grouped.restore), batch.get_total_buffer_size
        )
        return pa.Table.from_batches(found, schema=schema)
    first, taken = [(num_rows, taken)], []  # the frame of this call holds no piece
    return pa.Table.from_batches((yield from _take_rest(state, grouped, take, pieces, first)), schema=schema)


def _take_rest(
    state: DatasetState,
    grouped: Grouped,
    take: PreparedTake,
    pieces: PiecewiseTake,
    first: list[tuple[int, Taken]],
) -> Plan[list[pa.RecordBatch]]:
    """The same from the first piece on.

    first  its number of rows, and them; emptied, so that the piece is freed as soon as it is used
    """
    assert take.reader is not None
    ordered = None if grouped.restore is None else OrderedPieces(grouped.restore)
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
        del taken, batch  # before there is more
        num_rows, taken = (0, []) if start == grouped.num_rows else (yield from take.reader.read_piece(pieces))
    if ordered is None:
        return batches
    batches = yield Compute(lambda: list(ordered.batches()), lambda: PIECE_BYTES)
    return batches


def _some_rows(groups: Groups, start: int, end: int) -> Groups:
    """The rows `start` to `end` of all groups."""
    found, before = [], 0
    for place, offsets in groups:
        part = offsets[max(0, start - before) : max(0, end - before)]
        before += len(offsets)
        if len(part):
            found.append((place, part))
    return tuple(found)


def _as_batch(state: DatasetState, prepared: TakeColumns, groups: Groups, taken: Taken) -> Plan[pa.RecordBatch]:
    if isinstance(taken, pa.RecordBatch):
        return taken
    return (yield from _output_batch(state, prepared, groups, taken, sum([len(offsets) for _, offsets in groups])))


def _output_batch(
    state: DatasetState, prepared: TakeColumns, groups: Groups, arrays: Sequence[pa.Array], num_asked: int
) -> Plan[pa.RecordBatch]:
    """The output columns of what was read; where there are none, as many rows as were asked for."""
    columns = dict(zip(prepared.names, arrays, strict=True))
    binaries = _binaries(state, prepared.projection) if prepared.has_binaries else None
    if binaries is not None:
        yield from binaries.replace(columns, [(place, len(offsets)) for place, offsets in groups])
    yield from _add_system(state, prepared.projection, groups, columns)
    if not prepared.projection.outputs:
        return empty_columns(num_asked, prepared.schema)
    names = prepared.projection.plain_names
    if names is None:
        num_rows = sum(len(offsets) for _, offsets in groups)
        chosen = [one.values(columns, num_rows) for one in prepared.projection.outputs]
    else:
        chosen = [columns[name] for name in names]
    return batch_as(chosen, prepared.schema, retype=prepared.projection.is_retyped)


def _add_system(
    state: DatasetState, projection: Projection, groups: Groups, columns: dict[str, pa.Array]
) -> Plan[None]:
    names = projection.system_names
    if not names:
        return
    row_columns = yield from load_row_columns(state, [place for place, _ in groups], names)
    for name in names:
        columns[name] = concat([row_columns.make(name, place, offsets) for place, offsets in groups])


def sample(state: DatasetState, num_rows: int, columns: Selection, *, randomize_order: bool) -> Plan[pa.Table]:
    """See `LanceDataset.sample`; on a loop a thread draws."""
    starts = yield from load_live_starts(state)
    draw = partial(sample_positions, num_rows, int(starts[-1]), randomize_order=randomize_order)
    positions: Sequence[int] = yield Call(draw, cpu_pool())
    return (yield from take_positions(state, positions, columns))


def sample_positions(num_rows: int, population: int, *, randomize_order: bool) -> Sequence[int]:
    """Positions of a random sample without repetitions. Raises `ValueError` when it is larger than the table."""
    import random

    chosen = random.sample(range(population), num_rows)
    return chosen if randomize_order else sorted(chosen)


def _binaries(state: DatasetState, projection: Projection) -> BlobBinaries | None:
    """What reads the blobs that are to come as bytes, if there are any."""
    if not state.schema.has_blobs:
        return None

    return blob_values.wanted_binaries(state, projection)


def take_fragment_positions(state: DatasetState, place: int, positions: IntArray, columns: Selection) -> Plan[pa.Table]:
    """Rows of one fragment by position among its rows that are left.

    Blobs of the first kind come as bytes, as from the reader of a file, and as in pylance; others as descriptions.

    positions  ascending, repetitions allowed
    Raises `OSError` when they do not ascend or lie outside of the fragment.
    """
    if len(positions) > 1 and (positions[1:] < positions[:-1]).any():
        raise RowNotFound("Requested row indices are not strictly increasing", path=state.location.uri)
    live = (yield from load_live(state, [place]))[place]
    if len(positions) and int(positions[-1]) >= live.num_live:
        raise RowNotFound(
            f"row {int(positions[-1])} was asked for, fragment {state.fragment_ids[place]} has {live.num_live} rows",
            path=state.location.uri,
        )
    places = np.full(len(positions), place, dtype=np.int64)
    has_first_kind = state.schema.has_blobs and any(field.is_blob for field in state.schema.walk())
    prepared = yield from prepare_columns(state, columns, "all_binary" if has_first_kind else None)
    return (yield from take_grouped(state, group_rows(places, live.offsets(positions)), prepared))
