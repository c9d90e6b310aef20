"""State that all layouts of one page share: its buffers, its path, its file version's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lance_io._kernels import TooLargeError
from lance_io.errors import FormatError, ResourceLimitError
from lance_io.records import dataclass
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io._kernels import DamagedError
    from lance_io.levels.path import LeafPath
    from lance_io.spans import Purpose


@dataclass(frozen=True, slots=True)
class VersionRules:
    """Differences between the file versions that share these layouts (spec: structural encodings 2.1, section 10).

    name             of the file version, for messages
    wide_chunks      chunk words and value sizes are u32 and `has_large_chunk` is set
    constant_values  pages of one repeated value, compressed levels of all-null pages
    packed_variable  packed structs with members of variable width
    """

    name: str
    wide_chunks: bool
    constant_values: bool
    packed_variable: bool


RULES_2_1 = VersionRules("2.1", wide_chunks=False, constant_values=False, packed_variable=False)
RULES_2_2 = VersionRules("2.2", wide_chunks=True, constant_values=True, packed_variable=True)


class PageSource(NamedTuple):
    """One page, as its column metadata describes it (a tuple, because wide tables have many).

    buffer_offsets, buffer_sizes  absolute file offsets and exact sizes, in bytes
    num_rows                      page rows (slots, below a fixed-size list of structs)
    """

    buffer_offsets: tuple[int, ...]
    buffer_sizes: tuple[int, ...]
    num_rows: int
    path: LeafPath
    rules: VersionRules

    @property
    def num_bytes(self) -> int:
        """Sum of the buffer sizes."""
        return sum(self.buffer_sizes)

    def ranges(self, buffers: Iterable[int], purpose: Purpose, *, keep: bool = False) -> Ranges:
        """The file ranges of some buffers, in this order."""
        chosen = list(buffers)
        starts = np.array([self.buffer_offsets[i] for i in chosen], dtype=np.int64)
        sizes = np.array([self.buffer_sizes[i] for i in chosen], dtype=np.int64)
        return Ranges(starts, starts + sizes, purpose, keep)

    def expect_buffers(self, count: int) -> None:
        """Raise FormatError unless the page has exactly `count` buffers."""
        if len(self.buffer_sizes) != count:
            raise FormatError(f"the page has {len(self.buffer_sizes)} buffers; its layout needs {count}")


def damage_error(error: DamagedError) -> FormatError | ResourceLimitError:
    """Convert a kernel's error to the error that users see; file readers add the location.

    For one of many pages, the kernel's error carries the page's index as a second argument.
    """
    if isinstance(error, TooLargeError):
        return ResourceLimitError(f"{error.args[0]}: open the table with a larger one to read it")
    return FormatError(str(error.args[0]))


def has_definition(layers: Sequence[int]) -> bool:
    """True when any layer owns definition levels."""
    return any(layer >= 3 for layer in layers)


def has_repetition(layers: Sequence[int]) -> bool:
    """True when any layer is a list."""
    return any(layer in (2, 4, 5, 6) for layer in layers)
