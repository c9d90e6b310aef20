"""Fragments are parsed when they are asked for, and the message of a version is whole all the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

import lance_io
from lance_io._kernels import part_manifest
from lance_io.errors import FormatError
from lance_io.format import wire
from lance_io.proto import table_pb2
from lance_io.table.manifest import stored_fragments
from lance_io.table.manifest.manifest import StoredMessage, decode_manifest
from lance_io.table.manifest.stored_fragments import split_fragments
from tests.seeds import seed_of
from tests.table.test_fragment_survey import random_manifest
from tests.table.test_manifest_sums import file_of

if TYPE_CHECKING:
    from pathlib import Path


def without_ids(message: table_pb2.Manifest) -> int | None:
    return next(
        (
            place
            for place, one in enumerate(message.fragments)
            if not one.HasField("inline_row_ids") and not one.HasField("spilled_row_ids")
        ),
        None,
    )


def check_parts(content: bytes, message: table_pb2.Manifest) -> bool:
    """Whether a message was parted: then into what it has."""
    found = split_fragments(content)
    if found is None:
        return False
    rest, fragments = found
    whole = StoredMessage(table_pb2.Manifest.FromString(rest), (fragments.data,), fragments)
    assert whole.rest.fragments[:] == []
    assert list(fragments) == fragments[:] == message.fragments[:]
    assert fragments.without_row_ids == without_ids(message)
    assert whole.whole() == message
    return True


def test_the_parts_are_the_message() -> None:
    rng = random.Random(seed_of("parts"))
    for _ in range(300):
        message = random_manifest(rng)
        for fragment in message.fragments:
            if rng.random() < 0.2:
                fragment.spilled_row_ids.SetInParent()
        assert check_parts(message.SerializeToString(), message)


def test_damaged_manifests_are_parted_as_the_parser_reads_them_or_not_at_all() -> None:
    rng = random.Random(seed_of("damaged parts"))
    num_parted = 0
    for _ in range(2000):
        data = bytearray(random_manifest(rng).SerializeToString())
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            message = table_pb2.Manifest.FromString(bytes(data))
        except DecodeError:
            assert part_manifest(bytes(data)) is None or list_fails(bytes(data))
            continue
        num_parted += check_parts(bytes(data), message)
    assert num_parted > 300


def list_fails(content: bytes) -> bool:
    """Whether what is wrong with a message is said when its parts are parsed."""
    found = split_fragments(content)
    assert found is not None
    try:
        table_pb2.Manifest.FromString(found[0])
        list(found[1])
    except (DecodeError, FormatError):
        return True
    return False


def test_a_damaged_fragment_is_said_when_it_is_asked_for() -> None:
    message = table_pb2.Manifest(version=1)
    message.timestamp.seconds, message.writer_version.library, message.data_format.version = 1, "lance", "2.1"
    message.fragments.add(id=0, physical_rows=1).files.add(path="aaaa", file_major_version=2, file_minor_version=1)
    data = file_of(message.SerializeToString().replace(b"aaaa", b"\xff\xff\xff\xff"))
    manifest = decode_manifest(data)
    with pytest.raises(FormatError, match="expected a protobuf DataFragment"):
        manifest.fragments[0]
    with pytest.raises(FormatError, match="expected a protobuf Manifest"):
        _ = manifest.message


@pytest.mark.parametrize("stable", [False, True])
def test_a_row_parses_the_fragment_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stable: bool) -> None:
    lance.write_dataset(pa.table({"a": range(600)}), tmp_path, max_rows_per_file=2, enable_stable_row_ids=stable)
    parsed: list[Any] = []
    real = wire.parse_message

    def parse(kind: Any, data: Any, what: str) -> Any:
        parsed.append(kind)
        return real(kind, data, what)

    monkeypatch.setattr(stored_fragments, "parse_message", parse)
    opened = lance_io.dataset(tmp_path)
    assert len(opened) == 600
    assert len(parsed) == 0
    assert opened.take([333])["a"].to_pylist() == [333]
    assert len(parsed) == 1
    assert [one.fragment_id for one in opened.get_fragments()] == list(range(300))


def test_what_is_committed_on_top_has_all_of_them(tmp_path: Path) -> None:
    theirs = lance.write_dataset(pa.table({"a": range(60)}), tmp_path, max_rows_per_file=2)
    theirs.delete("a = 5")
    lance_io.dataset(tmp_path).insert(pa.table({"a": [60]}))
    lance_io.dataset(tmp_path).delete("a = 7")
    assert lance.dataset(tmp_path).to_table()["a"].to_pylist() == [one for one in range(61) if one not in (5, 7)]
    assert len(lance.dataset(tmp_path).get_fragments()) == 31
