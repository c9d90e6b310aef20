"""The end of a data file as writers leave it, taken apart by a kernel in one go.

`footer.py`, `globals.py` and `columns.py` read the same step by step, in whatever form it is, and say what is wrong
with it. What is found here is what they would have found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lance_io import _kernels
from lance_io.format.footer import ALIGNMENT_BYTES, Footer
from lance_io.format.version import V2_0, V2_1, V2_2, FileVersion
from lance_io.limits import METADATA_BYTES_MAX

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer


_VERSIONS: Final[dict[tuple[int, int], FileVersion]] = {(0, 3): V2_0, (2, 0): V2_0, V2_1: V2_1, V2_2: V2_2}


class Ending(NamedTuple):
    """What lies at the end of a file.

    footer      sections and version
    descriptor  global buffer 0 without its number of rows: the same, byte by byte, in most files of a table
    num_rows    that number
    messages    the bytes between `footer.columns_at` and the footer: column metadata, and the two offset tables
    """

    footer: Footer
    descriptor: bytes
    num_rows: int
    messages: bytes


def decode_ending(tail: Buffer, start: int, file_bytes: int) -> Ending | None:
    """All of the metadata, if the tail has it in the usual form, with nothing amiss; else None.

    start  file offset at which `tail` begins, which goes to the end of the file
    """
    found = _kernels.file_ending(tail, start, file_bytes, METADATA_BYTES_MAX, ALIGNMENT_BYTES)
    if found is None:
        return None
    sections, numbers, descriptor, num_rows, messages = found
    version = _VERSIONS.get(numbers)
    if version is None:  # those of 0.1 have other rules
        return None
    return Ending(Footer(*sections, version, file_bytes), descriptor, num_rows, messages)
