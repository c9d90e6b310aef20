"""Tables whose row ids and row versions lie in columns of data files (feature flag 2048)."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
import shutil
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import FormatError
from lance_io.file import LanceFileReader
from lance_io.fragment import RowIdMeta
from lance_io.optimize import Compaction
from lance_io.reads.metadata.lance_schema import LanceSchema
from lance_io.table.transaction.lineage import SPILLED
from tests.fuzz.test_found import change_manifest
from tests.interop.test_feature_flags import newest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.proto import table_pb2

SPILL = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "100"}
LINEAGE = ["i", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def spilled(folder: Path, name: str, version: str = "2.2") -> lance.LanceDataset:
    """A table of pylance with row ids that make long sequences, and blobs beside them."""
    uri = str(folder / name)
    payloads = [bytes([i % 250]) for i in range(3000)]
    field = lance_io.blob_field("b") if version == "2.2" else pa.field("b", pa.binary())
    blobs = lance_io.blob_array(payloads) if version == "2.2" else pa.array(payloads)
    rows = pa.table([pa.array(range(3000)), blobs], schema=pa.schema([("i", pa.int64()), field]))
    options = {"enable_stable_row_ids": True, "data_storage_version": version}
    table = lance.write_dataset(rows, uri, max_rows_per_file=1000, **options)
    table.update_config(SPILL)
    shuffled = random.Random(1).sample(range(3000), 1500)
    lance.dataset(uri).merge_insert("i").when_matched_update_all().execute(rows.take(shuffled))
    return lance.dataset(uri)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_lineage_in_data_files_is_read(tmp_path: Path, version: str) -> None:
    theirs = spilled(tmp_path, "t", version)
    for compacted in (False, True):
        if compacted:
            theirs.optimize.compact_files(target_rows_per_fragment=10_000)
            theirs = lance.dataset(theirs.uri)
        ours = lance_io.dataset(theirs.uri)
        assert ours._state.manifest.reader_flags & 2048
        assert {one for fragment in ours._state.manifest.fragments for one in fragment.spilled} >= {-3}
        assert ours.to_table(columns=LINEAGE).equals(theirs.to_table(columns=LINEAGE))
        ids = [2999, 0, 1234, 5]
        assert ours._take_rows(ids, columns=["i"]).equals(theirs._take_rows(ids, columns=["i"]))
        assert ours.schema == theirs.schema and ours.to_table(columns=["i"]).column_names == ["i"]


def project(library: Any, uri: str) -> None:
    if library is lance:
        lance.dataset(uri).drop_columns(["i"])
        return
    table = lance_io.dataset(uri)
    schema = table.lance_schema._schema
    operation = lance_io.LanceOperation.Project(LanceSchema(replace(schema, fields=schema.fields[1:])))
    lance_io.LanceDataset.commit(uri, operation, read_version=table.version)


NEW = pa.table([pa.array([7000, 7001])], names=["i"])
CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda library, uri: library.write_dataset(NEW, uri, mode="append"),
    "delete": lambda library, uri: library.dataset(uri).delete("i % 7 = 3"),
    "delete all of them": lambda library, uri: library.dataset(uri).delete("i < 5000"),
    "config": lambda library, uri: library.dataset(uri).update_config({"lance.row_lineage.spill": None}),
    "overwrite": lambda library, uri: library.write_dataset(NEW, uri, mode="overwrite"),
    "project": project,
    "restore": lambda library, uri: library.dataset(uri, version=3).restore(),
}


@pytest.mark.parametrize("compacted", [False, True])
def test_changes_leave_what_those_of_pylance_leave(tmp_path: Path, compacted: bool) -> None:
    """Appends bring sequences of their own, deletions touch none, and the flag goes with the last column."""
    source = spilled(tmp_path, "source", "2.1")
    if compacted:
        source.optimize.compact_files(target_rows_per_fragment=10_000)
    for name, change in CHANGES.items():
        found = []
        for library in (lance, lance_io):
            folder = tmp_path / f"{name} {library.__name__}"
            shutil.copytree(tmp_path / "source", folder)
            change(library, str(folder))
            message = newest(folder)
            theirs, ours = lance.dataset(str(folder)), lance_io.dataset(str(folder))
            columns = [*theirs.schema.names[:1], *LINEAGE[1:]]
            rows = ours.to_table(columns=columns)
            assert rows.equals(theirs.to_table(columns=columns)), name
            ours.validate()
            files = [[list(file.fields) for file in fragment.files] for fragment in message.fragments]
            marks = [[one.HasField(part) for part in SPILLED] for one in message.fragments]
            found.append((message.reader_feature_flags, message.writer_feature_flags, files, marks, rows))
        assert found[0] == found[1], name
        is_gone = name in ("delete all of them", "overwrite")
        assert bool(found[1][0] & 2048) != is_gone, name


def values(numbers: list[int]) -> pa.Table:
    return pa.table({"i": pa.array(numbers, pa.int64()), "b": pa.array([b"new"] * len(numbers), pa.binary())})


def upsert(library: Any, uri: str, rows: pa.Table) -> None:
    merge = library.dataset(uri).merge_insert("i").when_matched_update_all()
    (merge.when_not_matched_insert_all() if "b" in rows.schema.names else merge).execute(rows)


def replace_columns(library: Any, uri: str) -> None:
    dataset = library.dataset(uri)
    changed, fields = dataset.get_fragments()[-1].update_columns(values([5, 8, 2999]), left_on="i")
    operation = library.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    library.LanceDataset.commit(uri, operation, read_version=dataset.version)


MOVES: dict[str, Callable[[Any, str], Any]] = {
    "update": lambda library, uri: library.dataset(uri).update({"b": "X'00'"}, where="i % 3 = 1"),
    "upsert": lambda library, uri: upsert(library, uri, values([2999, 5, 9001, 1500, 9000])),
    "partial upsert": lambda library, uri: upsert(library, uri, pa.table({"i": [2, 2500, 70]})),
    "replaced columns": replace_columns,
}


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("name", MOVES)
def test_moved_rows_keep_their_lineage(tmp_path: Path, name: str, compacted: bool) -> None:
    source = spilled(tmp_path, "source", "2.1")
    if compacted:
        source.optimize.compact_files(target_rows_per_fragment=10_000)
    found = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        shutil.copytree(tmp_path / "source", uri)
        for _ in range(2):  # the second time rows are moved whose lineage is in the manifest again
            MOVES[name](library, uri)
        theirs, ours = (
            each.dataset(uri).to_table(columns=[*LINEAGE, "b"]).sort_by("_rowid") for each in (lance, lance_io)
        )
        assert ours.equals(theirs)
        found.append(ours)
    assert found[0].equals(found[1])


def unspilled(folder: Path) -> str:
    """A table whose configuration asks for lineage in data files, and which has none there yet."""
    uri = str(folder)
    dataset = lance_io.write_dataset(values(list(range(3000))), uri, enable_stable_row_ids=True, max_rows_per_file=1000)
    dataset.update_config(SPILL)
    upsert(lance_io, uri, values(random.Random(1).sample(range(3000), 1500)))
    return uri


def compact(uri: str, **options: Any) -> None:
    lance_io.dataset(uri).optimize.compact_files(**options)


def compact_in_tasks(uri: str, **options: Any) -> None:
    """Each task in another process, as far as it can tell."""
    plan = Compaction.plan(lance_io.dataset(uri), options)
    tasks = [pickle.loads(pickle.dumps(task)) for task in plan.tasks]
    results = [pickle.loads(pickle.dumps(task.execute(lance_io.dataset(uri)))) for task in tasks]
    Compaction.commit(lance_io.dataset(uri), results)


def compact_on_a_loop(uri: str, **options: Any) -> None:
    async def run() -> None:
        async with AsyncDataset.open(uri) as dataset:
            await dataset.optimize.compact_files(**options)

    asyncio.run(run())


@pytest.mark.parametrize("compacts", [compact, compact_in_tasks, compact_on_a_loop])
@pytest.mark.parametrize("mode", ["reencode", "force_binary_copy"])
def test_compactions_put_lineage_into_files(tmp_path: Path, compacts: Callable[..., None], mode: str) -> None:
    uri = unspilled(tmp_path / "t")
    if mode == "reencode":
        lance_io.dataset(uri).delete("i % 5 = 3")
    else:  # which takes no deleted rows
        lance_io.dataset(uri, version=2).restore()
        lance_io.dataset(uri).update_config({"lance.row_lineage.inline_max_bytes": "1"})
    before = lance.dataset(uri).to_table(columns=LINEAGE).sort_by("_rowid")
    compacts(uri, compaction_mode=mode, verify="read")
    (fragment,) = newest(tmp_path / "t").fragments
    assert fragment.HasField("spilled_row_ids") and not fragment.inline_row_ids
    assert list(fragment.files[-1].fields) == ([-3] if mode == "reencode" else [-3, -4, -5])
    assert newest(tmp_path / "t").reader_feature_flags & 2048
    lance_io.dataset(uri).cleanup_old_versions(timedelta(0))
    for library in (lance, lance_io):
        found = library.dataset(uri)
        assert found.to_table(columns=LINEAGE).sort_by("_rowid").equals(before)
        assert found.to_table().column_names == ["i", "b"]
        assert found._take_rows([2999, 7], columns=["i"])["i"].to_pylist() == [2999, 7]
    lance_io.dataset(uri).validate()
    lance.dataset(uri).update({"b": "X'00'"}, where="i < 5")
    lance.dataset(uri).optimize.compact_files()
    assert lance_io.dataset(uri).to_table(columns=LINEAGE[:3]).sort_by("_rowid").equals(before.select(LINEAGE[:3]))


def test_short_lineage_stays_in_the_manifest(tmp_path: Path) -> None:
    for name, config in (
        ("off", {"lance.row_lineage.spill": "false"}),
        ("none", {"lance.row_lineage.spill": None}),
        ("short", {"lance.row_lineage.inline_max_bytes": None}),  # which are 200 KiB
    ):
        uri = unspilled(tmp_path / name)
        lance_io.dataset(uri).update_config(config)
        compact(uri)
        (fragment,) = newest(tmp_path / name).fragments
        assert fragment.inline_row_ids and len(fragment.files) == 1
    lance_io.dataset(uri).update_config({"lance.row_lineage.inline_max_bytes": "many"})
    lance_io.dataset(uri).delete("i < 1500")
    with pytest.raises(ValueError, match="'many' is no number of bytes"):
        compact(uri)


def test_a_compaction_that_fails_leaves_no_lineage(tmp_path: Path) -> None:
    uri = unspilled(tmp_path / "t")
    plan = Compaction.plan(lance_io.dataset(uri))
    before = set((tmp_path / "t" / "data").iterdir())
    lance_io.dataset(uri).delete("i = 7")
    dataset = lance_io.dataset(uri, version=plan.read_version)
    lance_io.dataset(uri).restore()
    with pytest.raises(OSError):
        dataset.optimize.compact_files()
    assert set((tmp_path / "t" / "data").iterdir()) == before


def test_fragments_say_that_their_lineage_is_a_column(tmp_path: Path) -> None:
    """As pylance writes it in JSON; a fragment that goes through a caller's hands keeps its row ids."""
    theirs = spilled(tmp_path, "t", "2.1")
    theirs.optimize.compact_files(target_rows_per_fragment=10_000)
    theirs = lance.dataset(theirs.uri)
    ours = lance_io.dataset(theirs.uri)
    for mine, other in zip(ours.get_fragments(), theirs.get_fragments(), strict=True):
        assert mine.metadata.to_json() == other.metadata.to_json()
        assert lance_io.FragmentMetadata.from_json(json.dumps(other.metadata.to_json())) == mine.metadata
    metadata = ours.get_fragments()[-1].delete("i = 5")
    assert metadata is not None and metadata.row_id_meta == RowIdMeta(None)
    assert RowIdMeta.from_json(RowIdMeta(None).json()) == RowIdMeta(None)
    before = theirs.to_table(columns=LINEAGE, filter="i != 5")
    operation = lance_io.LanceOperation.Delete([metadata], [], "i = 5")
    lance_io.LanceDataset.commit(theirs.uri, operation, read_version=ours.version)
    for library in (lance, lance_io):
        assert library.dataset(theirs.uri).to_table(columns=LINEAGE).equals(before)


