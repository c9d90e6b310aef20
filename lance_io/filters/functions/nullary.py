"""Functions without arguments: random values, a constant, this library's version. The current time is in `dates`."""

from __future__ import annotations

import math
import os
from typing import Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import random_uuids
from lance_io.filters.functions.function_registry import SqlFunctions

_SEED_BYTES: Final = 32
_UUID_CHARS: Final = 36


def uuid(num_rows: int) -> pa.Array:
    """A random UUID (version 4) for each row, as text."""
    texts = random_uuids(num_rows, os.urandom(_SEED_BYTES))
    ends = np.arange(0, _UUID_CHARS * num_rows + 1, _UUID_CHARS).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), num_rows, [None, pa.py_buffer(ends), pa.py_buffer(texts)])


def random(num_rows: int) -> pa.Array:
    """A random number from 0 to 1 for each row."""
    return pa.array(np.random.default_rng().random(num_rows))


def pi() -> pa.Scalar:
    """The constant pi, f64."""
    return pa.scalar(math.pi)


def version() -> pa.Scalar:
    """Name and version of this library."""
    import importlib.metadata  # here: it loads many modules that nothing else needs

    return pa.scalar(f"lance_io {importlib.metadata.version('lance_io')}")


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("uuid", "", uuid, by_count=True)
FUNCTIONS.define("pi", "", pi, at_bind=True)
FUNCTIONS.define("random", "", random, by_count=True)
FUNCTIONS.define("version", "", version, at_bind=True)
