"""Blobs that the table manages (feature flag 16384): payloads in `_blobs/`, which several data files may share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.blob import blob_array, blob_field

import lance_io
from lance_io.commit.cleanups.cleanup import plan_cleanup, run_cleanup
from lance_io.commit.target import CommitTarget
from lance_io.dataset.distributed import (
    TablePlace,
    WriteJob,
    WrittenFiles,
    abort_write,
    commit_write,
    remove_job_files,
    write_files,
)
from lance_io.errors import FormatError, SchemaError
from lance_io.plans.plan import drive_sync
from lance_io.reads.blobs.blob_values import locate_in_file, read_located
from lance_io.reads.blobs.managed_blobs import ManagedBlobs
from lance_io.reads.version.object_keys import StoredObject
from lance_io.table.transaction.garbage import CleanupPolicy
from tests.interop.test_feature_flags import newest

if TYPE_CHECKING:
    from pathlib import Path

MANAGED = {"lance.blob.managed": "true"}
KINDS = {
    "lance-encoding:blob-inline-size-threshold": "10",
    "lance-encoding:blob-dedicated-size-threshold": "40",
    "lance-encoding:blob-pack-file-size-threshold": "70",
}
PAYLOADS = [b"small", b"p" * 20, b"q" * 30, None, b"", b"d" * 50, b"r" * 40, b"s" * 39]


def rows(metadata: dict[str, str] | None = MANAGED) -> pa.Table:
    """Two blob columns, with thresholds that make all kinds of few bytes, and blobs inside of lists."""
    fields = [blob_field(name) for name in ("b", "c")]
    fields = [field.with_metadata({**(field.metadata or {}), **KINDS}) for field in fields]
    array = blob_array(PAYLOADS)
    lists = pa.ListArray.from_arrays(pa.array([*range(8), 8], pa.int32()), array, type=pa.list_(blob_field("item")))
    schema = pa.schema([pa.field("i", pa.int64()), *fields, pa.field("l", lists.type)], metadata=metadata)
    return pa.table([pa.array(range(8)), array, array, lists], schema=schema)


def payload_files(folder: Path) -> list[int]:
    """Sizes of what lies in `_blobs/`."""
    return sorted(path.stat().st_size for path in (folder / "_blobs").glob("*.blob"))


def shape(uri: str) -> list[Any]:
    """Descriptions without the random names, which are told by their order instead."""
    numbers: dict[str, int] = {}
    found = []
    for row in lance.dataset(uri).to_table(columns=["b", "c"]).to_pylist():
        for blob in row.values():
            if blob is not None and blob["blob_uri"]:
                assert blob["blob_uri"].startswith("_blobs/") and blob["blob_uri"].endswith(".blob")
                blob["blob_uri"] = numbers.setdefault(blob["blob_uri"], len(numbers))
            if blob is not None and blob["kind"] == 0:
                blob["position"] = None  # where in the data file is the writer's own business
            found.append(blob)
    return found


def assert_same(ours: lance_io.LanceDataset, theirs: lance.LanceDataset) -> None:
    """Both libraries give the same bytes, as columns, as files and by ranges."""
    for column in ("b", "c", "l"):
        options = {"columns": [column], "blob_handling": "all_binary"}
        assert ours.to_table(**options).to_pydict() == theirs.to_table(**options).to_pydict()
    every = list(range(theirs.count_rows()))
    found = [
        [blob and (blob.size(), blob.read()) for blob in table.take_blobs("c", indices=every)]
        for table in (ours, theirs)
    ]
    assert found[0] == found[1]
    ours.validate()


@pytest.mark.parametrize("library", [lance, lance_io], ids=["pylance", "ours"])
def test_what_one_library_manages_the_other_reads(tmp_path: Path, library: Any) -> None:
    uri = str(tmp_path / "t")
    library.write_dataset(rows(), uri, max_rows_per_file=5)
    assert_same(lance_io.dataset(uri), lance.dataset(uri))
    for other in (lance, lance_io):
        other.write_dataset(rows(None), uri, mode="append")  # what decides is the table's metadata
        assert_same(lance_io.dataset(uri), lance.dataset(uri))
    library.dataset(uri).delete("i = 1")
    assert_same(lance_io.dataset(uri), lance.dataset(uri))
    assert {blob["kind"] for blob in shape(uri) if blob is not None} == {0, 4}
    assert not list((tmp_path / "t" / "data").glob("*/*.blob"))


def test_our_files_are_laid_out_as_those_of_pylance(tmp_path: Path) -> None:
    for name, library in (("theirs", lance), ("ours", lance_io)):
        library.write_dataset(rows(), str(tmp_path / name), max_rows_per_file=5)
    assert shape(str(tmp_path / "ours")) == shape(str(tmp_path / "theirs"))
    assert payload_files(tmp_path / "ours") == payload_files(tmp_path / "theirs")
    assert list(newest(tmp_path / "ours").fields) == list(newest(tmp_path / "theirs").fields)


def steps_of(library: Any, folder: Path) -> list[tuple[int, int, set[int]]]:
    """Words and kinds of blobs of every version of a history in which the metadata come and go."""
    uri, found = str(folder), []

    def note() -> None:
        message = newest(folder)
        kinds = {blob["kind"] for blob in shape(uri) if blob is not None}
        found.append((message.reader_feature_flags, message.writer_feature_flags, kinds))

    for metadata, options in (
        ({"lance.blob.managed": "false"}, {}),
        (MANAGED, {"mode": "append"}),
        (MANAGED, {"mode": "overwrite"}),
        (None, {"mode": "append"}),
        (None, {"mode": "overwrite"}),
    ):
        library.write_dataset(rows(metadata), uri, **options)
        note()
    for value in ("true", "false", None):
        library.dataset(uri).update_schema_metadata({"lance.blob.managed": value})
        note()
        library.write_dataset(rows(None), uri, mode="append")
        note()
    library.dataset(uri, version=1).restore()
    note()
    return found


def test_the_flag_comes_with_the_metadata_and_stays(tmp_path: Path) -> None:
    ours, theirs = (steps_of(library, tmp_path / library.__name__) for library in (lance_io, lance))
    assert ours == theirs
    assert [words for *words, _ in ours] == [[0, 0]] * 2 + [[16384, 16384]] * 10


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_tables_without_blobs_of_the_second_kind_may_be_managed(tmp_path: Path, version: str) -> None:
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = pa.table([pa.array([b"x" * 200_000, None])], schema=pa.schema([field], metadata=MANAGED))
    described = []
    for library in (lance, lance_io):
        uri = str(tmp_path / library.__name__)
        library.write_dataset(values, uri, data_storage_version=version)
        message = newest(tmp_path / library.__name__)
        files = len(payload_files(tmp_path / library.__name__))
        described.append((message.reader_feature_flags, message.writer_feature_flags, files))
        for other in (lance, lance_io):
            assert [blob and blob.size() for blob in other.dataset(uri).take_blobs("b", indices=[0, 1])] == [
                200_000,
                None,
            ]
    assert described == [(16384, 16384, int(version == "2.2"))] * 2


def test_the_metadata_is_true_or_false(tmp_path: Path) -> None:
    for library in (lance, lance_io):
        for value in ("True", "1", ""):
            uri = str(tmp_path / library.__name__)
            with pytest.raises(OSError, match=r"lance\.blob\.managed must be true or false"):
                library.write_dataset(rows({"lance.blob.managed": value}), uri)
        library.write_dataset(rows(), uri)
        with pytest.raises(OSError, match=r"lance\.blob\.managed must be true or false"):
            library.dataset(uri).update_schema_metadata({"lance.blob.managed": "yes"})
    with pytest.raises(SchemaError):
        lance_io.write_dataset(rows({"lance.blob.managed": "yes"}), str(tmp_path / "t"))
    assert not (tmp_path / "t").exists() or not list((tmp_path / "t").rglob("*.*"))


def test_branches_clones_and_bases_share_payloads(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    theirs = lance.write_dataset(rows(), uri)
    theirs.create_branch("side")
    lance.write_dataset(rows(), theirs.checkout_version(("side", None)), mode="append")
    branch = theirs.checkout_version(("side", None))
    assert_same(lance_io.dataset(uri).checkout_version(("side", None)), branch)
    clone = theirs.shallow_clone(str(tmp_path / "clone"), 1)
    assert_same(lance_io.dataset(clone.uri), clone)
    clone.delete("i = 2")
    clone.optimize.compact_files()  # whose descriptions name the base path of the payloads: kind 5
    assert {blob["kind"] for blob in shape(clone.uri) if blob is not None} == {0, 5}
    assert_same(lance_io.dataset(clone.uri), lance.dataset(clone.uri))
    for is_root in (True, False):
        base = tmp_path / f"base {is_root}"
        base.mkdir()
        bases = [lance.DatasetBasePath(str(base), name="one", is_dataset_root=is_root)]
        made = lance.write_dataset(rows(), str(tmp_path / f"t {is_root}"), initial_bases=bases, target_bases=["one"])
        assert_same(lance_io.dataset(made.uri), made)


def payloads(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_blobs").glob("*.blob")}


def with_history(folder: Path) -> dict[str, set[str]]:
    """A table of which a tag holds a version and a branch another, which was replaced twice and compacted since.

    Gives the payloads that came with each step; nobody knows about those of the last one.
    """
    uri, known = str(folder), set[str]()
    came: dict[str, set[str]] = {}

    def note(step: str) -> None:
        came[step] = payloads(folder) - known
        known.update(came[step])

    lance_io.write_dataset(rows(), uri, max_rows_per_file=4)
    lance_io.dataset(uri).tags.create("kept", 1)
    note("tagged")
    lance_io.write_dataset(rows(), uri, mode="overwrite")
    lance.dataset(uri).create_branch("side")
    lance.write_dataset(rows(), lance.dataset(uri).checkout_version(("side", None)), mode="append")
    note("of a branch")
    lance_io.write_dataset(rows(), uri, mode="overwrite")
    note("replaced")
    lance_io.write_dataset(rows(), uri, mode="overwrite", max_rows_per_file=4)
    lance.dataset(uri).delete("i = 5")
    lance.dataset(uri).optimize.compact_files()
    note("moved")
    (folder / "_blobs" / "under way.blob").write_bytes(b"payload")
    note("under way")
    return came


@pytest.mark.parametrize("unverified", [False, True])
def test_cleanups_remove_the_payloads_that_nothing_names(tmp_path: Path, unverified: bool) -> None:
    removed = []
    for library in (lance, lance_io):
        folder = tmp_path / library.__name__
        came = with_history(folder)
        options = {"delete_unverified": unverified, "error_if_tagged_old_versions": False}
        done = library.dataset(str(folder)).cleanup_old_versions(timedelta(0), **options)
        left = payloads(folder)
        gone = {step: len(files - left) for step, files in came.items()}
        removed.append((gone, done.data_files_removed, done.old_versions))
        for other in (lance, lance_io):
            for version, count in ((None, None), ("kept", 8), (("side", None), 16)):
                table = other.dataset(str(folder))
                table = table if count is None else table.checkout_version(version)
                assert table.to_table(blob_handling="all_binary").num_rows == (count or 7)
    assert removed[0] == removed[1]
    assert removed[1][0] == {
        "tagged": 0,
        "of a branch": 0,
        "replaced": len(came["replaced"]),
        "moved": 2,  # of the deleted row, which share theirs with no other
        "under way": int(unverified),
    }


def test_a_cleanup_looks_at_versions_that_came_meanwhile(tmp_path: Path) -> None:
    """Payloads of a write that commits between the plan of a cleanup and the removal of files."""
    uri = str(tmp_path / "t")
    lance_io.write_dataset(rows(), uri)
    of_a_write = len(payloads(tmp_path / "t"))
    table = lance_io.write_dataset(rows(), uri, mode="overwrite")
    target = CommitTarget(table._state.location, table._state.session.handler(table._state.location))
    policy = CleanupPolicy(older_than_s=0.0, delete_unverified=True)
    (tmp_path / "away").mkdir()
    lance_io.write_dataset(rows(), uri, mode="append")
    newest = min((tmp_path / "t" / "_versions").glob("*.manifest"))
    newest.rename(tmp_path / "away" / newest.name)  # its files are there, the version is not yet
    plan = drive_sync(plan_cleanup(target, policy, blobs_of=ManagedBlobs(table._state).paths))
    (tmp_path / "away" / newest.name).rename(newest)
    drive_sync(run_cleanup(target, plan))
    assert_same(lance_io.dataset(uri), lance.dataset(uri))
    assert lance_io.dataset(uri).count_rows() == 16
    assert len(payloads(tmp_path / "t")) == 2 * of_a_write


def test_a_write_that_fails_leaves_no_payloads(tmp_path: Path) -> None:
    def batches() -> Any:
        yield from rows().to_batches()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        lance_io.write_dataset(batches(), str(tmp_path / "t"), schema=rows().schema)
    assert not [path for path in (tmp_path / "t").rglob("*") if path.is_file()]


def test_tasks_of_a_distributed_write_have_their_payloads_managed(tmp_path: Path) -> None:
    """They go with the data files when the write is aborted, and stay once it was committed."""
    uri = str(tmp_path / "t")
    schema = rows().select(["i", "b"]).schema
    table = lance_io.write_dataset(rows().select(["i", "b"]), uri)
    before, place = payloads(tmp_path / "t"), TablePlace.of_process(uri, {})
    for is_committed in (False, True):
        job = WriteJob.plan(place, lambda known: schema if known is None else known, schema.names)
        batches = iter(rows().select(["i", "b"]).to_batches())
        written = write_files(place, job, schema, batches, rows_per_file=4, bytes_per_file=1 << 20)
        assert payloads(tmp_path / "t") > before
        if is_committed:
            commit_write(place, job, [written])
        text = abort_write(place, job, [written])
        assert ("was committed" in text) == is_committed
        assert (payloads(tmp_path / "t") == before) != is_committed
    found = lance.dataset(uri)
    assert found.count_rows() == 2 * table.count_rows()
    assert [blob and blob.read() for blob in found.take_blobs("b", indices=range(8, 16))] == PAYLOADS


def test_paths_of_managed_blobs_stay_below_their_folder(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    state = lance_io.write_dataset(rows(), uri)._state
    (tmp_path / "secret").write_bytes(b"secret")

    def read(kind: int, base: int, path: str) -> pa.Array:
        members = {"kind": kind, "position": 0, "size": 3, "blob_id": base, "blob_uri": path}
        types = [pa.uint8(), pa.uint64(), pa.uint64(), pa.uint32(), pa.string()]
        arrays = [pa.array([value], one) for value, one in zip(members.values(), types, strict=True)]
        file = StoredObject(state.location.store, str(tmp_path / "t" / "data" / "x.lance"))
        described = pa.StructArray.from_arrays(arrays, list(members))
        return drive_sync(read_located(state, drive_sync(locate_in_file(state, file, described))))

    for path in ("_blobs/../../secret", "../secret", str(tmp_path / "secret"), "", "data/x", "_blobs"):
        with pytest.raises(FormatError, match=r"leaves its folder|expected a path below _blobs/"):
            read(4, 0, path)
    with pytest.raises(FormatError, match="base path 3, which the manifest does not declare"):
        read(5, 3, "_blobs/x.blob")
    with pytest.raises(FormatError, match="blob kind 6"):
        read(6, 0, "_blobs/x.blob")


def write_job(uri: str, job_id: str) -> tuple[TablePlace, WriteJob, WrittenFiles]:
    """A job that has written its files, and has not committed them."""
    given = rows().select(["i", "b"])
    place = TablePlace.of_process(uri, {})
    job = WriteJob.plan(
        place, lambda known: given.schema if known is None else known, given.schema.names, job_id=job_id
    )
    batches = iter(given.to_batches())
    return place, job, write_files(place, job, given.schema, batches, rows_per_file=4, bytes_per_file=1 << 20)


def test_payloads_of_lost_tasks_are_found_by_the_job(tmp_path: Path) -> None:
    """Those that a compaction took over stay, though no data file of the job is left; so does what others wrote."""
    folder, uri = tmp_path / "t", str(tmp_path / "t")
    lance_io.write_dataset(rows().select(["i", "b"]), uri)
    before = payloads(folder)
    place, job, written = write_job(uri, "kept")
    commit_write(place, job, [written])
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    after = payloads(folder)
    assert len(after) > len(before) and not any((folder / path).exists() for path in written.paths if "data/" in path)
    assert remove_job_files(place, "kept") == []
    assert "was committed" not in abort_write(place, job, [written])  # that is not known any more
    assert payloads(folder) == after
    _, _, lost = write_job(uri, "lost")
    _, _, others = write_job(uri, "other")
    assert any(path.startswith("_blobs/") for path in lost.paths)
    assert remove_job_files(place, "lost") == sorted(lost.paths)
    assert remove_job_files(place, "other") == sorted(others.paths)
    assert payloads(folder) == after
    found = [blob and blob.read() for blob in lance.dataset(uri).take_blobs("b", indices=range(16))]
    assert found == PAYLOADS * 2


def test_payloads_of_a_table_that_never_came_to_be(tmp_path: Path) -> None:
    place, _, written = write_job(str(tmp_path / "t"), "job")
    assert any(path.startswith("_blobs/") for path in written.paths)
    assert remove_job_files(place, "job") == sorted(written.paths)
