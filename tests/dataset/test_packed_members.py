"""Packed structs whose members pylance dropped, renamed or made nullable: old files beside newer ones.

A file keeps the struct as it was written, and its manifest names the struct only: members are told by the field ids in
the file's own schema. pylance goes by their places, so that members before a dropped one must be in newer files too for
it to read what is left; where it fails or errs, the expected rows are written down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerFileReader

import lance_io
from lance_io import limits
from lance_io.errors import FormatError
from lance_io.file import LanceFileReader
from lance_io.format.schema import Field
from lance_io.levels.path import leaf_paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKED = {"lance-encoding:packed": "true"}
ROWS = 60
VERSIONS = ("2.1", "2.2")
CHANGES: dict[str, Callable[[Any], None]] = {
    "dropped": lambda table: table.drop_columns(["c.y"]),
    "renamed": lambda table: table.alter_columns({"path": "c.x", "name": "z"}),
    "nullable": lambda table: table.alter_columns({"path": "c.x", "nullable": True}),
    "all": lambda table: (
        table.drop_columns(["c.y"]),
        table.alter_columns({"path": "c.x", "name": "z", "nullable": True}),
    ),
}


def _packed(**members: pa.DataType) -> pa.Field[Any]:
    return pa.field("c", pa.struct([pa.field(name, kind, False) for name, kind in members.items()]), metadata=PACKED)


def _write(path: Path, version: str, field: pa.Field[Any], values: list[Any]) -> lance.LanceDataset:
    columns = {"n": pa.array(range(len(values)), pa.int64()), field.name: pa.array(values, field.type)}
    table = pa.table(columns, schema=pa.schema([pa.field("n", pa.int64()), field]))
    return lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=len(values) // 2)


def _evolved(path: Path, version: str, change: str) -> str:
    """A table of two fragments before the change, one of pylance's and one of ours after it."""
    values = [{"x": i, "y": i + 0.5} for i in range(ROWS)]
    table = _write(path, version, _packed(x=pa.int32(), y=pa.float64()), values)
    CHANGES[change](table)
    newer = lance.dataset(path).to_table(limit=9)
    lance.write_dataset(newer, path, mode="append")
    lance_io.write_dataset(newer, path, mode="append")
    return str(path)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", CHANGES)
