"""`LanceSchema` and `LanceField`: the schema with field ids, as pylance shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.format.keys import POSITION_MAX
from lance_io.format.schema import split_path
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.lazy_names import later
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lance_io.format.schema import Field, Schema
    from lance_io.reads.metadata import debug_text
else:
    debug_text = later("lance_io.reads.metadata.debug_text")


class FieldMetadata(dict[str, str]):
    """Metadata of a field: a dict, which gives itself when it is called, as releases of pylance differ there."""

    def __call__(self) -> dict[str, str]:
        """As a plain dict."""
        return dict(self)


@dataclass(frozen=True)
class LanceField:
    """One node of a schema."""

    _field: Field
    _parent_id: int = -1

    def name(self) -> str:
        """Its own name, not a path."""
        return self._field.name

    def id(self) -> int:
        """Field id, unique in the table."""
        return self._field.id

    def children(self) -> list[LanceField]:
        """Member fields."""
        return [LanceField(child, self._field.id) for child in self._field.children]

    @property
    def metadata(self) -> FieldMetadata:
        """Field metadata; `field.metadata()` is the same."""
        return FieldMetadata({key: value.decode("utf-8", "replace") for key, value in self._field.metadata.items()})

    def is_unenforced_primary_key(self) -> bool:
        """Whether it was declared as part of the primary key."""
        return self._field.primary_key_position is not None

    def unenforced_primary_key_position(self) -> int | None:
        """Its place in the primary key; None for no part of it, and for one that was declared without a place."""
        return self._field.primary_key_position or None

    def is_unenforced_clustering_key(self) -> bool:
        """Whether it was declared as part of the clustering key."""
        return self._field.clustering_key_position is not None

    def unenforced_clustering_key_position(self) -> int | None:
        """Its place in the clustering key, or None."""
        return self._field.clustering_key_position or None

    def to_arrow(self) -> pa.Field:
        """As an Arrow field."""
        return self._field.to_arrow()

    def __repr__(self) -> str:
        return debug_text.write_debug(debug_text.show_field(self._field, self._parent_id), pretty=False)


@dataclass(frozen=True)
class LanceSchema:
    """A schema with field ids."""

    _schema: Schema

    def fields(self) -> list[LanceField]:
        """Top-level fields."""
        return [LanceField(field) for field in self._schema.fields]

    def field(self, name: str) -> LanceField | None:
        """The field at a dotted path, or None."""
        return self._find(name, str)

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """The field at a dotted path, or None; an exact match wins over one that differs in case."""
        exact = self.field(name)
        return self._find(name, str.casefold) if exact is None else exact

    def _find(self, path: str, fold: Callable[[str], str]) -> LanceField | None:
        level, found, parent_id = self._schema.fields, None, -1
        for part in split_path(path):
            parent_id = -1 if found is None else found.id
            found = next((one for one in level if fold(one.name) == fold(part)), None)
            if found is None:
                return None
            level = found.children
        return None if found is None else LanceField(found, parent_id)

    def unenforced_primary_key(self) -> list[LanceField]:
        """The fields declared as primary key: those with a position by it, then the others as they come."""
        parts = [LanceField(one) for one in self._schema.walk() if one.primary_key_position is not None]
        return sorted(parts, key=lambda part: part._field.primary_key_position or POSITION_MAX)

    def unenforced_clustering_key(self) -> list[LanceField]:
        """The fields declared as clustering key, by position."""
        parts = [LanceField(one) for one in self._schema.walk() if one.clustering_key_position is not None]
        return sorted(parts, key=lambda part: part._field.clustering_key_position or 0)

    def to_pyarrow(self) -> pa.Schema:
        """As an Arrow schema."""
        return self._schema.to_arrow()

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """An Arrow schema with fresh field ids.

        Raises `NotImplementedError` for types that cannot be stored, `ValueError` for an impossible primary key.
        """
        return LanceSchema(schema_from_arrow(schema))

    def __repr__(self) -> str:
        return debug_text.write_debug(debug_text.show_schema(self._schema), pretty=False)
