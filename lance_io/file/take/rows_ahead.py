"""Rows that arrive with the page index that locates them.

The chunks of a mini-block page hold equal numbers of values, and mostly about equal numbers of bytes. So the position
of a row follows from its number, within a chunk or so. Where a round costs more than a few chunks, the round that loads
an index also requests a window around the estimated position. Rows outside their window cost another round, as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.limits import MIB
from lance_io.records import dataclass
from lance_io.spans import Fetched, Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.api import PageIndex, PageLayout, RowSelection
    from lance_io.file.take.page_rows import ColumnRows
    from lance_io.spans import IntArray, Steps, T

WINDOW_BYTES_MAX: Final = 4 * MIB  # of one read; more bytes take longer than a round


@dataclass(slots=True, eq=False)
class RowsAhead:
    """Windows of a file that were fetched with page indexes.

    windows  ascending and disjoint
    fetched  their bytes
    """

    windows: Ranges
    fetched: Fetched

    def serve(self, steps: Steps[T]) -> Steps[T]:
        """Answer ranges inside windows, and request the others."""
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send((yield from self._answer(wanted)))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.close()

    def _answer(self, wanted: Ranges) -> Steps[Fetched]:
        starts, ends = self.windows.starts, self.windows.ends
        at = np.maximum(starts.searchsorted(wanted.starts, "right") - 1, 0)
        is_held = (wanted.starts >= starts[at]) & (wanted.ends <= ends[at])
        if not is_held.any():
            return (yield wanted)
        offsets = self.fetched.offsets[at] + wanted.starts - starts[at]
        if is_held.all():
            return Fetched(self.fetched.buffer, offsets)
        lengths = wanted.ends - wanted.starts
        others = yield Ranges(wanted.starts[~is_held], wanted.ends[~is_held], wanted.purpose, wanted.keep)
        sources = [memoryview(others.buffer).cast("B"), memoryview(self.fetched.buffer).cast("B")]
        offsets[~is_held] = others.offsets
        parts = [
            sources[held][offset : offset + length]
            for held, offset, length in zip(is_held.tolist(), offsets.tolist(), lengths.tolist(), strict=True)
        ]
        return Fetched(b"".join(parts), np.cumsum(lengths) - lengths)


def windows_of(columns: Sequence[ColumnRows]) -> Ranges | None:
    """Windows that hold the rows of pages with an index, and probably those of pages without one. None without any.

    A page with lists has no window without its index: the number of a row does not say where its values are.
    """
    parts = [
        window
        for column in columns
        if column.items is None
        for at, index in enumerate(column.indexes)
        if (window := _window(column.column.pages[column.numbers[at]], index, column.of_page(at))) is not None
    ]
    if not parts:
        return None
    starts, ends = (np.concatenate(borders) for borders in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    is_first = np.append(True, starts[1:] > reached[:-1])
    windows = Ranges(starts[is_first], reached[np.append(is_first[1:], True)], "index", keep=True)
    return windows if windows.num_bytes <= WINDOW_BYTES_MAX else None


def _window(page: PageLayout, index: PageIndex | None, rows: RowSelection) -> tuple[IntArray, IntArray] | None:
    if index is None:
        return page.estimated_ranges(rows) if type(page) is MiniBlockPage else None
    if isinstance(page, ArrayLayout):
        return None  # its reads take several rounds, or none
    steps = page.read(index, rows)
    try:
        wanted = next(steps)
    except StopIteration:  # a constant needs no bytes
        return None
    finally:
        steps.close()
    return wanted.starts, wanted.ends