async def test_rows_are_those_of_pylance(tmp_path: Path, version: str, change: str) -> None:
    uri = _evolved(tmp_path / "t", version, change)
    member = lance.dataset(uri).schema.field("c").type.field(0).name
    lance_io.dataset(uri).delete(f"c.{member} = 3")
    lance.dataset(uri).delete(f"c.{member} = 40")
    theirs, ours = lance.dataset(uri), lance_io.dataset(uri)
    assert ours.schema == theirs.schema
    whole = theirs.to_table()
    assert ours.to_table() == whole
    assert len(ours) == theirs.count_rows() == len(whole) == ROWS + 18 - 4
    rows = [70, 1, 29, 28, 1, 60, 59]
    assert ours.take(rows) == theirs.take(rows)
    assert ours.take(rows, ["c"]) == theirs.take(rows, ["c"])
    ids = theirs.to_table(["n"], with_row_id=True)["_rowid"].to_pylist()[::7]
    assert ours._take_rows(ids) == theirs._take_rows(ids)
    for options in (
        {"columns": [f"c.{member}"]},
        {"columns": {"a": f"c.{member} + 1"}},
        {"filter": f"c.{member} > 26"},
        {"filter": f"c.{member} > 26", "columns": ["n"]},
        {"offset": 25, "limit": 45},
    ):
        assert ours.to_table(**options) == theirs.to_table(**options), options
    assert pa.Table.from_batches(ours.to_batches(batch_size=7)) == whole
    assert ours.count_rows(f"c.{member} < 7") == theirs.count_rows(f"c.{member} < 7")
    for one, other in zip(ours.get_fragments(), theirs.get_fragments(), strict=True):
        assert one.to_table() == other.to_table()
        assert one.take([0, 2, 5]) == other.take([0, 2, 5])
    async with lance_io.AsyncDataset.open(uri) as table:
        assert await table.to_table() == whole
        assert await table.take(rows) == theirs.take(rows)
        assert await table.to_table([f"c.{member}"], f"c.{member} > 26") == ours.to_table(
            [f"c.{member}"], f"c.{member} > 26"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_one_session_reads_versions_before_and_after(tmp_path: Path, version: str) -> None:
    uri = _evolved(tmp_path / "t", version, "all")
    table = lance_io.dataset(uri, session=lance_io.Session())
    for number in (1, table.version, 2, 1, table.version):
        theirs, ours = lance.dataset(uri, version=number), table.checkout_version(number)
        assert ours.to_table() == theirs.to_table()
        assert ours.take([3, 1, 58]) == theirs.take([3, 1, 58])


@pytest.mark.parametrize("version", VERSIONS)
def test_single_files_show_what_they_hold(tmp_path: Path, version: str) -> None:
    uri = _evolved(tmp_path / "t", version, "dropped")
    for fragment in lance.dataset(uri).get_fragments():
        path = f"{uri}/data/{fragment.data_files()[0].path}"
        theirs = PeerFileReader(path).read_all().to_table()
        ours = LanceFileReader(path)
        assert ours.read_all().to_table() == theirs
        assert ours.take_rows([1, 4]).to_table() == theirs.take([1, 4])


@pytest.mark.parametrize("version", VERSIONS)
def test_members_behind_a_dropped_one(tmp_path: Path, version: str) -> None:
    """Where pylance shows values of the dropped member, or fails."""
    path = tmp_path / "t"
    values = [{"w": i, "x": -i, "y": i / 2, "z": 2 * i} for i in range(ROWS)]
    table = _write(path, version, _packed(w=pa.int32(), x=pa.int32(), y=pa.float64(), z=pa.int32()), values)
    table.drop_columns(["c.w"])
    newer = pa.table({"n": pa.array([99]), "c": pa.array([{"x": 7, "y": 0.0, "z": 8}], table.schema.field("c").type)})
    lance_io.write_dataset(newer.cast(table.schema), path, mode="append")
    lance.dataset(path).drop_columns(["c.y"])
    lance.dataset(path).alter_columns({"path": "c.x", "name": "w"}, {"path": "c.z", "name": "x"})
    expected = [{"w": -i, "x": 2 * i} for i in range(ROWS)] + [{"w": 7, "x": 8}]
    ours = lance_io.dataset(str(path))
    assert ours.schema == lance.dataset(path).schema
    assert ours.to_table()["c"].to_pylist() == expected
    rows = [ROWS, 3, 45]
    assert ours.take(rows)["c"].to_pylist() == [expected[row] for row in rows]
    assert ours.to_table(["c.x"], "c.w < -50")["c.x"].to_pylist() == [2 * i for i in range(51, ROWS)]


def test_members_of_variable_width(tmp_path: Path) -> None:
    path = tmp_path / "t"
    field = _packed(x=pa.int32(), s=pa.string(), y=pa.float64())
    table = _write(path, "2.2", field, [{"x": i, "s": "s" * (i % 9), "y": i / 4} for i in range(ROWS)])
    table.drop_columns(["c.y"])
    table.alter_columns({"path": "c.s", "name": "text"})
    ours, rows = lance_io.dataset(str(path)), [44, 2, 31]
    assert ours.to_table(["c"])["c"].to_pylist() == [{"x": i, "text": "s" * (i % 9)} for i in range(ROWS)]
    assert ours.take(rows)["c"].to_pylist() == [{"x": i, "text": "s" * (i % 9)} for i in rows]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layout", ["miniblock", "fullzip"])
def test_null_structs_and_large_pages(
    tmp_path: Path, version: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = _packed(a=pa.float64(), b=pa.float64(), c=pa.float64())
    field = field.with_metadata({**PACKED, "lance-encoding:structural-encoding": layout})
    values = [None if i % 5 == 2 else {"a": i, "b": i + 0.5, "c": -i} for i in range(2000)]
    table = pa.table([pa.array(values, field.type)], schema=pa.schema([field]))
    lance_io.write_dataset(table, tmp_path / "t", data_storage_version=version)  # pylance does not zip these
    lance.dataset(tmp_path / "t").drop_columns(["c.b"])
    lance.dataset(tmp_path / "t").alter_columns({"path": "c.a", "name": "b"})
    expected = [value and {"b": value["a"], "c": value["c"]} for value in values]
    ours = lance_io.dataset(str(tmp_path / "t"))
    page = LanceFileReader(f"{tmp_path}/t/data/{ours.get_fragments()[0].metadata.files[0].path}").metadata().columns[0]
    assert all(("mini-block" if layout == "miniblock" else "full-zip") in one.encoding for one in page.pages)
    assert ours.to_table()["c"].to_pylist() == expected
    assert ours.take([2, 1500, 1])["c"].to_pylist() == [expected[row] for row in (2, 1500, 1)]
    monkeypatch.setattr(limits, "SCAN_PIECE_BYTES", 4096)  # pages come in pieces
    assert ours.to_table()["c"].to_pylist() == expected
    assert pa.Table.from_batches(ours.to_batches(batch_size=333))["c"].to_pylist() == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["list", "struct"])
def test_packed_structs_inside_others(tmp_path: Path, version: str, kind: str) -> None:
    path = tmp_path / "t"
    packed = _packed(x=pa.int32(), y=pa.float64())
    one = [{"x": i, "y": i + 0.5} for i in range(ROWS)]
    if kind == "list":
        field = pa.field("o", pa.list_(packed.with_name("item")))
        table = _write(path, version, field, [one[i : i + i % 4] if i % 5 else None for i in range(ROWS)])
        member = "o.item"
    else:
        field = pa.field("o", pa.struct([packed, pa.field("k", pa.int64())]))
        table = _write(path, version, field, [{"c": one[i], "k": i} if i % 5 else None for i in range(ROWS)])
        member = "o.c"
    table.alter_columns({"path": f"{member}.x", "name": "z"})
    table.drop_columns([f"{member}.y"])
    lance.write_dataset(lance.dataset(path).to_table(offset=1, limit=3), path, mode="append")
    theirs, ours = lance.dataset(path), lance_io.dataset(str(path))
    assert ours.schema == theirs.schema
    assert ours.to_table() == theirs.to_table()
    assert ours.take([7, 62, 41, 8]) == theirs.take([7, 62, 41, 8])


@pytest.mark.parametrize("version", VERSIONS)
def test_fragments_of_old_files_are_committed_again(tmp_path: Path, version: str) -> None:
    """A schema that replaces that of the table is compared with its files."""
    uri = _evolved(tmp_path / "t", version, "all")
    table = lance_io.dataset(uri)
    expected = table.to_table()
    fragments = [one.metadata for one in table.get_fragments()]
    schema = pa.schema([table.schema.field("n"), table.schema.field("c")])
    lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Overwrite(schema, fragments), read_version=table.version)
    assert lance_io.dataset(uri).to_table() == lance.dataset(uri).to_table() == expected


