"""Clones: a version as a new table that refers to the old files or copies them (spec: table, section 1.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.changes.upkeep.change_branches import base_path_of, create_clone
from lance_io.changes.upkeep.held_versions import find_version
from lance_io.commit.manifest_reads import read_manifest
from lance_io.commit.target import CommitTarget
from lance_io.errors import AlreadyExists, NotFound, UnsupportedError
from lance_io.lazy_names import lazy_module
from lance_io.plans.copy_objects import ObjectCopy, copy_objects
from lance_io.plans.store_requests import List
from lance_io.proto import table_pb2
from lance_io.reads.version.object_keys import branch_location
from lance_io.table.manifest.flags import MANAGED_BLOBS
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import VERSION_MAX, from_message
from lance_io.table.manifest.paths import DATA, INDICES, check_relative, deletion_file_location
from lance_io.table.transaction.operations import Clone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.plans.plan import Plan
    from lance_io.reads.blobs import managed_blobs
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import BasePath, Manifest
else:
    managed_blobs = lazy_module("lance_io.reads.blobs.managed_blobs")


def shallow_clone(state: DatasetState, location: Location, reference: Any) -> Plan[None]:
    """Create a table at `location` from a version, whose files stay in the source table."""
    branch, source, manifest = yield from _cloned_version(state, reference)
    is_one_store = location.store.identity == source.store.identity
    path = base_path_of(source) if is_one_store else _uri_elsewhere(source)
    if not is_one_store:
        manifest = _with_uris(manifest, source)
    yield from _create(state, location, manifest, Clone(True, branch, manifest.version, path, None))


def deep_clone(state: DatasetState, location: Location, reference: Any) -> Plan[None]:
    """Copy a version with all of its files to a table at `location`."""
    branch, source, manifest = yield from _cloned_version(state, reference)
    target = CommitTarget(location, state.session.handler(location))
    target.handler.check(location)
    try:
        yield from target.handler.find_latest(location)
    except NotFound:
        pass
    else:
        raise AlreadyExists(f"Dataset already exists: {location.uri}", path=location.uri)
    yield from _copy_files(replace(state, location=source, manifest=manifest), location)
    yield from _create(state, location, manifest, Clone(False, branch, manifest.version, base_path_of(source), None))


def _cloned_version(state: DatasetState, reference: Any) -> Plan[tuple[str | None, Location, Manifest]]:
    """Branch, folder and manifest of a referenced version; writes nothing there."""
    branch, file = yield from find_version(state, reference)
    source = branch_location(state.root, branch)
    manifest, _ = yield from read_manifest(source, file.key, file.version)
    return branch, source, manifest


def _create(state: DatasetState, location: Location, manifest: Manifest, operation: Clone) -> Plan[None]:
    target = CommitTarget(location, state.session.handler(location))
    yield from create_clone(target, manifest, operation)


# -- base paths of a table in another store ----------------------------------------------------------------------------


def _uri_elsewhere(location: Location) -> str:
    """The name of a folder as base path of a table in another store. Raises `UnsupportedError` if there is none."""
    if location.store.scheme == "file":
        return _file_uri(location.path)
    if "://" not in location.uri or location.uri.startswith("memory:"):
        raise UnsupportedError(
            f"{location.uri} cannot be opened by URI from a table in another store: clone it into the same store, or "
            "copy it with deep_clone",
            path=location.uri,
        )
    return location.uri


def _file_uri(path: str) -> str:
    return f"file://{path}"


def _with_uris(manifest: Manifest, source: Location) -> Manifest:
    """The version with base paths that are valid in a table of another store."""
    if all("://" in base.path for base in manifest.base_paths.values()):
        return manifest
    if source.store.scheme != "file":
        raise UnsupportedError(
            "a base path of the table is a path in its own store, which a table in another store cannot refer to: copy "
            "the table with deep_clone",
            path=source.uri,
        )
    message = table_pb2.Manifest()
    message.CopyFrom(manifest.message)
    for base in message.base_paths:
        if "://" not in base.path:
            base.path = _file_uri(base.path)
    return from_message(message, VERSION_MAX, manifest.index_section)


# -- copying -----------------------------------------------------------------------------------------------------------


def _copy_files(state: DatasetState, location: Location) -> Plan[None]:
    """Copy all files of an open version into the folders of a table at `location`."""
    yield from copy_objects(_data_files(state, location))
    yield from copy_objects(_deletion_files(state, location))
    yield from copy_objects((yield from _sidecars(state, location)))
    yield from copy_objects((yield from _managed_blobs(state, location)))
    yield from copy_objects((yield from _index_files(state, location)))


def _data_files(state: DatasetState, location: Location) -> Iterator[ObjectCopy]:
    for fragment in state.manifest.fragments:
        for file in fragment.files:
            source = state.object_keys.data_object(file)
            key = location.key(DATA, check_relative(file.path, "data file"))
            yield ObjectCopy(source.store, source.key, location.store, key, file.size_bytes or None)


def _deletion_files(state: DatasetState, location: Location) -> Iterator[ObjectCopy]:
    for fragment in state.manifest.fragments:
        file = fragment.deletion_file
        if file is not None:
            source = state.object_keys.deletion_object(fragment)
            own = deletion_file_location(fragment.id, replace(file, base_id=None), {})
            yield ObjectCopy(source.store, source.key, location.store, location.key(own.relative))


def _sidecars(state: DatasetState, location: Location) -> Plan[list[ObjectCopy]]:
    """Blob files beside data files; lists once for each data file of a table that may have blobs."""
    if not any(field.is_blob_v2 for field in state.schema.walk()):
        return []
    copies = []
    for fragment in state.manifest.fragments:
        for file in fragment.files:
            source = state.object_keys.data_object(file)
            folder = f"{source.key.removesuffix('.lance')}/"
            own = location.key(DATA, file.path.removesuffix(".lance"), "")
            metas: list[ObjectMeta] = yield List(source.store, folder)
            copies += [
                ObjectCopy(source.store, meta.key, location.store, own + meta.key[len(folder) :], meta.size_bytes)
                for meta in metas
                if not meta.is_folder
            ]
    return copies


def _managed_blobs(state: DatasetState, location: Location) -> Plan[list[ObjectCopy]]:
    """Blobs that the table manages, according to its data files."""
    if not state.manifest.reader_flags & MANAGED_BLOBS:
        return []
    if state.manifest.base_paths:
        raise UnsupportedError(
            "the table manages its blobs and has base paths, which may contain blobs: this release cannot copy these. "
            "Clone the table with shallow_clone, or write its rows to a new table",
            path=state.location.uri,
        )

    paths: set[str] = yield from managed_blobs.ManagedBlobs(state).paths(state.manifest)
    store = state.location.store
    return [ObjectCopy(store, state.location.key(path), location.store, location.key(path)) for path in sorted(paths)]


def _index_files(state: DatasetState, location: Location) -> Plan[list[ObjectCopy]]:
    section = state.manifest.index_section
    copies = []
    for index in [] if section is None else decode_indices(section):
        source = _folder(state, index.base_id)
        folder = source.key(INDICES, index.uuid, "")
        metas: list[ObjectMeta] = yield List(source.store, folder)
        own = location.key(INDICES, index.uuid, "")
        copies += [
            ObjectCopy(source.store, meta.key, location.store, own + meta.key[len(folder) :], meta.size_bytes)
            for meta in metas
            if not meta.is_folder
        ]
    return copies


def _folder(state: DatasetState, base_id: int | None) -> Location:
    """The table's own folder, or the folder of a base path."""
    base: BasePath | None = None if base_id is None else state.manifest.base_paths[base_id]
    return state.location if base is None else state.object_keys.base_folder(base)
