"""`LanceSchema` and `LanceField`: the schema with field ids, in pylance's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.format.keys import POSITION_MAX
from lance_io.format.schema import split_path
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.lazy_names import lazy_module
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lance_io.format.schema import Field, Schema
    from lance_io.reads.metadata import debug_text
else:
    debug_text = lazy_module("lance_io.reads.metadata.debug_text")


class FieldMetadata(dict[str, str]):
    """Metadata of a field: a dict that returns itself when called, because releases of pylance differ here."""

    def __call__(self) -> dict[str, str]:
        """The same as a plain dict."""
        return dict(self)


@dataclass(frozen=True)
class LanceField:
    """One field of a schema."""

    _field: Field
    _parent_id: int = -1

    def name(self) -> str:
        """Name of the field, without its path."""
        return self._field.name

    def id(self) -> int:
        """Field id, unique in the table."""
        return self._field.id

    def children(self) -> list[LanceField]:
        """Member fields."""
        return [LanceField(child, self._field.id) for child in self._field.children]

    @property
    def metadata(self) -> FieldMetadata:
        """Metadata of the field; `field.metadata()` returns the same."""
        return FieldMetadata({key: value.decode("utf-8", "replace") for key, value in self._field.metadata.items()})

    def is_unenforced_primary_key(self) -> bool:
        """Whether the field belongs to the declared primary key."""
        return self._field.primary_key_position is not None

    def unenforced_primary_key_position(self) -> int | None:
        """Position in the primary key; None if it is not part of it, or was declared without a position."""
        return self._field.primary_key_position or None

    def is_unenforced_clustering_key(self) -> bool:
        """Whether the field belongs to the declared clustering key."""
        return self._field.clustering_key_position is not None

    def unenforced_clustering_key_position(self) -> int | None:
        """Position in the clustering key, or None."""
        return self._field.clustering_key_position or None

    def to_arrow(self) -> pa.Field:
        """The Arrow field."""
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
        """Look up a field.

        Args:
            name: Dotted path.

        Returns:
            The field; None if it does not exist.
        """
        return self._find(name, str)

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """Look up a field, ignoring case. An exact match takes precedence.

        Args:
            name: Dotted path.

        Returns:
            The field; None if it does not exist.
        """
        exact = self.field(name)
        return self._find(name, str.casefold) if exact is None else exact

    def _find(self, path: str, fold: Callable[[str], str]) -> LanceField | None:
        level, match, parent_id = self._schema.fields, None, -1
        for part in split_path(path):
            parent_id = -1 if match is None else match.id
            match = next((field for field in level if fold(field.name) == fold(part)), None)
            if match is None:
                return None
            level = match.children
        return None if match is None else LanceField(match, parent_id)

    def unenforced_primary_key(self) -> list[LanceField]:
        """Fields of the declared primary key: by position, then those without one in schema order."""
        parts = [LanceField(field) for field in self._schema.walk() if field.primary_key_position is not None]
        return sorted(parts, key=lambda part: part._field.primary_key_position or POSITION_MAX)

    def unenforced_clustering_key(self) -> list[LanceField]:
        """Fields of the declared clustering key, by position."""
        parts = [LanceField(field) for field in self._schema.walk() if field.clustering_key_position is not None]
        return sorted(parts, key=lambda part: part._field.clustering_key_position or 0)

    def to_pyarrow(self) -> pa.Schema:
        """The Arrow schema."""
        return self._schema.to_arrow()

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """Assign new field ids to an Arrow schema.

        Args:
            schema: Arrow schema.

        Raises:
            NotImplementedError: A type cannot be stored.
            ValueError: The declared primary key is invalid.
        """
        return LanceSchema(schema_from_arrow(schema))

    def __repr__(self) -> str:
        return debug_text.write_debug(debug_text.show_schema(self._schema), pretty=False)
