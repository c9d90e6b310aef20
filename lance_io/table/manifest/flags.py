"""Feature flags: the bits by which a manifest tells readers what they must understand (spec: table, section 8).

A reader refuses a manifest with a reader bit that it does not know; bits of the writer word do not concern it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from lance_io.proto import table_pb2

DELETION_FILES: Final = 1
STABLE_ROW_IDS: Final = 2
V2_FORMAT: Final = 4  # deprecated; before data formats were named it told 2.x tables from 0.1
TABLE_CONFIG: Final = 8
BASE_PATHS: Final = 16
NO_TRANSACTION_FILE: Final = 32
DATA_OVERLAYS: Final = 64
COVERED_INDEX: Final = 128
MIXED_FILE_VERSIONS: Final = 256
TAGGED_FRAGMENT_REUSE: Final = 1024
SPILLED_ROW_LINEAGE: Final = 2048

READABLE: Final = (
    DELETION_FILES
    | STABLE_ROW_IDS
    | V2_FORMAT
    | TABLE_CONFIG
    | BASE_PATHS
    | NO_TRANSACTION_FILE
    | COVERED_INDEX
    | MIXED_FILE_VERSIONS
    | TAGGED_FRAGMENT_REUSE
    | SPILLED_ROW_LINEAGE
)
_IN_BOTH_WORDS: Final = (MIXED_FILE_VERSIONS, TAGGED_FRAGMENT_REUSE, SPILLED_ROW_LINEAGE)
_NAMES: Final = {DATA_OVERLAYS: "data overlay files", SPILLED_ROW_LINEAGE: "spilled row lineage"}


def check_reader_flags(reader_flags: int, writer_flags: int) -> None:
    """Raise unless a table with these flags can be read.

    `UnsupportedError` names the numbers of the bits that are not known; `FormatError` says that a bit which belongs
    into both words is in one of them only.
    """
    unknown = [1 << bit for bit in range(reader_flags.bit_length()) if reader_flags & ~READABLE & (1 << bit)]
    if unknown:
        raise UnsupportedError(
            f"the table needs reader feature flag {_named(unknown)}, which this release does not implement"
        )
    for flag in _IN_BOTH_WORDS:
        if (reader_flags ^ writer_flags) & flag:
            raise FormatError(f"feature flag {flag} is set in one of the words {reader_flags} and {writer_flags} only")


def _named(flags: list[int]) -> str:
    return ", ".join(f"{flag} ({_NAMES[flag]})" if flag in _NAMES else str(flag) for flag in flags)


# -- writing ---------------------------------------------------------------------------------------------------------

WRITABLE: Final = READABLE & ~SPILLED_ROW_LINEAGE
_STICKY: Final = MIXED_FILE_VERSIONS | TAGGED_FRAGMENT_REUSE


def check_writer_flags(reader_flags: int, writer_flags: int) -> None:
    """Raise unless a version may be built on a table with these flags.

    `UnsupportedError` names the numbers of the bits that are not known: what they stand for would not be kept true.
    """
    check_reader_flags(reader_flags, writer_flags)
    unknown = [1 << bit for bit in range(writer_flags.bit_length()) if writer_flags & ~WRITABLE & (1 << bit)]
    if unknown:
        raise UnsupportedError(
            f"the table needs writer feature flag {_named(unknown)}, which this release does not write"
        )


def next_flags(
    message: table_pb2.Manifest, *, deletions: bool, stable_row_ids: bool, covered_index: bool, mixed_versions: bool
) -> tuple[int, int]:
    """The two words for a manifest, by its content; two flags stay once they have been set.

    message    the manifest, with the flags of the version before it
    deletions  whether one of its fragments has a deletion file
    """
    both = message.reader_feature_flags & _STICKY
    if deletions:
        both |= DELETION_FILES
    if stable_row_ids:
        both |= STABLE_ROW_IDS
    if message.base_paths:
        both |= BASE_PATHS
    if covered_index:
        both |= COVERED_INDEX
    if mixed_versions:
        both |= MIXED_FILE_VERSIONS
    return both, both | (TABLE_CONFIG if message.config else 0)
