"""Blob columns of both versions, compared with pylance."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.blob import Blob, blob_array, blob_field

import lance_io
from lance_io import metrics
from lance_io.errors import BindError, FormatError, UnsupportedError
from lance_io.plans.plan import drive_sync
from lance_io.reads.blobs import blob_values
from lance_io.reads.blobs.blob_values import Located, locate_in_file, read_located, sidecar_key
from lance_io.reads.version.object_keys import StoredObject

GENERATED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets" / "generated"
BLOBS = [str(GENERATED / name / "data.lance") for name in ("blobs_v1@2.1", "blobs_v2@2.2")]
MARK = {"lance-encoding:blob": "true"}
ROWS = [3, 1, 0, 1, 5, 20]  # row 3 is null, row 5 empty


@pytest.fixture(params=BLOBS, ids=["v1", "v2"])
def blob_uri(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[None, 3], ids=["at once", "in parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans read blobs in parts of so many bytes."""
    if request.param:
        monkeypatch.setattr(blob_values, "PART_BYTES", request.param)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("handling", [None, "blobs_descriptions", "all_descriptions", "all_binary"])
def test_scans_show_blobs_as_asked(blob_uri: str, handling: Any) -> None:
    ours = lance_io.dataset(blob_uri).scanner(blob_handling=handling, with_row_id=True)
    expected = lance.dataset(blob_uri).scanner(blob_handling=handling, with_row_id=True).to_table()
    assert ours.projected_schema.equals(expected.schema, check_metadata=True)
    assert ours.to_table().combine_chunks().equals(expected.combine_chunks())
    for options in ({"limit": 5, "offset": 15}, {"order_by": ["id"], "limit": 4}):
        got = lance_io.dataset(blob_uri).scanner(blob_handling=handling, with_row_id=True, **options).to_table()
        start = options.get("offset", 0)
        assert got.combine_chunks().equals(expected.slice(start, options["limit"]).combine_chunks())


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_bytes_of_blobs_inside_structs(tmp_path: Path, version: str) -> None:
    values = [None if i % 4 == 3 else bytes([i]) * (i % 5) for i in range(30)]
    if version == "2.1":
        blobs, field = pa.array(values, pa.large_binary()), pa.field("b", pa.large_binary(), metadata=MARK)
    else:
        blobs, field = blob_array(values), blob_field("b")
    inner = pa.StructArray.from_arrays([blobs, pa.array(range(30))], fields=[field, pa.field("i", pa.int64())])
    is_null = pa.array([i % 7 == 2 for i in range(30)])
    outer = pa.StructArray.from_arrays([inner], fields=[pa.field("inner", inner.type)], mask=is_null)
    rows = pa.table({"id": range(30), "s": outer, "t": inner})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version=version, max_rows_per_file=11)
    ours, theirs = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    for options in (
        {},
        {"columns": ["t.b", "id"]},
        {"columns": ["s"], "filter": "id % 3 = 1"},
        {"limit": 5, "offset": 9},
    ):
        got = ours.scanner(blob_handling="all_binary", **options)
        expected = theirs.scanner(blob_handling="all_binary", **options).to_table()
        assert got.projected_schema.equals(expected.schema, check_metadata=True)
        assert got.to_table().to_pylist() == expected.to_pylist()
    assert [row["b"] for row in ours.to_table(blob_handling="all_binary")["t"].to_pylist()] == values
    addresses = ours.to_table(columns=["_rowaddr"])["_rowaddr"].to_pylist()
    for name in ("t.b", "s.inner.b", "`s`.`inner`.b"):
        for chosen in ({"indices": [3, 0, 29, 2, 3]}, {"ids": addresses[5:16]}, {"addresses": addresses[::-1]}):
            found = [
                [None if one is None else one.readall() for one in table.take_blobs(name, **chosen)]
                for table in (ours, theirs)
            ]
            assert found[0] == found[1]
        assert ours.read_blobs(name, indices=range(30)) == theirs.read_blobs(name, indices=list(range(30)))
    requests = [(1, 0, 1), (29, 2, 2), (24, 1, 3)]
    ranges = [table.read_blob_ranges("t.b", requests, selector="indices") for table in (ours, theirs)]
    assert ranges[0] == ranges[1]


