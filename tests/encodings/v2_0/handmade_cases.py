"""Files that no writer makes today, and their rows, which pylance reads (spec: encodings 2.0, 9, "reverse")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lz4.block
import numpy as np
import pyarrow as pa
import zstandard

from lance_io.proto import encodings_pb2 as pb
from tests.encodings.v2_0.handmade import (
    ALL_NULLS,
    HEADER,
    Array,
    Column,
    Page,
    binary,
    bits,
    buffer,
    dictionary,
    flat,
    lists,
    no_nulls,
    some_nulls,
    u64,
    write_by_hand,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Made:
    """A file of one field, and its rows."""

    name: str
    dtype: pa.DataType
    columns: list[Column]
    rows: list[Any]
    footer: tuple[int, int] = (0, 3)
    alignment: int = 64
    metadata: dict[str, str] | None = None

    def write(self, path: Path) -> None:
        schema = pa.schema([pa.field("c", self.dtype, metadata=self.metadata)])
        write_by_hand(path, schema, self.columns, len(self.rows), self.footer, self.alignment)


def ints(*values: int, dtype: str = "<i4") -> bytes:
    return np.array(values, dtype).tobytes()


INTS = Page(3, no_nulls(flat(32, 0)), [ints(1, 2, 3)])
NULLED = Page(3, some_nulls(flat(1, 0), flat(32, 1)), [bits([1, 0, 1]), ints(4, 99, 6)])
NONE = Page(2, ALL_NULLS)
INT_ROWS = [1, 2, 3, 4, None, 6, None, None]
X_YZ = binary(no_nulls(flat(64, 0)), flat(8, 1), 4)
NO_SYMBOLS = bytes(4) + b"TSSF" + bytes(2304)
TEXTS = Page(3, X_YZ, [u64(1, 5, 3), b"xyz"])


def pages() -> Iterator[Made]:
    three = [Column([INTS, NULLED, NONE])]
    yield Made("three kinds of pages", pa.int32(), three, INT_ROWS)
    yield Made("footer (2, 0)", pa.int32(), three, INT_ROWS, footer=(2, 0))
    yield Made("unaligned buffers", pa.int32(), three, INT_ROWS, alignment=1)
    yield Made(
        "unaligned long", pa.int64(), [Column([Page(3, flat(64, 0), [u64(7, 8, 9)])] * 3)], [7, 8, 9] * 3, alignment=3
    )
    yield Made("bare flat", pa.int32(), [Column([Page(3, flat(32, 0), [ints(1, 2, 3)])])], [1, 2, 3])
    empty = Page(0, no_nulls(flat(32, 0)), [b""])
    yield Made("pages of length 0", pa.int32(), [Column([empty, INTS, empty, NULLED, empty])], INT_ROWS[:6])
    odd = [Page(3, INTS.encoding, INTS.buffers, 77), Page(3, NULLED.encoding, NULLED.buffers, 5)]
    yield Made("priorities", pa.int32(), [Column(odd)], INT_ROWS[:6])
    own = Page(3, no_nulls(flat(32, 0, kind=pb.BUFFER_TYPE_COLUMN)))
    yield Made("buffer of the column", pa.int32(), [Column([own], [ints(1, 2, 3)])], [1, 2, 3])


def packed() -> Iterator[Made]:
    values = [i * 7 % 32 for i in range(1500)]
    stream = np.packbits([v >> b & 1 for v in values for b in range(5)], bitorder="little").tobytes()
    for signed in (False, True):
        rows = [v - 32 if signed and v >= 16 else v for v in values]
        message = pb.Bitpacked(
            compressed_bits_per_value=5, uncompressed_bits_per_value=32, buffer=buffer(0), signed=signed
        )
        dtype = pa.int32() if signed else pa.uint32()
        page = Page(1500, no_nulls(Array(bitpacked=message)), [stream])
        yield Made(f"bitpacked signed={signed}", dtype, [Column([page])], rows)
    for width in (8, 16, 32, 64):
        rows = [i * 13 % 128 for i in range(2100)]
        message = pb.BitpackedForNonNeg(
            compressed_bits_per_value=7, uncompressed_bits_per_value=width, buffer=buffer(0)
        )
        page = Page(2100, no_nulls(Array(bitpacked_for_non_neg=message)), [fastlanes(rows, 7, width)])
        yield Made(f"groups of {width} bits", getattr(pa, f"uint{width}")(), [Column([page])], rows)


def fastlanes(values: list[int], packed_bits: int, width: int) -> bytes:
    """Values in groups of 1024, by the definition (spec: 5.9)."""
    order, lanes, out = (0, 4, 2, 6, 1, 5, 3, 7), 1024 // width, b""
    values = values + [0] * (-len(values) % 1024)
    for start in range(0, len(values), 1024):
        words = [0] * (packed_bits * lanes)
        for lane in range(lanes):
            stream = sum(
                values[start + order[row // 8] * 16 + row % 8 * 128 + lane] << (row * packed_bits)
                for row in range(width)
            )
            for word in range(packed_bits):
                words[word * lanes + lane] = stream >> (word * width) & ((1 << width) - 1)
        out += np.array(words, f"<u{width // 8}").tobytes()
    return out


def compressed() -> Iterator[Made]:
    rows = list(range(500))
    raw = ints(*rows)
    frame = zstandard.ZstdCompressor().compress(raw)
    sized = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    forms = {
        "zstd behind its size": ("zstd", struct.pack("<Q", len(raw)) + frame),
        "bare zstd": ("zstd", sized),
        "lz4": ("lz4", struct.pack("<I", len(raw)) + lz4.block.compress(raw, store_size=False)),
        "none": ("none", raw),
    }
    for name, (scheme, data) in forms.items():
        yield Made(name, pa.int32(), [Column([Page(500, no_nulls(flat(32, 0, scheme)), [data])])], rows)
    shut = struct.pack("<Q", 3) + zstandard.ZstdCompressor().compress(b"xyz")
    page = Page(3, binary(no_nulls(flat(64, 0)), flat(8, 1, "zstd"), 4), [u64(1, 5, 3), shut])
    yield Made("zstd bytes of strings", pa.string(), [Column([page])], ["x", None, "yz"])


def texts() -> Iterator[Made]:
    rows = ["x", None, "yz"]
    for dtype in (pa.string(), pa.large_string()):
        yield Made(f"{dtype}", dtype, [Column([TEXTS, TEXTS])], rows * 2)
    wrapped = Page(3, binary(no_nulls(flat(64, 0)), no_nulls(flat(8, 1)), 4), TEXTS.buffers)
    yield Made("wrapped bytes", pa.string(), [Column([wrapped])], rows)
    outer = Page(
        3, some_nulls(flat(1, 0), binary(no_nulls(flat(64, 1)), flat(8, 2), 4)), [bits([0, 1, 1]), *TEXTS.buffers]
    )
    yield Made("nullable around strings", pa.string(), [Column([outer])], [None, "", "yz"])
    yield Made("all_nulls strings", pa.string(), [Column([NONE, TEXTS])], [None, None, *rows])
    fixed = Page(3, Array(fixed_size_binary=pb.FixedSizeBinary(bytes=flat(8, 0), byte_width=2)), [b"aabbcc"])
    yield Made("strings of one width", pa.string(), [Column([fixed])], ["aa", "bb", "cc"])
    offsets = Page(3, lists(no_nulls(flat(64, 0)), 3), [u64(1, 5, 3)])
    items = Page(3, no_nulls(flat(8, 0)), [b"xyz"])
    yield Made("strings as lists of bytes", pa.string(), [Column([offsets] * 2), Column([items] * 2)], rows * 2)
    table = bytes([2, 0, 0, 1]) + b"TSSF" + b"ab".ljust(8, b"\0") + b"xyz".ljust(8, b"\0") + bytes([2, 3])
    fsst = pb.Fsst(binary=binary(no_nulls(flat(64, 0)), flat(8, 1), 7), symbol_table=table.ljust(2312, b"\0"))
    page = Page(4, Array(fsst=fsst), [u64(2, 2 + 7, 5, 6), bytes([0, 1, 255, 65, 1, 0])])
    yield Made("symbols", pa.string(), [Column([page])], ["abxyz", None, "Axyz", "ab"])
    fsst = pb.Fsst(binary=X_YZ, symbol_table=NO_SYMBOLS)
    yield Made("symbols not used", pa.string(), [Column([Page(3, Array(fsst=fsst), TEXTS.buffers)])], rows)
    big = "".join(chr(97 + i % 26) for i in range(70_000))
    ends = [35_000, 70_000]
    fsst = pb.Fsst(binary=binary(no_nulls(flat(64, 0)), flat(8, 1), 70_001), symbol_table=NO_SYMBOLS)
    page = Page(2, Array(fsst=fsst), [u64(*ends), big.encode()])
    yield Made("large page of symbols not used", pa.string(), [Column([page])], [big[:35_000], big[35_000:]])


def dictionaries() -> Iterator[Made]:
    items = binary(no_nulls(flat(64, 1)), flat(8, 2), 4)
    buffers = [u64(1, 3), b"xyz"]
    plain = Page(4, dictionary(no_nulls(flat(8, 0)), items, 2), [bytes([1, 0, 2, 2]), *buffers])
    yield Made("string dictionary", pa.string(), [Column([plain, TEXTS])], ["x", None, "yz", "yz", "x", None, "yz"])
    moved = binary(no_nulls(flat(64, 2)), flat(8, 3), 4)
    nulled = Page(
        4,
        dictionary(some_nulls(flat(1, 0), flat(8, 1)), moved, 2),
        [bits([1, 1, 1, 0]), bytes([1, 0, 2, 2]), *buffers],
    )
    yield Made("string dictionary with validity", pa.string(), [Column([nulled])], ["x", None, "yz", None])
    typed = pa.dictionary(pa.int16(), pa.string())
    page = Page(4, dictionary(no_nulls(flat(16, 0)), items, 2), [ints(0, 1, 1, 0, dtype="<i2"), *buffers])
    yield Made("dictionary type", typed, [Column([page])], ["x", "yz", "yz", "x"])
    inner = dictionary(no_nulls(flat(16, 1)), moved, 2)
    page = Page(4, some_nulls(flat(1, 0), inner), [bits([1, 0, 1, 1]), ints(0, 1, 1, 0, dtype="<i2"), *buffers])
    yield Made("nullable around dictionary type", typed, [Column([page])], ["x", None, "yz", "x"])


def nested() -> Iterator[Made]:
    rows = [[7, 8], None, [9], [], [1, 2, 3]]
    offsets = [Page(3, lists(no_nulls(flat(64, 0)), 3), [u64(2, 6, 3)]), Page(2, lists(flat(64, 0), 3), [u64(0, 3)])]
    dtype = pa.list_(pa.int32())
    values = (7, 8, 9, 1, 2, 3)
    shared = Page(6, no_nulls(flat(32, 0)), [ints(*values)])
    yield Made("items in one page", dtype, [Column(offsets), Column([shared])], rows)
    split = [Page(n, no_nulls(flat(32, 0)), [ints(*values[a : a + n])]) for a, n in ((0, 1), (1, 3), (4, 2))]
    yield Made("items in split pages", dtype, [Column(offsets), Column(split)], rows)
    hidden = Page(3, lists(no_nulls(flat(64, 0)), 5), [u64(2, 4 + 6, 5)])
    page = Page(5, no_nulls(flat(32, 0)), [ints(7, 8, 98, 99, 9)])
    yield Made("hidden items", dtype, [Column([hidden]), Column([page])], [[7, 8], None, [9]])
    inner = [
        Page(2, lists(no_nulls(flat(64, 0)), 3), [u64(2, 3)]),
        Page(3, lists(no_nulls(flat(64, 0)), 3), [u64(0, 4, 3)]),
    ]
    outer = [
        Page(2, lists(no_nulls(flat(64, 0)), 2), [u64(1, 2)]),
        Page(2, lists(no_nulls(flat(64, 0)), 3), [u64(3, 7)]),
    ]
    deep = [[[7, 8]], [[9]], [[], None, [1, 2, 3]], None]
    yield Made("lists of lists", pa.list_(dtype), [Column(outer), Column(inner), Column([shared])], deep)
    member = pa.struct([("a", pa.int32()), ("s", pa.string())])
    header = Page(6, HEADER)
    strings = Page(6, binary(no_nulls(flat(64, 0)), flat(8, 1), 4), [u64(1, 5, 3, 3, 3, 3), b"xyz"])
    texts = ["x", None, "yz", "", "", ""]
    structs = [dict(a=a, s=s) for a, s in zip(values, texts, strict=True)]
    found = [structs[:2], None, structs[2:3], [], structs[3:]]
    columns = [Column(offsets), Column([header]), Column(split), Column([strings])]
    yield Made("lists of structs", pa.list_(member), columns, found)
    row = np.zeros(3, dtype=[("a", "<i4"), ("b", "i1")])
    row["a"], row["b"] = [1, 2, 3], [4, 5, 6]
    page = Page(
        3, Array(packed_struct=pb.PackedStruct(inner=[flat(32, 0), flat(8, 0)], buffer=buffer(0))), [row.tobytes()]
    )
    packed_type = pa.struct([("a", pa.int32()), ("b", pa.int8())])
    rows_of = [dict(a=a, b=b) for a, b in ((1, 4), (2, 5), (3, 6))]
    yield Made("packed struct", packed_type, [Column([page])], rows_of, metadata={"packed": "true"})


def blobs() -> Made:
    """Descriptions in two pages, behind the bytes; one value is at the start of the file, one is a part of it."""
    rows = [b"at the start", None, b"", b"start", b"of the file", b""]
    places = [(0, 12), (1, 0), (0, 0), (7, 5), (12, 11), (0, 0)]
    described = Array(packed_struct=pb.PackedStruct(inner=[flat(64, 0)] * 2, buffer=buffer(0)))
    found = [Page(len(part), described, [u64(*sum(part, ()))]) for part in (places[:4], places[4:])]
    encoding = pb.ColumnEncoding(blob=pb.Blob(inner=pb.ColumnEncoding(values={})))
    column = Column(found, encoding=encoding, payload=b"at the startof the file")
    return Made("blobs", pa.large_binary(), [column], rows, metadata={"lance-encoding:blob": "true"})


MADE = [one for group in (pages, packed, compressed, texts, dictionaries, nested) for one in group()]
