"""`DataFile.create`: what a manifest says of files that were written beside the table, compared with pylance."""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from pathlib import Path
from typing import Any

import lance
import lance.file
import lance.fragment
import pyarrow as pa
import pytest

import lance_io
import lance_io.fragment
from lance_io.errors import UnsupportedError

VERSIONS = ["2.0", "2.1", "2.2"]
ROWS = pa.table(
    {
        "a": [1, 2],
        "s": [{"x": 1, "y": "q"}, {"x": 2, "y": "r"}],
        "l": [[1], [2, 3]],
        "ls": [[{"u": 1, "v": {"w": 2}}], []],
        "f": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
        "d": pa.array(["a", "b"]).dictionary_encode(),
        "e": pa.array([{}, {}], pa.struct([])),
        "n": pa.nulls(2),
        "b": pa.array([b"x", None]),
        "packed": pa.array([{"x": 1, "y": 2}] * 2, pa.struct([("x", pa.int64()), ("y", pa.int64())])),
    }
)
MARK = {b"packed": b"true"}
ROWS = ROWS.cast(pa.schema([one.with_metadata(MARK) if one.name == "packed" else one for one in ROWS.schema]))
FILES = {
    "all": ROWS,
    "another order": ROWS.select(["l", "d", "a"]),
    "a struct": ROWS.select(["s"]),
    "nested": ROWS.select(["ls", "f"]),
    "plain": ROWS.select(["n", "b", "e"]),
    "packed": ROWS.select(["packed", "a"]),
    "another type": pa.table({"a": ["x"]}),
    "another kind of list": pa.table({"l": pa.array([[1]], pa.large_list(pa.int64()))}),
    "no nulls": pa.table([[1]], pa.schema([pa.field("a", pa.int64(), nullable=False)])),
    "no rows": ROWS.select(["a", "s"]).slice(0, 0),
    "fewer members": pa.table({"s": [{"x": 1}]}),
    "fewer members inside": pa.table({"ls": [[{"u": 1}]]}),
    "more members": pa.table({"s": [{"x": 1, "y": "q", "z": 1}]}),
    "members in another order": pa.table({"s": [{"y": "q", "x": 1}]}),
    "a struct for a number": pa.table({"a": [{"x": 1}]}),
    "another name": pa.table({"A": [1]}),
    "another name beside": pa.table({"a": [1], "zz": [1]}),
}


def write(path: str, rows: pa.Table, version: str = "2.1") -> None:
    """A file of its own."""
    with lance.file.LanceFileWriter(path, rows.schema, version=version) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)


def told(library: Any, uri: str, path: str, **options: Any) -> Any:
    """What `create` gives, or with which error it refuses."""
    try:
        found = library.fragment.DataFile.create(library.dataset(uri), path, **options)
    except (ValueError, TypeError, OverflowError) as error:
        return next(kind for kind in (ValueError, TypeError, OverflowError) if isinstance(error, kind))
    return [str(found.path), found.fields, found.column_indices, *astuple_of(found)]


def astuple_of(file: Any) -> list[Any]:
    """What of it is not lists."""
    return [file.file_major_version, file.file_minor_version, file.file_size_bytes, file.base_id]


@pytest.fixture(scope="module", params=VERSIONS)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of each file version, without the first column's first id."""
    path = str(tmp_path_factory.mktemp("files") / "t")
    lance.write_dataset(ROWS.append_column("gone", ROWS["a"]), path, data_storage_version=request.param)
    lance.dataset(path).drop_columns(["gone"])
    return path


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FILES)
def test_it_says_what_pylance_says(uri: str, name: str, version: str) -> None:
    path = f"{name.replace(' ', '_')}_{version}.lance"
    write(f"{uri}/data/{path}", FILES[name], version)
    expected = told(lance, uri, path)
    assert told(lance_io, uri, path) == expected
    assert (expected is ValueError) == (name not in [*FILES][:10])


def test_refusals_begin_as_those_of_pylance(uri: str) -> None:
    for name in [*FILES][10:]:
        path = f"refused_{name.replace(' ', '_')}.lance"
        write(f"{uri}/data/{path}", FILES[name])
        texts = []
        for library in (lance, lance_io):
            with pytest.raises(ValueError) as error:
                library.fragment.DataFile.create(library.dataset(uri), path)
            texts.append(str(error.value).removeprefix("Invalid user input: ").partition(", /")[0])
        assert texts[1].startswith(texts[0])


