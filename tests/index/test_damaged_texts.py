"""Damaged files of full-text indices: right rows, or an error that names the index and the file."""

from __future__ import annotations

import random
import shutil
import struct
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import lance_io
from lance_io.errors import FormatError, LanceError, ResourceLimitError, UnsupportedError
from lance_io.query import FullTextOperator, MatchQuery, PhraseQuery
from tests.index.test_damaged_indices import without_sizes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS = 400  # three whole posting blocks of 128 for the word of all rows, and a short one


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "t"
    texts = [f"common {'odd' if row % 2 else 'even'} w{row % 7} common" for row in range(NUM_ROWS)]
    written = lance.write_dataset(
        pa.table({"id": range(NUM_ROWS), "t": texts}), folder, max_rows_per_file=NUM_ROWS // 2
    )
    written.create_scalar_index("t", "INVERTED", name="the_index", stem=False, with_position=True)
    return folder


@pytest.fixture
def copy(table: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(table, folder)
    return folder


def search(folder: Path, query: Any = None) -> list[int]:
    query = MatchQuery("common w3", "t", operator=FullTextOperator.AND) if query is None else query
    return sorted(lance_io.dataset(folder).to_table(["id"], full_text_query=query)["id"].to_pylist())


EXPECTED = [row for row in range(NUM_ROWS) if row % 7 == 3]


class Parts:
    """An index file that was read: rows and metadata."""

    def __init__(self, folder: Path, name: str) -> None:
        (self.path,) = (folder / "_indices").glob(f"*/{name}.lance")
        reader = LanceFileReader(str(self.path))
        self.rows = reader.read_all().to_table()
        metadata = reader.metadata().schema.metadata or {}
        self.metadata = {key.decode(): value.decode() for key, value in metadata.items()}
        self.rows = self.rows.replace_schema_metadata(None)

    def write(self) -> None:
        self.path.unlink()
        with LanceFileWriter(str(self.path), self.rows.schema, version="2.2") as writer:
            for batch in self.rows.to_batches():
                writer.write_batch(batch)
            for key, value in self.metadata.items():
                writer.add_schema_metadata(key, value)

    def change(self, name: str, edit: Callable[[list[Any]], Any]) -> None:
        """Edit a column as a list of values."""
        at = self.rows.schema.get_field_index(name)
        values = self.rows.column(name).to_pylist()
        edit(values)
        field = self.rows.schema.field(at)
        self.rows = self.rows.set_column(at, field, pa.array(values, field.type))


def column(name: str, edit: Callable[[list[Any]], Any]) -> Any:
    return lambda parts: parts.change(name, edit)


def metadata(key: str, value: str) -> Any:
    return lambda parts: parts.metadata.__setitem__(key, value)


def longest(values: list[Any]) -> int:
    return max(range(len(values)), key=lambda at: len(values[at]))


def block(number: int, edit: Callable[[bytearray], Any]) -> Any:
    """Edit a posting block of the word that all rows have."""

    def change(values: list[Any]) -> None:
        blocks = values[longest(values)]
        data = bytearray(blocks[number])
        edit(data)
        blocks[number] = bytes(data)

    return column("_posting", change)


def token_map(edit: Callable[[bytearray], Any]) -> Any:
    def change(values: list[Any]) -> None:
        data = bytearray(values[0])
        edit(data)
        values[0] = bytes(data)

    return column("_token_fst_bytes", change)


def set_at(at: int, data: bytes) -> Callable[[bytearray], Any]:
    def edit(values: bytearray) -> None:
        start = at if at >= 0 else len(values) + at
        values[start : start + len(data)] = data

    return edit


def listed(values: list[Any], edit: Callable[[Any], Any]) -> None:
    at = longest(values)
    values[at] = edit(values[at])


FIRST_BYTES = 4 + 4  # the score and the first document stand before the width
DAMAGES: list[tuple[str, Any, str]] = [
    ("part_0_invert", block(0, set_at(FIRST_BYTES, b"\x21")), "33 bits"),
    ("part_0_invert", block(0, lambda data: data.append(0)), "1 bytes follow"),
    ("part_0_invert", block(0, lambda data: data.pop()), "bytes wanted"),
    ("part_0_invert", block(3, lambda data: data.append(0)), "1 bytes follow"),
    ("part_0_invert", block(3, lambda data: data.extend(bytes(4000))), "bytes follow"),
    ("part_0_invert", block(3, set_at(4, b"\xff\xff\xff\xff\x7f")), "beyond 32 bits|does not|documents"),
    ("part_0_invert", block(3, set_at(-1, b"\0")), "frequency of 0"),
    ("part_0_invert", block(0, set_at(4, struct.pack("<I", 1 << 31))), "do not ascend|document"),
    ("part_0_invert", block(1, set_at(4, bytes(4))), "do not ascend"),
    (
        "part_0_invert",
        column("_length", lambda values: values.__setitem__(slice(None), [4000] * len(values))),
        "in . blocks",
    ),
    ("part_0_invert", column("_posting", lambda values: listed(values, lambda blocks: blocks[:-1])), "in 3 blocks"),
    ("part_0_invert", column("_posting", lambda values: listed(values, lambda blocks: [])), "in 0 blocks"),
    ("part_0_docs", lambda parts: setattr(parts, "rows", parts.rows.slice(0, 300)), "of 300"),
    ("part_0_docs", lambda parts: setattr(parts, "rows", parts.rows.rename_columns(["_rowid", "x"])), "_num_tokens"),
    ("part_0_tokens", token_map(set_at(0, b"\7")), "version 3"),
    ("part_0_tokens", token_map(set_at(-12, b"\xff" * 8)), "root of the token map"),
    ("part_0_tokens", token_map(lambda data: data.clear()), "no token map"),
    (
        "part_0_tokens",
        lambda parts: setattr(parts, "rows", pa.concat_tables([parts.rows] * 2)),
        "expected one token map",
    ),
    ("metadata", metadata("partitions", "[0, 7]"), "missing|no file"),
    ("metadata", metadata("partitions", "[0, 0]"), "stands twice"),
    ("metadata", metadata("partitions", "[-1]"), "list of numbers"),
    ("metadata", metadata("partitions", "{"), "JSON"),
    ("metadata", metadata("partitions", "[" * 100_000), "JSON"),
    ("metadata", metadata("params", "[]"), "params"),
    ("metadata", metadata("params", '{"language": 3}'), "params"),
]


@pytest.mark.parametrize(
    ("name", "damage", "words"), DAMAGES, ids=[f"{d[0]}-{d[2][:25]}-{n}" for n, d in enumerate(DAMAGES)]
)
def test_contradictions_are_named(copy: Path, name: str, damage: Any, words: str) -> None:
    assert search(copy) == EXPECTED
    parts = Parts(copy, name)
    damage(parts)
    parts.write()
    without_sizes(copy)
    with pytest.raises(FormatError, match=words) as caught:
        search(copy)
    assert "'the_index'" in str(caught.value)
    assert ".lance" in str(caught.value)


POSITION_DAMAGES: list[tuple[Any, str]] = [
    (column("_compressed_position", lambda values: listed(values, lambda data: data[:-1])), "bytes wanted|positions"),
    (column("_compressed_position", lambda values: listed(values, lambda data: data + b"\0")), "bytes are left"),
    (column("_compressed_position", lambda values: listed(values, lambda data: b"\x21" + data[1:])), "33 bits"),
    (column("_position_block_offset", lambda values: listed(values, lambda starts: starts[:-1])), "position streams"),
    (
        column("_position_block_offset", lambda values: listed(values, lambda starts: [*starts[:-1], 1 << 31])),
        "position",
    ),
]


@pytest.mark.parametrize(("damage", "words"), POSITION_DAMAGES)
def test_positions_that_contradict_frequencies_are_named(copy: Path, damage: Any, words: str) -> None:
    phrase = PhraseQuery("common even", "t")
    assert search(copy, phrase) == [*range(0, NUM_ROWS, 2)]
    parts = Parts(copy, "part_0_invert")
    damage(parts)
    parts.write()
    without_sizes(copy)
    with pytest.raises(FormatError, match=words) as caught:
        search(copy, phrase)
    assert "'the_index'" in str(caught.value)
    assert search(copy) == EXPECTED  # positions are read for phrases only


IMPACTS: dict[str, Any] = {
    "none": lambda parts: setattr(parts, "rows", parts.rows.drop_columns(["_impacts"])),
    "fewer than blocks": column("_impacts", lambda values: listed(values, lambda impacts: impacts[:2])),
    "empty": column("_impacts", lambda values: values.__setitem__(slice(None), [[] for _ in values])),
    "too small": column("_impacts", lambda values: listed(values, lambda impacts: [b"\1\0" for _ in impacts])),
    "scores of 0": column("_max_score", lambda values: values.__setitem__(slice(None), [0.0 for _ in values])),
}


@pytest.mark.parametrize("damage", IMPACTS.values(), ids=[*IMPACTS])
def test_impacts_are_not_needed(copy: Path, damage: Any) -> None:
    """Bounds of scores come from the blocks alone, so that the best rows stay the same."""
    best = lance_io.dataset(copy).to_table(["_score"], full_text_query=MatchQuery("common w3", "t"), limit=5)
    parts = Parts(copy, "part_0_invert")
    damage(parts)
    parts.write()
    without_sizes(copy)
    assert search(copy) == EXPECTED
    again = lance_io.dataset(copy).to_table(["_score"], full_text_query=MatchQuery("common w3", "t"), limit=5)
    assert again == best


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("metadata", "token_set_format", "trie"),
        ("metadata", "format_version", "9"),
        ("part_0_invert", "posting_tail_codec", "zstd"),
        ("part_0_invert", "posting_block_size", "512"),
        ("part_0_invert", "positions_codec", "none"),
    ],
)
def test_unknown_forms_are_not_used(copy: Path, name: str, key: str, value: str) -> None:
    parts = Parts(copy, name)
    parts.metadata[key] = value
    parts.write()
    without_sizes(copy)
    with pytest.warns(UserWarning, match="the_index.*is not used"):
        assert search(copy) == EXPECTED


