"""Damage to protobuf messages: one field of a decoded message changed, so that it still parses.

Flipped bytes mostly break the wire format, which says nothing about the checks behind the parser. Here a message is
taken apart, one of its numbers, texts, lists or members is changed to something hostile, and it is put together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:
    import random

_UNSIGNED = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_FIXED32: 32,
    FieldDescriptor.TYPE_FIXED64: 64,
}
_SIGNED = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_INT64: 64, FieldDescriptor.TYPE_ENUM: 32}

Change = tuple[str, Callable[[], None]]


def hostile_number(dice: random.Random, value: int, low: int, high: int) -> int:
    """A number near `value`, near zero, near a power of two, or anything, between `low` and `high`."""
    choices = (
        value + dice.choice((-1, 1, 2, 7, 8, 64, 1024)),
        value * 2,
        value // 2,
        dice.choice((0, 1, 2, 3)),
        (1 << dice.randrange(0, 64)) + dice.choice((-1, 0, 1)),
        high - dice.randrange(2),
        dice.randint(low, high),
    )
    return min(max(dice.choice(choices), low), high)


def hostile_bytes(dice: random.Random, value: bytes) -> bytes:
    """Cut, extended, emptied, or with a byte or a word changed."""
    if not value:
        return dice.randbytes(dice.choice((1, 2, 4, 8)))
    at = dice.randrange(len(value))
    kind = dice.randrange(5)
    if kind == 0:
        return value[:at]
    if kind == 1:
        return value + dice.randbytes(dice.choice((1, 8)))
    if kind == 2:
        return b""
    width = dice.choice((1, 1, 2, 4))
    changed = bytearray(value)
    changed[at : at + width] = dice.randbytes(len(changed[at : at + width]))
    return bytes(changed)


def damage_message(message: Message, dice: random.Random) -> str | None:
    """Change one thing in `message`, in place; what was changed, or None when the message is empty."""
    changes = list(_changes(message, dice, type(message).DESCRIPTOR.name))
    if not changes:
        return None
    what, apply = dice.choice(changes)
    apply()
    return what


def _changes(message: Message, dice: random.Random, path: str) -> Iterator[Change]:
    for field, value in message.ListFields():
        where = f"{path}.{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield f"{where} emptied", lambda m=message, f=field: m.ClearField(f.name)
            continue
        yield f"{where} cleared", lambda m=message, f=field: m.ClearField(f.name)
        if field.is_repeated:
            yield from _list_changes(value, field, dice, where)
        elif field.message_type is not None:
            yield from _changes(value, dice, where)
        else:
            yield f"{where} changed", lambda m=message, f=field, v=value: setattr(m, f.name, _other(f, v, dice))
    yield from _additions(message, dice, path)


def _additions(message: Message, dice: random.Random, path: str) -> Iterator[Change]:
    """Fields that are not there, given a value."""
    absent = [f for f in message.DESCRIPTOR.fields if not f.is_repeated and f.message_type is None]
    absent = [f for f in absent if not (message.HasField(f.name) if f.has_presence else getattr(message, f.name))]
    if absent:
        field = dice.choice(absent)
        value = getattr(message, field.name)
        yield f"{path}.{field.name} added", lambda: setattr(message, field.name, _other(field, value, dice))


def _list_changes(values: Any, field: FieldDescriptor, dice: random.Random, where: str) -> Iterator[Change]:
    at = dice.randrange(len(values))

    def drop() -> None:
        del values[at]

    def repeat() -> None:
        values.append(values[at])

    def swap() -> None:
        kept = [type(v).FromString(v.SerializeToString()) if isinstance(v, Message) else v for v in values]
        first, second = dice.randrange(len(kept)), dice.randrange(len(kept))
        kept[first], kept[second] = kept[second], kept[first]
        del values[:]
        values.extend(kept)

    def change() -> None:
        values[at] = _other(field, values[at], dice)

    yield f"{where}[{at}] dropped", drop
    yield f"{where}[{at}] repeated", repeat
    yield f"{where} swapped", swap
    if field.message_type is None:
        yield f"{where}[{at}] changed", change
        return
    for index in {dice.randrange(len(values)) for _ in range(3)}:
        yield from _changes(values[index], dice, f"{where}[{index}]")


def _other(field: FieldDescriptor, value: Any, dice: random.Random) -> Any:
    if field.type in _UNSIGNED:
        return hostile_number(dice, value, 0, (1 << _UNSIGNED[field.type]) - 1)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return dice.randrange(0, 9)
    if field.type in _SIGNED:
        half = 1 << (_SIGNED[field.type] - 1)
        return hostile_number(dice, value, -half, half - 1)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return not value
    if field.type == FieldDescriptor.TYPE_BYTES:
        return hostile_bytes(dice, value)
    if field.type == FieldDescriptor.TYPE_STRING:
        return hostile_text(dice, value)
    return dice.random() * value


def hostile_text(dice: random.Random, value: str) -> str:
    """Another type name, path or number in text form."""
    at = dice.randrange(len(value) + 1)
    choices = (
        "",
        value[:at],
        value[:at] + dice.choice("0123456789:/.-ax\0é") + value[at + 1 :],
        value + dice.choice((":1", "/..", "0", " ")),
        dice.choice(("int32", "int64", "string", "large_string", "bool", "struct", "list", "large_list", "null")),
        dice.choice(("fixed_size_list:float:3", "fixed_size_binary:7", "decimal:128:5:2", "dict:string:int8:false")),
    )
    return dice.choice(choices)
