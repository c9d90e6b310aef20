"""Checks that a change of the schema gives no two siblings the same name.

No path leads to the second of two siblings with the same name, and neither `to_pylist` nor `to_pandas` can handle them.
Existing duplicate names, which `write_dataset` allows as pylance does, may stay, and any change that separates them is
allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lance_io.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field, Schema

    Level: TypeAlias = tuple[int, str, Sequence[Field]]  # id of a parent, its path, its members


def check_sibling_names(before: Schema, after: Schema) -> None:
    """Raise `OperationError` if more siblings share a name than before, unless all of them are new.

    Fields are identified by their ids.
    """
    if before is after:
        return
    counts_before: dict[tuple[int, str], int] | None = None
    known = {field.id for field in before.walk()}
    for parent_id, path, members in _levels(-1, "", after.fields):
        if len({field.name for field in members}) == len(members):
            continue
        if counts_before is None:
            counts_before = {
                (level[0], name): len(same) for level in _levels(-1, "", before.fields) for name, same in _named(level)
            }
        for name, same in _named((parent_id, path, members)):
            count_before = counts_before.get((parent_id, name), 0)
            if len(same) > max(count_before, 1) and any(field.id in known for field in same):
                raise OperationError(
                    f'Duplicate field name "{path}{name}" in schema: columns, and members of the same struct, need '
                    "distinct names, as no path leads to the second of two. Choose another name"
                )


def _levels(parent_id: int, path: str, members: Sequence[Field]) -> Iterator[Level]:
    """All fields grouped by parent, from the top down; -1 is the parent of columns."""
    yield parent_id, path, members
    for field in members:
        if field.children:
            yield from _levels(field.id, f"{path}{field.name}.", field.children)


def _named(level: Level) -> Iterator[tuple[str, list[Field]]]:
    by_name: dict[str, list[Field]] = {}
    for field in level[2]:
        by_name.setdefault(field.name, []).append(field)
    yield from by_name.items()
