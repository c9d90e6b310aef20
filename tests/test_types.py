"""Every type of a table, as pylance writes it: schema, scans, takes and counts are those of pylance."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import lance.arrow
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("2.0", "2.1", "2.2")
ROWS = 12
ROOT = __file__.rsplit("/tests/", 1)[0]


def _every(make: Any, dtype: pa.DataType) -> pa.Array:
    """`make(i)` per row, every third null."""
    return pa.array([None if i % 3 == 1 else make(i) for i in range(ROWS)], dtype)


def _extension(dtype: Any, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(dtype, storage)


def columns(version: str) -> dict[str, pa.Array]:
    integers = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    numbers = {str(one): _every(lambda i: i, one) for one in integers}
    floats = {str(one): _every(lambda i: i / 2, one) for one in (pa.float16(), pa.float32(), pa.float64())}
    texts = {str(one): _every(str, one) for one in (pa.string(), pa.large_string(), pa.string_view())}
    binaries = [pa.binary(), pa.large_binary(), pa.binary_view()]
    struct = pa.struct([pa.field("x", pa.int32(), nullable=False, metadata={"k": "v"}), pa.field("y", pa.string())])
    moment = [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns")]
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2], dim_names=["h", "w"])
    bfloats = lance.arrow.bfloat16_array([None if i % 3 == 1 else i / 2 for i in range(ROWS)])
    uuids = _extension(pa.uuid(), _every(lambda i: bytes([i]) * 16, pa.binary(16)))
    found = {
        **numbers,
        **floats,
        **texts,
        **{str(one): _every(lambda i: bytes([i]) * i, one) for one in binaries},
        **{str(one): _every(lambda i: i * 1000, one) for one in moment},
        **{f"duration {unit}": _every(lambda i: i, pa.duration(unit)) for unit in ("s", "ms", "us", "ns")},
        **{str(one): _every(lambda i: i, one) for one in (pa.time32("s"), pa.time32("ms"))},
        **{str(one): _every(lambda i: i, one) for one in (pa.time64("us"), pa.time64("ns"))},
        "bool": _every(lambda i: i % 2 == 0, pa.bool_()),
        "null": pa.nulls(ROWS),
        "date32": _every(lambda i: i, pa.date32()),
        "date64": _every(lambda i: i * 86_400_000, pa.date64()),
        "decimal128": _every(lambda i: Decimal(i) / 4, pa.decimal128(10, 2)),
        "decimal256": _every(lambda i: Decimal(i) / 4, pa.decimal256(50, 2)),
        "fixed binary": _every(lambda i: bytes([i]) * 3, pa.binary(3)),
        "dictionary": _every(lambda i: f"v{i % 2}", pa.dictionary(pa.int8(), pa.string())),
        "dictionary of i64": _every(lambda i: i % 2, pa.dictionary(pa.uint16(), pa.int64())),
        "list": _every(lambda i: [None, i] * (i % 3), pa.list_(pa.int32())),
        "large list": _every(lambda i: ["a", None] * (i % 3), pa.large_list(pa.string())),
        "list of list": _every(lambda i: [[i], None, []], pa.list_(pa.list_(pa.field("in", pa.int8(), False)))),
        "list of struct": _every(lambda i: [{"x": i, "y": None}], pa.list_(struct)),
        "fixed list": _every(lambda i: [i, None, 2.5], pa.list_(pa.float32(), 3)),
        "fixed list of bool": _every(lambda i: [True, None], pa.list_(pa.bool_(), 2)),
        "struct": _every(lambda i: {"x": i, "y": str(i)}, struct),
        "struct of struct": _every(lambda i: {"s": {"x": i, "y": None}}, pa.struct([("s", struct)])),
        "dictionary in struct": _every(
            lambda i: {"d": f"v{i % 2}"}, pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))])
        ),
        "uuid": uuids,
        "bool8": _extension(pa.bool8(), _every(lambda i: i % 2, pa.int8())),
        "opaque": _extension(pa.opaque(pa.int32(), "t", "v"), _every(lambda i: i, pa.int32())),
        "tensor": _extension(tensor, _every(lambda i: [i, 1, 2, 3], pa.list_(pa.float32(), 4))),
        "json": _extension(pa.json_(), _every(lambda i: f'{{"a":[{i},null]}}', pa.string())),
        "bfloat16": bfloats,
        "uuid in struct": pa.StructArray.from_arrays([uuids, bfloats], ["u", "b"]),
        "uuid in list": pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), uuids),
        "bfloat16 in fixed list": pa.FixedSizeListArray.from_arrays(
            lance.arrow.bfloat16_array([i / 2 for i in range(2 * ROWS)]), 2
        ),
    }
    if version == "2.2":
        found["map"] = _every(lambda i: [("a", i), ("b", None)] * (i % 3), pa.map_(pa.string(), pa.int32()))
        found["map of uuid"] = pa.MapArray.from_arrays(
            pa.array(range(ROWS + 1), pa.int32()), pa.array([str(i) for i in range(ROWS)]), uuids
        )
    return {name: _without_nulls(array) for name, array in found.items()} if version == "2.0" else found


def _without_nulls(array: pa.Array) -> pa.Array:
    """Structs that are all there, as those of version 2.0 must be."""
    if not pa.types.is_struct(array.type):
        return array
    members = [_without_nulls(array.field(place)) for place in range(array.type.num_fields)]
    return pa.StructArray.from_arrays(members, fields=list(array.type))


def _table(version: str) -> pa.Table:
    arrays = columns(version)
    fields = [pa.field(name, array.type, metadata={"of": name}) for name, array in arrays.items()]
    fields.append(pa.field("never null", pa.int64(), nullable=False))
    schema = pa.schema(fields, metadata={"origin": "tests", "a": "1"})
    return pa.Table.from_arrays([*arrays.values(), pa.array(range(ROWS))], schema=schema)


def assert_equal_tables(got: pa.Table, expected: pa.Table) -> None:
    got.validate(full=True)
    assert got.num_rows == expected.num_rows
    assert got.schema.equals(expected.schema, check_metadata=True), (got.schema, expected.schema)
    for name in expected.column_names:
        ours, theirs = got[name], expected[name]
        assert ours.type.equals(theirs.type, check_metadata=True), name
        # equal dictionary arrays may differ in the dictionaries of their chunks
        assert ours.equals(theirs) or ours.to_pylist() == theirs.to_pylist(), (name, ours, theirs)


def assert_read_as_pylance(uri: Path | str) -> None:
    theirs, ours = lance.dataset(str(uri)), lance_io.dataset(uri)
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.count_rows() == theirs.count_rows()
    assert_equal_tables(ours.to_table(), theirs.to_table())
    assert_equal_tables(ours.head(5), theirs.head(5))
    names = list(reversed(theirs.schema.names))
    assert_equal_tables(ours.to_table(columns=names[:3]), theirs.to_table(columns=names[:3]))
    rows = [row for row in (ROWS - 1, 0, 3, 3, 7) if row < ours.count_rows()]
    expected = theirs.take(rows)  # pylance loses the schema's metadata when it puts rows into another order
    assert_equal_tables(ours.take(rows), expected.replace_schema_metadata(theirs.schema.metadata))
    assert_equal_tables(ours.take([], columns=names[:2]), theirs.take([], columns=names[:2]))
    got, expected = list(ours.to_batches(batch_size=5)), list(theirs.to_batches(batch_size=5))
    assert [batch.num_rows for batch in got] == [batch.num_rows for batch in expected]
    for batch, other in zip(got, expected, strict=True):
        assert_equal_tables(pa.table(batch), pa.table(other))


@pytest.fixture(scope="module", params=VERSIONS)
def every_type(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with a column of every type, in fragments of 8 and 4 rows."""
    uri = str(tmp_path_factory.mktemp("types") / "every.lance")
    lance.write_dataset(_table(request.param), uri, data_storage_version=request.param, max_rows_per_file=8)
    return uri


