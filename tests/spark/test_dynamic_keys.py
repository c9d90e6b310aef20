"""Which rows a dynamic overwrite replaces, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from lance_io.dataset.distributed import TablePlace, TableVersion
from lance_io.spark.worker.writing.dynamic_keys import Keys, replaced_rows

if TYPE_CHECKING:
    from pathlib import Path


def test_keys_are_compared_as_they_are_stored(tmp_path: Path) -> None:
    """Years after 9999, NaN, both zeros, nulls; several columns; keys that came in two streams."""
    rows = pa.table(
        {
            "at": pa.array([1 << 61, 5, None, 1 << 61, 7], pa.timestamp("us")),
            "f": pa.array([0.0, float("nan"), 1.0, -0.0, None]),
        }
    )
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=3)
    version = TableVersion.open(TablePlace.of_process(str(tmp_path / "t"), {}))
    for names, chosen, expected in (
        (["at"], [0, 2], {0: [0, 2], 1: [0]}),
        (["at"], [4], {1: [1]}),
        (["f"], [1, 3], {0: [0, 1], 1: [0]}),
        (["at", "f"], [3, 4], {0: [0], 1: [0, 1]}),
    ):
        keys = Keys()
        for row in chosen:
            one_row = Keys()
            one_row.add(rows.select(names).take([row]))
            keys.add_stream(one_row.to_stream() or b"")
        assert {key: rows.tolist() for key, rows in replaced_rows(version, names, keys).items()} == expected, names
