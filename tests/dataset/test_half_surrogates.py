"""Texts that no file can hold, wherever a caller gives a text: an error by name, whose text can be written anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError
from lance_io.query import MatchQuery, MultiMatchQuery, PhraseQuery

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BAD = "a\ud800b"
CALLS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda table: table.to_table(filter=f"t = '{BAD}'"),
    "name in a filter": lambda table: table.count_rows(f"`{BAD}` = 1"),
    "columns": lambda table: table.to_table(columns=[BAD]),
    "name of a column": lambda table: table.to_table(columns={BAD: "a"}),
    "name of an expression": lambda table: table.to_table(columns={BAD: "a + 1"}),
    "expression": lambda table: table.to_table(columns={"x": f"'{BAD}'"}),
    "order": lambda table: table.scanner(order_by=[BAD]).to_table(),
    "nearest": lambda table: table.to_table(nearest={"column": BAD, "q": [1.0], "k": 1}),
    "words": lambda table: table.to_table(full_text_query=BAD),
    "match": lambda table: table.to_table(full_text_query=MatchQuery(BAD, "t")),
    "column of words": lambda table: table.to_table(full_text_query=MatchQuery("a", BAD)),
    "phrase": lambda table: table.to_table(full_text_query=PhraseQuery(BAD, "t")),
    "several columns": lambda table: table.to_table(full_text_query=MultiMatchQuery(BAD, ["t"])),
    "take": lambda table: table.take([0], columns=[BAD]),
    "keys": lambda table: table.get("t", [BAD]),
    "column of keys": lambda table: table.get(BAD, ["x"]),
    "delete": lambda table: table.delete(f"t = '{BAD}'"),
    "update": lambda table: table.update({"t": f"'{BAD}'"}),
    "column of an update": lambda table: table.update({BAD: "1"}),
    "merge": lambda table: table.merge_insert(BAD).when_matched_update_all().execute(table.to_table()),
    "condition of a merge": lambda table: (
        table.merge_insert("a").when_matched_update_all(f"target.t = '{BAD}'").execute(table.to_table())
    ),
    "sql": lambda table: table.sql(f"select * from dataset where t = '{BAD}'").build().to_batch_records(),
    "table of sql": lambda table: table.sql("select 1").table_name(BAD).build().to_batch_records(),
    "tag": lambda table: table.tags.create(BAD, 1),
    "version of a tag": lambda table: table.checkout_version(BAD),
    "branch": lambda table: table.create_branch(BAD),
    "new column": lambda table: table.add_columns({BAD: "1"}),
    "new name": lambda table: table.alter_columns({"path": "a", "name": BAD}),
    "dropped column": lambda table: table.drop_columns([BAD]),
    "indexed column": lambda table: table.create_scalar_index(BAD, "BTREE"),
    "name of an index": lambda table: table.create_scalar_index("a", "BTREE", name=BAD),
    "language": lambda table: table.create_scalar_index("t", "INVERTED", language=BAD),
    "stop word": lambda table: table.create_scalar_index("t", "INVERTED", custom_stop_words=[BAD]),
    "dropped index": lambda table: table.drop_index(BAD),
    "prewarmed index": lambda table: table.prewarm_index(BAD),
    "config": lambda table: table.update_config({BAD: "x"}),
    "value of config": lambda table: table.update_config({"x": BAD}),
    "metadata": lambda table: table.update_metadata({"x": BAD}),
    "schema metadata": lambda table: table.update_schema_metadata({"x": BAD}),
    "field metadata": lambda table: table.update_field_metadata({"a": {"x": BAD}}),
    "message": lambda table: table.insert(table.to_table(), commit_message=BAD),
    "properties": lambda table: table.insert(table.to_table(), transaction_properties={BAD: "x"}),
    "location": lambda table: lance_io.dataset(f"{table.uri}/{BAD}"),
    "new location": lambda table: lance_io.write_dataset(table.to_table(), f"{table.uri}/{BAD}"),
    "name of an option": lambda table: lance_io.dataset(table.uri, storage_options={BAD: "x"}),
    "option": lambda table: lance_io.dataset(table.uri, storage_options={"aws_region": BAD}),
    "clone": lambda table: table.shallow_clone(f"{table.uri}-{BAD}", 1),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lance_io.LanceDataset:
    """A table with an index of its texts, and one of its words."""
    folder: Path = tmp_path_factory.mktemp("halves") / "t"
    table = lance_io.write_dataset(pa.table({"a": range(5), "t": ["word"] * 5}), folder)
    table.create_scalar_index("t", "BITMAP", name="keys")
    table.create_scalar_index("t", "INVERTED", name="words")
    return table


@pytest.mark.parametrize("name", CALLS)
def test_half_of_a_surrogate_pair(table: lance_io.LanceDataset, name: str) -> None:
    version = table.version
    with pytest.raises(LanceError) as caught:
        CALLS[name](table)
    assert str(caught.value).encode()
    assert lance_io.dataset(table.uri).version == version
