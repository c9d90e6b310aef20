"""Every fault x operation on a table in Google Cloud Storage: see `tests/s3/test_faults.py`."""

from __future__ import annotations

import pytest

from tests.bucket import Bucket, GoogleBucket
from tests.s3.test_faults import objects, test_every_fault


@pytest.fixture
def kind() -> type[Bucket]:
    """Of the bucket."""
    return GoogleBucket


__all__ = ["kind", "objects", "test_every_fault"]
