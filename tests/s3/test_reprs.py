"""Nothing that an open table consists of shows credentials: debuggers, logs and tracebacks print any of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lance_io
from lance_io.reads.open_version import open_options

if TYPE_CHECKING:
    from tests.servers import S3Server

NOT_OURS = (str, bytes, int, float, type, pa.Table, pa.RecordBatch, pa.Array, pa.Schema, pa.DataType)


def parts_of(found: Any) -> list[Any]:
    """What an object of ours, or a container, refers to."""
    if isinstance(found, dict):
        return [*found.values()]
    if isinstance(found, (list, tuple, set, frozenset, deque)):
        return [*found]
    if not type(found).__module__.startswith("lance_io"):
        return []
    names = [name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())]
    given = {name: getattr(found, name) for name in names if name != "__weakref__" and hasattr(found, name)}
    return [*given.values(), *getattr(found, "__dict__", {}).values()]


def reached_from(start: Any) -> list[Any]:
    """All objects of ours below one."""
    seen, ours, left = set(), [], deque([start])
    while left:
        found = left.popleft()
        if id(found) in seen or isinstance(found, NOT_OURS):
            continue
        seen.add(id(found))
        if type(found).__module__.startswith("lance_io"):
            ours.append(found)
        left.extend(parts_of(found))
    return ours


def test_no_part_of_an_open_table_shows_credentials(s3: S3Server, s3_uri: str) -> None:
    options = s3.options()
    secret = options["aws_secret_access_key"]
    lance_io.write_dataset(pa.table({"a": range(100)}), s3_uri, storage_options=options)
    table = lance_io.dataset(s3_uri, storage_options=options)
    assert table.take([7])["a"].to_pylist() == [7]
    assert table.to_table(filter="a > 90").num_rows == 9
    how = {"storage_options": options, "base_store_params": {"s3://other/base": options}}
    found = [*reached_from(table), *reached_from(open_options(s3_uri, **how))]
    kinds = {type(one).__name__ for one in found}
    assert {
        "DatasetState",
        "OpenOptions",
        "ObjectKeys",
        "Session",
        "S3Store",
        "S3Options",
        "LoopState",
        "Signer",
    } <= kinds, kinds
    shown = {type(one).__name__ for one in found if secret in repr(one)}
    assert shown == set()
