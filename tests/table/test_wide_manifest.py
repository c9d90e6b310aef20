"""Versions of tables with wide schemas, whose fields are not decoded at opening: the same as all decoded at once."""

from __future__ import annotations

import random
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError
from lance_io.format import flat_fields
from lance_io.format.flat_fields import FIELDS_MIN, FlatFields
from lance_io.format.footer import MAGIC
from lance_io.proto import file_pb2, table_pb2
from lance_io.table.manifest import manifest as manifests
from lance_io.table.manifest.manifest import Manifest, decode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_FIELDS = FIELDS_MIN + 30


def wide_message() -> table_pb2.Manifest:
    """A version of three fragments, with metadata of every kind."""
    message = table_pb2.Manifest(version=7, transaction_file="7-a.txn", max_fragment_id=9, next_row_id=0)
    for number in range(NUM_FIELDS):
        one = message.fields.add(name=f"c{number}", id=number, parent_id=-1, nullable=True)
        one.logical_type = ("int64", "double", "string")[number % 3]
        if number % 40 == 0:
            one.metadata["about"] = b"it"
    message.schema_metadata["owner"] = b"\xff"
    message.config["a"] = "b"
    message.data_format.file_format, message.data_format.version = "lance", "2.2"
    message.writer_version.library, message.writer_version.version = "lance", "14.0.2"
    message.timestamp.seconds = 1_700_000_000
    for number in range(3):
        fragment = message.fragments.add(id=number, physical_rows=10)
        file = fragment.files.add(path=f"{number}.lance", file_major_version=2, file_minor_version=2)
        file.fields.extend(range(NUM_FIELDS))
        file.column_indices.extend(range(NUM_FIELDS))
    return message


def as_file(content: bytes) -> bytes:
    """A manifest file with nothing in front of the message."""
    return manifests._LENGTH.pack(len(content)) + content + manifests._FOOTER.pack(0, 0, 2, MAGIC)


def outcome(data: bytes, monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> Any:
    """The version with its whole message, or what is said instead."""
    with monkeypatch.context() as patched:
        if at_once:
            patched.setattr(flat_fields, "FIELDS_MIN", 1 << 30)
            patched.setattr(manifests, "_decode_wide", lambda *_: None)
        try:
            found = decode_manifest(data)
            return found, [found.fragments[place] for place in range(len(found.fragments))], found.message
        except LanceError as error:
            return type(error), str(error)


def _without_writer(message: table_pb2.Manifest) -> None:
    message.ClearField("writer_version")
    message.fragments[0].deletion_file.num_deleted_rows = 3


def _nested(message: table_pb2.Manifest) -> None:
    message.fields.add(name="s", id=1000, parent_id=-1, logical_type="struct")
    message.fields.add(name="x", id=1001, parent_id=1000, logical_type="int64")


def _dictionary(version: str) -> Callable[[table_pb2.Manifest], None]:
    def change(message: table_pb2.Manifest) -> None:
        message.fields.add(name="d", id=1000, parent_id=-1, logical_type="dict:string:int16:false")
        message.data_format.version = version
        for fragment in message.fragments:
            fragment.files[0].file_major_version, fragment.files[0].file_minor_version = {
                "0.1": (0, 1),
                "2.2": (2, 2),
            }[version]

    return change


def _unknown(message: table_pb2.Manifest) -> None:
    message.MergeFromString(b"\xf2\x3e\x04what")  # field 1006 of the manifest
    message.fields[3].MergeFromString(b"\xf2\x3e\x04what")


CHANGES: dict[str, tuple[bool, Callable[[table_pb2.Manifest], None]]] = {  # whether its fields are left for later
    "nothing": (True, lambda message: None),
    "no writer": (True, _without_writer),
    "unknown fields": (True, _unknown),
    "no fragments": (True, lambda message: message.ClearField("fragments")),
    "a dictionary": (True, _dictionary("2.2")),
    "a dictionary of 0.1": (False, _dictionary("0.1")),
    "a nested field": (False, _nested),
    "few fields": (False, lambda message: message.fields.__delitem__(slice(20, None))),
    "a column of files": (False, lambda message: message.fields.add(name="_rowid", id=-3, parent_id=-1)),
    "a name twice": (False, lambda message: setattr(message.fields[5], "name", "c6")),
    "an unknown type": (False, lambda message: setattr(message.fields[5], "logical_type", "int7")),
    "an unknown flag": (False, lambda message: setattr(message, "reader_feature_flags", 1 << 40)),
    "a fragment tree": (False, lambda message: message.fragment_tree.SetInParent()),
    "mixed versions": (False, lambda message: setattr(message.fragments[1].files[0], "file_minor_version", 1)),
    "no time": (False, lambda message: setattr(message.timestamp, "nanos", -1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_version_is_what_it_is_in_general(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_lazy, change = CHANGES[name]
    message = wide_message()
    change(message)
    data = as_file(message.SerializeToString())
    found = outcome(data, monkeypatch, at_once=False)
    assert found == outcome(data, monkeypatch, at_once=True)
    assert isinstance(found[0], Manifest) or not is_lazy
    if is_lazy:
        assert isinstance(found[0].schema.fields, FlatFields)
        assert decode_manifest(data).stored.rest.fields == []
        assert found[2].SerializeToString(deterministic=True) == (
            message if message.HasField("writer_version") else found[2]
        ).SerializeToString(deterministic=True)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_are_what_they_are_in_general(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    whole = wide_message().SerializeToString()
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(dice.choice((1, 1, 3))):
            place = dice.choice((dice.randrange(len(content)), -1 - dice.randrange(200)))
            content[place] = dice.choice((0, 1, 0x0A, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        data = as_file(bytes(content))
        assert outcome(data, monkeypatch, at_once=False) == outcome(data, monkeypatch, at_once=True)


def test_fields_in_several_places_are_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wide_message().SerializeToString()
    later = file_pb2.Field(name="last", id=5000, parent_id=-1, logical_type="int64").SerializeToString()
    data = as_file(whole + b"\x0a" + bytes([len(later)]) + later)
    found = outcome(data, monkeypatch, at_once=False)
    assert found == outcome(data, monkeypatch, at_once=True)
    assert found[0].schema.names[-1] == "last"


def test_threads_that_ask_for_the_message_see_each_field_once() -> None:
    data = as_file(wide_message().SerializeToString())
    for _ in range(20):
        manifest, start = decode_manifest(data), Barrier(4)
        counts: list[int] = []

        def ask(manifest: Manifest = manifest, start: Barrier = start, counts: list[int] = counts) -> None:
            start.wait()
            counts.append(len(manifest.message.fields))

        threads = [Thread(target=ask) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert counts == [NUM_FIELDS] * 4


def test_reading_asks_for_no_message_and_writing_keeps_all_fields(tmp_path: Path) -> None:
    rows = pa.table({f"c{number}": [number, 2 * number] for number in range(NUM_FIELDS)})
    lance_io.write_dataset(rows, tmp_path)
    ds = lance_io.dataset(tmp_path)
    assert ds.to_table(columns=["c9"]).to_pydict() == {"c9": [9, 18]}
    assert ds.take([1], columns=["c7"]).to_pydict() == {"c7": [14]}
    assert ds.count_rows() == 2
    assert ds._state.manifest.stored.rest.fields == []
    ds = lance_io.write_dataset(rows, ds, mode="append")
    assert lance_io.dataset(tmp_path).to_table() == pa.concat_tables([rows, rows])
    assert lance_io.dataset(tmp_path)._state.manifest.message == ds._state.manifest.message
