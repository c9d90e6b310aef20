"""JSON text to stored values: the same bytes as pylance writes, and the refusal of what is no JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.file import LanceFileReader, LanceFileWriter

from lance_io.errors import SchemaError
from lance_io.levels.jsonb import json_texts
from lance_io.levels.jsonb_write import jsonb_values

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 65535, 65536, -32769, 1 << 32, (1 << 63) - 1, 1 << 63]
NUMBERS += [(1 << 64) - 1, 1 << 64, -(1 << 63), -(1 << 63) - 1, 10**38, -(10**40)]
TEXTS = [
    *map(str, NUMBERS),
    *[
        "null",
        "true",
        "false",
        "",
        '""',
        '"a"',
        '"\\u00e9\\ud83d\\ude00\\n\\/"',
        "[]",
        "{}",
        " [ ] ",
        "[true,false,null]",
    ],
    *[
        "1.5",
        "0.0",
        "-0",
        "-0.0",
        "1e3",
        "1.0",
        "1e400",
        "-1e400",
        "1e-7",
        "1E5",
        "-1.25e2",
        "0.1234567890123456789012345",
    ],
    '[1,[2,{"a":null}],"x"]',
    '{"aa":1,"b":{"y":[],"x":{}},"":3,"\u00e9":4,"\uffff":5,"\U0001f600":6}',
]


def test_bytes_are_those_of_pylance(tmp_path: Path) -> None:
    texts = pa.array([*TEXTS, None])
    column = pa.ExtensionArray.from_storage(pa.json_(), texts)
    path = tmp_path / "json.lance"
    with LanceFileWriter(str(path), pa.schema([pa.field("c", column.type)]), version="2.1") as writer:
        writer.write_batch(pa.record_batch([column], names=["c"]))
    theirs = LanceFileReader(str(path)).read_all().to_table()["c"].to_pylist()
    ours = jsonb_values(texts, "c").to_pylist()
    assert dict(zip(TEXTS, ours, strict=False)) == dict(zip(TEXTS, theirs, strict=False))
    assert ours[-1] is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_our_reader_gives_the_value_back(value: object) -> None:
    import json

    stored = jsonb_values(pa.array([json.dumps(value)]), "c")
    again = json.loads(json_texts(stored)[0].as_py())
    assert canonical(again) == canonical(value)


def test_rows_of_a_slice_and_nulls_over_garbage() -> None:
    texts = pa.StringArray.from_buffers(
        4,
        pa.py_buffer(b"\0\0\0\0\x01\0\0\0\x04\0\0\0\x06\0\0\0\x08\0\0\0"),
        pa.py_buffer(b"1{{{2 []"),
        pa.py_buffer(bytes([0b1101])),
    )
    assert json_texts(jsonb_values(texts, "c")).to_pylist() == ["1", None, "2", "[]"]
    assert json_texts(jsonb_values(texts.slice(1, 2), "c")).to_pylist() == [None, "2"]
    assert len(jsonb_values(texts.slice(4), "c")) == 0
    with pytest.raises(SchemaError, match="no UTF-8"):
        jsonb_values(pa.array([b"\xff"]).view(pa.string()), "c")


@given(st.lists(st.text(alphabet='{}[]",:0-1.eE+ \\untrf', max_size=12), min_size=1, max_size=30))
def test_accepts_what_the_standard_library_does(texts: list[str]) -> None:
    import json

    for text in texts:
        try:
            json.loads(text)
        except ValueError:
            is_json = text == ""
        else:
            is_json = True
        try:
            jsonb_values(pa.array([text]), "c")
        except SchemaError as error:
            assert not is_json or "one key twice" in str(error) or "surrogate" in str(error)
        else:
            assert is_json


def canonical(value: object) -> object:
    """As it is after storing: numbers beyond 64 bits are floats, infinities null."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return float(value)
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "nul",
        "[1,]",
        "01",
        "'a'",
        '"\t"',
        '{"a":1,"a":2}',
        "1 2",
        '"\\ud800"',
        "[" * 5000,
        '"\\ud800\\u0041"',
        '"\\x"',
        '"\\u12"',
        "-",
        "1.",
        "1e",
        ".5",
        "+1",
        '{"a" 1}',
        "{1:2}",
        '{"a":1,}',
        '["a"',
        '"a',
        " ",
    ],
)
def test_refuses_what_is_no_json(text: str) -> None:
    with pytest.raises(SchemaError, match="Failed to encode JSON: `c`, row 1:"):
        jsonb_values(pa.array(["1", text]), "c")
