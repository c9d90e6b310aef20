"""Reading a list of ranges of a local file in plain Python, until the kernel of the same signature is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lance_io.spans import IntArray


def read_ranges(
    fd: int, starts: IntArray, ends: IntArray, gap_bytes_max: int, threads_max: int, scratch: Any
) -> tuple[Any, Any, int, int]:
    """See `_kernels.read_ranges`."""
    lengths = ends - starts
    if len(starts) and (int(starts.min()) < 0 or int(lengths.min()) < 0):
        raise ValueError("a range has a negative start or length")
    offsets = np.zeros(len(starts), np.int64)
    pieces, num_reads, at = [], 0, 0
    for index, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        offsets[index] = at
        if length:
            piece = os.pread(fd, length, start)
            if len(piece) < length:
                raise EOFError("the file ends inside a range")
            pieces.append(piece)
            num_reads += 1
            at += length
    return b"".join(pieces), offsets, num_reads, at
