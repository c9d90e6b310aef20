"""Filters on values inside JSON documents, by indices of their paths that either library built."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_io
from lance_io.indices import IndexConfig as OurConfig

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 600
PATHS = {"s": "$.s", "i": "i", "f": "f", "b": "b", "deep": "a.n", "dotted": '$["x.y"]', "item": "l[0]"}
EXACT = [
    "json_get_string(doc, 's') = 'v3'",
    "json_get_string(doc, 's') > 'v3'",
    "json_get_string(doc, 's') LIKE 'v1%'",
    "starts_with(json_get_string(doc, 's'), 'q')",
    "json_get_int(doc, 'i') = 5",
    "5 = json_get_int(doc, 'i')",
    "json_get_int(doc, 'i') != 5",
    "NOT (json_get_int(doc, 'i') = 5)",
    "json_get_int(doc, 'i') > 2 AND json_get_int(doc, 'i') <= 6",
    "json_get_int(doc, 'i') BETWEEN -3 AND 1",
    "json_get_int(doc, 'i') IN (1, 2, 3, 5, 900)",
    "json_get_int(doc, 'i') NOT IN (1, 2, 3, 5, 900)",
    "json_get_int(doc, 'i') IS NULL",
    "json_get_int(doc, 'i') IS NOT NULL",
    "json_get_int(doc, 'i') = 5 OR json_get_float(doc, 'f') < 3",
    "json_get_float(doc, 'f') = 0",
    "json_get_float(doc, 'f') >= 20.25",
    "json_get_float(doc, 'i') = 5",
    "json_get_float(doc, 'i') > 5",
    "json_get_float(doc, 'i') IS NULL",
    "json_get_bool(doc, 'b')",
    "NOT json_get_bool(doc, 'b')",
    "json_get_bool(doc, 'b') IS NOT TRUE",
    "json_get_int(json_get(doc, 'a'), 'n') < 7",
    "json_get_int(doc, 'x.y') = 1",
]
CHECKED = [
    "json_extract(doc, '$.s') = '\"v3\"'",
    "json_extract(doc, 's') IN ('\"v3\"', '\"v4\"', '\"v5\"', '\"q\\\"é\"')",
    "json_extract(doc, '$.a.n') = '7'",
    "json_extract(doc, 'f') = '1.5'",
    "json_extract(doc, 'f') = '0'",
    "json_extract(doc, 'b') = 'true'",
    "json_extract(doc, '$.l[0]') = '2' AND id < 90",
    "json_get_int(doc, 'i') = 5 AND json_get_string(doc, 's') = 'v3'",
]
SCANNED = [
    "json_get_float(doc, 'i') = 5.5",
    "json_get_int(doc, 'a.n') = 7",
    "json_get_int(doc, 'f') = 2",
    "json_extract(doc, '$.i') IS NULL",
    "json_extract(doc, '$.i') != '5'",
    "json_extract(doc, '$.i') > '5'",
    "json_extract(doc, '$.i') = 'five'",
    "json_extract(doc, '$.i') = 'null'",
    "json_get_int(doc, 'i') = 5 OR id = 3",
    "json_get_string(doc, 's') LIKE '%3'",
    "doc IS NULL",
]
NAMED_BY_PYLANCE = ["json_get_int(doc, 'i') = 5", "json_get_int(doc, 'i') IN (1, 2, 3, 5, 900)"]


def documents() -> list[str | None]:
    """Objects, most of them with all members, and arrays, numbers, empty objects and nulls."""
    texts: list[str | None] = []
    for number in range(NUM_ROWS):
        text = 'q"é' if number % 19 == 0 else f"v{number % 20}"
        document: Any = {"s": text, "i": number % 11 - 3, "f": number / 4 % 30, "b": number % 3 == 0}
        document |= {"a": {"n": number % 50}, "x.y": number % 4, "l": [number % 5]}
        if number % 9 == 0:
            document = {"z": 1} if number % 2 else [{"i": 5, "a": {"n": 7}}, 5]
        if number % 17 == 0 and isinstance(document, dict):
            document |= {"i": None, "f": -0.0}
        texts.append(None if number % 13 == 0 else json.dumps(document))
    return texts


def table_of(folder: Path, kind: str, builder: str, *, stable: bool = False) -> str:
    """The URI of a table of four fragments, of which no index covers the last; rows of each are deleted."""
    rows = pa.table({"id": range(NUM_ROWS), "doc": pa.array(documents(), pa.json_())})
    uri = str(folder / "t")
    lance.write_dataset(rows.slice(0, 540), uri, max_rows_per_file=200, enable_stable_row_ids=stable)
    for name, path in PATHS.items():
        parameters = {"target_index_type": kind, "path": path}
        if builder == "pylance":
            lance.dataset(uri).create_scalar_index("doc", IndexConfig("json", parameters), name=name)
        else:
            lance_io.dataset(uri).create_scalar_index("doc", OurConfig("json", parameters), name)
    lance.write_dataset(rows.slice(540), uri, mode="append")
    lance.dataset(uri).delete("id % 10 = 1")
    if stable:
        lance.dataset(uri).update({"doc": """'{"i": 5, "s": "new"}'"""}, "id % 40 = 2")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=390)
    return uri


def is_indexed(table: lance_io.LanceDataset, text: str) -> bool:
    return "ScalarIndexQuery" in table.scanner(filter=text).explain_plan()


@pytest.mark.parametrize(
    ("kind", "builder", "stable"),
    [("btree", "pylance", False), ("btree", "us", False), ("bitmap", "pylance", True), ("bitmap", "us", True)],
)
def test_answers_equal_scans(tmp_path: Path, kind: str, builder: str, stable: bool) -> None:
    table = lance_io.dataset(table_of(tmp_path, kind, builder, stable=stable))
    wrong = []
    for text in [*EXACT, *CHECKED, *SCANNED]:
        expected = table.to_table(["id"], text, use_scalar_index=False)
        if table.to_table(["id"], text) != expected or table.count_rows(text) != expected.num_rows:
            wrong.append(f"{text}: other rows than the scan")
        is_expected = text not in SCANNED and (kind == "btree" or ("LIKE" not in text and "starts_with" not in text))
        if is_indexed(table, text) != is_expected:
            wrong.append(f"{text}: the index is {'not ' * is_expected}used")
    assert not wrong
    theirs = lance.dataset(table.uri)
    for text in NAMED_BY_PYLANCE:
        (line,) = [
            part for part in theirs.scanner(filter=text).explain_plan().split("\n") if "ScalarIndexQuery" in part
        ]
        assert line.partition("query=")[2] in table.scanner(filter=text).explain_plan()
        assert theirs.count_rows(text) == table.count_rows(text)


def test_segments_of_several_types(tmp_path: Path) -> None:
    """A segment without values is one of texts; others have the type of their first value."""
    parameters = {"target_index_type": "btree", "path": "v"}
    table = lance_io.write_dataset(documents_of([None, None], 0), str(tmp_path / "t"))
    table.create_scalar_index("doc", OurConfig("json", parameters), "v")
    for number, values in enumerate(([1, 2], [3, None]), 1):
        table.insert(documents_of(values, 10 * number))
        table.optimize.optimize_indices(num_indices_to_merge=0)
    assert is_indexed(table, "json_get_int(doc, 'v') = 2")
    assert table.to_table(["id"], "json_get_int(doc, 'v') >= 2")["id"].to_pylist() == [11, 20]
    assert table.to_table(["id"], "json_get_int(doc, 'v') IS NULL")["id"].to_pylist() == [0, 1, 21]
    assert not is_indexed(table, "json_get_string(doc, 'v') = '2'")
    table.insert(documents_of([2.5, 2], 30))
    table.optimize.optimize_indices(num_indices_to_merge=0)
    assert not is_indexed(table, "json_get_float(doc, 'v') = 2")
    assert table.to_table(["id"], "json_get_float(doc, 'v') = 2")["id"].to_pylist() == [11, 31]


def documents_of(values: list[Any], first: int) -> pa.Table:
    texts = [json.dumps({} if value is None else {"v": value}) for value in values]
    return pa.table({"id": range(first, first + len(values)), "doc": pa.array(texts, pa.json_())})
