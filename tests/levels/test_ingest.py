"""Arrow input to stored arrays: types, nesting, slices, and nulls where a schema has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance  # noqa: F401 - registers its extension types, as users have them
import numpy as np
import pyarrow as pa
import pytest

from lance_io.errors import SchemaError, UnsupportedDataError
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.levels.ingest import ingester
from lance_io.levels.jsonb import json_texts

if TYPE_CHECKING:
    from collections.abc import Callable


def _ingester(field: pa.Field, given: pa.Field) -> Callable[[pa.Array], pa.Array]:
    stored, come = (schema_from_arrow(pa.schema([one])).fields[0] for one in (field, given))
    return ingester(stored, given.type, come)


def ingested(array: pa.Array, field: pa.Field | None = None, given: pa.Field | None = None) -> pa.Array:
    field = field or pa.field("c", array.type)
    stored = _ingester(field, given or pa.field("c", array.type))(array)
    stored.validate(full=True)
    return stored


NESTS = {
    "plain": lambda leaf: leaf,
    "struct": lambda leaf: pa.StructArray.from_arrays([leaf], ["m"], mask=mask(len(leaf))),
    "list": lambda leaf: pa.ListArray.from_arrays(offsets(len(leaf)), leaf, mask=mask(len(leaf) // 2)),
    "large list": lambda leaf: pa.LargeListArray.from_arrays(offsets(len(leaf)).cast(pa.int64()), leaf),
    "map": lambda leaf: pa.MapArray.from_arrays(offsets(len(leaf)), pa.array([str(i) for i in range(len(leaf))]), leaf),
    "vector of struct": lambda leaf: pa.FixedSizeListArray.from_arrays(
        pa.StructArray.from_arrays([leaf], ["m"]), 2, mask=mask(len(leaf) // 2)
    ),
}


def mask(count: int) -> pa.Array:
    return pa.array([i % 5 == 1 for i in range(count)])


def offsets(count: int) -> pa.Array:
    return pa.array(sorted(np.random.default_rng(3).integers(0, count + 1, count // 2 + 1).tolist()), pa.int32())


def leaves() -> dict[str, tuple[pa.Array, pa.Array]]:
    """Arrays as users have them, and as they are stored."""
    texts = pa.array([None if i % 7 == 0 else f"text {i}" for i in range(40)])
    uuids = pa.array([i.to_bytes(16, "big") for i in range(40)], pa.binary(16))
    words = pa.array(["a", "b", "c"])
    indices = pa.array([i % 3 for i in range(40)], pa.int8())
    return {
        "string_view": (texts.cast(pa.string_view()), texts),
        "binary_view": (texts.cast(pa.binary()).cast(pa.binary_view()), texts.cast(pa.binary())),
        "uuid": (pa.ExtensionArray.from_storage(pa.uuid(), uuids), uuids),
        "views in a dictionary": (
            pa.DictionaryArray.from_arrays(indices, words.cast(pa.string_view())),
            pa.DictionaryArray.from_arrays(indices, words),
        ),
    }


@pytest.mark.parametrize("nest", list(NESTS))
@pytest.mark.parametrize("leaf", list(leaves()))
def test_stores_other_forms_at_every_level(leaf: str, nest: str) -> None:
    given, stored = (NESTS[nest](array) for array in leaves()[leaf])
    assert ingested(given).to_pylist() == stored.to_pylist()
    assert ingested(given).type == stored.type or nest == "map"
    cut = given.slice(3, len(given) - 5)
    assert ingested(cut).to_pylist() == stored.slice(3, len(given) - 5).to_pylist()
    assert len(ingested(given.slice(2, 0))) == 0


def test_most_arrays_are_taken_as_they_are() -> None:
    for array in (pa.array([1, None]), pa.array([["a"], None]), pa.array([{"x": [1.5]}])):
        assert ingested(array) is array


@pytest.mark.parametrize("nest", ["plain", "struct", "list"])
def test_encodes_json_text_and_keeps_stored_json(nest: str) -> None:
    texts = [None if i % 9 == 0 else f'{{"b":{i},"a":[null,"x"]}}' for i in range(40)]
    expected = [None if text is None else f'{{"a":[null,"x"],"b":{i}}}' for i, text in enumerate(texts)]
    given = NESTS[nest](pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts)))
    stored = ingested(given)
    leaf = stored if nest == "plain" else stored.field(0) if nest == "struct" else stored.values
    first = 0 if nest != "list" else given.offsets[0].as_py()
    assert json_texts(leaf).to_pylist() == expected[first : first + len(leaf)]
    field = pa.field("c", given.type)
    again = _ingester(field, pa.field("c", stored.type))(stored)
    assert again.equals(stored)


def test_vectors_of_bfloat16_are_stored_as_their_bytes() -> None:
    from lance.arrow import bfloat16_array

    floats = bfloat16_array([1.5, None, 3.0, -2.0])
    vectors = pa.FixedSizeListArray.from_arrays(floats, 2)
    assert ingested(vectors).type.value_type == pa.binary(2)
    assert ingested(vectors.slice(1)).to_pylist() == [[b"\x40\x40", b"\x00\xc0"]]
    nested = pa.FixedSizeListArray.from_arrays(vectors, 2)
    assert ingested(nested).to_pylist() == [[[b"\xc0\x3f", None], [b"\x40\x40", b"\x00\xc0"]]]


def test_members_of_structs_come_in_any_order() -> None:
    field = pa.field("c", pa.struct([("x", pa.int32()), ("y", pa.string())]))
    given = pa.array([{"y": "a", "x": 1}, None], pa.struct([("y", pa.string()), ("x", pa.int32())]))
    stored = ingested(given, field)
    assert stored.type == field.type and stored.to_pylist() == [{"x": 1, "y": "a"}, None]


INT = pa.field("c", pa.int32())


@pytest.mark.parametrize(
    ("field", "array", "words"),
    [
        (INT, pa.array([1]), "expected int32, got int64"),
        (pa.field("c", pa.list_(pa.int32())), pa.array([[1]]), r"`c.item` does not match"),
        (pa.field("c", pa.struct([("x", pa.int64())])), pa.array([{"y": 1}]), "expected members x, got y"),
        (pa.field("c", pa.string()), pa.array(["a"], pa.large_string()), "expected string, got large_string"),
    ],
)
def test_refuses_other_types(field: pa.Field, array: pa.Array, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        ingested(array, field)


def test_members_of_packed_structs_hold_no_nulls() -> None:
    packed = pa.field("c", pa.struct([("x", pa.int32())]), metadata={"packed": "true"})
    assert len(ingested(pa.array([None, {"x": 1}], packed.type), packed)) == 2
    with pytest.raises(UnsupportedDataError, match="nulls in member `x` of the packed struct `c`"):
        ingested(pa.array([None, {"x": None}], packed.type), packed)
    lists = pa.field("c", pa.list_(packed.with_name("item")))
    assert len(ingested(pa.array([None, [None, {"x": 1}]], lists.type), lists)) == 2
    with pytest.raises(UnsupportedDataError, match="packed struct `item`"):
        ingested(pa.array([[{"x": None}]], lists.type), lists)


REQUIRED = pa.field("x", pa.int32(), nullable=False)
STRUCT = pa.struct([REQUIRED])
NULLS = "contained null values even though the field is marked non-null"


@pytest.mark.parametrize(
    ("dtype", "bad", "good"),
    [
        (REQUIRED, [1, None], [1, 2]),
        (pa.field("c", STRUCT), [{"x": 1}, {"x": None}], [None, {"x": 1}]),
        (pa.field("c", pa.list_(REQUIRED)), [[1], [1, None]], [None, [], [1]]),
        (pa.field("c", pa.large_list(pa.field("i", STRUCT))), [[{"x": None}]], [None, [None, {"x": 2}], []]),
        (pa.field("c", pa.list_(STRUCT, 2)), [[{"x": 1}, {"x": None}]], [None, [{"x": 1}, None]]),
        (pa.field("c", pa.map_(pa.string(), REQUIRED)), [[("a", None)]], [None, [("a", 1)]]),
    ],
    ids=str,
)
def test_nulls_count_where_their_parents_are_there(dtype: pa.Field, bad: list, good: list) -> None:
    field = dtype.with_name("c")
    with pytest.raises(SchemaError, match=NULLS):
        ingested(pa.array(bad, field.type), field)
    whole = pa.array([*good, *bad], field.type)
    assert ingested(whole.slice(0, len(good)), field).to_pylist() == pa.array(good, field.type).to_pylist()
    with pytest.raises(SchemaError, match=NULLS):
        ingested(whole.slice(len(good)), field)


def test_text_is_json_by_the_metadata_of_its_field() -> None:
    texts = pa.array(['{"a": 1}', None, "[2]"])
    marked = pa.field("c", pa.string(), metadata={"ARROW:extension:name": "arrow.json"})
    stored = ingested(texts, marked, marked)
    assert pa.types.is_large_binary(stored.type)
    assert json_texts(stored).to_pylist() == ['{"a":1}', None, "[2]"]


@pytest.mark.parametrize("values", [[1, 2], ["x", "y"], [b"x", b"y"], [1.5, 2.5], [True, False]], ids=str)
def test_plain_columns_are_stored_as_they_are_and_checked(values: list[object]) -> None:
    array, none = pa.array(values), pa.nulls(1, pa.array(values).type)
    assert ingested(array) is array
    strict = pa.field("c", array.type, nullable=False)
    assert ingested(array, strict) is array
    with pytest.raises(SchemaError, match="contained null values"):
        ingested(none, strict)
    with pytest.raises(SchemaError, match="expected date32:day"):
        ingested(array, pa.field("c", pa.date32()))
