"""Encodings of columns as an argument of a write: `write_dataset(..., encodings={"x": Encoding(...)})`.

They become metadata of the table's fields (`lance_io.encodings.options`), which later writes follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from lance_io.encodings.options import PREFIX
from lance_io.errors import BindError, UsageError
from lance_io.format.schema import PACKED_KEYS, Field, Schema, split_path
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS: Final = {
    "compression": "compression",
    "level": "compression-level",
    "rle_threshold": "rle-threshold",
    "bss": "bss",
    "dict_divisor": "dict-divisor",
    "dict_size_ratio": "dict-size-ratio",
    "dict_max_size": "dict-max-size",
    "dict_values_compression": "dict-values-compression",
    "dict_values_level": "dict-values-compression-level",
    "minichunk_size": "minichunk-size",
}
_WHOLE: Final = ("level", "dict_divisor", "dict_max_size", "dict_values_level", "minichunk_size")
_SHARES: Final = ("rle_threshold", "dict_size_ratio")


@dataclass(frozen=True)
class Encoding:
    """Encoding of a column; None leaves a choice to the writer.

    Args:
        compression: "lz4", "zstd", "fsst" or "none".
        level: Compression level of zstd.
        rle_threshold: Largest number of runs for run-length encoding, as a share of the number of values.
        bss: Byte stream split below lz4 and zstd: "off", "on", "auto", or a sensitivity from 0 to 1.
        dict_divisor: A dictionary has at most 1/`dict_divisor` as many values as its page.
        dict_size_ratio: Largest size of a dictionary encoding, as a share of the plain page.
        dict_max_size: Largest size of a dictionary's values, in bytes.
        dict_values_compression: Compression of dictionaries in file version 2.2: "lz4", "zstd" or "none".
        dict_values_level: Compression level of dictionaries in file version 2.2.
        minichunk_size: Target size of chunks of variable-width values, in bytes.
        structural_encoding: "miniblock" or "fullzip", for the whole top-level column.
        packed: Whether the members of a struct are stored together.

    Raises:
        ValueError: An argument that must be a number is none. An unknown codec raises `SchemaError` on write.
    """

    compression: Literal["lz4", "zstd", "fsst", "none"] | None = None
    level: int | None = None
    rle_threshold: float | None = None
    bss: Literal["off", "on", "auto"] | float | None = None
    dict_divisor: int | None = None
    dict_size_ratio: float | None = None
    dict_max_size: int | None = None
    dict_values_compression: Literal["lz4", "zstd", "none"] | None = None
    dict_values_level: int | None = None
    minichunk_size: int | None = None
    structural_encoding: Literal["miniblock", "fullzip"] | None = None
    packed: bool = False

    def __post_init__(self) -> None:
        for names, kinds, what in ((_WHOLE, (int,), "a whole number"), (_SHARES, (int, float), "a number")):
            for name in names:
                value = getattr(self, name)
                if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
                    raise UsageError(f"{name} of an encoding: expected {what}, found {value!r}")
        if self.bss not in (None, "off", "on", "auto") and not isinstance(self.bss, (int, float)):
            raise UsageError(f"bss of an encoding: expected off, on, auto or a number from 0 to 1, found {self.bss!r}")

    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata that this encoding adds to fields that own columns."""
        given = ((key, getattr(self, name)) for name, key in _KEYS.items())
        return {PREFIX + key: str(value).encode() for key, value in given if value is not None}


def with_encodings(schema: Schema, encodings: Mapping[str, Encoding]) -> Schema:
    """The schema with these encodings as metadata; the encoding of a struct or list applies to all columns below it.

    encodings  by column or member, such as `st.x`; items of lists count as members with their own names

    Raises `BindError` for a missing column, `UsageError` for a value that is no `Encoding`.
    """
    fields = list(schema.fields)
    for path, encoding in encodings.items():
        if not isinstance(encoding, Encoding):
            raise UsageError(f"encodings: expected an Encoding for {path}, found {type(encoding).__name__}")
        first, *steps = split_path(path)
        at = next((at for at, field in enumerate(fields) if field.name == first), None)
        if at is None:
            raise BindError(f"No field named {path}. Valid fields are {', '.join(schema.names)}.")
        field = _encoded(fields[at], steps, encoding, path)
        if encoding.structural_encoding is not None:
            layout = {f"{PREFIX}structural-encoding": str(encoding.structural_encoding).encode()}
            field = replace(field, metadata={**field.metadata, **layout})
        fields[at] = field
    return Schema(tuple(fields), dict(schema.metadata)) if encodings else schema


def _encoded(field: Field, steps: list[str], encoding: Encoding, path: str) -> Field:
    if not steps:
        if encoding.packed:
            field = replace(field, metadata={**field.metadata, PACKED_KEYS[0]: b"true"})
        return _with_metadata(field, encoding.metadata)
    if steps[0] not in (child.name for child in field.children):
        raise BindError(f"No field named {path}. Valid fields of {field.name} are {_names(field)}.")
    return replace(
        field,
        children=tuple(
            _encoded(child, steps[1:], encoding, path) if child.name == steps[0] else child for child in field.children
        ),
    )


def _with_metadata(field: Field, metadata: dict[str, bytes]) -> Field:
    if not field.children or field.is_packed or field.holds_blobs:
        return replace(field, metadata={**field.metadata, **metadata})
    return replace(field, children=tuple(_with_metadata(child, metadata) for child in field.children))


def _names(field: Field) -> str:
    return ", ".join(child.name for child in field.children) or "none"


def check_encodings(encodings: Any, mode: str) -> dict[str, Encoding]:
    """The argument `encodings` of a write. Raises `UsageError` for an append: an existing table has its encodings."""
    if not encodings:
        return {}
    if mode == "append":
        raise UsageError(
            "mode='append' takes no encodings: they are set when a table is created or overwritten. Change those of a "
            "table with update_field_metadata; later writes follow them"
        )
    return dict(encodings)
