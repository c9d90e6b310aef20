"""Parses protobuf messages from untrusted bytes."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from lance_io import _kernels
from lance_io.errors import FormatError
from lance_io.gil import yielding

Buffer: TypeAlias = Any  # anything with the buffer protocol
M = TypeVar("M", bound=Message)

I64_MAX: Final = (1 << 63) - 1  # offsets and counts are unsigned in messages, but must fit signed arrays
_PIECE_BYTES: Final = 1 << 16  # parsed in 0.5 ms, during which no other thread runs Python


def parse_message(kind: type[M], data: Buffer, what: str) -> M:
    """Parse all of `data` as one message of type `kind`.

    what  name of the structure in error messages. Raises `FormatError` for anything that is not such a message: bad
          wire
    format, text that is not UTF-8, nesting beyond protobuf's limit (100 levels).
    """
    try:
        return kind.FromString(bytes(data)) if len(data) <= _PIECE_BYTES else _merge_long(kind(), data)
    except DecodeError as error:
        raise _damage(kind, what, error) from error


def merge_message(message: Message, data: Buffer, what: str) -> None:
    """Parse all of `data` into a message, appending to its content. Raises as `parse_message`."""
    try:
        _merge_long(message, data)
    except DecodeError as error:
        raise _damage(type(message), what, error) from error


def _damage(kind: type[Message], what: str, error: DecodeError) -> FormatError:
    return FormatError(f"{what}: expected a protobuf {kind.__name__}: {error}. The file is damaged")


def _merge_long(message: M, data: Buffer) -> M:
    """As `MergeFromString`, but in pieces, so that other threads run in between: merged pieces make up the message."""
    view = memoryview(data)
    ends = _kernels.piece_ends(view, _PIECE_BYTES) or [len(view)]  # the parser takes a message without cuts as a whole
    start = 0
    for end in yielding(ends):
        message.MergeFromString(bytes(view[start:end]))
        start = end
    return message


def unpack_any(data: bytes, what: str) -> tuple[str, bytes]:
    """Type name and message bytes of a serialized `Any`; the URL up to its last `/` is dropped."""
    message = parse_message(AnyMessage, data, what)
    return message.type_url.rpartition("/")[2], message.value
