"""Full-text queries asked of pylance and of us, and how their answers compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance.query
import numpy as np

import lance_io
import lance_io.query

if TYPE_CHECKING:
    from collections.abc import Callable

    Query = Callable[[Any], Any]


def scores(table: Any, query: Any, **scan: Any) -> dict[int, float]:
    """Scores by row id."""
    rows = table.scanner(columns=["_score"], full_text_query=query, with_row_id=True, **scan).to_table()
    return dict(zip(rows["_rowid"].to_pylist(), rows["_score"].to_pylist(), strict=True))


def differences(uri: str, queries: dict[str, Query], **scan: Any) -> list[str]:
    """The queries that pylance answers otherwise: other rows, but for ties at the cut, or other scores.

    queries  by name, made with the module that has the classes
    """
    peer, ours = lance.dataset(uri), lance_io.dataset(uri)
    wrong = []
    for name, make in queries.items():
        theirs, mine = scores(peer, make(lance.query), **scan), scores(ours, make(lance_io.query), **scan)
        if not agree(theirs, mine, is_cut="limit" in scan):
            wrong.append(f"{name} {scan}: {len(theirs)} rows, we have {len(mine)}")
    return wrong


def agree(theirs: dict[int, float], mine: dict[int, float], *, is_cut: bool) -> bool:
    """Whether rows and scores are the same; of equal scores at the cut, either row is right."""
    if len(theirs) != len(mine):
        return False
    if not theirs:
        return True
    first, second = (np.array(sorted(each.values(), reverse=True)) for each in (theirs, mine))
    if not np.allclose(first, second, rtol=1e-5, atol=1e-5):
        return False
    least = first[-1] * (1 + 1e-5) + 1e-5 if is_cut else -np.inf
    sure = {row for row, score in theirs.items() if score > least}
    if not sure <= mine.keys() or (not is_cut and theirs.keys() != mine.keys()):
        return False
    both = [*theirs.keys() & mine.keys()]
    return np.allclose([theirs[row] for row in both], [mine[row] for row in both], rtol=1e-5, atol=1e-5)
