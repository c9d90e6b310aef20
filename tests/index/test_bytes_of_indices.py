"""Filters of every form on indices of every kind that either library built: who names the index, and what is read.

Where pylance's plan names the index, ours names it, too, and the scan reads at most 1.2 times the bytes that pylance
reads, beside the ends of the files that it opens: a file's end is one read of ours, and several of pylance's. Each
library counts the bytes of a scan of a table that it has just opened.

`LANCE_IO_INDEX_BYTES=all` takes all forms, not every third, and a larger table.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

IS_FULL = os.environ.get("LANCE_IO_INDEX_BYTES") == "all"
NUM_ROWS = 60_000 if IS_FULL else 20_000
NUM_FRAGMENTS = 3 if IS_FULL else 2
NUM_VALUES = 200  # of a column with a bitmap, and labels
TIMES = 1.2
DATA_END_BYTES = 16 << 10  # that are read to open a data file
INDEX_END_BYTES = 2 * (4 << 10)  # to open the files of an index
BUILDERS = {"theirs": lance, "ours": lance_io}
INDICES = {
    "i_btree": "BTREE",
    "i_bitmap": "BITMAP",
    "i_zonemap": "ZONEMAP",
    "i_bloomfilter": "BLOOMFILTER",
    "s_btree": "BTREE",
    "s_bitmap": "BITMAP",
    "s_zonemap": "ZONEMAP",
    "s_bloomfilter": "BLOOMFILTER",
    "b_btree": "BTREE",
    "b_bitmap": "BITMAP",
    "l_labels": "LABEL_LIST",
    "w_ngram": "NGRAM",
}
NUMBERS = [
    "{c} = 57", "57 = {c}", "{c} = 777777", "{c} IN (5, 57)", "{c} IN (5, 57, 58, 111, 777777)",
    "{c} = 57 OR {c} = 190", "{c} < 10", "{c} <= 10", "{c} > {top}", "{c} >= {top}", "{c} BETWEEN 100 AND 120",
    "{c} >= 100 AND {c} < 120", "{c} != 57", "{c} NOT IN (5, 57)", "NOT ({c} BETWEEN 10 AND {top})",
    "NOT ({c} < {top})", "{c} IS NULL", "{c} IS NOT NULL", "{c} IS DISTINCT FROM 57", "{c} = 57 AND v > 0.5",
    "{c} = 57 OR v > 0.999", "{c} + 1 = 6", "{c} IN (1, NULL)",
]  # fmt: skip
TEXTS = [
    "{c} = 'key 00057'", "{c} = 'none'", "{c} IN ('key 00005', 'key 00057')", "{c} < 'key 00003'",
    "{c} >= 'key 00100' AND {c} < 'key 00103'", "{c} != 'key 00057'", "{c} LIKE 'key 0005%'", "{c} LIKE 'key 0005_'",
    "starts_with({c}, 'key 0005')", "{c} IS NULL", "{c} = 'key 00057' AND v > 0.5", "{c} LIKE '%00057'",
    "{c} ILIKE 'KEY 00057'",
]  # fmt: skip
FLAGS = ["{c}", "NOT {c}", "{c} IS TRUE", "{c} IS NOT TRUE", "{c} = false", "{c} IS NULL"]
LABELS = [
    "array_has({c}, 'label 7')", "array_contains({c}, 'label 7')", "array_has_any({c}, ['label 7', 'label 8'])",
    "array_has_all({c}, ['label 7', 'label 8'])", "array_has_any({c}, ['label 7', NULL])",
    "NOT array_has({c}, 'label 7')", "array_has({c}, 'none')", "{c} IS NULL",
]  # fmt: skip
WORDS = ["contains({c}, 'word 12345')", "{c} LIKE '%word 5432%'", "contains({c}, 'nothing')", "contains({c}, 'xy')"]
FORMS = {"i": NUMBERS, "s": TEXTS, "b": FLAGS, "l": LABELS, "w": WORDS}


class Scan(NamedTuple):
    """What a library says of a scan, and the addresses of its rows."""

    names_index: bool
    num_bytes: int
    addresses: list[int]


def make_rows() -> pa.Table:
    """Of each kind the values that it is for: distinct ones in no order, few, ascending."""
    rng = np.random.default_rng(4)
    numbers = {
        "btree": rng.permutation(NUM_ROWS),
        "bitmap": rng.integers(0, NUM_VALUES, NUM_ROWS),
        "zonemap": np.arange(NUM_ROWS),
        "bloomfilter": rng.permutation(NUM_ROWS),
    }

    def some(values: Any) -> pa.Array:
        return pa.array(values, mask=rng.random(NUM_ROWS) < 0.001)

    columns: dict[str, Any] = {"v": rng.random(NUM_ROWS)}
    for kind, values in numbers.items():
        columns[f"i_{kind}"] = some(values)
        columns[f"s_{kind}"] = some(np.array([f"key {value:05}" for value in values.tolist()]))
    for name in ("b_btree", "b_bitmap"):
        columns[name] = some(rng.random(NUM_ROWS) < 0.01)
    labels = rng.integers(0, NUM_VALUES, (NUM_ROWS, 2)).tolist()
    columns["l_labels"] = pa.array([[f"label {label}" for label in pair] for pair in labels])
    columns["w_ngram"] = [f"some word {value} here" for value in rng.permutation(NUM_ROWS).tolist()]
    return pa.table(columns)


def filters() -> list[tuple[str, str]]:
    """Each index with the filters on its column."""
    return [
        (column, form.format(c=column, top=(NUM_VALUES if column == "i_bitmap" else NUM_ROWS) - 5))
        for column in INDICES
        for form in FORMS[column[0]][:: 1 if IS_FULL else 3]
    ]


def scan(library: Any, uri: str, column: str, text: str) -> Scan:
    """A scan of a table that was just opened."""
    table = library.dataset(uri)
    scanner = table.scanner(columns=["v"], filter=text, with_row_address=True)
    table.io_stats_incremental()
    addresses = sorted(scanner.to_table()["_rowaddr"].to_pylist())
    num_bytes = table.io_stats_incremental().read_bytes  # pylance's statistics of a scan leave the index files out
    return Scan(f"@{column}_idx(" in scanner.explain_plan(), num_bytes, addresses)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same rows with indices by either library."""
    rows, uris = make_rows(), {}
    for builder, library in BUILDERS.items():
        uris[builder] = str(tmp_path_factory.mktemp("built") / builder)
        lance.write_dataset(rows, uris[builder], max_rows_per_file=NUM_ROWS // NUM_FRAGMENTS)
        table = library.dataset(uris[builder])
        for column, kind in INDICES.items():
            table.create_scalar_index(column, kind)
    return uris


def test_an_index_is_used_where_pylance_uses_it_and_reads_no_more(tables: dict[str, str]) -> None:
    wrong, num_named = [], 0
    libraries = (lance, lance_io)
    for column, text in filters():
        scans = {builder: [scan(each, uri, column, text) for each in libraries] for builder, uri in tables.items()}
        if scans["ours"][0].names_index != scans["theirs"][0].names_index:
            wrong.append(f"{text}: pylance plans with the index of one library only")
        for builder, (theirs, ours) in scans.items():
            num_named += theirs.names_index
            where = f"{text}, built by {builder}"
            if ours.addresses != theirs.addresses:
                wrong.append(f"{where}: {len(ours.addresses)} rows, not {len(theirs.addresses)}")
            if theirs.names_index and not ours.names_index:
                wrong.append(f"{where}: not named")
            num_files = len({address >> 32 for address in theirs.addresses})
            at_most = TIMES * theirs.num_bytes + DATA_END_BYTES * num_files + INDEX_END_BYTES
            if theirs.names_index and ours.num_bytes > at_most:
                wrong.append(f"{where}: {ours.num_bytes:,} bytes, pylance reads {theirs.num_bytes:,}")
    assert wrong == []
    assert num_named > (200 if IS_FULL else 70)


@pytest.mark.parametrize("builder", BUILDERS)
def test_without_the_index_no_file_of_it_is_read(tables: dict[str, str], builder: str) -> None:
    """The folder of the indices is gone meanwhile."""
    indices = Path(tables[builder]) / "_indices"
    columns: dict[str, Any] = {"columns": ["v"], "with_row_address": True}
    texts = {column: text for column, text in reversed(filters())}  # the first of each
    table = lance_io.dataset(tables[builder])
    expected = {text: table.to_table(filter=text, **columns) for text in texts.values()}
    gone = indices.rename(indices.with_name("gone"))
    try:
        table = lance_io.dataset(tables[builder])
        for text, rows in expected.items():
            assert table.to_table(filter=text, use_scalar_index=False, **columns) == rows, text
    finally:
        gone.rename(indices)
