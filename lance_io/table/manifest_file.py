"""Manifest files as bytes (spec: table, section 2.1).

0   values of dictionary columns    in tables of file version 0.1: see `format/v0_1/dictionaries.py`
    [u32 length][IndexSection]      when there are indices
    [u32 length][Transaction]       unless it is longer than 20 MiB
P   [u32 length][Manifest]
    i64 P   u16 0   u16 2   "LANC"
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from lance_io.format.footer import MAGIC
from lance_io.format.v0_1.dictionaries import lay_out_values
from lance_io.proto import table_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.manifest import Manifest, from_message
from lance_io.table.transaction.duplicate_names import check_added_once
from lance_io.table.transaction.transaction import INLINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.proto import file_pb2
    from lance_io.table.transaction.draft import NextVersion

_LENGTH = struct.Struct("<I")
_FOOTER = struct.Struct("<qHH4s")
_FOOTER_MAJOR, _FOOTER_MINOR = 0, 2


@dataclass(frozen=True)
class ManifestFile:
    """A manifest file to write.

    data         its bytes
    transaction  the bytes of the transaction, also for its own file
    manifest     the values that reading it back gives
    """

    data: bytes
    transaction: bytes
    manifest: Manifest


def encode_manifest_file(following: NextVersion) -> ManifestFile:
    """The manifest file of a version.

    Raises like `decode_manifest` for a manifest that contradicts itself, and `OperationError` if the table already has
    a data file that the transaction adds.
    """
    message, transaction = following.message, following.transaction.data
    fields = [each for each in message.fields[:] if each.dictionary.values]
    stored = table_pb2.Manifest(fields=fields)
    sections = [lay_out_values(stored.fields, 0)]
    position = len(sections[0])
    if following.index_section is not None:
        message.index_section = position
        sections += [_LENGTH.pack(len(following.index_section)), following.index_section]
        position += _LENGTH.size + len(following.index_section)
    if len(transaction) <= INLINE_BYTES_MAX:
        message.transaction_section = position
        sections += [_LENGTH.pack(len(transaction)), transaction]
        position += _LENGTH.size + len(transaction)
    content = (_with_fields(message, stored.fields) if fields else message).SerializeToString(deterministic=True)
    check_added_once(following.transaction.name, following.added, message, content)
    footer = _FOOTER.pack(position, _FOOTER_MAJOR, _FOOTER_MINOR, MAGIC)
    data = b"".join([*sections, _LENGTH.pack(len(content)), content, footer])
    manifest = from_message(message, position, following.index_section, following.extended)
    return ManifestFile(data, transaction, manifest)


def _with_fields(message: table_pb2.Manifest, fields: Iterable[file_pb2.Field]) -> table_pb2.Manifest:
    """A copy of the message with `fields` in place of those with the same ids."""
    copy = table_pb2.Manifest()
    copy.CopyFrom(message)
    by_id = {each.id: each for each in fields}
    for each in copy.fields:
        if each.id in by_id:
            each.CopyFrom(by_id[each.id])
    return copy
