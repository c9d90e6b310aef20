"""The end of a file that a kernel takes apart: what it accepts, the general parsers read in the same way."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lance_io._kernels import split_items
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.columns import decode_column, decode_column_table, decode_columns
from lance_io.format.ending import Ending, decode_ending
from lance_io.format.footer import FOOTER_BYTES, decode_footer
from lance_io.format.globals import decode_file_descriptor, decode_globals_table, split_descriptor
from lance_io.proto import encodings21_pb2 as pb
from lance_io.proto import file_pb2

if TYPE_CHECKING:
    from lance_io.format.columns import ColumnInfo
    from lance_io.format.globals import FileDescriptor

ROWS = pa.table({"number": range(3000), "text": [f"text {i}" for i in range(3000)], "none": pa.nulls(3000, pa.int8())})


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("ending") / "t.lance"
    lance.write_dataset(ROWS, folder, data_storage_version=request.param)
    (path,) = (folder / "data").iterdir()
    return path.read_bytes()


def in_general(data: bytes) -> tuple[FileDescriptor, list[ColumnInfo], list[int]]:
    """What the general parsers find: descriptor, columns, positions of the global buffers."""
    footer = decode_footer(data, file_bytes=len(data))
    buffers = decode_globals_table(data[footer.globals_table_at :], footer)
    table = decode_column_table(data[footer.column_table_at :], footer)
    at, size = int(buffers.positions[0]), int(buffers.sizes[0])
    descriptor = decode_file_descriptor(data[at : at + size])
    spans = zip(table.positions.tolist(), table.sizes.tolist(), strict=True)
    columns = [decode_column(data[at : at + size], index, footer) for index, (at, size) in enumerate(spans)]
    return descriptor, columns, buffers.positions.tolist()


def same_as_general(found: Ending, data: bytes) -> int:
    """Compare; gives how many columns were in the usual form."""
    footer = decode_footer(data, file_bytes=len(data))
    descriptor, columns, _ = in_general(data)
    assert found.footer == footer
    assert decode_file_descriptor(found.descriptor) == replace(descriptor, num_rows=0)
    assert found.num_rows == descriptor.num_rows
    assert found.messages == data[footer.columns_at : -FOOTER_BYTES]
    taken_apart = decode_columns(found.messages, range(footer.num_columns), footer)
    for parts, column in zip(taken_apart, columns, strict=True):
        if parts is not None:
            starts, num_rows, pages = parts
            assert num_rows == column.num_rows
            assert pages == [tuple(page) for page in column.pages]
            assert (starts is None) == (len(pages) == 1)
            assert starts in (None, column.row_starts.tobytes())
    return sum(parts is not None for parts in taken_apart)


def test_the_end_of_a_file_of_pylance(data: bytes) -> None:
    found = decode_ending(data, 0, len(data))
    assert found is not None
    assert same_as_general(found, data) == 3
    assert found.num_rows == 3000
    assert decode_columns(found.messages, [1, 3, -1], found.footer)[1:] == [None, None]


def test_all_of_the_metadata_must_be_there(data: bytes) -> None:
    footer = decode_footer(data, file_bytes=len(data))
    start = int(in_general(data)[2][0])
    assert start < footer.columns_at
    assert decode_ending(data[start:], start, len(data)) == decode_ending(data, 0, len(data))
    for late in (start + 1, footer.columns_at, len(data) - FOOTER_BYTES, len(data)):
        assert decode_ending(data[late:], late, len(data)) is None
    assert decode_ending(data[start:], start + 1, len(data)) is None
    assert decode_ending(data[start:], start, len(data) + 1) is None


def test_whatever_is_accepted_is_what_the_general_parsers_find(data: bytes) -> None:
    rng = random.Random(11)
    start = int(in_general(data)[2][0])
    accepted = 0
    for number in range(3000):
        changed = bytearray(data)
        for _ in range(1 + number % 2):
            # half of the changes to the tables and the footer
            low = start if rng.random() < 0.5 else len(data) - FOOTER_BYTES - 4 * 16
            at = rng.randrange(low, len(data))
            match rng.randrange(3):
                case 0:
                    changed[at] ^= 1 << rng.randrange(8)
                case 1:
                    changed[at] = rng.randrange(256)
                case _:
                    changed[at : at + 16] = changed[at - 16 : at]
        del changed[len(data) :]
        found = decode_ending(bytes(changed), 0, len(data))
        if found is None:
            continue
        try:
            descriptor_is_read = decode_file_descriptor(found.descriptor) is not None
        except (FormatError, UnsupportedError) as error:
            with pytest.raises(type(error)):  # of the schema, which is looked at as before
                in_general(bytes(changed))
            continue
        assert descriptor_is_read
        try:
            columns = in_general(bytes(changed))[1]
            for column in columns:
                list(column.pages)
        except (FormatError, UnsupportedError):
            parts = decode_columns(found.messages, range(found.footer.num_columns), found.footer)
            assert None in parts  # the damage is in a column, of which the kernel says nothing
            continue
        accepted += same_as_general(found, bytes(changed)) > 0
    assert accepted > 500


@pytest.mark.parametrize(
    "entries",
    [
        [(70, 10), (80, 10)],  # not where the first should be
        [(64, 10), (73, 10)],  # one over the other
        [(74, 10), (64, 10)],  # in another order, which the general parser takes
        [(64, 10), (74, 1 << 63)],
        [(64, 10), ((1 << 64) - 8, 16)],
    ],
)
def test_columns_in_other_places_are_left_to_the_general_parser(entries: list[tuple[int, int]]) -> None:
    def file_of(entries: list[tuple[int, int]]) -> bytes:
        numbers = [number for entry in [*entries, (0, 4)] for number in entry]
        table = b"".join(number.to_bytes(8, "little") for number in numbers)
        places = b"".join(at.to_bytes(8, "little") for at in (64, 84, 116))
        counts = b"".join(count.to_bytes(4, "little") for count in (1, 2))
        body = b"\x0a\x00\x10\x07" + bytes(60) + bytes(20)
        return body + table + places + counts + b"\x02\x00\x01\x00LANC"

    usual = file_of([(64, 10), (74, 10)])
    found = decode_ending(usual, 0, len(usual))
    assert found is not None
    assert (found.num_rows, found.descriptor) == (7, b"\x0a\x00")
    assert decode_ending(file_of(entries), 0, len(usual)) is None


@pytest.mark.parametrize("num_rows", [1, 127, 128, 1 << 40, (1 << 63) - 1])
def test_a_descriptor_is_its_schema_and_its_rows(num_rows: int) -> None:
    schema = file_pb2.Schema(metadata={"a": b"b"})
    data = file_pb2.FileDescriptor(schema=schema, length=num_rows).SerializeToString()
    parts = split_descriptor(data)
    assert parts is not None
    assert parts[1] == num_rows == decode_file_descriptor(data).num_rows
    assert decode_file_descriptor(parts[0]) == replace(decode_file_descriptor(data), num_rows=0)
    for other in (data + b"\x10\x05", data[:-1], data[:1], b"", parts[0], b"\x10\x05" + parts[0]):
        assert split_descriptor(other) is None


def test_rows_beyond_the_signed_numbers_are_left_to_the_general_parser() -> None:
    data = file_pb2.FileDescriptor(schema=file_pb2.Schema(metadata={"a": b"b"}), length=1 << 63).SerializeToString()
    assert split_descriptor(data) is None
    with pytest.raises(FormatError, match="rows"):
        decode_file_descriptor(data)


def of_items(num_items: int, **more: bytes) -> bytes:
    """The message of a mini-block page."""
    layout = pb.PageLayout()
    layout.mini_block_layout.value_compression.constant.value = more.get("value", b"\x48\x05")
    layout.mini_block_layout.layers.append(1)
    layout.mini_block_layout.num_items = num_items
    layout.mini_block_layout.has_large_chunk = True
    return layout.SerializeToString()


@pytest.mark.parametrize("num_items", [1, 5, 127, 128, 15_625, 1 << 31, (1 << 63) - 1])
def test_a_layout_around_its_number_of_items(num_items: int) -> None:
    for value in (b"", b"\x48\x05", bytes(300)):
        data = of_items(num_items, value=value)
        parts = split_items(data)
        assert parts is not None
        before, found, behind = parts
        assert found == num_items
        other = of_items(num_items ^ 1 or 1, value=value)  # a varint of the same length
        assert len(other) == len(data)
        assert before + data[len(before) : len(data) - len(behind)] + behind == data
        assert before + other[len(before) : len(data) - len(behind)] + behind == other


@pytest.mark.parametrize(
    "data",
    [
        b"",
        of_items(0),
        of_items(1 << 63),
        of_items(5)[:-1],
        of_items(5) + of_items(5),
        pb.PageLayout(full_zip_layout=pb.FullZipLayout(num_items=5)).SerializeToString(),
        b"\x0a\x04\x48\x05\x48\x06",
        b"\x0a\x03\x48\x05\x09",
        b"\x0a\x04\x48\x05\x92\x01",
    ],
)
def test_messages_of_another_form_are_not_split(data: bytes) -> None:
    assert split_items(data) is None
