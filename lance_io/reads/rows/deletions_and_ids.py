"""What is loaded about fragments on demand: deletion vectors, stable row ids, the index over them.

Everything goes through the session's search cache, keyed by the object it came from, so that versions and datasets
share it. One load serves all who ask for it at the same time.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lance_io.errors import FormatError, LanceError
from lance_io.format.schema import LINEAGE_NAMES, Field
from lance_io.io.cache import ClaimAbandoned, Found, LoadOwner
from lance_io.lazy_names import later
from lance_io.plans.plan import Together, Wait
from lance_io.plans.store_requests import Read
from lance_io.reads.rows.row_arithmetic import LiveRows, live_starts
from lance_io.reads.rows.row_columns import Lineage, RowColumns
from lance_io.reads.version.system_columns import CREATED_AT, ROW_ID, ROW_OFFSET, UPDATED_AT
from lance_io.table.manifest.deletion_file import decode_deletions
from lance_io.table.manifest.fragment import CREATED_AT_FIELD, ROW_IDS_FIELD, UPDATED_AT_FIELD
from lance_io.table.manifest.row_ids import RowIdIndex, build_row_id_index, decode_row_ids, decode_row_versions
from lance_io.turns import MANY, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lance_io.io.cache import Key, SearchCache
    from lance_io.plans.plan import Plan
    from lance_io.reads.rows import read_rows
    from lance_io.reads.rows.row_arithmetic import UIntArray
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.fragment import Fragment
else:
    read_rows = later("lance_io.reads.rows.read_rows")

T = TypeVar("T")


def load_cached(cache: SearchCache, key: Key, load: Callable[[], Plan[tuple[T, int]]]) -> Plan[T]:
    """The cached value of `key`, or what `load` gives (value, bytes), loaded once for all who ask meanwhile."""
    while True:
        claim = cache.claim(key)
        if isinstance(claim, Found):
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
            found: T = yield Wait(claim.future)
            return found
        except (ClaimAbandoned, CancelledError):
            continue  # whoever was loading gave up; look again


# -- deletions -------------------------------------------------------------------------------------------------------


def load_live(state: DatasetState, places: Sequence[int]) -> Plan[dict[int, LiveRows]]:
    """Which rows are left, of the fragments at `places`; the deletion files are read side by side."""
    rows = state.physical_rows[list(places)].tolist()
    turns = iter if len(places) < MANY else in_turns
    has_file = [state.has_deletions[place] for place in turns(places)]
    whole = {count: LiveRows(count) for count in set(rows)}  # of which most fragments of a table have few kinds
    live = {place: whole[count] for place, count, one in turns(zip(places, rows, has_file, strict=True)) if not one}
    with_files = [place for place, one in zip(places, has_file, strict=True) if one]
    if with_files:
        vectors: list[IntArray] = yield Together([_load_deleted(state, place) for place in with_files])
        for place, deleted in zip(with_files, vectors, strict=True):
            live[place] = LiveRows(int(state.physical_rows[place]), deleted)
    return live


def _load_deleted(state: DatasetState, place: int) -> Plan[IntArray]:
    fragment = state.manifest.fragments[place]
    file = fragment.deletion_file
    assert file is not None
    found = state.places.deletion_object(fragment)
    store, key = found.store, found.key

    def load() -> Plan[tuple[IntArray, int]]:
        data = yield Read(store, key)
        try:
            offsets = decode_deletions(data, file, int(state.physical_rows[place]))
        except FormatError as error:
            error.path = key
            raise
        deleted = offsets.astype(np.int64)
        return deleted, deleted.nbytes

    return (yield from load_cached(state.session.cache, ("deletions", store.identity, key), load))


def load_live_counts(state: DatasetState, places: Sequence[int]) -> Plan[list[int]]:
    """Rows that are left, of the fragments at `places`; from the manifest, which nearly always says."""
    known = state.manifest.fragments.num_rows
    counts = [known[place] for place in places]
    unknown = [place for place, count in zip(places, counts, strict=True) if count is None]
    if not unknown:
        return [count for count in counts if count is not None]
    live = yield from load_live(state, unknown)
    return [live[place].num_live if count is None else count for place, count in zip(places, counts, strict=True)]


def load_live_starts(state: DatasetState) -> Plan[IntArray]:
    """Rows that are left before each fragment of the table, i64[fragments + 1]."""
    found: Any = state.__dict__.get("live_starts")
    if found is None:
        counts = yield from load_live_counts(state, state.all_places)
        found = state.__dict__["live_starts"] = live_starts(counts)
    return found  # type: ignore[no-any-return]


# -- row ids ---------------------------------------------------------------------------------------------------------


def load_row_columns(state: DatasetState, places: Sequence[int], names: Collection[str]) -> Plan[RowColumns]:
    """What makes the system columns `names` for rows of the fragments at `places`."""
    live = (yield from load_live(state, places)) if names else {}
    starts = (yield from load_live_starts(state)) if ROW_OFFSET in names else None
    lineages: dict[int, Lineage] = {}
    if not {ROW_ID, CREATED_AT, UPDATED_AT}.isdisjoint(names) and state.has_stable_row_ids:
        for place in places:
            lineages[place] = yield from _load_lineage(state, place)
    return RowColumns(state.fragment_ids, live, starts, lineages)


def _load_lineage(state: DatasetState, place: int) -> Plan[Lineage]:
    fragment = state.manifest.fragments[place]
    num_rows = int(state.physical_rows[place])

    def load() -> Plan[tuple[Lineage, int]]:
        spilled = (yield from _read_spilled(state, place)) if fragment.spilled else {}
        lineage = _decode_lineage(fragment, num_rows, spilled)
        return lineage, lineage.nbytes

    key = ("lineage", *state.identity, place)
    return (yield from load_cached(state.session.cache, key, load))


def _read_spilled(state: DatasetState, place: int) -> Plan[dict[int, UIntArray]]:
    """What of a fragment's lineage lies in its data files, by field id: every row of those columns."""
    ids = sorted(state.manifest.fragments[place].spilled)
    fields = [Field(field_id, LINEAGE_NAMES[field_id], "uint64", nullable=False) for field_id in ids]
    columns = yield from read_rows.read_columns(state, fields, place)
    for field, column in zip(fields, columns, strict=True):
        if column.null_count:
            where = f"fragment {state.fragment_ids[place]}"
            raise FormatError(f"{column.null_count} rows of the column {field.name} are null", where=where)
    return {field_id: column.to_numpy() for field_id, column in zip(ids, columns, strict=True)}


