"""Sets of nulls that would decode to more memory than a segment may hold: the same answers, by a look at rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.index.rows import tree_maps

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 4_000
FILTERS = {
    "LABEL_LIST": ["array_has(c, 3)", "NOT array_has(c, 3)", "array_has_all(c, [3, 4])", "c IS NULL"],
    "ZONEMAP": ["c IS NULL", "c IS NOT NULL", "c < 50", "NOT c < 50"],
    "BLOOMFILTER": ["c IS NULL", "c IS NOT NULL", "c = 50", "c != 50"],
}


@pytest.mark.parametrize("library", [lance, lance_io], ids=["theirs", "ours"])
@pytest.mark.parametrize("kind", FILTERS)
def test_nulls_above_the_bound_are_found_in_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, library: object
) -> None:
    """Every other row is null, so that each is a run; the bound is below."""
    numbers = np.random.default_rng(4).integers(0, 100, NUM_ROWS).tolist()
    lists = [[number, number + 1] for number in numbers]
    values = [None if row % 2 else value for row, value in enumerate(lists if kind == "LABEL_LIST" else numbers)]
    lance.write_dataset(pa.table({"c": values, "row": range(NUM_ROWS)}), tmp_path, max_rows_per_file=1_500)
    library.dataset(str(tmp_path)).create_scalar_index("c", kind)  # type: ignore[attr-defined]
    decoded: list[int] = []

    def decode(data: object, space: object, decode: object = tree_maps.decode_tree_map) -> object:
        decoded.append(1)
        return decode(data, space)

    monkeypatch.setattr(tree_maps, "_NULL_RUNS_MAX", NUM_ROWS // 2 - 1)
    monkeypatch.setattr(tree_maps, "decode_tree_map", decode)
    table, peer = lance_io.dataset(str(tmp_path)), lance.dataset(str(tmp_path))
    for text in FILTERS[kind]:
        rows = table.to_table(["row"], filter=text)["row"].to_pylist()
        assert sorted(rows) == sorted(peer.to_table(["row"], filter=text, use_scalar_index=False)["row"].to_pylist())
        assert table.count_rows(text) == len(rows)
    assert decoded == []
    assert "c_idx" in table.scanner(filter=FILTERS[kind][2]).explain_plan()
