"""Unusual calls: what pylance makes of them, or an error in the words of the caller."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
import lance_io.file
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS: Final = pa.table({"a": [3, 1, 2], "s": ["x", "y", "z"]})
LIBRARIES: Final = [lance, lance_io]
NO_PATHS: Final = [b"t.lance", 5, ["t.lance"]]
SIZES: Final = [-1, "5", 1.5, b"5", [5], 2**70]
NO_VERSIONS: Final = [[1], 1.5, True, b"1", {}, ("main",), (1, 2), (None, "1"), (None, 1.5)]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("unusual") / "a table.lance")
    lance.write_dataset(ROWS, uri)
    return uri


def test_files_with_one_slash(uri: str, tmp_path: Path) -> None:
    for text in (f"file:{uri}", f"FILE:{uri}", f"file:{uri.replace(' ', '%20')}", f"file://{uri}"):
        for library in LIBRARIES:
            table = library.dataset(text)
            assert table.to_table() == ROWS
            assert table.uri == text
    lance_io.write_dataset(ROWS, f"file:{tmp_path}/new.lance")
    assert lance.dataset(tmp_path / "new.lance").to_table() == ROWS
    with lance_io.file.LanceFileWriter(f"file:{tmp_path}/one.lance", ROWS.schema) as writer:
        writer.write_batch(ROWS)
    assert lance_io.file.LanceFileReader(f"file:{tmp_path}/one.lance").num_rows() == 3


def test_files_without_a_slash_are_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pylance takes the path from the root, which nobody means."""
    folder, name = os.path.split(uri)
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=f"file:{name}: expected file:/absolute/path"):
        lance_io.dataset(f"file:{name}")


@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
def test_what_is_no_path(path: Any, tmp_path: Path) -> None:
    async def opened() -> None:
        await lance_io.AsyncDataset.open(path)

    for library in LIBRARIES:
        with pytest.raises(TypeError):
            library.dataset(path)
        with pytest.raises(TypeError):
            library.write_dataset(ROWS, path)
    for call in (lambda: lance_io.dataset(path), lambda: asyncio.run(opened())):
        with pytest.raises(TypeError, match=rf"expected a path or URI .*found {path!r}".replace("[", r"\[")):
            call()


def test_an_async_dataset_is_opened_not_made(uri: str) -> None:
    for arguments in ((), (uri,), (uri, 1)):
        with pytest.raises(TypeError, match=r"AsyncDataset\.open\(uri\)"):
            lance_io.AsyncDataset(*arguments)


@pytest.mark.parametrize("size", SIZES, ids=repr)
@pytest.mark.filterwarnings("ignore:.*index_cache_size:DeprecationWarning")
@pytest.mark.parametrize("name", ["metadata_cache_size_bytes", "index_cache_size_bytes", "index_cache_size"])
def test_sizes_of_caches(name: str, size: Any, uri: str) -> None:
    expected = OverflowError if isinstance(size, int) else TypeError
    for library in LIBRARIES:
        with pytest.raises(expected):
            library.dataset(uri, **{name: size})
    with pytest.raises(expected, match=f"{name} must be"):
        lance_io.dataset(uri, session=lance_io.Session(), **{name: size})
    if name != "index_cache_size":
        for library in LIBRARIES:
            with pytest.raises(expected):
                library.Session(**{name: size})


@pytest.mark.parametrize("columns", [["*"], ["_rowid", "*"], {"x": "*"}, {"x": "a + 1", "y": "*"}], ids=str)
def test_all_columns_by_a_star(columns: Any, uri: str) -> None:
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    assert ours.to_table(columns=columns) == theirs.to_table(columns=columns)
    assert ours.to_table(columns=columns, filter="a > 1") == theirs.to_table(columns=columns, filter="a > 1")
    fragments = [table.get_fragments()[0].to_table(columns=columns) for table in (ours, theirs)]
    assert fragments[0] == fragments[1]


def test_a_star_is_not_everything(uri: str, tmp_path: Path) -> None:
    """Columns come once, a column of that name is meant first, and takes have no star, on which pylance panics."""
    for library in LIBRARIES:
        with pytest.raises(ValueError, match="Duplicate column name: a"):
            library.dataset(uri).to_table(columns=["*", "a"])
    with pytest.raises(ValueError, match=r"No field named \*"):
        lance_io.dataset(uri).take([0], columns=["*"])
    rows = pa.table({"*": [1], "b": [2]})
    lance_io.write_dataset(rows, tmp_path / "stars")
    assert lance_io.dataset(tmp_path / "stars").to_table(columns=["*"]) == rows.select(["*"])


