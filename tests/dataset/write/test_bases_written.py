"""Base paths that are declared and written to by either library, and read by both."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError, OperationError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from tests.servers import S3Server

LIBRARIES = (lance, lance_io)


def rows(start: int, end: int) -> pa.Table:
    """One column that tells where they are from."""
    return pa.table({"a": range(start, end)})


def bases(library: Any, folder: Path) -> list[Any]:
    """Two folders, one of them like a table's."""
    return [
        library.DatasetBasePath(str(folder / "one"), "one"),
        library.DatasetBasePath(str(folder / "two"), "two", True),
    ]


def places(table: Any) -> list[int | None]:
    """The base path of each data file."""
    return [file.base_id for fragment in table.get_fragments() for file in fragment.metadata.files]


def declared(table: Any) -> list[tuple[Any, ...]]:
    """Base paths by id."""
    found = lance_io.dataset(table.uri).base_paths()
    return [(one.id, one.name, one.is_dataset_root, Path(one.path).name) for _, one in sorted(found.items())]


def files(folder: Path) -> set[str]:
    """Kinds of files and where they are, without names that are random."""
    return {str(path.parent.relative_to(folder)) for path in folder.rglob("*.lance")}


TARGETS: list[dict[str, Any]] = [
    {},
    {"target_bases": []},
    {"target_bases": ["one"]},
    {"target_bases": ["two", "one"]},
    {"target_all_bases": True},
]


@pytest.mark.parametrize("targets", TARGETS, ids=str)
def test_files_go_where_those_of_pylance_go(tmp_path: Path, targets: dict[str, Any]) -> None:
    seen = []
    for library in LIBRARIES:
        folder = tmp_path / library.__name__
        uri = str(folder / "t")
        library.write_dataset(rows(0, 7), uri, max_rows_per_file=1, initial_bases=bases(library, folder), **targets)
        created = library.dataset(uri)
        first = places(created), declared(created)
        library.write_dataset(rows(7, 10), uri, mode="append", max_rows_per_file=1, **targets)
        second = places(library.dataset(uri))
        tree = files(folder)
        library.write_dataset(rows(0, 4), uri, mode="overwrite", max_rows_per_file=1, **targets)
        seen.append((first, second, tree, places(library.dataset(uri)), declared(created)))
        for reader in LIBRARIES:
            assert reader.dataset(uri, version=2).to_table() == rows(0, 10)
            assert reader.dataset(uri).to_table() == rows(0, 4)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_bases_are_added_and_named_by_path(tmp_path: Path, library: Any) -> None:
    uri = str(tmp_path / "t")
    table = library.write_dataset(rows(0, 2), uri)
    assert table.add_bases(bases(library, tmp_path), {"why": "room"}) is table
    assert table.version == 2
    table.add_bases([library.DatasetBasePath(str(tmp_path / "three"))])
    transaction = lance_io.dataset(uri).read_transaction(2)
    assert transaction is not None
    assert transaction.transaction_properties == {"why": "room"}
    other = lance_io if library is lance else lance
    other.write_dataset(
        rows(2, 4), uri, mode="append", target_bases=["two", str(tmp_path / "three")], max_rows_per_file=1
    )
    expected = [(1, "one", False, "one"), (2, "two", True, "two"), (3, None, False, "three")]
    assert declared(table) == expected
    for reader in LIBRARIES:
        assert places(reader.dataset(uri)) == [None, 2, 3]
        assert reader.dataset(uri).to_table() == rows(0, 4)
    lance.dataset(uri).optimize.compact_files()
    assert places(lance_io.dataset(uri)) == [None]
    ours = lance_io.dataset(uri)
    ours.cleanup_old_versions(lance_io_zero(), delete_unverified=True)
    assert ours.to_table() == rows(0, 4)


def lance_io_zero() -> Any:
    """No time."""
    from datetime import timedelta

    return timedelta(0)


