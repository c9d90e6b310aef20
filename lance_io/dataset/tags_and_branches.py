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
    """One tag.

    Attributes:
        branch: Branch of the version; None for the main branch.
        version: Number of the version.
        created_at: Time of creation; None if not recorded.
        updated_at: Time of the last update; None if not recorded.
        manifest_size: Bytes of the manifest.
        metadata: Free text by key.
    """

    branch: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    manifest_size: int
    metadata: dict[str, str]


class Branch(TypedDict):
    """One branch.

    Attributes:
        parent_branch: Branch that it starts from; None for the main branch.
        branch_identifier: `(version, id)` of each branch point, from the main branch on.
        parent_version: Version that it starts from.
        create_at: Time of creation, in seconds since 1970.
        manifest_size: Bytes of the manifest.
        metadata: Free text by key.
    """

    parent_branch: str | None
    branch_identifier: list[tuple[int, str]]
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


class Tags(SyncFace):
    """The tags of a table.

    A reference is a version number on the open branch, a tag, `(branch, version)`, or None for the open version.
    """

    def list(self) -> dict[str, Tag]:
        """List all tags by name."""
        return self._run(list_tags(self._state))

    def list_ordered(self, order: str | None = None) -> list_[tuple[str, Tag]]:
        """List all tags by version, then by name.

        Args:
            order: "desc" (the default) for the newest first, or "asc".

        Raises:
            ValueError: `order` is invalid.
        """
        return _order(self.list(), order, "version")

    def get_version(self, tag: str) -> int:
        """Look up the version of a tag.

        Args:
            tag: Name of the tag.

        Raises:
            ValueError: The tag does not exist.
        """
        return self._run(tag_of(self._state.root, tag)).version

    def create(self, tag: str, reference: Reference = None) -> None:
        """Create a tag.

        Args:
            tag: Name of the tag.
            reference: The version; see `Tags`.

        Raises:
            ValueError: The tag exists, or the version does not.
            OSError: The name is invalid.
        """
        self._run(create_tag(self._state, tag, reference))

    def update(self, tag: str, reference: Reference = None) -> None:
        """Move a tag to another version.

        Args:
            tag: Name of the tag.
            reference: The version; see `Tags`.

        Raises:
            ValueError: The tag or version does not exist.
        """
        self._run(update_tag(self._state, tag, reference))

    def delete(self, tag: str) -> None:
        """Remove a tag.

        Args:
            tag: Name of the tag.

        Raises:
            ValueError: The tag does not exist.
        """
        self._run(delete_tag(self._state, tag))

    def replace_metadata(self, tag: str, metadata: dict[str, str]) -> None:
        """Replace the metadata of a tag.

        Args:
            tag: Name of the tag.
            metadata: All entries of the new metadata.

        Raises:
            ValueError: The tag does not exist.
        """
        self._run(replace_tag_metadata(self._state, tag, metadata))


class Branches(SyncFace):
    """The branches of a table. `LanceDataset.create_branch` creates one."""

    def list(self) -> dict[str, Branch]:
        """List all branches except the main one, by name."""
        return self._run(list_branches(self._state))

    def list_ordered(self, order: str | None = None) -> list_[tuple[str, Branch]]:
        """List all branches by the version that they start from.

        Args:
            order: "desc" (the default) for the newest first, or "asc".

        Raises:
            ValueError: `order` is invalid.
        """
        return _order(self.list(), order, "parent_version")

    def delete(self, branch: str) -> None:
        """Remove a branch with all of its versions and files.

        Args:
            branch: Name of the branch.

        Raises:
            ValueError: The branch does not exist.
            OSError: Another branch or a tag refers to it.
        """
        self._run(change_branches.delete_branch(self._state, branch))

    def replace_metadata(self, branch: str, metadata: dict[str, str]) -> None:
        """Replace the metadata of a branch.

        Args:
            branch: Name of the branch.
            metadata: All entries of the new metadata.

        Raises:
            ValueError: The branch does not exist.
        """
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
    metas: list_[ObjectMeta] = yield List(root.store, root.key(folder) + "/")
    named = [(meta, name) for meta in metas if (name := ref_name(meta.name)) is not None]
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