@pytest.mark.parametrize("number", [2**70, 2**64, 2**63, 2**63 - 1, -1, -(2**70), 1.5, "3", [1]], ids=str)
@pytest.mark.parametrize(
    "name", ["limit", "offset", "batch_size", "batch_readahead", "fragment_readahead", "io_buffer_size"]
)
def test_numbers_of_a_scan(name: str, number: Any, uri: str) -> None:
    assert _outcome(lance_io, uri, name, number) == _outcome(lance, uri, name, number)


def _outcome(library: Any, uri: str, name: str, number: Any) -> Any:
    try:
        return library.dataset(uri).to_table(**{name: number})
    except (OverflowError, TypeError, ValueError) as error:
        return next(kind for kind in (OverflowError, TypeError, ValueError) if isinstance(error, kind))


def test_numbers_are_named(uri: str) -> None:
    table = lance_io.dataset(uri)
    with pytest.raises(OverflowError, match=f"limit must be below .*found {2**70}"):
        table.head(2**70)
    with pytest.raises(TypeError, match=r"offset: 'str' object .*found 'x'"):
        table.to_table(offset="x")


@pytest.mark.parametrize("version", NO_VERSIONS, ids=repr)
def test_what_is_no_version(version: Any, uri: str) -> None:
    """pylance raises `OSError` here, `ValueError` or `TypeError` there. It takes True for 1, which nobody means."""
    for call in (
        lambda: lance_io.dataset(uri, version=version),
        lambda: lance_io.dataset(uri).checkout_version(version),
    ):
        for kind in (OSError, ValueError, TypeError):
            with pytest.raises(kind, match=r"[Ff]ound"):
                call()
    if version is not True:
        with pytest.raises(OSError, match="version must be"):
            lance.dataset(uri, version=version)


@pytest.mark.parametrize("options", [{"a": b"secret"}, {"a": None}, {"a": ["secret"]}, {1: "secret"}], ids=str)
def test_options_that_are_no_text(options: Any, uri: str, tmp_path: Path) -> None:
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            library.dataset(uri, storage_options=options)
    calls: list[Callable[[], Any]] = [
        lambda: lance_io.dataset(uri, storage_options=options),
        lambda: lance_io.write_dataset(ROWS, tmp_path / "t.lance", storage_options=options),
        lambda: lance_io.file.LanceFileReader(uri, storage_options=options),
        lambda: lance_io.LanceDataset.drop(uri, storage_options=options),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"storage.option") as caught:
            call()
        assert "secret" not in str(caught.value)


def test_options_that_are_switches_and_numbers(uri: str) -> None:
    """pylance wants texts here, too."""
    options: Any = {"block_size": 4096, "allow_http": True, "request_timeout": 1.5}
    assert lance_io.dataset(uri, storage_options=options).to_table() == ROWS
    with pytest.raises(ValueError, match="block_size"):
        lance_io.dataset(uri, storage_options={"block_size": True})


@pytest.fixture(params=["", "below", "deep/below"], ids=["file", "below", "deep below"])
def no_folder(request: pytest.FixtureRequest, tmp_path: Path) -> SimpleNamespace:
    """A path that is a file, or leads through one."""
    file = tmp_path / "plain"
    file.write_bytes(b"text")
    return SimpleNamespace(path=str(file / request.param), file=file)


def test_a_table_in_a_file(no_folder: SimpleNamespace) -> None:
    """pylance raises `ValueError` where it opens and `OSError` where it writes, after many seconds."""

    def write(mode: str) -> None:
        lance_io.write_dataset(ROWS, no_folder.path, mode=mode)

    calls: list[Callable[[], Any]] = [
        lambda: lance_io.dataset(no_folder.path),
        lambda: lance_io.LanceDataset.drop(no_folder.path),
        *(partial(write, mode) for mode in ("create", "append", "overwrite")),
    ]
    for call in calls:
        for kind in (ValueError, OSError, NotADirectoryError):
            with pytest.raises(kind, match=f"{no_folder.file} is a file, expected a folder"):
                call()
    assert no_folder.file.read_bytes() == b"text"


def test_a_data_file_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"text")
    with pytest.raises(OSError, match="is a file, expected a folder"):
        with lance_io.file.LanceFileWriter(str(tmp_path / "plain" / "one.lance"), ROWS.schema) as writer:
            writer.write_batch(ROWS)
