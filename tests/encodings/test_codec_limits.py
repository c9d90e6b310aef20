"""What messages of codecs may announce at most: the last that is accepted, and the first that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.codecs.tree import BITS_MAX, DEPTH_MAX, FixedSizeList, Flat, PackedStruct, decode_codec
from lance_io.errors import FormatError, UnsupportedError
from lance_io.proto import encodings21_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.codecs.tree import Codec


def flat(bits: int) -> pb.CompressiveEncoding:
    message = pb.CompressiveEncoding()
    message.flat.bits_per_value = bits
    return message


def nested(depth: int) -> pb.CompressiveEncoding:
    """Fixed-size lists of one item around a number."""
    message = flat(8)
    for _ in range(depth):
        outer = pb.CompressiveEncoding()
        outer.fixed_size_list.items_per_value = 1
        outer.fixed_size_list.values.CopyFrom(message)
        message = outer
    return message


def vectors(num_items: int) -> pb.CompressiveEncoding:
    message = nested(1)
    message.fixed_size_list.items_per_value = num_items
    return message


def packed(*bits: int) -> pb.CompressiveEncoding:
    message = pb.CompressiveEncoding()
    message.packed_struct.bits_per_value.extend(bits)
    message.packed_struct.values.CopyFrom(flat(sum(bits)))
    return message


def packed_rows(member: pb.CompressiveEncoding, **bits: int) -> pb.CompressiveEncoding:
    """A packed struct of rows whose one member takes so many `bits_per_value`, or `bits_per_length`."""
    message = pb.CompressiveEncoding()
    message.variable_packed_struct.fields.add(value=member, **bits)
    return message


def zstd(values: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    message = pb.CompressiveEncoding()
    message.general.compression.scheme = 2
    message.general.values.CopyFrom(values)
    return message


ROWS = packed_rows(flat(32), bits_per_value=32)


def depth_of(codec: Codec) -> int:
    return 1 + depth_of(codec.values) if isinstance(codec, FixedSizeList) else 0


@pytest.mark.parametrize(
    ("message", "is_read"),
    [
        (flat(1), lambda codec: codec == Flat(1)),
        (flat(BITS_MAX - 1), lambda codec: codec == Flat(BITS_MAX - 1)),
        (vectors(1), lambda codec: codec.items == 1),
        (vectors(BITS_MAX - 1), lambda codec: codec.items == BITS_MAX - 1),
        (packed(8, BITS_MAX - 16), lambda codec: codec == PackedStruct((8, BITS_MAX - 16))),
        (nested(DEPTH_MAX), lambda codec: depth_of(codec) == DEPTH_MAX),
        (packed_rows(ROWS, bits_per_length=32), lambda codec: codec.members[0].is_variable),
        (packed_rows(ROWS, bits_per_length=64), lambda codec: codec.members[0].bits == 64),
    ],
    ids=["1 bit", "bits", "1 item", "items", "members", "depth", "rows in rows", "long rows in rows"],
)
def test_limits_belong_to_what_is_accepted(message: pb.CompressiveEncoding, is_read: Callable[[Codec], bool]) -> None:
    assert is_read(decode_codec(message))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (flat(0), "flat values of 0 bits"),
        (flat(BITS_MAX), f"flat values of {BITS_MAX} bits"),
        (vectors(0), "fixed-size list of 0 items"),
        (vectors(BITS_MAX), f"fixed-size list of {BITS_MAX} items"),
        (packed(8, BITS_MAX), "members of"),
        (packed(8, 0), "members of"),
        (nested(DEPTH_MAX + 1), f"nested deeper than {DEPTH_MAX}"),
        (packed_rows(flat(32)), "0 bits announced for flat"),
        (packed_rows(flat(32), bits_per_value=0), "0 bits announced for flat"),
        (packed_rows(flat(32), bits_per_length=32), "0 bits announced for flat"),
        (packed_rows(vectors(1), bits_per_length=32), "0 bits announced for fixed_size_list"),
        (packed_rows(ROWS), "length prefix of 0 bits"),
        (packed_rows(ROWS, bits_per_value=32), "length prefix of 0 bits"),
        (packed_rows(ROWS, bits_per_length=0), "length prefix of 0 bits"),
        (packed_rows(ROWS, bits_per_length=16), "length prefix of 16 bits"),
        (packed_rows(ROWS, bits_per_length=128), "length prefix of 128 bits"),
        (packed_rows(packed(32), bits_per_length=32), "0 bits announced for packed_struct"),
        (packed_rows(zstd(ROWS), bits_per_value=32), "rows do not hold values of zstd"),
        (packed_rows(zstd(flat(32)), bits_per_value=32), "rows do not hold values of zstd"),
    ],
)
def test_what_is_beyond_them_is_refused(message: pb.CompressiveEncoding, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_codec(message)


def vectors_of_vectors(depth: int, items: pa.DataType) -> pa.Table:
    dtype: pa.DataType = items
    value: Any = 5
    for _ in range(depth):
        dtype, value = pa.list_(dtype, 1), [value]
    return pa.table({"v": pa.array([value, value], dtype)})


@pytest.mark.parametrize("items", [pa.int8(), pa.float64()], ids=str)
@pytest.mark.parametrize("depth", [15, 16, 17, 31, 32])
def test_vectors_nest_as_deep_as_their_types_may(tmp_path: Path, depth: int, items: pa.DataType) -> None:
    rows = vectors_of_vectors(depth, items)
    for version in ("2.1", "2.2"):
        for wrote in (lance, lance_io):
            uri = str(tmp_path / f"{wrote.__name__}{version}")
            wrote.write_dataset(rows, uri, data_storage_version=version)
            for reader in (lance, lance_io):
                assert reader.dataset(uri).to_table() == rows
                assert reader.dataset(uri).take([1]) == rows.slice(1)


def test_deeper_types_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="nested more than 32 deep"):
        lance_io.write_dataset(vectors_of_vectors(33, pa.int8()), tmp_path / "t")
    assert not (tmp_path / "t").exists()
