"""An encoded page: its buffers and the message that describes them.

The file writer decides where the buffers go. A reader needs those of `Role.INDEX` before it can locate rows
(mini-block chunk metadata, dictionaries, repetition indexes); the writer may move them away from the page's data, so
that one read fetches the indexes of many pages.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.wire import Buffer


def num_bytes_of(parts: Sequence[Buffer]) -> int:
    """Total size of the buffers in bytes."""
    if len(parts) == 1:  # fast path: the common case
        return memoryview(parts[0]).nbytes
    return sum([memoryview(part).nbytes for part in parts])


class Role(Enum):
    """The purpose of a page's buffer."""

    DATA = "data"
    INDEX = "index"


@dataclass(frozen=True, slots=True, eq=False)
class PageBuffer:
    """One buffer of a page: its parts back to back. The file writer pads it to 64 bytes."""

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
    buffers   in the order that the layout requires
    """

    num_rows: int
    layout: bytes
    buffers: tuple[PageBuffer, ...]
