"""Whether ranges of bytes can be.

Which few reads serve them is told by a kernel (`plan_reads` in `_kernels.pyi`), and `reads.py` makes reads of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io._kernels import measure_ranges
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from lance_io.spans import Ranges


def check_ranges(wanted: Ranges, size_bytes: int | None, path: str) -> int:
    """The sum of the lengths; `FormatError` unless every range has `0 <= start <= end <= size_bytes` (None: any)."""
    num_bytes, _, _, bad = measure_ranges(wanted.starts, wanted.ends, size_bytes)
    if bad is None:
        return num_bytes
    start, end = int(wanted.starts[bad]), int(wanted.ends[bad])
    if 0 <= start <= end:
        raise FormatError(
            f"expected bytes {start} to {end}, but the file has {size_bytes}; it is damaged or cut short", path=path
        )
    raise FormatError(f"expected a range of bytes, found {start} to {end}; the file is damaged", path=path)
