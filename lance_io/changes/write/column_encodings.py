"""How columns are to be encoded, as an argument of a write: `write_dataset(..., encodings={"x": Encoding(...)})`.

It becomes metadata of the table's fields (`lance_io.encodings.options`), so that later writes keep to it.
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
    """How a column is encoded; None leaves a choice to the writer.

    compression              "lz4", "zstd", "fsst" or "none"
    level                    of zstd
    rle_threshold            runs only when they are fewer than this share of the values
    bss                      byte stream split below lz4 and zstd: "off", "on", "auto", or a sensitivity from 0 to 1
    dict_divisor             a dictionary has at most one value per so many values of a page
    dict_size_ratio          a dictionary only where it takes less than this share of the page
    dict_max_size            bytes of the values of a dictionary at most
    dict_values_compression  "lz4", "zstd" or "none", with dict_values_level: of dictionaries, in file version 2.2
    minichunk_size           bytes that chunks of variable-width values aim at
    structural_encoding      "miniblock" or "fullzip", of the whole top-level column
    packed                   members of a struct are stored together

    Raises `UsageError` for what is no number where one is wanted. Unknown names of codecs are a `SchemaError` of the
    write.
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
        """What it is as metadata of the fields that own columns."""
        given = ((key, getattr(self, name)) for name, key in _KEYS.items())
        return {PREFIX + key: str(value).encode() for key, value in given if value is not None}


def with_encodings(schema: Schema, encodings: Mapping[str, Encoding]) -> Schema:
    """The schema with these encodings as metadata, those of a struct or list on all columns below it.

    encodings  by column or member, `st.x`; items of lists are members of their own names

    Raises `BindError` for a column that is not there, `UsageError` for what is no encoding.
    """
    found = list(schema.fields)
    for path, encoding in encodings.items():
        if not isinstance(encoding, Encoding):
            raise UsageError(f"encodings: expected an Encoding for {path}, found {type(encoding).__name__}")
        first, *steps = split_path(path)
        at = next((at for at, field in enumerate(found) if field.name == first), None)
        if at is None:
            raise BindError(f"No field named {path}. Valid fields are {', '.join(schema.names)}.")
        field = _encoded(found[at], steps, encoding, path)
        if encoding.structural_encoding is not None:
            layout = {f"{PREFIX}structural-encoding": str(encoding.structural_encoding).encode()}
            field = replace(field, metadata={**field.metadata, **layout})
        found[at] = field
    return Schema(tuple(found), dict(schema.metadata)) if encodings else schema


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
    """The argument of a write. Raises `UsageError` for an append: a table has its encodings."""
    if not encodings:
        return {}
    if mode == "append":
        raise UsageError(
            "encodings are given where a table is created or overwritten; those of a table are changed by "
            "update_field_metadata, and count for rows that are written from then on"
        )
    return dict(encodings)
