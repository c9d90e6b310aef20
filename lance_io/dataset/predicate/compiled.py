"""A filter, compiled against a schema: which columns it needs, and which rows of a batch it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.dataset.predicate.arrow import from_arrow
from lance_io.dataset.predicate.bind import bind_filter
from lance_io.dataset.predicate.evaluate import evaluate
from lance_io.dataset.predicate.tree import cannot_fail, columns, describe, dotted
from lance_io.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from lance_io.dataset.predicate.tree import Expr
    from lance_io.spans import IntArray


class Predicate:
    """A row filter, ready to run on record batches. Immutable; any thread may use it.

    expression  the bound tree, for pruning and index use
    columns     what the filter reads: column names, dotted paths for struct fields; in order of first use, pseudo
                columns such as `_rowid` included
    paths       the same as tuples of names
    cannot_fail  no value of any row can make `mask` raise
    """

    __slots__ = ("cannot_fail", "columns", "expression", "paths")

    def __init__(self, expression: Expr) -> None:
        self.expression = expression
        self.paths: tuple[tuple[str, ...], ...] = tuple(
            dict.fromkeys(tuple(str(part) for part in column.path) for column in columns(expression))
        )
        self.columns: tuple[str, ...] = tuple(dotted(path) for path in self.paths)
        self.cannot_fail = cannot_fail(expression)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for the rows that the filter keeps; never null, as rows with a null result are dropped.

        batch  holds every top-level column of `paths` under its name; structs may lack fields that are not used
        Raises pa.ArrowInvalid where a row cannot be computed (division by zero, a failing cast).
        """
        kept = evaluate(self.expression, batch)
        if isinstance(kept, pa.Scalar):
            return pa.repeat(pa.scalar(kept.as_py() is True), batch.num_rows)
        return kept.fill_null(False) if kept.null_count else kept

    def selection(self, batch: pa.RecordBatch) -> IntArray:
        """The positions of the rows that the filter keeps, i64[n], ascending. Errors as `mask`."""
        positions: np.ndarray = pc.indices_nonzero(self.mask(batch)).to_numpy()
        return positions.astype("int64", copy=False)

    def __str__(self) -> str:
        return describe(self.expression)

    def __repr__(self) -> str:
        return f"Predicate({self})"


def compile_filter(filter: pc.Expression | str, schema: pa.Schema) -> Predicate:
    """A filter as users write it, checked against the dataset's schema.

    filter  a `pyarrow.compute` expression; column names must match exactly
    schema  of the dataset, without the pseudo columns
    Raises BindError if it does not fit the schema or is not boolean, UnsupportedError for a function or a form that
    has no counterpart here (text among them), UsageError for anything that is not a filter.
    """
    if isinstance(filter, str):
        raise UnsupportedError(
            f"text filters such as {filter!r} are not supported yet; "
            'write a pyarrow.compute expression, for instance pc.field("a") > 3 for "a > 3"'
        )
    if not isinstance(filter, pc.Expression):
        raise UsageError(f"a filter is a pyarrow.compute expression, found {type(filter).__name__}")
    return Predicate(bind_filter(from_arrow(filter), schema))
