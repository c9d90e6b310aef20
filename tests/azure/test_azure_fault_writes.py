"""Writes through a proxy before Azurite that cuts, delays and resets connections, as those to a bucket are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.s3.test_fault_writes import faulty, test_appends_end_well_or_clearly, test_every_transaction_goes_at_last
from tests.store.table_conformance import TableConformance

if TYPE_CHECKING:
    from tests.servers import AzureServer, TableServer

__all__ = ["faulty", "test_appends_end_well_or_clearly", "test_every_transaction_goes_at_last"]


class TestAzure(TableConformance):
    TITLE: ClassVar = "Azure: Azurite"

    @pytest.fixture
    def server(self, azure: AzureServer) -> TableServer:
        return azure
