"""The clauses of `merge_insert`, checked, as one value (spec: operations, 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from lance_io.errors import BindError, OperationError, UsageError
from lance_io.format.schema import split_path
from lance_io.lazy_names import lazy_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io import filters
    from lance_io.changes.write.target_bases import TargetBases
    from lance_io.filters import Predicate
    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion
else:
    filters = lazy_module("lance_io.filters")

Matched: TypeAlias = Literal["keep", "update", "delete", "fail"]
WriteMode: TypeAlias = Literal["auto", "rewrite_rows", "rewrite_columns"]
WRITE_MODES: Final = ("auto", "rewrite_rows", "rewrite_columns")
SOURCE: Final = "source"
TARGET: Final = "target"


@dataclass(frozen=True)
class MergeClauses:
    """Clauses of a merge.

    on                key columns; empty for the table's primary key
    matched           action for target rows that a source row matches
    condition         condition of updates, over `source.` and `target.`; None for all matches
    inserts           whether source rows without a match are inserted
    deletes_rest      whether target rows without a match are deleted
    rest_filter       filter of these deletes, None for all
    write_mode        whether whole rows or columns are written
    uses_index        whether an index on the key makes the merge write columns, as in pylance
    version           file version of new data files, None for the table's
    bases             base paths that receive new fragments, None for the table's own folder
    conflict_retries  number of retries after conflicts
    retry_timeout     time after which no retry starts
    """

    on: tuple[str, ...] = ()
    matched: Matched = "keep"
    condition: str | None = None
    inserts: bool = False
    deletes_rest: bool = False
    rest_filter: str | None = None
    write_mode: WriteMode = "auto"
    uses_index: bool = True
    version: FileVersion | None = None
    bases: TargetBases | None = None
    conflict_retries: int = 10
    retry_timeout: timedelta = timedelta(seconds=30)

    def check_changes(self) -> None:
        """Raise `UsageError` if the clauses change nothing."""
        if self.matched == "keep" and not self.inserts and not self.deletes_rest:
            raise UsageError("The merge insert job is not configured to change the data in any way")

    @property
    def deletes(self) -> bool:
        """Whether rows may be deleted."""
        return self.matched == "delete" or self.deletes_rest

    def describe(self) -> str:
        """The clauses in the wording of pylance's plans."""
        matched = {"keep": "DoNothing", "update": "UpdateAll", "delete": "Delete", "fail": "Fail"}[self.matched]
        if self.condition is not None:
            matched = f'UpdateIf("{self.condition}")'
        rest = "Keep"
        if self.deletes_rest:
            rest = "Delete" if self.rest_filter is None else f'DeleteIf("{self.rest_filter}")'
        return (
            f"on=[{', '.join(self.on)}], when_matched={matched}, "
            f"when_not_matched={'InsertAll' if self.inserts else 'DoNothing'}, when_not_matched_by_source={rest}"
        )


def key_columns(on: Any, schema: Schema) -> tuple[str, ...]:
    """The key columns of a merge, with the table's names and without duplicates.

    on  a name, several, or None for the declared primary key
    Raises `TypeError` for a name that is no string, `UsageError` for a missing column or a missing key.
    """
    names = _names(on)
    if not names:
        names = primary_key(schema)
        if not names:
            raise UsageError(
                "A merge insert operation requires join keys: specify `on` columns explicitly or configure a primary "
                "key in the dataset schema"
            )
    return tuple(dict.fromkeys(_column(name, schema) for name in names))


def _names(on: Any) -> list[str]:
    if on is None or isinstance(on, str):
        return [] if on is None else [on]
    try:
        names = list(on)
    except TypeError as error:
        raise TypeError("The `on` argument to merge_insert must be a str or iterable of str") from error
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`on`: expected names of columns, found {name!r} of {type(name)}")
    return names


def primary_key(schema: Schema) -> list[str]:
    """Top-level columns of the declared primary key, in its order."""
    declared = [(field.primary_key_position, index, field.name) for index, field in enumerate(schema.fields)]
    keys = [(position or len(declared) + index, name) for position, index, name in declared if position is not None]
    return [name for _, name in sorted(keys)]


def _column(name: str, schema: Schema) -> str:
    names = [field.name for field in schema.fields]
    if name in names:
        return name
    folded = [known for known in names if known.lower() == name.lower()]
    if folded:
        return folded[0]
    path = split_path(name) if name else [name]
    if len(path) > 1 and path[0] in names and _is_member(schema, path):
        raise OperationError(f"Merge insert key column '{name}' is a member of a struct: keys are whole columns")
    raise UsageError(f"Merge insert key column '{name}' does not exist in schema. Its columns are {', '.join(names)}")


def _is_member(schema: Schema, path: Iterable[str]) -> bool:
    level: Sequence[Field] = schema.fields
    for part in path:
        member = next((field for field in level if field.name == part), None)
        if member is None:
            return False
        level = member.children
    return True


def compile_condition(text: str, source: pa.Schema, target: pa.Schema) -> Predicate:
    """Compile the condition of updates, over two structs, `source` and `target`. Raises `OperationError`."""
    sides = pa.schema([(SOURCE, pa.struct(list(source))), (TARGET, pa.struct(list(target)))])
    try:
        filters.check_change(text)
        return filters.compile_filter(text, sides, has_sides=True)
    except BindError as error:
        raise OperationError(
            f"Invalid user input: when_matched_update_all: {error.message.rstrip('.')}. Columns are named with the "
            "prefixes `source.` and `target.`"
        ) from error


def side_columns(predicate: Predicate | None, side: str) -> list[str]:
    """Top-level columns of one side that a condition reads."""
    if predicate is None:
        return []
    names = [path[1] for path in predicate.paths if path[0] == side and len(path) > 1]
    return list(dict.fromkeys(names))
