"""Objects as the JSON API describes them, in one document or in a listing."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lance_io.store.api import ObjectMeta
from lance_io.store.failures import Transient, answered_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.store.gcs.json_client import Answer

FIELDS: Final = "name,size,generation,updated"
OCTETS: Final = {"Content-Type": "application/octet-stream"}


def written(answer: Answer, key: str, operation: str, size_bytes: int) -> ObjectMeta:
    """What an object is that was just written, by the answer."""
    generation = document(answer, key, operation).get("generation")
    return ObjectMeta(key, size_bytes, None if generation is None else str(generation))


def session_of(answer: Answer, key: str) -> str:
    """The URL of an upload that was begun, which is a secret. Raises `Transient` where there is none."""
    found = answer.headers.get("location")
    if not found:
        with answered_with(answer.headers):
            raise Transient("the answer names no upload", path=key, operation="part")
    return found


def nothing(answer: Answer) -> None:
    """What an answer says that needs to say nothing."""


def document(answer: Answer, key: str, operation: str) -> dict[str, Any]:
    """What an answer says. Raises `Transient` for what is no JSON object."""
    with answered_with(answer.headers):
        return parse(answer.body, key, operation)


def parse(body: bytes, key: str, operation: str) -> dict[str, Any]:
    """The same of a body."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Transient("the answer is no JSON object", path=key, operation=operation)
    return found


def meta_of(found: Mapping[str, Any], key: str, operation: str) -> ObjectMeta:
    """An object as the JSON API describes it. Raises `Transient` for what is none."""
    try:
        updated = found.get("updated")
        generation = found.get("generation")
        return ObjectMeta(
            key,
            int(found["size"]),
            None if generation is None else str(generation),
            None if updated is None else datetime.fromisoformat(updated),
        )
    except (KeyError, ValueError, TypeError) as error:
        text = f"the answer describes no object ({type(error).__name__}: {error})"
        raise Transient(text, path=key, operation=operation) from None


def page_of(document: bytes, prefix: str) -> tuple[list[ObjectMeta], str]:
    """The entries of a page, and what the next one is asked for with, empty after the last. Raises `Transient`."""
    page = parse(document, prefix, "list")
    return entries_of(page, prefix), str(page.get("nextPageToken") or "")


def entries_of(page: Mapping[str, Any], prefix: str) -> list[ObjectMeta]:
    """Objects and folders of a page in key order."""
    try:
        entries = [meta_of(found, str(found["name"]), "list") for found in page.get("items", ())]
        entries += [ObjectMeta(str(name), 0) for name in page.get("prefixes", ())]
    except (KeyError, TypeError, AttributeError) as error:
        text = f"the answer is no listing ({type(error).__name__}: {error})"
        raise Transient(text, path=prefix, operation="list") from None
    entries.sort(key=lambda entry: entry.key)
    return entries
