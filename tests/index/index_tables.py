"""Tables for the tests of indices, and the check that pylance plans with an index and finds the rows of a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import lance_io

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LABELS = ["t0", "t1", "t2", "t3", "é"]


def rows(num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows with nulls, duplicates, empty and non-ASCII texts, and lists with null items."""

    def some(values: list[Any], share: float = 0.05) -> list[Any]:
        return [None if hit else value for value, hit in zip(values, rng.random(num_rows) < share, strict=True)]

    texts = np.array(["", "Z", "a", "é", "日本", *(f"k{n}é" for n in range(40))])
    words = np.array(["hello world", "Help me", "xy", "Élan vital", "日本語", "a1_b2c", "ship shape"])
    labels = [[*rng.choice(LABELS, rng.integers(0, 3)), *([None] if hit else [])] for hit in rng.random(num_rows) < 0.1]
    return pa.table(
        {
            "i": pa.array(some(rng.integers(0, 5000, num_rows).tolist()), pa.int64()),
            "s": pa.array(some(texts[rng.integers(0, len(texts), num_rows)].tolist())),
            "w": pa.array(some(words[rng.integers(0, len(words), num_rows)].tolist())),
            "l": pa.array(some(labels), pa.list_(pa.string())),
            "k": pa.array(rng.integers(0, 10, num_rows), pa.int32()),
        }
    )


def fragmented(folder: Path, rng: np.random.Generator, *, stable: bool, num_rows: int = 9000) -> str:
    """The URI of a table of three fragments with deletions in each."""
    uri = str(folder / "table.lance")
    table = lance.write_dataset(
        rows(num_rows, rng), uri, max_rows_per_file=num_rows * 4 // 9, enable_stable_row_ids=stable
    )
    table.delete("i % 10 = 3")
    return uri


def append(uri: str, rng: np.random.Generator, num_rows: int = 500) -> None:
    """Append a fragment, by pylance."""
    lance.write_dataset(rows(num_rows, rng), uri, mode="append")


def wrong_answers(uri: str, index_name: str, predicates: Iterable[str]) -> list[str]:
    """The predicates for which pylance does not plan with the index, or either library finds other rows than a scan."""
    table = lance.dataset(uri)
    wrong = []
    for predicate in predicates:
        columns: dict[str, Any] = {"columns": [], "filter": predicate, "with_row_address": True}
        scan = table.scanner(**columns, use_scalar_index=False).to_table()["_rowaddr"].to_pylist()
        indexed = table.scanner(**columns)
        if f"@{index_name}(" not in indexed.explain_plan():
            wrong.append(f"{predicate}: the plan does not name the index")
        if sorted(indexed.to_table()["_rowaddr"].to_pylist()) != sorted(scan):
            wrong.append(f"{predicate}: other rows")
        ours = our(uri).scanner(columns=[], filter=predicate, with_row_address=True).to_table()
        if sorted(ours["_rowaddr"].to_pylist()) != sorted(scan):
            wrong.append(f"{predicate}: other rows by us")
    return wrong


def our(uri: str) -> lance_io.LanceDataset:
    """The newest version, opened by us."""
    return lance_io.dataset(uri)
