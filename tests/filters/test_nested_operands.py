"""Text filters about lists, maps and structs that hold types without kernels keep the rows that pylance keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.errors import BindError

if TYPE_CHECKING:
    from pathlib import Path

CODES: Final = pa.dictionary(pa.int8(), pa.string())
WORDS: Final = [["a", "b"], None, [], ["b"], ["b", "a", "b"], [None, "a"], ["c"], [None]]
HALVES: Final = [[1.0, 2.5], None, [], [1.5], [0.5, 1.5, -2.25], [None, 2.0], [float("nan")], [None]]


def _coded(values: pa.Array, index: pa.DataType) -> pa.Array:
    return values.dictionary_encode().cast(pa.dictionary(index, values.type))


def _columns() -> dict[str, Any]:
    plain = pa.array(WORDS)
    words = pa.ListArray.from_arrays(plain.offsets, _coded(plain.values, pa.int8()), mask=plain.is_null())
    numbers = pa.array([[1, 2], None, [], [2], [2, 1, 2], [None, 1], [3], [None]])
    first = pa.array(["a", None, "b", "b", "a", "b", None, "c"])
    pairs = pa.StructArray.from_arrays([_coded(first, pa.int8()), pa.array(range(8))], ["x", "y"])
    three = pa.array([0, 1, 1, 3, 4, 6, 6, 7, 8], pa.int32())
    is_null = pa.array([row == 1 for row in range(8)])
    keys = pa.array(["a", "a", "b", "a", "c", "b", "a", "a"])
    return {
        "row": pa.array(range(8)),
        "c": words,
        "big": words.cast(pa.large_list(CODES)),
        "n": pa.ListArray.from_arrays(numbers.offsets, _coded(numbers.values, pa.int16()), mask=numbers.is_null()),
        "m": pa.MapArray.from_arrays(three, keys, _coded(first, pa.int8()), mask=is_null),
        "ls": pa.ListArray.from_arrays(three, pairs, mask=is_null),
        "s": pa.StructArray.from_arrays([_coded(first, pa.int32()), words], ["x", "y"], mask=is_null),
        "word": _coded(pa.array(["a", None, "b", "b", "b", "a", "c", "a"]), pa.int32()),
        "h": pa.array(HALVES, pa.list_(pa.float16())),
        "hs": pa.array([{"y": one} for one in HALVES], pa.struct([("y", pa.list_(pa.float16()))])),
        "half": pa.array([1.0, None, 0.5, 1.5, 2, 3, 4, 5], pa.float16()),
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, lance_io.LanceDataset]:
    path = tmp_path_factory.mktemp("operands") / "t.lance"
    table = pa.table(_columns())
    return (
        lance.write_dataset(table, path, max_rows_per_file=5, data_storage_version="2.2"),
        lance_io.dataset(path),
    )


FILTERS: Final = {
    "lists of codes": """
        array_has({0}, 'a') ; array_has({0}, {0}[1]) ; array_has({0}, s.x) ; array_has_any({0}, ['a', 'c']) ;
        array_has_all({0}, ['a', 'b']) ; array_has_any({0}, {0}) ; array_position({0}, 'b') = 2 ; {0} = ['b'] ;
        {0} < ['b'] ; {0} in (['b'], ['c']) ; {0} = s.y ; {0} is distinct from ['b'] ; nullif({0}, ['b']) is null ;
        array_distinct({0}) = {0} ; array_max({0}) = 'b' ; array_min({0}) = 'a' ; array_sort({0}) = {0} ;
        array_append({0}, 'a') = ['a'] ; array_concat({0}, {0}) = {0} ; array_remove({0}, 'a') = {0} ;
        array_union({0}, ['a']) = {0} ; array_slice({0}, 1, 1) = ['b'] ; {0} is null ; array_length({0}) = 1
    """,
    "items of them": """
        {0}[1] = 'b' ; {0}[1] in ('a') ; {0}[1] in ('a', 'b', 'c', 'd', 'e') ; {0}[1] between 'a' and 'b' ;
        {0}[1] like 'a%' ; coalesce({0}[1], 'z') = 'z' ; upper({0}[1]) = 'A' ; {0}[1] < {0}[2] ; {0}[1] = s.x ;
        {0}[1] = word ; {0}[1] || 'x' = 'ax' ; nullif({0}[1], 'a') is null ; {0}[1] is null ; not ({0}[1] = 'a') ;
        {0}[1] is distinct from 'a' ; greatest({0}[1], 'b') = 'b' ; nvl2({0}[1], {0}[1], 'q') = 'q' ;
        {0}[1] = arrow_cast('a', 'Dictionary(Int8, Utf8)') ; cast({0}[1] as string) = 'a' ; word = {0}[1]
    """,
    "numbers as codes": "n[1] = 2 ; n[1] + 1 = 3 ; n[1] % 2 = 0 ; n[1] in (2, 3) ; array_has(n, 2) ; array_max(n) = 2",
    "maps of codes": """
        map_values(m)[1] = 'a' ; element_at(m, 'a')[1] = 'b' ; m = m ; map_values(m) = ['a'] ;
        map_entries(m)[1]['value'] in ('a', 'b') ; array_max(map_values(m)) = 'b' ; array_has(map_values(m), 'b')
    """,
    "structs of codes": """
        ls[1].x = 'a' ; ls[1]['x'] in ('a', 'b') ; ls[1].x like '%a%' ; ls = ls ; s = s ; s.x = 'a' ; s.y[1] = 'a' ;
        s['y'] = ['b'] ; array_has(s.y, 'b')
    """,
}


def _rows(table: Any, condition: str) -> list[int] | str:
    try:
        found: list[int] = table.to_table(["row"], filter=condition)["row"].to_pylist()
    except (ValueError, OSError) as error:
        return f"refused: {error}"
    return found


def _assert_same(conditions: str, both: tuple[Any, Any]) -> None:
    texts = [one.strip() for one in conditions.split(";")]
    theirs, ours = ({text: _rows(table, text) for text in texts} for table in both)
    assert ours == theirs
    assert not any(isinstance(rows, str) for rows in theirs.values())


@pytest.mark.parametrize("column", ["c", "big"])
@pytest.mark.parametrize("group", FILTERS)
def test_dictionaries_inside_are_decoded(group: str, column: str, both: tuple[Any, Any]) -> None:
    _assert_same(FILTERS[group].format(column), both)


KEPT: Final = "c[1] ; big[1] ; coalesce(c, c) ; array_sort(c) ; ls[1] ; ls[1]['x'] ; s['y'][1] ; map_values(m) ; h[1]"


@pytest.mark.parametrize("text", [one.strip() for one in KEPT.split(";")])
def test_what_only_picks_values_keeps_their_type(text: str, both: tuple[Any, Any]) -> None:
    theirs, ours = (table.to_table({"value": text})["value"] for table in both)
    assert (ours.type, repr(ours.to_pylist())) == (theirs.type, repr(theirs.to_pylist()))


@pytest.mark.parametrize("text", ["array_distinct(c)", "array_append(c, 'a')", "array_reverse(c)"])
def test_lists_put_together_hold_decoded_items(text: str, both: tuple[Any, Any]) -> None:
    theirs, ours = (table.to_table({"value": text})["value"] for table in both)
    assert ours.type == pa.list_(pa.string())
    assert ours.to_pylist() == theirs.to_pylist()


def test_expressions_of_pyarrow_decode_them_too(both: tuple[Any, Any]) -> None:
    lists = pc.if_else(pc.field("row") < 0, pc.field("c"), pc.field("c"))
    assert both[1].count_rows(filter=pc.list_value_length(lists) == 2) == 2
    items = pc.struct_field(pc.if_else(pc.field("row") < 0, pc.field("s"), pc.field("s")), "x")
    assert both[1].to_table(["row"], filter=items == "a")["row"].to_pylist() == [0, 4]


HALF_FILTERS: Final = """
    {0}[1] = {0}[1] ; {0}[1] = 1.5 ; {0}[1] > 1 ; {0}[1] in (1.0) ; {0}[1] in (1.0, null) ; {0}[1] not in (1.0) ;
    {0}[1] in (1, 2, 3, 4, 5, 6) ; {0}[1] > half ; {0}[1] in (half) ; {0}[1] between 1 and 2 ; {0}[1] + {0}[1] = 2 ;
    {0}[1] = arrow_cast(1.0, 'Float16') ; abs({0}[1]) = 1 ; isnan({0}[1]) ; coalesce({0}[1], 0) = 0 ;
    array_max({0}) > 1.5 ; array_max({0}) = array_max({0}) ; array_min({0}) < 1 ; array_sort({0})[1] = 1 ;
    array_sort({0}, 'desc')[1] = 2.5 ; array_has({0}, 1.5) ; array_has({0}, {0}[1]) ; array_has_any({0}, [1.5]) ;
    array_distinct({0}) = {0} ; {0} = [1.5] ; {0} < [1.5]
