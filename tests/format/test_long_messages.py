"""Long messages are parsed in pieces, which gives what parsing them as a whole does."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from google.protobuf.message import DecodeError

from lance_io._kernels import piece_ends
from lance_io.errors import FormatError
from lance_io.format import wire
from lance_io.proto import table_pb2
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def random_message(rng: random.Random) -> bytes:
    """A manifest: fields that come once, again and again, by key, in parts that are merged, and unknown ones."""
    parts = []
    for number in range(rng.randrange(1, 12)):
        part = table_pb2.Manifest()
        if rng.random() < 0.5:
            part.fragments.add(id=number, physical_rows=rng.randrange(1 << 40)).files.add(path="ä" * rng.randrange(90))
        if rng.random() < 0.3:
            part.version = rng.randrange(1 << 50)
        if rng.random() < 0.3:
            part.config[f"key{rng.randrange(3)}"] = "x" * rng.randrange(40)
        if rng.random() < 0.3:
            part.writer_version.library = f"writer{number}"
        if rng.random() < 0.3:
            part.writer_version.version = str(number)
        if rng.random() < 0.3:
            part.timestamp.seconds = number
        parts.append(part.SerializeToString())
        if rng.random() < 0.2:  # fields 3000 and 3001: a number and eight bytes
            parts.append(rng.choice([b"\xc0\xbb\x01\x07", b"\xc9\xbb\x01" + rng.randbytes(8)]))
    return b"".join(parts)


def parsed(data: bytes) -> bytes | None:
    """What protobuf makes of it as a whole; None if it refuses it."""
    try:
        return table_pb2.Manifest.FromString(data).SerializeToString(deterministic=True)
    except DecodeError:
        return None


def parsed_in_pieces(data: bytes) -> bytes | None:
    try:
        return wire.parse_message(table_pb2.Manifest, memoryview(data), "manifest").SerializeToString(
            deterministic=True
        )
    except FormatError:
        return None


@pytest.mark.parametrize("piece_bytes", [0, 7, 60])
def test_pieces_make_the_message(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(wire, "_PIECE_BYTES", piece_bytes)
    rng, num_pieces = random.Random(seed_of(f"pieces {piece_bytes}")), 0
    for _ in range(300):
        data = random_message(rng)
        ends = piece_ends(data, piece_bytes)
        assert ends is not None
        assert ends == sorted(set(ends))
        assert ends[-1:] == ([len(data)] if data else [])
        assert all(end - start >= piece_bytes for start, end in zip([0, *ends], ends[:-1], strict=False))
        num_pieces += len(ends)
        assert parsed_in_pieces(data) == parsed(data)
    assert num_pieces > 600


def test_damage_is_refused_in_pieces_as_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_PIECE_BYTES", 5)
    rng, num_refused = random.Random(seed_of("damaged pieces")), 0
    for _ in range(3000):
        data = bytearray(random_message(rng) or b"\x18\x01")
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        expected = parsed(bytes(data))
        num_refused += expected is None
        assert parsed_in_pieces(bytes(data)) == expected
    assert num_refused > 300


def test_groups_are_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_PIECE_BYTES", 4)
    data = table_pb2.Manifest(version=5).SerializeToString() + b"\xc3\xbb\x01\x08\x01\xc4\xbb\x01" + b"\x18\x07" * 9
    assert piece_ends(data, 4) is None
    assert parsed_in_pieces(data) == parsed(data) is not None


def test_a_manifest_of_many_fragments_is_parsed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a loop: the thread could not let it have the interpreter within one call of the parser."""
    message = table_pb2.Manifest()
    for number in range(20_000):
        message.fragments.add(id=number, physical_rows=1).files.add(path=f"{number:032}.lance", fields=range(5))
    sizes = []

    def recorded(items: Iterable[int]) -> Iterator[int]:
        sizes.append(0)
        for end in items:
            sizes.append(end)
            yield end

    monkeypatch.setattr(wire, "yielding", recorded)
    assert wire.parse_message(table_pb2.Manifest, message.SerializeToString(), "manifest") == message
    assert len(sizes) > 10
    assert max(after - before for before, after in pairwise(sizes)) < 66_000
