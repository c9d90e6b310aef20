"""Clones: a version as a table of its own, whose files stay where they are or are copied (spec: table, section 1.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.changes.upkeep.change_branches import base_path_of, create_clone
from lance_io.changes.upkeep.held_versions import find_version
from lance_io.commit.record import read_manifest
from lance_io.commit.target import CommitTarget
from lance_io.errors import AlreadyExists, NotFound, UnsupportedError
from lance_io.lazy_names import later
from lance_io.plans.copy_objects import ObjectCopy, copy_objects
from lance_io.plans.store_requests import List
from lance_io.proto import table_pb2
from lance_io.reads.version.object_keys import branch_location
from lance_io.table.manifest.flags import MANAGED_BLOBS
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import VERSION_MAX, from_message
from lance_io.table.manifest.paths import DATA, INDICES, check_relative, deletion_file_place
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
    managed_blobs = later("lance_io.reads.blobs.managed_blobs")


def shallow_clone(state: DatasetState, place: Location, reference: Any) -> Plan[None]:
    """Let a table at `place` begin with a version, whose files stay where they are."""
    branch, source, manifest = yield from _cloned_version(state, reference)
    is_one_store = place.store.identity == source.store.identity
    path = base_path_of(source) if is_one_store else _uri_elsewhere(source)
    if not is_one_store:
        manifest = _with_uris(manifest, source)
    yield from _create(state, place, manifest, Clone(True, branch, manifest.version, path, None))


def deep_clone(state: DatasetState, place: Location, reference: Any) -> Plan[None]:
    """Copy a version with all of its files to a table at `place`."""
    branch, source, manifest = yield from _cloned_version(state, reference)
    target = CommitTarget(place, state.session.handler(place))
    target.handler.check(place)
    try:
        yield from target.handler.find_latest(place)
    except NotFound:
        pass
    else:
        raise AlreadyExists(f"Dataset already exists: {place.uri}", path=place.uri)
    yield from _copy_files(replace(state, location=source, manifest=manifest), place)
    yield from _create(state, place, manifest, Clone(False, branch, manifest.version, base_path_of(source), None))


def _cloned_version(state: DatasetState, reference: Any) -> Plan[tuple[str | None, Location, Manifest]]:
    """Branch, folder and content of the version that a reference means; nothing is written there."""
    branch, file = yield from find_version(state, reference)
    source = branch_location(state.root, branch)
    manifest, _ = yield from read_manifest(source, file.key, file.version)
    return branch, source, manifest


def _create(state: DatasetState, place: Location, manifest: Manifest, operation: Clone) -> Plan[None]:
    target = CommitTarget(place, state.session.handler(place))
    yield from create_clone(target, manifest, operation)


# -- base paths of a table in another store ----------------------------------------------------------------------------


def _uri_elsewhere(location: Location) -> str:
    """What names a folder in tables of other stores. Raises `UnsupportedError` where nothing does."""
    if location.store.scheme == "file":
        return _file_uri(location.path)
    if "://" not in location.uri or location.uri.startswith("memory:"):
        raise UnsupportedError(
            f"{location.uri} has no URI that a table in another store could name it by: clone it into the same store, "
            "or copy it with deep_clone",
            path=location.uri,
        )
    return location.uri


def _file_uri(path: str) -> str:
    return f"file://{path}"


def _with_uris(manifest: Manifest, source: Location) -> Manifest:
    """The same version with base paths that mean the same in a table of another store."""
    if all("://" in base.path for base in manifest.base_paths.values()):
        return manifest
    if source.store.scheme != "file":
        raise UnsupportedError(
            "a base path of the table is a path in its own store, which a table in another store cannot name: copy it "
            "with deep_clone",
            path=source.uri,
        )
    message = table_pb2.Manifest()
    message.CopyFrom(manifest.message)
    for base in message.base_paths:
        if "://" not in base.path:
            base.path = _file_uri(base.path)
    return from_message(message, VERSION_MAX, manifest.index_section)


# -- copying -----------------------------------------------------------------------------------------------------------


def _copy_files(state: DatasetState, place: Location) -> Plan[None]:
    """Copy all files of an open version into the folders of a table at `place`."""
    yield from copy_objects(_data_files(state, place))
    yield from copy_objects(_deletion_files(state, place))
    yield from copy_objects((yield from _sidecars(state, place)))
    yield from copy_objects((yield from _managed_blobs(state, place)))
    yield from copy_objects((yield from _index_files(state, place)))


def _data_files(state: DatasetState, place: Location) -> Iterator[ObjectCopy]:
    for fragment in state.manifest.fragments:
        for file in fragment.files:
            found = state.places.data_object(file)
            key = place.key(DATA, check_relative(file.path, "data file"))
            yield ObjectCopy(found.store, found.key, place.store, key, file.size_bytes or None)


def _deletion_files(state: DatasetState, place: Location) -> Iterator[ObjectCopy]:
    for fragment in state.manifest.fragments:
        file = fragment.deletion_file
        if file is not None:
            found = state.places.deletion_object(fragment)
            own = deletion_file_place(fragment.id, replace(file, base_id=None), {})
            yield ObjectCopy(found.store, found.key, place.store, place.key(own.relative))


def _sidecars(state: DatasetState, place: Location) -> Plan[list[ObjectCopy]]:
    """Blobs that lie beside data files; one listing for each data file of a table that may have any."""
    if not any(field.is_blob_v2 for field in state.schema.walk()):
        return []
    copies = []
    for fragment in state.manifest.fragments:
        for file in fragment.files:
            found = state.places.data_object(file)
            folder = f"{found.key.removesuffix('.lance')}/"
            own = place.key(DATA, file.path.removesuffix(".lance"), "")
            metas: list[ObjectMeta] = yield List(found.store, folder)
            copies += [
                ObjectCopy(found.store, one.key, place.store, own + one.key[len(folder) :], one.size_bytes)
                for one in metas
                if not one.is_folder
            ]
    return copies


def _managed_blobs(state: DatasetState, place: Location) -> Plan[list[ObjectCopy]]:
    """Blobs that the table manages, by what its data files say of them."""
    if not state.manifest.reader_flags & MANAGED_BLOBS:
        return []
    if state.manifest.base_paths:
        raise UnsupportedError(
            "the table manages its blobs and has base paths, so that payloads may lie below any of them: this release "
            "does not copy those. Clone it with shallow_clone, or write its rows to a new table",
            path=state.location.uri,
        )

    paths: set[str] = yield from managed_blobs.ManagedBlobs(state).paths(state.manifest)
    store = state.location.store
    return [ObjectCopy(store, state.location.key(path), place.store, place.key(path)) for path in sorted(paths)]


def _index_files(state: DatasetState, place: Location) -> Plan[list[ObjectCopy]]:
    section = state.manifest.index_section
    copies = []
    for index in [] if section is None else decode_indices(section):
        source = _folder(state, index.base_id)
        folder = source.key(INDICES, index.uuid, "")
        metas: list[ObjectMeta] = yield List(source.store, folder)
        own = place.key(INDICES, index.uuid, "")
        copies += [
            ObjectCopy(source.store, one.key, place.store, own + one.key[len(folder) :], one.size_bytes)
            for one in metas
            if not one.is_folder
        ]
    return copies


def _folder(state: DatasetState, base_id: int | None) -> Location:
    """The table's own folder, or that of a base path."""
    base: BasePath | None = None if base_id is None else state.manifest.base_paths[base_id]
    return state.location if base is None else state.places.base_folder(base)
