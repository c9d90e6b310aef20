"""Pages of a listing by our own HTTP client, in the form in which botocore gives them.

Keys come percent-encoded: XML has no way to say some of the characters that they may hold. Where only plain names
matter they come as they are; should another one have made the answer no XML, it is asked for once more, encoded.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from lance_io.store.failures import Throttled, Transient
from lance_io.store.s3.error_codes import coded_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from xml.etree.ElementTree import Element

    from lance_io.store.http.gets import HttpGets

PLAIN_NAMES = "PlainNames"  # among the arguments of a listing; see `Selection`
_PARAMETERS = {
    "Prefix": "prefix",
    "StartAfter": "start-after",
    "Delimiter": "delimiter",
    "MaxKeys": "max-keys",
    "ContinuationToken": "continuation-token",
}


async def list_page(gets: HttpGets, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What `list_objects_v2` of botocore's client gives for these arguments, as far as it is used here.

    Raises our errors only; `Transient` where another attempt may help.
    """
    query, prefix = {"list-type": "2"}, arguments["Prefix"]
    for name, parameter in _PARAMETERS.items():
        if name in arguments:
            query[parameter] = str(arguments[name])
    if arguments.get(PLAIN_NAMES):
        found = await gets.ask(query, prefix, "list", partial(_plain_page, prefix=prefix))
        if found is not None:
            return found
    return await gets.ask({**query, "encoding-type": "url"}, prefix, "list", partial(parse_page, prefix=prefix))


def _plain_page(document: bytes, prefix: str) -> dict[str, Any] | None:
    """A page; None where it cannot be read: a name that is not plain, perhaps."""
    try:
        return parse_page(document, prefix)
    except Throttled:
        raise
    except Transient:
        return None


def parse_page(document: bytes, prefix: str) -> dict[str, Any]:
    """A page out of the document that a store answers with; `prefix` is for errors."""
    from xml.etree import ElementTree

    try:
        if b"<!DOCTYPE" in document:  # S3 sends none, and what they can define is a trap
            raise ValueError("a document type")
        root = ElementTree.fromstring(document)
        if _name(root) == "ListBucketResult":
            return _page(root)
        if _name(root) != "Error":
            raise ValueError(f"a document {_name(root)[:100]!r}")
    except (ElementTree.ParseError, ValueError, KeyError) as error:
        text = f"the answer is no listing ({type(error).__name__}: {error})"
        raise Transient(text, path=prefix, operation="list") from None
    found = {_name(child): child.text or "" for child in root}
    code, message = found.get("Code", ""), found.get("Message", "")
    raise coded_error(200, code, message, headers={}, key=prefix, operation="list")


def _page(root: Element) -> dict[str, Any]:
    page: dict[str, Any] = {"Contents": [], "CommonPrefixes": []}
    values = {_name(child): child.text or "" for child in root}
    decoded = unquote_plus if values.get("EncodingType") == "url" else str
    for child in root:
        kind = _name(child)
        if kind not in page:
            continue
        found = {_name(each): each.text or "" for each in child}
        if kind == "CommonPrefixes":
            page[kind].append({"Prefix": decoded(found["Prefix"])})
            continue
        entry: dict[str, Any] = {"Key": decoded(found["Key"]), "Size": int(found["Size"])}
        if "ETag" in found:
            entry["ETag"] = found["ETag"]
        if "LastModified" in found:
            entry["LastModified"] = datetime.fromisoformat(found["LastModified"])
        page[kind].append(entry)
    page["IsTruncated"] = values.get("IsTruncated") == "true"
    if page["IsTruncated"]:
        page["NextContinuationToken"] = values["NextContinuationToken"]
    return page


def _name(element: Element) -> str:
    """Without the namespace, which some services leave out."""
    return element.tag.rpartition("}")[2]
