"""A manifest in parts, for those who read some of its fragments and are not to fetch the whole of it.

    whole     the message of a version, which is the same version elsewhere
    header    what every read of a version needs: all but its fragments, and but what no read needs
    entries   its fragments, each with its data files and deletion file

Header and entries of one version, or of two that have the same base paths, make a version again: of these fragments
only, in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.proto import table_pb2
from lance_io.table.manifest.flags import STABLE_ROW_IDS
from lance_io.table.manifest.manifest import VERSION_MAX, from_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.table.manifest.manifest import Manifest

_NOT_FOR_READING: Final = (
    "fragments", "config", "table_metadata", "index_section", "transaction_section", "transaction_section_before_v14",
)  # fmt: skip
_ROW_IDS: Final = ("inline_row_ids", "inline_created_at_versions", "inline_last_updated_at_versions")


def serialized_whole(manifest: Manifest, bytes_max: int) -> bytes | None:
    """The message of a version; None when it has more than `bytes_max` bytes."""
    message = manifest.message
    return message.SerializeToString() if message.ByteSize() <= bytes_max else None


def decode_whole(whole: bytes) -> Manifest:
    """The inverse of `serialized_whole`."""
    return from_message(table_pb2.Manifest.FromString(whole), VERSION_MAX)


def serialized_header(manifest: Manifest, *, row_ids: bool) -> bytes:
    """The header of a version.

    row_ids  whether its readers ask for row ids or for what depends on them; without, a version with stable row ids
             reads as one without
    """
    header = table_pb2.Manifest()
    for descriptor, value in manifest.message.ListFields():
        if descriptor.name not in _NOT_FOR_READING:
            header.MergeFrom(table_pb2.Manifest(**{descriptor.name: value}))
    if not row_ids:
        header.reader_feature_flags &= ~STABLE_ROW_IDS
        header.writer_feature_flags &= ~STABLE_ROW_IDS
    return header.SerializeToString()


def serialized_entry(manifest: Manifest, place: int, *, row_ids: bool) -> bytes:
    """The fragment at a place of a version; without row ids it lacks their sequences, which can be large."""
    entry = table_pb2.DataFragment()
    entry.CopyFrom(manifest.stored.fragments[place])
    if not row_ids:
        for name in _ROW_IDS:
            entry.ClearField(name)
    return entry.SerializeToString()


def join_parts(header: bytes, entries: Sequence[bytes], digest: str) -> Manifest:
    """The version with these fragments.

    digest  tells the parts from all others: what is known of a version goes by the name of its transaction, and here
            places count from the first of these fragments
    """
    message = table_pb2.Manifest.FromString(header)
    for entry in entries:
        message.fragments.add().ParseFromString(entry)
    message.transaction_file = f"{message.transaction_file}#{digest}"
    return from_message(message, VERSION_MAX)
