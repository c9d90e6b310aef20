"""Footer, offset tables, descriptor and column metadata: the worked example, real files, and damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader as OurFileReader
from lance_io.format.columns import ColumnInfo, decode_column, decode_column_table
from lance_io.format.footer import FOOTER_BYTES, Footer, decode_footer
from lance_io.format.globals import FileDescriptor, decode_file_descriptor, decode_globals_table
from lance_io.format.version import V2_1, V2_2, VERSION_OF_PAIR, FileVersion, check_readable, version_of_name
from lance_io.limits import METADATA_BYTES_MAX
from lance_io.proto import file_pb2

DATASETS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets"


def parse_file(data: bytes) -> tuple[Footer, FileDescriptor, list[ColumnInfo]]:
    """Everything around the pages of a file."""
    footer = decode_footer(data[-FOOTER_BYTES:], file_bytes=len(data))
    columns = decode_column_table(data[footer.column_table_at :], footer)
    globals_ = decode_globals_table(data[footer.globals_table_at :], footer)
    start, size = int(globals_.positions[0]), int(globals_.sizes[0])
    descriptor = decode_file_descriptor(data[start : start + size])
    spans = zip(columns.positions.tolist(), columns.sizes.tolist(), strict=True)
    infos = [decode_column(data[at : at + length], index, footer) for index, (at, length) in enumerate(spans)]
    for info in infos:
        list(info.pages)  # decodes them
    return footer, descriptor, infos


def any_message(url: str, value: bytes) -> bytes:
    return bytes([0x0A, len(url)]) + url.encode() + bytes([0x12, len(value)]) + value


LAYOUT = bytes.fromhex("0a13 12040a020810 1a040a020820 320103 3801 4803")


@pytest.fixture
def example() -> bytes:
    """The file of the worked example in the format notes, put together by hand: [10, null, 30] as int32."""
    pages = bytes.fromhex("3000") + b"H" * 62 + bytes.fromhex("030006000c00fefe") + bytes(24) + b"H" * 32
    descriptor = bytes.fromhex("0a1b0a1912016320ffffffffffffffffff012a05696e743332300138011003")
    encoding = any_message("/lance.encodings.ColumnEncoding", bytes.fromhex("0a00"))
    layout = any_message("/lance.encodings21.PageLayout", LAYOUT)
    page = bytes.fromhex("0a020040 12020220 1803 22") + bytes([len(layout) + 4, 0x12, len(layout) + 2])
    page += bytes([0x0A, len(layout)]) + layout
    column = bytes([0x0A, len(encoding) + 4, 0x12, len(encoding) + 2, 0x0A, len(encoding)]) + encoding
    column += bytes([0x12, len(page)]) + page
    body = pages + descriptor + column
    assert (len(pages), len(body)) == (0x80, 0x112)
    tables = struct.pack("<4Q", 0x9F, len(column), 0x80, len(descriptor))
    return body + tables + struct.pack("<QQQIIHH4s", 0x9F, 0x112, 0x122, 1, 1, 2, 1, b"LANC")


def test_the_worked_example(example):
    assert len(example) == 346
    footer, descriptor, [column] = parse_file(example)
    assert footer == Footer(0x9F, 0x112, 0x122, 1, 1, V2_1, 346)
    assert descriptor.num_rows == 3
    assert descriptor.schema.to_arrow() == pa.schema([("c", pa.int32())])
    [page] = column.pages
    assert (page.buffer_offsets, page.buffer_sizes, page.num_rows, page.priority) == ((0, 64), (2, 32), 3, 0)
    assert page.type_name == "lance.encodings21.PageLayout"
    assert page.encoding == LAYOUT
    assert column.row_starts.tolist() == [0, 3]


def files_of(version: str) -> list[Path]:
    found = DATASETS.glob(f"generated/*@{version}/**/*.lance")
    return sorted(path for path in found if path.is_file())


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_files_of_the_peer_are_consistent(version):
    files = files_of(version)
    assert len(files) > 10
    for path in files:
        footer, descriptor, columns = parse_file(path.read_bytes())
        assert footer.version.name == version
        assert len(list(descriptor.schema.leaves())) == footer.num_columns
        for column in columns:
            assert column.num_rows == descriptor.num_rows
            assert [page.priority for page in column.pages] == column.row_starts[:-1].tolist()
        assert descriptor.schema.to_arrow() is not None


def test_metadata_agrees_with_the_peers_reader(tmp_path):
    path = tmp_path / "f.lance"
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string()), ("l", pa.list_(pa.int8()))]))])
    with LanceFileWriter(str(path), schema, version="2.2", data_cache_bytes=1000) as writer:
        for start in range(0, 5000, 1000):
            rows = [{"a": i, "s": {"x": str(i), "l": [1] * (i % 4)}} for i in range(start, start + 1000)]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
        writer.add_global_buffer(b"extra")
    footer, descriptor, columns = parse_file(path.read_bytes())
    theirs = LanceFileReader(str(path)).metadata()
    assert footer.version == V2_2
    assert (descriptor.num_rows, descriptor.schema.to_arrow()) == (theirs.num_rows, theirs.schema)
    assert footer.num_globals == 2
    for mine, other in zip(columns, theirs.columns, strict=True):
        assert [page.buffer_sizes for page in mine.pages] == [tuple(b.size for b in p.buffers) for p in other.pages]
        offsets = [tuple(b.position for b in page.buffers) for page in other.pages]
        assert [page.buffer_offsets for page in mine.pages] == offsets
    assert len(columns[0].pages) > 1
    ours = OurFileReader(path).metadata()
    assert sizes(ours) == sizes(theirs)
    for library in (LanceFileReader, OurFileReader):
        (tmp_path / "other.lance").write_bytes(bytes(100))
        with pytest.raises(OSError, match="does not appear to be a Lance file"):
            library(str(tmp_path / "other.lance"))


def sizes(metadata):
    buffers = [(one.position, one.size) for one in metadata.global_buffers]
    counts = metadata.num_data_bytes, metadata.num_column_metadata_bytes, metadata.num_global_buffer_bytes
    return metadata.num_rows, *counts, buffers, metadata.major_version, metadata.minor_version


def test_blob_descriptions_become_members_of_their_struct():
    [path] = [path for path in files_of("2.2") if "blobs_v2" in str(path)][:1]
    _footer, descriptor, _columns = parse_file(path.read_bytes())
    blob = descriptor.schema.field("blob")
    assert [child.name for child in blob.children] == ["kind", "position", "size", "blob_id", "blob_uri"]
    assert blob.describe_blobs() == blob


@pytest.mark.parametrize("version", ["0.1"])
def test_older_versions_are_named(version):
    path = next(path for path in files_of(version))
    data = path.read_bytes()
    with pytest.raises(UnsupportedError, match=version):
        check_readable(decode_footer(data[-FOOTER_BYTES:], file_bytes=len(data)).version)


def test_versions_have_names_and_an_age():
    assert VERSION_OF_PAIR[0, 3] == VERSION_OF_PAIR[2, 0] == version_of_name("2.0") == FileVersion(2, 0)
    assert version_of_name("legacy") < version_of_name("0.3") < V2_1 < version_of_name("stable")
    for wrong in (lambda: VERSION_OF_PAIR[3, 0], lambda: version_of_name("9")):
        with pytest.raises(UnsupportedError, match="unknown file version"):
            wrong()


def with_column(example: bytes, edit) -> bytes:
    """The example with its column metadata changed by `edit` (the tables follow)."""
    message = file_pb2.ColumnMetadata.FromString(example[0x9F:0x112])
    edit(message)
    column = message.SerializeToString()
    end = 0x9F + len(column)
    tables = struct.pack("<4Q", 0x9F, len(column), 0x80, 31)
    return example[:0x9F] + column + tables + struct.pack("<QQQIIHH4s", 0x9F, end, end + 16, 1, 1, 2, 1, b"LANC")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: m.ClearField("encoding"), "column 0: column encoding is missing"),
        (lambda m: m.pages[0].ClearField("encoding"), "column 0, page 0: page encoding is missing"),
        (lambda m: m.pages[0].buffer_sizes.append(1), "column 0, page 0: 2 buffer offsets, but 3"),
        (lambda m: m.pages[0].buffer_offsets.__setitem__(1, 65), "not aligned"),
        (lambda m: m.pages[0].buffer_sizes.__setitem__(1, 200), "runs past the data"),
        (lambda m: m.pages[0].buffer_offsets.__setitem__(1, (1 << 64) - 64), "runs past the data"),
        (lambda m: setattr(m.pages[0], "length", 1 << 40), "at most"),
        (lambda m: setattr(m.pages[0].encoding.direct, "encoding", b"\xff\xff"), "page encoding: expected a protobuf"),
    ],
)
def test_damaged_column_metadata_is_located(example, edit, words):
    with pytest.raises(FormatError, match=words):
        parse_file(with_column(example, edit))


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.encoding.none.SetInParent(),
        lambda m: m.encoding.indirect.SetInParent(),
        lambda m: setattr(m.encoding.direct, "encoding", any_message("/other.Thing", b"")),
        lambda m: setattr(m.pages[0].encoding.direct, "encoding", any_message("/lance.encodings.ArrayEncoding", b"")),
    ],
)
def test_other_kinds_of_encodings_are_unsupported(example, edit):
    with pytest.raises(UnsupportedError):
        parse_file(with_column(example, edit))


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (0x112, struct.pack("<Q", 0x9E), "column metadata 0"),
        (0x112, struct.pack("<Q", (1 << 64) - 1), "column metadata 0"),
        (0x112, struct.pack("<Q", 0xA0), "column metadata"),
        (0x122, struct.pack("<Q", 0x81), "global buffer 0"),
        (0x122, struct.pack("<Q", 0x40), "file descriptor"),
        (346 - 12, struct.pack("<I", 2), "overlap or leave gaps"),
        (346 - 12, struct.pack("<I", 0xFFFFFFFF), "overlap or leave gaps"),
        (346 - 16, struct.pack("<I", 0), "overlap or leave gaps"),
        (346 - 40, struct.pack("<Q", 0x113), "overlap or leave gaps"),
        (346 - 4, b"LAND", "last 4 bytes"),
    ],
)
def test_damaged_tables_are_refused(example, position, value, words):
    data = bytearray(example)
    data[position : position + len(value)] = value
    with pytest.raises(FormatError, match=words):
        parse_file(bytes(data))


def footer_of(metadata_bytes: int, columns_at: int = 0) -> Footer:
    """Read from a file of which all but its footer is metadata of one column, and its two tables."""
    file_bytes = columns_at + metadata_bytes
    globals_at = file_bytes - FOOTER_BYTES - 16
    tail = struct.pack("<QQQIIHH4s", columns_at, globals_at - 16, globals_at, 1, 1, 2, 1, b"LANC")
    return decode_footer(tail, file_bytes=file_bytes)


@pytest.mark.parametrize("columns_at", [0, 1 << 40])
def test_metadata_have_a_limit(columns_at):
    """It is they that are counted, and neither the file nor what lies before them."""
    assert footer_of(METADATA_BYTES_MAX, columns_at).columns_at == columns_at
    with pytest.raises(FormatError, match=f"column metadata of {METADATA_BYTES_MAX + 1} bytes, at most"):
        footer_of(METADATA_BYTES_MAX + 1, columns_at)


@pytest.mark.parametrize(("size", "is_refused"), [(METADATA_BYTES_MAX, False), (METADATA_BYTES_MAX + 1, True)])
def test_descriptors_have_a_limit(size, is_refused):
    footer = Footer(1 << 30, 1 << 30, 1 << 30, 1, 0, V2_1, (1 << 30) + 16 + FOOTER_BYTES)
    table = struct.pack("<QQ", 0, size)
    if not is_refused:
        assert decode_globals_table(table, footer).sizes.tolist() == [size]
        return
    with pytest.raises(FormatError, match="file descriptor of"):
        decode_globals_table(table, footer)


@pytest.mark.parametrize(("length", "is_refused"), [((1 << 63) - 1, False), (1 << 63, True)])
def test_files_have_no_more_rows_than_63_bits_count(length, is_refused):
    data = file_pb2.FileDescriptor(length=length).SerializeToString()
    if not is_refused:
        assert decode_file_descriptor(data).num_rows == length
        return
    with pytest.raises(FormatError, match=f"{length} rows"):
        decode_file_descriptor(data)


def survives(data: bytes) -> bool:
    """True when the container parses; any error but the two named ones fails the test."""
    try:
        parse_file(data)
    except (FormatError, UnsupportedError):
        return False
    return True


def test_every_truncation_is_refused(example):
    assert not any(survives(example[:length]) for length in range(len(example)))


def test_flipped_bytes_give_values_or_the_named_errors(example):
    nested = next(path for path in files_of("2.2") if "nested" in str(path)).read_bytes()
    flips = random.Random(1)
    for data in (example, nested):
        start = decode_footer(data[-FOOTER_BYTES:], file_bytes=len(data)).columns_at - 64
        positions = range(start, len(data)) if data is example else flips.sample(range(start, len(data)), 1500)
        for position in positions:
            damaged = bytearray(data)
            damaged[position] ^= 1 << flips.randrange(8)
            survives(bytes(damaged))
