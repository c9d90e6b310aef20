"""Segments of an index that exist, and the request that builds another one like them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.types as pt

from lance_io.changes.index.index_request import (
    IndexRequest,
    check_type,
    fits,
    quoted_name,
    storage_type,
    texts_in_lists,
)
from lance_io.changes.index.text_request import text_request_of
from lance_io.changes.index.vectors.stored_models import stored_request, vector_kind
from lance_io.errors import FormatError, NotFound, UnsupportedError
from lance_io.file.open.batched_file import AloneOfFirstVersion
from lance_io.index.build.bloom_files import ITEMS, PROBABILITY
from lance_io.index.build.btree_files import PAGE_ROWS
from lance_io.index.build.index_kinds import BY_KIND, INVERTED
from lance_io.index.build.zone_files import ZONE_ROWS
from lance_io.index.details import FILES, Kind, Space, names_text_index
from lance_io.index.text.text_files import METADATA_FILE
from lance_io.index.text.text_partition import FIRST_TOKENS_FILE
from lance_io.reads.metadata.index_statistics import open_index_file
from lance_io.reads.open_version import check_out
from lance_io.reads.version.index_entries import details_of
from lance_io.table.manifest.row_ids import decode_row_versions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    import pyarrow as pa

    from lance_io.changes.index.build_segment import AnyRequest
    from lance_io.format.schema import Field
    from lance_io.index.details import IndexDetails
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.index_statistics import IndexFileInfo
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_TEXT_VERSION_MAX: Final = 3
_WITH_PARAMETERS = (Kind.BTREE, Kind.ZONE_MAP, Kind.BLOOM_FILTER)


def is_built_here(state: DatasetState, entry: IndexMetadata) -> bool:
    """Whether this release builds segments like this one."""
    if entry.is_system or len(entry.fields) != 1 or entry.fields[0] not in state.schema.by_id:
        return False
    details = details_of(entry)
    if details is None and vector_kind(entry) is not None:
        return bool(pt.is_fixed_size_list(_type_of(state, entry)))
    if is_text_index(entry):
        return fits(INVERTED, state.schema.by_id[entry.fields[0]])
    return details is not None and details.kind in BY_KIND


def is_text_index(entry: IndexMetadata) -> bool:
    """Whether it is a segment of a full text index, of a version that this release knows."""
    if entry.message is None or entry.message.index_version > _TEXT_VERSION_MAX:
        return False
    return names_text_index(entry.type_url)


def _type_of(state: DatasetState, entry: IndexMetadata) -> pa.DataType:
    return storage_type(state.schema.by_id[entry.fields[0]].arrow_type)


def request_of(state: DatasetState, entries: Sequence[IndexMetadata]) -> Plan[AnyRequest]:
    """The request for a segment like these, with the parameters of the last one. Reads the metadata of one file.

    An index of vectors keeps the model of its first segment.

    Raises `UnsupportedError` for a kind that is not built here.
    """
    entry = entries[-1]
    if vector_kind(entry) is not None and is_built_here(state, entry):
        path, field = path_of(state, entry.fields[0])
        return (yield from stored_request(state, entries, path, field, _type_of(state, entry)))
    if is_text_index(entry) and is_built_here(state, entry):
        path, field = path_of(state, entry.fields[0])
        check_type(INVERTED, path, field)
        file = yield from _text_parameters_file(state, entry)
        assert entry.message is not None, "it is a text index"
        where = f"index {entry.name!r}, {entry.uuid}/metadata.lance"
        text = text_request_of(file, where, entry.message.index_details.value)
        return IndexRequest(INVERTED, path, field, entry.name, {"text": text}, texts=texts_in_lists(state, field))
    details = details_of(entry)
    if details is None or not is_built_here(state, entry):
        raise UnsupportedError(
            f"index {entry.name!r} is of a kind or a version that this release does not build; use pylance, on the "
            "same table",
            path=state.location.uri,
        )
    path, field = path_of(state, entry.fields[0])
    kind = BY_KIND[details.kind]
    if details.json_path is None:
        check_type(kind, path, field)
    parameters: Mapping[str, Any] = {}
    if details.kind in _WITH_PARAMETERS:
        parameters = yield from _parameters(state, entry, details)
    return IndexRequest(kind, path, field, entry.name, parameters, details.json_path)


def _text_parameters_file(state: DatasetState, entry: IndexMetadata) -> Plan[IndexFileInfo]:
    """The file that names the tokenizer of a segment; segments of the first releases have another one."""
    try:
        return (yield from open_index_file(state, entry, METADATA_FILE))
    except FormatError as error:
        if not isinstance(error.__cause__, NotFound):
            raise
        try:
            return (yield from open_index_file(state, entry, FIRST_TOKENS_FILE))
        except FormatError:
            raise error from None


def _parameters(state: DatasetState, entry: IndexMetadata, details: IndexDetails) -> Plan[dict[str, Any]]:
    try:
        file = yield from open_index_file(state, entry, FILES[details.kind][0])
    except UnsupportedError as error:
        if details.kind is Kind.BTREE and isinstance(error.__cause__, AloneOfFirstVersion):
            return {"zone_size": PAGE_ROWS}
        raise
    if details.kind is Kind.BTREE:
        return {"zone_size": file.number("batch_size", PAGE_ROWS)}
    if details.kind is Kind.ZONE_MAP:
        return {"rows_per_zone": file.number("rows_per_zone", ZONE_ROWS)}
    return {
        "number_of_items": file.number("bloomfilter_item", ITEMS),
        "probability": file.share("bloomfilter_probability", PROBABILITY),
    }


def names_ids(state: DatasetState, entry: IndexMetadata) -> bool:
    """Whether a segment names rows by ids that they keep when they move."""
    if is_text_index(entry):
        return INVERTED.names_ids
    details = details_of(entry)
    if details is None:
        return state.has_stable_row_ids and vector_kind(entry) is not None
    return details.space(stable_row_ids=state.has_stable_row_ids) is Space.IDS


def may_hold_updated_rows(state: DatasetState, fragment_ids: Iterable[int]) -> bool:
    """Whether fragments may hold rows that an update has moved there under their old ids."""
    for index in state.fragment_indexes_of(list(fragment_ids)):
        fragment, num_rows = state.manifest.fragments[index], int(state.physical_rows[index])
        created, updated = fragment.created_at_versions, fragment.last_updated_at_versions
        if created is None or updated is None:
            return True
        if (decode_row_versions(created, num_rows) != decode_row_versions(updated, num_rows)).any():
            return True
    return False


def may_hold_old_values(
    state: DatasetState, entries: Sequence[IndexMetadata], fragment_ids: Collection[int]
) -> Plan[bool]:
    """Whether segments may have values that rows of fragments had before their column was rewritten in place.

    The segments do not cover these fragments any more. The version of a segment says which files a fragment had. Where
    it is gone, or lacks the fragment, because a compaction moved rows and segments since, the fragment itself decides.
    """
    for entry in entries:
        field = state.schema.by_id[entry.fields[0]]
        before: DatasetState | None = None
        try:
            before = yield from check_out(state, entry.dataset_version)
        except NotFound:
            if fragment_ids and min(fragment_ids) < max(entry.fragment_ids or (), default=0):
                return True
        for each in fragment_ids:
            files = None if before is None else column_files(before, field, each)
            if _looks_rewritten(state, field, each) if files is None else files != column_files(state, field, each):
                return True
    return False


def _looks_rewritten(state: DatasetState, field: Field, fragment_id: int) -> bool:
    """Whether a fragment has a column in a file that is not its first: what is rewritten gets a new file."""
    index = state.fragment_index_of(fragment_id)
    files = () if index is None else state.manifest.fragments[index].files
    ids = {each.id for each in field.walk()}
    return any(not ids.isdisjoint(file.fields) for file in files[1:])


def column_files(state: DatasetState, field: Field, fragment_id: int) -> frozenset[tuple[int | None, str]] | None:
    """The data files of a column in a fragment; None without the fragment."""
    index = state.fragment_index_of(fragment_id)
    if index is None:
        return None
    ids = {each.id for each in field.walk()}
    files = state.manifest.fragments[index].files
    return frozenset((file.base_id, file.path) for file in files if not ids.isdisjoint(file.fields))


def path_of(state: DatasetState, field_id: int) -> tuple[str, Field]:
    """The dotted path of a field, and the field."""

    def walk(fields: Sequence[Field], above: str) -> tuple[str, Field] | None:
        for field in fields:
            path = f"{above}{quoted_name(field.name)}"
            if field.id == field_id:
                return path, field
            inside = walk(field.children, f"{path}.")
            if inside is not None:
                return inside
        return None

    known = walk(state.schema.fields, "")
    assert known is not None, "the field is in the schema"
    return known
