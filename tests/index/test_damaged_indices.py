"""Damaged index files: right rows, or an error that names the index and the file; scans without the index answer."""

from __future__ import annotations

import random
import shutil
import struct
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from lance.indices import IndexConfig

import lance_io
from lance_io.errors import FormatError, LanceError, ResourceLimitError
from lance_io.file.take import side_file
from lance_io.index.details import Space
from lance_io.index.rows.tree_maps import decode_tree_map, decode_treemap64
from lance_io.index.scalar import bloom
from lance_io.proto import table_pb2
from lance_io.reads.index.extremes import column_extremes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[pa.Table, dict[str, str]], tuple[pa.Table, dict[str, str]]]

NUM_ROWS = 2000
BITMAP_ERROR = r"row set|roaring"
KINDS = {
    "BTREE": ("i", "i = 5"),
    "BITMAP": ("c", "c = 5"),
    "LABEL_LIST": ("l", "array_has(l, 't1')"),
    "ZONEMAP": ("i", "i = 5"),
    "BLOOMFILTER": ("i", "i = 5"),
    "NGRAM": ("s", "contains(s, 'word 12')"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table with one index of each kind."""
    rng = np.random.default_rng(3)
    folders = {}
    for kind, (column, _) in KINDS.items():
        folders[kind] = tmp_path_factory.mktemp(kind) / "t"
        rows = pa.table(
            {
                "i": pa.array(rng.permutation(NUM_ROWS), mask=rng.random(NUM_ROWS) < 0.02),
                "c": rng.integers(0, 12, NUM_ROWS),
                "l": [[f"t{row % 5}"] if row % 7 else None for row in range(NUM_ROWS)],
                "s": [f"a word {row}" for row in range(NUM_ROWS)],
            }
        )
        lance.write_dataset(rows, folders[kind], max_rows_per_file=NUM_ROWS // 2)
        built: Any = IndexConfig("btree", {"zone_size": 256}) if kind == "BTREE" else kind
        lance.dataset(folders[kind]).create_scalar_index(column, built, name="the_index")
    return folders


@pytest.fixture
def copy(tables: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copied(kind: str) -> Path:
        folder = tmp_path / kind
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tables[kind], folder)
        return folder

    return copied


def index_file(folder: Path, name: str) -> Path:
    """A file of the index, such as "page_lookup"."""
    (path,) = (folder / "_indices").glob(f"*/{name}.lance")
    return path


def rewrite(path: Path, change: Change) -> None:
    """Rewrite an index file with other rows or metadata; its size in the manifest then no longer holds."""
    reader = LanceFileReader(str(path))
    table = reader.read_all().to_table().replace_schema_metadata(None)
    metadata = {key.decode(): value.decode() for key, value in (reader.metadata().schema.metadata or {}).items()}
    buffers = [reader.read_global_buffer(number) for number in range(1, 2) if "1" in metadata.values()]
    table, metadata = change(table, metadata)
    path.unlink()
    with LanceFileWriter(str(path), table.schema, version="2.2") as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
        for buffer in buffers:
            writer.add_global_buffer(buffer)
        for key, value in metadata.items():
            writer.add_schema_metadata(key, value)


def check_error(folder: Path, kind: str, match: str | None = None) -> None:
    """The filter fails, naming index and file; a scan without the index does not, nor does one of another column."""
    _, text = KINDS[kind]
    table = lance_io.dataset(folder)
    with pytest.raises((FormatError, lance_io.errors.UnsupportedError), match=match) as caught:
        table.to_table(filter=text)
    assert "'the_index'" in str(caught.value)
    assert ".lance" in str(caught.value)
    assert table.to_table(filter=text, use_scalar_index=False).num_rows > 0


def with_column(name: str, make: Callable[[pa.ChunkedArray], Any]) -> Change:
    def change(table: pa.Table, metadata: dict[str, str]) -> tuple[pa.Table, dict[str, str]]:
        at = table.schema.get_field_index(name)
        values = make(table.column(name))
        values = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, table.schema.types[at])
        return table.set_column(at, pa.field(name, values.type, table.schema.field(at).nullable), values), metadata

    return change


def with_metadata(**values: str) -> Change:
    return lambda table, metadata: (table, {**metadata, **values})


CHANGES: list[tuple[str, str, Change, str | None]] = [
    ("BTREE", "page_lookup", with_metadata(batch_size="0"), "batch_size"),
    ("BTREE", "page_lookup", with_metadata(batch_size="many"), "batch_size"),
    ("BTREE", "page_lookup", with_metadata(batch_size="100"), "pages"),
    ("BTREE", "page_lookup", with_metadata(range_partitioned="true"), "several page files"),
    ("BTREE", "page_lookup", with_column("page_idx", lambda ids: [7] * len(ids)), "page_idx"),
    ("BTREE", "page_lookup", with_column("null_count", lambda ids: [0] * len(ids)), "nulls"),
    ("BTREE", "page_lookup", with_column("null_count", lambda ids: [9999] * len(ids)), "nulls"),
    ("BTREE", "page_lookup", with_column("max", lambda values: [1] * len(values)), "do not ascend"),
    ("BTREE", "page_lookup", with_column("max", lambda values: values.cast(pa.int32())), "type"),
    ("BTREE", "page_lookup", lambda table, metadata: (table.drop_columns("null_count"), metadata), "null_count"),
    ("BTREE", "page_data", with_column("values", lambda values: values.cast(pa.float64())), "type"),
    ("BTREE", "page_data", with_column("values", lambda values: values.take(pa.array(range(len(values))[::-1]))), None),
    ("BTREE", "page_data", lambda table, metadata: (table.slice(0, 1), metadata), "8 pages"),
    ("BITMAP", "bitmap_page_lookup", with_column("bitmaps", lambda maps: [b"x"] * len(maps)), "cut off"),
    ("BITMAP", "bitmap_page_lookup", with_column("bitmaps", lambda maps: [None] * len(maps)), "no bitmap"),
    ("BITMAP", "bitmap_page_lookup", with_column("keys", lambda keys: [5] * len(keys)), "twice"),
    ("BITMAP", "bitmap_page_lookup", with_column("keys", lambda keys: keys.cast(pa.int32())), "type"),
    ("LABEL_LIST", "bitmap_page_lookup", lambda table, metadata: (table, {}), "label_list_nulls"),
    ("LABEL_LIST", "bitmap_page_lookup", with_metadata(**{"lance:label_list_nulls": "77"}), "global buffer 77"),
    ("LABEL_LIST", "bitmap_page_lookup", with_metadata(**{"lance:label_list_nulls": "-1"}), "global buffer"),
    ("ZONEMAP", "zonemap", with_column("zone_length", lambda values: [1 << 60] * len(values)), "passes the end"),
    ("ZONEMAP", "zonemap", with_column("fragment_id", lambda values: [0] * len(values)), "overlap"),
    ("ZONEMAP", "zonemap", with_column("nan_count", lambda values: values.cast(pa.int64())), "nan_count"),
    ("ZONEMAP", "zonemap", lambda table, metadata: (table, {"rows_per_zone": "8192"}), "null_bitmap"),
    ("BLOOMFILTER", "bloomfilter", with_column("bloom_filter_data", lambda data: [b"abc"] * len(data)), "blocks"),
    ("BLOOMFILTER", "bloomfilter", with_column("bloom_filter_data", lambda data: [b""] * len(data)), "blocks"),
    ("NGRAM", "ngram_postings", with_column("tokens", lambda tokens: [1] * len(tokens)), "ascend"),
    (
        "NGRAM",
        "ngram_postings",
        lambda table, metadata: (table.set_column(1, "posting_list", pa.nulls(len(table), pa.binary())), metadata),
        "has no list",
    ),
    (
        "NGRAM",
        "ngram_postings",
        with_column("posting_list", lambda lists: [b"\xff" * 9] * len(lists)),
        "row set|roaring",
    ),
]


@pytest.mark.parametrize(("kind", "name", "change", "match"), CHANGES, ids=lambda value: str(value)[:20])
def test_contradictions_are_named(
    copy: Callable[[str], Path], kind: str, name: str, change: Change, match: str
) -> None:
    folder = copy(kind)
    path = index_file(folder, name)
    size = path.stat().st_size
    rewrite(path, change)
    if path.stat().st_size == size:
        check_error(folder, kind, match)
        return
    without_sizes(folder)
    check_error(folder, kind, match)


@pytest.mark.parametrize(("kind", "name"), [("ZONEMAP", "zonemap"), ("BLOOMFILTER", "bloomfilter")])
def test_zones_with_gaps_are_not_used(copy: Callable[[str], Path], kind: str, name: str) -> None:
    """Their rows would be missing: a scan finds them, and a warning names the index."""
    folder = copy(kind)
    size = index_file(folder, name).stat().st_size
    rewrite(index_file(folder, name), with_column("zone_length", lambda values: [1] * len(values)))
    if index_file(folder, name).stat().st_size != size:
        without_sizes(folder)
    table, text = lance_io.dataset(folder), KINDS[kind][1]
    with pytest.warns(UserWarning, match="'the_index' has fewer rows"):
        rows = table.to_table(filter=text)
    assert rows == table.to_table(filter=text, use_scalar_index=False)
    assert rows.num_rows > 0
    opened = lance_io.dataset(folder)
    if kind == "ZONEMAP":
        with pytest.warns(UserWarning, match="'the_index' has fewer rows"):
            assert opened._run(column_extremes(opened._state, ("i",))) is None


@pytest.mark.parametrize("values", ["constant", "compressed"])
def test_values_that_decode_to_far_more_are_not_read(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, values: str
) -> None:
    """A few bytes for many filters: said before any is decoded."""
    monkeypatch.setattr(side_file, "DECODED_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(bloom.Filters, "of", lambda *_: pytest.fail("decoded"))
    folder = copy("BLOOMFILTER")

    def many(_: pa.Table, metadata: dict[str, str]) -> tuple[pa.Table, dict[str, str]]:
        filters = [(b"%d" % (number if values == "compressed" else 1)).ljust(1024, b"0") for number in range(2000)]
        places = {name: pa.array(range(2000), pa.uint64()) for name in ("fragment_id", "zone_start", "zone_length")}
        field = pa.field("bloom_filter_data", pa.binary(), False, {"lance-encoding:compression": "zstd"})
        rows = pa.table({**places, "has_null": [False] * 2000}).append_column(field, [pa.array(filters)])
        return rows, metadata

    rewrite(index_file(folder, "bloomfilter"), many)
    assert index_file(folder, "bloomfilter").stat().st_size < 100_000
    without_sizes(folder)
    with pytest.raises(ResourceLimitError, match=r"'the_index'.*2000 rows decode to more than 1048576 bytes"):
        lance_io.dataset(folder).to_table(filter="i = 5")


def test_swapped_files_are_named(copy: Callable[[str], Path]) -> None:
    """A page file in place of another one with as many rows."""
    folder = copy("BTREE")
    path = index_file(folder, "page_data")
    size = path.stat().st_size
    rewrite(path, with_column("values", lambda values: pc.add(values, 1)))
    if path.stat().st_size != size:
        without_sizes(folder)
    check_error(folder, "BTREE", "names other values as its least and greatest")


def without_sizes(folder: Path) -> None:
    """Make the manifest say nothing of index files: readers then ask for their sizes."""
    table = lance_io.dataset(folder)
    offset = table._state.manifest.index_offset
    (path,) = [
        path
        for path in (folder / "_versions").glob("*.manifest")
        if path.name.startswith(str(2**64 - 1 - table.version))
    ]
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<I", data, offset)
    section = table_pb2.IndexSection.FromString(bytes(data[offset + 4 : offset + 4 + length]))
    for index in section.indices:
        del index.files[:]
        index.metadata["padding"] = "-" * 80
    while (missing := length - len(section.SerializeToString())) > 0:  # as long as before
        section.indices[0].metadata["padding"] += "-" * max(1, missing - 2)
    while len(section.SerializeToString()) > length:
        section.indices[0].metadata["padding"] = section.indices[0].metadata["padding"][:-1]
    data[offset + 4 : offset + 4 + length] = section.SerializeToString()
    path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_or_cut_file_is_named(copy: Callable[[str], Path], kind: str) -> None:
    for size in (0, 10, -1):
        folder = copy(kind)
        for path in (folder / "_indices").glob("*/*.lance"):
            data = path.read_bytes()
            path.write_bytes(data[: size if size >= 0 else len(data) - 1])
        check_error(folder, kind)
    for path in (folder / "_indices").glob("*/*.lance"):
        path.unlink()
    check_error(folder, kind, "missing")


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes_give_rows_or_a_named_error(copy: Callable[[str], Path], kind: str) -> None:
    """A changed row number cannot be seen; but nothing crashes, hangs or fails without a name."""
    generator = random.Random(11)
    folder = copy(kind)
    _, text = KINDS[kind]
    for path in sorted((folder / "_indices").glob("*/*.lance")):
        whole = path.read_bytes()
        for _ in range(60):
            data = bytearray(whole)
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path.write_bytes(bytes(data))
            try:
                lance_io.dataset(folder).to_table(filter=text)
            except (LanceError, ResourceLimitError) as error:
                assert "the_index" in str(error), repr(error)
        path.write_bytes(whole)


def test_row_sets_that_are_no_row_sets() -> None:
    bitmap = bytes.fromhex("3a30000001000000000000001000000002 00".replace(" ", ""))
    good = struct.pack("<III", 1, 0, len(bitmap)) + bitmap
    assert decode_tree_map(good, Space.IDS).rows().tolist() == [2]
    every = decode_tree_map(struct.pack("<III", 1, 3, 0), Space.IDS)
    assert (every.starts.tolist(), every.ends.tolist()) == ([3 << 32], [4 << 32])
    bad = [
        b"",
        good[:-1],
        good + b"x",
        struct.pack("<I", 1 << 31),
        struct.pack("<III", 2, 5, 0) + struct.pack("<II", 5, 0),
        struct.pack("<III", 2, 5, 0) + struct.pack("<II", 4, 0),
        struct.pack("<III", 1, 0xFFFFFFFF, 0),
        struct.pack("<III", 1, 0, 1 << 30),
        struct.pack("<III", 1, 0, 4) + b"abcd",
    ]
    for data in bad:
        with pytest.raises(FormatError, match=BITMAP_ERROR):
            decode_tree_map(data, Space.IDS)
    good64 = struct.pack("<QI", 1, 7) + bitmap
    assert decode_treemap64(good64, Space.IDS).rows().tolist() == [(7 << 32) + 2]
    for data in (b"", good64[:-1], good64 + b"x", struct.pack("<Q", 1 << 60)):
        with pytest.raises(FormatError, match=BITMAP_ERROR):
            decode_treemap64(data, Space.IDS)


def test_runs_cost_their_bytes_and_not_their_rows() -> None:
    """65,536 containers of one run each are 4 billion rows in 700 KB."""
    num_containers = 1 << 16
    header = struct.pack("<I", 12347 | (num_containers - 1) << 16) + b"\xff" * (num_containers // 8)
    keys = np.empty((num_containers, 2), "<u2")
    keys[:, 0], keys[:, 1] = np.arange(num_containers), 0xFFFF
    first = len(header) + 8 * num_containers
    offsets = (first + 6 * np.arange(num_containers)).astype("<u4").tobytes()
    bitmap = header + keys.tobytes() + offsets + struct.pack("<HHH", 1, 0, 0xFFFF) * num_containers
    rows = decode_tree_map(struct.pack("<III", 1, 3, len(bitmap)) + bitmap, Space.ADDRESSES)
    assert rows.num_rows == 1 << 32
    assert rows.nbytes == 16
