"""Converts JSON text to stored values (JSONB; `jsonb.py` documents the layout and reads it). No I/O.

Members of objects are ordered by their keys' bytes. Whole numbers take the fewest bytes that hold them; those above 64
bits, and all numbers with a fraction or an exponent, are stored as floats. Empty text stands for null; `NaN` and
`Infinity` are numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import SchemaError

JSON_DEPTH_MAX: Final = 4096  # nesting depth of arrays and objects; writers have a lower limit


def jsonb_values(texts: pa.Array, name: str) -> pa.LargeBinaryArray:
    """The stored form of an array of JSON text; nulls stay null.

    name  name of the field, for errors

    Raises `SchemaError` for text that is not JSON, duplicate keys of an object, and documents nested too deep or larger
    than 256 MiB.
    """
    import pyarrow.compute as pc  # deferred: takes 30 ms, and readers do not need it

    plain = pc.fill_null(texts.cast(pa.large_string()), "")
    if not len(plain):
        return pa.array([], pa.large_binary())
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    try:
        ends, stored = _kernels.encode_jsonb(b"" if data is None else data, bounds, JSON_DEPTH_MAX)
    except ValueError as error:
        raise SchemaError(f"Failed to encode JSON: `{name}`, {error}") from error
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(stored)]
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(plain), buffers)
    return pc.if_else(texts.is_valid(), values, None) if texts.null_count else values
