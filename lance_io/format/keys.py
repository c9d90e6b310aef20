"""Declared keys of a schema: the primary key and the clustering key (spec: table, section 2.5).

Users declare both in the metadata of fields; readers use the numbers that are stored in the fields themselves.

    metadata                                          stored
    lance-schema:unenforced-primary-key:position      a number: part of the primary key, at that position
    lance-schema:unenforced-primary-key               a word for yes: part of it, position 0 if none is given
    lance-schema:unenforced-clustering-key:position   a number from 1 on: part of the clustering key, at that position

Position 0 of a primary key means no position: such fields come last, in the order of the schema. A clustering key of
position 0 can be declared, but is not stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lance_io.errors import PrimaryKeyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.format.schema import Field, Schema

PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION: Final = f"{PRIMARY_KEY}:position"
CLUSTERING_KEY_POSITION: Final = "lance-schema:unenforced-clustering-key:position"
POSITION_MAX: Final = (1 << 32) - 1
_YES: Final = frozenset({b"true", b"1", b"yes", b"y", b"on"})
_NUMBER: Final = re.compile(rb"\+?[0-9]+")
_LISTS: Final = ("list", "large_list", "map")  # values of a fixed-size list belong to their row


def declared_primary_key(metadata: Mapping[str, bytes]) -> int | None:
    """A field's position in the primary key according to its metadata, 0 for no position, None if it is no part."""
    position = _number(metadata.get(PRIMARY_KEY_POSITION, b""))
    if position is not None:
        return position
    return 0 if metadata.get(PRIMARY_KEY, b"").lower() in _YES else None


def declared_clustering_key(metadata: Mapping[str, bytes]) -> int | None:
    """A field's position in the clustering key according to its metadata, None if it is no part."""
    return _number(metadata.get(CLUSTERING_KEY_POSITION, b""))


def _number(text: bytes) -> int | None:
    """A number of 32 bits; None for anything else, which declares nothing."""
    digits = text.lstrip(b"+0")
    if _NUMBER.fullmatch(text) is None or len(digits) > len(str(POSITION_MAX)):
        return None
    number = int(digits or b"0")
    return number if number <= POSITION_MAX else None


def check_primary_key(schema: Schema) -> None:
    """Raise `PrimaryKeyError` for a primary key of a field that may be null, has members, or is inside a list.

    Other readers reject tables with such a key, so it must never be stored.
    """
    for field in schema.fields:
        _check(field, field.name, nullable=None, inside=None)


def _check(field: Field, path: str, *, nullable: str | None, inside: str | None) -> None:
    """nullable, inside: the path of the outermost field that may be null, and of the enclosing list."""
    nullable = nullable or (path if field.nullable else None)
    if field.primary_key_position is not None:
        problem = _problem(field, path, nullable, inside)
        if problem:
            raise PrimaryKeyError(f"{problem}, or remove {PRIMARY_KEY}* from the metadata of {path!r}")
    if field.logical_type.startswith(_LISTS):
        inside = inside or path
    for child in field.children:
        _check(child, f"{path}.{child.name}", nullable=nullable, inside=inside)


def _problem(field: Field, path: str, nullable: str | None, inside: str | None) -> str | None:
    if field.children:
        return f"Primary key column must be a leaf: {path!r} is a {field.logical_type}; declare its members instead"
    if inside is not None:
        return f"Primary key column must not be in a list or map type: {path!r} is in {inside!r}; take another"
    if nullable is not None:
        return f"Primary key column and all its ancestors must not be nullable: make {nullable!r} nullable=False"
    return None
