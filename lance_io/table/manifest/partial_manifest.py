"""A manifest in parts, for workers that read some of its fragments without fetching all of it.

    whole     the message of a version, for use in another process
    header    the parts that every read needs: the manifest without fragments and without parts for writers
    entries   its fragments, each with its data files and deletion file

`join_parts` turns the header and entries of one version, or of two with the same base paths, into a version with just
these fragments, in this order.
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
    """The message of a version; None if it has more than `bytes_max` bytes."""
    message = manifest.message
    return message.SerializeToString() if message.ByteSize() <= bytes_max else None


def decode_whole(whole: bytes) -> Manifest:
    """The inverse of `serialized_whole`."""
    return from_message(table_pb2.Manifest.FromString(whole), VERSION_MAX)


def serialized_header(manifest: Manifest, *, row_ids: bool) -> bytes:
    """The header of a version.

    row_ids  whether its readers need row ids or values that depend on them; without, the flag for stable row ids is
             cleared
    """
    header = table_pb2.Manifest()
    for descriptor, value in manifest.message.ListFields():
        if descriptor.name not in _NOT_FOR_READING:
            header.MergeFrom(table_pb2.Manifest(**{descriptor.name: value}))
    if not row_ids:
        header.reader_feature_flags &= ~STABLE_ROW_IDS
        header.writer_feature_flags &= ~STABLE_ROW_IDS
    return header.SerializeToString()


def serialized_entry(manifest: Manifest, index: int, *, row_ids: bool) -> bytes:
    """The fragment at an index of a version; without `row_ids` it lacks their sequences, which can be large."""
    entry = table_pb2.DataFragment()
    entry.CopyFrom(manifest.stored.fragments[index])
    if not row_ids:
        for name in _ROW_IDS:
            entry.ClearField(name)
    return entry.SerializeToString()


def join_parts(header: bytes, entries: Sequence[bytes], digest: str) -> Manifest:
    """The version with these fragments.

    digest  unique for these parts. Caches identify a version by the name of its transaction file, and here fragment
            indices count from the first of these fragments, so the digest becomes a part of that name
    """
    message = table_pb2.Manifest.FromString(header)
    for entry in entries:
        message.fragments.add().ParseFromString(entry)
    message.transaction_file = f"{message.transaction_file}#{digest}"
    return from_message(message, VERSION_MAX)
