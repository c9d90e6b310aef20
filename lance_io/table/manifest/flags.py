"""Feature flags: bits in a manifest for the features that a reader or writer must support (spec: table, section 8).

A reader refuses a manifest with an unknown reader bit. It ignores bits of the writer word, except those that must be in
both words or in neither.

    recomputed    1, 2, 8, 16, 128, 2048: a version has them if its content needs them
    sticky        256, 1024, 16384, 32768: once set they stay, also when an earlier version is restored
    in both       256, 1024, 16384, 65536: setting just one word is a contradiction
    writers only  8, 32, 32768
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import FormatError, SchemaError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.proto import table_pb2

DELETION_FILES: Final = 1
STABLE_ROW_IDS: Final = 2
V2_FORMAT: Final = 4  # deprecated; marked 2.x tables before manifests named their data format
TABLE_CONFIG: Final = 8
BASE_PATHS: Final = 16
NO_TRANSACTION_FILE: Final = 32
DATA_OVERLAYS: Final = 64
COVERED_INDEX: Final = 128
MIXED_FILE_VERSIONS: Final = 256
TAGGED_FRAGMENT_REUSE: Final = 1024
SPILLED_ROW_LINEAGE: Final = 2048
MANAGED_BLOBS: Final = 16384
FIELD_IDS_NOT_REUSED: Final = 32768
ZONE_SEEDS: Final = 65536

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
    | MANAGED_BLOBS
)
_IN_BOTH_WORDS: Final = {
    MIXED_FILE_VERSIONS: "mixed data-file-version",
    TAGGED_FRAGMENT_REUSE: "fragment reuse index",
    MANAGED_BLOBS: "Managed Blob",
    ZONE_SEEDS: "zone write seed",
}
_NAMES: Final = {DATA_OVERLAYS: "data overlay files", ZONE_SEEDS: "zone seeds"}


def check_reader_flags(reader_flags: int, writer_flags: int, *, has_id_mark: bool = False) -> None:
    """Raise unless this release can read a table with these flags.

    has_id_mark  whether the manifest has the highest field id ever allocated (field 24), which flag 32768 requires

    Raises `UnsupportedError` with the numbers of unknown bits; `FormatError` for a bit that is in just one word where
    it must be in both, or in the wrong word, or that disagrees with field 24.
    """
    for flag, name in _IN_BOTH_WORDS.items():
        if (reader_flags ^ writer_flags) & flag:
            raise FormatError(
                f"the manifest has only one of the {name} reader and writer feature bits set: feature flag {flag} "
                f"is in one of the words {reader_flags} and {writer_flags}"
            )
    if bool(writer_flags & FIELD_IDS_NOT_REUSED) != has_id_mark:
        raise FormatError(
            f"non-reusable-field-ID high-water mark and writer feature flag disagree: feature flag "
            f"{FIELD_IDS_NOT_REUSED} is {'not ' if has_id_mark else ''}set, and field 24 "
            f"is {'' if has_id_mark else 'not '}there"
        )
    if reader_flags & FIELD_IDS_NOT_REUSED:
        raise FormatError(
            f"the manifest has a non-reusable-field-ID reader feature flag ({FIELD_IDS_NOT_REUSED}), but non-reusable "
            "field IDs only require writer support"
        )
    unknown = [1 << bit for bit in range(reader_flags.bit_length()) if reader_flags & ~READABLE & (1 << bit)]
    if unknown:
        raise UnsupportedError(
            f"the table needs reader feature flag {_list_names(unknown)}, which this release does not implement"
        )


def _list_names(flags: list[int]) -> str:
    return ", ".join(f"{flag} ({_NAMES[flag]})" if flag in _NAMES else str(flag) for flag in flags)


# -- writing ---------------------------------------------------------------------------------------------------------

WRITABLE: Final = READABLE | FIELD_IDS_NOT_REUSED
_STICKY: Final = MIXED_FILE_VERSIONS | TAGGED_FRAGMENT_REUSE | MANAGED_BLOBS
MANAGED_BLOBS_KEY: Final = "lance.blob.managed"  # of the schema's metadata


def check_writer_flags(reader_flags: int, writer_flags: int) -> None:
    """Raise unless this release can build a version on a (readable) table with these flags.

    Raises `UnsupportedError` with the numbers of unknown bits: a commit could break their features.
    """
    unknown = [1 << bit for bit in range(writer_flags.bit_length()) if writer_flags & ~WRITABLE & (1 << bit)]
    if unknown:
        raise UnsupportedError(
            f"the table needs writer feature flag {_list_names(unknown)}, which this release does not write"
        )


def manages_blobs(schema_metadata: Mapping[str, bytes]) -> bool:
    """Whether the table manages the blobs of rows written under a schema with this metadata.

    Raises `SchemaError` for a value other than true and false.
    """
    value = schema_metadata.get(MANAGED_BLOBS_KEY, b"false")
    if value not in (b"true", b"false"):
        raise SchemaError(f"schema metadata {MANAGED_BLOBS_KEY} must be true or false, found {value!r}")
    return value == b"true"


def next_flags(
    message: table_pb2.Manifest,
    *,
    sticky: int,
    deletions: bool,
    stable_row_ids: bool,
    covered_index: bool,
    mixed_versions: bool,
    spilled_lineage: bool,
) -> tuple[int, int]:
    """The reader and writer words for a manifest, by its content.

    message    the manifest
    sticky     the reader word of the previous version; its sticky flags stay
    deletions  whether any of its fragments has a deletion file
    """
    both = sticky & _STICKY
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
    if spilled_lineage:
        both |= SPILLED_ROW_LINEAGE
    if manages_blobs(message.schema_metadata):
        both |= MANAGED_BLOBS
    writer = TABLE_CONFIG if message.config else 0
    if message.HasField("max_allocated_field_id"):
        writer |= FIELD_IDS_NOT_REUSED
    return both, both | writer