def test_an_index_of_the_first_releases_is_built_again(copy: Path) -> None:
    """It has no partitions, and its tokenizer stands in another file."""
    (folder,) = (copy / "_indices").iterdir()
    for path in folder.iterdir():
        path.unlink()
    without_sizes(copy)
    with pytest.raises(FormatError, match=r"the_index.*missing.*nor is tokens\.lance"):
        search(copy)
    with pytest.raises(FormatError, match=r"metadata\.lance: index 'the_index'"):
        lance_io.dataset(copy).optimize.optimize_indices(retrain=True)
    tokens = pa.table({"_token": ["w3"], "_token_id": pa.array([0], pa.uint32())})
    with LanceFileWriter(str(folder / "tokens.lance"), tokens.schema, version="2.0") as writer:
        writer.write_batch(tokens.to_batches()[0])
        writer.add_schema_metadata("tokenizer", '{"base_tokenizer":"simple","lower_case":false,"stem":false}')
    common = MatchQuery("Common w3", "t", operator=FullTextOperator.AND)
    with pytest.warns(UserWarning, match="the_index.*is not used.*no partitions"):
        assert search(copy) == EXPECTED
    with pytest.warns(UserWarning, match="the_index.*is not used"):
        assert search(copy, common) == []
    lance_io.dataset(copy).optimize.optimize_indices(retrain=True)
    assert search(copy) == EXPECTED
    assert search(copy, common) == []
    assert "index=the_index" in lance_io.dataset(copy).scanner(full_text_query=common).explain_plan()


