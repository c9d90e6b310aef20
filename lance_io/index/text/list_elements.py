"""Elements of lists as documents: the items of lists of any depth, and where each stands in its row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class ElementRows:
    """The rows of elements that are numbered while a map grows, and where they stand in their rows.

    nbytes  memory, in bytes
    """

    def __init__(self) -> None:
        self._rows: list[npt.NDArray[np.int64]] = []
        self._places: list[npt.NDArray[np.uint32]] = []
        self._num_elements = 0
        self.nbytes = 0

    def add(self, lists: pa.Array, rows: Any) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """The elements of lists, nulls as empty texts, and a number for each. rows: of the lists"""
        starts = []
        while pa.types.is_nested(lists.type):
            lists, its = list_items(lists)
            starts.append(its)
        above, places = element_places(starts)
        self._rows.append(np.asarray(rows).astype(np.int64, copy=False)[above])
        self._places.append(places)
        self.nbytes += self._rows[-1].nbytes + places.nbytes
        first, self._num_elements = self._num_elements, self._num_elements + len(above)
        return lists.fill_null(""), np.arange(first, self._num_elements, dtype=np.int64)

    def find(self, numbers: npt.NDArray[np.int64], lengths: Any) -> tuple[Any, Any, npt.NDArray[np.uint32]]:
        """The rows of elements with these numbers, their lengths, and their places."""
        rows, places = np.concatenate(self._rows), np.concatenate(self._places)
        return rows[numbers], lengths, places[numbers]


def list_items(lists: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The items of lists, one after another, and the first of each list, and the end."""
    flat: Any = lists.flatten()
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return flat, np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def element_places(lists: Sequence[npt.NDArray[np.int64]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """The row of each element of the innermost lists, and where it stands in its lists: u32[elements, depth].

    lists  of each depth, the outermost first: the first element of each list, and the end
    """
    rows, places = np.arange(len(lists[0]) - 1), np.empty((len(lists[0]) - 1, 0), np.uint32)
    for starts in lists:
        above = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        inside = np.arange(len(above)) - starts[above]
        rows, places = rows[above], np.column_stack((places[above], inside.astype(np.uint32)))
    return rows, places