@pytest.mark.parametrize(
    "change",
    [
        lambda library, table, folder: table.add_bases([library.DatasetBasePath(str(folder / "one"), "uno")]),
        lambda library, table, folder: table.add_bases([library.DatasetBasePath(str(folder / "other"), "one")]),
        lambda library, table, folder: table.add_bases(["x"]),
        lambda library, table, folder: library.write_dataset(
            rows(0, 1), table.uri, mode="append", target_bases=["nope"]
        ),
        lambda library, table, folder: library.write_dataset(
            rows(0, 1), table.uri, mode="append", target_bases=["one"], target_all_bases=True
        ),
        *[
            lambda library, table, folder, mode=mode: library.write_dataset(
                rows(0, 1), table.uri, mode=mode, initial_bases=[library.DatasetBasePath("/x", "x")]
            )
            for mode in ("append", "overwrite")
        ],
        lambda library, table, folder: library.write_dataset(rows(0, 1), table.uri + "2", target_bases=["one"]),
    ],
)
def test_what_cannot_be_is_refused_as_by_pylance(tmp_path: Path, change: Any) -> None:
    lance.write_dataset(rows(0, 2), tmp_path / "t", initial_bases=bases(lance, tmp_path))
    raised = []
    for library in LIBRARIES:
        with pytest.raises((ValueError, OSError, TypeError)) as error:
            change(library, library.dataset(tmp_path / "t"), tmp_path)
        raised.append(error)
    assert isinstance(raised[1].value, raised[0].type)
    assert isinstance(raised[1].value, (LanceError, TypeError))
    assert lance.dataset(tmp_path / "t").version == 1
    assert not list((tmp_path / "t2").rglob("*.lance"))


def test_two_writers_declare_bases(tmp_path: Path) -> None:
    table = lance_io.write_dataset(rows(0, 2), tmp_path / "t")
    stale = [lance_io.dataset(table.uri) for _ in range(3)]
    stale[0].add_bases([lance_io.DatasetBasePath("/x", "x")])
    stale[1].add_bases([lance_io.DatasetBasePath("/y", "y")])
    assert declared(table) == [(1, "x", False, "x"), (2, "y", False, "y")]
    with pytest.raises(OSError, match="Incompatible transaction"):
        stale[2].add_bases([lance_io.DatasetBasePath("/z", "x")])
    theirs = lance.dataset(table.uri, version=1)
    with pytest.raises((OSError, ValueError)):
        theirs.add_bases([lance.DatasetBasePath("/x", "other")])


def test_a_failed_write_leaves_nothing_below_its_bases(tmp_path: Path) -> None:
    table = lance_io.write_dataset(rows(0, 2), tmp_path / "t", initial_bases=bases(lance_io, tmp_path))

    def batches() -> Any:
        yield from rows(0, 5).to_batches()
        raise RuntimeError("no more")

    options: dict[str, Any] = {"target_all_bases": True, "max_rows_per_file": 1}
    with pytest.raises(RuntimeError, match="no more"):
        lance_io.write_dataset(batches(), table.uri, rows(0, 1).schema, "append", **options)
    assert files(tmp_path) == {"t/data"}
    with pytest.raises(UsageError, match="group_commit"):
        lance_io.write_dataset(rows(0, 1), table.uri, mode="append", group_commit=True, target_bases=["one"])
    with pytest.raises(TypeError):
        lance_io.write_dataset(rows(0, 1), tmp_path / "n", initial_bases=["x"])
    with pytest.raises(OperationError, match="same id, name or path"):
        lance_io.write_dataset(rows(0, 1), tmp_path / "n", initial_bases=bases(lance_io, tmp_path)[:1] * 2)


def test_files_go_into_another_store(tmp_path: Path, s3: S3Server, s3_uri: str) -> None:
    options = s3.options()
    uri, there = str(tmp_path / "t"), f"{s3_uri}/base"
    declares = [lance_io.DatasetBasePath(there, "far", True)]
    params = {there: options}
    lance_io.write_dataset(
        rows(0, 4), uri, max_rows_per_file=2, initial_bases=declares, target_bases=["far"], base_store_params=params
    )
    table = lance_io.dataset(uri, base_store_params=params)
    lance_io.write_dataset(rows(4, 8), table, mode="append", max_rows_per_file=2, target_all_bases=True)

    async def later() -> None:
        async with lance_io.AsyncDataset.open(uri, base_store_params=params) as opened:
            await opened.insert(rows(8, 10), target_bases=["far"])
            await opened.delete("a = 3")

    asyncio.run(later())
    for reader in LIBRARIES:
        read = reader.dataset(uri, base_store_params=params)
        assert read.to_table()["a"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert places(read) == [1, 1, None, 1, 1]


def test_fragments_of_a_distributed_write_lie_below_bases(tmp_path: Path) -> None:
    from lance_io.fragment import write_fragments

    uri = str(tmp_path / "t")
    made = {"initial_bases": bases(lance_io, tmp_path), "target_bases": ["two"]}
    transaction = write_fragments(rows(0, 3), uri, mode="create", return_transaction=True, **made)
    lance_io.LanceDataset.commit(uri, transaction)
    more = write_fragments(rows(3, 5), uri, target_bases=["one"])
    lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Append(more), 1)
    for reader in LIBRARIES:
        assert (places(reader.dataset(uri)), reader.dataset(uri).to_table()) == ([2, 1], rows(0, 5))
    assert declared(lance_io.dataset(uri)) == [(1, "one", False, "one"), (2, "two", True, "two")]


