"""Feature flags: each bit set in each word of a table's manifest, and the verdict of both libraries on it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, UnsupportedError
from lance_io.proto import table_pb2
from tests.fuzz.damage import MANIFEST_FOOTER
from tests.fuzz.test_found import change_manifest

if TYPE_CHECKING:
    from pathlib import Path

BITS = [1 << bit for bit in range(20)] + [1 << 40, 1 << 63]
WORDS = ("reader", "writer", "both")
ID_MARK = 32768


def build(folder: Path, bit: int, word: str, mark: int | None = None) -> Path:
    """A table of pylance with two fragments, one bit more in its words, and a mark of field ids."""

    def change(message: table_pb2.Manifest) -> None:
        if word in ("reader", "both"):
            message.reader_feature_flags |= bit
        if word in ("writer", "both"):
            message.writer_feature_flags |= bit
        if mark is not None:
            message.max_allocated_field_id = mark

    lance.write_dataset(pa.table({"a": [1, 2, 3, 4]}), str(folder), max_rows_per_file=2, data_storage_version="2.1")
    change_manifest(folder, change)
    return folder


def newest(folder: Path) -> table_pb2.Manifest:
    data = min((folder / "_versions").glob("*.manifest")).read_bytes()
    position, *_ = MANIFEST_FOOTER.unpack_from(data, len(data) - MANIFEST_FOOTER.size)
    (length,) = struct.unpack_from("<I", data, position)
    return table_pb2.Manifest.FromString(data[position + 4 : position + 4 + length])


def verdict(library: Any, folder: Path) -> tuple[Any, ...]:
    """What opens, scans, appends and deletes, and the words that the manifest has after that."""
    uri = str(folder)
    steps = {
        "open": lambda: library.dataset(uri),
        "scan": lambda: library.dataset(uri).to_table(),
        "append": lambda: library.write_dataset(pa.table({"a": [9]}), uri, mode="append"),
        "delete": lambda: library.dataset(uri).delete("a = 1"),
    }
    works = []
    for name, step in steps.items():
        try:
            step()
        except (ValueError, OSError):
            continue
        works.append(name)
    message = newest(folder)
    return works, message.reader_feature_flags, message.writer_feature_flags, message.max_allocated_field_id


@pytest.mark.parametrize("bit", BITS)
def test_every_bit_in_every_word_has_the_verdict_of_pylance(tmp_path: Path, bit: int) -> None:
    for word in WORDS:
        theirs = verdict(lance, build(tmp_path / f"theirs {word}", bit, word))
        ours = verdict(lance_io, build(tmp_path / f"ours {word}", bit, word))
        assert ours == theirs, word


@pytest.mark.parametrize("mark", [0, 7])
def test_the_mark_of_field_ids_and_its_flag_come_together(tmp_path: Path, mark: int) -> None:
    for number, (bit, word) in enumerate([(ID_MARK, one) for one in WORDS] + [(0, "both")]):
        theirs = verdict(lance, build(tmp_path / f"theirs {number}", bit, word, mark))
        ours = verdict(lance_io, build(tmp_path / f"ours {number}", bit, word, mark))
        assert ours == theirs, word
        assert bool(ours[0]) == ((bit, word) == (ID_MARK, "writer"))


@pytest.mark.parametrize(
    ("bit", "word", "error", "words"),
    [
        (64, "reader", UnsupportedError, r"reader feature flag 64 \(data overlay files\)"),
        (512, "both", UnsupportedError, "reader feature flag 512"),
        (65536, "both", UnsupportedError, "reader feature flag 65536"),
        (256, "reader", FormatError, "only one of the mixed data-file-version reader and writer feature bits"),
        (1024, "writer", FormatError, "only one of the fragment reuse index"),
        (16384, "writer", FormatError, "only one of the Managed Blob"),
        (65536, "reader", FormatError, "only one of the zone write seed"),
        (ID_MARK, "writer", FormatError, "high-water mark and writer feature flag disagree"),
    ],
)
def test_refusals_say_which_flag_it_is(tmp_path: Path, bit: int, word: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lance_io.dataset(str(build(tmp_path / "t", bit, word)))


def test_a_flag_of_writers_is_named_when_something_is_written(tmp_path: Path) -> None:
    ours = lance_io.dataset(str(build(tmp_path / "t", 4096, "writer")))
    assert ours.count_rows() == 4
    with pytest.raises(UnsupportedError, match="writer feature flag 4096"):
        ours.delete("a = 1")


def test_a_mark_in_the_reader_word_is_a_contradiction(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="only require writer support"):
        lance_io.dataset(str(build(tmp_path / "t", ID_MARK, "both", 7)))
