"""`storage_metadata` of an index file: JSON that is checked before it is used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

_JSON_BYTES_MAX: Final = 1 << 20


def storage_of(text: str | None) -> Mapping[str, Any]:
    """`storage_metadata`: a JSON list with the text of a JSON object. Raises `FormatError`."""
    listed = parse_json(text, "storage_metadata")
    if not (isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str)):
        raise FormatError("storage_metadata: expected a JSON list of one text")
    about = parse_json(listed[0], "storage_metadata")
    if not isinstance(about, dict):
        raise FormatError("storage_metadata: expected the text of a JSON object")
    return about


def parse_json(text: str | None, key: str) -> Any:
    """A JSON text of the metadata. Raises `FormatError`."""
    if text is None or len(text) > _JSON_BYTES_MAX:
        raise FormatError(f"{key}: expected JSON in the metadata, found {'none' if text is None else 'too much of it'}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{key}: expected JSON in the metadata, found {text[:40]!r}") from error


def whole(about: Mapping[str, Any], key: str, least: int, most: int) -> int:
    """A whole number of `storage_metadata`. Raises `FormatError`."""
    value = about.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FormatError(f"storage_metadata: expected {key} from {least} to {most}, found {str(value)[:40]}")
    return value
