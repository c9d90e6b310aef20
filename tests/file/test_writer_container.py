"""The container around pages: files of pylance, taken apart into pages and put together by us, read by pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader

from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.file.write.file_layout import INDEX_BUFFER_HELD_BYTES_MAX, FileLayout
from lance_io.proto import encodings21_pb2 as pb
from tests.encodings.harness import Opened, assert_same, write

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.file.open.data_file import OpenedFile


def pages_of(file: OpenedFile, data: bytes) -> list[list[EncodedPage]]:
    """The pages of every column as an encoder would have given them."""
    columns = []
    for index in range(len(file.paths)):
        info = file.info(index)
        columns.append([encoded(page, data) for page in info.pages])
    return columns


def encoded(page, data: bytes) -> EncodedPage:
    kind = pb.PageLayout.FromString(page.encoding).WhichOneof("layout")
    buffers = []
    for number, (offset, size) in enumerate(zip(page.buffer_offsets, page.buffer_sizes, strict=True)):
        is_index = number != 1 if kind == "mini_block_layout" else kind == "full_zip_layout" and number == 1
        half = size // 2
        parts = [data[offset : offset + half], data[offset + half : offset + size]]
        buffers.append(PageBuffer(Role.INDEX if is_index else Role.DATA, parts))
    return EncodedPage(page.num_rows, page.encoding, tuple(buffers))


def put_together(source: Path, target: Path, *, with_globals: bool = False) -> Opened:
    opened = Opened(source)
    file = opened.file
    places = FileLayout(file.version, len(file.paths))
    out: list = []
    if with_globals:
        for at, extra in enumerate((b"first", b"x" * 100, b"")):
            index, buffers = places.global_buffer(extra)
            assert index == at + 1
            out += buffers
    for index, pages in enumerate(pages_of(file, source.read_bytes())):
        first_row = 0
        for page in pages:
            for buffers in places.page(index, first_row, page):
                out += buffers
            first_row += page.num_rows
    for buffers in places.finish(file.descriptor.schema, file.descriptor.schema.metadata, file.num_rows):
        out += buffers
    target.write_bytes(b"".join(out))
    assert target.stat().st_size == places.size_bytes
    return opened


def sample() -> pa.Table:
    dice = np.random.default_rng(1)
    words = [f"word {i % 40}" if i % 7 else None for i in range(4000)]
    return pa.table(
        {
            "i": dice.integers(0, 1 << 40, 4000),
            "few": words,
            "lists": pa.array([[i] * (i % 4) for i in range(4000)]),
            "long": ["x" * (i % 900) for i in range(4000)],
            "nothing": pa.nulls(4000),
        }
    ).replace_schema_metadata({"a": "b", "c": "\u00e9"})


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pylance_reads_pages_whose_index_was_moved_to_the_end(version: str, tmp_path: Path) -> None:
    table = sample()
    source, target = tmp_path / "theirs.lance", tmp_path / "ours.lance"
    write(source, table, version, tiny_pages=True)
    put_together(source, target, with_globals=True)
    peer = PeerReader(str(target))
    assert peer.read_all().to_table().equals(table)
    assert peer.read_all().to_table().schema.metadata == table.schema.metadata
    rows = [0, 5, 17, 1111, 3999]
    assert peer.take_rows(rows).to_table().equals(table.take(rows))
    assert peer.read_range(777, 1500).to_table().equals(table.slice(777, 1500))
    assert [peer.read_global_buffer(i) for i in (1, 2, 3)] == [b"first", b"x" * 100, b""]
    ours = Opened(target)
    for column, expected in zip(ours.read(), table.columns, strict=True):
        assert_same(column, expected)


def test_held_buffers_lie_together_right_before_the_descriptor(tmp_path: Path) -> None:
    source, target = tmp_path / "theirs.lance", tmp_path / "ours.lance"
    write(source, sample(), "2.1", tiny_pages=True)
    before = put_together(source, target).file
    file = Opened(target).file
    held, data = [], []
    for index in range(len(file.paths)):
        for page, old in zip(file.info(index).pages, before.info(index).pages, strict=True):
            assert page.buffer_sizes == old.buffer_sizes and page.priority == old.priority
            kind = pb.PageLayout.FromString(page.encoding).WhichOneof("layout")
            for number, place in enumerate(zip(page.buffer_offsets, page.buffer_sizes, strict=True)):
                is_index = number != 1 if kind == "mini_block_layout" else kind == "full_zip_layout" and number == 1
                (held if is_index else data).append(place)
    descriptor_at = int(file.global_buffers.positions[0])
    region_at = min(offset for offset, _ in held)
    assert max(offset + size for offset, size in data) <= region_at
    assert sum(size + -size % 64 for _, size in held) == descriptor_at - region_at
    assert held == sorted(held)  # column by column


def test_bytes_are_those_of_pylance_where_nothing_moves(tmp_path: Path) -> None:
    """The example of the specification: one page whose chunk metadata lies first anyway, but for the region's place."""
    source, target = tmp_path / "theirs.lance", tmp_path / "ours.lance"
    write(source, pa.table({"c": pa.array([None, None], pa.int32())}), "2.1")
    put_together(source, target)
    assert target.read_bytes() == source.read_bytes()
    write(source, pa.table({"c": pa.array([], pa.int32())}), "2.2")
    put_together(source, target)
    assert target.read_bytes() == source.read_bytes()


def fake_page(sizes: dict[int, int], roles: dict[int, Role]) -> EncodedPage:
    buffers = tuple(PageBuffer(roles[at], [bytes([at]) * size]) for at, size in sizes.items())
    return EncodedPage(1, b"", buffers)


def test_what_is_held_is_bounded() -> None:
    from lance_io.file.write.file_layout import INDEX_BYTES_HELD_MAX
    from lance_io.format.version import V2_1

    places = FileLayout(V2_1, 1)
    index, data = Role.INDEX, Role.DATA
    page = fake_page({0: 60_000, 1: 100, 2: 60_000}, {0: index, 1: data, 2: index})
    highest = written = 0
    for number in range(600):
        for buffers in places.page(0, number, page):
            written += sum(map(len, buffers))
        highest = max(highest, places.held_bytes)
    assert highest <= INDEX_BYTES_HELD_MAX + page.buffers[0].num_bytes * 2
    assert written == places.size_bytes >= 4 * INDEX_BYTES_HELD_MAX
    big = INDEX_BUFFER_HELD_BYTES_MAX + 1
    places = FileLayout(V2_1, 1)
    sizes = {0: big, 1: 10, 2: big, 3: big - 1}
    (buffers,) = places.page(0, 0, fake_page(sizes, {0: index, 1: data, 2: index, 3: index}))
    assert sum(map(len, buffers)) == 64 + big + -big % 64  # data and the large dictionary
    assert places.held_bytes == big + big - 1