def _leaf(*members: Field, id: int = 0) -> Field:
    return Field(id, "c", "struct", True, members, {"lance-encoding:packed": b"true"})


def test_what_a_file_must_have_of_a_packed_struct() -> None:
    x, y = Field(1, "x", "int32", False), Field(2, "y", "double", False)
    (stored,) = leaf_paths(_leaf(x, y))

    def given(*members: Field, id: int = 0) -> tuple[int, ...] | None:
        (declared,) = leaf_paths(_leaf(*members, id=id))
        found = stored.as_declared(declared)
        if found is None:
            return None
        assert found.skeleton == declared.skeleton
        return (0, 1) if found is stored else found.members.positions if found.members else ()

    assert given(x, y) == (0, 1)
    assert given(y) == (1,)
    assert given(y, x) == (1, 0)
    assert given(Field(1, "z", "int32")) == (0,)
    assert given() == ()
    assert given(Field(1, "x", "int64", False), y) is None  # another type
    assert given(x, Field(3, "y", "double", False)) == (0, 1)  # ids of another table: the same struct by its names
    assert given(x, Field(3, "z", "double", False)) is None
    assert given(x, id=7) is None
    assert given(x, y, id=7) == (0, 1)
    (twice,) = leaf_paths(_leaf(x, Field(1, "y", "int32", False)))
    (declared,) = leaf_paths(_leaf(Field(1, "y", "int32", False)))
    assert twice.as_declared(declared) is None


