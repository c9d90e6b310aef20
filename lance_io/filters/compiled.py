"""Filters and computed columns, compiled against a schema: the columns they read, and their values for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError, EvaluationError, UsageError
from lance_io.filters.binding.arguments import bind_cast
from lance_io.filters.binding.binder import PSEUDO_COLUMNS, bind_filter
from lance_io.filters.binding.list_elements import elements, with_item_numbers
from lance_io.filters.binding.nullability import may_be_null
from lance_io.filters.conjunctions import conjuncts, first_conditions, stored_names
from lance_io.filters.evaluate import evaluate
from lance_io.filters.expressions.expression_tree import (
    And,
    Column,
    Comparison,
    Function,
    IsNull,
    Literal,
    Not,
    cannot_fail,
    columns,
    describe,
    dotted,
)
from lance_io.filters.expressions.sql_types import is_string
from lance_io.filters.expressions.stored_json import value_type
from lance_io.filters.syntax.arrow_expressions import from_arrow
from lance_io.lazy_names import lazy_module
from lance_io.levels.arrays import scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from lance_io.filters.binding import sql_binder
    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.filters.syntax import sql_dialect, sql_text
    from lance_io.format.schema import Field, Schema
    from lance_io.spans import IntArray
else:
    # For text only: the parser is slow to load.
    sql_dialect = lazy_module("lance_io.filters.syntax.sql_dialect")
    sql_binder = lazy_module("lance_io.filters.binding.sql_binder")
    sql_text = lazy_module("lance_io.filters.syntax.sql_text")


_SHOWN: Final = 200  # characters of an expression in a message


def _paths(expression: Expr) -> tuple[tuple[str, ...], ...]:
    every = [*columns(expression)]
    return tuple(dict.fromkeys(tuple(str(part) for part in column.path) for column in every))


class Predicate:
    """A row filter, ready to run on record batches. Immutable; any thread may use it.

    expression  the bound tree, for pruning and index use
    columns     that the filter reads, in order of first use: names, dotted paths for struct fields, and pseudo columns
                such as `_rowid`
    paths       the same as tuples of names
    cannot_fail  whether `mask` never raises, for any values
    is_whole    whether `expression` is the whole filter
    keeps_null  whether `mask` is true where the filter is null: further conditions will be computed for these rows
    """

    __slots__ = ("cannot_fail", "columns", "expression", "keeps_null", "paths")
    is_whole = True

    def __init__(self, expression: Expr, *, keeps_null: bool = False) -> None:
        self.expression = expression
        self.keeps_null = keeps_null
        self.paths = _paths(expression)
        self.columns: tuple[str, ...] = tuple(map(dotted, self.paths))
        self.cannot_fail = cannot_fail(expression)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for the rows that the filter keeps; never null: rows with a null result are dropped, or kept on request.

        batch  has every top-level column of `paths` under its name; structs may lack unused fields
        Raises EvaluationError where a row cannot be computed (division by zero, a failing cast).
        """
        kept = _compute("filter", self.expression, batch)
        if isinstance(kept, pa.Scalar):
            is_kept = kept.as_py() if kept.is_valid else self.keeps_null
            return pa.repeat(pa.scalar(is_kept), batch.num_rows)
        return kept.fill_null(self.keeps_null) if kept.null_count else kept

    @property
    def is_conjunction(self) -> bool:
        """Whether there are several conditions of which all must hold."""
        return isinstance(self.expression, And)

    def split(self, size_of: Callable[[str], float]) -> tuple[Predicate, Predicate] | None:
        """The filter as two: cheap conditions, and one for the rows that these leave. None if it is best as a whole.

        size_of  stored bytes of a value of a top-level column, about

        Together they keep the same rows, and compute conditions that can fail for the same rows as `mask` does.
        """
        parts = conjuncts(self.expression)
        first = first_conditions(parts, size_of)
        if not first or stored_names(first) == stored_names(parts):
            return None
        rest = Predicate(_all_of([part for part in parts if not any(part is early for early in first)]))
        if rest.cannot_fail:
            return Predicate(_all_of(first)), rest
        return Predicate(_all_of(first), keeps_null=True), self

    def selection(self, batch: pa.RecordBatch) -> IntArray:
        """The positions of the rows that the filter keeps, i64[n], ascending. Raises the same errors as `mask`."""
        positions: np.ndarray = pc.indices_nonzero(self.mask(batch)).to_numpy()
        return positions.astype("int64", copy=False)

    def __str__(self) -> str:
        return describe(self.expression)

    def __repr__(self) -> str:
        return f"Predicate({self})"


