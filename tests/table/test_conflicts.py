"""The notes of the conflict matrix, one situation per line; what pylance says of the raw pairs is in `tests/commit`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lance_io.errors import CommitConflictError
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_2
from lance_io.table.manifest.fragment import DataFile, DeletionFile, Fragment
from lance_io.table.manifest.index_section import IndexMetadata
from lance_io.table.manifest.manifest import BasePath
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.conflicts import MATRIX, check_conflict, judge
from lance_io.table.transaction.transaction import Transaction, decode_transaction, encode_transaction

SCHEMA = schema_from_arrow(pa.schema([("a", pa.int32()), ("b", pa.int32())]))
UUID = "00000000-0000-4000-8000-00000000000{}"


def file(*fields: int) -> DataFile:
    return DataFile("x.lance", fields, tuple(range(len(fields))), V2_2, 100, None)


def fragment(fragment_id: int = 0, *, fields: tuple[int, ...] = (0, 1), deleted: int = 0) -> Fragment:
    deletion = DeletionFile("arrow", 1, deleted, deleted, None) if deleted else None
    return Fragment(fragment_id, (file(*fields),), deletion, 100, None, None, None)


def delete(*ids: int, gone: tuple[int, ...] = ()) -> ops.Delete:
    return ops.Delete(tuple(fragment(one, deleted=3) for one in ids), gone, "")


def update(*ids: int, **more: Any) -> ops.Update:
    values = {"updated_fragments": tuple(fragment(one, deleted=3) for one in ids), "new_fragments": (fragment(),)}
    return ops.Update(**{**values, **more})


def columns(*ids: int, fields: tuple[int, ...] = (1,)) -> ops.Update:
    return update(*ids, new_fragments=(), update_mode="rewrite_columns", fields_modified=fields)


def rewrite(*ids: int) -> ops.Rewrite:
    return ops.Rewrite((ops.RewriteGroup(tuple(fragment(one) for one in ids), (fragment(10),)),))


def index(name: str = "i", field: int = 0, covers: set[int] | None = None, number: int = 1) -> IndexMetadata:
    return IndexMetadata(UUID.format(number), name, (field,), 1, None if covers is None else frozenset(covers))


def indexed(*indices: IndexMetadata, removed: tuple[IndexMetadata, ...] = ()) -> ops.CreateIndex:
    return ops.CreateIndex(indices, removed)


def replaced(fragment_id: int = 0, *fields: int) -> ops.DataReplacement:
    return ops.DataReplacement((ops.DataReplacementGroup(fragment_id, file(*(fields or (0, 1)))),))


def merge(*, keeps: bool = False) -> ops.Merge:
    return ops.Merge((fragment(),), SCHEMA, preserves_nullability=keeps)


def project(*names: str, keeps: bool = False) -> ops.Project:
    return ops.Project(SCHEMA.project(names or ("a", "b")), preserves_nullability=keeps)


def config(replace: bool = False, **entries: str | None) -> ops.UpdateConfig:
    return ops.UpdateConfig(config_updates=ops.UpdateMap(entries, replace))


def metadata(replace: bool = False, **entries: str | None) -> ops.UpdateConfig:
    return ops.UpdateConfig(table_metadata_updates=ops.UpdateMap(entries, replace))


OF_SCHEMA = ops.UpdateConfig(schema_metadata_updates=ops.UpdateMap({"k": "v"}))


def of_field(field_id: int) -> ops.UpdateConfig:
    return ops.UpdateConfig(field_metadata_updates={field_id: ops.UpdateMap({"k": "v"})})


def keys(*hashes: int, fields: tuple[int, ...] = (0,)) -> ops.Update:
    return update(inserted_rows=ops.KeyFilter(fields, frozenset(hashes)))


def bloom(bitmap: bytes, num_bits: int = 8) -> ops.Update:
    return update(inserted_rows=ops.KeyFilter((0,), None, bitmap, num_bits, 1, 0.1))


def base(number: int, name: str | None, path: str) -> ops.UpdateBases:
    return ops.UpdateBases((BasePath(number, path, False, name),))


APPEND = ops.Append((fragment(),))
OVERWRITE = ops.Overwrite((fragment(),), SCHEMA)
CONFIGURED = ops.Overwrite((fragment(),), SCHEMA, {"k": "v"})
WAL = ops.UpdateMemWalState()

SITUATIONS = {
    "f: both touched one fragment": (delete(0), rewrite(0, 1), "retryable"),
    "f: other fragments": (delete(2), rewrite(0, 1), "ok"),
    "f: replaced data of a rewritten fragment": (replaced(1), rewrite(0, 1), "retryable"),
    "r: one fragment, rows unknown": (delete(0), delete(0), "retryable"),
    "r: other fragments": (delete(0), update(1), "ok"),
    "r: a fragment that the other one removed": (delete(0), delete(gone=(0,)), "retryable"),
    "r: a fragment that I remove": (delete(gone=(0,)), delete(0), "retryable"),
    "k: nobody says which keys": (update(0), APPEND, "ok"),
    "k: keys against an append": (keys(1), APPEND, "retryable"),
    "k: an append against keys": (APPEND, keys(1), "ok"),
    "k: the same key": (keys(1, 2), keys(2, 3), "retryable"),
    "k: other keys": (keys(1), keys(2), "ok"),
    "k: keys of other fields": (keys(1), keys(2, fields=(1,)), "retryable"),
    "k: the other one does not say": (keys(1), update(1), "retryable"),
    "k: filters without a common bit": (bloom(b"\x05"), bloom(b"\x0a"), "ok"),
    "k: filters with a common bit": (bloom(b"\x05"), bloom(b"\x04"), "retryable"),
    "k: filters of other sizes": (bloom(b"\x05"), bloom(b"\x0a", 9), "retryable"),
    "k: a filter against keys": (bloom(b"\x05"), keys(1), "retryable"),
    "n: nullability may have changed": (APPEND, project(), "retryable"),
    "n: nullability is kept": (APPEND, project(keeps=True), "ok"),
    "n: mine changes it": (project(), APPEND, "retryable"),
    "n: mine keeps it": (project(keeps=True), update(0), "ok"),
    "n: columns added that keep it": (APPEND, merge(keeps=True), "ok"),
    "n: columns added, mine is the addition": (merge(keeps=True), APPEND, "retryable"),
    "np: a replaced field was dropped": (replaced(0, 1), project("a", keeps=True), "incompatible"),
    "np: another field was dropped": (replaced(0, 0), project("a", keeps=True), "ok"),
    "np: nullability comes first": (replaced(0, 1), project("a"), "retryable"),
    "c: both set one key": (config(k="1"), config(k="2"), "incompatible"),
    "c: one deletes what the other sets": (config(k="1"), config(k=None), "incompatible"),
    "c: both delete one key": (config(k=None), config(k=None), "ok"),
    "c: other keys": (config(k="1"), config(q="1"), "ok"),
    "c: replacing all keys": (config(True, k="1"), config(q="1"), "ok"),
    "c: one key of the table's metadata": (metadata(k="1"), metadata(k=None), "incompatible"),
    "c: other keys of the table's metadata": (metadata(k="1"), metadata(q="1"), "ok"),
    "c: replacing the table's metadata": (metadata(True, k="1"), metadata(q="1"), "incompatible"),
    "c: both the schema's metadata": (OF_SCHEMA, OF_SCHEMA, "incompatible"),
    "c: metadata of one field": (of_field(0), of_field(0), "incompatible"),
    "c: metadata of other fields": (of_field(0), of_field(1), "ok"),
    "c: the table's against the schema's": (metadata(k="1"), OF_SCHEMA, "ok"),
    "c: an overwrite that sets a key": (CONFIGURED, config(k="1"), "incompatible"),
    "c: an overwrite that sets another": (CONFIGURED, config(q="1"), "ok"),
    "cR: two overwrites": (OVERWRITE, OVERWRITE, "retryable"),
    "cR: two overwrites that set one key": (CONFIGURED, CONFIGURED, "incompatible"),
    "m: a key that the overwrite set": (config(k="1"), CONFIGURED, "incompatible"),
    "m: another key": (config(q="1"), CONFIGURED, "ok"),
    "m: metadata of the schema that is gone": (OF_SCHEMA, OVERWRITE, "incompatible"),
    "g: metadata of the schema, columns added": (OF_SCHEMA, merge(), "retryable"),
    "g: columns added, metadata of a field": (merge(), of_field(0), "retryable"),
    "g: columns added, config": (merge(), config(k="1"), "ok"),
    "h: metadata of the schema, restored": (OF_SCHEMA, ops.Restore(1), "incompatible"),
    "h: restored over metadata of a field": (ops.Restore(1), of_field(0), "incompatible"),
    "h: restored over config": (ops.Restore(1), config(k="1"), "ok"),
    "e: the fragment is gone": (replaced(0), delete(gone=(0,)), "incompatible"),
    "e: rows of the fragment are gone": (replaced(0), delete(0), "ok"),
    "w: the fragment is gone": (replaced(0), update(removed_fragment_ids=(0,)), "incompatible"),
    "w: rows moved out of it": (replaced(0), update(0), "retryable"),
    "w: rows of another moved": (replaced(0), update(1), "ok"),
    "w: the same column was rewritten": (replaced(0, 1), columns(0), "retryable"),
    "w: another column was rewritten": (replaced(0, 0), columns(0), "ok"),
    "v: one field of one fragment": (replaced(0, 0), replaced(0, 0, 1), "retryable"),
    "v: other fields": (replaced(0, 0), replaced(0, 1), "ok"),
    "v: other fragments": (replaced(0, 0), replaced(1, 0), "ok"),
    "d: an index over a replaced field": (indexed(index(field=1)), replaced(0, 1), "retryable"),
    "d: an index over another field": (replaced(0, 0), indexed(index(field=1)), "ok"),
    "b: an index over rewritten rows": (indexed(index(covers={0})), rewrite(0, 1), "retryable"),
    "b: an index over other rows": (rewrite(0, 1), indexed(index(covers={2})), "ok"),
    "b: an index over nobody knows what": (rewrite(0, 1), indexed(index()), "retryable"),
    "x: one name": (indexed(index()), indexed(index(number=2)), "retryable"),
    "x: other names": (indexed(index()), indexed(index("j")), "ok"),
    "x: removed and built on": (indexed(removed=(index(),)), indexed(index(number=2)), "retryable"),
    "l: a log that begins, columns are added": (merge(), indexed(index("__lance_mem_wal")), "retryable"),
    "l: columns were added, a log begins": (indexed(index("__lance_mem_wal")), merge(), "retryable"),
    "l: an index, columns are added": (merge(), indexed(index()), "ok"),
    "x: both the log's": (indexed(index("__lance_mem_wal")), indexed(removed=(index("__lance_mem_wal"),)), "retryable"),
    "u: one id": (base(1, "a", "x"), base(1, "b", "y"), "incompatible"),
    "u: one name": (base(0, "a", "x"), base(0, "a", "y"), "incompatible"),
    "u: one path": (base(0, "a", "x"), base(0, None, "x"), "incompatible"),
    "u: others": (base(0, "a", "x"), base(0, "b", "y"), "ok"),
    "s: two steps of the log": (WAL, WAL, "retryable"),
    "s: a step of the log and an update": (update(0), WAL, "ok"),
    "an operation that nobody knows": (APPEND, ops.Unknown(), "incompatible"),
    "whatever a clone": (ops.Clone(True, None, 1, "x", None), OVERWRITE, "ok"),
}  # fmt: skip


def transaction(operation: ops.Operation) -> Transaction:
    return Transaction(1, operation)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_note(situation: str) -> None:
    mine, other, expected = SITUATIONS[situation]
    assert judge(transaction(mine), transaction(other)) == expected


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_was_written_and_read_back_is_judged_the_same(situation: str) -> None:
    mine, other, expected = SITUATIONS[situation]
    if isinstance(other, ops.Unknown):
        return
    read = [decode_transaction(encode_transaction(transaction(one)).SerializeToString()) for one in (mine, other)]
    assert [one.operation for one in read] == [mine, other]
    assert judge(*read) == expected


@pytest.mark.parametrize(
    ("covers", "expected"), [({0, 1, 2}, "ok"), ({2}, "ok"), ({0, 2}, "retryable"), (None, "retryable")]
)
def test_a_compaction_that_records_its_moves_fits_indices_of_whole_groups(
    covers: set[int] | None, expected: str
) -> None:
    mine = replace(rewrite(0, 1), moved_rows=(b"",))
    assert judge(transaction(mine), transaction(indexed(index(covers=covers)))) == expected


def test_deletions_of_known_rows_can_be_merged() -> None:
    def verdict(mine: ops.Operation, other: ops.Operation) -> str:
        return judge(transaction(mine), transaction(other), knows_rows=True)

    assert verdict(delete(0, 1), delete(0)) == "ok"
    assert verdict(update(0), delete(0)) == "ok"
    assert verdict(delete(0), delete(gone=(0,))) == "retryable"
    assert verdict(delete(gone=(0,)), delete(0)) == "retryable"
    other_files = ops.Update(updated_fragments=(fragment(0, fields=(0, 1, 2)),))
    assert verdict(delete(0), other_files) == "retryable"


def test_the_matrix_is_whole() -> None:
    lines = [line.split() for line in MATRIX.strip().splitlines()]
    assert len(lines) == 1 + 15
    assert {len(line) for line in lines[1:]} == {1 + 15}


def test_errors_name_both_and_say_whether_to_try_again() -> None:
    with pytest.raises(
        CommitConflictError,
        match="This Delete transaction was preempted by concurrent transaction Rewrite at version 7",
    ) as caught:
        check_conflict(transaction(delete(0)), transaction(rewrite(0)), version=7, knows_rows=False)
    assert caught.value.retryable
    with pytest.raises(
        CommitConflictError,
        match="This Append transaction is incompatible with concurrent transaction Overwrite at version 7",
    ) as caught:
        check_conflict(transaction(APPEND), transaction(OVERWRITE), version=7, knows_rows=False)
    assert not caught.value.retryable
    check_conflict(transaction(APPEND), replace(transaction(APPEND), read_version=3), version=7, knows_rows=False)
