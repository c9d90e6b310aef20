"""Codecs and containers of file version 2.1 in plain Python, written from encoding-2.1.md.

Integers are lists, bitmaps are lists of bools: nothing here is fast, and nothing knows how the kernels do it. Encoders
make the bytes of a page, `Codec` constants make the programs that describe them (`lance_io/_kernels.pyi`, "Programs").
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GROUP = 1024
LANE_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
PAD = b"\xfe"

# -- programs --------------------------------------------------------------------------------------------------------


def flat(bits: int) -> bytes:
    return struct.pack("<BI", 1, bits)


def variable(offset_bits: int = 32) -> bytes:
    return bytes([2, offset_bits])


def out_of_line(bits: int, packed: int) -> bytes:
    return bytes([4, bits]) + flat(packed)


def inline_bitpacking(bits: int) -> bytes:
    return bytes([5, bits])


def fsst(table: bytes, offset_bits: int = 32) -> bytes:
    return b"\x06" + table + variable(offset_bits)


def rle(bits: int) -> bytes:
    return b"\x08" + flat(bits) + flat(8)


def byte_stream_split(bits: int) -> bytes:
    return b"\x09" + flat(bits)


def general(scheme: str, codec: bytes) -> bytes:
    return bytes([10, {"lz4": 1, "zstd": 2}[scheme]]) + codec


def fixed_size_list(items: int, has_validity: bool, codec: bytes) -> bytes:
    return struct.pack("<BIB", 11, items, has_validity) + codec


def packed_struct(*bits: int) -> bytes:
    return struct.pack(f"<BI{len(bits)}I", 12, len(bits), *bits) + flat(sum(bits))


def variable_packed(*children: tuple[bool, int, bytes]) -> bytes:
    parts = (struct.pack("<BI", is_variable, bits) + codec for is_variable, bits, codec in children)
    return struct.pack("<BI", 13, len(children)) + b"".join(parts)


def miniblock(
    layers: Sequence[int],
    values: bytes,
    *,
    num_buffers: int = 1,
    wide: bool = False,
    rep: bytes | None = None,
    definition: bytes | None = None,
    dictionary: bytes = b"\x00",
) -> bytes:
    flags = (1 if wide else 0) | (2 if rep else 0) | (4 if definition else 0)
    head = bytes([flags, num_buffers, len(layers), *layers])
    return head + (rep or b"") + (definition or b"") + values + dictionary


def fullzip(layers: Sequence[int], codec: bytes, bits: int, *, rep: int = 0, definition: int = 0, var: bool) -> bytes:
    return struct.pack("<BBBI", rep, definition, var, bits) + bytes([len(layers), *layers]) + codec


# -- bytes of values (4, 8) ------------------------------------------------------------------------------------------


def ints(values: Iterable[int], bits: int) -> bytes:
    return b"".join(value.to_bytes(bits // 8, "little") for value in values)


def bitmap(bits: Sequence[bool]) -> bytes:
    """LSB first, padded with zeros to a byte."""
    return sum(bit << place for place, bit in enumerate(bits)).to_bytes((len(bits) + 7) // 8, "little")


def pack_group(values: Sequence[int], bits: int, width: int) -> bytes:
    """Up to 1024 values, filled with zeros, in the FastLanes layout of 8.1."""
    values = [*values, *[0] * (GROUP - len(values))]
    lanes = GROUP // bits
    words = [0] * (GROUP * width // bits)
    for lane in range(lanes):
        stream = 0
        for row in range(bits):
            index = LANE_ORDER[row // 8] * 16 + (row % 8) * 128 + lane
            stream |= values[index] << (row * width)
        for word in range(width):
            words[word * lanes + lane] = (stream >> (word * bits)) & ((1 << bits) - 1)
    return ints(words, bits)


def inline_packed(values: Sequence[int], bits: int, width: int) -> bytes:
    return ints([width], bits) + pack_group(values, bits, width)


def out_of_line_packed(values: Sequence[int], bits: int, width: int, *, pack_tail: bool) -> bytes:
    full = len(values) // GROUP * GROUP
    groups = [pack_group(values[at : at + GROUP], bits, width) for at in range(0, full, GROUP)]
    tail = values[full:]
    groups.append(pack_group(tail, bits, width) if pack_tail and tail else ints(tail, bits))
    return b"".join(groups)


def runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """`(value, length)` with lengths of at most 255."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][0] == value and found[-1][1] < 255:
            found[-1] = (value, found[-1][1] + 1)
        else:
            found.append((value, 1))
    return found


def rle_encoded(values: Sequence[int], bits: int) -> tuple[bytes, bytes]:
    found = runs(values)
    return ints((value for value, _ in found), bits), bytes(length for _, length in found)


def byte_planes(values: Sequence[int], bits: int) -> bytes:
    raw = [value.to_bytes(bits // 8, "little") for value in values]
    return b"".join(bytes(value[plane] for value in raw) for plane in range(bits // 8))


def variable_values(values: Sequence[bytes], offset_bits: int = 32) -> bytes:
    """Offsets from the start of the buffer, bytes, padding with 'H' (4.2)."""
    width = offset_bits // 8
    offsets = [(len(values) + 1) * width]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    body = ints(offsets, offset_bits) + b"".join(values)
    return body + b"H" * (-len(body) % width)


def variable_block(values: Sequence[bytes], offset_bits: int = 32) -> bytes:
    """A dictionary of variable-width values (8.0)."""
    width = offset_bits // 8
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    head = ints([offset_bits, (len(offsets) + 2) * width], offset_bits)
    return head + ints(offsets, offset_bits) + b"".join(values)


# -- FSST (8.3) ------------------------------------------------------------------------------------------------------


def symbol_table(symbols: Sequence[bytes], *, coded: bool = True) -> bytes:
    table = bytes([len(symbols), 0, 0, coded]) + b"TSSF"
    table += b"".join(symbol.ljust(8, b"\0") for symbol in symbols) + bytes(map(len, symbols))
    return table.ljust(2312, b"\0")


def fsst_coded(value: bytes, symbols: Sequence[bytes]) -> bytes:
    """Greedy parse: the longest symbol that fits, else an escape."""
    codes = bytearray()
    at = 0
    while at < len(value):
        fitting = [code for code, symbol in enumerate(symbols) if value.startswith(symbol, at)]
        if fitting:
            code = max(fitting, key=lambda code: len(symbols[code]))
            codes.append(code)
            at += len(symbols[code])
        else:
            codes += bytes([255, value[at]])
            at += 1
    return bytes(codes)


# -- containers (3.2, 5.1) -------------------------------------------------------------------------------------------


def padded(data: bytes) -> bytes:
    return data + PAD * (-len(data) % 8)


def chunk(
    buffers: Sequence[bytes],
    *,
    num_levels: int = 0,
    rep: bytes | None = None,
    definition: bytes | None = None,
    wide: bool = False,
) -> bytes:
    head = struct.pack("<H", num_levels)
    for levels in (rep, definition):
        head += b"" if levels is None else struct.pack("<H", len(levels))
    head += b"".join(struct.pack("<I" if wide else "<H", len(buffer)) for buffer in buffers)
    return b"".join(padded(part) for part in (head, rep or b"", definition or b"", *buffers))


def control_word(rep: int, definition: int, bits_rep: int, bits_def: int) -> bytes:
    total = bits_rep + bits_def
    size = 0 if total == 0 else 1 if total <= 8 else 2 if total <= 16 else 4
    return (rep << bits_def | definition).to_bytes(size, "little")
