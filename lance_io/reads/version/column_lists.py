"""Column lists: what to read and what to call it. Pure.

A projection is made from what the caller names (`columns=`), and says three things: which top-level fields to read,
pruned to the members that are needed; which system columns to make; and how the output columns come out of both.
Names are case-sensitive, as in pylance; a part of a path may be quoted with backticks.

A blob column is its description here, a struct whose members can be named like any others. Whether it comes out as
bytes instead is said later (`DatasetState.shown`).

In a dict of columns, new names stand for SQL expressions in the language of text filters. One that is just a column
is read as such; any other is computed from the columns it names, after them.
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
from lance_io.errors import BindError
from lance_io.format.logical_types import LISTS
from lance_io.format.schema import first_member, split_path
from lance_io.lazy_names import later
from lance_io.levels.retype import narrowed, needs_retyping
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET, SYSTEM_COLUMNS, system_field
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lance_io import filters
    from lance_io.filters import ComputedColumn
    from lance_io.format.schema import Field, Schema
else:
    filters = later("lance_io.filters")

Columns: TypeAlias = "list[str] | dict[str, str] | None"
Selection: TypeAlias = "Sequence[str] | dict[str, str] | None"  # for takes: any sequence of names, as in pylance

# What compiles filters and expressions: 0.2 s to import.
COMPILER: Final = tuple(f"lance_io.filters.{name}" for name in ("compiled", "binding.sql_binder", "syntax.sql_text"))
_LISTS: Final = LISTS | {"map"}
PREPARED_MAX: Final = 64  # column lists whose preparation is remembered

_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")  # a name or dotted path that needs no parser
_MOMENT = re.compile(r"\b(now|today|current_\w+)\b", re.IGNORECASE)  # functions whose value is that of the call


class Prepared:
    """The most recently used of what was prepared for a column list; safe from any thread."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        """What was put there, or None."""
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Remember, and forget the oldest beyond the bound."""
        self._entries[key] = value
        while len(self._entries) > PREPARED_MAX:
            self._entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the result.

    name      what it is called
    path      names from the top-level column down; `("_rowid",)` for a system column, empty for a computed one
    field     its Arrow field, called `name`
    computed  how it is made of other columns; None for one that is read
    parts     paths of what is left of it where members were pruned; empty where it is whole
    narrows   what is read has members that are not shown: those of packed structs are stored together
    """

    name: str
    path: tuple[str, ...]
    field: pa.Field
    computed: ComputedColumn | None = None
    parts: tuple[tuple[str, ...], ...] = ()
    narrows: bool = False

    @property
    def is_system(self) -> bool:
        """True for the columns of `system`."""
        return _is_system(self.path)

    @property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the columns that it is made of, system columns among them."""
        return self.parts or (self.path,) if self.computed is None else self.computed.paths

    def values(self, columns: Mapping[str, pa.Array], num_rows: int) -> pa.Array:
        """The column, from top-level and system columns by name.

        Raises `EvaluationError` where a row cannot be computed.
        """
        if self.computed is None:
            found = extract(columns[self.path[0]], self.path[1:])
            return narrowed(found, self.field.type) if self.narrows else found
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
        """What the outputs are called among the columns that are read; None unless each is one of these, as it is."""
        if any(one.computed is not None or len(one.path) != 1 or one.narrows for one in self.outputs):
            return None
        return [output.path[0] for output in self.outputs]

    @cached_property
    def is_retyped(self) -> bool:
        """What `needs_retyping` says about the schema of the result."""
        return needs_retyping(self.arrow_schema)

    @cached_property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """Paths of all columns that the result is made of, each once."""
        return tuple(dict.fromkeys(path for output in self.outputs for path in output.sources))

    @cached_property
    def source_names(self) -> frozenset[str]:
        """Top-level and system columns that the result is made of."""
        return frozenset(path[0] for path in self.sources)

    @cached_property
    def system_names(self) -> tuple[str, ...]:
        """System columns that the result is made of."""
        return tuple(path[0] for path in self.sources if _is_system(path))

    @cached_property
    def data_paths(self) -> list[tuple[str, ...]]:
        """Paths of the stored columns that the result is made of."""
        return [path for path in self.sources if not _is_system(path)]

    def with_system(self, *names: str) -> Projection:
        """This projection with system columns at its end; they move there when they are listed already."""
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

    `*` among names or expressions stands for all columns, unless one is called so.

    Raises `TypeError` for another container, `BindError` for a name that is unknown or occurs twice and an expression
    that does not fit the schema, `BindError` for text that is no expression.
    """
    if columns is None:
        outputs = _whole(schema)
    elif isinstance(columns, dict):
        found = (_all(schema, text) or [_computed_output(schema, name, text)] for name, text in columns.items())
        outputs = [output for each in found for output in each]
    elif isinstance(columns, list):
        found = (_all(schema, name) or [_output(schema, name, column_path(schema, name))] for name in columns)
        outputs = [output for each in found for output in each]
    else:
        raise TypeError(f"columns must be a list or dict[name, expression], got {type(columns)}")
    _refuse_duplicates(output.name for output in outputs)
    projection = Projection(tuple(outputs), _metadata(schema))
    asked = [name for name, wanted in ((ROW_ID, with_row_id), (ROW_ADDRESS, with_row_address)) if wanted]
    return projection.with_system(*asked)


def _whole(schema: Schema) -> list[OutputColumn]:
    return [OutputColumn(shown.name, (shown.name,), shown) for shown in schema.described.to_arrow()]


def _all(schema: Schema, name: Any) -> list[OutputColumn]:
    """The columns that `*` stands for; none for another name, and where a column is called so."""
    return _whole(schema) if name == "*" and schema.top(name) is None else []


def columns_key(columns: Any) -> Any:
    """A hashable value that tells column lists apart.

    Columns that show the time, and what `project` refuses, are never the same twice.
    """
    if isinstance(columns, list):
        return ("names", *columns)
    if not isinstance(columns, dict):
        return None if columns is None else object()
    momentary = any(isinstance(text, str) and _MOMENT.search(text) for text in columns.values())
    return ("expressed", *columns.items(), object() if momentary else None)


def project_taken(schema: Schema, columns: Selection) -> Projection:
    """The projection that `take` makes of columns: names are a selection of the schema, not a list of results.

    A column comes once and under its own name, however often and however quoted it is named; a nested name, which may
    lead through lists, gives its top-level column with only that member. System columns come as often as they are
    named. The position among the rows is never null, as in pylance. Raises as `project`.
    """
    listed = as_list(columns)
    if isinstance(listed, list):
        found = Projection(tuple(_select(schema, listed)), _metadata(schema))
    else:
        found = project(schema, listed)
    return replace(found, outputs=tuple(_with_sure_offset(output) for output in found.outputs))


def as_list(columns: Any) -> Columns:
    """A selection with its names as a list. Arrays and columns of a frame are sequences; `TypeError` for a text."""
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
    """The names that a column is asked for by, from the top-level one down. Raises `TypeError` for what is no text."""
    if not isinstance(name, str):
        raise TypeError(f"column names must be strings, got {type(name)}")
    if "`" in name and schema.top(name) is not None:
        return (name,)  # as it is called: the backticks are its own
    return tuple(split_path(name))


def _computed_output(schema: Schema, name: str, text: str) -> OutputColumn:
    """The output column that an expression describes: a column as it is read where it is just that."""
    if not isinstance(name, str) or not isinstance(text, str):
        raise TypeError(f"columns must be a list or dict[name, expression], got the value {type(text)} for {name!r}")
    if schema.top(text) is not None:
        return _output(schema, name, (text,))
    if _PLAIN.fullmatch(text) and _exists(schema, tuple(text.split("."))):
        return _output(schema, name, tuple(text.split(".")))

    found = filters.compile_column(text, schema.described.to_arrow())
    if isinstance(found, tuple):
        return _output(schema, name, found)
    return OutputColumn(name, (), pa.field(name, found.type, nullable=found.nullable), found)


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
    """The fields from the top-level one down to the one that `path` names. Raises `BindError` when there is none.

    through_lists  the path may lead through lists and maps, whose children have names, too
    """
    level: Sequence[Field] = ()
    found: list[Field] = []
    for depth, part in enumerate(path):
        match = schema.top(part) if not depth else next((field for field in level if field.name == part), None)
        if match is None:
            raise _unknown(schema, path, found)
        found.append(match)
        level = match.children if through_lists and _is_list(match) else match.members
    return found


def _is_list(field: Field) -> bool:
    return field.logical_type in _LISTS or field.logical_type.startswith("fixed_size_list:struct:")


def _unknown(schema: Schema, path: tuple[str, ...], found: Sequence[Field]) -> BindError:
    name = ".".join(path)
    if found and found[-1].holds_blobs:
        members = ", ".join(field.name for field in found[-1].members)
        return BindError(f"No field named {name}. The description of a blob in this table has {members}.")
    names = ", ".join(field.name for field in schema.fields)
    folded = next((field.name for field in schema.fields if field.name.lower() == path[0].lower()), None)
    hint = f" Did you mean {folded!r}? Column lists are case-sensitive." if folded not in (None, path[0]) else ""
    return BindError(f"No field named {name}.{hint} Valid fields are {names}.")


def prune(schema: Schema, paths: Iterable[tuple[str, ...]], *, as_stored: bool = True) -> list[Field]:
    """The top-level fields that hold `paths`, in schema order, without the struct members that no path needs.

    Members of the items of lists count as well; a map stays whole, as it needs both its keys and its values.

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
