"""Functions without arguments: random values, a constant, this library's version. The present time is in `dates`."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from lance_io.filters.functions.function_registry import SqlFunctions

_UUID_BYTES: Final = 16
_UUID_CHARS: Final = 36
_UUID_GROUPS: Final = (0, 8, 12, 16, 20, 32)  # of digits


def uuid(num_rows: int) -> pa.Array:
    """A random UUID (version 4) for each row, as text."""
    drawn = np.frombuffer(os.urandom(_UUID_BYTES * num_rows), np.uint8).reshape(num_rows, _UUID_BYTES).copy()
    drawn[:, 6] = drawn[:, 6] & 0x0F | 0x40  # the version
    drawn[:, 8] = drawn[:, 8] & 0x3F | 0x80  # the variant
    digits = np.frombuffer(drawn.tobytes().hex().encode(), np.uint8).reshape(num_rows, 2 * _UUID_BYTES)
    texts = np.full((num_rows, _UUID_CHARS), ord("-"), np.uint8)
    for number, (start, end) in enumerate(pairwise(_UUID_GROUPS)):
        texts[:, start + number : end + number] = digits[:, start:end]  # a dash in front of all groups but the first
    ends = np.arange(0, _UUID_CHARS * num_rows + 1, _UUID_CHARS).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), num_rows, [None, pa.py_buffer(ends), pa.py_buffer(texts)])


def random(num_rows: int) -> pa.Array:
    """Numbers from 0 to 1, another one for each row."""
    return pa.array(np.random.default_rng().random(num_rows))


def pi() -> pa.Scalar:
    """The number."""
    return pa.scalar(math.pi)


def version() -> pa.Scalar:
    """Name and version of this library."""
    import importlib.metadata  # which loads much that nothing else here needs

    return pa.scalar(f"lance_io {importlib.metadata.version('lance_io')}")


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("uuid", "", uuid, by_count=True)
FUNCTIONS.define("pi", "", pi, at_bind=True)
FUNCTIONS.define("random", "", random, by_count=True)
FUNCTIONS.define("version", "", version, at_bind=True)
