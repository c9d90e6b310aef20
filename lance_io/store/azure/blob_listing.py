"""Pages of a blob listing, through our own HTTP client.

Azure percent-encodes names that XML cannot hold, and marks them. A listing cannot start after a given name: callers
read and drop the pages before it.
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

    next_marker  marker of the next page; None for the last page
    """

    entries: list[ObjectMeta]
    next_marker: str | None


async def query_page(
    gets: HttpGets, prefix: str, delimiter: str | None, marker: str | None, max_results: int
) -> BlobPage:
    """One page of the blobs below a prefix. Raises only our errors; `Transient` where a retry may help."""
    query = {"restype": "container", "comp": "list", "prefix": prefix, "maxresults": str(max_results)}
    if delimiter is not None:
        query["delimiter"] = delimiter
    if marker is not None:
        query["marker"] = marker
    return await gets.query(query, prefix, "list", partial(parse_blobs, prefix=prefix))


def parse_blobs(document: bytes, prefix: str) -> BlobPage:
    """Parse a page; `prefix` is for errors."""
    from xml.etree import ElementTree

    try:
        if b"<!DOCTYPE" in document:  # Azure sends none, and entity definitions are a risk
            raise ValueError("it declares a document type")
        root = ElementTree.fromstring(document)
        blobs = root.find("Blobs")
        if root.tag != "EnumerationResults" or blobs is None:
            raise ValueError(f"expected EnumerationResults with Blobs, found the root element {root.tag[:100]!r}")
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
    properties = {element.tag: element.text or "" for element in blob.find("Properties") or ()}
    etag = properties.get("Etag")
    modified = parse_date(properties.get("Last-Modified", ""))
    return ObjectMeta(key, int(properties["Content-Length"]), etag and quote_etag(etag), modified)


def _is_folder(blob: Element) -> bool:
    """Whether it is a folder entry, which accounts with a hierarchical namespace list besides blobs."""
    return blob.tag == "Blob" and blob.findtext("Properties/ResourceType") == "directory"


def quote_etag(etag: str) -> str:
    """An etag in the form of headers: listings omit the quotes."""
    return etag if etag.startswith('"') else f'"{etag}"'
