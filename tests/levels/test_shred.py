"""Nested arrays to levels: against the plain definitions in tests/reference/levels.py, and back through our reader.

Arrays are built with values everywhere and validity laid over them afterwards, so that there is garbage under every
kind of null; then they are sliced and cut into chunks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io.encodings.api import RowSelection
from lance_io.errors import UnsupportedError
from lance_io.levels.assemble import merge, nest
from lance_io.levels.chunks import leaf_chunks
from lance_io.levels.path import LeafPath, NodeKind, leaf_paths
from lance_io.levels.shred import shred
from tests.levels.arrays import Arrays, columns, cut, field_of
from tests.reference import levels as reference

if TYPE_CHECKING:
    from lance_io.levels.leafpage import LeafPage

# -- against the reference -------------------------------------------------------------------------------------------


def nodes_of(path: LeafPath) -> list[str]:
    names = {NodeKind.LIST: "list", NodeKind.MAP: "list", NodeKind.STRUCT: "struct", NodeKind.LEAF: "leaf"}
    return [names[node.kind] for node in path.nodes]


def plain(value: Any, nodes: list[str], members: list[int]) -> Any:
    """A row as the reference takes it: this leaf only, members of structs as 1-tuples."""
    if value is None:
        return None
    if nodes[0] == "list":
        return [plain(item, nodes[1:], members[1:]) for item in value]
    if nodes[0] == "struct":
        held = list(value.values()) if isinstance(value, dict) else list(value)
        return (plain(held[members[0]], nodes[1:], members[1:]),)
    return value


def members_of(path: LeafPath) -> list[int]:
    """Which member of each node leads to the leaf."""
    return [
        [child.id for child in node.field.children].index(below.field.id)
        for node, below in pairwise(path.nodes)
    ] + [0]  # fmt: skip


def visible(layers: list[reference.Layer], rows: list[Any]) -> list[Any]:
    """Leaf slots in order, those of null structs included as None."""
    held = rows
    for layer in layers:
        if layer.node == "list":
            held = [item for value in held if value is not None for item in value]
        elif layer.node == "struct":
            held = [None if value is None else value[0] for value in held]
    return held


def filled(dtype: pa.DataType, items: list[Any]) -> list[Any]:
    """The items with what stands under nulls: of fixed width the value before, under the first ones that behind."""
    if pa.types.is_boolean(dtype):
        return [item or False for item in items]
    if not (pa.types.is_integer(dtype) or pa.types.is_fixed_size_binary(dtype)):
        empty = b"" if pa.types.is_large_binary(dtype) else ""
        return [empty if item is None else item for item in items]
    zero = 0 if pa.types.is_integer(dtype) else bytes(dtype.byte_width)
    before = next((item for item in items if item is not None), zero)
    found = []
    for item in items:
        before = before if item is None else item
        found.append(before)
    return found


@settings(max_examples=150, deadline=None)
@given(column=columns(["struct", "pair", "list", "large_list", "map"]), own=st.booleans())
def test_levels_and_values_are_those_of_the_reference(column: tuple[pa.Array, list[int]], own: bool) -> None:
    array, cuts = column
    field = field_of(array.type)
    rows = array.to_pylist()
    for path, chunk in zip(leaf_paths(field), leaf_chunks(field, array), strict=True):
        nodes = nodes_of(path)
        leaf_rows = [plain(row, nodes, members_of(path)) for row in rows]
        layers = reference.layers_of(nodes, leaf_rows, push_down=True)
        set_apart(layers, path)
        rep, definition = reference.shred(layers, leaf_rows)
        page = shred(cut(chunk, cuts, own))
        assert page.num_rows == len(array)
        assert list(page.layers) == [layer.kind for layer in reversed(layers)]
        has_lists = "list" in nodes
        has_nulls = any(layer.null or layer.empty for layer in layers)
        assert (page.repetition.tolist() if page.repetition is not None else None) == (rep if has_lists else None)
        assert (page.definition.tolist() if page.definition is not None else None) == (
            definition if has_nulls else None
        )
        items = visible(layers, leaf_rows)
        check_values(page.values, items)


def set_apart(layers: list[reference.Layer], path: LeafPath) -> None:
    """Structs around the outermost list are nullable in every page if their fields are; so are their members."""
    lists = [depth for depth, layer in enumerate(layers) if layer.node == "list"]
    for depth, layer in enumerate(layers):
        if layer.node == "struct" and lists and depth < lists[0]:
            layer.null |= path.nodes[depth].field.nullable
        if layer.node == "struct":
            layers[depth + 1].null |= layer.null


def check_values(found: pa.Array, items: list[Any]) -> None:
    found.validate(full=True)
    assert len(found) == len(items)
    if pa.types.is_null(found.type):
        return
    assert found.null_count == 0
    assert found.buffers()[0] is None
    values = found.to_pylist()
    if pa.types.is_nested(found.type) or pa.types.is_dictionary(found.type):
        assert all(value == item for value, item in zip(values, items, strict=True) if item is not None)
    else:
        assert values == filled(found.type, items)
    if pa.types.is_fixed_size_list(found.type):
        has_null_items = any(None in item for item in items if item is not None)
        assert (found.flatten().null_count > 0) == has_null_items
        assert not any(holds_null(value) for value, item in zip(values, items, strict=True) if item is None)


def holds_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(holds_null, value)))


# -- and back ----------------------------------------------------------------------------------------------------------


def assembled(path: LeafPath, page: LeafPage) -> pa.Array:
    """The array of one leaf from its page, with the reader's own kernel."""
    rows = RowSelection.span(0, page.num_rows)
    num_items, layers, _ = _kernels.unravel_rows(
        page.repetition,
        page.definition,
        path.compile_layers(page.layers),
        rows.starts,
        rows.ends,
        page.num_rows,
    )
    assert num_items == len(page.values)
    _, validity, nulls, _ = layers[0]
    leaf = page.values
    if nulls:
        mask = pa.array(
            ~np.unpackbits(np.frombuffer(validity, np.uint8), count=num_items, bitorder="little").astype(bool)
        )
        leaf = pa.nulls(num_items, leaf.type) if pa.types.is_null(leaf.type) else masked(leaf, mask)
    return nest(path, leaf, layers)