def test_blobs_lie_beside_their_files(tmp_path: Path) -> None:
    field = lance_io.blob_field("b", inline_size_threshold=10, dedicated_size_threshold=100)
    blobs = [bytes([size]) * size for size in (3, 40, 120)]
    table = pa.table([lance_io.blob_array(blobs)], schema=pa.schema([field]))
    how: dict[str, Any] = {"initial_bases": bases(lance_io, tmp_path), "target_bases": ["one", "two"]}
    ours = lance_io.write_dataset(table, tmp_path / "t", max_rows_per_file=1, **how)
    for reader in LIBRARIES:
        assert [one.readall() for one in reader.dataset(ours.uri).take_blobs("b", indices=[0, 1, 2])] == blobs
    managed = table.replace_schema_metadata({"lance.blob.managed": "true"})
    with pytest.raises(UnsupportedError, match="manages its blobs"):
        lance_io.write_dataset(managed, tmp_path / "m", **how)


# -- names of manifests ------------------------------------------------------------------------------------------------


def names(folder: str) -> set[str]:
    """Files of versions."""
    return {path.name for path in (Path(folder) / "_versions").iterdir() if not path.name.startswith(".")}


def test_manifests_are_named_as_pylance_names_them(tmp_path: Path) -> None:
    found = []
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        table = library.write_dataset(rows(0, 4), uri, enable_v2_manifest_paths=False)
        table.delete("a = 0")
        table.tags.create("one", 1)
        table.migrate_manifest_paths_v2()
        table.migrate_manifest_paths_v2()
        table.insert(rows(9, 10))  # by the handle that was open
        found.append(names(uri))
        for reader in LIBRARIES:
            assert [one["version"] for one in reader.dataset(uri).versions()] == [1, 2, 3]
            assert reader.dataset(uri, "one").count_rows() == 4
            assert reader.dataset(uri).to_table()["a"].to_pylist() == [1, 2, 3, 9]
    assert found[0] == found[1]


def test_an_interrupted_migration_goes_on(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(rows(0, 4), uri, enable_v2_manifest_paths=False)
    table.delete("a = 0")
    shutil.copy(f"{uri}/_versions/1.manifest", f"{uri}/_versions/{2**64 - 2:020d}.manifest")
    assert lance_io.dataset(uri).version == 2
    asyncio.run(lance_io.AsyncDataset.of(lance_io.dataset(uri, version=2)).migrate_manifest_paths_v2())
    assert lance.dataset(uri).count_rows() == 3
    assert lance.dataset(uri, version=1).count_rows() == 4


def test_no_version_follows_a_detached_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(rows(0, 4), uri)
    append = lance_io.LanceOperation.Append(lance_io.fragment.write_fragments(rows(4, 6), uri))
    detached = lance_io.LanceDataset.commit(uri, append, 1, detached=True)
    for change in (
        lambda: detached.delete("a = 1"),
        lambda: detached.insert(rows(0, 1)),
        lambda: detached.update({"a": "a + 1"}),
        lambda: detached.update_config({"k": "v"}),
        lambda: lance_io.LanceDataset.commit(uri, append, detached.version),
        lambda: table.create_branch("side", detached.version),
    ):
        with pytest.raises(UsageError, match="detached"):
            change()
    assert names(uri) == {f"{2**64 - 2:020d}.manifest", f"d{detached.version}.manifest", "latest_version_hint.json"}
    assert not [path for path in Path(uri, "data").iterdir() if path.stat().st_size == 0]
    table.tags.create("apart", detached.version)
    assert lance.dataset(uri, "apart").to_table() == rows(0, 6)
    detached.restore()
    assert lance.dataset(uri).to_table() == rows(0, 6)


@pytest.mark.parametrize("library", [lance, lance_io])
def test_tables_with_manifests_of_the_older_names_have_no_detached_versions(tmp_path: Path, library: Any) -> None:
    uri = str(tmp_path / "t")
    table = library.write_dataset(rows(0, 1), uri, enable_v2_manifest_paths=False)
    append = library.LanceOperation.Append(library.fragment.write_fragments(rows(1, 2), uri))
    for place in (uri, table):
        with pytest.raises(OSError, match=r"^Not supported: detached commits cannot be used with v1 manifest paths"):
            library.LanceDataset.commit(place, append, 1, detached=True)
