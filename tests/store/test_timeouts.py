"""Which storage option bounds what: a request, the silence within it; in all three stores, and for reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lance_io.store.azure.container import open_azure
from lance_io.store.azure.container_options import parse_azure
from lance_io.store.failures import Transient
from lance_io.store.gcs.gcs_options import parse_gcs
from lance_io.store.gcs.gcs_store import open_gcs
from lance_io.store.s3.bucket import open_s3
from lance_io.store.s3.bucket_options import parse_s3
from tests.http_faults import FaultServer, stall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.store.cloud.client_options import ClientOptions

ACCOUNT = {"account_name": "account", "skip_signature": "true"}
PARSED: list[Callable[[dict[str, str]], ClientOptions]] = [
    lambda options: parse_s3("bucket", options, {}),
    lambda options: parse_gcs("bucket", options, {}),
    lambda options: parse_azure("box", {**ACCOUNT, **options}, {}),
]


@pytest.mark.parametrize("parsed", PARSED, ids=["s3", "gcs", "azure"])
def test_what_stands_before_what(parsed: Callable[[dict[str, str]], ClientOptions]) -> None:
    def found(**options: str) -> tuple[float, float, float]:
        one = parsed(options)
        return one.request_timeout_s, one.stall_s, one.silence_s

    assert found() == (30, 10, 30)
    assert found(request_timeout="5s") == (5, 5, 5)
    assert found(request_timeout="5s", timeout="3 minutes") == (180, 10, 180)
    assert found(read_timeout="20s") == (30, 20, 20)
    assert found(read_timeout="2m", timeout="1m") == (60, 60, 60)


def _stores(endpoint: str, options: dict[str, str]) -> dict[str, Any]:
    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret"}
    s3 = {"aws_endpoint": endpoint, "aws_region": "us-east-1", **keys}
    gcs = {"google_base_url": endpoint, "google_skip_signature": "true"}
    azure = {**ACCOUNT, "azure_endpoint": f"{endpoint}/account"}
    return {
        "s3": open_s3("bucket", {**s3, **options}),
        "s3 by aiobotocore": open_s3("bucket", {**s3, **options, "s3_express": "true"}),
        "gcs": open_gcs("bucket", {**gcs, **options}),
        "azure": open_azure("box", {**azure, **options}),
    }


@pytest.mark.parametrize("short", ["timeout", "request_timeout", "read_timeout"])
@pytest.mark.parametrize("name", ["s3", "s3 by aiobotocore", "gcs", "azure"])
async def test_a_store_that_is_silent_is_given_up(name: str, short: str) -> None:
    """Whichever of the three is short: the others are an hour, which no test waits for."""
    long = {"timeout": "1h", "read_timeout": "1h"} if short != "request_timeout" else {"read_timeout": "1h"}
    options = {"allow_http": "true", "client_max_retries": "0", **long, short: "150ms"}
    async with FaultServer(bytes(1000), [stall] * 10) as server:
        store = _stores(server.endpoint, options)[name]
        works: list[Awaitable[object]] = [store.get_range("key", 0, 100), store.put("key", b"1")]
        for work in works:
            with pytest.raises(Transient):
                await work
        await store.aclose()
