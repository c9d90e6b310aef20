"""Names that a change gives to columns and members: no two siblings come to share one.

The second of two would be out of reach: no path leads to it, and neither `to_pylist` nor `to_pandas` knows what to do.
Members that share their name already, which `write_dataset` lets through as pylance does, may go on doing so, and every
change is possible that sets them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lance_io.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field, Schema

    Level: TypeAlias = tuple[int, str, Sequence[Field]]  # id of a parent, its path, its members


def check_sibling_names(before: Schema, after: Schema) -> None:
    """Raise `OperationError` where more siblings share a name than did before, unless all of them are new.

    Fields are known by their ids.
    """
    if before is after:
        return
    there: dict[tuple[int, str], int] | None = None
    known = {field.id for field in before.walk()}
    for parent_id, path, members in _levels(-1, "", after.fields):
        if len({field.name for field in members}) == len(members):
            continue
        if there is None:
            there = {
                (level[0], name): len(same) for level in _levels(-1, "", before.fields) for name, same in _named(level)
            }
        for name, same in _named((parent_id, path, members)):
            if len(same) > max(there.get((parent_id, name), 0), 1) and any(field.id in known for field in same):
                raise OperationError(
                    f'Duplicate field name "{path}{name}" in schema: columns, and members of one struct, need a name '
                    "each, as the second of two could not be reached. Choose another name"
                )


def _levels(parent_id: int, path: str, members: Sequence[Field]) -> Iterator[Level]:
    """All fields by their parents, from the top down; -1 is the parent of columns."""
    yield parent_id, path, members
    for field in members:
        if field.children:
            yield from _levels(field.id, f"{path}{field.name}.", field.children)


def _named(level: Level) -> Iterator[tuple[str, list[Field]]]:
    by_name: dict[str, list[Field]] = {}
    for field in level[2]:
        by_name.setdefault(field.name, []).append(field)
    yield from by_name.items()
