"""Namespaces of a catalog: folders of tables in its folder, with properties that SQL sets.

The catalog's own folder is the namespace `default`, of which the JVM asks nothing but the folders in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset import distributed
from lance_io.spark.engine import table_place
from lance_io.spark.options import parse_options
from lance_io.spark.worker.writing.table_properties import LOCATION, check_location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.dataset.distributed import TableFolder

Request = dict[str, Any]

_SHOWN_MAX: Final = 10  # names of what keeps a namespace


def _folder(request: Request) -> TableFolder:
    return distributed.TableFolder(table_place(parse_options(request["options"], "read")))


def list_namespaces(request: Request) -> Request:
    """Names of the namespaces directly in one."""
    return {"names": _folder(request).folders()}


def describe_namespace(request: Request) -> Request:
    """Whether there is a namespace, and its properties."""
    properties = _folder(request).properties()
    return {"exists": properties is not None, "properties": properties or {}}


def create_namespace(request: Request) -> Request:
    """Create a namespace; says whether there was none."""
    folder = _folder(request)
    if folder.properties() is not None:
        return {"done": False}
    folder.write(_kept(request))
    return {"done": True}


def alter_namespace(request: Request) -> Request:
    """Set and remove properties of a namespace."""
    folder = _folder(request)
    changed = {**(folder.properties() or {}), **_kept(request)}
    folder.write({key: text for key, text in changed.items() if key not in request["removed"]})
    return {}


def drop_namespace(request: Request) -> Request:
    """Drop a namespace, with `cascade` also its tables; else it has gone only if nothing was left in it."""
    return {"left": _folder(request).drop(with_tables=request["cascade"])[:_SHOWN_MAX]}


def _kept(request: Request) -> Mapping[str, str]:
    """The properties without the place, which follows from the name. Raises `UsageError` for another place."""
    properties: dict[str, str] = dict(request["properties"])
    check_location(properties.pop(LOCATION, None), request["options"]["path"])
    return properties
