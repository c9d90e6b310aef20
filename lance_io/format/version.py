"""File versions: the pairs of numbers on disk and the names people use (spec: file container, section 1.2).

footer      data file entry   name             aliases
0,0 .. 0,2  0,0 .. 0,2        0.1              legacy
0,3 (2,0)   2,0 (0,3)         2.0              0.3
2,1         2,1               2.1
2,2         2,2               2.2              stable
2,3         2,3               2.3 (unstable)   next
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lance_io.errors import UnsupportedError


class FileVersion(NamedTuple):
    """A version of the data file format; versions compare by age.

    major, minor  the pair that a manifest's data file entry carries (2.0 is 2,0 there, although its footer says 0,3)
    """

    major: int
    minor: int

    @property
    def name(self) -> str:
        """Its name in `data_storage_version`."""
        return _NAMES[self]

    @property
    def in_footer(self) -> tuple[int, int]:
        """The pair in footers."""
        return (0, 3) if self == V2_0 else (self.major, self.minor)

    def __str__(self) -> str:
        return self.name


V0_1: Final = FileVersion(0, 2)
V2_0: Final = FileVersion(2, 0)
V2_1: Final = FileVersion(2, 1)
V2_2: Final = FileVersion(2, 2)
V2_3: Final = FileVersion(2, 3)

READABLE: Final = frozenset({V0_1, V2_0, V2_1, V2_2})

_NAMES: Final = {V0_1: "0.1", V2_0: "2.0", V2_1: "2.1", V2_2: "2.2", V2_3: "2.3"}


class _ByPair(dict[tuple[int, int], FileVersion]):
    def __missing__(self, pair: tuple[int, int]) -> FileVersion:
        raise UnsupportedError(f"unknown file version {pair[0]}.{pair[1]}; known are {', '.join(_NAMES.values())}")


VERSION_OF_PAIR: Final = _ByPair(
    {
        (0, 0): V0_1,
        (0, 1): V0_1,
        (0, 2): V0_1,
        (0, 3): V2_0,
        (2, 0): V2_0,
        (2, 1): V2_1,
        (2, 2): V2_2,
        (2, 3): V2_3,
    }
)
"""The version of the pair in a footer or a data file entry; `UnsupportedError` for unknown pairs."""

_BY_NAME: Final = {
    **{name: version for version, name in _NAMES.items()},
    "legacy": V0_1,
    "0.3": V2_0,
    "stable": V2_2,
    "next": V2_3,
}


def version_of_name(name: str) -> FileVersion:
    """The version called `name` (aliases included); `UnsupportedError` for any other text."""
    version = _BY_NAME.get(name)
    if version is None:
        raise UnsupportedError(f"unknown file version {name!r}; known are {', '.join(_BY_NAME)}")
    return version


def check_readable(version: FileVersion) -> None:
    """Raise `UnsupportedError` unless data files of this version can be read."""
    if version not in READABLE:
        readable = ", ".join(sorted(each.name for each in READABLE))
        raise UnsupportedError(f"data files of version {version.name} are not read yet; this release reads {readable}")
