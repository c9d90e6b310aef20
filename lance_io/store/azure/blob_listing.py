"""Pages of a listing of blobs by our own HTTP client.

Names that no XML can say come percent-encoded, and say so. There is no way to begin behind a name: whoever asks for
that gets the pages before it, too, and drops what is in them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from lance_io.store.api import ObjectMeta
from lance_io.store.failures import Transient
from lance_io.store.policies.download import parse_date

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from lance_io.store.http.gets import HttpGets


class BlobPage(NamedTuple):
    """A page, in the order of the answer.

    next_marker  where the next one begins; None: this is the last
    """

    entries: list[ObjectMeta]
    next_marker: str | None


async def ask_for_page(
    gets: HttpGets, prefix: str, delimiter: str | None, marker: str | None, max_results: int
) -> BlobPage:
    """One page of what lies below a prefix. Raises our errors only; `Transient` where another attempt may help."""
    query = {"restype": "container", "comp": "list", "prefix": prefix, "maxresults": str(max_results)}
    if delimiter is not None:
        query["delimiter"] = delimiter
    if marker is not None:
        query["marker"] = marker
    return await gets.ask(query, prefix, "list", partial(parse_blobs, prefix=prefix))


def parse_blobs(document: bytes, prefix: str) -> BlobPage:
    """A page out of the document that a store answers with; `prefix` is for errors."""
    from xml.etree import ElementTree

    try:
        if b"<!DOCTYPE" in document:  # Azure sends none, and what they can define is a trap
            raise ValueError("a document type")
        root = ElementTree.fromstring(document)
        blobs = root.find("Blobs")
        if root.tag != "EnumerationResults" or blobs is None:
            raise ValueError(f"a document {root.tag[:100]!r}")
        entries = [_entry(blob) for blob in blobs if not _is_folder(blob)]
    except (ElementTree.ParseError, ValueError, KeyError, TypeError) as error:
        text = f"the answer is no listing ({type(error).__name__}: {error})"
        raise Transient(text, path=prefix, operation="list") from None
    return BlobPage(entries, root.findtext("NextMarker") or None)


def _entry(blob: Element) -> ObjectMeta:
    name = blob.find("Name")
    if name is None or not name.text:
        raise ValueError("an entry without a name")
    key = unquote(name.text) if name.get("Encoded") == "true" else name.text
    if blob.tag == "BlobPrefix":
        return ObjectMeta(key, 0)
    said = {one.tag: one.text or "" for one in blob.find("Properties") or ()}
    etag = said.get("Etag")
    modified = parse_date(said.get("Last-Modified", ""))
    return ObjectMeta(key, int(said["Content-Length"]), etag and quote_etag(etag), modified)


def _is_folder(blob: Element) -> bool:
    """Whether it is an entry for a folder, which accounts with a hierarchy have beside the blobs in it."""
    return blob.tag == "Blob" and blob.findtext("Properties/ResourceType") == "directory"


def quote_etag(etag: str) -> str:
    """An etag as headers have it: listings leave out the quotes."""
    return etag if etag.startswith('"') else f'"{etag}"'
