"""Manifests: the annotated example, what pylance writes, what contradicts itself, and damage."""

from __future__ import annotations

import json
import random
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.version import V0_1, V2_0, V2_1, V2_2
from lance_io.proto import table_pb2
from lance_io.table.manifest.flags import check_reader_flags
from lance_io.table.manifest.manifest import (
    BasePath,
    Manifest,
    decode_manifest,
    decode_origin,
    decode_summary,
    from_message,
    manifest_position,
    read_section,
)
from lance_io.table.manifest.paths import transaction_path

DATASETS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets"


def manifests(root: Path) -> list[Path]:
    return sorted((root / "_versions").glob("*.manifest"))


def by_version(root: Path) -> dict[int, Manifest]:
    return {m.version: m for m in (decode_manifest(path.read_bytes()) for path in manifests(root))}


def test_the_annotated_example():
    """385 bytes: one int32 column, three rows, after a delete; typed in from the format notes."""
    data_path, uuid = "0101" * 6 + "b" * 26 + ".lance", "229c6758-0000-4000-8000-0000031f0ff8"
    minus_one = bytes.fromhex("ffffffffffffffffff01")
    file = bytes.fromhex("0a38") + data_path.encode() + bytes.fromhex("120100 1a0100 2002 2801 30d402")
    deletion = bytes.fromhex("1002 18e2d69dc3c9879ef454 2001").replace(b"\x10\x02", b"\x10\x01", 1)
    fragment = bytes.fromhex("1247") + file + bytes.fromhex("1a0e") + deletion + bytes.fromhex("2003")
    transaction = bytes.fromhex("0801 1224") + uuid.encode() + bytes.fromhex("aa0662 0a5b") + fragment
    transaction += bytes.fromhex("1a03") + b"a=2"
    field = bytes.fromhex("120161 20") + minus_one + bytes.fromhex("2a05") + b"int32" + bytes.fromhex("30013801")
    message = bytes.fromhex("0a19") + field + bytes.fromhex("125b") + fragment + bytes.fromhex("1802 3a0c")
    message += bytes.fromhex("08ccb083d806 10d2c2b3a601") + bytes.fromhex("4801 5001 5800 622a")
    message += b"1-" + uuid.encode() + b".txn" + bytes.fromhex("6a0f 0a05") + b"lance" + bytes.fromhex("1206")
    message += b"14.0.2" + bytes.fromhex("7a0c 0a05") + b"lance" + bytes.fromhex("1203") + b"2.1" + b"\xb8\x01\x00"
    data = struct.pack("<I", len(transaction)) + transaction + struct.pack("<I", len(message)) + message
    data += struct.pack("<qHH4s", 0x91, 0, 2, b"LANC")
    assert (len(transaction), len(message), len(data)) == (141, 220, 385)

    manifest = decode_manifest(data)
    [fragment_] = manifest.fragments
    [file_] = fragment_.files
    assert (manifest.version, manifest.data_version, manifest.max_fragment_id) == (2, V2_1, 0)
    assert manifest.schema.to_arrow() == pa.schema([("a", pa.int32())])
    assert (file_.path, file_.fields, file_.column_indices, file_.version) == (data_path, (0,), (0,), V2_1)
    assert (file_.size_bytes, file_.base_id) == (340, None)
    assert fragment_.deletion_file is not None
    assert (fragment_.deletion_file.id, fragment_.deletion_file.read_version) == (6118272295433104226, 1)
    assert (fragment_.physical_rows, fragment_.num_rows, fragment_.num_deleted_rows) == (3, 2, 1)
    # the nanoseconds are the varint d2 c2 b3 a6 01
    assert manifest.timestamp_ns == 1795217484 * 10**9 + 348_971_346
    assert (manifest.transaction_offset, manifest.index_offset) == (0, None)
    assert read_section(data, 0, what="transaction") == transaction
    assert transaction_path(manifest.transaction_file) == f"_transactions/1-{uuid}.txn"
    assert manifest.writer == "lance 14.0.2"


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> tuple[Path, lance.LanceDataset]:
    """A table with some history: config, metadata, deletions, appends, an index, columns added and dropped."""
    root = tmp_path_factory.mktemp("table") / "t.lance"
    data = pa.table({"a": range(100), "s": [{"x": i, "y": str(i)} for i in range(100)]})
    data = data.replace_schema_metadata({"k": "v"})
    lance.write_dataset(data, str(root), max_rows_per_file=40, data_storage_version="2.1")
    dataset = lance.dataset(str(root))
    dataset.delete("a % 7 = 3")
    dataset.insert(data.slice(0, 10))
    dataset.update_config({"lance.x": "1", "y": "z"})
    dataset.add_columns({"b": "a * 2"})
    dataset.create_scalar_index("a", "BTREE")
    dataset.drop_columns(["s.y"])
    dataset.update({"b": "7"}, where="a < 5")
    return root, dataset