def masked(leaf: pa.Array, mask: pa.Array) -> pa.Array:
    picks = pa.array(np.arange(len(leaf)), mask=mask.to_numpy(zero_copy_only=False))
    return pa.concat_arrays([leaf, leaf.slice(0, 0)]).take(picks)


@settings(max_examples=100, deadline=None)
@given(column=columns(["struct", "pair", "list", "large_list", "map"]), own=st.booleans())
def test_reading_gives_back_what_was_taken_apart(column: tuple[pa.Array, list[int]], own: bool) -> None:
    array, cuts = column
    field = field_of(array.type)
    paths = leaf_paths(field)
    pages = [shred(cut(chunk, cuts, own)) for chunk in leaf_chunks(field, array)]
    leaves = {path.leaf.id: assembled(path, page) for path, page in zip(paths, pages, strict=True)}
    found = merge(field, leaves, len(array))
    assert found.to_pylist() == array.to_pylist()


STRUCT_VECTOR = pa.list_(pa.struct([("m", pa.int64()), ("s", pa.list_(pa.string()))]), 3)


@pytest.mark.parametrize("null", [0, 0.3])
@pytest.mark.parametrize("dtype", [STRUCT_VECTOR, pa.struct([("v", STRUCT_VECTOR), ("n", pa.int8())])])
def test_vectors_of_structs_repeat_their_levels(dtype: pa.DataType, null: float) -> None:
    array = Arrays(7, null, 0.2).array(dtype, 40)
    field = field_of(dtype)
    leaves = {}
    for path, chunk in zip(leaf_paths(field), leaf_chunks(field, array), strict=True):
        page = shred(cut(chunk, [0, 13, 13, 40], own=True))
        assert page.num_rows == 40 * path.slots_per_row
        leaves[path.leaf.id] = assembled(path, page)
    assert merge(field, leaves, len(array)).to_pylist() == array.to_pylist()


def test_vectors_of_structs_inside_lists_are_refused() -> None:
    array = pa.array([[[{"m": 1, "s": []}] * 3]], pa.list_(STRUCT_VECTOR))
    field = field_of(array.type)
    with pytest.raises(UnsupportedError, match="inside lists"):
        shred(leaf_chunks(field, array)[:1])