"""


@pytest.mark.parametrize("column", ["h", "hs['y']"])
def test_half_floats_inside_are_widened(column: str, both: tuple[Any, Any]) -> None:
    _assert_same(HALF_FILTERS.format(column), both)


def test_lists_of_lists_of_half_floats(tmp_path: Path) -> None:
    """pylance takes no literals for them."""
    values = [[[0.5, -2.25]], None, [], [None], [[]], [[0.5, -2.25], [1]]]
    column = pa.array([{"y": one} for one in values], pa.struct([("y", pa.list_(pa.list_(pa.float16())))]))
    lance.write_dataset(pa.table({"row": range(6), "c": column}), tmp_path)
    theirs, ours = lance.dataset(tmp_path), lance_io.dataset(tmp_path)
    assert _rows(ours, "c['y'] = [[0.5, -2.25]]") == [0]
    for text in ("c['y'][1][1] = 0.5", "c['y'] = c['y']", "array_max(c['y'][1]) in (0.5)"):
        assert (text, _rows(ours, text)) == (text, _rows(theirs, text))


TWO: Final[list[Any]] = [
    [],
    [[]],
    [[1], [2, 3]],
    [[1, 2]],
    [None, [1]],
    [[None]],
    None,
    [[], []],
    [[1, 2], [3]],
    [None],
]
THREE: Final[list[Any]] = [[[[1]], [[2], [3]]], None, [], [[[]]], [[None, [1]]], [[None]], [[[1, 2]], None]]
PAIRS: Final[list[Any]] = [[[1, 2], [3, 4]], None, [], [None], [[1, 2], None], [None, [1, 2]], [[None, 1]]]
MAPS: Final[list[Any]] = [[[("a", 1)]], None, [], [None], [[("a", 1), ("b", 2)], []], [[]]]
NESTED_LISTS: Final = {
    "two": (TWO, pa.list_(pa.list_(pa.int32()))),
    "large": (TWO, pa.large_list(pa.large_list(pa.int32()))),
    "three": (THREE, pa.list_(pa.list_(pa.list_(pa.int32())))),
    "pairs": (PAIRS, pa.list_(pa.list_(pa.int32(), 2))),
    "maps": (MAPS, pa.list_(pa.map_(pa.string(), pa.int32()))),
}


@pytest.mark.parametrize("kind", NESTED_LISTS)
def test_cardinality_is_the_product_of_the_dimensions(kind: str, tmp_path: Path) -> None:
    table = pa.table({"c": pa.array(*NESTED_LISTS[kind])})
    lance.write_dataset(table, tmp_path, max_rows_per_file=4, data_storage_version="2.2")
    calls = {name: f"{name}(c)" for name in ("cardinality", "array_dims", "array_ndims", "array_length")}
    theirs, ours = (library.dataset(tmp_path).to_table(calls) for library in (lance, lance_io))
    assert ours.to_pydict() == theirs.to_pydict()
    assert ours.schema.types == theirs.schema.types
    filters = ["cardinality([[1, 2], [3, 4]]) = 4", "cardinality([[]]) = 0", "cardinality(c) > 1"]
    found = [[library.dataset(tmp_path).count_rows(filter=one) for one in filters] for library in (lance, lance_io)]
    assert found[0] == found[1]


NOTHING: Final = {
    "numbers": ([[1], [None, None], None, [], [None], [1, None]], pa.int32()),
    "spans": ([[1], [None, None], None, [], [None], [1, None]], pa.duration("us")),
    "structs": ([[{"x": 1}], [None, None], None, [], [None], [{"x": 2}, None]], pa.struct([("x", pa.int32())])),
    "maps": ([[[("a", 1)]], [None, None], None, [], [None], [[], None]], pa.map_(pa.string(), pa.int32())),
    "lists": ([[[1]], [None, None], None, [], [None], [[1], None]], pa.list_(pa.int32())),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_lists_of_nulls_go_with_lists_of_anything(kind: str, tmp_path: Path) -> None:
    values, items = NOTHING[kind]
    table = pa.table({"row": range(6), "c": pa.array(values, pa.list_(items))})
    lance.write_dataset(table, tmp_path, data_storage_version="2.2")
    conditions = "c = [null, null] ; c = [null] ; coalesce(c, [null, null]) = c ; coalesce([null][1], 1) = 1"
    if kind in ("numbers", "spans"):
        conditions += "; array_has_any(c, [null, null]) ; array_has_all(c, [null]) ; array_concat(c, [null]) = [null]"
    _assert_same(conditions, (lance.dataset(tmp_path), lance_io.dataset(tmp_path)))


ITEMS: Final = {
    "lists": (
        pa.list_(pa.list_(pa.int32())),
        [
            [[1, 2], [1], [1, 2]],
            [],
            None,
            [None, [3], None, []],
            [[None, 1], [1, None], [0]],
            [[1, 2]],
            [[1], None, [None]],
        ],
    ),
    "structs": (
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
        [
            [{"x": 1, "y": "a"}, {"x": 1, "y": "a"}, {"x": 0, "y": "b"}],
            [],
            None,
            [None, {"x": None, "y": "c"}, {"x": 2, "y": None}],
            [{"x": 1, "y": "a"}],
            [{"x": 5, "y": "q"}, None],
            [{"x": 1, "y": None}, {"x": 1, "y": "a"}, {"x": None, "y": "a"}],
        ],
    ),
    "vectors": (
        pa.list_(pa.list_(pa.float32(), 2)),
        [[[1, 2], [1, 0], [1, 2]], [], None, [None, [3, 1]], [[0, 1]], [[1, 2]], [[1, 2], [1, 0]]],
    ),
}
ON_ITEMS: Final = """array_distinct(c); array_has_any(c, d); array_has_all(c, d); array_sort(c); array_sort(c, 'desc');
    array_sort(c, 'asc', 'nulls last'); array_sort(c, 'desc', 'nulls last'); array_max(c); array_min(c)"""


@pytest.mark.parametrize("kind", ITEMS)
def test_items_that_are_nested_are_told_apart_and_sorted(kind: str, tmp_path: Path) -> None:
    dtype, rows = ITEMS[kind]
    table = pa.table({"id": range(7), "c": pa.array(rows, dtype), "d": pa.array(rows[::-1], dtype)})
    lance.write_dataset(table, tmp_path / "t", max_rows_per_file=4)
    ours, theirs = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    for text in (one.strip() for one in ON_ITEMS.split(";")):
        if kind == "structs" and text in ("array_max(c)", "array_min(c)"):  # pylance's answer depends on their order
            with pytest.raises(BindError):
                ours.to_table(columns={"z": text})
            continue
        found, expected = ours.to_table(columns={"z": text}), theirs.to_table(columns={"z": text})
        assert found.schema.field("z").type == expected.schema.field("z").type, text
        assert found["z"].to_pylist() == expected["z"].to_pylist(), text
