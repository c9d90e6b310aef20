"""What tables in Azure cost in requests and bytes: what they do on S3, and never more than pylance's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.s3.test_requests import FRAGMENTS, NAMES, compare, part, unlimited_rates, wide_part

if TYPE_CHECKING:
    from tests.s3.proxy import CountingProxy
    from tests.servers import AzureServer

__all__ = ["unlimited_rates"]  # a fixture


@pytest.mark.parametrize(
    ("make", "requests"),
    [(part, (2, 0, 14, 6, 6, 3, 2, 2, 11, 2, 4, 2, 3)), (wide_part, (2, 0, 24, 10, 12, 6, 2, 2, 16, 2, 4, 2, 3))],
    ids=["three columns", "seven columns"],
)
def test_reads(make: Any, requests: tuple[int, ...], s3: AzureServer, s3_uri: str, proxy: CountingProxy) -> None:
    ours = compare([make(number) for number in range(FRAGMENTS)], "2.2", s3_uri, s3, proxy)
    assert ours == dict(zip(NAMES, requests, strict=True))


def test_writes(s3: AzureServer, s3_uri: str, proxy: CountingProxy) -> None:
    table, options = pa.table({"a": range(100), "s": ["x"] * 100}), s3.through(proxy.endpoint)
    found: dict[str, list[list[str]]] = {"ours": [], "theirs": []}
    for name, library in (("ours", lance_io), ("theirs", lance)):
        for uri in (f"{s3_uri}/probed-{name}", f"{s3_uri}/{name}"):  # a bucket is tried once
            proxy.take()
            for mode in ("create", "append", "append"):
                library.write_dataset(table, uri, mode=mode, storage_options=options)
            opened = library.dataset(uri, storage_options=options)
            opened.delete("a < 10")
            spent = proxy.take()
            assert opened.count_rows() == 270
        found[name] = [line.split()[0] for line in spent.lines]
    for method in ("GET", "PUT", "HEAD", "DELETE"):
        assert found["ours"].count(method) <= found["theirs"].count(method), method
