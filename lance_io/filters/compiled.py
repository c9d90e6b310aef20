"""Filters and computed columns, compiled against a schema: which columns they need, and what they make of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError, EvaluationError, UsageError
from lance_io.filters.binding.arguments import bind_cast
from lance_io.filters.binding.binder import PSEUDO_COLUMNS, bind_filter
from lance_io.filters.binding.list_elements import at_places, elements
from lance_io.filters.binding.nullability import may_be_null
from lance_io.filters.evaluate import evaluate
from lance_io.filters.expressions.expression_tree import (
    Column,
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
from lance_io.lazy_names import later

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from lance_io.filters.binding import sql_binder
    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.filters.syntax import sql_dialect, sql_text
    from lance_io.format.schema import Field, Schema
    from lance_io.spans import IntArray
else:
    # for text only: the parser takes a while to load
    sql_dialect = later("lance_io.filters.syntax.sql_dialect")
    sql_binder = later("lance_io.filters.binding.sql_binder")
    sql_text = later("lance_io.filters.syntax.sql_text")


_SHOWN: Final = 200  # characters of an expression in a message


def _paths(expression: Expr) -> tuple[tuple[str, ...], ...]:
    every = [*columns(expression)]
    return tuple(dict.fromkeys(tuple(str(part) for part in column.path) for column in every))


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
        self.paths = _paths(expression)
        self.columns: tuple[str, ...] = tuple(map(dotted, self.paths))
        self.cannot_fail = cannot_fail(expression)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for the rows that the filter keeps; never null, as rows with a null result are dropped.

        batch  holds every top-level column of `paths` under its name; structs may lack fields that are not used
        Raises EvaluationError where a row cannot be computed (division by zero, a failing cast).
        """
        kept = _compute("filter", self.expression, batch)
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