def test_the_example_of_the_specification() -> None:
    dtype = pa.struct([("l", pa.list_(pa.struct([("m", pa.list_(pa.int32()))])))])
    rows = [{"l": [None, {"m": [1, None]}, {"m": None}, {"m": []}]}, None, {"l": []}, {"l": None}]
    page = shred(leaf_chunks(field_of(dtype), pa.array(rows, dtype)))
    assert page.layers == (3, 6, 3, 6, 3)
    assert page.repetition.tolist() == [2, 1, 0, 1, 1, 2, 2, 2]
    assert page.definition.tolist() == [4, 0, 1, 2, 3, 7, 6, 5]
    assert page.values.to_pylist() == [1, 1]


# -- sizes and memory --------------------------------------------------------------------------------------------------


def test_values_without_anything_to_remove_are_not_copied() -> None:
    array = pa.array(range(100), pa.int64()).slice(10, 80)
    (chunk,) = leaf_chunks(field_of(array.type), array)
    values = shred([chunk.slice(5, 20)]).values
    assert values.buffers()[1].address == array.buffers()[1].address
    assert values.to_pylist() == list(range(15, 35))
    lists = pa.array([[], [1, 2], [3]], pa.list_(pa.int64()))
    (chunk,) = leaf_chunks(field_of(lists.type), lists)
    assert (
        shred([chunk.slice(0, 1), chunk.slice(1, 2)]).values.buffers()[1].address == lists.values.buffers()[1].address
    )


def test_bytes_are_those_below_the_rows() -> None:
    strings = pa.array([["ab", "c"], [], None, ["defg"]])
    (chunk,) = leaf_chunks(field_of(strings.type), strings)
    assert chunk.num_bytes == 4 * 4 + 3 * 4 + 7
    assert chunk.slice(3, 1).num_bytes == 4 + 4 + 4
    assert chunk.slice(1, 2).num_bytes == 8
    vectors = pa.array([[1.0] * 8] * 5, pa.list_(pa.float32(), 8)).slice(1, 3)
    (chunk,) = leaf_chunks(field_of(vectors.type), vectors)
    assert chunk.num_bytes == 3 * 32
    assert [chunk.rows_within(n) for n in (0, 31, 32, 64, 95, 96, 1 << 30)] == [1, 1, 1, 2, 2, 3, 3]
    assert leaf_chunks(field_of(pa.bool_()), pa.array([True] * 9))[0].num_bytes == 9


def test_owned_chunks_hold_their_rows_only() -> None:
    rows = [{"a": [f"{i:08}"] * 4} for i in range(1000)]
    array = pa.array(rows, pa.struct([("a", pa.list_(pa.string()))]))
    (chunk,) = leaf_chunks(field_of(array.type), array)
    part = chunk.slice(500, 10)
    owned = part.copy()
    assert owned.num_bytes == part.num_bytes == 10 * (4 + 4 * 12)
    assert owned.leaf.get_total_buffer_size() <= 40 * 12 + 128
    assert owned.nests[1].offsets.tolist() == list(range(0, 41, 4))
    with pytest.raises(IndexError, match="rows 3 to 12 of 10"):
        owned.slice(3, 9)


def test_dictionaries_become_one() -> None:
    one = pa.array(["a", "b", None, "a"]).dictionary_encode()
    two = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), pa.array(["c", None]))
    field = field_of(one.type)
    page = shred([chunk for array in (one, two) for chunk in leaf_chunks(field, array)])
    assert page.definition.tolist() == [0, 0, 1, 0, 1, 0, 1]
    assert page.values.dictionary.to_pylist() == ["a", "b", "c"]
    assert page.values.indices.to_pylist() == [0, 1, 1, 0, 0, 2, 2]
    many = [
        pa.DictionaryArray.from_arrays(pa.array(range(99), pa.int8()), [f"{k}{i}" for i in range(99)]) for k in "ab"
    ]
    with pytest.raises(UnsupportedError, match="dictionaries"):
        shred([chunk for array in many for chunk in leaf_chunks(field, array)])


def test_broken_offsets_are_refused() -> None:
    offsets = np.array([0, 5, 3], np.int32)
    items = pa.array(range(4), pa.int64())
    broken = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, pa.py_buffer(offsets)], children=[items])
    with pytest.raises(ValueError, match="descend"):
        shred(leaf_chunks(field_of(broken.type), broken))
    offsets = np.array([0, 9, 4], np.int32)
    broken = pa.Array.from_buffers(
        pa.list_(pa.int64()), 2, [pa.py_buffer(b"\1"), pa.py_buffer(offsets)], children=[items]
    )
    with pytest.raises(ValueError, match="beyond the 4"):
        shred(leaf_chunks(field_of(broken.type), broken))
