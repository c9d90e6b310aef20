"""Schemas, manifests, fragments and transactions as text: those of pylance, letter by letter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import lance
import lance.debug
import pyarrow as pa
import pytest
from lance.schema import LanceSchema as PeerSchema

import lance_io
import lance_io.debug
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
    with pytest.raises(ValueError, match="no fragment 77"):
        lance_io.debug.format_fragment(lance_io.FragmentMetadata(77, [], 1), lance_io.dataset(uri))
