"""Building versions: histories that pylance wrote are built again, manifest by manifest."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lance_io.errors import UnsupportedError, UsageError
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_1, V2_2, version_of_name
from lance_io.proto import table_pb2
from lance_io.table.manifest.flags import check_writer_flags
from lance_io.table.manifest.fragment import DataFile, Fragment, encode_fragment
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import (
    BasePath,
    Manifest,
    decode_manifest,
    from_message,
    manifest_position,
    read_section,
)
from lance_io.table.manifest.row_ids import decode_row_ids, decode_row_versions
from lance_io.table.manifest_file import encode_manifest_file
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.apply import Creation, build_manifest
from lance_io.table.transaction.effects import effects_of
from lance_io.table.transaction.transaction import Transaction, decode_transaction
from tests.fuzz.test_found import change_manifest

if TYPE_CHECKING:
    from pathlib import Path


History = dict[int, tuple[Manifest, bytes]]


def rows(start: int, end: int) -> pa.Table:
    ids = range(start, end)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": [float(i) for i in ids], "s": [f"s{i}" for i in ids]})


def write_history(root: Path, *, stable: bool) -> None:
    """Some forty versions by nearly everything that pylance does."""
    uri = str(root)
    lance.write_dataset(rows(0, 300), uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    lance.write_dataset(rows(300, 350), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    lance.write_dataset(rows(350, 400), uri, mode="append")
    dataset = lance.dataset(uri)
    for column, kind in (("id", "BITMAP"), ("id", "ZONEMAP"), ("s", "BLOOMFILTER"), ("s", "NGRAM"), ("s", "INVERTED")):
        dataset.create_scalar_index(column, kind, name=kind)
    dataset.delete("id % 7 = 3")
    dataset.delete("id >= 100 and id < 200")
    dataset.update({"x": "x + 1"}, where="id < 10")
    dataset.update({"id": "id + 1000"}, where="id < 20")
    for start, end in ((30, 35), (395, 405)):
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows(start, end))
    dataset = lance.dataset(uri)
    dataset.update_config({"a": "b"})
    dataset.add_columns({"y": "x * 2"})
    dataset.add_columns(pa.schema([pa.field("n", pa.int32())]))
    dataset = replace_column(dataset, pa.field("n", pa.int32()))
    dataset.alter_columns({"path": "y", "name": "yy"})
    dataset.alter_columns({"path": "yy", "data_type": pa.float32()})
    dataset.create_scalar_index("yy", "BTREE")
    dataset.drop_columns(["n"])
    dataset.drop_columns(["yy"])
    dataset.optimize.compact_files(target_rows_per_fragment=1000)
    lance.dataset(uri, version=4).restore()
    dataset = lance.dataset(uri)
    dataset.update_metadata({"k": "v"})
    dataset.update_schema_metadata({"sk": "sv"})
    dataset.update_field_metadata({"id": {"fk": "fv"}})
    dataset.delete_config_keys(["a"])
    lance.write_dataset(rows(0, 5), uri, mode="append", data_storage_version="2.1")
    lance.write_dataset(rows(0, 5), uri, mode="overwrite")
    lance.dataset(uri).delete("true")
    lance.write_dataset(rows(0, 5), uri, mode="append")
    lance.write_dataset(pa.table({"z": [1]}), uri, mode="overwrite", data_storage_version="2.1")


def write_spilled_history(root: Path) -> None:
    """Versions of a table that keeps ids and versions of rows in data files (flag 2048): the changes that we make."""
    uri = str(root)
    lance.write_dataset(rows(0, 300), uri, max_rows_per_file=100, enable_stable_row_ids=True)
    lance.dataset(uri).update_config({"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"})
    lance.dataset(uri).delete("id % 7 = 3")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)
    lance.write_dataset(rows(300, 350), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.delete("id % 11 = 3")
    dataset.add_columns({"y": "x * 2"})
    dataset.alter_columns({"path": "y", "data_type": pa.float32()})
    dataset.drop_columns(["y"])
    dataset.drop_columns(["s", "x"])
    lance.dataset(uri, version=3).restore()
    lance.dataset(uri, version=8).restore()
    lance.dataset(uri).delete("id < 300")


def write_marked_history(root: Path) -> None:
    """Versions of a table whose field ids are not given out again (flag 32768), and that manages its blobs (16384)."""
    uri = str(root)
    lance.write_dataset(rows(0, 30), uri, max_rows_per_file=10)
    change_manifest(root, mark_ids)
    lance.write_dataset(rows(30, 35), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.delete("id = 3")
    dataset.add_columns({"y": "x * 2"})
    dataset.drop_columns(["y"])
    dataset.add_columns(pa.schema([pa.field("n", pa.int32())]))
    dataset.alter_columns({"path": "n", "data_type": pa.int64()})
    dataset.update_schema_metadata({"lance.blob.managed": "true"})
    dataset.update_schema_metadata({"lance.blob.managed": "false"})
    lance.write_dataset(rows(30, 35), uri, mode="append", data_storage_version="2.1")
    lance.write_dataset(rows(0, 5), uri, mode="overwrite")
    lance.dataset(uri, version=2).restore()


def mark_ids(message: table_pb2.Manifest) -> None:
    message.max_allocated_field_id = 9
    message.writer_feature_flags |= 32768


def replace_column(dataset: lance.LanceDataset, field: pa.Field) -> lance.LanceDataset:
    """Other values for a column of the second fragment, from a file of their own."""
    operation, fragment = lance.LanceOperation, dataset.get_fragments()[1]
    values = pa.table([pa.array(range(fragment.physical_rows), field.type)], schema=pa.schema([field]))
    (new,) = lance.fragment.write_fragments(values, dataset)
    group = operation.DataReplacementGroup(fragment.fragment_id, new.files[0])
    return lance.LanceDataset.commit(dataset, operation.DataReplacement([group]), read_version=dataset.version)


def read_history(root: Path) -> History:
    """Manifests and the bytes of their transactions, by version."""
    found = {}
    for path in (root / "_versions").glob("*.manifest"):
        data = path.read_bytes()
        manifest = decode_manifest(data)
        assert manifest.transaction_offset is not None
        found[manifest.version] = manifest, bytes(read_section(data, manifest.transaction_offset, what="transaction"))
    return found


def content(manifest: Manifest) -> tuple[table_pb2.Manifest, list[Any]]:
    """All that a manifest says but its writer, its time, and where its sections are."""
    message = table_pb2.Manifest()
    message.CopyFrom(manifest.message)
    for name in ("writer_version", "timestamp", "index_section", "transaction_section"):
        message.ClearField(name)
    for fragment in message.fragments:
        for name in ("inline_row_ids", "inline_created_at_versions", "inline_last_updated_at_versions"):
            if fragment.HasField(name):
                decode = decode_row_ids if name == "inline_row_ids" else decode_row_versions
                values = decode(getattr(fragment, name), fragment.physical_rows)
                setattr(fragment, name, values.tobytes())
    indices = decode_indices(manifest.index_section) if manifest.index_section is not None else []
    live = frozenset(fragment.id for fragment in message.fragments)  # (others say nothing: pylance keeps some)
    covered = [None if one.fragment_ids is None else live & one.fragment_ids for one in indices]
    return message, [replace(one, fragment_ids=ids) for one, ids in zip(indices, covered, strict=True)]


HISTORIES = {
    "addresses": partial(write_history, stable=False),
    "stable-row-ids": partial(write_history, stable=True),
    "spilled": write_spilled_history,
    "marked": write_marked_history,
}


@pytest.fixture(scope="module", params=HISTORIES)
def history(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, tuple[Manifest, bytes]]:
    root = tmp_path_factory.mktemp("history") / "t"
    HISTORIES[request.param](root)
    return read_history(root)


def test_every_version_is_built_as_pylance_built_it(history: History) -> None:
    names = set()
    for version, (theirs, data) in sorted(history.items()):
        transaction = decode_transaction(data)
        names.add(transaction.name)
        operation = transaction.operation
        if version == 1 and theirs.message.HasField("max_allocated_field_id"):
            continue  # it was not made so
        data_version = version_of_name(theirs.message.data_format.version)
        following = build_manifest(
            history[version - 1][0] if version > 1 else None,
            transaction,
            timestamp_ns=theirs.timestamp_ns,
            creation=Creation(data_version if transaction.name == "Overwrite" else None, theirs.has_stable_row_ids),
            restored=history[operation.version][0] if isinstance(operation, ops.Restore) else None,
        )
        file = encode_manifest_file(following)
        assert content(file.manifest) == content(theirs), f"version {version}, {transaction.name}"
        assert file.manifest.timestamp_ns == theirs.timestamp_ns
        assert decode_transaction(file.transaction).message == transaction.message
        assert decode_manifest(file.data) == file.manifest
    changes = {*"Append Delete Merge Overwrite Project ReserveFragments Restore Rewrite UpdateConfig".split()}
    if len(history) > 20:
        assert names == changes | {"CreateIndex", "DataReplacement", "Update"}
    else:
        assert names >= changes - {"ReserveFragments", "Rewrite"}


def test_effects_are_what_differs_between_versions_of_pylance(history: History) -> None:
    seen = set()
    for version in sorted(history)[1:]:
        before, after = ({one.id: one for one in history[each][0].message.fragments} for each in (version - 1, version))
        operation = decode_transaction(history[version][1]).operation
        effects = effects_of(operation)
        if isinstance(operation, ops.Restore):
            assert effects == effects_of(ops.Restore(1))
            continue
        if isinstance(operation, ops.Overwrite):  # it keeps none
            before = {}
        seen |= {name for name in ("added", "changed", "listed", "removed", "replaced") if getattr(effects, name)}
        assert effects.removed == before.keys() - after.keys()
        assert len(effects.added) == len(after.keys() - before.keys())
        kept = before.keys() & after.keys()
        ids = {one.id for one in effects.restated} | {one.fragment_id for one in effects.replaced}
        if not isinstance(operation, ops.Project):  # files without columns go by themselves
            assert {one for one in kept if shape(before[one]) != shape(after[one])} <= ids <= kept
        there = {file.path for one in before.values() for file in one.files}
        new = {file.path for one in after.values() for file in one.files} - there
        assert {file.path for file in effects.named} - there == new
        rows = {file.path for one in after.keys() - before.keys() for file in after[one].files}
        assert {file.path for file in effects.new_rows} == rows
    assert seen >= {"added", "changed", "listed"}
    assert len(history) <= 20 or seen == {"added", "changed", "listed", "removed", "replaced"}


def shape(fragment: table_pb2.DataFragment) -> tuple[Any, Any]:
    """What operations say of a fragment."""
    return fragment.files[:], fragment.deletion_file


# -- small tables ----------------------------------------------------------------------------------------------------

SCHEMA = schema_from_arrow(pa.schema([("a", pa.int32()), ("b", pa.int32())]))


def fragment(name: str = "x", *, fields: tuple[int, ...] = (0, 1), rows: int = 10, fragment_id: int = 0) -> Fragment:
    file = DataFile(f"{name}.lance", fields, tuple(range(len(fields))), V2_2, 100, None)
    return Fragment(fragment_id, (file,), None, rows, None, None, None)


def following(current: Manifest | None, operation: ops.Operation, **how: Any) -> Manifest:
    """The version that an operation makes, as it is read back."""
    transaction = Transaction(current.version if current is not None else 0, operation)
    built = build_manifest(current, transaction, timestamp_ns=1, **how)
    return decode_manifest(encode_manifest_file(built).data)


@pytest.fixture
def table() -> Manifest:
    return following(None, ops.Overwrite((fragment("x"), fragment("y")), SCHEMA))


def test_the_file_is_what_the_notes_draw(table: Manifest) -> None:
    built = build_manifest(table, Transaction(1, ops.Append((fragment("z"),))), timestamp_ns=5)
    file = encode_manifest_file(built)
    position = manifest_position(file.data, file_bytes=len(file.data))
    length = int.from_bytes(file.data[position : position + 4], "little")
    assert position + 4 + length == len(file.data) - 16
    assert file.data[-16:] == position.to_bytes(8, "little") + b"\0\0\2\0LANC"
    assert file.data[:position] == len(file.transaction).to_bytes(4, "little") + file.transaction
    assert (file.manifest.transaction_offset, file.manifest.index_offset) == (0, None)
    assert not file.manifest.message.HasField("transaction_section_before_v14")


def test_a_huge_transaction_is_not_repeated_inside(table: Manifest) -> None:
    operation = ops.Delete((), (0,), "x" * (20 << 20))
    file = encode_manifest_file(build_manifest(table, Transaction(1, operation), timestamp_ns=5))
    assert len(file.data) < 1000 and file.manifest.transaction_offset is None


@pytest.mark.parametrize(("over_bytes", "is_inside"), [(-1, True), (0, True), (1, False)])
def test_the_limit_of_a_transaction_inside_a_manifest(
    table: Manifest, monkeypatch: pytest.MonkeyPatch, over_bytes: int, is_inside: bool
) -> None:
    transaction = Transaction(1, ops.Delete((), (0,), "x" * 100))
    monkeypatch.setattr("lance_io.table.manifest_file.INLINE_BYTES_MAX", len(transaction.data) - over_bytes)
    file = encode_manifest_file(build_manifest(table, transaction, timestamp_ns=5))
    assert (file.manifest.transaction_offset is not None) == is_inside
    assert (transaction.data in file.data) == is_inside


def test_the_last_number_of_a_fragment(table: Manifest) -> None:
    full = following(table, ops.ReserveFragments((1 << 32) - 3))
    assert full.max_fragment_id == (1 << 32) - 2
    last = following(full, ops.Append((fragment("z"),)))
    assert last.fragments.ids == [0, 1, (1 << 32) - 1]
    with pytest.raises(UsageError, match=f"ran out of fragment ids: {1 << 32} needs more than 32 bits"):
        following(last, ops.Append((fragment("z"),)))
    with pytest.raises(UsageError, match="ran out of fragment ids"):
        following(full, ops.Append((fragment("y"), fragment("z"))))


def test_fragments_are_numbered_behind_the_highest_ever(table: Manifest) -> None:
    fewer = following(table, ops.Delete((), (1,), ""))
    assert (fewer.fragments.ids, fewer.max_fragment_id) == ([0], 1)
    assert following(fewer, ops.Append((fragment("z"),))).fragments.ids == [0, 2]
    reserved = following(fewer, ops.ReserveFragments(5))
    assert (reserved.fragments.ids, reserved.max_fragment_id) == ([0], 6)
    assert following(reserved, ops.Overwrite((fragment("z"),), SCHEMA)).fragments.ids == [7]


def test_a_number_that_a_fragment_brings_is_kept(table: Manifest) -> None:
    assert following(table, ops.Append((fragment("z", fragment_id=9),))).fragments.ids == [0, 1, 9]
    with pytest.raises(UsageError, match="two fragments with id 1"):
        following(table, ops.Append((fragment("z", fragment_id=1),)))


def test_what_is_not_known_survives(table: Manifest) -> None:
    """A field of a later release, in the manifest, in a fragment and in a file."""
    later = b"\xfa\x3f\x03new"  # field 1023
    message = table_pb2.Manifest.FromString(table.message.SerializeToString() + later)
    other = message.fragments[0].SerializeToString() + later
    message.fragments[0].ParseFromString(other)
    message.max_allocated_field_id, message.writer_feature_flags = 1, 32768
    file = message.fragments[1].files[0].SerializeToString() + later
    message.fragments[1].files[0].ParseFromString(file)
    built = following(from_message(message, 1 << 40), ops.Append((fragment("z"),)))
    for each in (built.message, built.message.fragments[0], built.message.fragments[1].files[0]):
        assert later in each.SerializeToString()
    assert built.message.max_allocated_field_id == 1
    changed = replace(built.fragments[0], physical_rows=5)
    assert later in encode_fragment(changed).SerializeToString()
    deleted = following(built, ops.Delete((changed,), (), ""))
    assert later in deleted.message.fragments[0].SerializeToString()


@pytest.mark.parametrize("flag", [64, 512, 4096, 1 << 40])
def test_unknown_writer_flags_are_refused(flag: int) -> None:
    with pytest.raises(UnsupportedError, match=str(flag)):
        check_writer_flags(0, flag)
    check_writer_flags(2, 2 | 8 | 32)


def test_flags_follow_the_content(table: Manifest) -> None:
    assert (table.reader_flags, table.writer_flags) == (0, 0)
    configured = following(table, ops.UpdateConfig(config_updates=ops.UpdateMap({"k": "v"})))
    assert (configured.reader_flags, configured.writer_flags) == (0, 8)
    emptied = following(configured, ops.UpdateConfig(config_updates=ops.UpdateMap({"k": None})))
    assert emptied.writer_flags == 0
    based = following(table, ops.UpdateBases((BasePath(0, "s3://b/x", False, "x"),)))
    assert (based.reader_flags, based.base_paths[1].path) == (16, "s3://b/x")
    with pytest.raises(UsageError, match="declared already"):
        following(based, ops.UpdateBases((BasePath(0, "s3://b/y", False, "x"),)))


def test_another_file_version_sets_a_flag_for_good(table: Manifest) -> None:
    old = fragment("old")
    old = replace(old, files=(replace(old.files[0], version=V2_1),))
    mixed = following(table, ops.Append((old,)))
    assert (mixed.reader_flags, mixed.data_version) == (256, V2_2)
    assert following(mixed, ops.Delete((), (2,), "")).reader_flags == 256


def test_a_new_table_takes_the_version_of_its_files() -> None:
    old = fragment("old")
    old = replace(old, files=(replace(old.files[0], version=V2_1),))
    assert following(None, ops.Overwrite((old,), SCHEMA)).data_version == V2_1
    assert following(None, ops.Overwrite((), SCHEMA)).data_version == V2_2
    assert following(None, ops.Overwrite((), SCHEMA), creation=Creation(V2_1)).data_version == V2_1


def test_an_empty_table_has_no_highest_fragment() -> None:
    empty = following(None, ops.Overwrite((), SCHEMA))
    assert (empty.version, empty.max_fragment_id) == (1, None)
    assert following(empty, ops.Append((fragment(),))).max_fragment_id == 0


def test_projecting_drops_files_without_columns() -> None:
    both = replace(
        fragment("x", fields=(0,)), files=(*fragment("x", fields=(0,)).files, *fragment("y", fields=(1,)).files)
    )
    table = following(None, ops.Overwrite((both,), SCHEMA))
    fewer = following(table, ops.Project(SCHEMA.project(["a"])))
    assert [file.path for file in fewer.fragments[0].files] == ["x.lance"]
    assert fewer.schema.names == ["a"]


def test_a_part_of_a_file_is_replaced_beside_it(table: Manifest) -> None:
    new = fragment("new", fields=(1,)).files[0]
    changed = following(table, ops.DataReplacement((ops.DataReplacementGroup(0, new),)))
    assert [(file.path, file.fields) for file in changed.fragments[0].files] == [
        ("x.lance", (0, -2)),
        ("new.lance", (1,)),
    ]
    other = following(
        changed, ops.DataReplacement((ops.DataReplacementGroup(0, fragment("rest", fields=(0,)).files[0]),))
    )
    assert [file.path for file in other.fragments[0].files] == ["new.lance", "rest.lance"]


def test_dead_files_are_dropped(table: Manifest) -> None:
    dead = replace(table.fragments[0], files=(*table.fragments[0].files, *fragment("dead", fields=(-2, -2)).files))
    assert len(following(table, ops.Delete((dead,), (), "")).fragments[0].files) == 1


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (ops.Delete((), (7,), ""), "fragment 7"),
        (ops.Delete((fragment(fragment_id=7),), (), ""), "fragment 7"),
        (ops.Append((fragment(fields=()),)), "no field"),
        (ops.Merge((fragment(),), SCHEMA), "1 is missing"),
        (ops.Merge((fragment(rows=9), fragment("y", fragment_id=1)), SCHEMA), "number of rows"),
        (ops.UpdateConfig(field_metadata_updates={9: ops.UpdateMap({})}), "field with id 9"),
        (ops.DataReplacement((ops.DataReplacementGroup(9, fragment().files[0]),)), "fragment 9"),
        (ops.Append((fragment(rows=0),)), "how many rows"),
    ],
)
def test_what_cannot_be_is_refused(table: Manifest, operation: ops.Operation, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        following(table, operation)


@pytest.mark.parametrize("operation", [ops.Unknown(), ops.UpdateMemWalState()])
def test_what_is_not_known_is_not_committed(table: Manifest, operation: ops.Operation) -> None:
    with pytest.raises(UnsupportedError):
        following(table, operation)


def test_only_an_overwrite_creates() -> None:
    with pytest.raises(UsageError, match="created by Overwrite"):
        following(None, ops.Append((fragment(),)))