def test_every_type_is_read_as_pylance_reads_it(every_type: str) -> None:
    assert_read_as_pylance(every_type)


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_without_rows(tmp_path: Path, version: str) -> None:
    uri = tmp_path / "empty.lance"
    lance.write_dataset(_table(version).slice(0, 0), str(uri), data_storage_version=version)
    assert_read_as_pylance(uri)


def test_fixed_size_list_of_struct_alone_in_a_table(tmp_path: Path) -> None:
    items = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]), 2)
    uri = tmp_path / "alone.lance"
    pairs = pa.table({"pairs": _every(lambda i: [{"a": i, "b": str(i)}, {"a": None, "b": None}], items)})
    lance.write_dataset(pairs, str(uri), data_storage_version="2.2")
    assert_read_as_pylance(uri)


@pytest.mark.parametrize("version", VERSIONS)
def test_added_columns_of_every_type_are_null(tmp_path: Path, version: str) -> None:
    uri = tmp_path / "added.lance"
    base = pa.table({"id": range(ROWS)})
    table = lance.write_dataset(base, str(uri), data_storage_version=version, max_rows_per_file=8)
    full = _table(version).drop_columns(["never null"])
    table.add_columns(full.schema)
    assert_read_as_pylance(uri)
    rows = full.append_column("id", pa.array(range(ROWS)))
    lance.write_dataset(rows, str(uri), mode="append")  # fragments with and without the columns
    assert_read_as_pylance(uri)


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_dropped_renamed_cast_and_added_inside_structs(tmp_path: Path, version: str) -> None:
    uri = tmp_path / "evolved.lance"
    table = lance.write_dataset(_table(version), str(uri), data_storage_version=version, max_rows_per_file=8)
    table.drop_columns(["bool", "list of struct", "struct of struct"])
    table.alter_columns(
        {"path": "uuid", "name": "identity"},
        {"path": "int32", "data_type": pa.int64()},
        {"path": "struct.y", "name": "why"},
        {"path": "string", "data_type": pa.large_string()},
    )
    assert_read_as_pylance(uri)
    table.drop_columns(["struct.x"])
    table.delete("`never null` % 5 = 4")
    assert_read_as_pylance(uri)
    table.add_columns({"twice": "`never null` * 2", "text": "cast(`never null` as string)"})
    lance.write_dataset(table.to_table(), str(uri), mode="append")
    assert_read_as_pylance(uri)


