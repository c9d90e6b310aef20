"""Parts of a full text index, built below one UUID and merged: both libraries build, merge and search them."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index

import lance_io
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ([0], [1], [3, 2], [4])
BOTH = pytest.mark.parametrize("builder", [lance, lance_io], ids=["built-by-pylance", "built-by-us"])


def write(folder: Path) -> str:
    """The URI of a table of five fragments with deletions; one of them has no text."""
    rng = np.random.default_rng(8)
    words = ["lion", "lien", "river", "stone", "zebra", *(f"w{n}" for n in range(30))]
    texts = [None if 50 <= row < 100 else " ".join(rng.choice(words, rng.integers(1, 9))) for row in range(250)]
    uri = str(folder / "table.lance")
    table = pa.table({"row": range(250), "text": texts})
    lance.write_dataset(table, uri, max_rows_per_file=50).delete("row % 11 = 3")
    return uri


def queries(names: Any) -> list[Any]:
    """Queries of either library. names: its module `query`"""
    lion, stone = (names.MatchQuery(word, "text") for word in ("lion", "stone"))
    return [
        "lion",
        "zebra river stone",
        names.MatchQuery("lien", "text", fuzziness=1),
        names.PhraseQuery("river stone", "text"),
        names.BooleanQuery([(names.Occur.MUST, lion), (names.Occur.MUST_NOT, stone)]),
    ]


def build_part(library: Any, uri: str, uuid: str, fragment_ids: list[int], **options: Any) -> None:
    table = library.dataset(uri)
    version = table.version
    table.create_scalar_index("text", "INVERTED", "t", index_uuid=uuid, fragment_ids=fragment_ids, **options)
    assert library.dataset(uri).version == version


def commit(library: Any, uri: str, uuid: str) -> None:
    table = library.dataset(uri)
    covered = {fragment.fragment_id for fragment in table.get_fragments()}
    make = Index if library is lance else lance_io.Index
    operation = library.LanceOperation.CreateIndex([make(uuid, "t", [1], table.version, covered, 0)], [])
    library.LanceDataset.commit(uri, operation, read_version=table.version)


def answers(table: Any, library: Any) -> list[tuple[list[int], Any]]:
    """For each query the rows and their scores, by row."""
    found = []
    for asked in queries(import_module(f"{library.__name__}.query")):
        scanner = table.scanner(["row", "_score"], full_text_query=asked)
        assert "Flat" not in scanner.explain_plan()
        rows = scanner.to_table().sort_by("row")
        assert len(rows)
        found.append((rows["row"].to_pylist(), rows["_score"].to_numpy()))
    return found


@BOTH
@pytest.mark.parametrize("merger", [lance, lance_io], ids=["merged-by-pylance", "merged-by-us"])
def test_both_build_merge_and_search(tmp_path: Path, builder: Any, merger: Any) -> None:
    uri, uuid = write(tmp_path), str(uuid4())
    build_part(builder, uri, uuid, PARTS[2], with_position=True)
    for fragment_ids in PARTS:  # one of them again, which replaces it
        build_part(builder, uri, uuid, fragment_ids, with_position=True)
    table = merger.dataset(uri)
    version = table.version
    for _ in range(2):  # the second call finds a merged segment
        assert table.merge_index_metadata(uuid, "inverted") is None
    assert merger.dataset(uri).version == version
    files = sorted(path.name for path in (tmp_path / "table.lance" / "_indices" / uuid).rglob("*") if path.is_file())
    assert "metadata.lance" in files and not any(len(name) > len("part_99_metadata.lance") for name in files)
    commit(merger, uri, uuid)
    found = [answers(library.dataset(uri), library) for library in (lance, lance_io)]
    lance.dataset(uri).create_scalar_index("text", "INVERTED", "t", with_position=True)  # at once
    for each in found:
        equal(each, answers(lance.dataset(uri), lance))


def test_parts_of_both_are_merged(tmp_path: Path) -> None:
    uri, uuid = write(tmp_path), str(uuid4())
    for library, fragment_ids in zip((lance, lance_io, lance, lance_io), PARTS, strict=True):
        build_part(library, uri, uuid, fragment_ids, with_position=True)
    events: list[Any] = []
    lance_io.dataset(uri).merge_index_metadata(uuid, "INVERTED", progress_callback=events.append)
    commit(lance_io, uri, uuid)
    stages = ("read_partition_metadata", "remap_partition_files", "write_merged_metadata")
    assert [event.stage for event in events if event.event == "complete"] == [*stages]
    equal(answers(lance_io.dataset(uri), lance_io), answers(lance.dataset(uri), lance))


def equal(left: list[tuple[list[int], Any]], right: list[tuple[list[int], Any]]) -> None:
    for ours, theirs in zip(left, right, strict=True):
        assert ours[0] == theirs[0]
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)


def test_from_a_coroutine(tmp_path: Path) -> None:
    uri, uuid = write(tmp_path), str(uuid4())

    async def build() -> None:
        table = await lance_io.AsyncDataset.open(uri)
        for fragment_ids in PARTS:
            await table.create_scalar_index("text", "FTS", "t", index_uuid=uuid, fragment_ids=fragment_ids)
        await table.merge_index_metadata(uuid, "INVERTED")

    asyncio.run(build())
    commit(lance_io, uri, uuid)
    rows = lance_io.dataset(uri).to_table(["row"], full_text_query="lion")["row"].to_pylist()
    assert sorted(rows) == sorted(lance.dataset(uri).to_table(["row"], full_text_query="lion")["row"].to_pylist())


def test_a_table_without_texts(tmp_path: Path) -> None:
    uri, uuid = write(tmp_path), str(uuid4())
    build_part(lance_io, uri, uuid, [1])
    lance_io.dataset(uri).merge_index_metadata(uuid, "INVERTED")
    table = lance.dataset(uri)
    operation = lance.LanceOperation.CreateIndex([Index(uuid, "t", [1], table.version, {1}, 0)], [])
    lance.LanceDataset.commit(uri, operation, read_version=table.version)
    for library in (lance, lance_io):
        found = library.dataset(uri).to_table(["row"], full_text_query="lion", fast_search=True)
        assert len(found) == 0


def test_calls_that_are_refused(tmp_path: Path) -> None:
    uri, uuid = write(tmp_path), str(uuid4())
    for library in (lance, lance_io):
        table = library.dataset(uri)
        with pytest.raises(ValueError, match="No partition metadata files found"):
            table.merge_index_metadata(str(uuid4()), "INVERTED")
        for kind in ("BTREE", "IVF_PQ"):
            with pytest.raises(ValueError, match="no longer supports merge_index_metadata"):
                table.merge_index_metadata(uuid, kind)
        with pytest.raises(NotImplementedError, match=r"Only BTREE, INVERTED, .* are supported, received FTS"):
            table.merge_index_metadata(uuid, "FTS")
        with pytest.raises(ValueError, match="Invalid UUID"):
            table.merge_index_metadata("u", "INVERTED")
        with pytest.raises(ValueError, match="No fragment with id 99"):
            build_part(library, uri, uuid, [99])
        with pytest.raises(ValueError, match="BTREE distributed indexing uses create_index_uncommitted"):
            table.create_scalar_index("row", "BTREE", fragment_ids=[0])
    assert not (tmp_path / "table.lance" / "_indices").exists()
    lance.dataset(uri).create_scalar_index("text", "INVERTED", "t")
    for library in (lance, lance_io):
        with pytest.raises(RuntimeError, match="already exists"):
            build_part(library, uri, uuid, [0], replace=False)


def test_parts_that_do_not_fit(tmp_path: Path) -> None:
    """pylance merges them, and splits the texts of queries as those of one part."""
    uri, uuid = write(tmp_path), str(uuid4())
    table = lance_io.dataset(uri)
    build_part(lance, uri, uuid, [0])
    build_part(lance_io, uri, uuid, [1])
    build_part(lance_io, uri, uuid, [2], stem=False)
    with pytest.raises(ValueError, match=r"part_0_metadata\.lance and part_8589934592_metadata\.lance .* differ"):
        table.merge_index_metadata(uuid, "INVERTED")
    build_part(lance_io, uri, uuid, [2])
    (tmp_path / "table.lance" / "_indices" / uuid / "staging" / "part_0_docs.lance").rename(tmp_path / "docs.lance")
    with pytest.raises(FormatError, match=r"no file part_0_docs\.lance"):
        table.merge_index_metadata(uuid, "INVERTED")
    build_part(lance_io, uri, uuid, [0])
    table.merge_index_metadata(uuid, "INVERTED")
    with pytest.raises(ValueError, match="merged already"):
        build_part(lance_io, uri, uuid, [3])