ITEM = pa.field("item", pa.large_binary(), metadata=MARK)
BIG = b"z" * 100_000  # too large to lie in the data file
IN_LISTS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(ITEM), [[b"x", None, b"yy"], [], None, [BIG], [b"", b"v"]]),
    "large list": (pa.large_list(ITEM), [[b"x", None, b"yy"], [], None, [BIG], [b"", b"v"]]),
    "lists of lists": (pa.list_(pa.list_(ITEM)), [[[b"x"], [None, b"yy"]], [], None, [None, [BIG]], [[b"v"], []]]),
    "structs in lists": (
        pa.list_(pa.struct([ITEM.with_name("b"), ("n", pa.int32())])),
        [[{"b": b"x", "n": 1}, None], [], None, [{"b": None, "n": 3}, {"b": BIG, "n": 2}], [{"b": b"v", "n": None}]],
    ),
    "lists in structs": (
        pa.struct([("l", pa.list_(ITEM))]),
        [{"l": [b"x"]}, None, {"l": None}, {"l": [None, BIG]}, {"l": [b"v"]}],
    ),
    "without nulls": (pa.list_(ITEM.with_nullable(False)), [[b"x", b"yy"], [], [BIG], [b"v"], [b"w"]]),
}


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("writer", [lance, lance_io], ids=["theirs", "ours"])
@pytest.mark.parametrize("case", IN_LISTS)
def test_bytes_of_blobs_inside_lists(tmp_path: Path, case: str, writer: Any) -> None:
    dtype, values = IN_LISTS[case]
    values = values * 5
    schema = pa.schema([pa.field("a", dtype), pa.field("id", pa.int64())])
    rows = pa.table([pa.array(values, dtype), pa.array(range(25))], schema=schema)
    writer.write_dataset(rows, tmp_path / "t", data_storage_version="2.2", max_rows_per_file=11)
    writer.write_dataset(rows.slice(3, 4), tmp_path / "t", mode="append")
    lance.dataset(tmp_path / "t").delete("id in (1, 12)")  # pylance panics where it reads rows without any item
    ours, theirs = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    for options in ({}, {"columns": ["a"], "filter": "id % 5 > 2"}, {"limit": 5, "offset": 9}, {"batch_size": 4}):
        for handling in ("all_binary", "all_descriptions"):
            got = ours.scanner(blob_handling=handling, **options)
            expected = theirs.scanner(blob_handling=handling, **options).to_table()
            assert got.projected_schema.equals(expected.schema, check_metadata=True)
            assert got.to_table().to_pylist() == expected.to_pylist()
    left = [row for row in rows.to_pylist() + rows.slice(3, 4).to_pylist() if row["id"] not in (1, 12)]
    assert ours.to_table(blob_handling="all_binary").to_pylist() == left


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("columns", [None, ["b"], ["s"], ["s.b", "i"], ["i"]])
def test_fragments_give_bytes_of_blobs_of_the_first_kind(tmp_path: Path, columns: list[str] | None) -> None:
    """As pylance: it takes from a fragment what the file's reader shows, from a table descriptions."""
    field = ITEM.with_name("b")
    values = [b"x", None, b"yy", b"", BIG]
    inner = pa.array(
        [{"b": value, "n": i} if i != 2 else None for i, value in enumerate(values)],
        pa.struct([field, ("n", pa.int32())]),
    )
    schema = pa.schema([field, pa.field("s", inner.type), pa.field("i", pa.int64())])
    rows = pa.table([pa.array(values, pa.large_binary()), inner, pa.array(range(5))], schema=schema)
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.1")
    ours, theirs = (one.dataset(tmp_path / "t").get_fragments()[0] for one in (lance_io, lance))
    for indices in ([0, 1, 2, 4], [2, 2, 3], []):
        expected = theirs.take(indices, columns=columns)
        assert ours.take(indices, columns=columns).equals(expected)
        assert ours.open_session(columns).take(indices).equals(theirs.open_session(columns).take(indices))
    assert ours.head(3).equals(theirs.head(3))


