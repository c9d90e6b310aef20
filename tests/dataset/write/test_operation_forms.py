"""Operations have two forms, ours and pylance's, with the same names: one is made of the other field by field."""

from __future__ import annotations

from dataclasses import fields

import pytest

from lance_io import LanceOperation
from lance_io.table.transaction import operations as ops

OPERATIONS = [
    *["Append", "Delete", "Overwrite", "Update", "Merge", "Project", "Restore", "Rewrite", "CreateIndex"],
    *["DataReplacement", "UpdateConfig", "Clone"],
]
PARTS = ["RewriteGroup", "RewrittenIndex", "DataReplacementGroup", "UpdateMap"]
ONLY_PUBLIC = {"RewrittenIndex": {"new_details_type_url", "new_details_value", "new_index_version"}}  # in `message`
ONLY_STORED = {
    "Overwrite": {"config_upsert_values"},
    "Update": {"inserted_rows"},
    "Rewrite": {"moved_rows", "defers", "segments_then"},  # of compactions of our own, which know them
    "RewrittenIndex": {"message", "names_new_rows"},
}


@pytest.mark.parametrize("name", [*OPERATIONS, *PARTS])
def test_both_forms_have_the_same_fields(name: str) -> None:
    public, stored = ({each.name for each in fields(getattr(room, name))} for room in (LanceOperation, ops))
    assert public - stored == ONLY_PUBLIC.get(name, set())
    assert stored - public == ONLY_STORED.get(name, set())
