"""Tags and branches: small JSON files that name versions (spec: table, section 1.3).

_refs/tags/<tag>.json                          branch, version, createdAt, updatedAt, manifestSize, metadata
_refs/branches/<branch, percent-encoded>.json  parentBranch, identifier, parentVersion, createAt, manifestSize,
                                               metadata
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from lance_io.errors import FormatError, UsageError
from lance_io.records import dataclass
from lance_io.table.manifest.paths import BRANCH_TREES, BRANCHES, TAGS, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.format.wire import Buffer

MAIN: Final = "main"
_SUFFIX: Final = ".json"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SEGMENT = re.compile(r"[\w.-]+")  # of branches, whose names may have letters of any script


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version.

    branch                  None on the main branch
    manifest_size           bytes of the version's manifest file
    created_at, updated_at  RFC 3339 texts with nanoseconds, None when not recorded
    """

    version: int
    branch: str | None
    manifest_size: int
    created_at: str | None = None
    updated_at: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: versions that fork off a version of another branch.

    parent_branch   None if it forks off the main branch
    parent_version  the version that it forks off; its own first version has the same number
    created_at      seconds since the epoch
    manifest_size   bytes of its first manifest file
    identifier      the forks that lead to it from the main branch, each as the parent version and a random name
    """

    parent_branch: str | None
    parent_version: int
    created_at: int
    manifest_size: int
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    identifier: tuple[tuple[int, str], ...] = ()

    def descends_from(self, name: str, other: Branch) -> bool:
        """Whether it forks off the branch `other` with this name, directly or through other branches."""
        ancestors = other.identifier
        return self.parent_branch == name or (bool(ancestors) and self.identifier[: len(ancestors)] == ancestors)


class InvalidRefName(UsageError, OSError):
    """An invalid name of a tag or branch; pylance raises `OSError` for it."""


def check_tag_name(name: str) -> str:
    """`name` itself, if it is a valid name of a tag; else raises `UsageError`."""
    if not _NAME.fullmatch(name) or name.startswith(".") or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidRefName(
            f"Ref is invalid: {name!r}: expected letters, digits, '.', '-' and '_', no '.' at either end, no '..', "
            "not ending in '.lock'"
        )
    return name


def check_branch_name(name: str) -> str:
    """`name` itself, if it is a valid name of a branch (names like tags, joined by `/`); else raises `UsageError`."""
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a branch, found {name!r}")
    if name == MAIN:
        raise InvalidRefName(f"Ref is invalid: {MAIN!r} is reserved for the default branch; use another name")
    segments = name.split("/")
    if name.endswith(".lock") or ".." in name or "." in segments or not all(map(_SEGMENT.fullmatch, segments)):
        raise InvalidRefName(
            f"Ref is invalid: branch {name!r}: expected names of letters, digits, '.', '-', '_' joined by '/'"
        )
    return name


def tag_path(name: str) -> str:
    """Path of a tag's file below the table's folder. Raises `UsageError` for an invalid name."""
    return f"{TAGS}/{check_tag_name(name)}{_SUFFIX}"


def branch_path(name: str) -> str:
    """Path of a branch's file below the table's folder. Raises `UsageError` for an invalid name."""
    return f"{BRANCHES}/{quote(check_branch_name(name), safe='')}{_SUFFIX}"


def branch_root(root: str, branch: str | None) -> str:
    """Folder of a branch's versions, `root` itself for the main branch (None). Raises `UsageError`."""
    return root if branch is None or branch == MAIN else join(root, BRANCH_TREES, *check_branch_name(branch).split("/"))


def ref_name(file_name: str) -> str | None:
    """The tag or branch of a file in a refs folder; None for other files."""
    stem = file_name.removesuffix(_SUFFIX)
    return None if stem == file_name or not stem else unquote(stem)


def decode_tag(data: Buffer, name: str) -> Tag:
    """Parse a tag's file. Raises `FormatError`."""
    values = _object(data, f"tag {name!r}")
    return Tag(
        version=values.number("version"),
        branch=values.text("branch"),
        manifest_size=values.number("manifestSize"),
        created_at=values.text("createdAt"),
        updated_at=values.text("updatedAt"),
        metadata=values.metadata(),
    )


def encode_tag(tag: Tag) -> bytes:
    """The file of a tag."""
    members = {
        "branch": tag.branch,
        "version": tag.version,
        "createdAt": tag.created_at,
        "updatedAt": tag.updated_at,
        "manifestSize": tag.manifest_size,
        "metadata": dict(tag.metadata),
    }
    return json.dumps(members, indent=2, ensure_ascii=False).encode()


def ref_time(timestamp_ns: int) -> str:
    """A time in the format of tags: RFC 3339 in UTC, with nanoseconds. timestamp_ns: since the epoch."""
    seconds, nanoseconds = divmod(timestamp_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def decode_branch(data: Buffer, name: str) -> Branch:
    """Parse a branch's file. Raises `FormatError`."""
    values = _object(data, f"branch {name!r}")
    return Branch(
        parent_branch=values.text("parentBranch"),
        parent_version=values.number("parentVersion"),
        created_at=values.number("createAt"),
        manifest_size=values.number("manifestSize"),
        metadata=values.metadata(),
        identifier=values.forks(),
    )


def encode_branch(branch: Branch) -> bytes:
    """The file of a branch."""
    members = {
        "parentBranch": branch.parent_branch,
        "identifier": {"version_mapping": [[version, fork] for version, fork in branch.identifier]},
        "parentVersion": branch.parent_version,
        "createAt": branch.created_at,
        "manifestSize": branch.manifest_size,
        "metadata": dict(branch.metadata),
    }
    return json.dumps(members, indent=2, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class _Values:
    """A JSON object, and its name in errors."""

    name: str
    members: Mapping[str, Any]

    def number(self, key: str) -> int:
        value = self.members.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise FormatError(f"{self.name}: expected a number as {key!r}, found {str(value)[:100]!r}")
        return value

    def text(self, key: str) -> str | None:
        value = self.members.get(key)
        if value is not None and not isinstance(value, str):
            raise FormatError(f"{self.name}: expected a text or null as {key!r}, found {str(value)[:100]!r}")
        return value

    def metadata(self) -> dict[str, Any]:
        value = self.members.get("metadata")
        if value is not None and not isinstance(value, dict):
            raise FormatError(f"{self.name}: expected an object as 'metadata', found {str(value)[:100]!r}")
        return value or {}

    def forks(self) -> tuple[tuple[int, str], ...]:
        """The forks of a branch; empty if an earlier release did not record them."""
        identifier = self.members.get("identifier")
        mapping = identifier.get("version_mapping") if isinstance(identifier, dict) else None
        if not isinstance(mapping, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in mapping):
            return ()
        return tuple((int(version), str(fork)) for version, fork in mapping if isinstance(version, int))


def _object(data: Buffer, name: str) -> _Values:
    try:
        members = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: expected JSON: {error}") from error
    if not isinstance(members, dict):
        raise FormatError(f"{name}: expected a JSON object, found {type(members).__name__}")
    return _Values(name, members)
