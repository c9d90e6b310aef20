"""Fragment data loaded on demand: deletion vectors, stable row ids, the index over them.

All of it lives in the session's search cache, keyed by its object, so that versions and datasets share it. Concurrent
requests share one load (single flight).
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lance_io.errors import FormatError, LanceError
from lance_io.format.schema import LINEAGE_NAMES, Field
from lance_io.gil import MANY, yielding
from lance_io.io.cache import CacheHit, ClaimAbandoned, LoadOwner
from lance_io.lazy_names import lazy_module
from lance_io.plans.plan import Together, Wait
from lance_io.plans.store_requests import Read
from lance_io.reads.rows.row_arithmetic import LiveRows, live_starts
from lance_io.reads.version.system_columns import CREATED_AT, ROW_ID, ROW_OFFSET, UPDATED_AT
from lance_io.table.manifest.fragment import CREATED_AT_FIELD, ROW_IDS_FIELD, UPDATED_AT_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lance_io.io.cache import Key, SearchCache
    from lance_io.plans.plan import Plan
    from lance_io.reads.rows import read_rows, row_columns
    from lance_io.reads.rows.row_arithmetic import UIntArray
    from lance_io.reads.rows.row_columns import Lineage, RowColumns
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest import deletion_file, row_ids
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.row_ids import RowIdIndex
else:
    read_rows = lazy_module("lance_io.reads.rows.read_rows")
    row_columns = lazy_module("lance_io.reads.rows.row_columns")  # for system columns
    deletion_file = lazy_module("lance_io.table.manifest.deletion_file")  # few fragments have deleted rows
    row_ids = lazy_module("lance_io.table.manifest.row_ids")  # few tables have stable row ids

T = TypeVar("T")


def load_cached(cache: SearchCache, key: Key, load: Callable[[], Plan[tuple[T, int]]]) -> Plan[T]:
    """The cached value of `key`, or the `(value, bytes)` of `load`; concurrent callers share one load."""
    while True:
        claim = cache.claim(key)
        if isinstance(claim, CacheHit):
            return claim.value  # type: ignore[no-any-return]
        if isinstance(claim, LoadOwner):
            try:
                value, num_bytes = yield from load()
            except LanceError as error:
                claim.abandon(error)
                raise
            except BaseException:
                claim.abandon()
                raise
            claim.fulfil(value, num_bytes)
            return value
        try:
            loaded: T = yield Wait(claim.future)
            return loaded
        except (ClaimAbandoned, CancelledError):
            continue  # the loading call gave up: retry


# -- deletions -------------------------------------------------------------------------------------------------------


def load_live(state: DatasetState, fragment_indexes: Sequence[int]) -> Plan[dict[int, LiveRows]]:
    """Live rows of these fragments; reads their deletion files concurrently."""
    rows = state.physical_rows[list(fragment_indexes)].tolist()
    turns = iter if len(fragment_indexes) < MANY else yielding
    has_file = [state.has_deletions[fragment_index] for fragment_index in turns(fragment_indexes)]
    whole = {count: LiveRows(count) for count in set(rows)}  # most fragments of a table share few row counts
    live = {
        fragment_index: whole[count]
        for fragment_index, count, is_partial in turns(zip(fragment_indexes, rows, has_file, strict=True))
        if not is_partial
    }
    with_files = [
        fragment_index for fragment_index, is_partial in zip(fragment_indexes, has_file, strict=True) if is_partial
    ]
    if with_files:
        vectors: list[IntArray] = yield Together(
            [_load_deleted(state, fragment_index) for fragment_index in with_files]
        )
        for fragment_index, deleted in zip(with_files, vectors, strict=True):
            live[fragment_index] = LiveRows(int(state.physical_rows[fragment_index]), deleted)
    return live


def _load_deleted(state: DatasetState, fragment_index: int) -> Plan[IntArray]:
    fragment = state.manifest.fragments[fragment_index]
    file = fragment.deletion_file
    assert file is not None
    stored_object = state.object_keys.deletion_object(fragment)
    store, key = stored_object.store, stored_object.key

    def load() -> Plan[tuple[IntArray, int]]:
        data = yield Read(store, key)
        try:
            offsets = deletion_file.decode_deletions(data, file, int(state.physical_rows[fragment_index]))
        except FormatError as error:
            error.path = key
            raise
        deleted = offsets.astype(np.int64)
        return deleted, deleted.nbytes

    return (yield from load_cached(state.session.cache, ("deletions", store.identity, key), load))


def load_live_counts(state: DatasetState, fragment_indexes: Sequence[int]) -> Plan[list[int]]:
    """Number of live rows of these fragments; the manifest nearly always has it."""
    known = state.manifest.fragments.num_rows
    counts = [known[fragment_index] for fragment_index in fragment_indexes]
    unknown = [fragment_index for fragment_index, count in zip(fragment_indexes, counts, strict=True) if count is None]
    if not unknown:
        return [count for count in counts if count is not None]
    live = yield from load_live(state, unknown)
    return [
        live[fragment_index].num_live if count is None else count
        for fragment_index, count in zip(fragment_indexes, counts, strict=True)
    ]


def load_live_starts(state: DatasetState) -> Plan[IntArray]:
    """Live rows before each fragment of the table, i64[fragments + 1]."""
    starts: Any = state.__dict__.get("live_starts")
    if starts is None:
        counts = yield from load_live_counts(state, state.all_fragment_indexes)
        starts = state.__dict__["live_starts"] = live_starts(counts)
    return starts  # type: ignore[no-any-return]


# -- row ids ---------------------------------------------------------------------------------------------------------


def load_row_columns(state: DatasetState, fragment_indexes: Sequence[int], names: Collection[str]) -> Plan[RowColumns]:
    """Builder of the system columns `names` for rows of these fragments."""
    live = (yield from load_live(state, fragment_indexes)) if names else {}
    starts = (yield from load_live_starts(state)) if ROW_OFFSET in names else None
    lineages: dict[int, Lineage] = {}
    if not {ROW_ID, CREATED_AT, UPDATED_AT}.isdisjoint(names) and state.has_stable_row_ids:
        for fragment_index in fragment_indexes:
            lineages[fragment_index] = yield from _load_lineage(state, fragment_index)
    return row_columns.RowColumns(state.fragment_ids, live, starts, lineages)


def _load_lineage(state: DatasetState, fragment_index: int) -> Plan[Lineage]:
    fragment = state.manifest.fragments[fragment_index]
    num_rows = int(state.physical_rows[fragment_index])

    def load() -> Plan[tuple[Lineage, int]]:
        spilled = (yield from _read_spilled(state, fragment_index)) if fragment.spilled else {}
        lineage = _decode_lineage(fragment, num_rows, spilled)
        return lineage, lineage.nbytes

    key = ("lineage", *state.identity, fragment_index)
    return (yield from load_cached(state.session.cache, key, load))


def _read_spilled(state: DatasetState, fragment_index: int) -> Plan[dict[int, UIntArray]]:
    """Lineage columns that lie in the fragment's data files, by field id; all rows."""
    ids = sorted(state.manifest.fragments[fragment_index].spilled)
    fields = [Field(field_id, LINEAGE_NAMES[field_id], "uint64", nullable=False) for field_id in ids]
    columns = yield from read_rows.read_columns(state, fields, fragment_index)
    for field, column in zip(fields, columns, strict=True):
        if column.null_count:
            where = f"fragment {state.fragment_ids[fragment_index]}"
            raise FormatError(f"{column.null_count} rows of the column {field.name} are null", where=where)
    return {field_id: column.to_numpy() for field_id, column in zip(ids, columns, strict=True)}


