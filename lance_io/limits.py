"""Defaults that several rooms share or that users may change: value, unit, reason, and how the environment changes it.

A number that concerns one module stands there, with its reason; those of a store are in its profile
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
TAIL_BYTES_LOCAL: Final = 16 * KIB  # a pread of 16 KiB costs what one of 4 KiB costs; schema and columns often fit
TAIL_BYTES_CLOUD: Final = 64 * KIB  # below about 100 KB an object store's latency does not depend on the size
TAIL_BYTES_CLOUD_MAX: Final = 1 * MIB  # of large files: about as long as one more request would take
METADATA_BYTES_MAX: Final = 512 * MIB  # footer tables and column metadata of one file; more is damage, not data
WHOLE_FILE_BYTES_LOCAL: Final = 64 * KIB
WHOLE_FILE_BYTES_CLOUD: Final = 256 * KIB

# -- search cache ----------------------------------------------------------------------------------------------
METADATA_CACHE_BYTES: Final = 256 * MIB
REPETITION_INDEX_KEPT_BYTES_MAX: Final = 1 * MIB  # larger ones are read by entry and not kept

# -- disk cache ------------------------------------------------------------------------------------------------
DISK_CACHE_BYTES: Final = 4096 * MIB  # on disk, index included; LANCE_IO_DISK_CACHE_BYTES says another

# -- commits ---------------------------------------------------------------------------------------------------
COMMIT_TIMEOUT: Final = timedelta(minutes=30)  # pylance's default for prepared operations

# -- scans -----------------------------------------------------------------------------------------------------
BATCH_ROWS: Final = 8192  # pylance's default
BATCH_BYTES: Final = 64 * MIB  # of the values of a batch, where nobody says how many rows or bytes it has
IO_BUFFER_BYTES: Final = 80 * MIB  # read but not yet consumed, per scan: a process stays below 512 MiB
IO_BUFFER_PROCESS_BYTES: Final = 1024 * MIB
SCAN_GROUP_BYTES: Final = 1 * MIB  # small pages of one file are read and decoded in one go up to this
SCAN_SIBLINGS_BYTES: Final = 64 * MIB  # and leaves of structs in lists up to this
SCAN_JOB_BYTES: Final = 4 * MIB  # and where no other thread could take a part of it up to this
SCAN_FILES_BYTES: Final = 320 * KIB  # small files after one another are read and decoded in one job up to this
SCAN_JOB_ROWS: Final = 128 * KIB  # and so many rows: few bytes may become many
SCAN_PIECE_BYTES: Final = 8 * MIB  # unit of read + decode; also the largest physical scan read on local disk
SCAN_DECODED_BYTES: Final = 32 * MIB  # that a job decodes in one go
SCAN_BOUND_BYTES: Final = 96 * MIB  # that a page may become, as its metadata say, to be decoded in one go nevertheless
SCAN_PART_BYTES: Final = 16 * MIB  # decoded on demand then; also what constants of a page are decoded to at once
SCAN_AHEAD_BYTES: Final = 64 * MIB  # of what is decoded ahead of need, or being decoded, by one scan
SCAN_GROWTH: Final = 64  # times its bytes that a page becomes, where only these tell: what jobs are made by
SCAN_PIECE_BYTES_MIN: Final = 64 * KIB  # where the process holds all that it may

# -- takes -----------------------------------------------------------------------------------------------------
TAKE_FILES_AT_ONCE: Final = 512  # files of one take that are read side by side: as many as a store takes requests

# -- writing files of version 0.1 ------------------------------------------------------------------------------
ROWS_PER_BATCH: Final = 1024  # pylance's default

# -- cleaning up -----------------------------------------------------------------------------------------------
CLEANUP_FILES_SHOWN: Final = 1000  # of those that an explanation lists

# -- decoding hostile input ------------------------------------------------------------------------------------
VALUE_BYTES_MAX: Final = 2 * GIB  # that a value may decode to; `max_decoded_bytes` says another number
PAGE_ROWS_MAX: Final = 1 << 32  # spec: file container, section 4


def from_environment(variable: str, default: T, *, least: int = 1) -> int | T:
    """The whole number that an environment variable sets, or `default`. Raises `UsageError` for anything else."""
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise UsageError(
            f"environment variable {variable}: expected a whole number of at least {least}, found {text!r}"
        )
    return int(text)
