"""Column lists: what to read and what to call it. Pure.

A projection translates the caller's columns (`columns=`) into three things: the top-level fields to read, pruned to the
required members; the system columns to build; and the output columns. Names are case-sensitive, as in pylance;
backticks may quote a part of a path.

A blob column is its description here, a struct with ordinary members. `DatasetState.shown` decides later whether it
becomes bytes.

In a dict of columns, new names stand for SQL expressions in the language of text filters. An expression that is just a
column is read as such; any other is computed after the columns that it names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io import compute as pc
from lance_io.caller_text import utf8
from lance_io.errors import BindError
from lance_io.format.logical_types import LISTS
from lance_io.format.schema import first_member, split_path
from lance_io.lazy_names import lazy_module
from lance_io.levels.retype import narrowed, needs_retyping
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET, SYSTEM_COLUMNS, system_field
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lance_io import filters
    from lance_io.filters import ComputedColumn
    from lance_io.format.schema import Field, Schema
else:
    filters = lazy_module("lance_io.filters")

Columns: TypeAlias = "list[str] | dict[str, str] | None"
Selection: TypeAlias = "Sequence[str] | dict[str, str] | None"  # for takes: any sequence of names, as in pylance

# Modules that compile filters and expressions: 0.2 s to import.
COMPILER: Final = tuple(f"lance_io.filters.{name}" for name in ("compiled", "binding.sql_binder", "syntax.sql_text"))
_LISTS: Final = LISTS | {"map"}
PREPARED_MAX: Final = 64  # cached column lists

_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")  # a name or dotted path that needs no parser
MOMENT = re.compile(r"\b(now|today|current_\w+)\b", re.IGNORECASE)  # functions that return the current time


class PreparedCache:
    """A bounded cache of prepared column lists (least recently stored out first); safe from any thread."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        """The entry, or None."""
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Store an entry, and drop the oldest beyond the bound."""
        self._entries[key] = value
        while len(self._entries) > PREPARED_MAX:
            self._entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the result.

    name      name in the result
    path      names from the top-level column down; `("_rowid",)` for a system column, empty for a computed one
    field     its Arrow field, called `name`
    computed  how it is computed from other columns; None for one that is read
    parts     paths of its remaining members if some were pruned; empty if it is whole
    narrows   the stored column has members that are not shown: those of packed structs are stored together
    """

    name: str
    path: tuple[str, ...]
    field: pa.Field
    computed: ComputedColumn | None = None
    parts: tuple[tuple[str, ...], ...] = ()
    narrows: bool = False

    @property
    def is_system(self) -> bool:
        """True for the columns of `system_columns`."""
        return _is_system(self.path)

    @property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """Paths of its source columns, including system columns."""
        return self.parts or (self.path,) if self.computed is None else self.computed.paths

    def values(self, columns: Mapping[str, pa.Array], num_rows: int) -> pa.Array:
        """The column, from top-level and system columns by name.

        Raises `EvaluationError` if a row cannot be computed.
        """
        if self.computed is None:
            column = extract(columns[self.path[0]], self.path[1:])
            return narrowed(column, self.field.type) if self.narrows else column
        return self.computed.values(columns, num_rows)


@dataclass(frozen=True)
class Projection:
    """The columns of a result, in order.

    outputs   the columns
    metadata  schema metadata of the result
    """

    outputs: tuple[OutputColumn, ...]
    metadata: Mapping[Any, Any] | None

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Schema of the result."""
        return pa.schema([output.field for output in self.outputs], metadata=self.metadata)

    @cached_property
    def plain_names(self) -> list[str] | None:
        """Names of the outputs among the columns read; None unless each output is one of these, unchanged."""
        if any(output.computed is not None or len(output.path) != 1 or output.narrows for output in self.outputs):
            return None
        return [output.path[0] for output in self.outputs]

    @cached_property
    def is_retyped(self) -> bool:
        """`needs_retyping` of the schema of the result."""
        return needs_retyping(self.arrow_schema)

    @cached_property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """Distinct paths of all source columns."""
        return tuple(dict.fromkeys(path for output in self.outputs for path in output.sources))

    @cached_property
    def source_names(self) -> frozenset[str]:
        """Top-level and system columns among the sources."""
        return frozenset(path[0] for path in self.sources)

    @cached_property
    def system_names(self) -> tuple[str, ...]:
        """System columns among the sources."""
        return tuple(path[0] for path in self.sources if _is_system(path))

    @cached_property
    def data_paths(self) -> list[tuple[str, ...]]:
        """Paths of the stored columns among the sources."""
        return [path for path in self.sources if not _is_system(path)]

    def with_system(self, *names: str) -> Projection:
        """This projection with system columns at its end; they move there if they are listed already."""
        if not names:
            return self
        others = tuple(output for output in self.outputs if output.name not in names)
        return replace(self, outputs=others + tuple(OutputColumn(name, (name,), system_field(name)) for name in names))


