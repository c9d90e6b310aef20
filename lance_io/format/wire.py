"""Protobuf messages from bytes that nobody has vouched for."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from lance_io import _kernels
from lance_io.errors import FormatError
from lance_io.turns import in_turns

Buffer: TypeAlias = Any  # anything with the buffer protocol
M = TypeVar("M", bound=Message)

I64_MAX: Final = (1 << 63) - 1  # offsets and counts are unsigned on the wire, but must fit our signed arrays
_PIECE_BYTES: Final = 1 << 16  # parsed in half a millisecond, in which no other thread has the interpreter


def parse_message(kind: type[M], data: Buffer, what: str) -> M:
    """Parse all of `data` as one message of type `kind`.

    what  the structure, for the error text. Raises `FormatError` for anything that is not such a message: bad wire
    format, text that is not UTF-8, nesting beyond what protobuf allows (100 levels).
    """
    try:
        return kind.FromString(bytes(data)) if len(data) <= _PIECE_BYTES else _merge_long(kind(), data)
    except DecodeError as error:
        raise _damage(kind, what, error) from error


def merge_message(message: Message, data: Buffer, what: str) -> None:
    """Parse all of `data` into a message, behind what it has. Raises as `parse_message`."""
    try:
        _merge_long(message, data)
    except DecodeError as error:
        raise _damage(type(message), what, error) from error


def _damage(kind: type[Message], what: str, error: DecodeError) -> FormatError:
    return FormatError(f"{what}: expected a protobuf {kind.__name__}: {error}. The file is damaged")


def _merge_long(message: M, data: Buffer) -> M:
    """As `MergeFromString`; beside a loop others have the interpreter in between: a message is its pieces, merged."""
    view = memoryview(data)
    ends = _kernels.piece_ends(view, _PIECE_BYTES) or [len(view)]  # what cannot be cut is left to the parser as a whole
    start = 0
    for end in in_turns(ends):
        message.MergeFromString(bytes(view[start:end]))
        start = end
    return message


def unpack_any(data: bytes, what: str) -> tuple[str, bytes]:
    """The type name and the message bytes of a serialized `Any`; what precedes the last `/` of the URL is dropped."""
    message = parse_message(AnyMessage, data, what)
    return message.type_url.rpartition("/")[2], message.value
