"""Tables made by pylance, shared by the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64(), metadata={"k": "v"}),
        pa.field("n", pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])),
        pa.field("l", pa.list_(pa.struct([("p", pa.int8()), ("q", pa.utf8())]))),
        pa.field("s", pa.string(), nullable=False),
        pa.field("u", pa.uuid()),
    ],
    metadata={"origin": "tests"},
)


def rows(start: int, end: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "a": i if i % 7 else None,
                "n": None if i % 5 == 2 else {"x": i, "y": str(i)},
                "l": [{"p": i % 100, "q": "z"}] * (i % 3),
                "s": f"s{i}",
                "u": i.to_bytes(16, "big"),
            }
            for i in range(start, end)
        ],
        schema=SCHEMA,
    )


@pytest.fixture(scope="session")
def mixed_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """100 rows in fragments of 25, deletions in three of them, a renamed, an added and a rewritten column."""
    uri = str(tmp_path_factory.mktemp("tables") / "mixed.lance")
    table = lance.write_dataset(rows(0, 100), uri, max_rows_per_file=25, data_storage_version="2.1")
    table.delete("s in ('s3', 's4', 's5', 's30', 's99')")
    table.add_columns({"twice": "a * 2"})
    table.delete("s in ('s60', 's0')")
    table.alter_columns({"path": "twice", "name": "doubled"})
    table.add_columns(pa.field("nothing", pa.float32()))
    return uri


@pytest.fixture(scope="session")
def stable_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with stable row ids, updated, deleted from and compacted."""
    uri = str(tmp_path_factory.mktemp("tables") / "stable.lance")
    numbers = pa.table({"i": range(200), "t": [f"t{i}" for i in range(200)]})
    table = lance.write_dataset(numbers, uri, max_rows_per_file=50, enable_stable_row_ids=True)
    table.delete("i % 10 = 3")
    table.update({"t": "'new'"}, where="i % 10 = 4")
    table.optimize.compact_files(target_rows_per_fragment=100)
    table.delete("i = 150")
    return uri


@pytest.fixture
def mutable_uri(tmp_path: Path) -> str:
    """A table of ten rows for tests that change it."""
    uri = str(tmp_path / "mutable.lance")
    lance.write_dataset(pa.table({"i": range(10)}), uri, data_storage_version="2.2")
    return uri