def _decode_lineage(fragment: Fragment, num_rows: int, spilled: Mapping[int, UIntArray]) -> Lineage:
    def decoded(data: bytes | None, field_id: int, decode: Callable[[bytes, int], UIntArray]) -> UIntArray | None:
        return spilled.get(field_id) if data is None else decode(data, num_rows)

    try:
        ids = decoded(fragment.row_ids, ROW_IDS_FIELD, row_ids.decode_row_ids)
        assert ids is not None, "checked with the manifest"
        return row_columns.Lineage(
            ids,
            decoded(fragment.created_at_versions, CREATED_AT_FIELD, row_ids.decode_row_versions),
            decoded(fragment.last_updated_at_versions, UPDATED_AT_FIELD, row_ids.decode_row_versions),
        )
    except FormatError as error:
        raise error.within(f"fragment {fragment.id}") from error.__cause__


def load_row_id_index(state: DatasetState) -> Plan[RowIdIndex]:
    """Index from stable row id to address for all live rows; needs every deletion vector."""

    def load() -> Plan[tuple[RowIdIndex, int]]:
        live = yield from load_live(state, state.all_fragment_indexes)
        parts = []
        for fragment_index in state.all_fragment_indexes:
            lineage = yield from _load_lineage(state, fragment_index)
            parts.append((state.fragment_ids[fragment_index], lineage.row_ids, live[fragment_index].deleted))
        index = row_ids.build_row_id_index(parts)
        return index, index.nbytes

    key = ("row id index", *state.identity)
    return (yield from load_cached(state.session.cache, key, load))