def test_every_version_agrees_with_pylance(table):
    root, dataset = table
    ours = by_version(root)
    theirs = dataset.versions()
    assert list(ours) == [each["version"] for each in reversed(theirs)]
    for each in theirs:
        manifest = ours[each["version"]]
        there = dataset.checkout_version(each["version"])
        assert manifest.summary() == each["metadata"]
        local = manifest.timestamp.astimezone().replace(tzinfo=None)
        assert abs(local - each["timestamp"]) <= timedelta(microseconds=1)  # theirs went through a float
        assert manifest.schema.to_arrow().equals(there.schema, check_metadata=True)
        assert manifest.num_rows == there.count_rows()
        assert manifest.config == there.config()
        assert manifest.data_version.name == there.data_storage_version
        for fragment, other in zip(manifest.fragments, there.get_fragments(), strict=True):
            meta = other.metadata
            assert (fragment.id, fragment.physical_rows) == (meta.id, meta.physical_rows)
            assert fragment.num_deleted_rows == meta.num_deletions
            got = [(f.path, list(f.fields), list(f.column_indices), f.size_bytes) for f in fragment.files]
            assert got == [(f.path, f.fields, f.column_indices, f.file_size_bytes) for f in meta.files]


def test_sections_are_where_the_manifest_says(table):
    root, dataset = table
    [newest] = [path for path in manifests(root) if decode_manifest(path.read_bytes()).version == dataset.version]
    data = newest.read_bytes()
    manifest = decode_manifest(data)
    assert manifest.index_offset is not None and manifest.transaction_offset is not None
    section = table_pb2.IndexSection.FromString(bytes(read_section(data, manifest.index_offset, what="index")))
    assert [index.name for index in section.indices] == ["a_idx"]
    file = root / transaction_path(manifest.transaction_file)
    assert read_section(data, manifest.transaction_offset, what="transaction") == file.read_bytes()


def test_the_origin_of_a_version_is_what_its_manifest_says(table):
    for path in manifests(table[0]):
        data = path.read_bytes()
        manifest = decode_manifest(data)
        recorded = (manifest.transaction_file, manifest.transaction_offset)
        assert decode_origin(data) == (manifest.version, *recorded, manifest.writer)


def test_the_part_of_a_file_that_holds_the_message_is_enough(table):
    root, _dataset = table
    for path in manifests(root):
        data = path.read_bytes()
        position = manifest_position(data[-16:], file_bytes=len(data))
        assert decode_manifest(data[position:], data_start=position) == decode_manifest(data)
        with pytest.raises(FormatError, match="lies outside"):
            decode_manifest(data[position + 1 :], data_start=position + 1)


def test_the_message_survives_an_edit_with_unknown_fields(table):
    root, _dataset = table
    data = manifests(root)[0].read_bytes()
    message = decode_manifest(data).message.SerializeToString() + bytes.fromhex("d207 03 616263")  # field 122
    parsed = table_pb2.Manifest.FromString(message)
    copy = table_pb2.Manifest()
    copy.CopyFrom(from_message(parsed, 1 << 40).message)
    copy.version += 1
    assert b"\xd2\x07\x03abc" in copy.SerializeToString()


def expected_cases(version: str) -> list[Path]:
    return sorted(path for path in DATASETS.glob(f"generated/*@{version}/expected.json") if "loose" not in str(path))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_datasets_of_the_peer_are_as_expected(version):
    cases = expected_cases(version)
    assert len(cases) > 10
    for case in cases:
        expected = json.loads(case.read_text())
        ours = by_version(case.parent / "data.lance")
        for number, there in expected["versions"].items():
            manifest = ours[int(number)]
            assert manifest.num_rows == there["rows"], case
            assert [[f.name, f.id] for f in manifest.schema.fields] == there["fields"]
            assert [
                {
                    "id": f.id,
                    "rows": f.num_rows,
                    "physical_rows": f.physical_rows,
                    "deleted": f.num_deleted_rows,
                    "files": [[d.version.major, d.version.minor, [*d.fields], [*d.column_indices]] for d in f.files],
                }
                for f in manifest.fragments
            ] == there["fragments"]
        assert manifest.has_stable_row_ids == expected["stable_row_ids"]
        assert manifest.config == expected["config"]


