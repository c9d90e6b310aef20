"""Tables whose files lie in more than one place: clones, and base paths on disk, in memory and on S3."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import DatasetBasePath

import lance_io
from lance_io.errors import AccessDenied, FormatError, UnsupportedError
from lance_io.io.stats import io_stats
from lance_io.runtime import run
from lance_io.store.url import resolve_uri
from tests.fuzz.test_found import change_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.proto import table_pb2
    from tests.servers import S3Server

ROWS = pa.table({"i": range(100), "s": [f"row {i}" for i in range(100)], "l": [[i] * (i % 3) for i in range(100)]})


def assert_same(ours: lance_io.LanceDataset, theirs: lance.LanceDataset) -> None:
    """Every way of reading gives what pylance gives."""
    assert ours.count_rows() == theirs.count_rows()
    assert ours.to_table(with_row_id=True).equals(theirs.to_table(with_row_id=True))
    wanted = [0, 77, 13, 13, ours.count_rows() - 1]
    assert ours.take(wanted).equals(theirs.take(wanted))
    for expression in (pc.field("i") > 90, "i % 10 = 3"):
        assert ours.to_table(filter=expression).equals(theirs.to_table(filter=expression))
    (first, *_) = ours.get_fragments()
    assert first.to_table().equals(theirs.get_fragments()[0].to_table())
    assert [one.num_rows for one in ours.to_batches(batch_size=7)][:3] == [7, 7, 7]


def test_shallow_clones_are_read_where_their_files_are(tmp_path: Path) -> None:
    source = lance.write_dataset(ROWS, str(tmp_path / "source"), max_rows_per_file=30)
    source.delete("i = 7")
    clone = source.shallow_clone(str(tmp_path / "clone"), source.version)
    assert_same(lance_io.dataset(clone.uri), clone)
    clone.delete("i in (8, 50)")  # one deletion file takes the place of an inherited one, one is new
    clone = lance.write_dataset(ROWS.slice(0, 10), clone.uri, mode="append")
    assert_same(lance_io.dataset(clone.uri), clone)
    assert not list((tmp_path / "clone").glob("data/*"))[1:], "only what was appended is here"


@pytest.fixture
def options(s3: S3Server) -> dict[str, str]:
    return s3.options()


def blob_rows() -> pa.Table:
    """Blobs in the data file, packed with others, and alone."""
    values = [bytes(size) for size in (3, 0, 40, 41, 120)] * 8
    field = lance_io.blob_field("b", inline_size_threshold=10, dedicated_size_threshold=100)
    return pa.table([pa.array(range(40)), lance_io.blob_array(values)], schema=pa.schema([("i", pa.int64()), field]))


@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_tables_on_disk_and_in_a_bucket_have_files_in_the_other(
    tmp_path: Path, s3_uri: str, options: dict[str, str], where: str
) -> None:
    disk, bucket = tmp_path.as_uri(), s3_uri
    here, there = (disk, bucket) if where == "disk" else (bucket, disk)
    bases = [DatasetBasePath(f"{there}/one", name="one", is_dataset_root=True), DatasetBasePath(f"{there}/2", name="2")]
    uri, how = f"{here}/table", {"initial_bases": bases, "target_bases": ["one", "2"], "storage_options": options}
    theirs = lance.write_dataset(ROWS, uri, max_rows_per_file=30, **how)
    theirs.delete("i = 7")
    theirs = lance.write_dataset(ROWS.slice(0, 10), uri, mode="append", storage_options=options)
    ours = lance_io.dataset(uri, storage_options=options)
    assert_same(ours, theirs)
    places = {file.base_id for fragment in ours.get_fragments() for file in fragment.data_files()}
    assert places == {None, 1, 2}

    async def later() -> pa.Table:
        async with lance_io.AsyncDataset.open(uri, storage_options=options) as table:
            return await table.take([1, 99, 101])

    assert asyncio.run(later()).equals(theirs.take([1, 99, 101]))
    ours.take([6, 41, 81, 105])  # scans leave nothing of pages in the cache
    with io_stats() as seen:
        ours.take([5, 40, 80, 104])
    assert seen.rounds == 1, "warm, files of all stores are read in one round"


def test_a_base_path_may_have_options_of_its_own(tmp_path: Path, s3_uri: str, options: dict[str, str]) -> None:
    uri, base = str(tmp_path / "table"), f"{s3_uri}/base"
    bases = {"initial_bases": [DatasetBasePath(base, name="one")], "target_bases": ["one"]}
    lance.write_dataset(ROWS, uri, storage_options=options, **bases)
    theirs = lance.dataset(uri, base_store_params={base: options})
    ours = lance_io.dataset(uri, base_store_params={base: options})
    assert_same(ours, theirs)
    assert pickle.loads(pickle.dumps(ours)).take([3]) == theirs.take([3])
    assert ours.checkout_version(1).take([3]) == theirs.take([3])
    wrong = lance_io.dataset(uri, base_store_params={base: {**options, "aws_secret_access_key": "wrong"}})
    with pytest.raises(AccessDenied) as error:
        wrong.to_table()
    for text in (str(error.value), repr(ours), repr(ours._state)):
        assert options["aws_secret_access_key"] not in text


def test_blobs_below_a_base_path(tmp_path: Path, s3_uri: str, options: dict[str, str]) -> None:
    uri = str(tmp_path / "table")
    bases = {"initial_bases": [DatasetBasePath(f"{s3_uri}/base", name="one")], "target_bases": ["one"]}
    table = lance.write_dataset(blob_rows(), uri, data_storage_version="2.2", storage_options=options, **bases)
    theirs = [blob.readall() for blob in table.take_blobs("b", indices=list(range(40)))]
    ours = lance_io.dataset(uri, storage_options=options)
    assert [blob.readall() for blob in ours.take_blobs("b", indices=list(range(40)))] == theirs
    assert len({len(one) for one in theirs}) == 5


def moved(table: Path, uri: str) -> str:
    """A table of the local disk, copied into the store of `uri`."""
    place = resolve_uri(uri)
    for path in table.rglob("*"):
        if path.is_file():
            run(place.store.put(place.key(*path.relative_to(table).parts), path.read_bytes()))
    return uri


def split(folder: Path, name: str, base: str, *, is_root: bool = True) -> str:
    """A table in one memory store whose data lies in another, or wherever `base` says."""
    lance.write_dataset(ROWS, str(folder / name), max_rows_per_file=30).delete("i = 7")
    if base.startswith("shared-memory:"):
        moved(folder / name, base)
    shutil.rmtree(folder / name / "data")

    def change(manifest: table_pb2.Manifest) -> None:
        manifest.base_paths.add(id=3, path=base, is_dataset_root=is_root)
        for fragment in manifest.fragments:
            for file in fragment.files:
                file.base_id = 3

    change_manifest(folder / name, change)
    return moved(folder / name, f"shared-memory://{name}-home/table")


def test_stores_in_memory(tmp_path: Path) -> None:
    uri = split(tmp_path, "split", "shared-memory://split-base/place")
    table = lance_io.dataset(uri)
    assert table.to_table().equals(ROWS.filter(pc.field("i") != 7))
    assert table.take([7], columns=["s"]).to_pydict() == {"s": ["row 8"]}
    assert [one.num_rows for one in table.to_batches(scan_in_order=False)]
    explained = table.scanner(columns=["i"]).explain_io()
    assert "split-base/place/data" in str(explained)


@pytest.mark.parametrize(
    ("base", "error"), [("hf://bucket/place", UnsupportedError), ("no-scheme-of-ours://x", FormatError)]
)
def test_a_base_path_that_is_not_opened_is_named_when_it_is_needed(
    tmp_path: Path, base: str, error: type[Exception]
) -> None:
    table = lance_io.dataset(split(tmp_path, f"closed{len(base)}", base))
    assert table.count_rows() == 99
    with pytest.raises(error, match=base):
        table.to_table()


def test_paths_stay_below_their_base(tmp_path: Path) -> None:
    uri = split(tmp_path, "leaving", "shared-memory://leaving-base/place", is_root=False)

    def change(manifest: table_pb2.Manifest) -> None:
        manifest.fragments[0].files[0].path = "../table/data/x.lance"

    change_manifest(tmp_path / "leaving", change)
    moved(tmp_path / "leaving", uri)
    with pytest.raises(FormatError, match="leaves its folder"):
        lance_io.dataset(uri).to_table()
