"""JSON columns: text as pylance gives it, and bytes that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.jsonb import DEPTH_MAX, json_text
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [
    '{"a":1,"b":[1,2.5,null,true,false,"x\\u00e9\\n\\"q"],"c":{"d":{}}}',
    "[]",
    "{}",
    '""',
    "null",
    None,
    "true",
    "0",
    "12",
    "-5",
    "300",
    "70000",
    "18446744073709551615",
    "-9223372036854775808",
    "0.1",
    "1.0",
    "-0.0",
    "1e300",
    "1e-7",
    "0.000015",
    "1e16",
    "123456789012345680.0",
    "123456789012345678901234567890",
    '{"z":1,"y":2}',
    '[[[]],{"k":[]}]',
    '"\\u0001\\t\\/\\\\ \\ud83d\\ude00"',
]


def test_texts_are_those_of_pylance(tmp_path: Path) -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(TEXTS))
    theirs = lance.write_dataset(pa.table({"j": column}), tmp_path / "j.lance", data_storage_version="2.1")
    ours = lance_io.dataset(tmp_path / "j.lance")
    assert ours.schema == theirs.schema
    for got in (ours.to_table(), ours.take(range(len(TEXTS)))):
        assert got == theirs.to_table().replace_schema_metadata(got.schema.metadata)
        got.validate(full=True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x20\x00\x00",
        b"\x60\x00\x00\x00",  # no such kind
        b"\x20\x00\x00\x00",  # a scalar without its entry
        b"\x80\xff\xff\xff",  # more entries than bytes
        b"\x20\x00\x00\x00\x10\x00\x00\x09x",  # a string longer than the value
        b"\x20\x00\x00\x00\x10\x00\x00\x01\xff",  # no UTF-8
        b"\x20\x00\x00\x00\x70\x00\x00\x00",  # no such type
        b"\x20\x00\x00\x00\x20\x00\x00\x00",  # a number without bytes
        b"\x20\x00\x00\x00\x20\x00\x00\x02\x99\x00",  # no such tag
        b"\x20\x00\x00\x00\x20\x00\x00\x04\x40\x00\x00\x00",  # an integer of three bytes
    ],
)
def test_bytes_that_are_no_jsonb(data: bytes) -> None:
    with pytest.raises(FormatError, match="JSONB value"):
        json_text(data)


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> bytes:
        data = b"\x80\x00\x00\x00"
        for _ in range(depth):
            data = b"\x80\x00\x00\x01" + (0x50000000 | len(data)).to_bytes(4, "big") + data
        return data

    assert json_text(nested(DEPTH_MAX)) == "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)
    with pytest.raises(FormatError, match="nested deeper"):
        json_text(nested(DEPTH_MAX + 1))
