"""Schemas, manifests, fragments and transactions as text: those of pylance, letter by letter."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import lance
import lance.debug
import pyarrow as pa
import pytest
from lance.schema import LanceSchema as PeerSchema

import lance_io
import lance_io.debug
from lance_io.errors import UnsupportedError
from lance_io.schema import LanceSchema

if TYPE_CHECKING:
    from pathlib import Path

NESTED = pa.struct([pa.field("q", pa.int8(), nullable=False), ("l", pa.large_list(pa.string()))])
TYPES = [pa.null(), pa.bool_(), pa.float16(), pa.decimal128(10, 2), pa.timestamp("us", "UTC"), pa.string()]
TYPES += [pa.large_binary(), pa.binary(4), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.int32()), NESTED]
TYPES += [pa.list_(pa.float32(), 4), pa.list_(NESTED, 2), pa.map_(pa.string(), pa.int32()), pa.duration("s")]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_schemas(dtype: pa.DataType) -> None:
    fields = [pa.field('a"\n\\é', dtype, metadata={"k": "'v'\t"}), pa.field("b", pa.int8(), nullable=False)]
    schema = pa.schema(fields, metadata={"m": "n"})
    ours, theirs = LanceSchema.from_pyarrow(schema), PeerSchema.from_pyarrow(schema)
    assert repr(ours) == repr(theirs) == str(ours)
    for one, other in zip(ours.fields(), theirs.fields(), strict=True):
        assert repr(one) == repr(other)
        assert [repr(child) for child in one.children()] == [repr(child) for child in other.children()]
        assert one.metadata == other.metadata == one.metadata() and isinstance(one.metadata, dict)
    assert repr(ours.field("b")) == repr(theirs.field("b"))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table with deletions, configuration, a column in a file of its own, and an index."""
    dataset = lance.write_dataset(pa.table({"a": range(10), "s": ["x"] * 10}), str(tmp_path / "t"), max_rows_per_file=6)
    dataset.delete("a in (2, 7)")
    dataset.add_columns({"z": "a * 2"})
    dataset.create_scalar_index("a", "BTREE")
    dataset.update_config({"k": "v"})
    return str(tmp_path / "t")


@pytest.mark.parametrize("version", range(1, 6))
def test_manifests_and_fragments(uri: str, version: int) -> None:
    ours, theirs = lance_io.dataset(uri, version), lance.dataset(uri, version)
    assert lance_io.debug.format_schema(ours) == lance.debug.format_schema(theirs)
    assert lance_io.debug.format_manifest(ours) == lance.debug.format_manifest(theirs)
    for one, other in zip(ours.get_fragments(), theirs.get_fragments(), strict=True):
        expected = lance.debug.format_fragment(other.metadata, theirs)
        assert lance_io.debug.format_fragment(one.metadata, ours) == expected
        assert lance_io.debug.format_fragment(one, ours) == expected


def test_transactions(uri: str) -> None:
    ours = lance_io.debug.list_transactions(lance_io.dataset(uri))
    theirs = lance.debug.list_transactions(lance.dataset(uri))
    assert len(ours) == len(theirs) == 5

    def head(text: str) -> list[str]:
        return re.findall(r"read_version: \d+,\n    uuid: .*,\n    operation: \w+", text)

    assert [head(one) for one in ours] == [head(one) for one in theirs]
    assert len(lance_io.debug.list_transactions(lance_io.dataset(uri), 2)) == 2


def test_a_fragment_is_shown_as_it_is_given(uri: str) -> None:
    """Whatever the table's version says of its id: new files, of fields that the table may not have."""
    (written,) = lance.fragment.write_fragments(pa.table({"a": range(3), "s": ["x"] * 3}), uri)
    texts: list[list[str]] = []
    for library in (lance_io, lance):
        fragments, dataset = library.fragment, library.dataset(uri)
        first = dataset.get_fragments()[0].metadata
        new = fragments.FragmentMetadata.from_json(json.dumps(written.to_json()))
        given = [
            fragments.FragmentMetadata(99, [], 5),
            fragments.FragmentMetadata(99, first.files, 7, first.deletion_file),
            new,
            fragments.FragmentMetadata(1, [fragments.DataFile("z.lance", [0, 77, -2, 1], [0, 1, 2, 3], 2, 1)], 3),
            fragments.FragmentMetadata(1, [fragments.DataFile("z.lance", [0], [], 0, 2)], 3),
        ]
        texts.append([library.debug.format_fragment(one, dataset) for one in given])
    assert texts[0] == texts[1]
    old = lance_io.dataset(uri, version=1).get_fragments()[0]
    assert "deletion_file: None" in lance_io.debug.format_fragment(old, lance_io.dataset(uri))
    unknown = lance_io.FragmentMetadata(1, [lance_io.fragment.DataFile("z.lance", [0], [0], 9, 9)], 3)
    with pytest.raises(UnsupportedError, match=r"unknown file version 9\.9"):
        lance_io.debug.format_fragment(unknown, lance_io.dataset(uri))