def _is_system(path: tuple[str, ...]) -> bool:
    return len(path) == 1 and path[0] in SYSTEM_COLUMNS


def project(
    schema: Schema, columns: Columns, *, with_row_id: bool = False, with_row_address: bool = False
) -> Projection:
    """The projection for `columns`: a list of names or dotted paths, a dict of expressions, or None for all columns.

    `*` among names or expressions stands for all columns, unless a column has that name.

    Raises `TypeError` for another container; `BindError` for an unknown or repeated name, for an expression that does
    not fit the schema, and for text that is no expression.
    """
    if columns is None:
        outputs = _whole(schema)
    elif isinstance(columns, dict):
        groups = (_all(schema, text) or [_computed_output(schema, name, text)] for name, text in columns.items())
        outputs = [output for each in groups for output in each]
    elif isinstance(columns, list):
        groups = (_all(schema, name) or [_output(schema, name, column_path(schema, name))] for name in columns)
        outputs = [output for each in groups for output in each]
    else:
        raise TypeError(f"columns must be a list or dict[name, expression], got {type(columns)}")
    _refuse_duplicates(output.name for output in outputs)
    projection = Projection(tuple(outputs), _metadata(schema))
    asked = [name for name, wanted in ((ROW_ID, with_row_id), (ROW_ADDRESS, with_row_address)) if wanted]
    return projection.with_system(*asked)


def _whole(schema: Schema) -> list[OutputColumn]:
    return [OutputColumn(shown.name, (shown.name,), shown) for shown in schema.described.to_arrow()]


def _all(schema: Schema, name: Any) -> list[OutputColumn]:
    """The columns that `*` stands for; empty for another name, or if a column has that name."""
    return _whole(schema) if name == "*" and schema.top(name) is None else []


def columns_key(columns: Any) -> Any:
    """A hashable value that identifies a column list.

    Column lists that show the current time, and those that `project` refuses, are never equal.
    """
    if isinstance(columns, list):
        return ("names", *columns)
    if not isinstance(columns, dict):
        return None if columns is None else object()
    momentary = any(isinstance(text, str) and MOMENT.search(text) for text in columns.values())
    return ("expressed", *columns.items(), object() if momentary else None)


def project_taken(schema: Schema, columns: Selection) -> Projection:
    """The projection of a `take`: names select from the schema, they do not list results.

    A column appears once and under its own name, however often and however quoted it is named. A nested name, which may
    lead through lists, gives its top-level column with only that member. System columns appear as often as they are
    named. The row position is never null, as in pylance. Raises as `project`.
    """
    listed = as_list(columns)
    if isinstance(listed, list):
        projection = Projection(tuple(_select(schema, listed)), _metadata(schema))
    else:
        projection = project(schema, listed)
    return replace(projection, outputs=tuple(_with_sure_offset(output) for output in projection.outputs))


def as_list(columns: Any) -> Columns:
    """A selection with its names as a list. Arrays and columns of a frame are sequences; raises `TypeError` for a
    string.
    """
    if columns is None or isinstance(columns, (list, dict)):
        return columns
    if isinstance(columns, (str, bytes)) or not (isinstance(columns, Sequence) or hasattr(columns, "__array__")):
        raise TypeError(f"columns must be a sequence of names or dict[name, expression], got {type(columns)}")
    return list(columns)


def _select(schema: Schema, names: list[str]) -> Iterator[OutputColumn]:
    paths = [column_path(schema, name) for name in names]
    members: dict[str, dict[tuple[str, ...], None]] = {}
    stored: dict[str, dict[tuple[str, ...], None]] = {}
    for path in paths:
        if not _is_system(path):
            steps = fields_along(schema, path, through_lists=True)
            packed = next((depth for depth, step in enumerate(steps, 1) if step.is_packed), len(path))
            members.setdefault(path[0], {})[path] = None
            stored.setdefault(path[0], {})[path[:packed]] = None
    below = (path for each in members.values() for path in each)
    pruned = {field.name: field for field in prune(schema, below, as_stored=False)}
    for path in paths:
        top = path[0]
        if _is_system(path):
            yield OutputColumn(top, path, system_field(top))
        elif (wanted := members.pop(top, None)) is not None:
            shown = pruned[top].describe_blobs().to_arrow()
            parts = () if (top,) in stored[top] else tuple(stored[top])
            yield OutputColumn(top, (top,), shown, parts=parts, narrows=stored[top].keys() != wanted.keys())


def _with_sure_offset(output: OutputColumn) -> OutputColumn:
    return replace(output, field=output.field.with_nullable(False)) if output.path == (ROW_OFFSET,) else output


def _metadata(schema: Schema) -> Mapping[Any, Any] | None:
    return {key: schema.metadata[key] for key in sorted(schema.metadata)} or None


