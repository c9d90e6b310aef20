"""Every filter of the shared corpus gives the rows, or the exception class, that pylance gave when it was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from lance_io import LanceDataset

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "filter-corpus"
EXPECTED: dict[str, Any] = json.loads((CORPUS / "expected.json").read_text())["filters"]

# refused by pylance, whose parser treats these functions, types and literals as syntax that it does not take
ACCEPTED_HERE = {
    "substr(s,2,1)='1'": [1],
    "trim(s)='v1'": [1],
    "floor(f)=1": [2, 3],
    "cast(a as varchar) like '1%'": [1],
    "cast(a as text)='1'": [1],
    "d + interval '1 day' = date '2024-01-03'": [1],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    with pa.ipc.open_file(CORPUS / "table.arrow") as file:
        recorded = file.read_all()
    aligned = pa.Table.from_pylist(recorded.to_pylist(), schema=recorded.schema)  # pylance takes no other buffers
    uri = str(tmp_path_factory.mktemp("corpus") / "table.lance")
    lance.write_dataset(aligned, uri, data_storage_version="2.2", max_rows_per_file=4)
    return lance_io.dataset(uri)


def outcome(table: LanceDataset, text: str) -> list[int] | str:
    try:
        return sorted(table.to_table(columns=["a"], filter=text)["a"].to_pylist())
    except pa.ArrowInvalid:
        return "error:ArrowInvalid"
    except ValueError:
        return "error:ValueError"


def test_all_of_it(table: LanceDataset) -> None:
    # the recorded row addresses are those of one fragment
    ours = {text: outcome(table, text) for text in EXPECTED if "_row" not in text}
    expected = {text: ACCEPTED_HERE.get(text, found) for text, found in EXPECTED.items() if "_row" not in text}
    assert len(EXPECTED) == 215
    assert ours == expected


def test_row_ids(tmp_path: Path) -> None:
    uri = str(tmp_path / "one.lance")
    lance.write_dataset(pa.table({"a": range(10)}), uri)
    one = lance_io.dataset(uri)
    asked = [text for text in EXPECTED if "_row" in text]
    assert asked
    assert {text: outcome(one, text) for text in asked} == {text: EXPECTED[text] for text in asked}


def test_what_is_accepted_here_was_refused_there() -> None:
    assert all(EXPECTED[text] == "error:ValueError" for text in ACCEPTED_HERE)
