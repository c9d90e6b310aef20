"""Fields of wide schemas, made when they are asked for: the same as all made at once."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

import lance_io
from lance_io import _kernels
from lance_io.errors import LanceError
from lance_io.format import flat_fields, schema_messages
from lance_io.format.flat_fields import FIELDS_MIN, FlatFields
from lance_io.format.recent_values import RecentValues
from lance_io.proto import file_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.format.schema import Schema

KINDS = ("int64", "string", "large_binary", "fixed_size_list:float:4", "decimal:128:7:2", "timestamp:us:UTC", "json")


def wide(dice: random.Random, num_fields: int = FIELDS_MIN) -> list[file_pb2.Field]:
    """Messages of fields without members, some with metadata, blobs and keys among them."""
    made = []
    for number in dice.sample(range(10 * num_fields), num_fields):
        one = file_pb2.Field(
            id=number, parent_id=-1, name=f"c {number}", logical_type=dice.choice(KINDS), nullable=dice.random() < 0.5
        )
        if dice.random() < 0.1:
            one.metadata["lance-encoding:blob" if one.logical_type == "large_binary" else "about"] = b"true"
        if dice.random() < 0.05:
            one.unenforced_primary_key, one.unenforced_primary_key_position = True, dice.randrange(3)
        made.append(one)
    return made


def decoded(fields: list[file_pb2.Field], monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> Schema:
    """By the one way or the other."""
    message = file_pb2.Schema(fields=fields, metadata={"k": b"v"}).SerializeToString()
    return decoded_bytes(message, monkeypatch, at_once=at_once)


def decoded_bytes(message: bytes, monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> Schema:
    with monkeypatch.context() as patched:
        patched.setattr(flat_fields, "FIELDS_MIN", 1 << 30 if at_once else FIELDS_MIN)
        schema_messages._large_flat_schema.cache_clear()
        schema_messages._small_flat_schema.cache_clear()
        return schema_messages._parse_schema(message) if at_once else schema_messages.decode_schema_bytes(message)


def outcome(message: bytes, monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> Any:
    """The schema, or what is said instead."""
    try:
        return decoded_bytes(message, monkeypatch, at_once=at_once)
    except (LanceError, DecodeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(5))
def test_each_is_as_if_all_were_made_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    fields = wide(dice, FIELDS_MIN + dice.randrange(100))
    eager = decoded(fields, monkeypatch, at_once=True)
    names = [one.name for one in fields]
    for look in (
        lambda schema: [schema.top(name) for name in dice.sample(names, 9)] + [schema.top("none")],
        lambda schema: schema.tops(names[7:40:3][::-1]),
        lambda schema: (schema.names, schema.is_of_file, schema.has_blobs, len(schema)),
        lambda schema: schema.project([f"`{name}`" for name in names[3:90:9]]),
        lambda schema: schema.to_arrow(),
        lambda schema: dict(schema.by_id),
        lambda schema: schema_messages.encode_schema(schema),
        lambda schema: pickle.loads(pickle.dumps(schema)),
    ):
        state = dice.getstate()
        lazy = decoded(fields, monkeypatch, at_once=False)
        assert isinstance(lazy.fields, FlatFields)
        found = look(lazy)
        dice.setstate(state)
        assert found == look(eager)
    assert lazy == eager
    assert eager == lazy
    assert hash(lazy) == hash(eager)
    assert lazy != decoded(fields[1:], monkeypatch, at_once=True)
    assert repr(lazy) == repr(eager)


def _nested(fields: list[file_pb2.Field]) -> None:
    fields[50].logical_type = "struct"
    fields[51].parent_id = fields[50].id


def _set(name: str, value: Any) -> Callable[[list[file_pb2.Field]], None]:
    return lambda fields: setattr(fields[60], name, value)


def _null_key(fields: list[file_pb2.Field]) -> None:
    fields[60].logical_type, fields[60].nullable = "null", False


UNUSUAL: dict[str, Callable[[list[file_pb2.Field]], None]] = {
    "members": _nested,
    "a struct without members": _set("logical_type", "struct"),
    "a list without items": _set("logical_type", "list"),
    "an unknown type": _set("logical_type", "int7"),
    "an impossible type": _set("logical_type", "decimal:128:99:0"),
    "nulls that may not be": _null_key,
    "an id below 0": _set("id", -1),
    "a column of files": _set("id", -3),
    "a parent that is not there": _set("parent_id", 1 << 30),
    "an id twice": lambda fields: setattr(fields[60], "id", fields[61].id),
    "a name twice": lambda fields: setattr(fields[60], "name", fields[61].name),
    "NUL in a name": _set("name", "a\0b"),
    "NUL in a key": lambda fields: fields[60].metadata.update({"a\0b": b""}),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_whatever_is_unusual_is_read_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = wide(random.Random(1))
    UNUSUAL[name](fields)
    message = file_pb2.Schema(fields=fields).SerializeToString()
    found = outcome(message, monkeypatch, at_once=False)
    assert found == outcome(message, monkeypatch, at_once=True)
    assert not isinstance(getattr(found, "fields", ()), FlatFields)


# -- forms that protobuf allows, and some that it does not ------------------------------------------------------------


def varint(value: int, extra: int = 0) -> bytes:
    """With `extra` bytes more than it needs."""
    groups = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)] + [0] * extra
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def entry(number: int, value: int | bytes, extra: int = 0) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3, extra) + varint(value)
    return varint(number << 3 | 2, extra) + varint(len(value)) + value


TOP = (1 << 64) - 1
METADATA = entry(1, b"about") + entry(2, b"it")
FORMS: dict[str, tuple[bool, list[bytes]]] = {  # whether the survey takes them, and what replaces the parts of a field
    "in another order": (True, [entry(6, 1), entry(5, b"int64"), entry(4, TOP), entry(3, 7), entry(2, b"name")]),
    "no name": (True, [entry(3, 7), entry(4, TOP), entry(5, b"int64")]),
    "no id": (True, [entry(2, b"name"), entry(4, TOP), entry(5, b"int64")]),
    "no parent": (False, [entry(2, b"name"), entry(3, 7), entry(5, b"int64")]),
    "no type": (False, [entry(2, b"name"), entry(3, 7), entry(4, TOP)]),
    "a short -1": (False, [entry(2, b"name"), entry(3, 7), entry(4, (1 << 32) - 1), entry(5, b"int64")]),
    "a large id": (False, [entry(2, b"name"), entry(3, 1 << 31), entry(4, TOP), entry(5, b"int64")]),
    "nothing": (False, [b""]),
}
ADDED: dict[str, tuple[bool, bytes]] = {  # the same behind a usual field
    "a reserved field": (True, entry(11, b"what")),
    "unknown fields": (True, entry(16, b"what") + entry(3000, 5) + b"\x81\x01" + bytes(8) + b"\x85\x01" + bytes(4)),
    "a field without number": (False, entry(0, 1)),
    "a group": (False, b"\x83\x01\x84\x01"),
    "the end of a group": (False, b"\x84\x01"),
    "a second name": (False, entry(2, b"other")),
    "a second id": (False, entry(3, 1 << 20)),
    "a second parent": (False, entry(4, 1)),
    "a second type": (False, entry(5, b"string")),
    "two marks": (False, entry(12, 1) + entry(12, 0)),
    "a key": (True, entry(12, 1) + entry(13, 3) + entry(14, 1) + entry(15, 2)),
    "a long position": (True, entry(12, 1) + entry(13, (1 << 33) + 1)),
    "a long tag": (False, entry(6, 1, extra=1)),
    "a name of another kind": (False, entry(2, 5)),
    "an id of another kind": (False, entry(3, b"5")),
    "an extension": (True, entry(9, b"arrow.json")),
    "an extension that is no text": (False, entry(9, b"\xff")),
    "values": (True, entry(8, entry(1, 4) + entry(2, 4) + entry(1000, b"v") + entry(7, 1))),
    "values of another kind": (False, entry(8, entry(1, b"4"))),
    "values that are no message": (False, entry(8, b"\x08")),
    "metadata": (True, entry(10, METADATA) + entry(10, entry(2, b"a") + entry(1, b"b")) + entry(10, METADATA)),
    "metadata without key": (True, entry(10, entry(2, b"it"))),
    "metadata without value": (True, entry(10, entry(1, b"about"))),
    "no metadata": (True, entry(10, b"")),
    "metadata with two keys": (False, entry(10, METADATA + entry(1, b"other"))),
    "metadata with something else": (False, entry(10, METADATA + entry(3, 1))),
    "metadata whose key is no text": (False, entry(10, entry(1, b"\xff"))),
    "metadata whose key has a NUL": (False, entry(10, entry(1, b"\0"))),
    "metadata whose value is no text": (True, entry(10, entry(1, b"k") + entry(2, b"\xff\0"))),
    "a cut number": (False, b"\x08\x80"),
    "a cut text": (False, b"\x4a\x05a"),
}
USUAL = [entry(2, b"name"), entry(3, 7), entry(4, TOP), entry(5, b"int64")]


@pytest.mark.parametrize("name", [*FORMS, *ADDED])
def test_a_field_in_another_form_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_taken, parts = FORMS[name] if name in FORMS else (ADDED[name][0], [*USUAL, ADDED[name][1]])
    others = [entry(1, one.SerializeToString()) for one in wide(random.Random(2)) if one.id not in (0, 7)]
    message = b"".join([*others[:50], entry(1, b"".join(parts)), *others[50:], entry(5, METADATA)])
    message += entry(1, b"".join([entry(2, b"last"), entry(3, 1 << 30), entry(4, TOP), entry(5, b"string")]))
    found = outcome(message, monkeypatch, at_once=False)
    assert found == outcome(message, monkeypatch, at_once=True)
    assert isinstance(getattr(found, "fields", ()), FlatFields) == is_taken


@pytest.mark.parametrize("name", ["unknown", "a key that is no text", "two values", "a long tag", "cut", "fields of 0"])
def test_a_schema_in_another_form_is_left_to_the_general_decoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    added = {
        "unknown": entry(2, b"what"),
        "a key that is no text": entry(5, entry(1, b"\xff")),
        "two values": entry(5, METADATA + entry(2, b"other")),
        "a long tag": entry(5, METADATA, extra=1),
        "cut": entry(5, METADATA)[:-1],
        "fields of 0": varint(8) + varint(1),
    }[name]
    message = file_pb2.Schema(fields=wide(random.Random(3))).SerializeToString() + added
    found = outcome(message, monkeypatch, at_once=False)
    assert found == outcome(message, monkeypatch, at_once=True)
    assert not isinstance(getattr(found, "fields", ()), FlatFields)


def test_damaged_bytes_are_what_they_are_in_general(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(4)
    whole = file_pb2.Schema(fields=wide(dice), metadata={"k": b"v"}).SerializeToString()
    kinds: set[bool] = set()
    for _ in range(400):
        message = bytearray(whole)
        for _ in range(dice.choice((1, 1, 3))):
            message[dice.randrange(len(message))] = dice.choice((0, 1, 0x0A, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        cut = bytes(message[: dice.choice((len(message), len(message), dice.randrange(len(message))))])
        found = outcome(cut, monkeypatch, at_once=False)
        assert found == outcome(cut, monkeypatch, at_once=True)
        kinds.add(isinstance(getattr(found, "fields", ()), FlatFields))
    assert kinds == {True, False}


def test_places_of_something_else_are_refused() -> None:
    for places in (b"\xff" * 16, bytes(8) + b"\x02\0\0\0\x01\0\0\0"):
        with pytest.raises(ValueError, match="lies outside"):
            _kernels.find_flat_field(b"schema", places, b"name")
        with pytest.raises(ValueError, match="lies outside"):
            _kernels.flat_field_names(b"schema", places)


def test_many_names_are_found_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = wide(random.Random(5), 300)
    schema = decoded(fields, monkeypatch, at_once=False)
    for number, one in enumerate(fields):
        found = schema.top(one.name)
        assert found is not None
        assert found.id == one.id
        assert schema.top(f"{number}") is None
    assert decoded(fields, monkeypatch, at_once=False).top("\udc80") is None


def test_recent_values_are_made_once_while_they_are_recent() -> None:
    made: list[tuple[bytes, int]] = []
    recent = RecentValues(lambda content, other: made.append((content, other)) or len(made), 2)
    assert [recent(b"a", 1), recent(b"b", 1), recent(bytes(bytearray(b"a")), 1), recent(b"a", 2)] == [1, 2, 1, 3]
    assert [recent(b"a", 1), recent(b"b", 1), recent(b"a", 2)] == [1, 4, 5]
    recent.cache_clear()
    assert recent(b"a", 2) == 6
    assert made[-1] == (b"a", 2)


def test_a_take_of_two_columns_makes_two_fields(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {f"c{number}": [number, number + 1] for number in range(500)}
    columns |= {"text": ["a", "b"]}
    for _ in range(2):
        lance.write_dataset(pa.table(columns), tmp_path, mode="append")
    schema_messages._small_flat_schema.cache_clear()
    ds = lance_io.dataset(tmp_path)
    assert ds.take([1, 2], columns=["c17", "text"]).to_pydict() == {"c17": [18, 17], "text": ["b", "a"]}
    fields = ds._state.schema.fields
    assert isinstance(fields, FlatFields)
    assert [one.name for one in fields._items if one is not None] == ["c17", "text"]
    assert ds.to_table() == lance.dataset(tmp_path).to_table()
