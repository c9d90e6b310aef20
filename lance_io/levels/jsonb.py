"""JSON values as they are stored (JSONB), to the JSON text that users see. Pure.

A `json` column is a column of large binary. Each of its values is one document, all numbers big-endian:

    document   u32 header, bits 28-31 the kind, bits 0-27 a count
               0x8 array    count x u32 entries, then the items one after the other
               0x4 object   2 x count u32 entries, of the keys and then of the values; then keys, then values
               0x2 scalar   count 0, one u32 entry, then the value
    entry      bit 31 zero, bits 28-30 the type, bits 0-27 the length in bytes of what it describes
               0 null   1 string, UTF-8   2 number   3 false   4 true   5 an array or object   6 extension
               null, true and false have no bytes
    number     u8 kind, then
               0x00 zero, 0x10 not a number, 0x20 infinity, 0x30 minus infinity: nothing
               0x40 signed, 0x50 unsigned: 1, 2, 4 or 8 bytes
               0x60 float: 8 bytes
               0x70 decimal: 8, 16 or 32 bytes, signed, then u8 scale
    extension  u8 kind: 0x00 binary, then its bytes; others are not read

An empty value stands for null. The text is compact, without spaces; keys come in the order in which they are stored.
Floats have their shortest digits, with an exponent below 1e-5 and from 1e16 on; infinities, which JSON lacks, are null.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.errors import FormatError, UnsupportedError

JSON_DEPTH_MAX: Final = 4096  # arrays and objects inside each other; writers give up at fewer


def json_texts(values: pa.LargeBinaryArray) -> pa.StringArray:
    """The texts of a column of stored JSON values; nulls stay null.

    Raises `FormatError` for bytes that are no such value, `UnsupportedError` for extensions of JSON and for more
    text than one string array can hold.
    """
    num_rows = len(values)
    validity, offsets, data = values.buffers()
    if not num_rows or offsets is None:
        return pa.nulls(num_rows, pa.string())
    bounds = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + num_rows + 1]
    present = None
    if values.null_count:
        bits = np.frombuffer(validity, dtype=np.uint8)
        present = np.unpackbits(bits, bitorder="little", count=values.offset + num_rows)[values.offset :]
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    else:
        validity = None
    try:
        ends, texts = _kernels.json_texts(b"" if data is None else data, bounds, present, JSON_DEPTH_MAX)
    except DamagedError as error:
        raise FormatError(str(error)) from error
    except NotImplementedError as error:
        raise UnsupportedError(str(error)) from error
    return pa.Array.from_buffers(pa.string(), num_rows, [validity, pa.py_buffer(ends), pa.py_buffer(texts)])
