"""What the kernel says of the fragments of a manifest is what their messages say."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

import lance_io
from lance_io._kernels import survey_fragments
from lance_io.errors import FormatError
from lance_io.proto import table_pb2
from lance_io.table.manifest.fragment import decode_fragments
from lance_io.table.manifest.manifest import decode_manifest
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path


def random_manifest(rng: random.Random) -> table_pb2.Manifest:
    """Some fragments, with and without what a fragment may have."""
    message = table_pb2.Manifest(version=rng.randrange(1 << 40), transaction_file="a.txn", config={"a": "b"})
    for _ in range(rng.randrange(9)):
        fragment = message.fragments.add(id=rng.choice([0, 1, 127, 128, rng.randrange(1 << 32)]))
        for number in range(rng.randrange(4)):
            file = fragment.files.add(path=f"{number}.lance", fields=[0, -2, 300], column_indices=[0, -1])
            file.file_major_version, file.file_minor_version = rng.choice(
                [(0, 1), (2, 0), (2, 1), (0, 3), (2, 1 << 31)]
            )
            if rng.random() < 0.5:
                file.file_size_bytes, file.base_id = rng.randrange(1 << 50), rng.randrange(3)
        fragment.physical_rows = rng.choice([0, 1, rng.randrange(1 << 32)])
        if rng.random() < 0.5:
            fragment.deletion_file.read_version = rng.randrange(1 << 20)
            fragment.deletion_file.num_deleted_rows = rng.choice([0, rng.randrange(1 << 32)])
        if rng.random() < 0.3:
            fragment.inline_row_ids = rng.randbytes(rng.randrange(40))
        if rng.random() < 0.3:
            fragment.metadata["key"] = "value"
    return message


def plainly(message: table_pb2.Manifest) -> tuple[object, ...]:
    """The same by looking at each message."""
    return (
        [one.id for one in message.fragments],
        [one.physical_rows for one in message.fragments],
        [
            (place, one.deletion_file.num_deleted_rows)
            for place, one in enumerate(message.fragments)
            if one.HasField("deletion_file")
        ],
        {(file.file_major_version, file.file_minor_version) for one in message.fragments for file in one.files},
    )


def test_the_kernel_says_what_the_messages_say() -> None:
    rng = random.Random(seed_of("survey"))
    for _ in range(300):
        message = random_manifest(rng)
        assert survey_fragments(message.SerializeToString()) == plainly(message)


def test_damaged_manifests_are_read_as_the_parser_reads_them_or_not_at_all() -> None:
    rng = random.Random(seed_of("damaged survey"))
    num_read = 0
    for _ in range(3000):
        data = bytearray(random_manifest(rng).SerializeToString())
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        found = survey_fragments(bytes(data))
        try:
            message = table_pb2.Manifest.FromString(bytes(data))
        except DecodeError:
            continue
        if found is not None:
            num_read += 1
            assert found == plainly(message)
    assert num_read > 300


@pytest.mark.parametrize(
    "tail",
    [
        b"\x12\x0f\x1a\x02\x20\x01\x1a\x02\x20\x02",  # a length past the end
        b"\x12\x08\x1a\x02\x20\x01\x1a\x02\x20\x02",  # two deletion files, which a parser merges
        b"\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # an id above 2^63
        b"\x12\x08\x12\x06\x20\x80\x80\x80\x80\x10",  # a version above 2^32
        b"\x12\x02\x0a\x00",  # an id that is no number
        b"\x10\x01",  # fragments that are a number
        b"\x0b",  # a group
    ],
)
def test_what_writers_do_not_give_is_left_to_the_parser(tail: bytes) -> None:
    assert survey_fragments(table_pb2.Manifest(version=1).SerializeToString() + tail) is None


def test_counts_that_cannot_be_are_refused_with_either() -> None:
    message = table_pb2.Manifest()
    fragment = message.fragments.add(id=7, physical_rows=3)
    fragment.deletion_file.num_deleted_rows = 4
    for content in (None, message.SerializeToString()):
        with pytest.raises(FormatError, match="fragment 7: 4 deleted rows of 3"):
            decode_fragments(message.fragments, content=content)
    fragment.id = 1 << 32
    for content in (None, message.SerializeToString()):
        with pytest.raises(FormatError, match="needs more than 32 bits"):
            decode_fragments(message.fragments, content=content)


def test_fragments_of_a_table_are_those_of_pylance(tmp_path: Path) -> None:
    theirs = lance.write_dataset(pa.table({"a": range(100)}), tmp_path / "t", max_rows_per_file=9)
    theirs.delete("a % 7 = 3 or a < 20")
    (newest,) = (file for file in (tmp_path / "t" / "_versions").iterdir() if file.name.endswith("613.manifest"))
    fragments = decode_manifest(newest.read_bytes()).fragments
    assert [one.fragment_id for one in theirs.get_fragments()] == fragments.ids
    assert [one.physical_rows for one in theirs.get_fragments()] == fragments.physical_rows
    assert [one.count_rows() for one in theirs.get_fragments()] == fragments.num_rows
    assert lance_io.dataset(tmp_path / "t").count_rows() == sum(one.count_rows() for one in theirs.get_fragments())
