"""Arrow types as text, as in pylance's errors of schema changes: Rust's `{:?}`. Pure.

    Int32   Utf8   Timestamp(Microsecond, Some("UTC"))   List(Field { data_type: Int64, nullable: true })

Filters use other names: `filters/functions/arrow_types.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.types as pt

from lance_io.filters.functions.arrow_types import type_name
from lance_io.reads.metadata.debug_text import write_debug

if TYPE_CHECKING:
    import pyarrow as pa

_UNITS: Final = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def debug_type(t: pa.DataType) -> str:
    """The text of a type; an extension type has the text of its storage type."""
    t = getattr(t, "storage_type", t)
    if pt.is_timestamp(t):
        return f"Timestamp({_UNITS[t.unit]}, {f'Some({_quoted(t.tz)})' if t.tz else 'None'})"
    if pt.is_time(t):
        return f"Time{t.bit_width}({_UNITS[t.unit]})"
    if pt.is_duration(t):
        return f"Duration({_UNITS[t.unit]})"
    if pt.is_dictionary(t):
        return f"Dictionary({debug_type(t.index_type)}, {debug_type(t.value_type)})"
    return _nested(t) or type_name(t)


def _nested(t: pa.DataType) -> str | None:
    if pt.is_fixed_size_list(t):
        return f"FixedSizeList({_field(t.value_field)}, {t.list_size})"
    for is_kind, name in (
        (pt.is_list, "List"),
        (pt.is_large_list, "LargeList"),
        (pt.is_list_view, "ListView"),
        (pt.is_large_list_view, "LargeListView"),
    ):
        if is_kind(t):
            return f"{name}({_field(t.value_field)})"
    if pt.is_struct(t):
        return f"Struct([{', '.join(_field(field) for field in t)}])"
    if pt.is_map(t):
        entries = f"Struct([{_field(t.key_field)}, {_field(t.item_field)}])"
        return f'Map(Field {{ name: "entries", data_type: {entries} }}, {str(t.keys_sorted).lower()})'
    return None


def _field(field: pa.Field[Any]) -> str:
    """The text of a field, without defaults: the name `item`, not nullable, no metadata."""
    parts = [] if field.name == "item" else [f"name: {_quoted(field.name)}"]
    parts.append(f"data_type: {debug_type(field.type)}")
    if field.nullable:
        parts.append("nullable: true")
    if field.metadata:
        shown = (f"{_quoted(key.decode())}: {_quoted(value.decode())}" for key, value in field.metadata.items())
        parts.append(f"metadata: {{{', '.join(shown)}}}")
    return f"Field {{ {', '.join(parts)} }}"


def _quoted(text: str) -> str:
    return write_debug(text, pretty=False)