@pytest.mark.usefixtures("parts")
def test_blobs_inside_maps(tmp_path: Path) -> None:
    """pylance writes no such table, and reads the descriptions of ours."""
    dtype = pa.map_(pa.string(), ITEM.with_name("value"))
    values = [[("a", b"x")], [], None, [("b", None), ("c", BIG)]]
    rows = pa.table([pa.array(values, dtype)], schema=pa.schema([pa.field("m", dtype)]))
    lance_io.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    ours, theirs = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    assert ours.to_table(blob_handling="all_binary")["m"].to_pylist() == values
    described = theirs.to_table()["m"].to_pylist()
    assert ours.to_table()["m"].to_pylist() == described
    assert [row and [(key, blob and blob["size"]) for key, blob in row] for row in described] == [
        row and [(key, None if value is None else len(value)) for key, value in row] for row in values
    ]


def test_a_row_has_no_one_blob_in_a_list(tmp_path: Path) -> None:
    kind = pa.list_(pa.field("item", pa.large_binary(), metadata=MARK))
    rows = pa.table({"l": pa.array([[b"a", b"b"], None], kind)}, schema=pa.schema([("l", kind)]))
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match="expected struct"):
            library.dataset(tmp_path / "t").take_blobs("l.item", indices=[0])


def test_a_take_shows_descriptions(blob_uri: str) -> None:
    got = lance_io.dataset(blob_uri).take(ROWS)
    assert got.equals(lance.dataset(blob_uri).take(ROWS).replace_schema_metadata(got.schema.metadata))


@pytest.mark.parametrize("selector", ["ids", "addresses", "indices"])
def test_blobs_by_row(blob_uri: str, selector: str) -> None:
    ours, theirs = lance_io.dataset(blob_uri), lance.dataset(blob_uri)
    rows = ROWS if selector == "indices" else [3, 1, 0, 1, 5]
    got = ours.take_blobs("blob", **{selector: rows})
    expected = theirs.take_blobs("blob", **{selector: rows})
    assert [one and one.readall() for one in got] == [one and one.readall() for one in expected]
    assert [repr(one) for one in got] == [repr(one) for one in expected]
    assert ours.read_blobs("blob", **{selector: rows}) == theirs.read_blobs("blob", **{selector: rows})
    requests = [(1, 0, 3), (0, 1, 2), (1, 5, 7), (3, 0, 0), (5, 0, 0)]
    assert ours.read_blob_ranges("blob", requests, selector=selector) == theirs.read_blob_ranges(
        "blob", requests, selector=selector
    )


def test_a_blob_is_a_file(blob_uri: str) -> None:
    table = lance_io.dataset(blob_uri)
    content = table.read_blobs("blob", indices=[1])[0][1]
    assert content is not None
    (blob,) = table.take_blobs("blob", indices=[1], buffer_size=100)
    assert isinstance(blob, lance_io.BlobFile) and isinstance(blob, io.BufferedIOBase)
    assert (blob.size(), blob.readable(), blob.seekable(), blob.tell()) == (len(content), True, True, 0)
    assert [blob.read(10) for _ in range(30)] == [content[i : i + 10] for i in range(0, 300, 10)]
    assert blob.seek(-5, io.SEEK_END) == len(content) - 5
    assert (blob.read(), blob.read(3)) == (content[-5:], b"")
    assert blob.seek(2) == 2
    assert blob.seek(3, io.SEEK_CUR) == 5
    into = bytearray(4)
    assert (blob.readinto(into), bytes(into), blob.tell()) == (4, content[5:9], 9)
    assert blob.read_range(7, 11) == content[7:18]
    assert blob.read_ranges([(0, 2), (100, 1), (0, 0)]) == [content[:2], content[100:101], b""]
    assert blob.tell() == 9
    assert (blob.seek(10**9), blob.read()) == (10**9, b"")
    with pytest.raises(ValueError, match="exceeds blob size"):
        blob.read_range(0, 10**9)
    with pytest.raises(ValueError, match="negative seek"):
        blob.seek(-1)
    blob.close()
    with pytest.raises(ValueError, match="closed"):
        blob.read()


