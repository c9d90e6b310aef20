"""Converts stored JSON values (JSONB) to the JSON text that users see. No I/O.

A `json` column is a column of large binary. Each value is one document, with all numbers big-endian:

    document   u32 header, bits 28-31 the kind, bits 0-27 a count
               0x8 array    count x u32 entries, then the items one after the other
               0x4 object   2 x count u32 entries, of the keys and then of the values; then keys, then values
               0x2 scalar   count 0, one u32 entry, then the value
    entry      bit 31 zero, bits 28-30 the type, bits 0-27 the length in bytes of the item
               0 null   1 string, UTF-8   2 number   3 false   4 true   5 an array or object   6 extension
               null, true and false have no bytes
    number     u8 kind, then
               0x00 zero, 0x10 not a number, 0x20 infinity, 0x30 minus infinity: nothing
               0x40 signed, 0x50 unsigned: 1, 2, 4 or 8 bytes
               0x60 float: 8 bytes
               0x70 decimal: 8, 16 or 32 bytes, signed, then u8 scale
    extension  u8 kind: 0x00 binary, then its bytes; others are not read

An empty value stands for null. The text is compact, without spaces; keys keep their stored order. Floats have the
shortest digits, with an exponent below 1e-5 and from 1e16 on; infinities, which JSON lacks, become null.

A value with another beginning is JSON text: pylance's updates store JSON inside a struct or a list as text. It is
returned unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.errors import FormatError, SchemaError, UnsupportedError
from lance_io.levels.arrays import booleans
from lance_io.levels.jsonb_write import JSON_DEPTH_MAX, jsonb_values

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["JSON_DEPTH_MAX", "json_texts", "with_documents"]

_KIND, _OBJECT, _ARRAY, _SCALAR = 0xF0, 0x40, 0x80, 0x20  # in the first byte


def json_texts(values: pa.LargeBinaryArray) -> pa.StringArray:
    """The texts of a column of stored JSON values; nulls stay null.

    Raises `FormatError` for damaged values, `UnsupportedError` for extensions of JSON and for more text than one string
    array can hold.
    """
    try:
        return _texts(values)
    except DamagedError as error:
        damage = FormatError(str(error))
    import pyarrow.compute as pc  # deferred: takes 30 ms, rarely needed

    is_text = _are_text(values)
    try:
        shown = _texts(with_documents(values))
    except (DamagedError, FormatError):
        raise damage from None
    mask = booleans(is_text)
    return pc.replace_with_mask(shown, mask, values.filter(mask).cast(pa.binary()).cast(pa.string()))


def _texts(values: pa.LargeBinaryArray) -> pa.StringArray:
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
    except NotImplementedError as error:
        raise UnsupportedError(str(error)) from error
    return pa.Array.from_buffers(pa.string(), num_rows, [validity, pa.py_buffer(ends), pa.py_buffer(texts)])


def with_documents(values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The same values, with JSON texts converted to documents.

    Raises `FormatError` for values that are neither.
    """
    import pyarrow.compute as pc  # deferred: takes 30 ms, rarely needed

    is_text = _are_text(values)
    if not is_text.any():
        return values
    mask = booleans(is_text)
    texts = values.filter(mask)
    try:
        documents = jsonb_values(texts.cast(pa.large_string()), "text in a JSON column")
    except (SchemaError, pa.ArrowInvalid) as error:
        raise FormatError(f"a JSON column holds neither a stored document nor JSON as text: {error}") from error
    return pc.replace_with_mask(values, mask, documents)


def _are_text(values: pa.LargeBinaryArray) -> npt.NDArray[np.bool_]:
    """Whether each value is JSON text: it does not begin like a stored document."""
    num_rows = len(values)
    _, offsets, data = values.buffers()
    if not num_rows or offsets is None or data is None:
        return np.zeros(num_rows, np.bool_)
    bounds = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + num_rows + 1]
    starts, lengths = bounds[:-1], np.diff(bounds)
    if bounds.min() < 0 or bounds.max() > len(data) or lengths.min() < 0:
        raise FormatError("a JSON value lies outside of its buffer")
    has_header = lengths >= 4
    memory, at = np.frombuffer(data, np.uint8), starts[has_header]
    first, second = memory[at], memory[at + 1]
    is_document = np.zeros(num_rows, np.bool_)
    is_document[has_header] = np.isin(first & _KIND, (_OBJECT, _ARRAY)) | ((first == _SCALAR) & (second == 0))
    is_text: npt.NDArray[np.bool_] = (lengths > 0) & ~is_document
    return is_text & values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else is_text
