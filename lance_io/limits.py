"""Limits and defaults that several rooms share or that users can change, with unit, reason and environment variable.

A number that concerns one module is defined there, with its reason; numbers of a store are in its profile
(`store/profile.py`).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final, TypeVar

from lance_io.errors import UsageError

T = TypeVar("T")

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

# -- opening files ---------------------------------------------------------------------------------------------
TAIL_BYTES_LOCAL: Final = 16 * KIB  # a pread of 16 KiB costs as much as one of 4 KiB; schema and columns often fit
TAIL_BYTES_CLOUD: Final = 64 * KIB  # below about 100 KB an object store's latency does not depend on the size
TAIL_BYTES_CLOUD_MAX: Final = 1 * MIB  # for large files: takes about as long as another request
METADATA_BYTES_MAX: Final = 512 * MIB  # footer tables and column metadata of one file; more is damage, not data
WHOLE_FILE_BYTES_LOCAL: Final = 64 * KIB
WHOLE_FILE_BYTES_CLOUD: Final = 256 * KIB

# -- search cache ----------------------------------------------------------------------------------------------
METADATA_CACHE_BYTES: Final = 256 * MIB
INDEX_CACHE_BYTES: Final = 512 * MIB  # pylance: 6 GiB. A search of vectors that are not in memory copies them twice
REPETITION_INDEX_KEPT_BYTES_MAX: Final = 1 * MIB  # larger ones are read by entry and not kept

# -- disk cache ------------------------------------------------------------------------------------------------
DISK_CACHE_BYTES: Final = 4096 * MIB  # on disk, index included; LANCE_IO_DISK_CACHE_BYTES overrides it

# -- commits ---------------------------------------------------------------------------------------------------
COMMIT_TIMEOUT: Final = timedelta(minutes=30)  # pylance's default for prepared operations

# -- scans -----------------------------------------------------------------------------------------------------
BATCH_ROWS: Final = 8192  # pylance's default
BATCH_BYTES: Final = 64 * MIB  # of the values of a batch, if the caller sets neither rows nor bytes
IO_BUFFER_BYTES: Final = 80 * MIB  # read but not yet consumed, per scan: a process stays below 512 MiB
IO_BUFFER_PROCESS_BYTES: Final = 1024 * MIB
SCAN_GROUP_BYTES: Final = 1 * MIB  # small pages of one file are read and decoded together up to this size
SCAN_SIBLINGS_BYTES: Final = 64 * MIB  # the same for leaves of structs in lists
SCAN_JOB_BYTES: Final = 4 * MIB  # the same if no other thread could take a part
SCAN_FILES_BYTES: Final = 320 * KIB  # consecutive small files are read and decoded in one job up to this size
SCAN_JOB_ROWS: Final = 128 * KIB  # and up to this number of rows: few bytes may decode to many
SCAN_PIECE_BYTES: Final = 8 * MIB  # unit of read + decode; also the largest physical scan read on local disk
SCAN_DECODED_BYTES: Final = 32 * MIB  # a job decodes at most this much at once
SCAN_BOUND_BYTES: Final = 96 * MIB  # a page is still decoded at once if its metadata bound its decoded size by this
SCAN_PART_BYTES: Final = 16 * MIB  # larger pages are decoded on demand in parts of this size, constants included
SCAN_AHEAD_BYTES: Final = 64 * MIB  # decoded ahead of need, or being decoded, by one scan
SCAN_GROWTH: Final = 64  # assumed ratio of decoded to stored bytes of a page, if its metadata do not bound it
SCAN_PIECE_BYTES_MIN: Final = 64 * KIB  # when the process holds as much as it may

# -- takes -----------------------------------------------------------------------------------------------------
TAKE_FILES_AT_ONCE: Final = 512  # files of one take that are read concurrently: as many as a store takes requests

# -- writing files of version 0.1 ------------------------------------------------------------------------------
ROWS_PER_BATCH: Final = 1024  # pylance's default

# -- cleaning up -----------------------------------------------------------------------------------------------
CLEANUP_FILES_SHOWN: Final = 1000  # maximum number of files that an explanation lists

# -- decoding hostile input ------------------------------------------------------------------------------------
VALUE_BYTES_MAX: Final = 2 * GIB  # maximum decoded size of a value; `max_decoded_bytes` overrides it
PAGE_ROWS_MAX: Final = 1 << 32  # spec: file container, section 4


def from_environment(variable: str, default: T, *, least: int = 1) -> int | T:
    """The whole number in an environment variable, or `default` if it is not set. Raises `UsageError` otherwise."""
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise UsageError(
            f"environment variable {variable}: expected a whole number of at least {least}, found {text!r}"
        )
    return int(text)