def test_pylance_goes_on_from_our_version(tmp_path: Path) -> None:
    theirs = spilled(tmp_path, "t", "2.1")
    theirs.optimize.compact_files(target_rows_per_fragment=10_000)
    lance_io.write_dataset(NEW, theirs.uri, mode="append")
    lance_io.dataset(theirs.uri).delete("i % 5 = 1")
    before = lance.dataset(theirs.uri).to_table(columns=LINEAGE).sort_by("_rowid")
    lance.dataset(theirs.uri).optimize.compact_files(target_rows_per_fragment=10_000)
    assert lance_io.dataset(theirs.uri).to_table(columns=LINEAGE).sort_by("_rowid").equals(before)
    lance.dataset(theirs.uri).update({"i": "i + 10000"}, where="i < 100")
    for library in (lance, lance_io):
        assert library.dataset(theirs.uri)._take_rows([3], columns=["i"]).to_pydict() == {"i": [10003]}


def test_the_columns_are_those_of_the_file(tmp_path: Path) -> None:
    theirs = spilled(tmp_path, "t")
    theirs.optimize.compact_files(target_rows_per_fragment=10_000)
    (path,) = (tmp_path / "t" / "data" / file.path for file in lance.dataset(theirs.uri).get_fragment(4).data_files())
    names = LanceFileReader(path).schema.names
    assert names == ["i", "b", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def test_markers_that_contradict_the_files(tmp_path: Path) -> None:
    def last(manifest: table_pb2.Manifest) -> table_pb2.DataFragment:
        return next(one for one in manifest.fragments if one.HasField("spilled_row_ids"))

    def both(manifest: table_pb2.Manifest) -> None:
        last(manifest).inline_row_ids = b"x"

    def nowhere(manifest: table_pb2.Manifest) -> None:
        del last(manifest).files[1:]

    def no_marker(manifest: table_pb2.Manifest) -> None:
        last(manifest).ClearField("spilled_row_ids")

    for name, change, match in (
        ("both", both, "both in the manifest and not"),
        ("nowhere", nowhere, "in 0 data files"),
        ("no marker", no_marker, "no row ids"),
    ):
        theirs = spilled(tmp_path, name, "2.1")
        change_manifest(tmp_path / name, change)
        with pytest.raises(FormatError, match=match):
            lance_io.dataset(theirs.uri).to_table()


def test_fields_of_a_table_have_ids(tmp_path: Path) -> None:
    theirs = spilled(tmp_path, "t", "2.1")
    change_manifest(tmp_path / "t", lambda manifest: setattr(manifest.fields[0], "id", -3))
    with pytest.raises(FormatError, match="below 0"):
        lance_io.dataset(theirs.uri)
