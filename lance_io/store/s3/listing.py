"""Pages of a listing through our own HTTP client, in botocore's format.

Keys are requested percent-encoded, because XML cannot hold some of their characters. If the caller needs only names of
printable characters (`Selection.plain_names`), the page is requested unencoded. If another name then makes the XML
invalid, the page is requested again, encoded.
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

PLAIN_NAMES = "PlainNames"  # argument of `list_page` for `Selection.plain_names`; botocore has none
_PARAMETERS = {
    "Prefix": "prefix",
    "StartAfter": "start-after",
    "Delimiter": "delimiter",
    "MaxKeys": "max-keys",
    "ContinuationToken": "continuation-token",
}


async def list_page(gets: HttpGets, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of botocore's `list_objects_v2` result that we use, for the same arguments.

    Raises only our errors; `Transient` where a retry may help.
    """
    query, prefix = {"list-type": "2"}, arguments["Prefix"]
    for name, parameter in _PARAMETERS.items():
        if name in arguments:
            query[parameter] = str(arguments[name])
    if arguments.get(PLAIN_NAMES):
        page = await gets.query(query, prefix, "list", partial(_plain_page, prefix=prefix))
        if page is not None:
            return page
    return await gets.query({**query, "encoding-type": "url"}, prefix, "list", partial(parse_page, prefix=prefix))


def _plain_page(document: bytes, prefix: str) -> dict[str, Any] | None:
    """Parse an unencoded page; None if it is invalid, perhaps because of a name that is not plain."""
    try:
        return parse_page(document, prefix)
    except Throttled:
        raise
    except Transient:
        return None


def parse_page(document: bytes, prefix: str) -> dict[str, Any]:
    """Parse a page; `prefix` is for errors."""
    from xml.etree import ElementTree

    try:
        if b"<!DOCTYPE" in document:  # S3 sends none, and entity definitions are a risk
            raise ValueError("it declares a document type")
        root = ElementTree.fromstring(document)
        if _name(root) == "ListBucketResult":
            return _page(root)
        if _name(root) != "Error":
            raise ValueError(f"expected ListBucketResult, found the root element {_name(root)[:100]!r}")
    except (ElementTree.ParseError, ValueError, KeyError) as error:
        text = f"the answer is no listing ({type(error).__name__}: {error})"
        raise Transient(text, path=prefix, operation="list") from None
    fields = {_name(child): child.text or "" for child in root}
    code, message = fields.get("Code", ""), fields.get("Message", "")
    raise coded_error(200, code, message, headers={}, key=prefix, operation="list")


def _page(root: Element) -> dict[str, Any]:
    page: dict[str, Any] = {"Contents": [], "CommonPrefixes": []}
    values = {_name(child): child.text or "" for child in root}
    decode = unquote_plus if values.get("EncodingType") == "url" else str
    for child in root:
        kind = _name(child)
        if kind not in page:
            continue
        fields = {_name(element): element.text or "" for element in child}
        if kind == "CommonPrefixes":
            page[kind].append({"Prefix": decode(fields["Prefix"])})
            continue
        entry: dict[str, Any] = {"Key": decode(fields["Key"]), "Size": int(fields["Size"])}
        if "ETag" in fields:
            entry["ETag"] = fields["ETag"]
        if "LastModified" in fields:
            entry["LastModified"] = datetime.fromisoformat(fields["LastModified"])
        page[kind].append(entry)
    page["IsTruncated"] = values.get("IsTruncated") == "true"
    if page["IsTruncated"]:
        page["NextContinuationToken"] = values["NextContinuationToken"]
    return page


def _name(element: Element) -> str:
    """Tag without the namespace, which some services omit."""
    return element.tag.rpartition("}")[2]