async def test_blobs_awaited(blob_uri: str) -> None:
    sync = lance_io.dataset(blob_uri)
    async with lance_io.AsyncDataset.open(blob_uri) as table:
        files = await table.take_blobs("blob", indices=[1, 3, 5, 1])
        content = [data for _, data in sync.read_blobs("blob", indices=[1, 3, 5, 1])]
        assert [one and await one.read() for one in files] == [content[0], None, content[2], content[3]]
        assert await table.read_blobs("blob", indices=[1]) == sync.read_blobs("blob", indices=[1])
        requests = [(1, 0, 3), (0, 1, 2)]
        assert await table.read_blob_ranges("blob", requests, selector="ids") == sync.read_blob_ranges(
            "blob", requests, selector="ids"
        )
        blob = files[0]
        assert blob is not None
        async with blob:
            assert (blob.seek(4), await blob.read(3), blob.tell()) == (4, content[0][4:7], 7)
            assert await blob.read_ranges([(0, 2), (9, 1)]) == [content[0][:2], content[0][9:10]]
            with pytest.raises(ValueError, match="exceeds blob size"):
                await blob.read_range(0, 10**9)
        with pytest.raises(ValueError, match="closed"):
            await blob.read_range(0, 1)


def test_frames_hold_files_bytes_or_descriptions(blob_uri: str) -> None:
    table = lance_io.dataset(blob_uri)
    content = [data for _, data in table.read_blobs("blob", indices=range(4))]
    lazy = table.to_pandas(limit=4)
    assert [one if one is None else one.read() for one in lazy["blob"]] == content
    assert table.to_pandas(limit=4, blob_mode="bytes")["blob"].tolist() == content
    assert table.to_pandas(["blob"], limit=1, blob_mode="descriptions")["blob"][0]["size"] == len(content[0] or b"")
    with pytest.raises(ValueError, match="blob_mode must be one of"):
        table.to_pandas(blob_mode="zz")


def test_exactly_one_selector_of_a_blob_column(blob_uri: str) -> None:
    table = lance_io.dataset(blob_uri)
    for rows in ({}, {"ids": [1], "indices": [1]}):
        with pytest.raises(ValueError, match="Exactly one of ids, indices, or addresses"):
            table.take_blobs("blob", **rows)
    with pytest.raises(ValueError, match="the column 'id' is not a blob column"):
        table.read_blobs("id", indices=[0])
    with pytest.raises(ValueError, match="zz"):
        table.read_blobs("zz", indices=[0])
    with pytest.raises(ValueError, match="selector must be one of"):
        table.read_blob_ranges("blob", [(0, 0, 1)], selector="rows")
    with pytest.raises(ValueError, match="Blob range request 1 for row address 0 is invalid"):
        table.read_blob_ranges("blob", [(1, 0, 1), (0, 0, 10**9)], selector="indices")


@pytest.mark.parametrize("name", [["blob"], None, 1, b"blob"], ids=str)
def test_a_blob_column_is_named_by_a_text_as_in_pylance(blob_uri: str, name: Any) -> None:
    for library in (lance_io, lance):
        with pytest.raises(TypeError):
            library.dataset(blob_uri).take_blobs(name, indices=[0])


def test_where_sidecars_are() -> None:
    assert sidecar_key("t/data/f.lance", 1) == f"t/data/f/1{'0' * 31}.blob"
    assert sidecar_key("t/data/f.lance", 2) == f"t/data/f/01{'0' * 30}.blob"


def test_descriptions_that_cannot_be(tmp_path: Path) -> None:
    state = lance_io.dataset(BLOBS[1])._state
    file = StoredObject(state.location.store, "f.lance")
    members = {"kind": pa.uint8(), "position": pa.uint64(), "size": pa.uint64(), "blob_id": pa.uint32()}

    def located(uri: str = "", **values: int) -> Located:
        arrays = [pa.array([values.get(name, 0)], dtype) for name, dtype in members.items()]
        described = pa.StructArray.from_arrays([*arrays, pa.array([uri])], names=[*members, "blob_uri"])
        return drive_sync(locate_in_file(state, file, described))

    assert located(kind=1, blob_id=1).objects[0].key == sidecar_key("f.lance", 1)
    with pytest.raises(FormatError, match="beyond any file"):
        located(size=1 << 63)
    with pytest.raises(FormatError, match="blob kind 9"):
        located(kind=9)
    with pytest.raises(FormatError, match="has no URI"):
        located(kind=3)
    with pytest.raises(FormatError, match="base path 7"):
        located(kind=3, blob_id=7, uri="inside.bin")
    with pytest.raises(UnsupportedError, match="another kind"):
        located(kind=3, uri="s3://bucket/key")
    with pytest.raises(FormatError, match="lacks 'position'"):
        drive_sync(locate_in_file(state, file, pa.StructArray.from_arrays([pa.array([1])], names=["size"])))