def _refuse_duplicates(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BindError(f"Duplicate column name: {name}")
        seen.add(name)


def column_path(schema: Schema, name: str) -> tuple[str, ...]:
    """The names of a column's path, from the top-level one down. Raises `TypeError` for a non-string."""
    if not isinstance(name, str):
        raise TypeError(f"column names must be strings, got {type(name)}")
    if "`" in name and schema.top(name) is not None:
        return (name,)  # the name itself contains backticks
    return tuple(split_path(name))


def _computed_output(schema: Schema, name: str, text: str) -> OutputColumn:
    """The output column of an expression; a plain column if it is just that."""
    if not isinstance(name, str) or not isinstance(text, str):
        raise TypeError(f"columns must be a list or dict[name, expression], got the value {type(text)} for {name!r}")
    utf8(name, "the name of a column", BindError)
    if schema.top(text) is not None:
        return _output(schema, name, (text,))
    if _PLAIN.fullmatch(text) and _exists(schema, tuple(text.split("."))):
        return _output(schema, name, tuple(text.split(".")))

    computed = filters.compile_column(text, schema.described.to_arrow())
    if isinstance(computed, tuple):
        return _output(schema, name, computed)
    return OutputColumn(name, (), pa.field(name, computed.type, nullable=computed.nullable), computed)


def _exists(schema: Schema, path: tuple[str, ...]) -> bool:
    try:
        return _is_system(path) or bool(fields_along(schema, path))
    except BindError:
        return False


def _output(schema: Schema, name: str, path: tuple[str, ...]) -> OutputColumn:
    if len(path) == 1 and path[0] in SYSTEM_COLUMNS:
        return OutputColumn(name, path, system_field(name))
    fields = fields_along(schema, path)
    arrow: pa.Field = fields[-1].describe_blobs().to_arrow().with_name(name)
    if any(field.nullable for field in fields[:-1]):
        arrow = arrow.with_nullable(True)
    return OutputColumn(name, path, arrow)


def fields_along(schema: Schema, path: tuple[str, ...], *, through_lists: bool = False) -> list[Field]:
    """The fields from the top-level one down to the one that `path` names. Raises `BindError` if it does not exist.

    through_lists  the path may lead through lists and maps, whose children have names, too
    """
    level: Sequence[Field] = ()
    fields: list[Field] = []
    for depth, part in enumerate(path):
        match = schema.top(part) if not depth else next((field for field in level if field.name == part), None)
        if match is None:
            raise _unknown(schema, path, fields)
        fields.append(match)
        level = match.children if through_lists and _is_list(match) else match.members
    return fields


def _is_list(field: Field) -> bool:
    return field.logical_type in _LISTS or field.logical_type.startswith("fixed_size_list:struct:")


def _unknown(schema: Schema, path: tuple[str, ...], resolved: Sequence[Field]) -> BindError:
    name = ".".join(path)
    if resolved and resolved[-1].holds_blobs:
        members = ", ".join(field.name for field in resolved[-1].members)
        return BindError(f"No field named {name}. The description of a blob in this table has {members}.")
    names = ", ".join(field.name for field in schema.fields)
    folded = next((field.name for field in schema.fields if field.name.lower() == path[0].lower()), None)
    hint = f" Did you mean {folded!r}? Column lists are case-sensitive." if folded not in (None, path[0]) else ""
    return BindError(f"No field named {name}.{hint} Valid fields are {names}.")


def prune(schema: Schema, paths: Iterable[tuple[str, ...]], *, as_stored: bool = True) -> list[Field]:
    """The top-level fields that hold `paths`, in schema order, without the struct members that no path needs.

    Members of the items of lists count as well; a map stays whole, because it needs both its keys and its values.

    paths      names from the top-level column down, as `OutputColumn.path`; each must exist
    as_stored  keep packed structs whole, whose members share one column; False leaves out members of these too
    """
    wanted: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        wanted.setdefault(path[0], []).append(path[1:])
    return [_prune_field(field, wanted[field.name], as_stored) for field in schema.tops(wanted)]


def _prune_field(field: Field, paths: list[tuple[str, ...]], as_stored: bool) -> Field:
    if field.logical_type == "map" or field.holds_blobs or any(not path for path in paths):
        return field
    if as_stored and field.is_packed:
        return field
    wanted: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        wanted.setdefault(path[0], []).append(path[1:])
    kept = (child for child in field.children if child.name in wanted)
    return replace(field, children=tuple(_prune_field(child, wanted[child.name], as_stored) for child in kept))


def extract(column: pa.Array, path: tuple[str, ...]) -> pa.Array:
    """The member that `path` (below the column) names, null where a struct above it is."""
    for name in path:
        column = pc.struct_field(column, [_member(column.type, name)])
    return column


def _member(dtype: pa.DataType, name: str) -> int:
    return first_member(dtype, name)
