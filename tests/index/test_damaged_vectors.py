"""Damaged files of vector indices: right rows, or an error that names the index and the file; flat searches answer."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import lance_io
from lance_io.errors import FormatError, LanceError, ResourceLimitError
from lance_io.proto import index_pb2
from tests.index.test_damaged_indices import without_sizes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS, DIM = 600, 8
KINDS: dict[str, dict[str, Any]] = {"IVF_FLAT": {}, "IVF_PQ": {"num_sub_vectors": 2}, "IVF_SQ": {}, "IVF_RQ": {}}
QUERY = [0.1] * DIM


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table with one index of each kind."""
    values = np.random.default_rng(2).normal(size=NUM_ROWS * DIM).astype("f4")
    rows = pa.table({"id": range(NUM_ROWS), "v": pa.FixedSizeListArray.from_arrays(pa.array(values), DIM)})
    folders = {}
    for kind, options in KINDS.items():
        folders[kind] = tmp_path_factory.mktemp(kind) / "t"
        table = lance.write_dataset(rows, folders[kind], max_rows_per_file=NUM_ROWS // 2)
        table.create_index("v", kind, metric="l2", num_partitions=2, name="the_index", **options)
    return folders


@pytest.fixture
def copy(tables: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copied(kind: str) -> Path:
        folder = tmp_path / kind
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tables[kind], folder)
        return folder

    return copied


def search(folder: Path, **more: Any) -> pa.Table:
    nearest = {"column": "v", "q": QUERY, "k": 10, "nprobes": 2, **more}
    return lance_io.dataset(folder).to_table(["id"], nearest=nearest)


class Parts:
    """An index file that was read: rows, metadata, and global buffers but for the schema."""

    def __init__(self, path: Path) -> None:
        reader = LanceFileReader(str(path))
        described = reader.metadata()
        self.path = path
        self.table = reader.read_all().to_table().replace_schema_metadata(None) if path.stem == "auxiliary" else None
        self.schema = pa.schema(described.schema.fields if hasattr(described.schema, "fields") else described.schema)
        self.schema = self.schema.remove_metadata()
        self.metadata = {key.decode(): value.decode() for key, value in described.schema.metadata.items()}
        self.buffers = [reader.read_global_buffer(1)]
        if "codebook_position" in self.metadata.get("storage_metadata", ""):
            self.buffers.append(reader.read_global_buffer(2))

    def write(self) -> None:
        self.path.unlink()
        schema = self.schema if self.table is None else self.table.schema
        with LanceFileWriter(str(self.path), schema, version="2.2") as writer:
            for batch in [] if self.table is None else self.table.to_batches():
                writer.write_batch(batch)
            for buffer in self.buffers:
                writer.add_global_buffer(buffer)
            for key, value in self.metadata.items():
                writer.add_schema_metadata(key, value)


Damage = "Callable[[Parts], None]"


def layout(change: Callable[[index_pb2.Ivf], None]) -> Any:
    def damage(parts: Parts) -> None:
        message = index_pb2.Ivf.FromString(parts.buffers[0])
        change(message)
        parts.buffers[0] = message.SerializeToString()

    return damage


def codebook(change: Callable[[index_pb2.Tensor], None]) -> Any:
    def damage(parts: Parts) -> None:
        message = index_pb2.Tensor.FromString(parts.buffers[1])
        change(message)
        parts.buffers[1] = message.SerializeToString()

    return damage


def metadata(key: str, value: str) -> Any:
    def damage(parts: Parts) -> None:
        parts.metadata[key] = value

    return damage


def storage(**values: Any) -> Any:
    def damage(parts: Parts) -> None:
        about = json.loads(json.loads(parts.metadata["storage_metadata"])[0])
        parts.metadata["storage_metadata"] = json.dumps([json.dumps({**about, **values})])

    return damage


def column(name: str, make: Callable[[pa.ChunkedArray], Any]) -> Any:
    def damage(parts: Parts) -> None:
        assert parts.table is not None
        at = parts.table.schema.get_field_index(name)
        parts.table = parts.table.set_column(at, name, make(parts.table.column(name)))

    return damage


def set_items(name: str, values: list[int]) -> Any:
    def change(message: Any) -> None:
        del getattr(message, name)[:]
        getattr(message, name).extend(values)

    return change


def narrower(lists: pa.ChunkedArray) -> pa.Array:
    array = lists.combine_chunks()
    items = array.flatten().to_numpy().reshape(len(array), -1)[:, :-1]
    return pa.FixedSizeListArray.from_arrays(pa.array(items.reshape(-1)), items.shape[1])


def set_shape(message: Any) -> None:
    del message.centroids.shape[:]
    message.centroids.shape.extend([4, DIM])


DAMAGES: list[tuple[str, str, Any, str]] = [
    ("IVF_FLAT", "auxiliary", layout(set_items("lengths", [NUM_ROWS, 1])), "overlap, or pass"),
    ("IVF_FLAT", "auxiliary", layout(set_items("lengths", [4_000_000_000, 0])), "overlap, or pass"),
    ("IVF_FLAT", "auxiliary", layout(set_items("lengths", [1])), "1 lengths for 2 partitions"),
    ("IVF_FLAT", "auxiliary", layout(set_items("offsets", [0, 1 << 63])), "begins at row"),
    ("IVF_FLAT", "index", layout(set_shape), "do not have the shape"),
    ("IVF_FLAT", "index", layout(lambda message: setattr(message.centroids, "data_type", 3)), "do not have the shape"),
    ("IVF_FLAT", "index", layout(lambda message: setattr(message.centroids, "data_type", 4)), "do not have the shape"),
    ("IVF_FLAT", "index", lambda parts: parts.buffers.__setitem__(0, b"\xff\xff\xff"), "protobuf"),
    ("IVF_FLAT", "index", metadata("lance:ivf", "77"), "global buffer 77"),
    ("IVF_FLAT", "index", metadata("lance:ivf", "-1"), "number of a global buffer"),
    ("IVF_FLAT", "index", metadata("lance:index", "[]"), "JSON object"),
    ("IVF_FLAT", "index", metadata("lance:index", "{"), "JSON"),
    ("IVF_FLAT", "index", metadata("lance:index", "[" * 100_000), "JSON"),
    ("IVF_FLAT", "index", metadata("lance:index", '{"type":"IVF_FLAT","distance_type":"dot"}'), "the manifest says"),
    ("IVF_FLAT", "index", metadata("lance:index", '{"type":"IVF_SQ","distance_type":"l2"}'), "the manifest says"),
    ("IVF_FLAT", "auxiliary", column("flat", narrower), "expected a column flat of lists of 8"),
    ("IVF_FLAT", "auxiliary", column("_rowid", lambda ids: ids.cast(pa.int64())), "column _rowid"),
    ("IVF_FLAT", "auxiliary", column("_rowid", lambda ids: pa.nulls(len(ids), pa.uint64())), "is null"),
    ("IVF_PQ", "auxiliary", storage(codebook_position=9), "global buffer 9"),
    ("IVF_PQ", "auxiliary", storage(codebook_position="x"), "codebook_position"),
    ("IVF_PQ", "auxiliary", storage(codebook_position=-3), "codebook_position"),
    ("IVF_PQ", "auxiliary", storage(num_sub_vectors=3), "3 parts"),
    ("IVF_PQ", "auxiliary", storage(num_sub_vectors=0), "num_sub_vectors"),
    ("IVF_PQ", "auxiliary", storage(dimension=16), "dimension"),
    ("IVF_PQ", "auxiliary", storage(nbits=True), "nbits"),
    ("IVF_PQ", "auxiliary", storage(transposed="yes"), "parts of 8 bits"),
    ("IVF_PQ", "auxiliary", storage(num_sub_vectors=4), "expected a column __pq_code of lists of 4"),
    ("IVF_PQ", "auxiliary", metadata("storage_metadata", "{}"), "JSON list of one text"),
    ("IVF_PQ", "auxiliary", metadata("storage_metadata", "[1]"), "JSON list of one text"),
    ("IVF_PQ", "auxiliary", metadata("storage_metadata", '["[]"]'), "JSON object"),
    ("IVF_PQ", "auxiliary", codebook(lambda message: setattr(message, "data", message.data[:-4])), "codebook"),
    ("IVF_PQ", "auxiliary", codebook(lambda message: setattr(message, "data_type", 4)), "codebook"),
    ("IVF_PQ", "auxiliary", column("__pq_code", narrower), "expected a column __pq_code of lists of 2"),
    ("IVF_SQ", "auxiliary", storage(dim=9), "dim"),
    ("IVF_SQ", "auxiliary", storage(bounds=None), "bounds"),
    ("IVF_SQ", "auxiliary", storage(bounds={"start": 1, "end": 0}), "bounds"),
    ("IVF_SQ", "auxiliary", storage(bounds={"start": float("nan"), "end": 0}), "bounds"),
    ("IVF_SQ", "auxiliary", column("__sq_code", narrower), "expected a column __sq_code of lists of 8"),
    ("IVF_RQ", "auxiliary", storage(fast_rotation_signs=[1, 2, 3]), "fast_rotation_signs of 4 bytes, found 3"),
    ("IVF_RQ", "auxiliary", storage(fast_rotation_signs=[1, 2, 3, 256]), "fast_rotation_signs of 4 bytes, found none"),
    ("IVF_RQ", "auxiliary", storage(fast_rotation_signs="AAAA"), "fast_rotation_signs of 4 bytes, found none"),
    ("IVF_RQ", "auxiliary", storage(code_dim=16), "code_dim from 8 to 8"),
    ("IVF_RQ", "auxiliary", storage(num_bits=0), "num_bits from 1"),
    ("IVF_RQ", "auxiliary", storage(num_bits=3), "expected a column __blocked_ex_codes of lists of 16"),
    (
        "IVF_RQ",
        "auxiliary",
        column("__scale_factors_ex", lambda of: of.cast(pa.float64())),
        "__scale_factors_ex of float",
    ),
    ("IVF_RQ", "auxiliary", column("__add_factors_ex", lambda of: pa.nulls(len(of), pa.float32())), "is null"),
]


@pytest.mark.parametrize(("kind", "name", "damage", "words"), DAMAGES, ids=[f"{d[0]}-{d[3][:30]}" for d in DAMAGES])
def test_contradictions_are_named(copy: Callable[[str], Path], kind: str, name: str, damage: Any, words: str) -> None:
    folder = copy(kind)
    (path,) = (folder / "_indices").glob(f"*/{name}.idx")
    parts = Parts(path)
    damage(parts)
    parts.write()
    without_sizes(folder)
    with pytest.raises(FormatError, match=words) as caught:
        search(folder)
    assert "'the_index'" in str(caught.value)
    assert ".idx" in str(caught.value)
    assert search(folder, use_index=False).num_rows == 10


def test_rows_that_are_not_there_are_left_out(copy: Callable[[str], Path]) -> None:
    folder = copy("IVF_FLAT")
    (path,) = (folder / "_indices").glob("*/auxiliary.idx")
    parts = Parts(path)
    bad = [1 << 63, (1 << 64) - 1, 5 << 32, NUM_ROWS // 2, 1 << 40]
    ids = parts.table["_rowid"].to_pylist()
    column("_rowid", lambda column: pa.array([*bad, 3, 3, *ids[7:]], pa.uint64()))(parts)
    parts.write()
    without_sizes(folder)
    rows = search(folder, k=NUM_ROWS)["id"].to_pylist()
    assert len({*rows}) == len(rows) <= NUM_ROWS - 6


@pytest.mark.parametrize("text", ['{"type":"IVF_NEW","distance_type":"l2"}', '{"type":"IVF_FLAT","distance_type":"x"}'])
def test_unknown_kinds_are_not_used(copy: Callable[[str], Path], text: str) -> None:
    folder = copy("IVF_FLAT")
    (path,) = (folder / "_indices").glob("*/index.idx")
    parts = Parts(path)
    metadata("lance:index", text)(parts)
    parts.write()
    without_sizes(folder)
    with pytest.warns(UserWarning, match="the_index.*is not used"):
        rows = search(folder)
    assert rows == search(folder, use_index=False)


@pytest.mark.parametrize(
    "about",
    [{"query_estimator": "other"}, {"rotation_type": "matrix"}, {"packed": False}, {"num_bits": 12}],
    ids=lambda about: next(iter(about)),
)
def test_unknown_rotated_codes_are_not_used(copy: Callable[[str], Path], about: dict[str, Any]) -> None:
    folder = copy("IVF_RQ")
    (path,) = (folder / "_indices").glob("*/auxiliary.idx")
    parts = Parts(path)
    storage(**about)(parts)
    parts.write()
    without_sizes(folder)
    with pytest.warns(UserWarning, match="the_index.*is not used.*rotated codes") as caught:
        rows = search(folder)
    assert len(caught) == 1
    assert rows == search(folder, use_index=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_or_cut_file_is_named(copy: Callable[[str], Path], kind: str) -> None:
    for name in ("index", "auxiliary"):
        for size in (None, 0, 10, -1):
            folder = copy(kind)
            (path,) = (folder / "_indices").glob(f"*/{name}.idx")
            data = path.read_bytes()
            path.unlink()
            if size is not None:
                path.write_bytes(data[:size])
            with pytest.raises(FormatError) as caught:
                search(folder)
            assert "'the_index'" in str(caught.value)
            assert f"{name}.idx" in str(caught.value) or size is None


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes_give_rows_or_a_named_error(copy: Callable[[str], Path], kind: str) -> None:
    generator = random.Random(7)
    folder = copy(kind)
    for path in sorted((folder / "_indices").glob("*/*.idx")):
        whole = path.read_bytes()
        for _ in range(80):
            data = bytearray(whole)
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path.write_bytes(bytes(data))
            try:
                rows = search(folder)["id"].to_pylist()
            except (LanceError, ResourceLimitError) as error:
                assert "the_index" in str(error), repr(error)
            except UserWarning as warning:  # warnings are errors here
                assert "the_index" in str(warning)
            else:
                assert len({*rows}) == len(rows)
                assert all(0 <= row < NUM_ROWS for row in rows)
        path.write_bytes(whole)


def graph_changed(change: Callable[[dict[str, Any]], None]) -> Any:
    def damage(parts: Parts) -> None:
        graphs = [json.loads(text) for text in json.loads(parts.metadata["lance:hnsw"])]
        for graph in graphs:
            change(graph)
        parts.metadata["lance:hnsw"] = json.dumps([json.dumps(graph) for graph in graphs])

    return damage


def neighbours_outside(parts: Parts) -> None:
    assert parts.table is not None
    at = parts.table.schema.get_field_index("__neighbors")
    lists = parts.table.column(at).combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    far = pa.array(np.full(len(lists.values), 4_000_000_000, "u4"))
    parts.table = parts.table.set_column(at, parts.table.field(at), pa.ListArray.from_arrays(lists.offsets, far))


def test_a_damaged_graph_changes_nothing(tmp_path: Path) -> None:
    """Graphs are not read: whatever they say, the rows of the partitions are compared."""
    values = np.random.default_rng(2).normal(size=NUM_ROWS * DIM).astype("f4")
    rows = pa.table({"id": range(NUM_ROWS), "v": pa.FixedSizeListArray.from_arrays(pa.array(values), DIM)})
    table = lance.write_dataset(rows, tmp_path)
    table.create_index("v", "IVF_HNSW_SQ", metric="l2", num_partitions=2, name="the_index")
    expected = search(tmp_path)
    (path,) = (tmp_path / "_indices").glob("*/index.idx")
    data = path.read_bytes()
    for damage in (
        graph_changed(lambda graph: graph.update(level_offsets=graph["level_offsets"][::-1])),
        graph_changed(lambda graph: graph.update(level_offsets=[0, 1 << 40])),
        graph_changed(lambda graph: graph.update(entry_point=1 << 31)),
        metadata("lance:hnsw", "{}"),
        neighbours_outside,
    ):
        path.write_bytes(data)
        parts = Parts(path)
        parts.table = LanceFileReader(str(path)).read_all().to_table().replace_schema_metadata(None)
        damage(parts)
        parts.write()
        without_sizes(tmp_path)
        assert search(tmp_path) == expected