@pytest.mark.parametrize("size", [1 << 20, 1 << 33, 1 << 40])
def test_blobs_that_end_behind_their_file(tmp_path: Path, size: int) -> None:
    """Whether there would be room for so many bytes or not."""
    (tmp_path / "f.lance").write_bytes(b"x" * 100)
    state = lance_io.dataset(BLOBS[1])._state
    file = StoredObject(state.location.store, str(tmp_path / "f.lance"))
    starts, sizes = np.array([0, 10]), np.array([10, size])
    located = Located(np.zeros(2, np.int64), (file,), starts, sizes, np.ones(2, np.bool_))
    with pytest.raises(FormatError, match=r"f\.lance: (a blob ends at|the file ends before)"):
        drive_sync(read_located(state, located))


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("is_below_base", [False, True])
async def test_blobs_outside_of_the_table(tmp_path: Path, is_below_base: bool) -> None:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.bin").write_bytes(bytes(range(200)))
    (folder / "b.bin").write_bytes(b"other")
    a, b = (f"file://{folder}/{name}.bin" for name in "ab")
    values = [a, Blob(uri=a, position=5, size=7), b"inline", None, b, Blob(uri=a, position=100, size=100), a]
    schema = pa.schema([pa.field("i", pa.int64()), blob_field("b")])
    rows = pa.table({"i": range(len(values)), "b": blob_array(values)}, schema=schema)
    base = [lance.DatasetBasePath(f"file://{folder}", "outside")] if is_below_base else None
    uri = str(tmp_path / "table.lance")
    theirs = lance.write_dataset(
        rows, uri, data_storage_version="2.2", initial_bases=base, allow_external_blob_outside_bases=not is_below_base
    )
    ours = lance_io.dataset(uri)
    selected = [6, 5, 4, 3, 2, 1, 0, 0]
    expected = [one and one.readall() for one in theirs.take_blobs("b", indices=selected)]
    assert [one and one.readall() for one in ours.take_blobs("b", indices=selected)] == expected
    twin = await lance_io.AsyncDataset.open(uri)
    assert [one and await one.read() for one in await twin.take_blobs("b", indices=selected)] == expected
    assert [data for _, data in ours.read_blobs("b", indices=selected)] == expected
    assert ours.read_blob_ranges("b", [(0, 3, 2), (4, 1, 3)], selector="indices")[1][2] == b"the"
    whole = ours.to_table(blob_handling="all_binary").column("b").to_pylist()
    assert whole == expected[::-1][1:]
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()
    (folder / "b.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.bin"):
        ours.take_blobs("b", indices=[4])


def test_parts_ask_no_object_for_its_size_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = []
    for number in range(6):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 100)
        values.append(f"file://{tmp_path}/{number}")
    rows = pa.table([blob_array(values)], pa.schema([blob_field("b")]))
    options = {"data_storage_version": "2.2", "allow_external_blob_outside_bases": True}
    lance_io.write_dataset(rows, tmp_path / "t", **options)
    ours = lance_io.dataset(tmp_path / "t")

    def heads() -> int:
        lines = metrics.prometheus_text().splitlines()
        return sum(int(one.split()[1]) for one in lines if one.startswith('lance_io_requests_total{operation="head"}'))

    before = heads()
    ours.read_blobs("b", indices=list(range(6)))
    expected = heads() - before
    for part_bytes, counts in ((1000, [6]), (250, [2, 2, 2])):
        monkeypatch.setattr(blob_values, "PART_BYTES", part_bytes)
        before = heads()
        found = ours.scanner(blob_handling="all_binary").to_table()
        assert [len(batch) for batch in found.to_batches()] == counts
        assert found.column("b").to_pylist() == [bytes([number]) * 100 for number in range(6)]
        assert heads() - before == expected


