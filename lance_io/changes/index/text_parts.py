"""Parts of a full text index: built by several processes below one UUID, and merged to one segment.

    create_scalar_index(..., "INVERTED", index_uuid=U, fragment_ids=...)   files of a part, in each process
    merge_index_metadata(U, "INVERTED")                                    the segment's files, of all parts
    commit(CreateIndex)                                                    the version that has them

Both libraries build and merge parts: `_indices/U/staging/part_N_*.lance`, where the upper half of N is the first
fragment of a part, the lower half counts its partitions. A partition without `part_N_metadata.lance`, its last file, is
not there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lance_io.changes.index.build_segment import read_column
from lance_io.changes.index.create_index import segments_to_replace
from lance_io.changes.index.index_request import NoSuchKind, checked_uuid, index_request, limit_bytes
from lance_io.changes.index.segment_files import SegmentFiles
from lance_io.changes.join.spilled_batches import SpilledBatches
from lance_io.errors import FormatError, UsageError
from lance_io.file.file_requests import ReadFiles
from lance_io.file.open.file_source import FileRef, ReadContext
from lance_io.file.take.side_file import SideFile
from lance_io.index.text.text_builder import TextBuilder
from lance_io.index.text.text_files import METADATA_FILE, index_metadata_file
from lance_io.index.text.text_partition import DOCUMENTS, POSTINGS, TOKENS, partition_file, read_settings
from lance_io.io.cache import SearchCache
from lance_io.limits import MIB
from lance_io.plans.copy_objects import ObjectCopy, copy_objects
from lance_io.plans.plan import RollBackOnError
from lance_io.plans.store_requests import List, Remove, RemoveEmptyFolders
from lance_io.reads.index.index_files import run_together
from lance_io.reads.version.index_errors import INDEX_ERRORS
from lance_io.store.offers import HoldsFolders
from lance_io.table.manifest.paths import INDICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.changes.index.build_progress import BuildProgress
    from lance_io.index.text.text_partition import TextSettings
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta

_STAGING: Final = "staging"
_PART_BITS: Final = 32  # of a partition's number; those above are its fragment
_METADATA: Final = re.compile(r"part_(empty_)?(\d{1,20})_metadata\.lance")
_FILE: Final = re.compile(r"part_(?:empty_)?(\d{1,20})_\w+\.lance")
_KINDS: Final = (TOKENS, DOCUMENTS, POSTINGS)
_NO_MERGE: Final = (
    "{kind} distributed indexing no longer supports merge_index_metadata; build segments, optionally merge groups with "
    "merge_existing_index_segments(...), and commit with commit_existing_index_segments(...)"
)
_NAMES: Final = {
    "BTREE": "BTree",
    "INVERTED": None,
    "IVF_FLAT": "Vector",
    "IVF_PQ": "Vector",
    "IVF_SQ": "Vector",
    "VECTOR": "Vector",
}
"""The kinds that `merge_index_metadata` knows, and how an error calls those that it does not merge."""


def create_text_part(
    state: DatasetState,
    column: Any,
    index_type: Any,
    name: str | None,
    *,
    replace: bool,
    train: bool,
    fragment_ids: Iterable[int],
    uuid: str | None,
    memory_limit: int | None,
    progress: BuildProgress,
    options: Mapping[str, Any],
) -> Plan[None]:
    """Build a part over some fragments; parameters as for `LanceDataset.create_scalar_index`."""
    request = index_request(state, column, index_type, name, options)
    yield from segments_to_replace(state, request, replace=replace)
    wanted = sorted(set(fragment_ids))
    for fragment_id in wanted:
        if state.fragment_index_of(fragment_id) is None:
            raise UsageError(f"No fragment with id {fragment_id}", path=state.location.uri)
    uuid, first, limit = checked_uuid(uuid), wanted[0] if wanted else 0, limit_bytes(memory_limit)
    yield from _clear(state, uuid, first)
    files, text = SegmentFiles(state.location, uuid, _STAGING), request.text
    builder = TextBuilder(
        text.parameters,
        text.format_version,
        SpilledBatches,
        limit,
        text.num_workers,
        of_elements=text.of_elements,
        part=first << _PART_BITS,
    )

    def build() -> Plan[None]:
        try:
            if train and wanted:
                yield from read_column(state, request, wanted, builder, limit, progress)
            progress.begin("write_files")
            yield from files.write(builder.files())
            progress.end()
        finally:
            builder.close()

    yield RollBackOnError(build(), files.remove)


def _clear(state: DatasetState, uuid: str, first: int) -> Plan[None]:
    """Remove the files of an earlier build of a part. Raises `UsageError` if the segment is merged already."""
    names, merged = yield from _list_parts(state, uuid)
    if merged:
        raise _merged_already(state, uuid)
    folder = state.location.below(INDICES, uuid, _STAGING)
    old = [name for name in names if (match := _FILE.fullmatch(name)) and int(match[1]) >> _PART_BITS == first]
    if old:
        yield Remove(folder.store, [folder.key(name) for name in old])


def _list_parts(state: DatasetState, uuid: str) -> Plan[tuple[dict[str, int], bool]]:
    """The files of all parts with their sizes, and whether they are merged already."""
    folder = state.location.below(INDICES, uuid)
    metas: list[ObjectMeta] = yield List(folder.store, f"{folder.path}/")
    names = {meta.key[len(folder.path) + 1 :]: meta.size_bytes for meta in metas if not meta.is_folder}
    parts = {name.removeprefix(f"{_STAGING}/"): size for name, size in names.items() if name.startswith(f"{_STAGING}/")}
    return parts, METADATA_FILE in names


def _merged_already(state: DatasetState, uuid: str) -> UsageError:
    return UsageError(
        f"index_uuid: the parts of segment {uuid} are merged already; build more of them below another UUID",
        path=state.location.uri,
    )


def merge_text_parts(state: DatasetState, uuid: str, index_type: str, progress: BuildProgress) -> Plan[None]:
    """Make one segment of the parts below a UUID. Nothing is committed; without parts a merged segment stays."""
    kind = index_type.upper()
    if kind not in _NAMES:
        raise NoSuchKind(f"Only {', '.join(sorted(_NAMES))} are supported, received {index_type}")
    if (shown := _NAMES[kind]) is not None:
        raise UsageError(_NO_MERGE.format(kind=shown))
    uuid = checked_uuid(uuid)
    names, merged = yield from _list_parts(state, uuid)
    if merged and names:
        raise _merged_already(state, uuid)
    if merged:
        return
    described = sorted((int(match[2]), name) for name in names if (match := _METADATA.fullmatch(name)))
    if not described:
        raise UsageError(
            f"No partition metadata files found in index directory: {state.location.key(INDICES, uuid)}",
            path=state.location.uri,
        )
    yield from _merge(state, uuid, names, [name for _, name in described], progress)


def _merge(
    state: DatasetState, uuid: str, sizes: Mapping[str, int], described: list[str], progress: BuildProgress
) -> Plan[None]:
    progress.begin("read_partition_metadata", len(described))
    settings, metadata = yield from _read_settings(state, uuid, described)
    progress.add(len(described))
    progress.end()
    numbers = [number for each in settings for number in each.partitions]
    staging, folder = state.location.below(INDICES, uuid, _STAGING), state.location.below(INDICES, uuid)
    copies = []
    for position, number in enumerate(numbers):
        for kind in _KINDS:
            name = partition_file(number, kind)
            if name not in sizes:
                raise FormatError(f"a part of the index has no file {name}", path=staging.key(name))
            key = folder.key(partition_file(position, kind))
            copies.append(ObjectCopy(staging.store, staging.key(name), folder.store, key, sizes[name]))
    progress.begin("remap_partition_files", len(numbers))
    yield from copy_objects(copies)
    progress.add(len(numbers))
    progress.end()
    progress.begin("write_merged_metadata", 1)
    files = SegmentFiles(state.location, uuid)
    kept = {name: value for name, value in metadata.items() if name not in ("params", "partitions")}
    file = index_metadata_file(settings[0].parameters, range(len(numbers)), kept)
    yield RollBackOnError(files.write(iter([file])), files.remove)
    progress.add(1)
    progress.end()
    yield Remove(staging.store, [staging.key(name) for name in sizes])
    if isinstance(staging.store, HoldsFolders):
        yield RemoveEmptyFolders(staging.store, staging.path)


def _read_settings(
    state: DatasetState, uuid: str, names: Iterable[str]
) -> Plan[tuple[list[TextSettings], Mapping[str, str]]]:
    """The settings of all parts, and the metadata of the first. Raises `UsageError` for parts that differ."""
    folder = state.location.below(INDICES, uuid, _STAGING)
    refs = [FileRef(folder.key(name), 0, (), ()) for name in names]
    context = ReadContext(folder.store, SearchCache(MIB))  # no other: a part may be built again under its name
    try:
        steps = [(ref, SideFile.open(context, ref.key, 0)) for ref in refs]
        files: list[SideFile] = yield ReadFiles(context, run_together(steps))
        settings = [read_settings(file.metadata) for file in files]
    except INDEX_ERRORS as error:
        error.add_note(f"parts of the index segment {uuid} are merged")
        raise
    for file, each in zip(files, settings, strict=True):
        for name in ("format_version", "posting_block_size", "positions_layout", "token_set_format"):
            if file.metadata.get(name) != files[0].metadata.get(name):
                raise _differ(file, files[0], f"{name} is {file.metadata.get(name)!r}, {files[0].metadata.get(name)!r}")
        if each.parameters != settings[0].parameters:
            raise _differ(file, files[0], "their texts are split by other parameters")
    return settings, files[0].metadata


def _differ(file: SideFile, first: SideFile, how: str) -> UsageError:
    return UsageError(
        f"parts {first.key.rpartition('/')[2]} and {file.key.rpartition('/')[2]} of the index differ: {how}; build all "
        "parts with the same arguments",
        path=file.key,
    )
