"""Functions without arguments: random values, a constant, this library's version. The present time is in `dates`."""

from __future__ import annotations

import math
import uuid as uuids

import numpy as np
import pyarrow as pa

from lance_io.filters.functions.function_registry import SqlFunctions


def uuid(num_rows: int) -> pa.Array:
    """A random UUID (version 4) for each row, as text."""
    return pa.array([str(uuids.uuid4()) for _ in range(num_rows)], pa.string())


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
