"""Which rows may join a table: each pair of a table's column and the rows' column is tried with both libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import lance.file
import pyarrow as pa
import pytest

import lance_io.blob
import lance_io.fragment
from lance_io.errors import LanceError, SchemaError
from tests.interop.comparing import LIBRARIES, assert_same

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = pa.int64()
MINE = {"ARROW:extension:name": "my.ext"}
WITH_PARAMETERS = {**MINE, "ARROW:extension:metadata": "q"}
BLOB = {"lance-encoding:blob": "true"}
PACKED = {"packed": "true"}


def column(dtype: pa.DataType, nullable: bool = True, **metadata: str) -> pa.Field[Any]:
    return pa.field("x", dtype, nullable, metadata or None)


def marked(dtype: pa.DataType, metadata: dict[str, str]) -> pa.Field[Any]:
    return pa.field("x", dtype, metadata=metadata)


def items(name: str, dtype: pa.DataType = NUMBER, nullable: bool = True, **metadata: str) -> pa.Field[Any]:
    return column(pa.list_(pa.field(name, dtype, nullable, metadata or None)))


def struct(*names: str, metadata: dict[str, str] | None = None) -> pa.DataType:
    return pa.struct([pa.field(name, NUMBER, metadata=metadata) for name in names])


# The table's column, the rows' column, and what both libraries say of it; None for rows that may join.
EXTENSION = "does not match the file schema"
PAIRS: dict[str, tuple[pa.Field[Any], pa.Field[Any], str | None]] = {
    "uuid and its bytes": (column(pa.uuid()), column(pa.binary(16)), "field `x` " + EXTENSION),
    "bytes and a uuid": (column(pa.binary(16)), column(pa.uuid()), "field `x` " + EXTENSION),
    "uuid": (column(pa.uuid()), column(pa.uuid()), None),
    "extension and none": (marked(NUMBER, MINE), column(NUMBER), EXTENSION),
    "none and an extension": (column(NUMBER), marked(NUMBER, MINE), EXTENSION),
    "another extension": (marked(NUMBER, MINE), marked(NUMBER, {"ARROW:extension:name": "your.ext"}), EXTENSION),
    "other parameters": (marked(NUMBER, MINE), marked(NUMBER, WITH_PARAMETERS), EXTENSION),
    "extension of a member": (column(struct("a", metadata=MINE)), column(struct("a")), "field `x.a` " + EXTENSION),
    "extension of items": (items("item", **MINE), items("item"), "field `x.item` " + EXTENSION),
    "extension of map values": (
        column(pa.map_(NUMBER, pa.field("value", NUMBER, metadata=MINE))),
        column(pa.map_(NUMBER, NUMBER)),
        "field `x.entries.value` " + EXTENSION,
    ),
    "extension of a packed member": (
        marked(struct("a", "b", metadata=MINE), PACKED),
        marked(struct("a", "b"), PACKED),
        "field `x.a` " + EXTENSION,
    ),
    "json": (column(pa.json_()), column(pa.json_(pa.large_string())), None),
    "json and text": (column(pa.json_()), column(pa.string()), "`x` should have type json but type was string"),
    "other metadata": (column(NUMBER, a="b"), column(NUMBER, c="d"), None),
    "no blobs and blobs": (
        column(pa.large_binary()),
        marked(pa.large_binary(), BLOB),
        "`x` should have type large_binary but type was struct",
    ),
    "blobs and none": (
        marked(pa.large_binary(), BLOB),
        column(pa.large_binary()),
        "`x` should have type struct but type was large_binary",
    ),
    "blobs of both kinds": (marked(pa.large_binary(), BLOB), lance_io.blob.blob_field("x"), None),
    "struct and blobs": (
        column(lance_io.blob.blob_field("x").type),
        lance_io.blob.blob_field("x"),
        "field `x` " + EXTENSION,
    ),
    "name of items": (items("element"), items("item"), "missing=[], unexpected=[x.item]"),
    "name of items that must be": (
        items("element", nullable=False),
        items("item", nullable=False),
        "missing=[x.element], unexpected=[x.item]",
    ),
    "names of map entries": (
        column(pa.map_(pa.field("key", NUMBER, False), pa.field("value", NUMBER))),
        column(pa.map_(pa.field("k", NUMBER, False), pa.field("value", NUMBER))),
        "missing=[x.entries.key], unexpected=[x.entries.k]",
    ),
    "nullability": (column(NUMBER), column(NUMBER, nullable=False), None),
    "nullability of items": (items("item", nullable=False), items("item"), None),
    "order of members": (column(struct("a", "b")), column(struct("b", "a")), None),
    "member that may be missing": (items("item", struct("a", "b")), items("item", struct("a")), None),
    "member too many": (column(struct("a")), column(struct("a", "b")), "missing=[], unexpected=[x.b]"),
    "members of vectors": (column(pa.list_(struct("a", "b"), 2)), column(pa.list_(struct("b", "a"), 2)), ""),
    "values of a dictionary": (
        column(pa.dictionary(pa.int32(), pa.string())),
        column(pa.dictionary(pa.int32(), pa.large_string())),
        "should have type dict:string:int32:false",
    ),
    "time zone": (
        column(pa.timestamp("us", "UTC")),
        column(pa.timestamp("us", "+00:00")),
        "should have type timestamp:us:UTC but type was timestamp:us:+00:00",
    ),
}


def value(dtype: pa.DataType) -> Any:
    """Any value of a type."""
    if isinstance(dtype, pa.StructType):
        names = [field.name for field in dtype]
        return {"data": b"blob"} if "data" in names else {name: 10 * ord(name) for name in names}
    if isinstance(dtype, pa.MapType):
        return [(1, 2)]
    if isinstance(dtype, (pa.ListType, pa.FixedSizeListType)):
        return [value(dtype.value_type)] * 2
    if pa.types.is_dictionary(dtype):
        return "word"
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return '"text"'
    is_bytes = pa.types.is_large_binary(dtype) or pa.types.is_fixed_size_binary(dtype)
    return b"sixteen bytes...".ljust(16, b".")[:16] if is_bytes else 7


def table(field: pa.Field[Any]) -> pa.Table:
    """One row with a value in the column, and another column."""
    dtype = field.type
    storage = dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype
    array = pa.array([value(storage)], storage)
    if isinstance(dtype, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(dtype, array)
    return pa.table([array, pa.array([1])], schema=pa.schema([field, pa.field("key", NUMBER)]))


def append(library: Any, rows: pa.Table, uri: str, parts: bool) -> None:
    """Append as one does, or in the two steps of a distributed write."""
    if not parts:
        library.write_dataset(rows, uri, mode="append")
        return
    made = library.fragment.write_fragments(rows, uri, mode="append")
    library.LanceDataset.commit(uri, library.LanceOperation.Append(made), read_version=1)


@pytest.mark.parametrize("parts", [False, True], ids=["append", "fragments"])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_same_rows_may_join_as_in_pylance(tmp_path: Path, pair: str, parts: bool) -> None:
    kept, given, refusal = PAIRS[pair]
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(table(kept), uri)
        if refusal is None:
            append(library, table(given), uri, parts)
            continue
        with pytest.raises(OSError) as raised:
            append(library, table(given), uri, parts)
        assert refusal in str(raised.value)
        assert library is lance or isinstance(raised.value, SchemaError)
        assert lance.dataset(uri).version == 1
    if refusal is None:
        for reader in LIBRARIES:
            theirs, ours = (reader.dataset(tmp_path / one.__name__) for one in LIBRARIES)
            assert ours.schema.equals(theirs.schema, check_metadata=True)
            assert_same(ours.to_table(), theirs.to_table())


@pytest.mark.parametrize("names", [("b", "a"), ("a",)], ids=["order", "missing"])
def test_packed_structs_that_pylance_would_not_read_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    """pylance appends them: members in another order change places, and a missing one makes the table unreadable."""
    lance.write_dataset(table(marked(struct("a", "b"), PACKED)), tmp_path / "t")
    with pytest.raises(LanceError, match=r"packed struct.*expected=\[a, b\], found="):
        lance_io.write_dataset(table(marked(struct(*names), PACKED)), tmp_path / "t", mode="append")


@pytest.mark.parametrize("kept", [pa.struct([("a", pa.int32())]), struct("a", "b")], ids=["one", "two"])
@pytest.mark.parametrize("inside", [False, True], ids=["column", "member"])
def test_a_struct_without_members_is_no_struct_of_the_table(tmp_path: Path, kept: pa.DataType, inside: bool) -> None:
    """It has a column of its own in a file, where a struct with members has none."""
    types = [pa.struct([("s", one)]) if inside else one for one in (kept, pa.struct([]))]
    rows = [pa.table({"x": pa.array([{"s": {}} if inside else {}], one)}) for one in types]
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(rows[0], uri)
        with pytest.raises(OSError):
            library.write_dataset(rows[1], uri, mode="append")
        assert lance.dataset(uri).version == 1
        assert lance.dataset(uri).to_table().equals(rows[0])


def test_before_2_2_blobs_are_bytes_with_a_mark(tmp_path: Path) -> None:
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(table(column(pa.large_binary())), uri, data_storage_version="2.1")
        append(library, table(marked(pa.large_binary(), BLOB)), uri, parts=False)
        assert [lance.dataset(uri).count_rows(), lance_io.dataset(uri).to_table().num_rows] == [2, 2]


@pytest.mark.parametrize("pair", ["none and an extension", "name of items"])
def test_files_that_are_written_already_need_no_extension_types(tmp_path: Path, pair: str) -> None:
    kept, given, _ = PAIRS[pair]
    for library in LIBRARIES:
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(table(kept), uri)
        with lance.file.LanceFileWriter(f"{uri}/data/new.lance", table(given).schema) as writer:
            writer.write_batch(table(given))
        if pair == "name of items":
            with pytest.raises(OSError, match=r"unexpected=\[x.item\]"):
                library.LanceFragment.create_from_file("new.lance", library.dataset(uri), 0)
            continue
        made = library.LanceFragment.create_from_file("new.lance", library.dataset(uri), 0)
        library.LanceDataset.commit(uri, library.LanceOperation.Append([made]), read_version=1)
        assert lance.dataset(uri).to_table()["x"].to_pylist() == [7, 7]
