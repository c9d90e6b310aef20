"""Statistics of an index: the rows that its segments cover, and the size of each in the terms of its kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.errors import NotFound, UnsupportedError
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.batched_file import AloneOfFirstVersion
from lance_io.file.open.file_source import FileRef
from lance_io.file.reader import FileAccess
from lance_io.index.details import FILES, Kind
from lance_io.index.text.text_files import METADATA_FILE
from lance_io.index.text.text_partition import DOCUMENTS, POSTINGS, partition_file, read_settings
from lance_io.levels.arrays import shown_value
from lance_io.plans.plan import Together
from lance_io.reads.metadata.index_descriptions import describe_indices, is_text_segment, shown_kind
from lance_io.reads.metadata.vector_statistics import is_vector_segment, vector_segment, with_drift
from lance_io.reads.rows.deletions_and_ids import load_live_counts
from lance_io.reads.version.index_entries import details_of, load_indices
from lance_io.reads.version.index_errors import INDEX_ERRORS, in_index
from lance_io.records import dataclass
from lance_io.table.manifest.paths import INDICES, check_relative
from lance_io.table.transaction.index_coverage import with_current_coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_ZONE_ROWS: Final = 8192
_PROBABILITY: Final = 0.00057
_BATCHED: Final = {Kind.BITMAP: "num_bitmaps", Kind.LABEL_LIST: "num_bitmaps", Kind.NGRAM: "num_ngrams"}


class NoSuchIndex(NotFound, KeyError):
    """The table has no index of this name; pylance raises `KeyError`."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, eq=False)
class IndexFileInfo:
    """An opened file of a segment.

    num_rows  of the file
    metadata  of its schema
    """

    access: FileAccess
    num_rows: int
    metadata: Mapping[str, str]

    def number(self, name: str, default: int) -> int:
        """A whole number in the metadata; the default where it is missing, or no setting that can be given."""
        text = self.metadata.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 and int(text) else default

    def share(self, name: str, default: float) -> float:
        """A number between 0 and 1 in the metadata; the default as for `number`."""
        try:
            value = float(self.metadata.get(name, default))
        except ValueError:
            return default
        return value if 0.0 < value < 1.0 else default


def open_index_file(state: DatasetState, entry: IndexMetadata, name: str) -> Plan[IndexFileInfo]:
    """Open a file of a segment. Raises `FormatError` naming index and file, also for a missing one."""
    folder = state.location
    if entry.base_id is not None:
        folder = state.object_keys.base_folder(state.manifest.base_paths[entry.base_id])
    key = folder.key(INDICES, check_relative(entry.uuid, "index"), name)
    message = entry.message
    sizes = {} if message is None else {file.path: file.size_bytes for file in message.files}
    context = state.context_of(folder.store)
    ref = FileRef(key, sizes.get(name, 0), (), ())
    try:
        access: FileAccess = yield ReadFile(context, key, FileAccess.open(context, ref, None), ref.size_bytes or None)
    except INDEX_ERRORS as error:
        raise in_index(error, entry.name, key) from error
    stored = access.file.descriptor.schema.metadata.items()
    metadata = {key: bytes(value).decode("utf-8", "replace") for key, value in stored}
    return IndexFileInfo(access, access.file.num_rows, metadata)


