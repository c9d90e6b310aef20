"""Many writers in several processes that share nothing but a container, ours and pylance's, lose nothing by faults."""

from __future__ import annotations

from tests.s3.test_writers import test_nor_do_they_through_faults

__all__ = ["test_nor_do_they_through_faults"]
