"""Objects of the JSON API, from single documents and listings."""

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
    """Metadata of a written object, from the answer."""
    generation = document(answer, key, operation).get("generation")
    return ObjectMeta(key, size_bytes, None if generation is None else str(generation))


def session_of(answer: Answer, key: str) -> str:
    """The URL of a started upload, which is a secret. Raises `Transient` if it is missing."""
    url = answer.headers.get("location")
    if not url:
        with answered_with(answer.headers):
            raise Transient("the answer names no upload", path=key, operation="part")
    return url


def ignore_answer(answer: Answer) -> None:
    """Parse an answer whose body is irrelevant."""


def document(answer: Answer, key: str, operation: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises `Transient` if it is none."""
    with answered_with(answer.headers):
        return parse(answer.body, key, operation)


def parse(body: bytes, key: str, operation: str) -> dict[str, Any]:
    """The JSON object of a body. Raises `Transient` if it is none."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Transient("the answer is no JSON object", path=key, operation=operation)
    return content


def meta_of(resource: Mapping[str, Any], key: str, operation: str) -> ObjectMeta:
    """Metadata from an object resource. Raises `Transient` for an invalid one."""
    try:
        updated = resource.get("updated")
        generation = resource.get("generation")
        return ObjectMeta(
            key,
            int(resource["size"]),
            None if generation is None else str(generation),
            None if updated is None else datetime.fromisoformat(updated),
        )
    except (KeyError, ValueError, TypeError) as error:
        text = f"the answer describes no object ({type(error).__name__}: {error})"
        raise Transient(text, path=key, operation=operation) from None


def page_of(document: bytes, prefix: str) -> tuple[list[ObjectMeta], str]:
    """Entries of a page and the token of the next one, empty after the last. Raises `Transient` for an invalid page."""
    page = parse(document, prefix, "list")
    return entries_of(page, prefix), str(page.get("nextPageToken") or "")


def entries_of(page: Mapping[str, Any], prefix: str) -> list[ObjectMeta]:
    """Objects and folders of a page, in key order."""
    try:
        entries = [meta_of(resource, str(resource["name"]), "list") for resource in page.get("items", ())]
        entries += [ObjectMeta(str(name), 0) for name in page.get("prefixes", ())]
    except (KeyError, TypeError, AttributeError) as error:
        text = f"the answer is no listing ({type(error).__name__}: {error})"
        raise Transient(text, path=prefix, operation="list") from None
    entries.sort(key=lambda entry: entry.key)
    return entries
