"""The end of a data file in the form that writers produce, parsed by one kernel call.

This is the fast path. `footer.py`, `globals.py` and `columns.py` are the fallback: they parse any form step by step,
return the same values, and report faults.
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
    """The sections at the end of a file.

    footer      sections and version
    descriptor  global buffer 0 without its number of rows: identical bytes in most files of a table
    num_rows    number of rows in the file
    messages    the bytes between `footer.columns_at` and the footer: column metadata, and the two offset tables
    """

    footer: Footer
    descriptor: bytes
    num_rows: int
    messages: bytes


def decode_ending(tail: Buffer, start: int, file_bytes: int) -> Ending | None:
    """Parse all metadata if the tail has the usual form and passes all checks, else None.

    start  file offset at which `tail` begins; it ends at the end of the file
    """
    parsed = _kernels.file_ending(tail, start, file_bytes, METADATA_BYTES_MAX, ALIGNMENT_BYTES)
    if parsed is None:
        return None
    sections, numbers, descriptor, num_rows, messages = parsed
    version = _VERSIONS.get(numbers)
    if version is None:  # version 0.1 has other rules
        return None
    return Ending(Footer(*sections, version, file_bytes), descriptor, num_rows, messages)
