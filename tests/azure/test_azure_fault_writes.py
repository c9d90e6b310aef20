"""Writes through a proxy before Azurite that cuts, delays and resets connections, as those to a bucket are."""

from __future__ import annotations

from tests.s3.test_fault_writes import (
    faulty,
    test_appends_end_well_or_clearly,
    test_every_change_is_made_once,
    test_every_transaction_goes_at_last,
)

__all__ = [
    "faulty",
    "test_appends_end_well_or_clearly",
    "test_every_change_is_made_once",
    "test_every_transaction_goes_at_last",
]
