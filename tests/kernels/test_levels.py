"""Levels to validity and offsets, against the plain definitions in tests/reference/levels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import DamagedError, unravel_rows
from tests.reference import levels as reference


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def ints(buffer: Any, dtype: Any = np.int64) -> list[int]:
    values: list[int] = np.frombuffer(buffer, dtype).tolist()
    return values


def u16(values: list[int] | None) -> np.ndarray[Any, Any] | None:
    return None if values is None else np.array(values, dtype=np.uint16)


def bits(validity: Any, length: int) -> list[bool]:
    if validity is None:
        return [True] * length
    assert len(validity) == (length + 7) // 8
    return [bool(bit) for bit in np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[:length]]


def values_of(nodes: list[str]) -> st.SearchStrategy[Any]:
    """Random values of a chain of nodes."""
    value: st.SearchStrategy[Any] = st.integers(0, 9)
    for node in reversed(nodes):
        if node == "list":
            value = st.lists(value, max_size=4)
        elif node == "struct":
            value = st.tuples(value)
        value = st.none() | value
    return value


@st.composite
def pages(draw: st.DrawFn) -> tuple[list[reference.Layer], list[Any]]:
    """Rows with layers that can hold them, sometimes with more levels than they need."""
    nodes = [*draw(st.lists(st.sampled_from(["struct", "list"]), max_size=4)), "leaf"]
    rows = draw(st.lists(values_of(nodes), max_size=12))
    if draw(st.booleans()):
        rows *= 20  # beyond one word of the bitmaps
    layers = reference.layers_of(nodes, rows, push_down=draw(st.booleans()))
    for layer in layers:
        layer.null |= draw(st.integers(0, 5)) == 0
        layer.empty |= layer.node == "list" and draw(st.integers(0, 5)) == 0
        layer.wide = layer.node == "list" and draw(st.booleans())
    return layers, rows


def check(layers: list[reference.Layer], rows: list[Any], found: list[Any], num_items: int) -> None:
    expected = reference.slots_of(layers, rows)
    assert len(expected[-1].validity) == num_items
    for layer, slots, (length, validity, null_count, offsets) in zip(
        reversed(layers), reversed(expected), found, strict=True
    ):
        assert bits(validity, length) == slots.validity
        assert null_count == slots.validity.count(False)
        assert (validity is None) == (null_count == 0)
        if slots.offsets is None:
            assert offsets is None
        else:
            width = np.int64 if layer.wide else np.int32
            assert ints(offsets, width) == slots.offsets


@settings(max_examples=400, deadline=None)
@given(page=pages(), data=st.data())
def test_unravel_rebuilds_what_was_shredded(page: tuple[list[reference.Layer], list[Any]], data: st.DataObject) -> None:
    layers, rows = page
    rep, definition = reference.shred(layers, rows)
    has_lists = any(layer.node == "list" for layer in layers)
    visible = reference.max_visible(layers)
    arguments: tuple[Any, Any, bytes] = (
        u16(rep) if has_lists else None,
        u16(definition) if any(layer.null or layer.empty for layer in layers) else None,
        reference.encode_layers(layers),
    )
    num_items, found, item_ids = unravel_rows(*arguments, i64(0), i64(len(rows)), len(rows))
    check(layers, rows, found, num_items)
    assert item_ids is None if not has_lists else ints(item_ids) == list(range(num_items))

    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    num_items, found, item_ids = unravel_rows(*arguments, i64(*chosen), None, len(rows))
    check(layers, [rows[row] for row in chosen], found, num_items)
    if has_lists:
        assert ints(item_ids) == item_numbers(rep, definition, visible, set(chosen))


def item_numbers(rep: list[int], definition: list[int], visible: int, chosen: set[int]) -> list[int]:
    """Page-relative numbers of the visible items of the chosen rows, one level at a time."""
    numbers = []
    row, item = -1, 0
    for repetition, level in zip(rep, definition, strict=True):
        row += repetition == rep[0]  # every row begins with the highest repetition level, as the first one does
        if level <= visible:
            if row in chosen:
                numbers.append(item)
            item += 1
    return numbers


def test_the_example_of_the_specification() -> None:
    rep, definition = [2, 1, 0, 1, 1, 2, 2, 2], [4, 0, 1, 2, 3, 7, 6, 5]
    layers = bytes([5, 3, 6, 3, 6, 3])
    num_items, found, item_ids = unravel_rows(u16(rep), u16(definition), layers, i64(0), i64(4), 4)
    assert num_items == 2
    assert [(length, bits(validity, length)) for length, validity, _, _ in found] == [
        (2, [True, False]),
        (4, [False, True, False, True]),
        (4, [False, True, True, True]),
        (4, [True, False, True, False]),
        (4, [True, False, True, True]),
    ]
    assert [ints(found[layer][3], np.int32) for layer in (1, 3)] == [[0, 0, 2, 2, 2], [0, 4, 4, 4, 4]]
    assert ints(item_ids) == [0, 1]


def test_null_first_item_in_an_all_valid_list() -> None:
    _, found, _ = unravel_rows(u16([1, 0, 1]), u16([1, 0, 1]), bytes([2, 3, 2]), i64(0), i64(2), 2)
    assert found[1][:3] == (2, None, 0)
    assert ints(found[1][3], np.int32) == [0, 2, 3]


def test_without_levels_everything_is_valid() -> None:
    assert unravel_rows(None, None, bytes([2, 1, 1]), i64(2, 7), i64(5, 9), 10) == (5, [(5, None, 0, None)] * 2, None)


@pytest.mark.parametrize(
    ("rep", "definition", "layers", "num_rows", "text"),
    [
        (None, [0, 2], [3], 2, "definition level 2 is above 1"),
        (None, [0, 1, 0], [3], 2, "3 levels for 2 rows"),
        ([1, 2], [0, 0], [1, 2], 1, "repetition level 2 is above 1"),
        ([0, 1], [0, 0], [1, 2], 1, "does not begin a row"),
        ([1, 1], [0, 0], [1, 2], 1, "levels hold 2 rows, expected 1"),
        ([1, 0], [0], [3, 2], 1, "2 repetition levels but 1 definition levels"),
        ([1, 0], [0, 1], [1, 4], 1, "lists claim 2 items, their layer below has 1"),
        ([1, 0], [1, 0], [1, 4], 1, "null, empty or missing goes on"),
        ([2, 0], [1, 0], [2, 4], 1, "null, empty or missing goes on"),
        (None, [0, 0], [1, 4], 2, "lists without repetition levels"),
        (None, None, [1, 2], 2, "lists without repetition levels"),
        (None, None, [0], 2, "layer kind of 1 to 6, found 0"),
        (None, None, [7], 2, "layer kind of 1 to 6, found 7"),
    ],
)
def test_contradictions_are_told(
    rep: list[int] | None, definition: list[int] | None, layers: list[int], num_rows: int, text: str
) -> None:
    program = bytes([len(layers), *layers])
    with pytest.raises(DamagedError, match=text):
        unravel_rows(u16(rep), u16(definition), program, i64(0), i64(num_rows), num_rows)


def test_a_program_that_ends_early() -> None:
    for program in (b"", bytes([2, 1])):
        with pytest.raises(DamagedError, match="layers"):
            unravel_rows(None, None, program, i64(0), i64(1), 1)


@pytest.mark.parametrize(
    ("starts", "ends"), [([1, 0], None), ([0, 0], None), ([2], [1]), ([0], [4]), ([-1], [0]), ([0], [])]
)
def test_rows_out_of_order_are_the_callers_fault(starts: list[int], ends: list[int] | None) -> None:
    with pytest.raises(ValueError, match=r"row") as caught:
        unravel_rows(None, None, bytes([1, 1]), i64(*starts), None if ends is None else i64(*ends), 3)
    assert not isinstance(caught.value, DamagedError)


@settings(max_examples=300, deadline=None)
@given(
    kinds=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    levels=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30),
    with_definition=st.booleans(),
)
def test_random_levels_are_refused_or_give_sound_arrays(
    kinds: list[int], levels: list[tuple[int, int]], with_definition: bool
) -> None:
    max_rep = sum(kind not in (1, 3) for kind in kinds)
    rep = [min(repetition, max_rep) for repetition, _ in levels]
    rep[0] = max_rep
    num_rows = rep.count(max_rep)
    definition = [level for _, level in levels] if with_definition else None
    program = bytes([len(kinds), *kinds])
    try:
        num_slots, found, _ = unravel_rows(u16(rep), u16(definition), program, i64(0), i64(num_rows), num_rows)
    except DamagedError:
        return
    for kind, (length, validity, null_count, raw) in zip(kinds, found, strict=True):
        assert bits(validity, length).count(False) == null_count
        if kind in (1, 3):
            assert length == num_slots
            continue
        offsets = np.array(ints(raw, np.int32))
        assert len(offsets) == length + 1
        assert offsets[0] == 0
        assert offsets[-1] == num_slots
        lengths = np.diff(offsets)
        assert (lengths >= 0).all()
        assert not lengths[~np.array(bits(validity, length), dtype=bool)].any()
        num_slots = length
    assert num_slots == num_rows