def test_an_unknown_tokenizer_is_named(copy: Path) -> None:
    parts = Parts(copy, "metadata")
    parts.metadata["params"] = parts.metadata["params"].replace('"simple"', '"jieba/default"')
    parts.write()
    without_sizes(copy)
    with pytest.raises(UnsupportedError, match=r"jieba/default.*language model.*use 'icu'.*or pylance") as caught:
        search(copy)
    assert "'the_index'" in str(caught.value)
    assert "metadata.lance" in str(caught.value)


@pytest.mark.parametrize(("old", "new"), [("simple", "simplf"), ("English", "Englisi"), (":128", ":129")])
def test_unknown_parameters_are_named(copy: Path, old: str, new: str) -> None:
    parts = Parts(copy, "metadata")
    parts.metadata["params"] = parts.metadata["params"].replace(old, new)
    parts.write()
    without_sizes(copy)
    with pytest.raises(UnsupportedError, match=f"'the_index'.*{new.strip(':')}"):
        search(copy)


def test_texts_of_an_unknown_form_are_split_as_the_index_says(copy: Path) -> None:
    """Words of a user's own to stop are in the files alone."""
    parts = Parts(copy, "metadata")
    parts.metadata["params"] = parts.metadata["params"].replace(
        '"custom_stop_words":null', '"custom_stop_words":["w3"]'
    )
    parts.write()
    parts = Parts(copy, "part_0_invert")
    parts.metadata["posting_tail_codec"] = "zstd"
    parts.write()
    without_sizes(copy)
    with pytest.warns(UserWarning, match="the_index.*is not used"):
        assert search(copy, MatchQuery("w3", "t")) == []


def test_a_missing_or_cut_file_is_named(table: Path, tmp_path: Path) -> None:
    for name in ("metadata", "part_0_tokens", "part_0_docs", "part_0_invert"):
        for size in (None, 0, 10, -1):
            folder = tmp_path / "cut"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(table, folder)
            (path,) = (folder / "_indices").glob(f"*/{name}.lance")
            data = path.read_bytes()
            path.unlink()
            if size is not None:
                path.write_bytes(data[:size])
            with pytest.raises(FormatError, match="'the_index'"):
                search(folder)


def test_flipped_bytes_give_rows_or_a_named_error(copy: Path) -> None:
    generator = random.Random(7)
    query = MatchQuery("common w3 od", "t", fuzziness=1)
    for path in sorted((copy / "_indices").glob("*/*.lance")):
        whole = path.read_bytes()
        for number in range(60):
            data = bytearray(whole)
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path.write_bytes(bytes(data))
            try:
                rows = search(copy, query if number % 2 else PhraseQuery("common odd", "t"))
            except (LanceError, ResourceLimitError) as error:
                assert "the_index" in str(error), repr(error)
            except UserWarning as warning:  # warnings are errors here
                assert "the_index" in str(warning)
            else:
                assert len({*rows}) == len(rows)
                assert all(0 <= row < NUM_ROWS for row in rows)
        path.write_bytes(whole)