def _all_of(parts: Sequence[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _compute(what: str, expression: Expr, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """`evaluate`, with Arrow's errors about rows raised as `EvaluationError`. Everything here computes through it."""
    try:
        return evaluate(expression, batch)
    except (pa.ArrowCancelled, MemoryError):
        raise
    except pa.ArrowException as error:
        text = describe(expression)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise EvaluationError(f"the {what} {shown} cannot be computed for every row: {error}") from error


def compile_filter(filter: pc.Expression | str, schema: pa.Schema, *, has_sides: bool = False) -> Predicate:
    """Compile a user's filter against the dataset's schema.

    filter     SQL text (docs/filters.md), or a `pyarrow.compute` expression, whose column names must match exactly
    schema     of the dataset, without the pseudo columns
    has_sides  the schema has one struct for each table of a pair of rows; the structs' members are the columns
    Raises BindError if the text cannot be parsed, or the filter does not fit the schema or is not boolean;
    EvaluationError if it cannot be computed for any row; UsageError if it is neither text nor an expression;
    UnsupportedError for a function or form without a counterpart here.
    """
    if isinstance(filter, str):
        return Predicate(_bind_text(filter, schema, has_sides))
    if not isinstance(filter, pc.Expression):
        raise UsageError(f"a filter is SQL text or a pyarrow.compute expression, found {type(filter).__name__}")
    return Predicate(bind_filter(from_arrow(filter), schema))


class FilterShape:
    """Filters that differ only in the values that they compare columns with, of which one was bound.

    Binding depends on an integer or a text only in that it has to fit the column's type (`sql_binder`); `fill` refuses
    values for which that is in doubt.
    """

    __slots__ = ("_comparisons",)

    def __init__(self, comparisons: tuple[Comparison, ...]) -> None:
        self._comparisons = comparisons

    @classmethod
    def of(cls, predicate: Predicate, values: Sequence[int | str]) -> FilterShape | None:
        """The shape of a bound filter; None unless it is just comparisons with these values, in this order."""
        expression = predicate.expression
        conditions = expression.args if isinstance(expression, And) else (expression,)
        comparisons = tuple([each for each in conditions if isinstance(each, Comparison)])
        if len(comparisons) != len(conditions) or len(comparisons) != len(values):
            return None
        shape = cls(comparisons)
        filled = shape.fill(values)
        return shape if filled is not None and filled.expression == expression else None

    def fill(self, values: Sequence[int | str]) -> Predicate | None:
        """The filter with these values; None unless they surely are values of the columns' types."""
        filled = []
        for comparison, value in zip(self._comparisons, values, strict=True):
            literal = comparison.right
            if not isinstance(comparison.left, Column) or not isinstance(literal, Literal):
                return None
            dtype = literal.value.type
            if not (_fits(value, dtype) if isinstance(value, int) else pt.is_string(dtype)):
                return None
            filled.append(Comparison(comparison.op, comparison.left, Literal(scalar(value, dtype))))
        return Predicate(_all_of(filled))


def _fits(value: int, dtype: pa.DataType) -> bool:
    """Whether a number is a value of a type of integers; False for other types."""
    if not pt.is_integer(dtype):
        return False
    bits: int = dtype.bit_width
    return 0 <= value < 1 << bits if pt.is_unsigned_integer(dtype) else -(1 << bits - 1) <= value < 1 << bits - 1


class ComputedColumn:
    """A column computed from others, ready to run on record batches. Immutable; any thread may use it.

    expression  the bound tree
    type        of its values
    nullable    whether a row may be null; False where the expression alone rules it out (`binding/nullability.py`)
    paths       the columns it reads, as for `Predicate`
    elements    by column path: the numbers of the list items it reads, from 1 on; None where it reads more than items
    """

    __slots__ = ("elements", "expression", "nullable", "paths", "type")

    def __init__(self, expression: Expr, dtype: pa.DataType, *, nullable: bool = True) -> None:
        self.expression = expression
        self.type = dtype
        self.nullable = nullable
        self.paths = _paths(expression)
        self.elements = elements(expression)

    def with_item_numbers(self, numbers: Mapping[tuple[str, ...], Mapping[int, int]]) -> ComputedColumn:
        """The same column over lists with other items; `numbers` maps path and item number to the new item number."""
        return ComputedColumn(with_item_numbers(self.expression, numbers), self.type, nullable=self.nullable)

    @property
    def is_null(self) -> bool:
        """Whether every row is null, decided by the expression alone."""
        return isinstance(self.expression, Literal) and not self.expression.value.is_valid

    def values(self, columns: Mapping[str, pa.Array], num_rows: int) -> pa.Array:
        """The column's values for `num_rows` rows, given their top-level columns by name.

        Raises EvaluationError where a row cannot be computed (division by zero, a failing cast).
        """
        names = list(dict.fromkeys(path[0] for path in self.paths))
        arrays = [columns[name] for name in names] or [pa.nulls(num_rows)]
        value = _compute("column", self.expression, pa.RecordBatch.from_arrays(arrays, names or [""]))
        if not isinstance(value, pa.Scalar):
            return value
        return pa.repeat(value, num_rows) if num_rows else pa.nulls(0, self.type)

    def __repr__(self) -> str:
        return f"ComputedColumn({describe(self.expression)})"


def compile_column(text: str, schema: pa.Schema) -> ComputedColumn | tuple[str, ...]:
    """Compile a SQL expression against the dataset's schema; returns just the path if the text names a column.

    schema  of the dataset, without the pseudo columns
    Raises BindError if the text cannot be parsed or does not fit the schema.
    """
    tree, binder = _parse(text, schema)
    if isinstance(tree, Column):
        return tuple(str(part) for part in binder.resolved(tree).path)
    bound, dtype = binder.bind_top(tree)
    return ComputedColumn(bound, dtype, nullable=may_be_null(bound, schema))


def compile_value(text: str, schema: Schema, to: Field) -> ComputedColumn:
    """Compile a SQL expression whose values are cast to a column's type; a literal is cast right away.

    schema  of the dataset, without the pseudo columns; blobs are their descriptions
    to      the column's field. The values have its stored form: JSON as JSONB, extension types as their storage
    Raises BindError if the text cannot be parsed, does not fit the schema, or is a literal that cannot be cast; and as
    `check_change`.
    """
    check_change(text)
    arrow = pa.schema([pa.field(field.name, field.arrow_type, field.nullable) for field in schema.fields])
    tree, binder = _parse(text, arrow)
    bound, dtype = binder.bind_top(tree)
    for column in columns(bound):
        if column.path[0] in PSEUDO_COLUMNS and column.path[0] not in arrow.names:
            raise BindError(f"No field named {column.path[0]}. Valid fields are {', '.join(arrow.names)}.")
    wanted = value_type(to)
    is_document = pt.is_large_binary(dtype) and _reads_json(bound, schema)
    if is_document and is_string(wanted.value_type if pt.is_dictionary(wanted) else wanted):
        bound, dtype = binder.bind(Function("json_extract", (tree, Literal(pa.scalar("$")))))
    stored = to.arrow_type
    if dtype == stored and (is_document or not isinstance(wanted, pa.JsonType)):
        return ComputedColumn(bound, stored)
    if isinstance(bound, Literal) and not bound.value.is_valid:
        return ComputedColumn(Literal(pa.scalar(None, stored)), stored)
    return ComputedColumn(bind_cast(bound, dtype, wanted, lenient=False), stored)


def _reads_json(expression: Expr, schema: Schema) -> bool:
    """Whether an expression reads a JSON column, or one with JSON inside."""
    for path in _paths(expression):
        field = schema.top(path[0])
        for name in path[1:]:
            field = None if field is None else field.child(name)
        if field is not None and any(descendant.logical_type == "json" for descendant in field.walk()):
            return True
    return False


def check_change(given: object) -> None:
    """Raise BindError if something follows `;`, `limit`, `offset` or `order` in a condition or expression of a change.

    Reads ignore the rest of the text, as pylance does; a change would touch rows that the user did not mean.
    """
    if isinstance(given, str):
        sql_dialect.check_all_used(given)


def _bind_text(text: str, schema: pa.Schema, has_sides: bool) -> Expr:
    tree, binder = _parse(text, schema, has_sides)
    bound, dtype = binder.bind_top(tree)
    if isinstance(bound, Function) and bound.name == "regexp_match":
        return Not(IsNull(bound))
    if dtype != pa.bool_():
        raise BindError(f"the filter {describe(tree)} does not return a boolean, it returns {dtype}")
    return bound


def _parse(text: str, schema: pa.Schema, has_sides: bool = False) -> tuple[Expr, sql_binder.SqlBinder]:
    """The tree of a text, and its binder."""
    return sql_text.from_text(text), sql_binder.SqlBinder(schema, has_sides=has_sides)
