"""Encoding options in field metadata (`lance-encoding:*`).

    compression                    lz4, zstd, fsst, none        codec of the values
    compression-level              integer                      of zstd
    rle-threshold                  number                       run-length encoding below this share of runs
    bss                            off, on, auto, 0 .. 1        byte stream split below general compression, if bytes at
                                                                one position have less than this share of full entropy
    dict-divisor                   integer > 0                  at most num_values / divisor distinct values
    dict-size-ratio                0 < number <= 1              dictionary only when smaller than this share
    dict-max-size                  bytes                        upper limit of the dictionary's values
    general                                                     no effect in any release: a warning says so
    dict-values-compression[-level]  lz4, zstd, none            dictionary values, file version 2.2
    minichunk-size                 bytes                        target size of chunks of variable-width values
    structural-encoding            miniblock, fullzip           layout; read from the top-level field

As in pylance, the keys count on the field that owns the column (the item field of a list), unknown names of codecs and
layouts are errors, and numbers that do not parse are ignored. Specification: structural encodings 2.1, section 9.
"""

from __future__ import annotations

import warnings
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from lance_io.errors import SchemaError
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.format.schema import Field

PREFIX: Final = "lance-encoding:"
COMPRESSIONS: Final = ("lz4", "zstd", "fsst", "none")
MINICHUNK_BYTES: Final = 4096  # a page of memory or flash: the least cost of a random read
DICTIONARY_DIVISOR: Final = 2
DICTIONARY_SIZE_RATIO: Final = 0.8
SPLIT_ENTROPY_MAX: Final = 4.0  # bits a byte; above, bytes look random at most positions and splitting gains nothing

Compression = Literal["lz4", "zstd", "fsst", "none"]


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """Options of one column; None lets the writer choose.

    compression_level  of zstd; None is zstd's own default
    split_entropy_max  byte stream split below this entropy, in bits per byte; 0 for never, infinite for always
    layout             "miniblock" or "fullzip"
    """

    compression: Compression | None = None
    compression_level: int | None = None
    rle_threshold: float | None = None
    split_entropy_max: float = SPLIT_ENTROPY_MAX
    dictionary_divisor: int = DICTIONARY_DIVISOR
    dictionary_size_ratio: float = DICTIONARY_SIZE_RATIO
    dictionary_max_bytes: int | None = None
    dictionary_compression: Literal["lz4", "zstd", "none"] | None = None
    dictionary_compression_level: int | None = None
    minichunk_bytes: int = MINICHUNK_BYTES
    layout: Literal["miniblock", "fullzip"] | None = None


DEFAULT_OPTIONS: Final = ColumnOptions()
"""The options of a column whose field sets none."""


def column_options(top: Field, leaf: Field) -> ColumnOptions:
    """The options of a column.

    top   the top-level field, which sets the layout
    leaf  the field that owns the column, which sets everything else
    Raises SchemaError for unknown names, and for a ratio outside of (0, 1].
    """
    if not (leaf.metadata or top.metadata):
        return DEFAULT_OPTIONS
    options = _MetadataReader(leaf)
    dictionary_compression = options.text("dict-values-compression")
    if dictionary_compression == "fsst":
        raise SchemaError("fsst is not usable as a general buffer compressor")
    _check_scheme(dictionary_compression)
    _check_scheme(compression := options.text("compression"))
    ratio = options.number("dict-size-ratio", float, DICTIONARY_SIZE_RATIO)
    if not 0 < ratio <= 1:
        raise SchemaError(f"Invalid parameter: dict-size-ratio is {ratio:g} which is not in the range (0, 1].")
    if options.text("general") is not None:
        warnings.warn(
            f"{PREFIX}general of the field {leaf.name} has no effect: {PREFIX}compression names the codec",
            UserWarning,
            stacklevel=2,
        )
    return ColumnOptions(
        compression=cast("Compression | None", compression),
        compression_level=options.number("compression-level", int, None),
        rle_threshold=options.number("rle-threshold", float, None),
        split_entropy_max=_split_entropy_max(options.text("bss")),
        dictionary_divisor=max(options.number("dict-divisor", int, DICTIONARY_DIVISOR), 1),
        dictionary_size_ratio=ratio,
        dictionary_max_bytes=_byte_count("dict-max-size", options.text("dict-max-size")),
        dictionary_compression=cast("Any", dictionary_compression),
        dictionary_compression_level=options.number("dict-values-compression-level", int, None),
        minichunk_bytes=max(options.number("minichunk-size", int, MINICHUNK_BYTES), 0),
        layout=_layout(_MetadataReader(top).text("structural-encoding"), top),
    )


def _split_entropy_max(mode: str | None) -> float:
    """The entropy limit of a mode, or of a sensitivity: the share of full entropy for bytes at one position."""
    if mode in ("off", "on"):
        return inf if mode == "on" else 0
    try:
        sensitivity = float(mode or "nan")
    except ValueError:
        return SPLIT_ENTROPY_MAX
    if isnan(sensitivity):
        return SPLIT_ENTROPY_MAX
    return inf if sensitivity >= 1 else 8 * max(sensitivity, 0)


def _byte_count(key: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise SchemaError(f"Invalid parameter: {key} is {text} which is not a byte count")
    return int(text)


def _check_scheme(name: str | None) -> None:
    if name is not None and name not in COMPRESSIONS:
        raise SchemaError(f"Unknown compression scheme: {name}; expected one of {', '.join(COMPRESSIONS)}")


def _layout(name: str | None, top: Field) -> Literal["miniblock", "fullzip"] | None:
    match None if name is None else name.lower():
        case None:
            return None
        case "miniblock":
            return "miniblock"
        case "fullzip":
            return "fullzip"
        case _:
            raise SchemaError(
                f"Cannot determine structural encoding for field {top.name}: {PREFIX}structural-encoding is {name!r}, "
                "expected 'miniblock' or 'fullzip'"
            )


class _MetadataReader:
    """Reads options from the metadata of one field."""

    def __init__(self, field: Field) -> None:
        self._metadata = field.metadata

    def text(self, key: str) -> str | None:
        raw = self._metadata.get(PREFIX + key)
        return None if raw is None else raw.decode("utf-8", "replace")

    def number(self, key: str, parse: Callable[[str], Any], default: Any) -> Any:
        text = self.text(key)
        try:
            return default if text is None else parse(text)
        except ValueError:
            return default
