"""Fragments, their metadata and its JSON, schemas with ids, statistics: compared with pylance."""

from __future__ import annotations

import json
import pickle

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import lance_io
from lance_io.fragment import DataFile, DeletionFile, FragmentMetadata, LanceFragment, RowIdMeta
from lance_io.schema import LanceSchema, json_to_schema, schema_to_json


@pytest.mark.parametrize("which", ["mixed_uri", "stable_uri"])
def test_metadata_is_that_of_pylance(which: str, request: pytest.FixtureRequest) -> None:
    uri = request.getfixturevalue(which)
    for ours, theirs in zip(lance_io.dataset(uri).get_fragments(), lance.dataset(uri).get_fragments(), strict=True):
        got, expected = ours.metadata, theirs.metadata
        assert json.loads(json.dumps(got.to_json())) == json.loads(json.dumps(expected.to_json()))
        assert FragmentMetadata.from_json(json.dumps(expected.to_json())) == got
        assert lance.FragmentMetadata.from_json(json.dumps(got.to_json())) == expected
        assert (got.num_rows, got.num_deletions) == (expected.num_rows, expected.num_deletions)
        assert [repr(file) for file in got.files] == [repr(file) for file in expected.files]
        assert ours.deletion_file() == theirs.deletion_file()
        assert repr(ours) == repr(theirs)
        for name in ("fragment_id", "physical_rows", "num_deletions"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.count_rows() == theirs.count_rows()


def test_pieces_of_metadata_travel_as_json(mixed_uri: str) -> None:
    metadata = lance_io.dataset(mixed_uri).get_fragments()[0].metadata
    assert metadata.deletion_file is not None
    assert DeletionFile.from_json(metadata.deletion_file.json()) == metadata.deletion_file
    expected = lance.dataset(mixed_uri).get_fragments()[0].metadata.deletion_file
    assert metadata.deletion_file.json() == expected.json()
    assert RowIdMeta.from_json(RowIdMeta(b"\x01\xff").json()) == RowIdMeta(b"\x01\xff")
    with pytest.warns(DeprecationWarning, match=r"use DataFile\.fields"):
        assert DataFile("x", [1]).field_ids() == [1]
    for bad in ("[]", "{}", '{"id": 1, "files": [{}], "physical_rows": 1}'):
        with pytest.raises(ValueError, match=r"JSON"):
            FragmentMetadata.from_json(bad)


def test_a_fragment_scans_only_itself(mixed_uri: str) -> None:
    ours, theirs = lance_io.dataset(mixed_uri).get_fragment(2), lance.dataset(mixed_uri).get_fragment(2)
    assert isinstance(ours, LanceFragment)
    options = {"columns": ["s", "_rowoffset"], "with_row_id": True, "offset": 2, "limit": 9}
    assert ours.to_table(**options).equals(theirs.to_table(**options))
    assert ours.head(2).equals(theirs.head(2))
    assert [b.num_rows for b in ours.to_batches(batch_size=7)] == [b.num_rows for b in theirs.to_batches(batch_size=7)]
    assert ours.count_rows(pc.field("doubled") > 120) == theirs.count_rows("doubled > 120")
    assert ours.schema == theirs.schema
    assert pa.table(ours).num_rows == len(ours)
    assert pickle.loads(pickle.dumps(ours)).to_table().equals(ours.to_table())


def test_fragments_are_found_by_id(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    assert table.fragment_ids() == {0, 1, 2, 3}
    assert table.get_fragment(77) is None
    for wrong, error in (("2", TypeError), (1.0, TypeError), (None, TypeError), (-1, OverflowError)):
        with pytest.raises(error):
            table.get_fragment(wrong)
    assert LanceFragment(table, 1).fragment_id == 1
    with pytest.raises(ValueError, match="no fragment 77"):
        LanceFragment(table, 77)
    with pytest.raises(ValueError, match="does not support filter"):
        table.get_fragments(pc.field("a") > 3)
    with pytest.raises(ValueError, match="does not support filter"):
        list(table._get_fragments(pc.field("a") > 3))  # as a dataset of pyarrow is asked


def test_the_schema_shows_field_ids(mixed_uri: str) -> None:
    ours, theirs = lance_io.dataset(mixed_uri).lance_schema, lance.dataset(mixed_uri).lance_schema

    def tree(field: object) -> list[object]:
        return [field.name(), field.id(), field.to_arrow(), [tree(child) for child in field.children()]]  # type: ignore[attr-defined]

    assert [tree(field) for field in ours.fields()] == [tree(field) for field in theirs.fields()]
    assert ours.to_pyarrow().equals(lance_io.dataset(mixed_uri).schema, check_metadata=True)
    member = ours.field("n.x")
    assert member is not None
    assert (member.id(), ours.field("n.zz")) == (2, None)
    folded = ours.field_case_insensitive("N.Y")
    assert folded is not None
    assert folded.name() == "y"
    fresh = LanceSchema.from_pyarrow(pa.schema([("b", pa.int8()), ("c", pa.list_(pa.string()))]))
    assert [field.id() for field in fresh.fields()] == [0, 1]


def test_schemas_as_json_are_those_of_pylance() -> None:
    members = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    types = [pa.int64(), members, pa.list_(pa.string()), pa.large_list(pa.int8()), pa.list_(pa.float32(), 4)]
    types += [pa.dictionary(pa.int8(), pa.string()), pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.binary(5)]
    fields = [pa.field(f"f{i}", dtype, metadata={"k": "v"}) for i, dtype in enumerate(types)]
    schema = pa.schema(fields, metadata={"q": "w"})
    assert schema_to_json(schema) == lance.schema_to_json(schema)
    assert json_to_schema(schema_to_json(schema)).equals(schema, check_metadata=True)
    with pytest.raises(ValueError, match="JSON of a schema"):
        json_to_schema({"fields": [{}]})


def test_statistics_are_those_of_pylance(mixed_uri: str) -> None:
    ours, theirs = lance_io.dataset(mixed_uri), lance.dataset(mixed_uri)
    assert ours.stats.dataset_stats() == theirs.stats.dataset_stats()
    got = {field.id: field.bytes_on_disk for field in ours.stats.data_stats().fields}
    assert got == {field.id: field.bytes_on_disk for field in theirs.stats.data_stats().fields}


def test_properties_of_the_table(mixed_uri: str, stable_uri: str) -> None:
    for uri in (mixed_uri, stable_uri):
        ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
        for name in ("uri", "data_storage_version", "max_field_id", "has_stable_row_ids", "has_index", "metadata"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.schema_metadata == theirs.schema_metadata
        assert ours.config() == theirs.config()
        assert ours.schema.equals(theirs.schema, check_metadata=True)


@pytest.mark.parametrize(
    ("ours", "inherited"),
    [
        (lance_io.LanceDataset, pyarrow.dataset.Dataset),
        (lance_io.LanceScanner, pyarrow.dataset.Scanner),
        (lance_io.LanceFragment, pyarrow.dataset.Fragment),
    ],
    ids=lambda cls: cls.__name__,
)
def test_nothing_of_pyarrow_shines_through(ours: type, inherited: type) -> None:
    """An inherited method would follow a null pointer: there is no C++ object behind ours."""
    public = [name for name in vars(inherited) if not name.startswith("__")]
    assert [name for name in public if next(one for one in ours.__mro__ if name in vars(one)) is inherited] == []
    assert issubclass(ours, inherited)


def test_what_is_not_offered_says_so(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    for call in (table.join, table.join_asof, table.sort_by, table.filter, table.replace_schema):
        with pytest.raises(NotImplementedError):
            call(None)
    for thing in (table, table.get_fragments()[0]):
        with pytest.raises(NotImplementedError):
            _ = thing.partition_expression
    for call in (table.scanner().take, lance_io.LanceScanner.from_batches):
        with pytest.raises(NotImplementedError):
            call([1])
