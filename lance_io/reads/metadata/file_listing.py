"""Files of a table and references of its versions to files, as record batches.

all_files       every file below the table's folder
tracked_files   files that manifests name: themselves, transactions, data, deletions, indices; once for each version
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io.commit.latest import list_versions
from lance_io.commit.manifest_reads import read_manifest
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.paths import INDICES, data_file_location, deletion_file_location, transaction_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.manifest.manifest import Manifest

    Row = tuple[str, str, str]  # base URI, path below it, kind

Progress: TypeAlias = Callable[[int, int | None], object]

MANIFESTS_AT_ONCE: Final = 64  # a table may have many versions, and each lists all of its files
_URI: Final = pa.dictionary(pa.int32(), pa.string())
_KIND: Final = pa.dictionary(pa.int8(), pa.string())

ALL_FILES: Final = pa.schema(
    [
        pa.field("base_uri", _URI, nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
TRACKED_FILES: Final = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("base_uri", _URI, nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("type", _KIND, nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Portion:
    """Manifests to read together; afterwards `num_read` of `num_versions` have been read."""

    files: list[VersionFile]
    num_read: int
    num_versions: int

    def report(self, progress: Progress | None) -> None:
        """Call `progress`, if there is one."""
        if progress is not None:
            progress(self.num_read, self.num_versions)


def all_files(state: DatasetState) -> Plan[pa.RecordBatchReader]:
    """The files below the folder of the table (or of the open branch), in `ALL_FILES`; one listing."""
    location = state.location
    metas = yield from _below(location, location.key("") if location.path else "")
    columns = [
        pa.array([location.uri] * len(metas), pa.string()).dictionary_encode(),
        pa.array([_relative(location, meta.key) for meta in metas], pa.string()),
        pa.array([meta.size_bytes for meta in metas], pa.int64()),
        pa.array([meta.last_modified for meta in metas], pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatchReader.from_batches(ALL_FILES, [pa.RecordBatch.from_arrays(columns, schema=ALL_FILES)])


def tracked_versions(state: DatasetState, min_version: int | None) -> Plan[list[Portion]]:
    """The manifests for `tracked_files`, newest first; one listing."""
    files = yield from list_versions(state.location.store, state.location.path)
    newest_first = [file for file in reversed(files) if min_version is None or file.version >= min_version]
    parts = [
        newest_first[start : start + MANIFESTS_AT_ONCE] for start in range(0, len(newest_first), MANIFESTS_AT_ONCE)
    ]
    return [
        Portion(part, number * MANIFESTS_AT_ONCE + len(part), len(newest_first)) for number, part in enumerate(parts)
    ]


def tracked_files(state: DatasetState, portion: Portion) -> Plan[pa.RecordBatch]:
    """The files that some versions refer to, in `TRACKED_FILES`; reads their manifests concurrently."""
    parts: list[list[Row]] = yield Together([_files_of(state.location, file) for file in portion.files])
    versions = [file.version for file, rows in zip(portion.files, parts, strict=True) for _ in rows]
    bases, paths, kinds = [list(column) for column in zip(*(row for rows in parts for row in rows), strict=True)]
    columns = [
        pa.array(versions, pa.int64()),
        pa.array(bases, pa.string()).dictionary_encode(),
        pa.array(paths, pa.string()),
        pa.array(kinds, pa.string()).dictionary_encode().cast(_KIND),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TRACKED_FILES)


def _files_of(location: Location, file: VersionFile) -> Plan[list[Row]]:
    manifest, _ = yield from read_manifest(location, file.key, file.version)
    rows = [(location.uri, _relative(location, file.key), "manifest")]
    if manifest.transaction_file:
        rows.append((location.uri, transaction_path(manifest.transaction_file), "transaction file"))
    rows += _fragment_files(location, manifest)
    if manifest.index_section is not None:
        for index in decode_indices(manifest.index_section):
            rows += yield from _index_files(location, manifest, index)
    return rows


def _fragment_files(location: Location, manifest: Manifest) -> Iterator[Row]:
    for fragment in manifest.fragments:
        paths = [(data_file_location(file, manifest.base_paths), "data file") for file in fragment.files]
        if fragment.deletion_file is not None:
            path = deletion_file_location(fragment.id, fragment.deletion_file, manifest.base_paths)
            paths.append((path, "deletion file"))
        for path, kind in paths:
            yield location.uri if path.base is None else path.base.path, path.relative, kind


def _index_files(location: Location, manifest: Manifest, index: IndexMetadata) -> Plan[Iterable[Row]]:
    """Files of an index. An entry of an older release names none; then those in its folder."""
    folder = f"{INDICES}/{index.uuid}"
    base = None if index.base_id is None else manifest.base_paths.get(index.base_id)
    paths = [f"{folder}/{path}" for path in index.file_paths]
    if not paths and base is None:
        metas = yield from _below(location, location.key(folder, ""))
        paths = [_relative(location, meta.key) for meta in metas]
    return [(location.uri if base is None else base.path, path, "index file") for path in paths]


def _below(location: Location, prefix: str) -> Plan[list[ObjectMeta]]:
    metas: list[Any] = yield List(location.store, prefix)
    return [meta for meta in metas if not meta.is_folder]


def _relative(location: Location, key: str) -> str:
    return key.removeprefix(location.key("")) if location.path else key
