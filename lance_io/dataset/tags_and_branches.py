"""Tags and branches of a table (specification: table, section 1.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lance_io.changes.upkeep import change_branches
from lance_io.changes.upkeep.change_tags import create_tag, delete_tag, replace_tag_metadata, update_tag
from lance_io.errors import FormatError, UsageError
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List, Read
from lance_io.reads.open_version import tag_of
from lance_io.reads.run_plan import SyncFace
from lance_io.reads.version.timestamps import parse_time
from lance_io.table.manifest.paths import BRANCHES, TAGS
from lance_io.table.manifest.refs import decode_branch, decode_tag, ref_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location

    Reference = int | str | tuple[str | None, int | None] | None

T = TypeVar("T")
list_ = list  # `Tags.list` hides the type inside its class


class Tag(TypedDict):
    """One tag; `branch` is None on the main branch."""

    branch: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    manifest_size: int
    metadata: dict[str, str]


class Branch(TypedDict):
    """One branch; `parent_branch` is None for one that left the main branch."""

    parent_branch: str | None
    branch_identifier: list[tuple[int, str]]
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


class Tags(SyncFace):
    """The tags of a table. A reference is a version number, a tag, `(branch, version)`, or None: the open version."""

    def list(self) -> dict[str, Tag]:
        """All tags by name."""
        return self._run(list_tags(self._state))

    def list_ordered(self, order: str | None = None) -> list_[tuple[str, Tag]]:
        """All tags by version, newest first ("desc", the default) or oldest first ("asc"), then by name."""
        return _order(self.list(), order, "version")

    def get_version(self, tag: str) -> int:
        """The version that a tag names. Raises `ValueError` when there is no such tag."""
        return self._run(tag_of(self._state.root, tag)).version

    def create(self, tag: str, reference: Reference = None) -> None:
        """Name a version. Raises `ValueError` for a tag that is there and a version that is not, `OSError` for a name
        that no tag may have.
        """
        self._run(create_tag(self._state, tag, reference))

    def update(self, tag: str, reference: Reference = None) -> None:
        """Let a tag name another version. Raises `ValueError` for a tag or version that is not there."""
        self._run(update_tag(self._state, tag, reference))

    def delete(self, tag: str) -> None:
        """Remove a tag. Raises `ValueError` when there is none."""
        self._run(delete_tag(self._state, tag))

    def replace_metadata(self, tag: str, metadata: dict[str, str]) -> None:
        """Give a tag other metadata. Raises `ValueError` when there is no such tag."""
        self._run(replace_tag_metadata(self._state, tag, metadata))


class Branches(SyncFace):
    """The branches of a table; `LanceDataset.create_branch` makes them."""

    def list(self) -> dict[str, Branch]:
        """All branches but the main one, by name."""
        return self._run(list_branches(self._state))

    def list_ordered(self, order: str | None = None) -> list_[tuple[str, Branch]]:
        """All branches by the version they left at, newest first ("desc", the default) or oldest first ("asc")."""
        return _order(self.list(), order, "parent_version")

    def delete(self, branch: str) -> None:
        """Remove a branch with all of its versions and files.

        Raises `ValueError` when there is none, `OSError` while another branch that left it, or a tag, needs it.
        """
        self._run(change_branches.delete_branch(self._state, branch))

    def replace_metadata(self, branch: str, metadata: dict[str, str]) -> None:
        """Give a branch other metadata. Raises `ValueError` when there is no such branch."""
        self._run(change_branches.replace_branch_metadata(self._state, branch, metadata))


def _order(entries: Mapping[str, T], order: str | None, key: str) -> list_[tuple[str, T]]:
    if order not in (None, "asc", "desc"):
        raise UsageError(f"Invalid sort order '{order}'. Valid values are: asc, desc")
    by_name = sorted(entries.items())
    return sorted(by_name, key=lambda entry: entry[1][key], reverse=order != "asc")  # type: ignore[index]


def list_tags(state: DatasetState) -> Plan[dict[str, Tag]]:
    """All tags of the table by name."""
    return (yield from _list(state.root, TAGS, _tag))


def list_branches(state: DatasetState) -> Plan[dict[str, Branch]]:
    """All branches of the table by name."""
    return (yield from _list(state.root, BRANCHES, _branch))


def _list(root: Location, folder: str, decode: Callable[[Any, str], T]) -> Plan[dict[str, T]]:
    found: list_[ObjectMeta] = yield List(root.store, root.key(folder) + "/")
    named = [(meta, name) for meta in found if (name := ref_name(meta.name)) is not None]
    contents: list_[T] = yield Together([_read(root, meta.key, name, decode) for meta, name in named])
    return dict(sorted(zip((name for _, name in named), contents, strict=True)))


def _read(root: Location, key: str, name: str, decode: Callable[[Any, str], T]) -> Plan[T]:
    data = yield Read(root.store, key)
    try:
        return decode(data, name)
    except FormatError as error:
        error.path = key
        raise


def _tag(data: Any, name: str) -> Tag:
    tag = decode_tag(data, name)
    return Tag(
        branch=tag.branch,
        version=tag.version,
        created_at=_time(tag.created_at),
        updated_at=_time(tag.updated_at),
        manifest_size=tag.manifest_size,
        metadata=dict(tag.metadata),
    )


def _time(text: str | None) -> datetime | None:
    """An RFC 3339 time, cut to microseconds."""
    return None if text is None else parse_time(text)


def _branch(data: Any, name: str) -> Branch:
    branch = decode_branch(data, name)
    return Branch(
        parent_branch=branch.parent_branch,
        branch_identifier=[*branch.identifier],
        parent_version=branch.parent_version,
        create_at=branch.created_at,
        manifest_size=branch.manifest_size,
        metadata=dict(branch.metadata),
    )
