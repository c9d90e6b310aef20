"""ROW FILTERS: from what the user wrote to a mask over record batches.

    arrow.py, wire.py   `pyarrow.compute` expressions -> tree       coerce.py     which types go together
    tree.py             the expression tree                         bind.py       tree + schema -> checked tree
    evaluate.py         checked tree + batch -> values              compiled.py   `compile_filter`, `Predicate`

No I/O happens here. The semantics are those of the format's reference reader: three-valued logic, floats by total
order, wrapping integers.
"""

from __future__ import annotations

from lance_io.dataset.predicate.bind import PSEUDO_COLUMNS
from lance_io.dataset.predicate.compiled import Predicate, compile_filter

__all__ = ["PSEUDO_COLUMNS", "Predicate", "compile_filter"]