def test_nested_members_added_later(tmp_path: Path) -> None:
    uri = tmp_path / "members.lance"
    first = pa.table({"s": pa.array([{"a": 1}, None, {"a": 3}]), "i": [1, 2, 3]})
    table = lance.write_dataset(first, str(uri))
    members = pa.struct([pa.field("u", pa.uuid()), pa.field("l", pa.list_(pa.int8()))])
    table.add_columns(pa.schema([pa.field("s", members)]))
    assert_read_as_pylance(uri)
    lance.write_dataset(table.to_table(), str(uri), mode="append")
    assert_read_as_pylance(uri)


_WITHOUT_PYLANCE = """
import sys
import lance_io
from lance_io.types import BFloat16Type
import pyarrow as pa

table = lance_io.dataset(sys.argv[1])
assert "lance" not in sys.modules
print(table.schema.remove_metadata())
kind = table.schema.field("bfloat16").type
assert type(kind) is BFloat16Type, kind
inner = table.schema.field("bfloat16 in fixed list").type.value_type
assert type(inner) is BFloat16Type, inner
column = table.to_table(columns=["bfloat16"])["bfloat16"].chunk(0)
assert type(column.type) is BFloat16Type
assert column.to_pylist()[:3] == [0.0, None, 1.0] == column.to_float32().to_pylist()[:3]
import lance.arrow  # registers types of the same names
theirs = lance_io.dataset(sys.argv[1]).schema.field("bfloat16").type
assert type(theirs) is lance.arrow.BFloat16Type, theirs
"""


def test_types_do_not_depend_on_whether_pylance_is_loaded(every_type: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYLANCE, every_type], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str(lance.dataset(every_type).schema.remove_metadata()).strip()


def test_a_moment_is_shown_in_its_zone(every_type: str) -> None:
    column = lance_io.dataset(every_type).to_table(columns=["timestamp[us, tz=Europe/Paris]"]).column(0)
    assert isinstance(column[0].as_py(), datetime)
