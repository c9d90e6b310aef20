"""Fields of wide schemas, made when they are asked for: the same as all made at once."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError
from lance_io.format import flat_fields, schema_messages
from lance_io.format.flat_fields import FIELDS_MIN, FlatFields
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
    with monkeypatch.context() as patched:
        patched.setattr(flat_fields, "FIELDS_MIN", 1 << 30 if at_once else FIELDS_MIN)
        return schema_messages._decode_schema(fields, {"k": b"v"})


@pytest.mark.parametrize("seed", range(5))
def test_each_is_as_if_all_were_made_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    fields = wide(dice, FIELDS_MIN + dice.randrange(100))
    eager = decoded(fields, monkeypatch, at_once=True)
    names = [one.name for one in fields]
    for look in (
        lambda schema: [schema.top(name) for name in dice.sample(names, 9)] + [schema.top("none")],
        lambda schema: schema.tops(names[7:40:3][::-1]),
        lambda schema: (schema.names, schema.top_ids, schema.has_blobs, len(schema)),
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
    found: list[Any] = []
    for at_once in (False, True):
        try:
            found.append(decoded(fields, monkeypatch, at_once=at_once))
        except LanceError as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]
    assert not isinstance(getattr(found[0], "fields", ()), FlatFields)


def test_a_take_of_two_columns_makes_two_fields(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {f"c{number}": [number, number + 1] for number in range(500)}
    columns |= {"text": ["a", "b"]}
    for _ in range(2):
        lance.write_dataset(pa.table(columns), tmp_path, mode="append")
    schema_messages._small_schema.cache_clear()
    ds = lance_io.dataset(tmp_path)
    assert ds.take([1, 2], columns=["c17", "text"]).to_pydict() == {"c17": [18, 17], "text": ["b", "a"]}
    fields = ds._state.schema.fields
    assert isinstance(fields, FlatFields)
    assert [one.name for one in fields._items if one is not None] == ["c17", "text"]
    assert ds.to_table() == lance.dataset(tmp_path).to_table()
