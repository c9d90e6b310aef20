"""Tags: names for versions, created, moved and removed (spec: table, section 1.3)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.changes.upkeep.held_versions import RefConflict, create_ref, hold_version
from lance_io.commit.handler import Taken
from lance_io.errors import CommitUnknownError
from lance_io.plans.store_requests import Put, Remove
from lance_io.reads.open_version import tag_of
from lance_io.table.manifest.refs import Tag, check_tag_name, encode_tag, ref_time, tag_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState


def create_tag(state: DatasetState, name: str, reference: Any) -> Plan[None]:
    """Name a version; see `Tags.create`."""
    check_tag_name(name)
    state.check_commits()

    def create(branch: str | None, file: VersionFile) -> Plan[None]:
        now = ref_time(time.time_ns())
        tag = encode_tag(Tag(file.version, branch, file.size_bytes, now, now))
        key = state.root.key(tag_path(name))
        try:
            created = yield from create_ref(state, key, tag, file.version)
        except CommitUnknownError as error:
            text = f"tag {name} may or may not have been created: the response was lost, and reading it back failed"
            raise CommitUnknownError(text, path=state.root.uri) from error
        if isinstance(created, Taken):
            raise RefConflict(f"Ref conflict error: tag {name} already exists in {state.root.uri}", path=state.root.uri)

    yield from hold_version(state, reference, create)


def update_tag(state: DatasetState, name: str, reference: Any) -> Plan[None]:
    """Move a tag to another version; see `Tags.update`."""
    tag = yield from tag_of(state.root, name)

    def move(branch: str | None, file: VersionFile) -> Plan[None]:
        moved = replace(tag, version=file.version, branch=branch, manifest_size=file.size_bytes)
        yield from _write(state, name, replace(moved, updated_at=ref_time(time.time_ns())))

    yield from hold_version(state, reference, move)


def replace_tag_metadata(state: DatasetState, name: str, metadata: Mapping[str, str]) -> Plan[None]:
    """Replace the metadata of a tag; see `Tags.replace_metadata`."""
    tag = yield from tag_of(state.root, name)
    yield from _write(state, name, replace(tag, metadata=dict(metadata), updated_at=ref_time(time.time_ns())))


def delete_tag(state: DatasetState, name: str) -> Plan[None]:
    """Remove a tag; see `Tags.delete`."""
    yield from tag_of(state.root, name)
    yield Remove(state.root.store, [state.root.key(tag_path(name))])


def _write(state: DatasetState, name: str, tag: Tag) -> Plan[None]:
    yield Put(state.root.store, state.root.key(tag_path(name)), encode_tag(tag))
