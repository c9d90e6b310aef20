"""ROW FILTERS AND COMPUTED COLUMNS: from the user's text to values over record batches.

    syntax/         the user's text or expression -> the expression tree
    binding/        tree + schema -> checked tree
    functions/      the functions of SQL text
    evaluate.py     checked tree + batch -> values
    compiled.py     the package's entry points
    kernel_calls.py text functions by our own kernels, where Arrow has none
    elementwise.py  values computed row by row, where neither has a kernel
    value_order.py  the order of values of every type
    zones.py        pruning by least and greatest values
    mask_filter.py  filters that another engine computes

`compile_filter(text_or_expression, schema)` returns a `Predicate`: the columns it reads, and a mask for each batch.
`compile_column(text, schema)` returns a column computed from others, `compile_value(text, schema, field)` one whose
values are cast to a field's type. docs/filters.md has the language.

No I/O happens here. The semantics are those of the format's reference reader: three-valued logic, floats by total
order, wrapping integers.
"""

from __future__ import annotations

from lance_io.filters.binding.binder import PSEUDO_COLUMNS
from lance_io.filters.compiled import (
    ComputedColumn,
    Predicate,
    check_change,
    compile_column,
    compile_filter,
    compile_value,
)

__all__ = [
    "PSEUDO_COLUMNS",
    "ComputedColumn",
    "Predicate",
    "check_change",
    "compile_column",
    "compile_filter",
    "compile_value",
]
