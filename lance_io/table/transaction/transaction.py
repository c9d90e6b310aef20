"""Transactions: the changes of a commit relative to the version that its writer read (spec: commit, section 2).

The message is stored twice, with the same bytes: as `_transactions/<read version>-<uuid>.txn`, and as a section of the
manifest file, which begins with the length of the message. A parsed transaction keeps its message, so that fields
unknown to this release survive when it is committed again.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from lance_io.caller_text import no_unicode
from lance_io.errors import FormatError, UsageError
from lance_io.format.wire import parse_message
from lance_io.proto import transaction_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.paths import TRANSACTIONS
from lance_io.table.transaction.operation_messages import decode_operation, encode_operation
from lance_io.table.transaction.operations import operation_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.format.wire import Buffer
    from lance_io.table.transaction.operations import Operation

_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
COMMIT_MESSAGE_KEY: Final = "__lance_commit_message"
INLINE_BYTES_MAX: Final = 20 << 20  # a longer transaction is stored only in its own file


@dataclass(frozen=True)
class Transaction:
    """A change of a table.

    read_version  version that the change is based on, 0 for a new table
    uuid          identifies the change, across all attempts to commit it
    operation     the change itself
    properties    free texts about it; `COMMIT_MESSAGE_KEY` is the commit message
    tag           not used
    message       the parsed message, read-only; None for a new transaction
    """

    read_version: int
    operation: Operation
    uuid: str = field(default_factory=lambda: str(uuid4()))
    properties: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""
    message: transaction_pb2.Transaction | None = field(default=None, repr=False, compare=False)

    @cached_property
    def name(self) -> str:
        """Name of the operation."""
        return operation_name(self.operation)

    @property
    def file_name(self) -> str:
        """Name of its file."""
        return f"{self.read_version}-{self.uuid}.txn"

    @cached_property
    def path(self) -> str:
        """Path of its file below the table's folder."""
        return f"{TRANSACTIONS}/{self.file_name}"

    @cached_property
    def stored_message(self) -> transaction_pb2.Transaction:
        """The message to store, read-only."""
        return encode_transaction(self)

    @cached_property
    def data(self) -> bytes:
        """The bytes to store."""
        return _without_values(self.stored_message).SerializeToString(deterministic=True)

    def rebase(self, operation: Operation, read_version: int) -> Transaction:
        """The same transaction with another operation and read version; unknown fields of its message survive."""
        message = encode_transaction(replace(self, read_version=read_version, operation=operation))
        return replace(self, read_version=read_version, operation=operation, message=message)


def decode_transaction(data: Buffer) -> Transaction:
    """Parse a transaction file, or the transaction section of a manifest file.

    Raises `FormatError` for damage, `UnsupportedError` for fragments with unsupported parts.
    """
    message = parse_message(transaction_pb2.Transaction, data, "transaction")
    return Transaction(
        read_version=message.read_version,
        uuid=_checked_uuid(message.uuid),
        operation=decode_operation(message),
        properties=dict(message.transaction_properties),
        tag=message.tag,
        message=message,
    )


def encode_transaction(transaction: Transaction) -> transaction_pb2.Transaction:
    """The message of a transaction. Raises `UsageError` for texts of the caller that are not Unicode."""
    try:
        return _message(transaction)
    except UnicodeEncodeError as error:
        raise UsageError(no_unicode("a name or text of the change", error)) from None


def _message(transaction: Transaction) -> transaction_pb2.Transaction:
    message = transaction_pb2.Transaction()
    if transaction.message is not None:
        message.CopyFrom(transaction.message)
    message.read_version = transaction.read_version
    message.uuid = transaction.uuid
    message.tag = transaction.tag
    if transaction.properties or message.transaction_properties:
        message.transaction_properties.clear()
        message.transaction_properties.update(transaction.properties)
    encode_operation(transaction.operation, message)
    return message


def _without_values(message: transaction_pb2.Transaction) -> transaction_pb2.Transaction:
    """The message without the values of dictionaries, which only manifest files have (spec: legacy 0.1, section 7)."""
    name = message.WhichOneof("operation")
    if name is None or not any(
        field_message.dictionary.values for field_message in getattr(getattr(message, name), "schema", ())
    ):
        return message
    copy = transaction_pb2.Transaction()
    copy.CopyFrom(message)
    for field_message in getattr(copy, name).schema:
        if field_message.HasField("dictionary"):
            field_message.dictionary.ClearField("values")

    return copy


def _checked_uuid(text: str) -> str:
    """`text` itself if it is a UUID or empty: it becomes a part of file names."""
    if text and not _UUID.fullmatch(text):
        raise FormatError(f"transaction: expected a UUID, found {text[:100]!r}")
    return text
