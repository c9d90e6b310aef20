"""Column metadata that a kernel takes apart: what it accepts, the general parser reads in the same way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.columns import _decode_column, _ordinary_column, decode_column
from lance_io.format.footer import Footer
from lance_io.format.version import V2_0, V2_1, V2_2
from lance_io.limits import PAGE_ROWS_MAX
from lance_io.proto import encodings_pb2, file_pb2

FOOTER = Footer(1 << 20, 0, 0, 1, 1, V2_1, 1 << 21)


def packed_any(name: str, value: bytes) -> bytes:
    return AnyMessage(type_url=f"/{name}", value=value).SerializeToString()


def column(pages: list[tuple[list[int], list[int], int, int, bytes]]) -> file_pb2.ColumnMetadata:
    message = file_pb2.ColumnMetadata()
    values = encodings_pb2.ColumnEncoding()
    values.values.SetInParent()
    message.encoding.direct.encoding = packed_any("lance.encodings.ColumnEncoding", values.SerializeToString())
    for offsets, sizes, num_rows, first_row, layout in pages:
        page = message.pages.add(buffer_offsets=offsets, buffer_sizes=sizes, length=num_rows, priority=first_row)
        page.encoding.direct.encoding = packed_any("lance.encodings21.PageLayout", layout)
    return message


def some_pages(rng: random.Random, count: int) -> list[tuple[list[int], list[int], int, int, bytes]]:
    found = []
    for number in range(count):
        buffers = rng.randrange(4)
        offsets = [64 * rng.randrange(1 << 13) for _ in range(buffers)]
        sizes = [rng.randrange(1 << 10) for _ in range(buffers)]
        found.append(
            (offsets, sizes, rng.choice([0, 1, 200, 70_000]), number * 300, rng.randbytes(1 + rng.randrange(9)))
        )
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_messages_of_writers_are_taken_apart(count: int) -> None:
    pages = some_pages(random.Random(count), count)
    found = _ordinary_column(column(pages).SerializeToString(), 3, FOOTER)
    assert found is not None
    assert [tuple(page) for page in found.pages] == [
        (tuple(offsets), tuple(sizes), rows, first, "lance.encodings21.PageLayout", layout)
        for offsets, sizes, rows, first, layout in pages
    ]
    assert found.row_starts.tolist() == [sum(page[2] for page in pages[:at]) for at in range(count + 1)]


def test_whatever_is_accepted_is_what_the_general_parser_finds() -> None:
    rng = random.Random(7)
    accepted = 0
    for number in range(6000):
        data = bytearray(column(some_pages(rng, 1 + number % 3)).SerializeToString())
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at] = rng.randrange(256)
                case 2:
                    del data[at:]
                case _:
                    data[at:at] = rng.randbytes(1)
            if not data:
                break
        ordinary = _ordinary_column(bytes(data), 0, FOOTER)
        if ordinary is not None:
            accepted += 1
            general = _decode_column(bytes(data), 0, FOOTER, None)
            assert list(ordinary.pages) == list(general.pages)
            assert ordinary.row_starts.tolist() == general.row_starts.tolist()
            assert (general.buffer_offsets, general.buffer_sizes) == ((), ())
    assert accepted > 1000


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (([64], [1 << 20], 5, 0, b"x"), "runs past the data"),
        (([(1 << 64) - 64], [64], 5, 0, b"x"), "runs past the data"),
        (([32], [8], 5, 0, b"x"), "not aligned"),
        (([0, 64], [8], 5, 0, b"x"), "2 buffer offsets, but 1 buffer sizes"),
        (([0], [8], 1 << 62, 0, b"x"), "rows, at most"),
        (([0], [8], PAGE_ROWS_MAX + 1, 0, b"x"), "rows, at most"),
        (([0], [8], 5, (1 << 64) - 1, b"x"), "first row"),
        (([0], [8], 5, 1 << 63, b"x"), "first row"),
    ],
)
def test_what_is_refused_is_told_by_the_general_parser(
    page: tuple[list[int], list[int], int, int, bytes], text: str
) -> None:
    data = column([page]).SerializeToString()
    assert _ordinary_column(data, 0, FOOTER) is None
    with pytest.raises(FormatError, match=text):
        list(decode_column(data, 0, FOOTER).pages)


def in_general(data: bytes, number: int, footer: Footer) -> Any:
    return _decode_column(data, number, footer, None)


@pytest.mark.parametrize("parse", [_ordinary_column, in_general])
@pytest.mark.parametrize(
    "page",
    [([0], [8], PAGE_ROWS_MAX, 0, b"x"), ([0], [8], 5, (1 << 63) - 1, b"x"), ([(1 << 20) - 64], [64], 5, 0, b"x")],
    ids=["rows", "first row", "end of the data"],
)
def test_limits_belong_to_what_is_accepted(page: tuple[list[int], list[int], int, int, bytes], parse: Any) -> None:
    found = parse(column([page]).SerializeToString(), 0, FOOTER)
    assert [tuple(one)[:4] for one in found.pages] == [((page[0][0],), (page[1][0],), page[2], page[3])]
    assert found.row_starts.tolist() == [0, page[2]]


def test_only_the_page_type_of_the_file_version_is_accepted() -> None:
    data = column([([0], [8], 5, 0, b"x")]).SerializeToString()
    for version, is_accepted in ((V2_0, False), (V2_1, True), (V2_2, True)):
        footer = Footer(1 << 20, 0, 0, 1, 1, version, 1 << 21)
        assert (_ordinary_column(data, 0, footer) is not None) == is_accepted
    with pytest.raises(UnsupportedError, match="page encoding of type"):
        list(decode_column(data, 0, Footer(1 << 20, 0, 0, 1, 1, V2_0, 1 << 21)).pages)
