"""Columns marked as blobs or as packed, of fitting and of other types: what pylance stores, we store the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import lance
import lance.file
import pyarrow as pa
import pytest

import lance_io
import lance_io.file
from lance_io.errors import LanceError

MARK: Final = {"lance-encoding:blob": "true", "other": "kept"}
EXTENSION: Final = {"ARROW:extension:name": "lance.blob.v2"}
PACKED: Final = {"lance-encoding:packed": "true"}
DATA: Final = pa.field("data", pa.large_binary())
URI: Final = pa.field("uri", pa.string())
PART: Final = [pa.field("position", pa.uint64()), pa.field("size", pa.uint64())]
BLOB: Final = pa.struct([DATA, URI])
PAIR: Final = pa.struct([("a", pa.int32()), ("b", pa.int32())])
LAYOUTS: Final[dict[str, tuple[pa.DataType, Any]]] = {
    "data and uri": (BLOB, {"data": b"x"}),
    "uri and data": (pa.struct([URI, DATA]), {"data": b"x"}),
    "data": (pa.struct([DATA]), {"data": b"x"}),
    "with a part": (pa.struct([DATA, URI, *PART]), {"data": b"x", "size": 1}),
    "with half a part": (pa.struct([DATA, URI, PART[0]]), {"data": b"x"}),
    "narrow data": (pa.struct([DATA.with_type(pa.binary()), URI]), {"data": b"x"}),
    "wide uri": (pa.struct([DATA, URI.with_type(pa.large_string())]), {"data": b"x"}),
    "not nullable": (pa.struct([DATA.with_nullable(False), URI]), {"data": b"x"}),
    "other names": (PAIR, {"a": 1, "b": 2}),
    "description": (pa.struct(PART), {"position": 1, "size": 1}),
    "values": (pa.large_binary(), b"x"),
    "narrow values": (pa.binary(), b"x"),
    "text": (pa.string(), "x"),
    "list": (pa.list_(pa.large_binary()), [b"x"]),
}
PACKABLE: Final[dict[str, tuple[pa.DataType, Any]]] = {
    "struct": (PAIR, {"a": 1, "b": 2}),
    "empty struct": (pa.struct([]), {}),
    "list": (pa.list_(pa.int32()), [1, 2]),
    "large list": (pa.large_list(pa.int32()), [1]),
    "list of structs": (pa.list_(PAIR), [{"a": 1, "b": 2}]),
    "vectors": (pa.list_(pa.int32(), 2), [1, 2]),
    "vectors of structs": (pa.list_(PAIR, 1), [{"a": 1, "b": 2}]),
    "map": (pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    "number": (pa.int32(), 1),
}


def _cases() -> dict[str, tuple[pa.Field, list[Any]]]:
    cases: dict[str, tuple[pa.Field, list[Any]]] = {}
    for name, (dtype, value) in LAYOUTS.items():
        cases[f"marked, {name}"] = pa.field("x", dtype, metadata=MARK), [value, None]
        cases[f"extension, {name}"] = pa.field("x", dtype, metadata=EXTENSION), [value, None]
    for name, dtype, value in (("values", pa.large_binary(), b"x"), ("data and uri", BLOB, {"data": b"x"})):
        inner = pa.struct([pa.field("m", dtype, metadata=MARK)])
        cases[f"in a struct, {name}"] = pa.field("x", inner), [{"m": value}, None, {"m": None}]
    for name, (dtype, value) in PACKABLE.items():
        cases[f"packed, {name}"] = pa.field("x", dtype, metadata=PACKED), [value, value]
        cases[f"packed in a list, {name}"] = (
            pa.field("x", pa.list_(pa.field("item", dtype, metadata=PACKED))),
            [[value], [], None],
        )
    return cases


CASES: Final = _cases()


def _payload(value: Any) -> Any:
    """The bytes of what was given as a blob, of what is described, and of both as member of a struct."""
    if not isinstance(value, dict):
        return value
    if "m" in value:
        return {"m": _payload(value["m"])}
    return value["size"] * b"x" if value.keys() >= {"position", "size"} else value.get("data", value)


def _read(library: Any, path: Path, values: list[Any]) -> pa.Schema | str:
    try:
        found = library.dataset(path).to_table(blob_handling="all_binary")
        same = [_payload(value) for value in found["x"].to_pylist()] == [_payload(value) for value in values]
        return library.dataset(path).schema if same else f"other rows: {found}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # pylance's panics are no `Exception`
        return f"{type(error).__name__}: {error}"


def _written(library: Any, rows: pa.Table, path: Path, version: str) -> BaseException | None:
    try:
        library.write_dataset(rows, path, data_storage_version=version)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("family", ["marked", "extension", "in a struct", "packed", "packed in a list"])
def test_marked_columns(family: str, version: str, tmp_path: Path) -> None:
    problems = []
    for number, (name, (field, values)) in enumerate(CASES.items()):
        if name.partition(",")[0] != family:
            continue
        rows = pa.table([pa.array(values, field.type)], schema=pa.schema([field]))
        theirs, ours = tmp_path / f"{number} theirs", tmp_path / f"{number} ours"
        refused = _written(lance, rows, theirs, version)
        expected = _read(lance, theirs, values) if refused is None else f"not written: {refused}"
        problem = _written(lance_io, rows, ours, version)
        if problem is None:
            read = [_read(reader, ours, values) for reader in (lance, lance_io)]
            wrong = [one for one in read if isinstance(one, str) or (not isinstance(expected, str) and one != expected)]
            problems += [f"{name}: {one}, theirs: {expected}" for one in wrong]
        elif not isinstance(expected, str) or not isinstance(problem, LanceError) or not isinstance(problem, OSError):
            problems.append(f"{name}: we refuse, {problem!r}; theirs: {expected}")
    assert not problems, "\n".join(problems)


MARKS = ["1", "yes", "Yes", "On", "on", "y", "Y", "true", "TRUE", "no", "0", "off", "t", "", " true", "false", "2"]


def num_columns(uri: str) -> list[int]:
    return [len(lance.file.LanceFileReader(str(one)).metadata().columns) for one in sorted(Path(uri, "data").iterdir())]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("key", ["lance-encoding:packed", "packed"])
def test_structs_are_packed_for_the_marks_that_pylance_packs_for(key: str, version: str, tmp_path: Path) -> None:
    """Such columns of 2.1 and 2.2 pylance cannot read itself unless the mark is `true`: that is what we store."""
    for number, mark in enumerate(MARKS):
        column = pa.field("x", PAIR, metadata={key: mark})
        rows = pa.table([pa.array([{"a": i, "b": -i} for i in range(9)], PAIR)], pa.schema([column]))
        theirs, ours = str(tmp_path / f"{number} theirs"), str(tmp_path / f"{number} ours")
        lance.write_dataset(rows, theirs, data_storage_version=version)
        is_packed = mark.lower() in ("1", "on", "y", "yes", "true")
        table = lance_io.write_dataset(rows, ours, data_storage_version=version)
        if version != "2.0" or is_packed:  # in 2.0 pylance packs for any text behind one of the keys
            assert lance_io.dataset(theirs).to_table().to_pylist() == rows.to_pylist()
            assert num_columns(ours) == num_columns(theirs), mark
        assert (len(num_columns(ours)), num_columns(ours)[0] == 1) == (1, is_packed), mark
        table.insert(rows)
        table.add_columns(pa.table([rows["x"].take([*range(9), *range(9)])], pa.schema([column.with_name("y")])))
        table.optimize.compact_files()
        again = lance.dataset(ours).to_table()
        assert again["x"].to_pylist() == again["y"].to_pylist() == 2 * rows["x"].to_pylist()
        assert again["x"].to_pylist() == lance_io.dataset(ours).to_table()["x"].to_pylist()


def test_files_are_packed_for_these_marks_too(tmp_path: Path) -> None:
    path = str(tmp_path / "f.lance")
    schema = pa.schema([pa.field("x", PAIR, metadata={"packed": "Yes"})])
    batch = pa.record_batch([pa.array([{"a": i, "b": -i} for i in range(9)], PAIR)], schema=schema)
    with lance_io.file.LanceFileWriter(path, schema) as writer:
        writer.write_batch(batch)
    reader = lance.file.LanceFileReader(path)
    assert len(reader.metadata().columns) == 1
    assert reader.read_all().to_table()["x"].to_pylist() == batch["x"].to_pylist()
