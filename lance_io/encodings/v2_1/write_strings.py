"""Encodes strings with FSST, each page with its own symbol table, if that pays off.

Shared by mini-block and full-zip pages. Specification: structural encodings 2.1, sections 8.3 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io import _kernels
from lance_io.codecs import tree
from lance_io.codecs.tree import FSST_TABLE_BYTES, VariableShape
from lance_io.encodings.leafvalues import LeafValues
from lance_io.encodings.statistics import longest_value

if TYPE_CHECKING:
    from lance_io.encodings.options import ColumnOptions

LONGEST_BYTES_MIN: Final = 5  # below, symbols save nothing
PAGE_BYTES_MIN: Final = 32 << 10  # below, the table is larger than its savings


def code_strings(values: LeafValues, options: ColumnOptions) -> tuple[tree.Fsst, LeafValues] | None:
    """Encode values with FSST; returns codec and codes. None if FSST is not wanted or does not make the page smaller.

    values  variable-width, and text unless the options request FSST: the caller checks the type
    """
    shape = values.shape
    assert isinstance(shape, VariableShape), "FSST is for variable-width values"
    if options.compression not in (None, "fsst"):
        return None
    if values.num_bytes < PAGE_BYTES_MIN or longest_value(values) < LONGEST_BYTES_MIN:
        return None
    (offsets, _), (data, _) = values.sources
    wide = shape.offset_bits == 64
    table, code_offsets, codes = _kernels.encode_fsst(offsets, data, wide, values.num_values)
    coded = LeafValues(shape, values.num_values, [(code_offsets, 0), (codes, 0)])
    if coded.num_bytes + FSST_TABLE_BYTES >= values.num_bytes:
        return None
    return tree.Fsst(bytes(table), tree.Variable(shape.offset_bits)), coded
