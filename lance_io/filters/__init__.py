"""ROW FILTERS AND COMPUTED COLUMNS: from what the user wrote to values over record batches.

    dialect.py, text.py  SQL text -> tree                           tree.py       the expression tree
    arrow.py, wire.py    `pyarrow.compute` expressions -> tree      coerce.py     which types go together
    bind.py, bindsql.py  tree + schema -> checked tree              casts.py      conversions of SQL text
    evaluate.py          checked tree + batch -> values             functions.py  functions of SQL text, by name
    compiled.py          the face of the room                       arguments.py  arguments checked and converted
    nested.py, order.py  the order of values of every type          search.py     texts inside texts

What computes the functions: texts.py, codes.py, regexes.py, blake3.py; maths.py; lists.py, listedit.py; moments.py,
intervals.py (times); made.py, typenames.py (structs, maps, types); documents.py, jsonpath.py (JSON); rows.py for all.

`compile_filter(text_or_expression, schema)` gives a `Predicate`, with the columns it reads and a mask for each batch;
`compile_column(text, schema)` a column computed from others. docs/filters.md has the language.

No I/O happens here. The semantics are those of the format's reference reader: three-valued logic, floats by total
order, wrapping integers.
"""

from __future__ import annotations

from lance_io.filters.bind import PSEUDO_COLUMNS
from lance_io.filters.compiled import ComputedColumn, Predicate, compile_column, compile_filter

__all__ = ["PSEUDO_COLUMNS", "ComputedColumn", "Predicate", "compile_column", "compile_filter"]