async def test_one_blob_as_an_asynchronous_file(blob_uri: str) -> None:
    table = await lance_io.AsyncDataset.open(blob_uri)
    expected = lance.dataset(blob_uri).take_blobs("blob", indices=[1])[0].readall()
    async with table.take_blob("blob", 1) as file:
        assert await file.read(3) == expected[:3]
        assert await file.read() == expected[3:]
    with pytest.raises(ValueError, match="closed"):
        await file.read(1)
    with pytest.raises(ValueError, match="null"):
        async with table.take_blob("blob", 3):
            pass
    frame = await table.to_pandas(blob_mode="bytes")
    assert frame.equals(lance_io.dataset(blob_uri).to_pandas(blob_mode="bytes"))
    lazy = (await table.to_pandas()).iloc[1]["blob"]
    assert lazy.readall() == expected


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_rows_of_a_file_without_the_column_are_null(tmp_path: Path, version: str) -> None:
    if version == "2.2":
        field, values = blob_field("blob"), blob_array([b"x", b"yy"])
    else:
        field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        values = pa.array([b"x", b"yy"], pa.large_binary())
    schema = pa.schema([pa.field("id", pa.int64()), field])
    lance.write_dataset(pa.table([pa.array([0, 1]), values], schema=schema), tmp_path, data_storage_version=version)
    lance.write_dataset(pa.table({"id": [2, 3]}), tmp_path, mode="append")
    ours, theirs = lance_io.dataset(tmp_path), lance.dataset(tmp_path)
    rows = [0, 2, 1, 3, 2]
    assert [one and one.read() for one in ours.take_blobs("blob", indices=rows)] == [b"x", None, b"yy", None, None]
    assert ours.read_blobs("blob", indices=rows) == theirs.read_blobs("blob", indices=rows)
    binary = ours.to_table(blob_handling="all_binary")
    assert binary["blob"].to_pylist() == theirs.to_table(blob_handling="all_binary")["blob"].to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"ab", None, b"", b"x" * 5000], pa.large_binary()),
        pa.array([b"a", b"bc"], pa.binary()),
        pa.chunked_array([[b"a"], [], [None, b"b"]], pa.binary()),
        pa.array([], pa.large_binary()),
    ],
    ids=["large", "small", "chunked", "empty"],
)
def test_a_column_of_bytes_as_files(column: Any) -> None:
    theirs = iter(lance.BlobColumn(column))
    ours = lance_io.BlobColumn(column)
    for _ in range(2):  # pylance's iterator cannot be iterated over by a loop
        assert [file.read() for file in ours] == [value.as_py() or b"" for value in column]
    for file in ours:
        assert file.read() == next(theirs).read()
    with pytest.raises(StopIteration):
        next(theirs)