def test_tables_of_old_releases_open():
    found = {path.parent.parent.parent.name: path for path in DATASETS.glob("historical/*/*/_versions/*.manifest")}
    versions = {name: decode_manifest(path.read_bytes()).data_version for name, path in found.items()}
    assert len(versions) == 10
    assert versions["0.15.0--v1_with_files"] == V0_1
    assert versions["0.15.0--v2_with_files"] == V2_0  # its files say so
    assert versions["0.15.0--v2_no_files"] == V2_2  # flag 4 says so
    for path in DATASETS.glob("historical/*/*/_versions/*.manifest"):
        number, _timestamp, summary = decode_summary(path.read_bytes())
        assert number > 0
        assert set(summary) >= {"total_rows", "total_fragments"}


BEGIN_OF_TIME_S, END_OF_TIME_S = (
    int((datetime(*day, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    for day in ((1, 1, 1), (9999, 12, 31, 23, 59, 59))
)


@pytest.fixture
def plain(tmp_path) -> table_pb2.Manifest:
    """The message of a small table of two fragments."""
    rows = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})
    lance.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=2, data_storage_version="2.1")
    return decode_manifest(manifests(tmp_path / "t")[0].read_bytes()).message


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: setattr(m.data_format, "version", "2.2"), "mixed file versions"),
        (lambda m: setattr(m.fragments[0].files[0], "file_minor_version", 2), "mixed file versions"),
        (
            lambda m: setattr(m.fragments[0].files[0], "file_major_version", 0),
            "V1 and V2 storage versions cannot be mixed",
        ),
        (lambda m: setattr(m.fragments[0], "id", 1 << 32), "32 bits"),
        (lambda m: setattr(m.fragments[1], "id", 7), "above the highest allocated id"),
        (lambda m: setattr(m.fragments[0], "physical_rows", 1 << 40), "at most"),
        (lambda m: setattr(m.fragments[0].deletion_file, "num_deleted_rows", 3), "3 deleted rows of 2"),
        (lambda m: setattr(m.fragments[0].deletion_file, "base_id", 3), "base path 3"),
        (lambda m: m.fragments[1].files[0].fields.append(9), "3 field ids, but 2 columns"),
        (lambda m: m.fragments[0].files[0].fields.__setitem__(0, 1), "field 1 is stored in more than one"),
        (lambda m: m.fragments[0].files[0].column_indices.__setitem__(0, 1), "listed twice"),
        (lambda m: m.fragments[0].files[0].column_indices.__setitem__(0, -1), "column -1"),
        (lambda m: setattr(m.fragments[0].files[0], "base_id", 0), "base path 0"),
        (lambda m: setattr(m, "reader_feature_flags", 2), "fragment 0 has no row ids"),
        (lambda m: setattr(m, "writer_feature_flags", 256), "one of the words"),
        (lambda m: setattr(m.timestamp, "seconds", 1 << 60), "timestamp"),
        (lambda m: setattr(m.timestamp, "nanos", -1), "timestamp"),
        (lambda m: m.base_paths.add(id=1), "no usable path"),
        (lambda m: setattr(m, "transaction_section", 1 << 50), "in front of the manifest"),
        (lambda m: setattr(m, "index_section", 999), "in front of the manifest"),
        (lambda m: setattr(m.fragments[0], "physical_rows", (1 << 32) + 1), "at most"),
        (lambda m: setattr(m.fragments[0].files[0], "file_size_bytes", 1 << 63), f"{1 << 63} bytes"),
        (lambda m: setattr(m.timestamp, "seconds", END_OF_TIME_S + 1), "timestamp"),
        (lambda m: setattr(m.timestamp, "seconds", BEGIN_OF_TIME_S - 1), "timestamp"),
        (lambda m: setattr(m.timestamp, "nanos", 10**9), "timestamp"),
    ],
)
def test_contradictions_are_refused(plain, edit, words):
    edit(plain)
    with pytest.raises(FormatError, match=words):
        list(from_message(plain, 1000).fragments)


