"""S3 as versitygw has it: tables beside pylance, what they cost, writers, and every change through faults."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, ClassVar

import lance
import pytest

import lance_io
from tests.s3.proxy import CountingProxy
from tests.s3.test_requests import FRAGMENTS, compare, part
from tests.store.table_conformance import TableConformance

if TYPE_CHECKING:
    from tests.servers import S3Server, TableServer


@pytest.fixture
def uri(versity: S3Server) -> str:
    """A fresh place."""
    return f"s3://{versity.bucket}/test-{uuid.uuid4().hex}"


def test_reading_costs_what_it_costs_on_minio(versity: S3Server, uri: str) -> None:
    with CountingProxy(versity.endpoint) as proxy:
        spent = compare([part(number) for number in range(FRAGMENTS)], "2.1", uri, versity, proxy)
    assert (spent["open"], spent["count"]) == (2, 0)


class TestVersity(TableConformance):
    TITLE: ClassVar = "S3: versitygw"

    @pytest.fixture
    def server(self, versity: S3Server) -> TableServer:
        return versity


def test_pylance_goes_on_where_we_were(versity: S3Server, uri: str) -> None:
    rows, options = part(0), versity.options()
    how: dict[str, Any] = {"storage_options": options, "mode": "append"}
    lance_io.write_dataset(rows, uri, **how)
    lance.write_dataset(part(1), uri, **how)
    lance_io.write_dataset(part(2), uri, **how)
    assert (
        lance_io.dataset(uri, storage_options=options).to_table()
        == lance.dataset(uri, storage_options=options).to_table()
    )