def _decode_lineage(fragment: Fragment, num_rows: int, spilled: Mapping[int, UIntArray]) -> Lineage:
    def decoded(data: bytes | None, field_id: int, decode: Callable[[bytes, int], UIntArray]) -> UIntArray | None:
        return spilled.get(field_id) if data is None else decode(data, num_rows)

    try:
        row_ids = decoded(fragment.row_ids, ROW_IDS_FIELD, decode_row_ids)
        assert row_ids is not None, "checked with the manifest"
        return Lineage(
            row_ids,
            decoded(fragment.created_at_versions, CREATED_AT_FIELD, decode_row_versions),
            decoded(fragment.last_updated_at_versions, UPDATED_AT_FIELD, decode_row_versions),
        )
    except FormatError as error:
        raise error.within(f"fragment {fragment.id}") from error.__cause__


def load_row_id_index(state: DatasetState) -> Plan[RowIdIndex]:
    """From stable row id to address, for all rows that are left; needs every deletion vector."""

    def load() -> Plan[tuple[RowIdIndex, int]]:
        live = yield from load_live(state, state.all_places)
        parts = []
        for place in state.all_places:
            lineage = yield from _load_lineage(state, place)
            parts.append((state.fragment_ids[place], lineage.row_ids, live[place].deleted))
        index = build_row_id_index(parts)
        return index, index.nbytes

    key = ("row id index", *state.identity)
    return (yield from load_cached(state.session.cache, key, load))
