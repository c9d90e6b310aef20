"""Ways to damage a file, each drawn from a seeded `random.Random`.

`damage_data_file` aims half of its hits at what the issue calls structure: footer, tables, column metadata, layout
messages, chunk words, level vectors, repetition indexes. The other half is blind: flipped bytes, zeroed, copied and
swapped ranges, cut ends.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_io.proto import file_pb2, rowids_pb2, table_pb2
from tests.fuzz.anatomy import FOOTER, PAIR, Anatomy, Place
from tests.fuzz.messages import damage_message, hostile_number

if TYPE_CHECKING:
    import random

MANIFEST_FOOTER = struct.Struct("<qHH4s")


@dataclass(frozen=True)
class Damaged:
    """A damaged file.

    what    what was done, for people
    where   words that a `FormatError` about it must contain, such as "column 0"
    """

    data: bytes
    what: str
    where: tuple[str, ...] = ()


# -- blind ---------------------------------------------------------------------------------------------------------


def flip(data: bytes, dice: random.Random, low: int = 0, high: int | None = None) -> Damaged:
    """One to eight bytes changed between two offsets."""
    high = len(data) if high is None else high
    changed = bytearray(data)
    spots = [dice.randrange(low, high) for _ in range(dice.choice((1, 1, 1, 2, 8)))] if low < high else []
    for at in spots:
        changed[at] = dice.choice((changed[at] ^ (1 << dice.randrange(8)), dice.randrange(256), 0, 255))
    return Damaged(bytes(changed), f"bytes at {spots} changed")


def word(data: bytes, dice: random.Random, low: int, high: int, width: int) -> Damaged:
    """One little-endian number of `width` bytes changed, aligned to `low`."""
    count = (high - low) // width
    if count <= 0:
        return flip(data, dice, low, high)
    at = low + width * dice.randrange(count)
    value = int.from_bytes(data[at : at + width], "little")
    other = hostile_number(dice, value, 0, (1 << 8 * width) - 1)
    changed = data[:at] + other.to_bytes(width, "little") + data[at + width :]
    return Damaged(changed, f"{8 * width}-bit number at {at}: {value} -> {other}")


def zero(data: bytes, dice: random.Random, low: int = 0, high: int | None = None) -> Damaged:
    """A range of zeros (or of one other byte)."""
    high = len(data) if high is None else high
    start = dice.randrange(low, max(high, low + 1))
    end = min(high, start + dice.choice((1, 4, 8, 64, 512, 4096)))
    fill = bytes([dice.choice((0, 0, 255, 170))]) * (end - start)
    return Damaged(data[:start] + fill + data[end:], f"bytes {start} to {end} all {fill[:1]!r}")


def copy(data: bytes, dice: random.Random) -> Damaged:
    """A range copied over another."""
    size = min(dice.choice((8, 64, 512)), len(data) // 2)
    source, target = (dice.randrange(len(data) - size + 1) for _ in range(2))
    changed = data[:target] + data[source : source + size] + data[target + size :]
    return Damaged(changed, f"{size} bytes of {source} copied over {target}")


def cut(data: bytes, dice: random.Random) -> Damaged:
    """The file cut off, or a range taken out of its middle."""
    at = dice.randrange(len(data))
    if dice.random() < 0.7:
        return Damaged(data[:at], f"cut off at {at}")
    end = min(len(data), at + dice.choice((1, 8, 64)))
    return Damaged(data[:at] + data[end:], f"bytes {at} to {end} taken out")


def blind(data: bytes, dice: random.Random) -> Damaged:
    """Any of these, anywhere."""
    kind = dice.choice((flip, flip, flip, zero, copy, cut))
    return kind(data, dice)


# -- data files ------------------------------------------------------------------------------------------------------


def damage_data_file(data: bytes, dice: random.Random) -> Damaged:
    """One damage, structural in half of the cases."""
    if dice.random() < 0.5:
        return blind(data, dice)
    if struct.unpack_from("<HH", data, len(data) - 8) in ((0, 1), (0, 2)):  # 0, 3 is version 2.0
        return _batched(data, dice)
    parts = Anatomy(data)
    kind = dice.choice(_STRUCTURAL)
    return kind(parts, dice) or blind(data, dice)


def _batched(data: bytes, dice: random.Random) -> Damaged:
    """A file of version 0.1: its metadata, one of its page tables, offsets in its pages, or its footer."""
    (position,) = struct.unpack_from("<Q", data, len(data) - 16)
    (length,) = struct.unpack_from("<I", data, position)
    message = file_pb2.BatchMetadata.FromString(data[position + 4 : position + 4 + length])
    kind = dice.randrange(5)
    if kind == 0:
        what = damage_message(message, dice)
        content = message.SerializeToString()
        block = struct.pack("<I", len(content)) + content
        return Damaged(data[:position] + block + data[-16:], str(what))
    if kind == 1:
        return word(data, dice, len(data) - 16, len(data) - 8, 8)
    table_at, statistics_at = message.page_table_position, message.statistics.page_table_position or position
    if kind == 2:
        return word(data, dice, table_at, table_at + dice.choice((64, 400, 2000)), 8)
    if kind == 3:
        return word(data, dice, statistics_at, statistics_at + dice.choice((64, 400)), 8)
    return word(data, dice, dice.randrange(8), table_at, dice.choice((4, 8)))


def _layout(parts: Anatomy, dice: random.Random) -> Damaged | None:
    if not parts.pages():
        return None
    column, page = dice.choice(parts.pages())
    message = parts.layout(column, page)
    what = damage_message(message, dice)
    if what is None:
        return None
    parts.set_layout(column, page, message)
    return Damaged(parts.together(), f"column {column}, page {page}: {what}", (f"column {column}", f"page {page}"))


def _column(parts: Anatomy, dice: random.Random) -> Damaged | None:
    column = dice.randrange(len(parts.columns))
    what = damage_message(parts.columns[column], dice)
    return (what and Damaged(parts.together(), f"column {column}: {what}", (f"column {column}",))) or None


def _swapped(parts: Anatomy, dice: random.Random) -> Damaged | None:
    """Two buffers of a page, or of two pages, change places; or a buffer begins or ends elsewhere."""
    places = parts.places()
    if len(places) < 2:
        return None
    first, second = dice.sample(places, 2)
    pages = [parts.columns[p.column].pages[p.page] for p in (first, second)]
    kind = dice.randrange(3)
    if kind < 2:
        names = ("buffer_offsets", "buffer_sizes") if kind == 0 else ("buffer_offsets",)
        for name in names:
            one, other = getattr(pages[0], name), getattr(pages[1], name)
            one[first.buffer], other[second.buffer] = other[second.buffer], one[first.buffer]
        return Damaged(parts.together(), f"{first} and {second} swapped ({names})")
    size = max(0, first.size + dice.choice((-64, -8, -2, -1, 1, 8, 64, -first.size // 2)))
    pages[0].buffer_sizes[first.buffer] = size
    return Damaged(parts.together(), f"{first} of size {size}", _where(first, dice, page=False))


def _descriptor(parts: Anatomy, dice: random.Random) -> Damaged | None:
    what = damage_message(parts.descriptor, dice)
    parts.descriptor_changed = True
    return (what and Damaged(parts.together(), what)) or None


def _footer(parts: Anatomy, dice: random.Random) -> Damaged:
    data, start = parts.data, len(parts.data) - FOOTER.size
    if dice.random() < 0.5:
        return word(data, dice, start, start + 24, 8)
    return word(data, dice, start + 24, start + FOOTER.size, dice.choice((2, 4)))


def _tables(parts: Anatomy, dice: random.Random) -> Damaged:
    end = len(parts.data) - FOOTER.size
    start = end - PAIR.size * (len(parts.column_table) + len(parts.global_table))
    return word(parts.data, dice, start, end, 8)


def _buffer(parts: Anatomy, dice: random.Random) -> Damaged | None:
    """Chunk words, chunk headers, levels, indexes."""
    places = [p for p in parts.places() if p.size and p.role not in ("entries",)]
    aimed = [p for p in places if p.role != "chunks"]
    if not places:
        return None
    place = dice.choice(aimed if aimed and dice.random() < 0.6 else places)
    end = place.start + place.size
    if place.role == "chunks":
        return _chunk(parts, place, dice)
    width = {"chunk words": 2 + 2 * (parts.footer[6] > 1), "index": 8, "levels": 2, "dictionary": 4, "array": 8}[
        place.role
    ]
    kind = dice.randrange(4)
    if kind == 0:
        found = zero(parts.data, dice, place.start, end)
    elif kind == 1:
        found = flip(parts.data, dice, place.start, end)
    else:
        found = word(parts.data, dice, place.start, end, width)
    return Damaged(found.data, f"{place}: {found.what}", _where(place, dice))


def _chunk(parts: Anatomy, place: Place, dice: random.Random) -> Damaged:
    """The head of a chunk: its sizes and, right behind them, its levels."""
    wide = parts.footer[6] > 1
    words = next(p for p in parts.places() if (p.column, p.page, p.role) == (place.column, place.page, "chunk words"))
    width = 4 if wide else 2
    starts = [place.start]
    for at in range(words.start, words.start + words.size - width, width):
        starts.append(starts[-1] + ((int.from_bytes(parts.data[at : at + width], "little") >> 4) + 1) * 8)
    start = min(dice.choice(starts), place.start + place.size - 1)
    end = min(start + dice.choice((8, 16, 64)), place.start + place.size)
    found = word(parts.data, dice, start, end, 2) if dice.random() < 0.5 else flip(parts.data, dice, start, end)
    return Damaged(found.data, f"{place}, chunk at {start}: {found.what}", _where(place, dice))


def _where(place: Place, dice: random.Random, *, page: bool = True) -> tuple[str, ...]:
    return (f"column {place.column}", f"page {place.page}")[: 1 + page]


_STRUCTURAL = (_layout, _layout, _layout, _column, _column, _swapped, _descriptor, _footer, _tables, _buffer, _buffer)


# -- tables ----------------------------------------------------------------------------------------------------------


def damage_manifest(data: bytes, dice: random.Random) -> Damaged:
    """One damage to a manifest: a field of its message, a row id sequence in it, its footer, or anything."""
    if dice.random() < 0.4:
        return blind(data, dice)
    if dice.random() < 0.15:
        return word(data, dice, len(data) - MANIFEST_FOOTER.size, len(data), dice.choice((2, 4, 8)))
    position, *rest = MANIFEST_FOOTER.unpack_from(data, len(data) - MANIFEST_FOOTER.size)
    (length,) = struct.unpack_from("<I", data, position)
    manifest = table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length])
    with_ids = [fragment for fragment in manifest.fragments if fragment.inline_row_ids]
    if with_ids and dice.random() < 0.3:
        what = _row_ids(dice.choice(with_ids), dice)
    elif manifest.fragments and dice.random() < 0.5:
        what = damage_message(dice.choice(manifest.fragments), dice)
    else:
        what = damage_message(manifest, dice)
    content = manifest.SerializeToString()
    head = data[:position] + struct.pack("<I", len(content)) + content
    return Damaged(head + MANIFEST_FOOTER.pack(position, *rest), str(what))


def _row_ids(fragment: table_pb2.DataFragment, dice: random.Random) -> str:
    sequence = rowids_pb2.RowIdSequence.FromString(fragment.inline_row_ids)
    what = damage_message(sequence, dice)
    fragment.inline_row_ids = sequence.SerializeToString()
    return f"fragment {fragment.id}: {what}"
