"""A dataset that nobody holds any more is gone at once, with its caches: nothing waits for the cycle collector."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    "use",
    [
        lambda dataset: dataset.take([1, 5]),
        lambda dataset: dataset.to_table(columns=["a"]),
        lambda dataset: list(dataset.to_batches(columns=["s"])),
        lambda dataset: dataset.to_table(filter="a < 5"),
        lambda dataset: dataset.to_table(filter="a < 5", columns={"twice": "a * 2"}),
    ],
    ids=["take", "table", "batches", "filter", "computed"],
)
def test_state_and_cache_go_with_the_dataset(tmp_path: Path, use: Callable[[Any], object]) -> None:
    lance.write_dataset(pa.table({"a": range(100), "s": [str(n) for n in range(100)]}), tmp_path / "t.lance")
    use(lance_io.dataset(tmp_path / "t.lance"))  # imports, whose own cycles do not count
    gc.collect()
    gc.disable()
    try:
        dataset = lance_io.dataset(tmp_path / "t.lance", session=lance_io.Session())
        use(dataset)
        held = [weakref.ref(dataset._state), weakref.ref(dataset._state.session.cache)]
        del dataset
        assert [ref() for ref in held] == [None, None]
    finally:
        gc.enable()


def test_a_running_scan_keeps_what_it_needs(tmp_path: Path) -> None:
    table = pa.table({"a": range(10_000)})
    lance.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=1000)
    batches = lance_io.dataset(tmp_path / "t.lance", session=lance_io.Session()).to_batches(batch_size=100)
    gc.collect()
    assert pa.Table.from_batches(list(batches)) == table