def test_a_member_that_no_file_has(tmp_path: Path) -> None:
    """Of another type under the same id, which no change of a schema makes."""
    path = tmp_path / "t"
    _write(path, "2.1", _packed(x=pa.int32(), y=pa.float64()), [{"x": i, "y": 0.0} for i in range(4)])
    theirs = lance.dataset(path)
    schema = pa.schema([pa.field("n", pa.int64()), _packed(x=pa.int64())])
    fragments = [one.metadata for one in theirs.get_fragments()]
    lance.LanceDataset.commit(path, lance.LanceOperation.Overwrite(schema, fragments), read_version=theirs.version)
    with pytest.raises(
        FormatError, match=r'\.lance: column 1 \("c"\): struct<x: int32 .* in the file, struct<x: int64'
    ):
        lance_io.dataset(str(path)).to_table()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_a_mark_of_false_packs_nothing(tmp_path: Path, version: str) -> None:
    """In 2.0 pylance packs and cannot read it: that is refused, and not read as nulls."""
    kind = pa.struct([("a", pa.int32()), ("b", pa.float64())])
    marked = pa.field("p", kind, metadata={"lance-encoding:packed": "false"})
    columns = [pa.array([{"a": i, "b": i / 2} for i in range(9)], kind), pa.array(range(9))]
    rows = pa.table(columns, schema=pa.schema([marked, pa.field("i", pa.int64())]))
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    lance_io.write_dataset(rows, ours, data_storage_version=version)
    lance.write_dataset(rows, theirs, data_storage_version=version)
    for library in (lance, lance_io):
        assert library.dataset(ours).to_table() == rows
        assert library.dataset(ours).take([3, 5]) == rows.take([3, 5])
    table = lance_io.dataset(theirs)
    if version == "2.0":
        with pytest.raises(FormatError, match="2 columns in a file whose schema has 4"):
            table.to_table(columns=["i"])
    reads = (lambda one: one.to_table(), lambda one: one.take([3]), lambda one: one.to_table(columns=["p.b"]))
    for read in reads:
        if version != "2.0":
            assert read(table) == read(lance.dataset(theirs))
            continue
        with pytest.raises(FormatError, match="'p' is packed in the file"):
            read(table)
        with pytest.raises((OSError, pa.ArrowInvalid), match=r"different sizes|expected 0 got"):
            read(lance.dataset(theirs))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    "columns",
    [["o.st"], ["o.st.a"], ["o.st.a", "o.x"], ["o.st.b", "o.st.a"], ["o.st", "o"], ["st.a"]],
    ids=str,
)
def test_members_of_packed_structs_inside_others_are_taken(tmp_path: Path, version: str, columns: list[str]) -> None:
    inner = pa.field("st", pa.struct([("a", pa.int32()), ("b", pa.int64())]), metadata={"packed": "true"})
    outer = pa.struct([pa.field("x", pa.int32()), inner])
    values = [{"x": row, "st": {"a": row, "b": row * 2}} for row in range(9)]
    schema = pa.schema([inner, pa.field("o", outer), pa.field("l", pa.list_(outer))])
    rows = {"st": [one["st"] for one in values], "o": values, "l": [values[:row] for row in range(9)]}
    lance_io.write_dataset(pa.table(rows, schema=schema), tmp_path / "t", data_storage_version=version)
    taken = lance_io.dataset(tmp_path / "t").take([7, 2, 5], columns=columns)
    expected = lance.dataset(tmp_path / "t").take([7, 2, 5], columns=columns)
    assert taken.to_pydict() == expected.to_pydict()
    assert taken.schema.types == expected.schema.types
    below_list = lance_io.dataset(tmp_path / "t").take([2], columns=["l.item.st.b"])  # which pylance cannot read
    assert below_list.to_pydict() == {"l": [[{"st": {"b": 0}}, {"st": {"b": 2}}]]}
