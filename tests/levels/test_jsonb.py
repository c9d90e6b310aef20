"""JSON columns: the texts that pylance gives, wherever the column is, and bytes that are no JSON value."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as TheirReader

import lance_io
from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader as OurReader
from lance_io.levels.jsonb import JSON_DEPTH_MAX, json_texts
from tests.reference.jsonb import json_text as reference_text

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [
    '{"a":1,"b":[1,2.5,null,true,false,"x\\u00e9\\n\\"q"],"c":{"d":{}}}',
    *("[]", "{}", '""', "null", None, "true", "[null,true,false]", "[[[]],{},{},[1]]"),
    *("0", "-1", "127", "128", "255", "256", "-128", "-129", "65536", "4294967296", "-9223372036854775808"),
    *("18446744073709551615", "18446744073709551616", "1e400", "123456789012345678901234567890"),
    *("0.1", "1.0", "-0.0", "1e15", "1e16", "1.25e16", "1e300", "1e-4", "1e-5", "-1.25e-5", "1e-6", "5e-324"),
    *('{"bb":1,"a":2,"é":3,"":4}', ' { "x" : [ 1 , 2 ] } ', '"\\/\\\\ \\ud83d\\ude00 \\ud800"'),
    json.dumps("".join(map(chr, range(0x100))) + "\u2028\ud7ff\ue000\uffff\U0010ffff"),
    "[" * 300 + "]" * 300,
]


def stored_number(kind: int, digits: bytes) -> bytes:
    return struct.pack(">II", 0x20000000, 0x20000001 + len(digits)) + bytes([kind]) + digits


def nested_arrays(depth: int) -> bytes:
    data = b"\x80\x00\x00\x00"
    for _ in range(depth - 1):
        data = b"\x80\x00\x00\x01" + (0x50000000 | len(data)).to_bytes(4, "big") + data
    return data


def json_text(data: bytes) -> str:
    """The text of one value, or the class of error that both decoders agree on."""
    outcomes: list[object] = []
    for decode in (reference_text, lambda one: json_texts(pa.array([one], pa.large_binary()))[0].as_py()):
        try:
            outcomes.append(decode(data))
        except (FormatError, UnsupportedError) as error:
            outcomes.append(error)
    plain, compiled = outcomes
    assert plain == compiled or type(plain) is type(compiled), (data, plain, compiled)
    if isinstance(compiled, Exception):
        raise compiled
    assert plain == compiled
    return str(compiled)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_texts_are_those_of_pylance_at_every_level(tmp_path: Path, version: str) -> None:
    texts = pa.array(TEXTS * 2, pa.json_())
    count = len(texts)
    numbers = pa.array(range(count))
    cuts = pa.array(np.minimum(np.arange(count + 1) * 2, count).astype(np.int32))
    some = pa.array([i % 5 == 0 for i in range(count)])
    members = pa.StructArray.from_arrays([texts, numbers], ["j", "k"], mask=some)
    columns: dict[str, Any] = {
        "j": texts,
        "s": members,
        "l": pa.ListArray.from_arrays(cuts, texts, mask=some),
        "ll": pa.LargeListArray.from_arrays(cuts.cast(pa.int64()), members, mask=some),
    }
    if version == "2.2":
        columns["m"] = pa.MapArray.from_arrays(cuts, pa.array([str(i) for i in range(count)]), texts)
    uri = tmp_path / "json.lance"
    theirs = lance.write_dataset(pa.table(columns), uri, data_storage_version=version, max_rows_per_file=31)
    ours = lance_io.dataset(uri)
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    rows = [count - 1, 3, 3, 40, 0]
    pairs = [
        (ours.to_table(batch_size=7), theirs.to_table()),
        (ours.take(rows), theirs.take(rows)),
        (ours.to_table(columns=["s.j", "j"]), theirs.to_table(columns=["s.j", "j"])),
        (ours.to_table(offset=5, limit=30), theirs.to_table(offset=5, limit=30)),
    ]
    for got, expected in pairs:
        got.validate(full=True)
        assert got.schema.equals(expected.schema, check_metadata=True)
        assert got.to_pylist() == expected.to_pylist()


def test_file_readers_give_the_stored_bytes(tmp_path: Path) -> None:
    uri = tmp_path / "json.lance"
    lance.write_dataset(pa.table({"j": pa.array(TEXTS, pa.json_())}), uri)
    (file,) = (uri / "data").iterdir()
    theirs = TheirReader(str(file)).read_all().to_table()
    ours = OurReader(file).read_all().to_table()
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours == theirs
    assert json_texts(ours["j"].combine_chunks()).to_pylist() == lance_io.dataset(uri).to_table()["j"].to_pylist()


def test_floats_have_the_digits_of_pylance(tmp_path: Path) -> None:
    chance = random.Random(7)
    floats = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(2000)]
    floats += [chance.randint(-999, 999) * 10.0 ** chance.randint(-20, 20) for _ in range(2000)]
    stored = pa.array([stored_number(0x60, struct.pack(">d", one)) for one in floats], pa.large_binary())
    field = pa.field("j", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    uri = tmp_path / "floats.lance"
    theirs = lance.write_dataset(pa.table([stored], schema=pa.schema([field])), uri).to_table()["j"]
    assert lance_io.dataset(uri).to_table()["j"].to_pylist() == theirs.to_pylist()
    assert [reference_text(one) for one in stored.to_pylist()] == theirs.to_pylist()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "null"),
        (stored_number(0x70, (-12345).to_bytes(16, "big", signed=True) + b"\2"), "-123.45"),
        (stored_number(0x70, (7).to_bytes(32, "big") + b"\3"), "0.007"),
        (stored_number(0x70, (7).to_bytes(8, "big") + b"\0"), "7"),
        (b"\x20\0\0\0\x60\0\0\x03\0\x01\xfe", '"01fe"'),
    ],
)
def test_values_that_no_json_text_gives(data: bytes, text: str) -> None:
    assert json_text(data) == text


@pytest.mark.parametrize(
    "data",
    [
        b"\x20\0\0",
        b"\x60\0\0\0",  # no such kind
        b"\x20\0\0\0",  # a scalar without its entry
        b"\x20\0\0\x01\x40\0\0\0",  # a scalar with a count
        b"\x80\xff\xff\xff",  # more entries than bytes
        b"\x20\0\0\0\x10\0\0\x09x",  # a string longer than the value
        b"\x20\0\0\0\x10\0\0\x01xy",  # a byte behind the last value
        b"\x20\0\0\0\x10\0\0\x01\xff",  # no UTF-8
        b"\x20\0\0\0\x70\0\0\0",  # no such type
        b"\x20\0\0\0\x90\0\0\x01x",  # the top bit of an entry
        b"\x20\0\0\0\x40\0\0\x01x",  # true with bytes
        b"\x20\0\0\0\x20\0\0\0",  # a number without bytes
        b"\x20\0\0\0\x20\0\0\x02\x99\0",  # no such number
        b"\x20\0\0\0\x20\0\0\x04\x40\0\0\0",  # an integer of three bytes
        b"\x20\0\0\0\x50\0\0\x04\x80\0\0\0",  # a scalar that is an array
        b"\x80\0\0\x01\x50\0\0\x08\x20\0\0\0\x40\0\0\0",  # a scalar's header inside an array
        b"\x40\0\0\x01\x40\0\0\0\x40\0\0\0",  # a key that is no string
    ],
)
def test_bytes_that_are_no_json_value(data: bytes) -> None:
    with pytest.raises(FormatError):
        json_text(data)
    with pytest.raises(FormatError, match="JSON value 1"):
        json_texts(pa.array([None, data], pa.large_binary()))


def test_decimals_of_any_size_and_scale() -> None:
    for size in (8, 16, 32):
        for scale in (0, 1, 2, 18, 77, 255):
            for value in (0, 1, -1, 12345, -(10**17), (1 << (8 * size - 1)) - 1, -(1 << (8 * size - 1))):
                json_text(stored_number(0x70, value.to_bytes(size, "big", signed=True) + bytes([scale])))


def test_any_damage_gives_text_or_the_error() -> None:
    chance = random.Random(11)
    seed = bytes.fromhex("4000000110000001500000286140000001100000015000001b6280000002200000025000000d5001")
    seed += bytes.fromhex("40000001100000010000000063")
    for _ in range(3000):
        data = bytearray(seed)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            json.loads(json_text(bytes(data[: chance.randint(1, len(data))])))
        except (FormatError, UnsupportedError):
            pass


def test_nesting_is_bounded() -> None:
    assert json_text(nested_arrays(JSON_DEPTH_MAX)) == "[" * JSON_DEPTH_MAX + "]" * JSON_DEPTH_MAX
    with pytest.raises(UnsupportedError, match="nested more than"):
        json_text(nested_arrays(JSON_DEPTH_MAX + 1))
    with pytest.raises(UnsupportedError, match="extension of kind 0x20"):
        json_text(b"\x20\0\0\0\x60\0\0\x02\x20\0")
