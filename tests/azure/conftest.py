"""Tests of buckets, in a container of Azurite: the server and the place that they are given are these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.s3.proxy import CountingProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import AzureServer


@pytest.fixture(scope="session")
def s3(azure: AzureServer) -> AzureServer:
    """See `azure`."""
    return azure


@pytest.fixture
def s3_uri(azure: AzureServer, s3_prefix: str) -> str:
    """The URI of a fresh place; go with `s3.options()`."""
    return f"az://{azure.container}/{s3_prefix}"


@pytest.fixture
def proxy(azure: AzureServer) -> Iterator[CountingProxy]:
    """Counts what passes to the server; use `s3.through(proxy.endpoint)`."""
    with CountingProxy(azure.endpoint) as counting:
        yield counting
