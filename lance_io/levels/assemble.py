"""Arrow structs and lists around leaf arrays.

`nest` wraps one decoded leaf in the structs and lists above it; the result holds only that leaf. `merge` joins such
arrays of sibling leaves to the array of the whole field. Siblings repeat the structure of their ancestors, so any of
them provides it (spec: file container, section 2.2). Zero-copy, except for validity bitmaps of sliced rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.levels.lists import validity
from lance_io.levels.path import LeafPath, NodeKind, leaf_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io._kernels import Layer
    from lance_io.format.schema import Field
    from lance_io.levels.path import StoredMembers


def arrow_buffer(memory: Any | None) -> pa.Buffer | None:
    """Kernel memory as an Arrow buffer, zero-copy."""
    return None if memory is None else pa.py_buffer(memory)


def select_members(members: StoredMembers, stored: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Select members of a stored packed struct as an array of type `dtype`."""
    children = [stored.field(position) for position in members.positions]
    return pa.Array.from_buffers(dtype, len(stored), [validity(stored)], stored.null_count, children=children)


def nest(path: LeafPath, leaf: pa.Array, layers: Sequence[Layer]) -> pa.Array:
    """Wrap `leaf` in the structs and lists of its path.

    leaf    stored array of the leaf, with its own validity
    layers  layers from a kernel, innermost (the leaf's) first
    """
    if len(layers) == 1 and path.members is None:  # fast path: most pages
        return leaf
    array = leaf if path.members is None else select_members(path.members, leaf, path.nodes[-1].arrow_type)
    slots_per_value = 1  # layers above fixed-size lists of structs repeat once per slot (spec: 10.6)
    for node, (length, valid, null_count, offsets) in zip(reversed(path.nodes[:-1]), layers[1:], strict=True):
        bitmap = arrow_buffer(valid)
        if slots_per_value > 1:
            bitmap, null_count = _every(bitmap, length, slots_per_value), -1 if null_count else 0
            length //= slots_per_value
        match node.kind:
            case NodeKind.STRUCT:
                array = pa.Array.from_buffers(node.arrow_type, length, [bitmap], null_count, children=[array])
            case NodeKind.FIXED_SIZE_LIST:
                array = _fixed_size(node.arrow_type, array, length, bitmap, null_count)
                slots_per_value *= node.arrow_type.list_size
            case _:
                buffers = [bitmap, arrow_buffer(offsets)]
                array = pa.Array.from_buffers(node.arrow_type, length, buffers, null_count, children=[array])
    return array


def _fixed_size(dtype: pa.DataType, items: pa.Array, slots: int, bitmap: pa.Buffer | None, nulls: int) -> pa.Array:
    """An array of fixed-size lists of structs, whose layer repeats each list's validity once per slot (spec: 10.6)."""
    size = dtype.list_size
    if slots != len(items) or slots % size:
        raise FormatError(f"{slots} slots of {len(items)} items for fixed-size lists of {size}")
    if bitmap is None or not nulls:
        return pa.Array.from_buffers(dtype, slots // size, [None], 0, children=[items])
    return pa.Array.from_buffers(dtype, slots // size, [_every(bitmap, slots, size)], children=[items])


def _every(bitmap: pa.Buffer | None, count: int, step: int) -> pa.Buffer | None:
    """Each `step`-th of the first `count` bits."""
    if bitmap is None:
        return None
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), count=count, bitorder="little")[::step]
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def merge(field: Field, leaves: Mapping[int, pa.Array], num_rows: int) -> pa.Array:
    """The array of `field` from the single-leaf arrays of its columns.

    field     the field, with blobs replaced by their descriptions (`Field.describe_blobs`)
    leaves    results of `nest` with `num_rows` each, by field id of the leaf; a missing leaf, whose column was added to
              the schema later, reads as null
    """
    paths = [path for path in leaf_paths(field) if path.leaf.id in leaves]
    if not paths:
        return pa.nulls(num_rows, field.arrow_type)
    if field.has_column:
        return leaves[field.id]
    return _merge(field, [leaves[path.leaf.id] for path in paths], paths, 0)


