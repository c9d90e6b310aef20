"""Zones of floats with NaNs of both signs: -NaN is below every number in a scan, so that no bound excludes its zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import lance.indices
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_io
import lance_io.indices

if TYPE_CHECKING:
    from pathlib import Path

ZONES = [
    [-np.nan, 1.0, 2.0, 3.0],
    [np.nan, 1.0, 2.0, 3.0],
    [-np.nan, -np.nan, np.nan, np.nan],
    [-np.nan, -np.nan, -np.nan, -np.nan],
    [1.0, 2.0, 3.0, 4.0],
    [np.nan, np.nan, np.nan, np.nan],
]
FILTERS = ["f < -1e30", "f <= 0.0", "f > 100.0", "f >= 4.0", "f = 2.0", "f < 2.0", "f IN (1.0, 4.0)", "f > 2.0"]


@pytest.mark.parametrize("builder", [lance, lance_io], ids=["theirs", "ours"])
@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()], ids=str)
def test_answers_equal_scans(builder: Any, dtype: pa.DataType, tmp_path: Path) -> None:
    values = pa.array(np.concatenate(ZONES).astype(dtype.to_pandas_dtype()))
    peer = lance.write_dataset(pa.table({"f": values, "n": range(len(values))}), tmp_path)
    scans = [peer.to_table(filter=text)["n"].to_pylist() for text in FILTERS]
    kind = builder.indices.IndexConfig("zonemap", {"rows_per_zone": 4})
    builder.dataset(tmp_path).create_scalar_index("f", kind, name="x")
    table = lance_io.dataset(tmp_path)
    assert [table.to_table(filter=text)["n"].to_pylist() for text in FILTERS] == scans
    assert "x(ZoneMap)" in table.scanner(filter=FILTERS[0]).explain_plan()


def test_the_greatest_value_is_a_positive_nan(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"f": np.concatenate(ZONES)}), tmp_path)
    for builder in (lance, lance_io):
        kind = builder.indices.IndexConfig("zonemap", {"rows_per_zone": 4})
        builder.dataset(tmp_path).create_scalar_index("f", kind, name=builder.__name__)
    files = [LanceFileReader(str(path)) for path in tmp_path.glob("_indices/*/zonemap.lance")]
    first, second = [file.read_all().to_table()["max"].to_numpy() for file in files]
    assert first.view(np.int64).tolist() == second.view(np.int64).tolist()
    assert not np.signbit(first).any()