@pytest.mark.parametrize("wrong", [[b"a"], pa.array(["a"]), None], ids=str)
def test_what_is_no_column_of_bytes(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Expected") as theirs:
        lance.BlobColumn(wrong)
    with pytest.raises(ValueError, match="Expected") as ours:
        lance_io.BlobColumn(wrong)
    assert str(ours.value) == str(theirs.value)


def make_blobs(path: Path, kind: str, *, stable: bool = False) -> str:
    """Twelve blobs in three files, row `i` null for 0 and 7 and empty for 1 and 8; rows 4 and 6 are deleted.

    kind  "marked" columns of large binaries in files of 2.1 or 2.2, or blobs of the "second" kind; "inside" structs
    """
    values = [(None, b"")[i % 7] if i % 7 < 2 else bytes([i]) * i * 3000 for i in range(12)]
    if kind.startswith("second"):
        blobs, field = blob_array(values), blob_field("b")
    else:
        blobs, field = pa.array(values, pa.large_binary()), pa.field("b", pa.large_binary(), metadata=MARK)
    if "inside" in kind:
        inner = pa.StructArray.from_arrays([blobs, pa.array(range(12))], fields=[field, pa.field("i", pa.int64())])
        mask = pa.array([i % 5 == 2 for i in range(12)])
        blobs = pa.StructArray.from_arrays([inner], fields=[pa.field("inner", inner.type)], mask=mask)
        field = pa.field("s", blobs.type)
    rows = pa.table([pa.array(range(12)), blobs], schema=pa.schema([pa.field("id", pa.int64()), field]))
    version = "2.1" if kind.endswith("2.1") else "2.2"
    lance.write_dataset(
        rows, path, data_storage_version=version, max_rows_per_file=5, enable_stable_row_ids=stable
    ).delete("id in (4, 6)")
    return str(path)


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize(
    "rows",
    [{"ids": [4, 3]}, {"ids": [99, 3, 4]}, {"addresses": [3, 4]}, {"addresses": [99]}, {"addresses": [1 << 40]}],
    ids=str,
)
async def test_no_row_asked_for_is_left_out(tmp_path: Path, stable: bool, rows: Any) -> None:
    """A shorter result would not line up with what was asked for. pylance's class of error is one of ours."""
    uri = make_blobs(tmp_path / "t", "marked 2.1", stable=stable)
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    twin = await lance_io.AsyncDataset.open(uri)
    ((selector, numbers),) = rows.items()
    requests = [(row, 0, 0) for row in numbers]
    with pytest.raises((ValueError, NotImplementedError)) as refused:
        theirs.take_blobs("b", **rows)
    missing = str(next(row for row in numbers if row != 3))
    raised = []
    with pytest.raises(ValueError, match=missing) as error:
        ours.take_blobs("b", **rows)
    raised.append(error.value)
    with pytest.raises(ValueError, match=missing) as error:
        ours.read_blobs("b", **rows)
    raised.append(error.value)
    with pytest.raises(ValueError, match=missing) as error:
        ours.read_blob_ranges("b", requests, selector=selector)
    raised.append(error.value)
    with pytest.raises(ValueError, match=missing) as error:
        await twin.take_blobs("b", **rows)
    raised.append(error.value)
    said = re.search(r"(Expected|Could not).*(deleted rows|not found)", str(refused.value).replace(".  A", ". A"))
    for one in raised:
        assert isinstance(one, refused.type) and isinstance(one, NotImplementedError) == (
            refused.type is NotImplementedError
        )
        assert said is None or said[0] in str(one)


def test_missing_rows_are_named_once_and_only_so_many(tmp_path: Path) -> None:
    table = lance_io.dataset(make_blobs(tmp_path / "t", "marked 2.1", stable=True))
    with pytest.raises(ValueError, match=r"requested 4, resolved 1; .* row ID 4 .* Ask .* without 4, 77$"):
        table.take_blobs("b", ids=[4, 3, 77, 4])
    with pytest.raises(ValueError, match=r"without 100, .*, 109, \.\.\.$"):
        table.take_blobs("b", ids=range(100, 150))


@pytest.mark.parametrize("kind", ["marked 2.2", "second", "second inside", "marked inside 2.1"])
def test_members_of_descriptions_are_columns(tmp_path: Path, kind: str) -> None:
    uri = make_blobs(tmp_path / "t", kind)
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    blob = "s.inner.b" if "inside" in kind else "b"
    names = ["position", "size"] if kind.endswith("2.1") else ["kind", "position", "size", "blob_id", "blob_uri"]
    paths = [f"{blob}.{name}" for name in names]
    expressed = {"n": f"{blob}.size", "more": f"{blob}.size + 1", "b": blob}
    scans: list[dict[str, Any]] = [
        *({"columns": [path]} for path in paths),
        {"columns": [*paths, "id"], "filter": f"{blob}.size > 6000"},
        {"columns": [paths[0], blob], "filter": "id > 3", "limit": 2},
        {"columns": expressed, "offset": 2},
        {"columns": [f"{blob}.size"], "with_row_id": True, "include_deleted_rows": True},
        {"columns": ["id"], "blob_handling": "all_descriptions", "filter": f"{blob}.position = 0"},
    ]
    for options in scans:
        expected = theirs.to_table(**options)
        got = ours.to_table(**options)
        assert got.schema.equals(expected.schema, check_metadata=True), options
        assert got.combine_chunks().equals(expected.combine_chunks()), options
    for columns in ([paths[0]], ["id", *paths], [blob, paths[0]], expressed):
        taken = ours.take([5, 0, 1, 1, 9], columns)
        expected = theirs.take([5, 0, 1, 1, 9], columns)
        assert taken.schema.equals(expected.schema, check_metadata=True), columns
        assert taken.combine_chunks().equals(expected.combine_chunks()), columns


def test_members_of_descriptions_in_tables_of_2_1(tmp_path: Path) -> None:
    """pylance finds them in scans only beside the column itself, or inside a struct; here they are always found."""
    uri = make_blobs(tmp_path / "t", "marked 2.1")
    expected = lance.dataset(uri).to_table(columns=["b", "b.size"])
    assert lance_io.dataset(uri).to_table(columns=["b", "b.size"]).equals(expected)
    assert lance_io.dataset(uri).to_table(columns=["b.size"]).equals(expected.select(["b.size"]))
    assert lance_io.dataset(uri).take([1], ["b.size"]).equals(lance.dataset(uri).take([1], ["b.size"]))


@pytest.mark.parametrize("kind", ["marked 2.1", "marked 2.2", "second", "second inside"])
@pytest.mark.parametrize("name", ["data", "uri", "zz", "size.x"])
def test_what_descriptions_do_not_have(tmp_path: Path, kind: str, name: str) -> None:
    uri = make_blobs(tmp_path / "t", kind)
    path = f"s.inner.b.{name}" if "inside" in kind else f"b.{name}"
    with pytest.raises(ValueError, match=r"Invalid user input|Query Execution error"):
        lance.dataset(uri).to_table(columns=[path])
    with pytest.raises(BindError, match=path.replace(".", r"\.")):
        lance_io.dataset(uri).to_table(columns=[path])
    with pytest.raises(BindError, match="No field"):
        lance_io.dataset(uri).to_table(columns={"n": path})


@pytest.mark.parametrize("columns", [["b.size"], ["b", "b.size"], {"n": "b.size"}, {"n": "b.size + 1"}], ids=str)
def test_bytes_have_no_members(tmp_path: Path, columns: Any) -> None:
    uri = make_blobs(tmp_path / "t", "second")
    with pytest.raises(ValueError, match="LargeBinary is not Struct"):
        lance.dataset(uri).to_table(columns=columns, blob_handling="all_binary")
    with pytest.raises(BindError, match=r"No field named b\.size: blobs are read as bytes here"):
        lance_io.dataset(uri).to_table(columns=columns, blob_handling="all_binary")


@pytest.mark.parametrize("mode", ["lazy", "bytes", "descriptions"])
def test_frames_of_members_of_descriptions(tmp_path: Path, mode: str) -> None:
    uri = make_blobs(tmp_path / "t", "second")
    expected = lance.dataset(uri).to_pandas(columns=["id", "b.size"], blob_mode=mode)
    assert lance_io.dataset(uri).to_pandas(columns=["id", "b.size"], blob_mode=mode).equals(expected)


def test_orders_by_members_of_descriptions(tmp_path: Path) -> None:
    uri = make_blobs(tmp_path / "t", "second")
    options: dict[str, Any] = {"columns": ["id", "b.size"], "order_by": ["b.size", "id"]}
    expected = lance.dataset(uri).to_table(**options)
    assert lance_io.dataset(uri).to_table(**options).equals(expected)
    assert lance_io.dataset(uri).to_table(**options, limit=3).equals(expected.slice(0, 3))


def test_takes_beside_blobs_show_only_what_is_asked_for(tmp_path: Path) -> None:
    uri = make_blobs(tmp_path / "t", "second inside")
    got = lance_io.dataset(uri).take([3, 0], ["s.inner.i"])
    assert got.equals(lance.dataset(uri).take([3, 0], ["s.inner.i"]))
    assert got.schema.field("s").type == pa.struct([("inner", pa.struct([("i", pa.int64())]))])