def _merge(field: Field, arrays: list[pa.Array], paths: list[LeafPath], depth: int) -> pa.Array:
    first = arrays[0]
    if len(arrays) == 1 and first.type == field.arrow_type:
        return first
    if field.has_column:
        return first
    kind = paths[0].nodes[depth].kind
    if kind is NodeKind.STRUCT:
        return _merge_struct(field, arrays, paths, depth)
    return _merge_list(field, kind, arrays, paths, depth)


def _merge_struct(field: Field, arrays: list[pa.Array], paths: list[LeafPath], depth: int) -> pa.Array:
    first = arrays[0]
    children = []
    for child in field.children:
        below = [(a.field(0), p) for a, p in zip(arrays, paths, strict=True) if p.nodes[depth + 1].field.id == child.id]
        if below:
            children.append(_merge(child, [a for a, _ in below], [p for _, p in below], depth + 1))
        else:
            children.append(pa.nulls(len(first), child.arrow_type))
    bitmap, null_count = _any_valid(arrays)
    return pa.Array.from_buffers(field.arrow_type, len(first), [bitmap], null_count, children=children)


def _any_valid(arrays: list[pa.Array]) -> tuple[pa.Buffer | None, int]:
    """The rows that are valid in at least one array, and the number of the others (-1: not counted).

    The leaves of a struct agree, unless a member was added later: its file stores the struct's validity again.
    """
    if not all(array.null_count for array in arrays):
        return None, 0
    bitmaps: list[Any] = [validity(array) for array in arrays]
    if len(bitmaps) == 1:
        return bitmaps[0], arrays[0].null_count
    num_bytes = (len(arrays[0]) + 7) // 8
    views = [np.frombuffer(bitmap, np.uint8, num_bytes) for bitmap in bitmaps]
    return pa.py_buffer(np.bitwise_or.reduce(views)), -1


def _merge_list(field: Field, kind: NodeKind, arrays: list[pa.Array], paths: list[LeafPath], depth: int) -> pa.Array:
    first = arrays[0]
    child = field.children[0]
    if kind is NodeKind.FIXED_SIZE_LIST:
        size = field.arrow_type.list_size
        items = [a.values.slice(a.offset * size, len(a) * size) for a in arrays]
        values = _merge(child, items, paths, depth + 1)
        return pa.Array.from_buffers(
            field.arrow_type, len(first), [validity(first)], first.null_count, children=[values]
        )
    bounds = [_item_bounds(a) for a in arrays]
    start, end = bounds[0]
    if any(high - low != end - start for low, high in bounds):
        raise FormatError(f"the leaf columns of {field.name!r} disagree about the number of list items: {bounds[:10]}")
    items = [a.values.slice(low, high - low) for a, (low, high) in zip(arrays, bounds, strict=True)]
    values = _merge(child, items, paths, depth + 1)
    if field.logical_type == "map" and values.field(0).null_count:  # Arrow ends the process on such a map
        raise FormatError(f"map {field.name!r} has {values.field(0).null_count} entries whose key is null")
    offsets = first.offsets if start == 0 else _rebase(first.offsets, start)
    buffer = offsets.buffers()[1].slice(offsets.offset * offsets.type.bit_width // 8)
    return pa.Array.from_buffers(
        field.arrow_type, len(first), [validity(first), buffer], first.null_count, children=[values]
    )


def _item_bounds(array: pa.Array) -> tuple[int, int]:
    """First item and end item that a (possibly sliced) list array refers to."""
    offsets = array.offsets
    return offsets[0].as_py(), offsets[len(offsets) - 1].as_py()


def _rebase(offsets: pa.Array, start: int) -> pa.Array:
    return pa.array(offsets.to_numpy(zero_copy_only=True) - offsets.type.to_pandas_dtype()(start))
