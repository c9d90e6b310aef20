"""Time and sums of a manifest without its messages, and its time from its last bytes alone; never another one."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.errors import FormatError, LanceError
from lance_io.proto import table_pb2
from lance_io.table.manifest.manifest import decode_summary, decode_time

if TYPE_CHECKING:
    from collections.abc import Iterator

DATASETS = Path(__file__).resolve().parents[3] / "shared" / "data" / "peer-datasets"
FOOTER = struct.Struct("<qHH4s")


def file_of(content: bytes, before: bytes = b"") -> bytes:
    """A manifest file around a message."""
    position = len(before)
    return before + struct.pack("<I", len(content)) + content + FOOTER.pack(position, 0, 2, b"LANC")


counts = st.integers(0, 1000)
texts = st.text(max_size=8)


@st.composite
def fragments(draw: st.DrawFn) -> table_pb2.DataFragment:
    rows, has_deletions = draw(counts), draw(st.booleans())
    message = table_pb2.DataFragment(id=draw(st.integers(0, (1 << 32) - 1)), physical_rows=rows)
    for number in range(draw(st.integers(0, 3))):
        size = draw(st.integers(0, 1 << 40))
        message.files.add(path=f"{number}.lance", fields=[number], column_indices=[0], file_size_bytes=size)
        message.files[-1].file_major_version, message.files[-1].file_minor_version = 2, draw(st.integers(0, 2))
    if has_deletions:
        message.deletion_file.SetInParent()
        message.deletion_file.num_deleted_rows = draw(st.integers(0, rows or 1000))
    if draw(st.booleans()):
        message.inline_row_ids = draw(st.binary(max_size=12))
    return message


@st.composite
def manifests(draw: st.DrawFn) -> table_pb2.Manifest:
    message = table_pb2.Manifest(
        version=draw(st.integers(1, 1 << 40)), fragments=draw(st.lists(fragments(), max_size=4))
    )
    message.timestamp.seconds, message.timestamp.nanos = draw(st.integers(0, 1 << 33)), draw(st.integers(0, 10**9 - 1))
    message.schema_metadata.update(draw(st.dictionaries(texts, st.binary(max_size=40), max_size=2)))
    message.config.update(draw(st.dictionaries(texts, texts, max_size=3)))
    message.table_metadata.update(draw(st.dictionaries(texts, texts, max_size=2)))
    message.writer_version.library = draw(texts)
    message.transaction_file = draw(texts)
    message.reader_feature_flags = draw(st.integers(0, 64))
    for number in range(draw(st.integers(0, 2))):
        message.base_paths.add(id=number, path="x")
    if draw(st.booleans()):
        message.branch = draw(texts)
    return message


def time_of(message: table_pb2.Manifest) -> int:
    return message.timestamp.seconds * 10**9 + message.timestamp.nanos


def sums_of(message: table_pb2.Manifest) -> dict[str, str]:
    """By the messages alone."""
    found = dict.fromkeys(("files", "size", "deletions", "rows", "deleted", "left"), 0)
    for fragment in message.fragments:
        deleted = fragment.deletion_file.num_deleted_rows
        has_deletions = fragment.HasField("deletion_file")
        found["files"] += len(fragment.files)
        found["size"] += sum(file.file_size_bytes for file in fragment.files)
        found["deletions"] += has_deletions
        found["rows"] += fragment.physical_rows
        found["deleted"] += deleted
        is_known = fragment.physical_rows and (deleted or not has_deletions)
        found["left"] += fragment.physical_rows - deleted if is_known else 0
    return {
        "total_fragments": str(len(message.fragments)),
        "total_data_files": str(found["files"]),
        "total_files_size": str(found["size"]),
        "total_deletion_files": str(found["deletions"]),
        "total_data_file_rows": str(found["rows"]),
        "total_deletion_file_rows": str(found["deleted"]),
        "total_rows": str(found["left"]),
    }


@given(manifests())
def test_sums_are_those_of_the_messages(message: table_pb2.Manifest) -> None:
    content = message.SerializeToString()
    assert _kernels.sum_manifest(content) is not None, "the general parser is for other forms"
    assert decode_summary(file_of(content)) == (message.version, time_of(message), sums_of(message))


def other_forms(message: table_pb2.Manifest) -> Iterator[bytes]:
    """The same message, as no writer gives it: parsers merge what comes twice."""
    content = message.SerializeToString()
    yield content + table_pb2.Manifest(version=message.version).SerializeToString()
    stamp = table_pb2.Manifest()
    stamp.timestamp.nanos = message.timestamp.nanos or 1
    yield content + stamp.SerializeToString()
    halves = table_pb2.Manifest()
    halves.CopyFrom(message)
    halves.timestamp.seconds = -1  # before 1970, which is no number of nine bytes
    yield halves.SerializeToString()
    yield b"\x98\x00\x05" + content  # a tag of more bytes than it needs


@given(manifests())
def test_other_forms_are_read_as_a_parser_reads_them(message: table_pb2.Manifest) -> None:
    for content in other_forms(message):
        parsed = table_pb2.Manifest.FromString(content)
        assert decode_summary(file_of(content)) == (parsed.version, time_of(parsed), sums_of(parsed))


@pytest.mark.parametrize(
    ("fragment", "reason"),
    [
        ({"id": 1 << 32}, "needs more than 32 bits"),
        ({"id": 1, "physical_rows": (1 << 32) + 1}, "at most 4294967296"),
        ({"id": 1, "physical_rows": 5, "deletion_file": {"num_deleted_rows": 6}}, "6 deleted rows of 5"),
    ],
)
def test_counts_that_cannot_be_are_damage(fragment: dict[str, Any], reason: str) -> None:
    message = table_pb2.Manifest(version=1, fragments=[table_pb2.DataFragment(**fragment)])
    message.timestamp.seconds = 1
    with pytest.raises(FormatError, match=reason):
        decode_summary(file_of(message.SerializeToString()))


@settings(max_examples=40)
@given(manifests(), st.binary(max_size=30))
def test_the_end_of_a_file_says_its_time_or_nothing(message: table_pb2.Manifest, before: bytes) -> None:
    """However little of it there is; and what stands behind the time is enough."""
    content = message.SerializeToString()
    data = file_of(content, before)
    behind = len(content) - content.rindex(b"\x3a" + bytes([message.timestamp.ByteSize()]))
    for num_bytes in range(FOOTER.size, len(data) + 1):
        found = decode_time(data[-num_bytes:], data_start=len(data) - num_bytes)
        assert found in (None, time_of(message))
    if message.timestamp.ByteSize():
        num_bytes = FOOTER.size + behind
        assert decode_time(data[-num_bytes:], data_start=len(data) - num_bytes) == time_of(message)


def test_a_value_that_looks_like_a_time_is_none() -> None:
    """As text of a user's may: two times can be there, so that the end does not say which one it is."""
    message, fake = table_pb2.Manifest(version=7), table_pb2.Manifest(reader_feature_flags=2)
    message.timestamp.seconds, message.timestamp.nanos = 1_700_000_000, 5
    fake.timestamp.seconds = 1_600_000_000
    inner = fake.SerializeToString()
    value = b"\n\x01k\x12" + bytes([len(inner)]) + inner  # of the table's configuration
    content = message.SerializeToString() + b"\x82\x01" + bytes([len(value)]) + value
    assert _kernels.find_manifest_time(content[-len(inner) :]) == (1_600_000_000, 0)
    assert _kernels.find_manifest_time(content) is None