def of_the_highest_number(message):
    message.fragments[1].id = message.max_fragment_id = (1 << 32) - 1


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (of_the_highest_number, lambda m: m.fragments[1].id == (1 << 32) - 1),
        (
            lambda m: setattr(m.fragments[0], "physical_rows", 1 << 32),
            lambda m: m.fragments[0].physical_rows == 1 << 32,
        ),
        (
            lambda m: setattr(m.fragments[0].files[0], "file_size_bytes", (1 << 63) - 1),
            lambda m: m.fragments[0].files[0].size_bytes == (1 << 63) - 1,
        ),
        (
            lambda m: setattr(m.timestamp, "seconds", END_OF_TIME_S),
            lambda m: m.timestamp_ns // 10**9 == END_OF_TIME_S,
        ),
        (
            lambda m: setattr(m.timestamp, "seconds", BEGIN_OF_TIME_S),
            lambda m: m.timestamp_ns // 10**9 == BEGIN_OF_TIME_S,
        ),
    ],
    ids=["fragment", "rows", "bytes", "last second", "first second"],
)
def test_limits_belong_to_what_is_accepted(plain, edit, found):
    edit(plain)
    assert found(from_message(plain, 1000))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: setattr(m, "reader_feature_flags", 64 | 4096), r"64 \(data overlay files\), 4096"),
        (lambda m: setattr(m, "reader_feature_flags", 1 << 63), str(1 << 63)),
        (lambda m: m.fragment_tree.SetInParent(), "fragment tree"),
        (lambda m: m.fragments[0].overlays.add(), "overlay"),
        (lambda m: m.fragments[0].external_row_ids.SetInParent(), "external_row_ids"),
        (lambda m: setattr(m.fragments[0].deletion_file, "file_type", 5), "type 5"),
        (lambda m: setattr(m.data_format, "version", "9.9"), "9.9"),
        (lambda m: setattr(m.fragments[0].files[0], "file_minor_version", 9), "2.9"),
        (lambda m: setattr(m.fields[0], "logical_type", "int7"), "int7"),
    ],
)
def test_what_is_not_known_is_named(plain, edit, words):
    edit(plain)
    with pytest.raises(UnsupportedError, match=words):
        list(from_message(plain, 1000).fragments)


def test_what_pylance_lets_through_is_let_through(plain):
    plain.fragments[1].id = 0
    plain.fragments[0].physical_rows = 0
    del plain.fragments[0].files[:]
    plain.ClearField("data_format")
    plain.base_paths.add(id=1, path="/elsewhere", is_dataset_root=True)
    plain.fragments[1].files[0].base_id = 1
    manifest = from_message(plain, 1000)
    assert [fragment.id for fragment in manifest.fragments] == [0, 0]
    assert manifest.num_rows is None
    assert manifest.data_version == V2_1
    assert manifest.base_paths == {1: BasePath(1, "/elsewhere", True)}
    assert manifest.fragments[1].file_of(1) is manifest.fragments[1].files[0]
    assert manifest.fragments[1].file_of(5) is None
    assert manifest.timestamp.year >= datetime(2024, 1, 1).year


@pytest.mark.parametrize("known", [0, 1, 4, 8, 16, 32, 128, 2048])
def test_flags_that_are_read(known):
    check_reader_flags(known, 0)


def test_a_manifest_that_names_0_1_over_files_of_2_x_has_their_version(plain):
    plain.data_format.version = "0.1"
    assert from_message(plain, 1000).data_version == V2_1
    plain.fragments[1].files[0].file_minor_version = 2
    with pytest.raises(FormatError, match="mixed file versions"):
        from_message(plain, 1000)
    del plain.fragments[:]
    assert from_message(plain, 1000).data_version == V0_1


def test_files_of_0_1_in_a_table_of_2_x_are_refused(plain):
    for fragment in plain.fragments:
        fragment.files[0].file_major_version, fragment.files[0].file_minor_version = 0, 2
        del fragment.files[0].column_indices[:]
    with pytest.raises(FormatError, match="V1 and V2 storage versions cannot be mixed"):
        from_message(plain, 1000)
    plain.data_format.version = "0.1"
    assert from_message(plain, 1000).data_version == V0_1


@pytest.mark.parametrize("unknown", [64, 512, 4096])
def test_flags_that_are_refused_by_readers_only(unknown):
    with pytest.raises(UnsupportedError, match=f"flag {unknown}"):
        check_reader_flags(unknown, unknown)
    check_reader_flags(0, unknown)


def test_every_truncation_and_any_flip_gives_values_or_the_named_errors(table):
    root, dataset = table
    flips = random.Random(2)
    data = max((path.read_bytes() for path in manifests(root)), key=len)
    for length in range(0, len(data), 3):
        with pytest.raises(FormatError):
            decode_manifest(data[:length])
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
        try:
            decode_manifest(bytes(damaged)).schema.to_arrow()
        except (FormatError, UnsupportedError):
            continue
    assert dataset.version == max(by_version(root))