def index_stats(state: DatasetState, name: str) -> Plan[dict[str, Any]]:
    """Statistics of an index, in pylance's form.

    Raises `NoSuchIndex`.
    """
    entries = [entry for entry in with_current_coverage((yield from load_indices(state))) if entry.name == name]
    if not entries:
        raise NoSuchIndex(f'Index "{name}" not found', path=state.location.uri)
    described = next(index for index in (yield from describe_indices(state)) if index.name == name)
    live: list[int] = yield from load_live_counts(state, state.all_fragment_indexes)
    rows = dict(zip(state.fragment_ids, live, strict=True))
    covered = [frozenset(entry.fragment_ids or ()) & rows.keys() for entry in entries]
    indexed = frozenset[int]().union(*covered)
    segments: list[dict[str, Any]] = yield Together([_segment(state, entry) for entry in entries])
    segments = with_drift(segments)
    created = [entry.message.created_at for entry in entries if entry.message is not None]
    return {
        "index_type": shown_kind(entries[0].inferred_url) if entries[0].inferred_url else described.index_type,
        "name": name,
        "num_indices": len(entries),
        "num_segments": len(entries),
        "indices": segments,
        "segments": segments,
        "num_indexed_fragments": len(indexed),
        "num_indexed_rows": sum(rows[each] for each in indexed),
        "num_unindexed_fragments": len(rows) - len(indexed),
        "num_unindexed_rows": sum(rows.values()) - sum(rows[each] for each in indexed),
        "num_indexed_rows_per_delta": [sum(rows[each] for each in fragments) for fragments in covered],
        "updated_at_timestamp_ms": max(created, default=None),
    }


def _segment(state: DatasetState, entry: IndexMetadata) -> Plan[dict[str, Any]]:
    """The size of a segment; empty for kinds that are not read."""
    details = details_of(entry)
    if details is None and is_text_segment(entry):
        return (yield from _text_segment(state, entry))
    if details is None:
        return (yield from vector_segment(state, entry)) if is_vector_segment(entry) else {}
    try:
        file = yield from open_index_file(state, entry, FILES[details.kind][0])
    except UnsupportedError as error:
        if isinstance(error.__cause__, AloneOfFirstVersion):
            return {}
        raise
    if details.kind in _BATCHED:
        return {_BATCHED[details.kind]: file.num_rows}
    if details.kind is Kind.ZONE_MAP:
        return {"num_zones": file.num_rows, "rows_per_zone": file.number("rows_per_zone", _ZONE_ROWS)}
    if details.kind is Kind.BLOOM_FILTER:
        return {
            "type": "BloomFilter",
            "num_blocks": file.num_rows,
            "number_of_items": file.number("bloomfilter_item", _ZONE_ROWS),
            "probability": file.share("bloomfilter_probability", _PROBABILITY),
        }
    try:
        low, high = yield from _ends(file)
    except INDEX_ERRORS as error:
        raise in_index(error, entry.name, file.access.source.files[0].key) from error
    return {"min": low, "max": high, "num_pages": file.num_rows}


def _text_segment(state: DatasetState, entry: IndexMetadata) -> Plan[dict[str, Any]]:
    """The parameters of a segment of full text, and its numbers of tokens and documents."""
    file = yield from open_index_file(state, entry, METADATA_FILE)
    try:
        settings = read_settings(file.metadata)
    except INDEX_ERRORS as error:
        raise in_index(error, entry.name, file.access.source.files[0].key) from error
    names = [partition_file(number, kind) for kind in (POSTINGS, DOCUMENTS) for number in settings.partitions]
    files = yield Together[Any]([open_index_file(state, entry, name) for name in names])
    counts, half = [each.num_rows for each in files], len(settings.partitions)
    params = json.loads(file.metadata["params"])
    return {"params": params, "num_tokens": sum(counts[:half]), "num_docs": sum(counts[half:])}


def _ends(file: IndexFileInfo) -> Plan[tuple[str | None, str | None]]:
    """The first and the last value of a B-tree, as text."""
    if not file.num_rows:
        return None, None
    rows: Sequence[int] = sorted({0, file.num_rows - 1})
    taken = yield from file.access.reader.take([(file.access.source, np.array(rows, np.int64))])
    batch = file.access.to_batch(taken if isinstance(taken, list) else taken.columns, None)
    return _text(batch.column("min")[0]), _text(batch.column("max")[-1])


def _text(value: pa.Scalar) -> str:
    shown = shown_value(value)
    if shown is None:
        return "NULL"
    if isinstance(shown, bool):
        return str(shown).lower()
    return shown.hex() if isinstance(shown, bytes) else str(shown)