def _compute(what: str, expression: Expr, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    """The one place where expressions meet rows, and where Arrow's complaints about the rows become ours."""
    try:
        return evaluate(expression, batch)
    except (pa.ArrowCancelled, MemoryError):
        raise
    except pa.ArrowException as error:
        text = describe(expression)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise EvaluationError(f"the {what} {shown} cannot be computed for every row: {error}") from error


def compile_filter(filter: pc.Expression | str, schema: pa.Schema, *, has_sides: bool = False) -> Predicate:
    """A filter as users write it, checked against the dataset's schema.

    filter     SQL text (docs/filters.md), or a `pyarrow.compute` expression, whose column names must match exactly
    schema     of the dataset, without the pseudo columns
    has_sides  the schema has a struct for each table of a pair of rows, whose members are the columns
    Raises BindError for text that cannot be parsed, and for a filter that does not fit the schema or is not boolean,
    EvaluationError for one that cannot be computed for any row, UsageError for anything that is not a filter,
    UnsupportedError for a function or form without a counterpart here.
    """
    if isinstance(filter, str):
        return Predicate(_bind_text(filter, schema, has_sides))
    if not isinstance(filter, pc.Expression):
        raise UsageError(f"a filter is SQL text or a pyarrow.compute expression, found {type(filter).__name__}")
    return Predicate(bind_filter(from_arrow(filter), schema))


class ComputedColumn:
    """A column that is computed from others, ready to run on record batches. Immutable; any thread may use it.

    expression  the bound tree
    type        of its values
    nullable    whether a row may be null; False where that is seen without knowing the rows (`binding/nullability.py`)
    paths       the columns it reads, as for `Predicate`
    elements    of each of them the items of its lists that it reads, from 1 on; None for more than single items
    """

    __slots__ = ("elements", "expression", "nullable", "paths", "type")

    def __init__(self, expression: Expr, found: pa.DataType, *, nullable: bool = True) -> None:
        self.expression = expression
        self.type = found
        self.nullable = nullable
        self.paths = _paths(expression)
        self.elements = elements(expression)

    def over_places(self, places: Mapping[tuple[str, ...], Mapping[int, int]]) -> ComputedColumn:
        """The same column over lists that hold other items: by column and number of an item, its number there."""
        return ComputedColumn(at_places(self.expression, places), self.type, nullable=self.nullable)

    @property
    def is_null(self) -> bool:
        """Whether it is null in any row, which is seen without knowing the rows."""
        return isinstance(self.expression, Literal) and not self.expression.value.is_valid

    def values(self, columns: Mapping[str, pa.Array], num_rows: int) -> pa.Array:
        """The column for rows whose top-level columns are given by name.

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
    """A SQL expression, checked against the dataset's schema; the path of a column if it is nothing else.

    schema  of the dataset, without the pseudo columns
    Raises BindError for text that cannot be parsed or does not fit the schema.
    """
    tree, binder = _parse(text, schema)
    if isinstance(tree, Column):
        return tuple(str(part) for part in binder.resolved(tree).path)
    bound, found = binder.bind_top(tree)
    return ComputedColumn(bound, found, nullable=may_be_null(bound, schema))


def compile_value(text: str, schema: Schema, to: Field) -> ComputedColumn:
    """A SQL expression for the values of a column, to which they are cast; a literal at once.

    schema  of the dataset, without the pseudo columns; blobs are their descriptions
    to      the column's field. Its values come as they are stored: JSON as JSONB, extension types as their storage
    Raises BindError for text that cannot be parsed, does not fit the schema, or is a literal that is no such value; and
    as `check_change`.
    """
    check_change(text)
    arrow = pa.schema([pa.field(one.name, one.arrow_type, one.nullable) for one in schema.fields])
    tree, binder = _parse(text, arrow)
    bound, found = binder.bind_top(tree)
    for column in columns(bound):
        if column.path[0] in PSEUDO_COLUMNS and column.path[0] not in arrow.names:
            raise BindError(f"No field named {column.path[0]}. Valid fields are {', '.join(arrow.names)}.")
    wanted = value_type(to)
    is_document = pt.is_large_binary(found) and _reads_json(bound, schema)
    if is_document and is_string(wanted.value_type if pt.is_dictionary(wanted) else wanted):
        bound, found = binder.bind(Function("json_extract", (tree, Literal(pa.scalar("$")))))
    stored = to.arrow_type
    if found == stored and (is_document or not isinstance(wanted, pa.JsonType)):
        return ComputedColumn(bound, stored)
    if isinstance(bound, Literal) and not bound.value.is_valid:
        return ComputedColumn(Literal(pa.scalar(None, stored)), stored)
    return ComputedColumn(bind_cast(bound, found, wanted, lenient=False), stored)


def _reads_json(expression: Expr, schema: Schema) -> bool:
    """Whether an expression reads a JSON column, or one with JSON inside."""
    for path in _paths(expression):
        field = schema.top(path[0])
        for name in path[1:]:
            field = None if field is None else field.child(name)
        if field is not None and any(one.logical_type == "json" for one in field.walk()):
            return True
    return False


def check_change(given: object) -> None:
    """Raise BindError for a condition or expression of a change in which something follows `;`, `limit`, `offset` or
    `order`. Reads ignore that, as pylance does; a change would touch rows that were not meant.
    """
    if isinstance(given, str):
        sql_dialect.check_all_used(given)


def _bind_text(text: str, schema: pa.Schema, has_sides: bool) -> Expr:
    tree, binder = _parse(text, schema, has_sides)
    bound, found = binder.bind_top(tree)
    if isinstance(bound, Function) and bound.name == "regexp_match":
        return Not(IsNull(bound))
    if found != pa.bool_():
        raise BindError(f"the filter {describe(tree)} does not return a boolean, it returns {found}")
    return bound


def _parse(text: str, schema: pa.Schema, has_sides: bool = False) -> tuple[Expr, sql_binder.SqlBinder]:
    """The tree of a text, and what binds it."""
    return sql_text.from_text(text), sql_binder.SqlBinder(schema, has_sides=has_sides)
