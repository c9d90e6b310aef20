"""A proxy in front of the session's MinIO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.s3.proxy import CountingProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import S3Server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[CountingProxy]:
    """Counts what passes to the server; use `s3.options(aws_endpoint=proxy.endpoint)`."""
    with CountingProxy(s3.endpoint) as counting:
        yield counting
