"""The least and the greatest value of a column by its index: those of a scan, or none where the index is not exact."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.reads.index.extremes import column_extremes
from tests.index.test_index_rounds import NUM_ROWS, Bench, counts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VALUES: dict[str, Callable[[int], Any]] = {
    "i": lambda n: n - 5000,
    "s": lambda n: f"é{n:05}",
    "f": lambda n: n / 4 - 100,
    "h": lambda n: np.float16(n % 100),
    "d": lambda n: Decimal(n) / 4,
    "b": lambda n: n % 2 == 0,
    "t": lambda n: datetime.datetime(2020, 1, 1) + datetime.timedelta(seconds=n),
    "x": lambda n: n.to_bytes(4, "big"),
}


def rows(count: int, seed: int) -> pa.Table:
    """Distinct numbers in every type, and nulls."""
    numbers = np.random.default_rng(seed).permutation(20_000)[:count]
    types = {"h": pa.float16(), "d": pa.decimal128(10, 2), "t": pa.timestamp("us")}
    columns = {
        name: pa.array([None if n % 11 == 0 else make(int(n)) for n in numbers], types.get(name))
        for name, make in VALUES.items()
    }
    return pa.table({"n": numbers, **columns})


def extremes(table: lance_io.LanceDataset, name: str) -> Any:
    found = table._run(column_extremes(table._state, (name,)))
    if found is None:
        return None
    return tuple(None if end is None else end.as_py() for end in (found.least, found.greatest))


def scanned(table: lance_io.LanceDataset, name: str) -> tuple[Any, Any]:
    values = [value for value in table.to_table([name])[name].to_pylist() if value is not None]
    return (min(values), max(values)) if values else (None, None)


@pytest.mark.parametrize(("builder", "stable"), [("pylance", False), ("us", True)])
def test_extremes_of_all_types(tmp_path: Path, builder: str, stable: bool) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(9000, 1), uri, max_rows_per_file=4000, enable_stable_row_ids=stable)
    library = lance if builder == "pylance" else lance_io
    for name in VALUES:
        library.dataset(uri).create_scalar_index(name, "ZONEMAP" if name == "t" else "BTREE")

    def check(*unknown: str) -> None:
        table = lance_io.dataset(uri)
        for name in VALUES:
            assert extremes(table, name) == (None if name in unknown else scanned(table, name)), name

    check()
    table = lance_io.dataset(uri)
    assert extremes(table, "n") is None  # no index
    lowest, highest = scanned(table, "n")
    table.delete(f"n < {lowest + 30} OR n > {highest - 9000}")
    check("t")  # a zone map does not know which values are left
    table.update({"i": "-100000"}, where="n = 8000 OR n = 8001")
    check(*VALUES)  # the moved rows are covered by no index
    table.optimize.optimize_indices()
    check("t")
    table.optimize.compact_files(target_rows_per_fragment=20_000)
    table.optimize.optimize_indices()
    check()
    table.delete("true")
    assert extremes(lance_io.dataset(uri), "i") in ((None, None), None)


def test_nan_and_nulls(tmp_path: Path) -> None:
    nan = float("nan")
    for number, (values, expected) in enumerate(
        [
            ([1.5, nan, 3.0], None),
            ([None, None], (None, None)),
            ([None, 2.0, -1.0], (-1.0, 2.0)),
            ([0.0, -0.0], (0.0, 0.0)),
        ]
    ):
        for kind in ("BTREE", "ZONEMAP"):
            uri = str(tmp_path / f"{kind}{number}")
            lance_io.write_dataset(pa.table({"v": pa.array(values, pa.float64())}), uri).create_scalar_index("v", kind)
            result = extremes(lance_io.dataset(uri), "v")
            assert result == expected or (kind == "ZONEMAP" and expected == (None, None) and result is None)


def test_what_extremes_read(tmp_path: Path) -> None:
    """The lookup, and after deletions a page at each end; no data file."""
    table = lance.write_dataset(pa.table({"id": np.arange(NUM_ROWS)}), tmp_path, max_rows_per_file=NUM_ROWS // 4)
    table.create_scalar_index("id", "BTREE")

    async def ask(opened: Any) -> Any:
        return await opened._run(column_extremes(opened._state, ("id",)))

    measured = Bench(tmp_path).run(ask, ask)
    assert counts(measured)[1] == (0, 0)
    assert not [line for line in measured[0][1] if "/data/" in line]
    lance.dataset(tmp_path).delete("id < 10")
    measured = Bench(tmp_path).run(ask, ask)
    assert [result.least.as_py() for _, _, result in measured] == [10, 10]
    assert counts(measured)[1] == (0, 0)
    assert not [line for line in measured[0][1] if "/data/" in line]
