"""Codec trees: `CompressiveEncoding` messages as checked, immutable values.

A page describes the compression of its buffers as a tree of messages. `decode_codec` checks the tree against the
grammar of file versions 2.1 and 2.2 and returns frozen nodes. Each node has

    program()   the bytes that the kernels read (format: `lance_io/_kernels.pyi`, "Programs")
    shape       the shape of the decoded values, independent of their compression
    str(node)   `general(zstd, inline_bitpacking(32))`, for `lance-io pages`

Specification: structural encodings 2.1, section 1 (messages and strict grammar), section 8 (bit-exact codecs).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from lance_io.errors import FormatError, UnsupportedError
from lance_io.limits import VALUE_BYTES_MAX
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.proto import encodings21_pb2 as pb

DEPTH_MAX: Final = 40  # fixed-size lists nest up to 32 deep; around and inside them are two or three more
LANE_BITS: Final = (8, 16, 32, 64)
FSST_TABLE_BYTES: Final = 2312  # spec: section 8.3
_FSST_MAGIC: Final = b"TSSF"
_FSST_LENGTHS: Final = bytes(range(1, 9))  # valid lengths of a symbol
BITS_MAX: Final = 1 << 31  # one value of 256 MiB: larger ones do not fit a chunk or a control word


# -- shapes of decoded values ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixedShape:
    """One buffer of values of `bits` each; a bitmap if `bits` is 1, only nulls if it is 0."""

    bits: int


@dataclass(frozen=True, slots=True)
class VariableShape:
    """Offsets of `offset_bits` each, and bytes."""

    offset_bits: int


@dataclass(frozen=True, slots=True)
class ListShape:
    """`items` values of `inner` per value, with or without a validity bitmap of their own."""

    items: int
    has_validity: bool
    inner: Shape


@dataclass(frozen=True, slots=True)
class ChildrenShape:
    """The members of a packed struct, in field order."""

    children: tuple[Shape, ...]


Shape: TypeAlias = FixedShape | VariableShape | ListShape | ChildrenShape


# -- nodes ------------------------------------------------------------------------------------------------------


def program_of(codec: Codec, value_bytes_max: int) -> bytes:
    """A codec as a kernel program that limits the decoded bytes of a value."""
    program = codec.program()
    return program if value_bytes_max == VALUE_BYTES_MAX else struct.pack("<BQ", 14, value_bytes_max) + program


@dataclass(frozen=True, slots=True)
class Flat:
    """Uncompressed values, little endian; below 8 bits a bitmap (4.1)."""

    bits: int

    @property
    def shape(self) -> Shape:
        return FixedShape(self.bits)

    def program(self) -> bytes:
        return struct.pack("<BI", 1, self.bits)

    def __str__(self) -> str:
        return f"flat({self.bits})"


@dataclass(frozen=True, slots=True)
class Variable:
    """Offsets, then bytes (4.2)."""

    offset_bits: int

    @property
    def shape(self) -> Shape:
        return VariableShape(self.offset_bits)

    def program(self) -> bytes:
        return struct.pack("<BB", 2, self.offset_bits)

    def __str__(self) -> str:
        return f"variable({self.offset_bits})"


@dataclass(frozen=True, slots=True)
class Constant:
    """One value, repeated; no payload."""

    value: bytes

    @property
    def shape(self) -> Shape:
        return FixedShape(len(self.value) * 8)

    def program(self) -> bytes:
        return struct.pack("<BI", 3, len(self.value)) + self.value

    def __str__(self) -> str:
        return "constant"


@dataclass(frozen=True, slots=True)
class NoValue:
    """A constant without a value: the items of fixed-size lists where every item is null. They take no bytes."""

    @property
    def shape(self) -> Shape:
        return FixedShape(0)

    def program(self) -> bytes:
        return struct.pack("<BI", 3, 0)

    def __str__(self) -> str:
        return "null"


@dataclass(frozen=True, slots=True)
class OutOfLineBitpacking:
    """FastLanes groups with one width for the whole buffer (8.0)."""

    bits: int
    packed_bits: int

    @property
    def shape(self) -> Shape:
        return FixedShape(self.bits)

    def program(self) -> bytes:
        return struct.pack("<BB", 4, self.bits) + Flat(self.packed_bits).program()

    def __str__(self) -> str:
        return f"bitpacking({self.bits} -> {self.packed_bits})"


@dataclass(frozen=True, slots=True)
class InlineBitpacking:
    """FastLanes groups of 1024, each with its width in front (4.3)."""

    bits: int

    @property
    def shape(self) -> Shape:
        return FixedShape(self.bits)

    def program(self) -> bytes:
        return struct.pack("<BB", 5, self.bits)

    def __str__(self) -> str:
        return f"inline_bitpacking({self.bits})"


@dataclass(frozen=True, slots=True)
class Fsst:
    """Strings coded with a symbol table of up to 255 symbols (8.3)."""

    symbol_table: bytes
    values: Variable

    @property
    def shape(self) -> Shape:
        return self.values.shape

    def program(self) -> bytes:
        return b"\x06" + self.symbol_table + self.values.program()

    def __str__(self) -> str:
        switch = "" if self.symbol_table[3] else "off, "
        return f"fsst({switch}{self.values})"


@dataclass(frozen=True, slots=True)
class Rle:
    """Runs: values, and lengths of 1 to 255 (4.4)."""

    values: Flat
    lengths: Flat

    @property
    def shape(self) -> Shape:
        return self.values.shape

    def program(self) -> bytes:
        return b"\x08" + self.values.program() + self.lengths.program()

    def __str__(self) -> str:
        return f"rle({self.values.bits})"


@dataclass(frozen=True, slots=True)
class ByteStreamSplit:
    """All first bytes, then all second bytes, ... (4.5)."""

    values: Flat

    @property
    def shape(self) -> Shape:
        return self.values.shape

    def program(self) -> bytes:
        return b"\x09" + self.values.program()

    def __str__(self) -> str:
        return f"byte_stream_split({self.values.bits})"


@dataclass(frozen=True, slots=True)
class General:
    """LZ4 or zstd around another codec (4.9, 8.5)."""

    scheme: str
    values: Codec

    @property
    def shape(self) -> Shape:
        return self.values.shape

    def program(self) -> bytes:
        return struct.pack("<BB", 10, 1 if self.scheme == "lz4" else 2) + self.values.program()

    def __str__(self) -> str:
        return f"{self.scheme}({self.values})"


@dataclass(frozen=True, slots=True)
class FixedSizeList:
    """Lists of one size whose items may have a validity bitmap (4.7)."""

    items: int
    has_validity: bool
    values: Codec

    @property
    def shape(self) -> Shape:
        return ListShape(self.items, self.has_validity, self.values.shape)

    def program(self) -> bytes:
        return struct.pack("<BIB", 11, self.items, self.has_validity) + self.values.program()

    def __str__(self) -> str:
        return f"fixed_size_list({self.items}{', nullable items' if self.has_validity else ''}, {self.values})"


@dataclass(frozen=True, slots=True)
class PackedStruct:
    """Rows of fixed-width members, back to back (4.8)."""

    bits: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        return ChildrenShape(tuple(FixedShape(bits) for bits in self.bits))

    def program(self) -> bytes:
        widths = struct.pack(f"<BI{len(self.bits)}I", 12, len(self.bits), *self.bits)
        return widths + Flat(sum(self.bits)).program()

    def __str__(self) -> str:
        return f"packed_struct({', '.join(map(str, self.bits))})"


@dataclass(frozen=True, slots=True)
class PackedMember:
    """One member of a `VariablePackedStruct`: `bits` per value, or of the length prefix if it is variable.

    A nested `VariablePackedStruct` is variable, even if all of its own members have a fixed width.
    """

    values: Codec
    bits: int
    is_variable: bool


@dataclass(frozen=True, slots=True)
class VariablePackedStruct:
    """Rows whose members may be of variable width, file version 2.2 (10.5)."""

    members: tuple[PackedMember, ...]

    @property
    def shape(self) -> Shape:
        return ChildrenShape(tuple(member.values.shape for member in self.members))

    def program(self) -> bytes:
        parts = [struct.pack("<BI", 13, len(self.members))]
        parts += [struct.pack("<BI", m.is_variable, m.bits) + m.values.program() for m in self.members]
        return b"".join(parts)

    def __str__(self) -> str:
        return f"packed_struct({', '.join(str(member.values) for member in self.members)})"


Codec: TypeAlias = (
    Flat
    | Variable
    | Constant
    | NoValue
    | OutOfLineBitpacking
    | InlineBitpacking
    | Fsst
    | Rle
    | ByteStreamSplit
    | General
    | FixedSizeList
    | PackedStruct
    | VariablePackedStruct
)


# -- messages to nodes --------------------------------------------------------------------------------------------


def decode_codec(message: pb.CompressiveEncoding, *, depth: int = 0) -> Codec:
    """The checked tree of one `CompressiveEncoding` message.

    Raises FormatError for a message that breaks the grammar, UnsupportedError for a codec of a later file version.
    """
    if depth > DEPTH_MAX:
        raise FormatError(f"codec messages nested deeper than {DEPTH_MAX}")
    kind = message.WhichOneof("compression")
    if kind is None:
        raise FormatError("a codec message without a codec this release knows (or an empty one)")
    decode = _DECODERS.get(kind)
    if decode is None:
        raise UnsupportedError(f"codec {kind!r} is not part of file versions 2.1 and 2.2")
    return decode(getattr(message, kind), depth + 1)


def decode_flat(message: pb.CompressiveEncoding, depth: int, what: str, widths: tuple[int, ...] | None = None) -> Flat:
    """Decode a child that must be `Flat`, with one of `widths` bits."""
    codec = decode_codec(message, depth=depth)
    if not isinstance(codec, Flat) or (widths is not None and codec.bits not in widths):
        allowed = "" if widths is None else f" of {', '.join(map(str, widths))} bits"
        raise FormatError(f"{what}: expected flat values{allowed}, found {codec}")
    return codec


def _flat(message: pb.Flat, depth: int) -> Codec:
    if not 1 <= message.bits_per_value < BITS_MAX:
        raise FormatError(f"flat values of {message.bits_per_value} bits; expected 1 to {BITS_MAX - 1}")
    if message.HasField("data"):
        raise UnsupportedError("flat values with a buffer compression of their own (never written by a release)")
    return Flat(message.bits_per_value)


def _variable(message: pb.Variable, depth: int) -> Codec:
    offsets = decode_flat(message.offsets, depth, "offsets of a variable codec", (32, 64))
    if message.HasField("values"):
        raise UnsupportedError("variable values with a buffer compression of their own (never written by a release)")
    return Variable(offsets.bits)


def _constant(message: pb.Constant, depth: int) -> Codec:
    if not message.HasField("value"):
        raise FormatError("constant codec without a value")
    return Constant(message.value)


def _lane(bits: int, what: str) -> int:
    if bits not in LANE_BITS:
        raise FormatError(f"{what} of {bits} bits; expected 8, 16, 32 or 64")
    return bits


def _out_of_line(message: pb.OutOfLineBitpacking, depth: int) -> Codec:
    bits = _lane(message.uncompressed_bits_per_value, "bit-packed values")
    # Unlike values, words of 0 bits occur: a page of many list items may have levels that are all 0.
    is_empty = message.values.WhichOneof("compression") == "flat" and not message.values.flat.bits_per_value
    packed = 0 if is_empty else decode_flat(message.values, depth, "packed values").bits
    if packed > bits:
        raise FormatError(f"{bits}-bit values packed to {packed} bits")
    return OutOfLineBitpacking(bits, packed)


def _inline(message: pb.InlineBitpacking, depth: int) -> Codec:
    if message.HasField("values"):
        raise UnsupportedError("bit-packed values with a buffer compression of their own (never written by a release)")
    return InlineBitpacking(_lane(message.uncompressed_bits_per_value, "bit-packed values"))


def _fsst(message: pb.Fsst, depth: int) -> Codec:
    values = decode_codec(message.values, depth=depth)
    if not isinstance(values, Variable):
        raise FormatError(f"FSST over {values}; expected variable values")
    return Fsst(check_symbols(message.symbol_table), values)


def check_symbols(table: bytes) -> bytes:
    """A symbol table, checked for the kernels. Raises FormatError for an invalid table."""
    if len(table) != FSST_TABLE_BYTES:
        raise FormatError(f"FSST symbol table of {len(table)} bytes; expected {FSST_TABLE_BYTES}")
    if table[4:8] != _FSST_MAGIC or table[3] > 1:
        raise FormatError(f"FSST symbol table begins with {table[:8].hex()}; expected 0 or 1 at 3 and 'TSSF' at 4")
    lengths = table[8 + 8 * table[0] : 8 + 9 * table[0]]
    if table[3] and lengths.translate(None, _FSST_LENGTHS):
        raise FormatError(f"an FSST symbol of {max(lengths) if max(lengths) > 8 else 0} bytes; expected 1 to 8")
    return table


def symbols_of(message: pb.CompressiveEncoding) -> pb.Fsst | None:
    """The FSST message, also inside general compression; None for other codecs."""
    if message.WhichOneof("compression") == "general":
        message = message.general.values
    return message.fsst if message.WhichOneof("compression") == "fsst" else None


def fsst_of(codec: Codec) -> Fsst | None:
    """The FSST node, also inside general compression; None for other codecs."""
    plain = codec.values if isinstance(codec, General) else codec
    return plain if isinstance(plain, Fsst) else None


def with_symbols(codec: Codec, table: bytes) -> Codec:
    """An FSST codec with another symbol table. Raises FormatError for an invalid table."""
    if isinstance(codec, General):
        return General(codec.scheme, with_symbols(codec.values, table))
    assert isinstance(codec, Fsst), "only strings have symbols"
    return Fsst(check_symbols(table), codec.values)


def _rle(message: pb.Rle, depth: int) -> Codec:
    values = decode_flat(message.values, depth, "RLE values", LANE_BITS)
    return Rle(values, decode_flat(message.run_lengths, depth, "RLE run lengths", (8,)))


def _split(message: pb.ByteStreamSplit, depth: int) -> Codec:
    return ByteStreamSplit(decode_flat(message.values, depth, "byte stream split", (32, 64)))


def _general(message: pb.General, depth: int) -> Codec:
    scheme = {1: "lz4", 2: "zstd"}.get(message.compression.scheme)
    if scheme is None:
        raise UnsupportedError(f"general compression scheme {message.compression.scheme}; this release knows 1 and 2")
    values = decode_codec(message.values, depth=depth)
    if isinstance(values, General):
        raise FormatError("general compression inside general compression")
    return General(scheme, values)


def _fixed_size_list(message: pb.FixedSizeList, depth: int) -> Codec:
    values = _list_items(message, depth)
    if not isinstance(values, Flat | FixedSizeList | NoValue):
        raise FormatError(f"fixed-size list over {values}; expected flat values or another fixed-size list")
    if not 0 < message.items_per_value < BITS_MAX:
        raise FormatError(f"fixed-size list of {message.items_per_value} items")
    return FixedSizeList(message.items_per_value, message.has_validity, values)


def _list_items(message: pb.FixedSizeList, depth: int) -> Codec:
    constant = message.values.constant if message.values.WhichOneof("compression") == "constant" else None
    if constant is not None and not constant.HasField("value"):
        if not message.has_validity:
            raise FormatError("fixed-size list whose items have neither values nor nulls")
        return NoValue()
    return decode_codec(message.values, depth=depth)


def _decode_packed(message: pb.PackedStruct, depth: int) -> Codec:
    bits = tuple(message.bits_per_value)
    if not bits or any(b == 0 or b % 8 or b >= BITS_MAX for b in bits):
        raise FormatError(f"packed struct with members of {list(bits)[:20]} bits; expected whole bytes")
    total = decode_flat(message.values, depth, "rows of a packed struct").bits
    if total != sum(bits):
        raise FormatError(f"packed struct rows of {total} bits; its members have {sum(bits)}")
    return PackedStruct(bits)


def _decode_variable_packed(message: pb.VariablePackedStruct, depth: int) -> Codec:
    members = []
    for index, member in enumerate(message.fields):
        values = decode_codec(member.value, depth=depth)
        # Rows of a nested packed struct have lengths as strings have, regardless of their members.
        is_variable = isinstance(values.shape, VariableShape) or isinstance(values, VariablePackedStruct)
        bits = member.bits_per_length if is_variable else member.bits_per_value
        if is_variable and bits not in (32, 64):
            raise FormatError(f"packed struct member {index}: length prefix of {bits} bits; expected 32 or 64")
        if not is_variable and (bits == 0 or bits % 8 or bits != shape_bits(values.shape)):
            raise FormatError(f"packed struct member {index}: {bits} bits announced for {values}")
        if not zips(values, with_lengths=is_variable):
            raise FormatError(f"packed struct member {index}: rows do not hold values of {values}")
        members.append(PackedMember(values, bits, is_variable))
    if not members:
        raise FormatError("packed struct without members")
    return VariablePackedStruct(tuple(members))


def zips(codec: Codec, *, with_lengths: bool) -> bool:
    """Whether a zipped row can hold single values of a codec (spec: 5.3).

    with_lengths  whether each value follows its length; otherwise all have one width
    """
    if with_lengths:
        plain = codec.values if isinstance(codec, General) else codec
        return isinstance(plain, Variable | Fsst) or isinstance(codec, VariablePackedStruct)
    return isinstance(codec, FixedSizeList | PackedStruct) or (isinstance(codec, Flat) and codec.bits % 8 == 0)


def shape_bits(shape: Shape) -> int:
    """Bits that a value of a shape takes in a zipped row; 0 for variable width (spec: 5.3)."""
    match shape:
        case FixedShape(bits):
            return bits
        case ListShape():
            return _list_bits(shape)
        case ChildrenShape(children):
            return sum(map(shape_bits, children))
        case _:
            return 0


def _list_bits(shape: ListShape) -> int:
    """Validity bitmaps of every list level, each padded to whole bytes, then the items."""
    total, count, inner = 0, 1, shape
    while True:
        count *= inner.items
        total += (count + 7) // 8 * 8 if inner.has_validity else 0
        if not isinstance(inner.inner, ListShape):
            break
        inner = inner.inner
    return total + (count * shape_bits(inner.inner) + 7) // 8 * 8


_DECODERS: Final[Mapping[str, Callable[..., Codec]]] = {
    "flat": _flat,
    "variable": _variable,
    "constant": _constant,
    "out_of_line_bitpacking": _out_of_line,
    "inline_bitpacking": _inline,
    "fsst": _fsst,
    "rle": _rle,
    "byte_stream_split": _split,
    "general": _general,
    "fixed_size_list": _fixed_size_list,
    "packed_struct": _decode_packed,
    "variable_packed_struct": _decode_variable_packed,
}
