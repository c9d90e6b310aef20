"""Rows of an index that count, beside a row by row reference: fragments, deletions, coverage, numbers of no row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lance_io.levels.arrays import MERGED_FALLS_MAX, has_repeats
from lance_io.reads.index.row_filter import LiveEntries, SettledRows
from lance_io.reads.rows.row_arithmetic import LiveRows

if TYPE_CHECKING:
    import numpy.typing as npt

FRAGMENT_IDS = [3, 0, 7, 8]
PHYSICAL_ROWS = [40, 25, 1, 60]
DELETED = {0: [0, 5, 39], 3: [59]}  # by fragment index


class State:
    """What `LiveEntries` asks of an open version."""

    fragment_ids = FRAGMENT_IDS
    has_deletions = tuple(at in DELETED for at in range(len(FRAGMENT_IDS)))
    physical_rows = np.array(PHYSICAL_ROWS)

    def find_fragment_indexes(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array([FRAGMENT_IDS.index(each) if each in FRAGMENT_IDS else -1 for each in ids.tolist()], np.int64)


def entries(chosen: list[bool], part: Any) -> LiveEntries:
    index: Any = SimpleNamespace(parts=[part], moves=())
    state: Any = State()
    settled = SettledRows.of(state, index, np.flatnonzero(chosen).tolist())
    live = {at: LiveRows(PHYSICAL_ROWS[at], np.array(DELETED[at])) for at in settled.touched}
    return LiveEntries(state, index, live, None, settled.chosen, settled.masks)


def is_live(row: int, covered: set[int], chosen: list[bool]) -> bool:
    fragment_id, offset = row >> 32, row & 0xFFFFFFFF
    if fragment_id not in FRAGMENT_IDS or fragment_id not in covered:
        return False
    at = FRAGMENT_IDS.index(fragment_id)
    return chosen[at] and offset < PHYSICAL_ROWS[at] and offset not in DELETED.get(at, [])


@pytest.mark.parametrize("order", ["ascending", "blocks", "shuffled", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_count(order: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    covered = set(rng.choice(FRAGMENT_IDS, 3, replace=False).tolist())
    chosen = [True, True, bool(seed % 2), True]
    rows = [(fragment << 32) + offset for fragment in (0, 3, 5, 7, 8) for offset in (*range(45), 59, 60, 2**32 - 1)]
    rows += [2**63 - 1, 2**63, 2**63 + (3 << 32) + 1, 2**64 - 1]
    if order == "blocks":
        rows = rows[50:] + rows[:50]
    elif order == "shuffled":
        rows = rng.permutation(np.array(rows, np.uint64)).tolist()
    elif order == "none":
        rows = []
    part: Any = SimpleNamespace(covered=frozenset(covered), uuid="u")
    numbers = np.array(rows, np.uint64)
    before = numbers.copy()
    counts, addresses = entries(chosen, part).find(part, numbers)
    assert counts.tolist() == [is_live(row, covered, chosen) for row in rows]
    assert addresses[counts].tolist() == [row for row in rows if is_live(row, covered, chosen)]
    assert (numbers == before).all()


@pytest.mark.parametrize("num_parts", [1, 2, MERGED_FALLS_MAX, MERGED_FALLS_MAX + 2])
@pytest.mark.parametrize("repeats", [False, True])
def test_repeats_in_numbers_of_several_parts(num_parts: int, repeats: bool) -> None:
    values = np.concatenate([np.arange(part, 1000 * num_parts, num_parts) for part in reversed(range(num_parts))])
    if repeats:
        values[-1] = values[0]
    assert has_repeats(values) is repeats
    assert not has_repeats(values[:1])
    assert not has_repeats(values[:0])
