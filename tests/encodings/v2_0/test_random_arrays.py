"""Random nested types in files of version 2.0: those of pylance read by us, ours read by pylance."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lance_io.file import LanceFileWriter
from tests.encodings.harness import Opened, assert_same, peer_table, write
from tests.encodings.test_random_types import (
    ODDS,
    Odds,
    Values,
    check_file,
    failed_inside_pylance,
    leaf_values,
    named,
    run_examples,
    types,
)


class ValuesWithoutNullStructs(Values):
    """Rows in which structs are there, as this version cannot say otherwise."""

    def value(self, dtype: pa.DataType, nullable: bool = True) -> Any:
        return super().value(dtype, nullable and not pa.types.is_struct(dtype))


def without_packed(field: pa.Field) -> pa.Field:
    """A field without marks of packed structs, most of which pylance writes and cannot read."""
    dtype = field.type
    if pa.types.is_struct(dtype):
        return pa.field(field.name, pa.struct([without_packed(member) for member in dtype]))
    if pa.types.is_large_list(dtype):
        return field.with_type(pa.large_list(without_packed(dtype.value_field)))
    return field.with_type(pa.list_(without_packed(dtype.value_field))) if pa.types.is_list(dtype) else field


COLUMNS = st.integers(0, 4).flatmap(lambda depth: named("c", types(depth, "2.0"))).map(without_packed)


def make(field: pa.Field, odds: Odds, count: int) -> pa.Table:
    items = 1 + odds.items_max / 2
    count = min(count, 1 + int(6000 / (1 + leaf_values(field.type, items))))
    return pa.Table.from_arrays([ValuesWithoutNullStructs(odds).rows(field.type, count)], schema=pa.schema([field]))


@run_examples
@given(COLUMNS, ODDS, st.sampled_from([0, 1, 20, 300, 1100]), st.booleans())
def test_reads_random_arrays(field: pa.Field, odds: Odds, count: int, tiny_pages: bool) -> None:
    table = make(field, odds, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.lance"
        try:
            write(path, table, "2.0", tiny_pages=tiny_pages)
        except BaseException as error:
            if not failed_inside_pylance(error):
                raise
            assume(False)
        check_file(path, table)


@run_examples
@given(COLUMNS, ODDS, st.sampled_from([0, 1, 20, 300, 1100]), st.sampled_from([None, 1, 500]))
def test_writes_random_arrays(field: pa.Field, odds: Odds, count: int, page_bytes: int | None) -> None:
    table = make(field, odds, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.lance"
        with LanceFileWriter(path, table.schema, version="2.0", max_page_bytes=page_bytes) as writer:
            for batch in table.to_batches(max_chunksize=111):
                writer.write_batch(batch)
        assert_same(Opened(path).read()[0], table["c"])
        assert_same(peer_table(path)["c"], table["c"])
        check_file(path, table)


@pytest.mark.parametrize("dtype", [pa.list_(pa.list_(pa.string())), pa.list_(pa.list_(pa.struct([("a", pa.int8())])))])
def test_lists_without_any_item(dtype: pa.DataType, tmp_path: Path) -> None:
    for name, rows in {"null": [None] * 9, "empty": [[]] * 9, "of none": [[[], None]] * 9}.items():
        table, path = pa.table({"c": pa.array(rows, dtype)}), tmp_path / f"{name}.lance"
        with LanceFileWriter(path, table.schema, version="2.0") as writer:
            writer.write_batch(table)
        assert peer_table(path)["c"].to_pylist() == rows
        check_file(path, table)
