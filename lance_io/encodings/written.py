"""A page as an encoder leaves it: buffers and the message that describes them.

The file room decides where the buffers go. Those of `Role.INDEX` are what a reader needs before it can locate rows
(mini-block chunk metadata, dictionaries, repetition indexes); they may be moved away from the page's data so that
one read fetches those of many pages.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.wire import Buffer


def num_bytes_of(parts: Sequence[Buffer]) -> int:
    """What buffers have together."""
    if len(parts) == 1:  # as nearly all have
        return memoryview(parts[0]).nbytes
    return sum([memoryview(part).nbytes for part in parts])


class Role(Enum):
    """What a buffer of a page is for."""

    DATA = "data"
    INDEX = "index"


@dataclass(frozen=True, slots=True, eq=False)
class PageBuffer:
    """One buffer of a page: its parts back to back, padded to 64 bytes by whoever writes it."""

    role: Role
    parts: Sequence[Buffer]

    @property
    def num_bytes(self) -> int:
        """Size without padding."""
        return num_bytes_of(self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPage:
    """One page, ready to be written.

    num_rows  value of `length` in the page's message
    layout    a serialised `PageLayout` message
    buffers   in the order that the layout demands
    """

    num_rows: int
    layout: bytes
    buffers: tuple[PageBuffer, ...]