def test_a_file_made_by_us_replaces_a_column(tmp_path: Path) -> None:
    for library in (lance_io, lance):
        uri = str(tmp_path / library.__name__)
        table = lance_io.write_dataset(pa.table({"a": [1, 2], "b": [3, 4]}), uri, data_storage_version="2.1")
        with lance_io.file.LanceFileWriter(
            f"{uri}/data/new.lance", pa.schema({"b": pa.int64()}), version="2.1"
        ) as file:
            file.write_batch(pa.record_batch({"b": [8, 9]}))
        module = library.fragment
        made = module.DataFile.create(library.dataset(uri), "new.lance")
        group = library.LanceOperation.DataReplacementGroup(0, made)
        library.LanceDataset.commit(uri, library.LanceOperation.DataReplacement([group]), read_version=table.version)
        assert lance.dataset(uri).to_table().to_pydict() == {"a": [1, 2], "b": [8, 9]}
        assert lance_io.dataset(uri).to_table().to_pydict() == {"a": [1, 2], "b": [8, 9]}


def test_maps_and_blobs(tmp_path: Path) -> None:
    maps = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64()))
    items = pa.array([[{"q": 1}], [{"q": 2}]], pa.list_(pa.struct([("q", pa.int32())]), 1))
    uri = str(tmp_path / "t")
    rows = pa.table({"m": maps, "fs": items, "b": lance_io.blob_array([b"x", b"y"])})
    lance_io.write_dataset(rows, uri, data_storage_version="2.2")
    (file,) = Path(uri, "data").glob("*.lance")
    found = told(lance_io, uri, file.name)
    assert found == told(lance, uri, file.name)
    (stored,) = lance.dataset(uri).get_fragments()[0].metadata.files
    assert found[1] == stored.fields


def test_base_paths(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for base_id, is_root in ((5, False), (6, True)):
        place = tmp_path / f"base{base_id}"
        (place / "data").mkdir(parents=True)
        write(str(place / "data" / "y.lance" if is_root else place / "y.lance"), pa.table({"a": [1]}))
    bases = [lance.DatasetBasePath(str(tmp_path / f"base{one}"), id=one, is_dataset_root=one == 6) for one in (5, 6)]
    lance.write_dataset(pa.table({"a": [1]}), uri, initial_bases=bases)
    for base_id in (5, 6, 7, 0, -1, 1 << 40, "5", None):
        found = told(lance_io, uri, "y.lance", base_id=base_id)
        assert found == told(lance, uri, "y.lance", base_id=base_id)
        assert (base_id in (5, 6)) == isinstance(found, list)


@pytest.mark.parametrize("path", ["absent.lance", 7, Path("absent.lance"), "../x.lance", "junk.lance"])
def test_what_is_no_file(uri: str, path: Any) -> None:
    Path(uri, "data", "junk.lance").write_text("hallo" * 50)
    assert told(lance_io, uri, path) is told(lance, uri, path)


def test_files_of_version_0_1_are_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1]}), uri, data_storage_version="0.1")
    (file,) = Path(uri, "data").glob("*.lance")
    for library in (lance, lance_io):
        with pytest.raises(RuntimeError):
            library.fragment.DataFile.create(library.dataset(uri), file.name)
    with pytest.raises(UnsupportedError, match=r"0\.1"):
        lance_io.fragment.DataFile.create(lance_io.dataset(uri), file.name)


def test_from_a_coroutine(uri: str) -> None:
    write(f"{uri}/data/later.lance", pa.table({"a": [1]}))

    async def work() -> lance_io.fragment.DataFile:
        async with lance_io.AsyncDataset.open(uri) as table:
            return await lance_io.fragment.DataFile.create_async(table, "later.lance")

    assert astuple(asyncio.run(work())) == astuple(
        lance_io.fragment.DataFile.create(lance_io.dataset(uri), "later.lance")
    )


def test_sessions_of_fragments_have_a_public_name(uri: str) -> None:
    for library in (lance, lance_io):
        session = library.dataset(uri).get_fragments()[0].open_session(["a"])
        assert isinstance(session, library.fragment.FragmentSession)
