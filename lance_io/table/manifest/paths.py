"""Paths of the files of a table, and the check of paths from a manifest (spec: table, sections 1 and 3).

    data/<DataFile.path>                                       data files
    data/<stem of the data file>/<blob id>.blob                sidecars of blob columns (2.2)
    _deletions/<fragment>-<read version>-<id>.arrow|bin        deletion files
    _transactions/<name>                                       transactions
    _indices/<uuid>/...                                        indices
    _refs/tags/<tag>.json  _refs/branches/<branch>.json        tags and branches
    tree/<branch>/...                                          the same tree again, per branch
    _versions/<2^64-1-v, 20 digits>.manifest                   version v, naming scheme V2
    _versions/<v>.manifest                                     version v, naming scheme V1
    _versions/d<v>.manifest                                    detached version v

A manifest is not trusted: a path that leaves its folder is an error. Files outside of the table's folder must be below
a base path that the manifest declares.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from lance_io.errors import FormatError
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.table.manifest.fragment import DataFile, DeletionFile
    from lance_io.table.manifest.manifest import BasePath

DATA: Final = "data"
DELETIONS: Final = "_deletions"
INDICES: Final = "_indices"
TRANSACTIONS: Final = "_transactions"
VERSIONS: Final = "_versions"
TAGS: Final = "_refs/tags"
BRANCHES: Final = "_refs/branches"
BRANCH_TREES: Final = "tree"
HINT_NAME: Final = "latest_version_hint.json"
RENAMING: Final = ".cleanup-names-"
"""Prefix of the names of notes about renamings of manifests (`commit/pins.py`)."""

NamingScheme = Literal["V1", "V2", "detached"]
DETACHED_BIT: Final = 1 << 63
_U64_MAX: Final = (1 << 64) - 1
_V2_NAME_CHARS: Final = 29  # 20 digits and ".manifest"
_SUFFIX: Final = ".manifest"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_STAGED = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_CONTROL = re.compile(r"[\x00-\x1f]")
_PATH_CHARS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The location of a file.

    base      base path that it is below, None for the table's own folder
    relative  path below that folder, checked not to leave it
    """

    base: BasePath | None
    relative: str


def check_relative(path: str, what: str) -> str:
    """`path` itself, if it stays below the folder that it is relative to; else raises `FormatError`.

    Refuses empty and absolute paths, `.` and `..` steps, schemes and drive letters, backslashes and control characters.

    what  name of the path, for errors
    """
    steps = path.split("/")
    if (
        not path
        or path.startswith("/")
        or "\\" in path
        or "." in steps
        or ".." in steps
        or _SCHEME.match(path)
        or _CONTROL.search(path)
    ):
        raise FormatError(
            f"{what}: the path {path[:_PATH_CHARS_SHOWN]!r} leaves its folder, expected a relative one. "
            "Refused, because a damaged or hostile manifest could name any file this way"
        )
    return path


def join(folder: str, *steps: str) -> str:
    """A key below `folder`, which may be empty: the root of a bucket."""
    return "/".join([folder.rstrip("/"), *steps]) if folder not in ("", "/") else folder + "/".join(steps)


def data_file_location(file: DataFile, bases: Mapping[int, BasePath]) -> FileLocation:
    """The location of a data file. Raises `FormatError` for a path that leaves its folder, or an undeclared base."""
    path = check_relative(file.path, "data file")
    base = _base(file.base_id, bases)
    return FileLocation(base, path if base is not None and not base.is_dataset_root else f"{DATA}/{path}")


def deletion_file_location(fragment_id: int, file: DeletionFile, bases: Mapping[int, BasePath]) -> FileLocation:
    """The location of a fragment's deletion file. Raises `FormatError` for an undeclared base."""
    suffix = "arrow" if file.kind == "arrow" else "bin"
    name = f"{fragment_id}-{file.read_version}-{file.id}.{suffix}"
    return FileLocation(_base(file.base_id, bases), f"{DELETIONS}/{name}")


def index_file_location(uuid: str, base_id: int | None, name: str, bases: Mapping[int, BasePath]) -> FileLocation:
    """The location of a file of an index. Raises `FormatError` for an undeclared base."""
    return FileLocation(_base(base_id, bases), f"{INDICES}/{uuid}/{check_relative(name, 'index file')}")


def transaction_path(name: str) -> str:
    """Path of a transaction file, from its name in the manifest. Raises `FormatError`."""
    if "/" in name:
        raise FormatError(f"transaction file: expected a bare file name, found {name[:_PATH_CHARS_SHOWN]!r}")
    return f"{TRANSACTIONS}/{check_relative(name, 'transaction file')}"


def _base(base_id: int | None, bases: Mapping[int, BasePath]) -> BasePath | None:
    if base_id is None:
        return None
    base = bases.get(base_id)
    if base is None:
        raise FormatError(f"a file lies below base path {base_id}, which the manifest does not declare")
    return base


@dataclass(frozen=True, slots=True)
class ManifestName:
    """The parsed name of a manifest file."""

    scheme: NamingScheme
    version: int


def is_detached(version: int) -> bool:
    """Whether a version number is that of a detached version."""
    return bool(version & DETACHED_BIT)


def manifest_name(version: int, scheme: NamingScheme) -> str:
    """Name of the manifest file of a version."""
    if scheme == "V2":
        return f"{_U64_MAX - version:020d}{_SUFFIX}"
    return f"d{version}{_SUFFIX}" if scheme == "detached" else f"{version}{_SUFFIX}"


def manifest_names(version: int) -> tuple[str, ...]:
    """The names that the manifest of a version may have, the most likely first."""
    if is_detached(version):
        return (manifest_name(version, "detached"),)
    return manifest_name(version, "V2"), manifest_name(version, "V1")


def parse_manifest_name(name: str) -> ManifestName | None:
    """Parse a file name in `_versions/`; None for files that are not manifests."""
    stem = name.removesuffix(_SUFFIX)
    digits = stem.removeprefix("d")
    if stem == name or not (digits.isascii() and digits.isdecimal()) or len(digits) > 20:
        return None
    number = int(digits)
    if number > _U64_MAX:
        return None
    if digits != stem:
        return ManifestName("detached", number)
    if len(name) == _V2_NAME_CHARS:
        return ManifestName("V2", _U64_MAX - number)
    return ManifestName("V1", number)


def staged_for(name: str) -> str | None:
    """The final name of a staging object in `_versions/` (see `commit/external.py`); None for other files."""
    final = _STAGED.sub("", name)
    return None if final == name or parse_manifest_name(final) is None else final
