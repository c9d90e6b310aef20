"""Repetition and definition levels in plain Python, straight from encoding-2.1.md, sections 2.2 and 2.3.

A column is a chain of nodes, outermost first: "struct", "list" and, last, "leaf". A value of a struct is a 1-tuple,
of a list a list, of the leaf a number; each may be None. `shred` walks one value at a time, `slots_of` lists what each
node holds: neither knows how the kernels rebuild arrays from levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL_VALID_ITEM, ALL_VALID_LIST, NULLABLE_ITEM, NULLABLE_LIST, EMPTYABLE_LIST, NULL_AND_EMPTY_LIST = range(1, 7)
WIDE_OFFSETS = 128


@dataclass(slots=True)
class Layer:
    """One node of a page: which definition levels it owns, and whether its offsets are 64 bits wide."""

    node: str
    null: bool = False
    empty: bool = False
    wide: bool = False

    @property
    def kind(self) -> int:
        """The RepDefLayer number."""
        if self.node != "list":
            return NULLABLE_ITEM if self.null else ALL_VALID_ITEM
        return {(0, 0): 2, (1, 0): 4, (0, 1): 5, (1, 1): 6}[int(self.null), int(self.empty)]


@dataclass(slots=True)
class Slots:
    """What one node holds: `validity` per slot, and for lists `offsets` into the slots of the node below."""

    validity: list[bool]
    offsets: list[int] | None


def encode_layers(layers: Sequence[Layer]) -> bytes:
    """The layers (outermost first, as everywhere here) in the byte form of the kernels: count, innermost first."""
    kinds = [layer.kind | (WIDE_OFFSETS if layer.wide else 0) for layer in reversed(layers)]
    return bytes([len(kinds), *kinds])


def layers_of(nodes: Sequence[str], rows: Sequence[Any], *, push_down: bool) -> list[Layer]:
    """The least levels with which these rows can be written.

    push_down  what the reference writer does: layers below a nullable struct are nullable, down to a list or leaf
    """
    layers = [Layer(node) for node in nodes]
    held = list(rows)
    masked = False
    for layer in layers:
        layer.null = None in held or (push_down and masked)
        masked = layer.null and layer.node == "struct"
        present = [value for value in held if value is not None]
        if layer.node == "list":
            layer.empty = [] in present
            held = [child for value in present for child in value]
        elif layer.node == "struct":
            held = [value[0] for value in present]
    return layers


def shred(layers: Sequence[Layer], rows: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Repetition and definition levels of these rows."""
    null_levels, empty_levels, ranks = _numbers(layers)
    rep: list[int] = []
    definition: list[int] = []

    def emit(repetition: int, level: int) -> None:
        rep.append(repetition)
        definition.append(level)

    def walk(depth: int, value: Any, repetition: int) -> None:
        node = layers[depth].node
        if value is None:
            emit(repetition, null_levels[depth])
        elif node == "leaf":
            emit(repetition, 0)
        elif node == "struct":
            walk(depth + 1, value[0], repetition)
        elif not value:
            emit(repetition, empty_levels[depth])
        else:
            for position, child in enumerate(value):
                walk(depth + 1, child, repetition if position == 0 else ranks[depth] - 1)

    for row in rows:
        walk(0, row, sum(layer.node == "list" for layer in layers))
    return rep, definition


def slots_of(layers: Sequence[Layer], rows: Sequence[Any]) -> list[Slots]:
    """What every layer should come out as, outermost first.

    A null struct leaves a slot below it, which counts as null there unless the layer below claims to be all valid.
    """
    found = []
    held = list(rows)
    for layer in layers:
        offsets = None
        claims_valid = layer.node != "list" and not layer.null
        validity = [claims_valid or value is not None for value in held]
        if layer.node == "list":
            offsets = [0]
            for value in held:
                offsets.append(offsets[-1] + len(value or ()))
            held = [child for value in held for child in value or ()]
        elif layer.node == "struct":
            held = [None if value is None else value[0] for value in held]
        found.append(Slots(validity, offsets))
    return found


def max_visible(layers: Sequence[Layer]) -> int:
    """The last definition level that owns an item."""
    count = 0
    for layer in reversed(layers):
        if layer.node == "list":
            break
        count += layer.null
    return count


def _numbers(layers: Sequence[Layer]) -> tuple[list[int], list[int], list[int]]:
    """Per layer: level of a null, level of an empty list, rank of the list (1 is the innermost)."""
    null_levels, empty_levels, ranks = ([0] * len(layers) for _ in range(3))
    level = rank = 0
    for depth in reversed(range(len(layers))):
        layer = layers[depth]
        if layer.null:
            null_levels[depth] = level = level + 1
        if layer.empty:
            empty_levels[depth] = level = level + 1
        if layer.node == "list":
            ranks[depth] = rank = rank + 1
    return null_levels, empty_levels, ranks
