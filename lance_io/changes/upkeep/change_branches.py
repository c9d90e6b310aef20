"""Branches: lines of versions that fork from another one; created and removed (spec: table, section 1.3).

    create   pin the version; write its manifest to `tree/<name>`, with the source as base path; write the branch file
    remove   announce it, check references; remove manifests, then other files, then the branch file

The branch file is written last and removed last. A process that ends in between leaves versions in `tree/<name>`
without a branch file, which creating the branch again takes over; or a branch file with fewer versions, and removing
the branch again removes the rest.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from lance_io.changes.upkeep.held_versions import RefConflict, create_ref, hold_version
from lance_io.commit.cleanups.cleanup_reads import unfinished_files
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.commit.handler import Taken
from lance_io.commit.latest import list_versions
from lance_io.commit.manifest_reads import read_manifest, recorded_transaction
from lance_io.commit.pins import announce, release
from lance_io.commit.target import CommitTarget, CommittedVersion, SystemClock
from lance_io.errors import AlreadyExists, CommitUnknownError, FormatError, LanceError, NotFound, UsageError
from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List, OwnFiles, Put, Read, Remove, RemoveEmptyFolders
from lance_io.reads.version.object_keys import branch_location
from lance_io.reads.version.row_counts import with_row_counts
from lance_io.store.offers import HoldsFolders
from lance_io.table.manifest.paths import (
    BRANCHES,
    DATA,
    DELETIONS,
    INDICES,
    TAGS,
    TRANSACTIONS,
    VERSIONS,
    is_detached,
)
from lance_io.table.manifest.refs import (
    Branch,
    branch_path,
    check_branch_name,
    decode_branch,
    decode_tag,
    encode_branch,
    ref_name,
)
from lance_io.table.transaction.operations import Clone
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest

_FOLDERS: Final = (VERSIONS, DATA, DELETIONS, TRANSACTIONS, INDICES, BLOB_FOLDER)
_KEYS_AT_ONCE: Final = 10_000


class BranchInUse(LanceError, OSError):
    """A branch cannot be removed because others refer to it."""


def create_branch(state: DatasetState, name: str, reference: Any) -> Plan[DatasetState]:
    """Create a branch from a version; returns its first version, see `LanceDataset.create_branch`."""
    check_branch_name(name)
    state.check_commits()
    key = state.root.key(branch_path(name))

    def create(parent: str | None, file: VersionFile) -> Plan[Manifest]:
        if is_detached(file.version):
            raise UsageError(f"version {file.version} is detached: cannot create a branch from it")
        if (yield from _find_branch(state.root, name)) is not None:
            raise _taken(state, name)
        forks = () if parent is None else (yield from branch_of(state.root, parent)).identifier
        source = branch_location(state.root, parent)
        manifest, _ = yield from read_manifest(source, file.key, file.version)
        committed = yield from _first_version(state, name, parent, source, manifest)
        branch = Branch(
            parent_branch=parent,
            parent_version=file.version,
            created_at=time.time_ns() // 10**9,
            manifest_size=committed.file.size_bytes,
            identifier=(*forks, (file.version, uuid4().hex)),
        )
        try:
            created = yield from create_ref(state, key, encode_branch(branch), file.version)
        except CommitUnknownError as error:
            text = f"branch {name} may or may not have been created: the response was lost, and reading it back failed"
            raise CommitUnknownError(text, path=state.root.uri) from error
        if isinstance(created, Taken):
            raise _taken(state, name)
        return committed.manifest

    manifest = yield from hold_version(state, reference, create)
    location = branch_location(state.root, name)
    opened = replace(state, location=location, manifest=manifest, given_uri=location.uri)
    return (yield from with_row_counts(opened))


def _taken(state: DatasetState, name: str) -> RefConflict:
    return RefConflict(f"Ref conflict error: branch {name} already exists in {state.root.uri}", path=state.root.uri)


def _first_version(
    state: DatasetState, name: str, parent: str | None, source: Location, manifest: Manifest
) -> Plan[CommittedVersion]:
    """Commit the first version of a branch, or find the one of an interrupted attempt."""
    location = branch_location(state.root, name)
    target = CommitTarget(location, state.session.handler(location, state.commit_lock))
    operation = Clone(True, parent, manifest.version, base_path_of(source), name)
    try:
        return (yield from create_clone(target, manifest, operation))
    except AlreadyExists as error:
        left = yield from _find_left(location, operation)
        if left is None:
            raise RefConflict(
                f"{location.uri} holds versions, but there is no branch {name}: an interrupted creation from another "
                "version left them, or another process is creating it. Remove it with branches.delete, or use another "
                "name",
                path=state.root.uri,
            ) from error
        return left


def create_clone(target: CommitTarget, manifest: Manifest, operation: Clone) -> Plan[CommittedVersion]:
    """Commit the first version of a clone or branch; `manifest` is the source version.

    Raises `AlreadyExists` if there are versions, `CommitUnknownError` if the outcome is unknown.
    """
    request = CommitRequest(Transaction(manifest.version, operation), base=manifest)
    try:
        return (yield from create_table(target, request))
    except CommitUnknownError as error:
        uri = target.location.uri
        text = f"{uri} may or may not have been created: the response was lost, and reading it back failed"
        raise CommitUnknownError(text, path=uri) from error


def _find_left(location: Location, operation: Clone) -> Plan[CommittedVersion | None]:
    """The first version of an interrupted creation with the same operation, if it is the only version."""
    files = yield from list_versions(location.store, location.path)
    manifest, data = yield from read_manifest(location, files[0].key, files[0].version)
    transaction = yield from recorded_transaction(location, files[0].key, manifest, data)
    if len(files) > 1 or transaction is None or transaction.operation != operation:
        return None
    return CommittedVersion(files[0], manifest, transaction, attempts=0)


def base_path_of(location: Location) -> str:
    """The name of a folder as base path of a table in the same store."""
    is_private = location.uri.startswith("memory:")  # other tables cannot open it by URI
    return f"/{location.path}" if is_private else location.uri


# -- removing ----------------------------------------------------------------------------------------------------------


def delete_branch(state: DatasetState, name: str) -> Plan[None]:
    """Remove a branch; see `Branches.delete`."""
    check_branch_name(name)
    root, location = state.root, branch_location(state.root, name)
    branch = yield from _find_branch(root, name)
    versions = yield from _versions_of(location)
    handler = state.session.handler(location, state.commit_lock)
    if branch is None and not versions and not (yield from handler.forget(location)):
        raise NotFound(f"Ref not found error: Branch {name} does not exist in {root.uri}", path=root.uri)
    intent = yield from announce(location, versions, SystemClock())
    try:
        if intent.pinned:
            raise BranchInUse(
                f"Ref conflict error: branch {name} cannot be deleted: a tag, branch or restore is being made of its "
                f"versions {sorted(intent.pinned)} in {root.uri}",
                path=root.uri,
            )
        branches = yield from _read_branches(root)
        if branch is not None:
            yield from _refuse_if_needed(root, name, branch, branches)
        nested = [branch_location(root, other) for other in branches if other.startswith(f"{name}/")]
        yield from _remove_files(location, nested, intent.key)
        yield from handler.forget(location)
    except Exception:
        yield from release(location, intent)
        raise
    yield from release(location, intent)
    yield Remove(root.store, (root.key(branch_path(name)),))
    if isinstance(root.store, HoldsFolders):
        yield RemoveEmptyFolders(root.store, location.path)


def _versions_of(location: Location) -> Plan[list[int]]:
    try:
        return [file.version for file in (yield from list_versions(location.store, location.path))]
    except NotFound:
        return []


def _refuse_if_needed(root: Location, name: str, branch: Branch, branches: Mapping[str, Branch]) -> Plan[None]:
    """Raise `BranchInUse` if other branches or tags refer to a branch."""
    heirs = [
        (other_name, other.parent_version)
        for other_name, other in branches.items()
        if other_name != name and other.descends_from(name, branch)
    ]
    if heirs:
        text = f"Branch {name} is referenced by {sorted(heirs)} versions, can not delete in {root.uri}"
        raise BranchInUse(f"Ref conflict error: {text}", path=root.uri)
    metas: list[ObjectMeta] = yield List(root.store, root.key(TAGS, ""))
    named = [(tag, meta.key) for meta in metas if (tag := ref_name(meta.name)) is not None]
    files = yield Together([_read_ref(root, key) for _, key in named])
    decoded = [(tag, decode_tag(data, tag)) for (tag, _), data in zip(named, files, strict=True) if data is not None]
    tags = [(tag_name, tag.version) for tag_name, tag in decoded if tag.branch == name]
    if tags:
        raise BranchInUse(
            f"Ref conflict error: Branch {name} is referenced by tags {sorted(tags)}, can not delete in {root.uri}",
            path=root.uri,
        )


def _remove_files(location: Location, nested: Sequence[Location], intent: str) -> Plan[None]:
    """Remove the files in the folders of a branch, manifests first.

    nested  branches whose names begin with its own; their files stay
    intent  key of the removal's announcement, which stays until the end
    """
    if isinstance(location.store, HoldsFolders):
        keys = [*(yield OwnFiles(location.store, location.path))]
    else:
        metas: list[ObjectMeta] = yield List(location.store, location.key(""))
        unfinished = yield from unfinished_files(location)
        keys = [meta.key for meta in (*metas, *unfinished.values())]
    own = tuple(location.key(folder, "") for folder in _FOLDERS)
    others = tuple(branch.key("") for branch in nested)
    keys = [key for key in keys if key.startswith(own) and not key.startswith(others) and key != intent]
    versions = location.key(VERSIONS, "")
    keys.sort(key=lambda key: (not key.startswith(versions), key))
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        yield Remove(location.store, keys[start : start + _KEYS_AT_ONCE])


# -- files of branches -------------------------------------------------------------------------------------------------


def replace_branch_metadata(state: DatasetState, name: str, metadata: Mapping[str, str]) -> Plan[None]:
    """Replace the metadata of a branch; see `Branches.replace_metadata`. Other members of its file stay."""
    key = state.root.key(branch_path(name))
    wrong = [value for entry in metadata.items() for value in entry if not isinstance(value, str)]
    if wrong:
        raise TypeError(f"metadata: expected strings, found {wrong[0]!r}")
    data = yield from _read_ref(state.root, key)
    if data is None:
        raise _missing(state.root, name)
    decode_branch(data, name)
    members = {**json.loads(bytes(data)), "metadata": dict(metadata)}
    yield Put(state.root.store, key, json.dumps(members, indent=2, ensure_ascii=False).encode())


def branch_of(root: Location, name: str) -> Plan[Branch]:
    """The content of a branch file. Raises `NotFound` if there is none."""
    branch = yield from _find_branch(root, name)
    if branch is None:
        raise _missing(root, name)
    return branch


def _missing(root: Location, name: str) -> NotFound:
    return NotFound(f"Ref not found error: branch {name} does not exist in {root.uri}", path=root.uri)


def _find_branch(root: Location, name: str) -> Plan[Branch | None]:
    key = root.key(branch_path(name))
    data = yield from _read_ref(root, key)
    return None if data is None else _decoded(data, name, key)


def _read_branches(root: Location) -> Plan[dict[str, Branch]]:
    """All branches by name."""
    metas: list[ObjectMeta] = yield List(root.store, root.key(BRANCHES, ""))
    named = [(name, meta.key) for meta in metas if (name := ref_name(meta.name)) is not None]
    files = yield Together([_read_ref(root, key) for _, key in named])
    return {name: _decoded(data, name, key) for (name, key), data in zip(named, files, strict=True) if data is not None}


def _read_ref(root: Location, key: str) -> Plan[bytes | None]:
    try:
        return bytes((yield Read(root.store, key)))
    except NotFound:
        return None


def _decoded(data: bytes, name: str, key: str) -> Branch:
    try:
        return decode_branch(data, name)
    except FormatError as error:
        error.path = key
        raise
