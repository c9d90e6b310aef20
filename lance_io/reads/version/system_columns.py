"""System columns, which every table has without storing them (specification: table, section 5).

_rowid                          row address, or stable row id
_rowaddr                        fragment id << 32 | offset
_rowoffset                      position among the live rows of the table
_row_created_at_version         version that inserted the row (1 without stable row ids)
_row_last_updated_at_version    version that last changed it (1 without stable row ids)
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ROW_ID: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
ROW_OFFSET: Final = "_rowoffset"
CREATED_AT: Final = "_row_created_at_version"
UPDATED_AT: Final = "_row_last_updated_at_version"

SYSTEM_COLUMNS: Final = (ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT)


def system_field(name: str) -> pa.Field:
    """Arrow field of a system column: nullable uint64."""
    return pa.field(name, pa.uint64())