def test_real_manifests() -> None:
    paths = sorted(DATASETS.glob("**/_versions/*.manifest"))
    assert len(paths) > 20
    num_found = 0
    for path in paths:
        data = path.read_bytes()
        position, *_ = FOOTER.unpack_from(data, len(data) - FOOTER.size)
        message = table_pb2.Manifest.FromString(data[position + 4 : -FOOTER.size])
        assert decode_summary(data) == (message.version, time_of(message), sums_of(message))
        end = data[-1024:]
        found = decode_time(end, data_start=len(data) - len(end))
        assert found in (None, time_of(message))
        num_found += found is not None
    assert num_found > len(paths) * 0.9


@settings(max_examples=60)
@given(manifests(), st.data())
def test_damage_is_damage(message: table_pb2.Manifest, data: st.DataObject) -> None:
    content = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    for damaged in (bytes(content), cut):
        try:
            found = decode_summary(file_of(damaged))
            decode_time(file_of(damaged)[-40:], data_start=max(0, len(file_of(damaged)) - 40))
        except LanceError:
            continue
        try:
            parsed = table_pb2.Manifest.FromString(damaged)
        except DecodeError:  # texts that are not UTF-8, which nobody asks for here
            continue
        assert found == (parsed.version, time_of(parsed), sums_of(parsed))
