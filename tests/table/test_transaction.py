"""Transactions from and to bytes: pylance's, damaged ones, and fields that nobody here knows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lance_io.errors import FormatError, UnsupportedError
from lance_io.proto import transaction_pb2
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.operations import operation_name
from lance_io.table.transaction.transaction import (
    COMMIT_MESSAGE_KEY,
    Transaction,
    decode_transaction,
    encode_transaction,
)
from tests.table.test_apply import write_history
from tests.table.test_conflicts import SITUATIONS, fragment

if TYPE_CHECKING:
    from pathlib import Path

LATER = b"\xfa\x3f\x03new"  # field 1023, of a later release
OPERATIONS = {operation_name(one): one for mine, other, _ in SITUATIONS.values() for one in (mine, other)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("history") / "t"
    write_history(root, stable=True)
    return sorted((root / "_transactions").iterdir())


def test_pylances_files_come_back_unchanged(files: list[Path]) -> None:
    for path in files:
        data = path.read_bytes()
        transaction = decode_transaction(data)
        assert transaction.file_name == path.name
        assert encode_transaction(transaction) == transaction_pb2.Transaction.FromString(data)
        made_here = encode_transaction(replace(transaction, message=None))
        assert decode_transaction(made_here.SerializeToString()) == transaction


def test_a_commit_message_is_a_property() -> None:
    transaction = Transaction(3, ops.Restore(1), properties={COMMIT_MESSAGE_KEY: "back"})
    message = encode_transaction(transaction)
    assert dict(message.transaction_properties) == {COMMIT_MESSAGE_KEY: "back"}
    assert decode_transaction(message.SerializeToString()) == transaction
    assert transaction.path == f"_transactions/3-{transaction.uuid}.txn"


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "Unknown"])
def test_every_operation_comes_back(name: str) -> None:
    transaction = Transaction(1, OPERATIONS[name])
    assert decode_transaction(encode_transaction(transaction).SerializeToString()) == transaction


def test_an_operation_of_a_later_release_is_unknown() -> None:
    data = encode_transaction(Transaction(1, ops.Unknown())).SerializeToString() + b"\xc2\x07\x00"  # field 120
    assert decode_transaction(data).operation == ops.Unknown()
    assert encode_transaction(decode_transaction(data)).SerializeToString() == data


def test_a_delete_of_whole_fragments_names_only_them() -> None:
    message = encode_transaction(Transaction(1, ops.Delete(deleted_fragment_ids=(3, 5))))
    assert (list(message.delete.updated_fragments), list(message.delete.deleted_fragment_ids)) == ([], [3, 5])


@pytest.mark.parametrize(("ref", "branch"), [("tag", None), (None, "work"), ("tag", "work"), (None, None)])
def test_a_clone_says_what_was_cloned(ref: str | None, branch: str | None) -> None:
    made = Transaction(1, ops.Clone(True, ref, 3, "s3://bucket/t.lance", branch))
    message = transaction_pb2.Transaction.FromString(encode_transaction(made).SerializeToString()).clone
    said = {field.name: value for field, value in message.ListFields()}
    names = {name: text for name, text in (("ref_name", ref), ("branch_name", branch)) if text is not None}
    assert said == {"is_shallow": True, "ref_version": 3, "ref_path": "s3://bucket/t.lance", **names}
    assert decode_transaction(encode_transaction(made).SerializeToString()).operation == made.operation


def test_what_is_not_known_survives_a_rebase() -> None:
    first = encode_transaction(Transaction(1, ops.Delete((fragment(3),), (), "p")))
    first.delete.ParseFromString(first.delete.SerializeToString() + LATER)
    read = decode_transaction(first.SerializeToString() + LATER)
    rebased = read.rebase(ops.Delete((replace(fragment(3), physical_rows=7),), (5,), "p"), 4)
    message = encode_transaction(decode_transaction(encode_transaction(rebased).SerializeToString()))
    assert (message.read_version, message.uuid) == (4, read.uuid)
    assert list(message.delete.deleted_fragment_ids) == [5]
    assert LATER in message.delete.SerializeToString()
    assert message.SerializeToString().count(LATER) == 2


def test_configs_of_old_releases_are_translated() -> None:
    message = transaction_pb2.Transaction(read_version=1)
    old = message.update_config
    old.upsert_values["a"] = "1"
    old.delete_keys.append("b")
    old.schema_metadata["s"] = "2"
    old.field_metadata[3].metadata["f"] = "3"
    operation = decode_transaction(message.SerializeToString()).operation
    assert operation == ops.UpdateConfig(
        config_updates=ops.UpdateMap({"b": None, "a": "1"}),
        schema_metadata_updates=ops.UpdateMap({"s": "2"}, replace=True),
        field_metadata_updates={3: ops.UpdateMap({"f": "3"}, replace=True)},
    )


def test_rewrites_of_old_releases_have_one_group() -> None:
    message = transaction_pb2.Transaction(read_version=1)
    message.rewrite.old_fragments.add(id=4)
    message.rewrite.new_fragments.add(id=9)
    operation = decode_transaction(message.SerializeToString()).operation
    assert isinstance(operation, ops.Rewrite)
    assert [(group.old_fragments[0].id, group.new_fragments[0].id) for group in operation.groups] == [(4, 9)]


@pytest.mark.parametrize("uuid", ["../../../etc/passwd", "a/b", "x", "00000000-0000-4000-8000-00000000000g"])
def test_an_identifier_that_could_be_a_path_is_refused(uuid: str) -> None:
    with pytest.raises(FormatError, match="UUID"):
        decode_transaction(transaction_pb2.Transaction(uuid=uuid).SerializeToString())


def test_damage_is_an_error_of_ours(files: list[Path]) -> None:
    chance = random.Random(7)
    for path in files:
        data = path.read_bytes()
        damaged = [data[:end] for end in range(0, len(data), max(len(data) // 40, 1))]
        for _ in range(40):
            changed = bytearray(data)
            changed[chance.randrange(len(data))] = chance.randrange(256)
            damaged.append(bytes(changed))
        for each in damaged:
            try:
                encode_transaction(decode_transaction(each))
            except (FormatError, UnsupportedError):
                pass
