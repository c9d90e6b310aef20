"""Every Arrow type, alone, in dictionaries and nested: what pylance writes we write, and both read what both wrote.

Types by themselves have a table each. Nested ones share one, which is halved until it shows which column is refused or
comes back as another; in a campaign (`LANCE_IO_PRODUCTS`) each has a table, too.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import LanceError
from tests import products

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INTEGERS: Final = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS: Final = [
    *INTEGERS,
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "+02:00")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.decimal128(10, 2), pa.decimal256(40, 2), pa.decimal32(5, 2), pa.decimal64(10, 2)),
]
TEXTS: Final = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES: Final = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)]


def _plain() -> dict[str, pa.Array]:
    """Four values of each type, two of them distinct, one null."""
    milliseconds = {pa.date64(): 86_400_000}
    arrays = {
        "null": pa.nulls(4),
        "bool": pa.array([True, False, None, True]),
        "no bytes": pa.array([b"", b"", None, b""], pa.binary(0)),
        "nulls in pairs": pa.array([[None, None], None, [None, None], [None, None]], pa.list_(pa.null(), 2)),
        "pairs of numbers": pa.array([[1, 2], [3, 4], None, [1, 2]], pa.list_(pa.int32(), 2)),
        "pairs of flags": pa.array([[True, False], [True, True], None, [False, True]], pa.list_(pa.bool_(), 2)),
        "pairs of bytes": pa.array([[b"aa", b"bb"], [b"cc", b"dd"], None, [b"ee", b"ff"]], pa.list_(pa.binary(2), 2)),
        "pairs of texts": pa.array([["a", "b"], ["c", "d"], None, ["e", "f"]], pa.list_(pa.string(), 2)),
        "empty struct": pa.array([{}, {}, {}, {}], pa.struct([])),
        "json": pa.array(["{}", '{"a":1}', None, "2"], pa.json_()),
        "uuid": pa.array([b"0" * 16, b"1" * 16, None, b"0" * 16], pa.uuid()),
        "interval": pa.array([pa.MonthDayNano([1, 2, 3])] * 4),
        "runs": pa.RunEndEncodedArray.from_arrays([2, 4], ["a", "b"]),
        "list view": pa.array([[1], [2], None, [1]], pa.list_view(pa.int32())),
    }
    for dtype in NUMBERS:
        scale = milliseconds.get(dtype, 1)
        arrays[str(dtype)] = pa.array([scale, 2 * scale, None, scale], dtype)
    for dtype in (*TEXTS, *BINARIES):
        values = ["aa", "bb", None, "aa"]
        arrays[str(dtype)] = pa.array(values if dtype in TEXTS else [v and v.encode() for v in values], dtype)
    return arrays


PLAIN: Final = _plain()


def _dictionaries() -> dict[str, pa.Array]:
    found = {}
    for number, (name, array) in enumerate(PLAIN.items()):
        keys = pa.array([0, 1, None, 0], INTEGERS[number % len(INTEGERS)])
        if name == "json":  # pylance gives a dictionary of texts back: refused here, where the type would be lost
            continue
        try:
            found[name] = pa.DictionaryArray.from_arrays(keys, array[:2])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # no type of Arrow
            continue
    return found


FAMILIES: Final = {"plain": PLAIN, "dictionaries": _dictionaries()}
OFFSETS: Final = [0, 1, 1, 3, 4]
NESTINGS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
    "itself": lambda array: array,
    "list": lambda array: pa.ListArray.from_arrays(OFFSETS, array),
    "large list": lambda array: pa.LargeListArray.from_arrays(OFFSETS, array),
    "struct": lambda array: pa.StructArray.from_arrays([array], ["m"], mask=pa.array([False, True, False, False])),
    "pairs": lambda array: pa.FixedSizeListArray.from_arrays(array, 2),
    "map": lambda array: pa.MapArray.from_arrays(OFFSETS, pa.array(["a", "b", "c", "d"]), array),
}


def _rows_read(library: Any, path: Path, rows: pa.Table) -> pa.Schema | str:
    """The schema that comes back; a text where the rows are others, or where reading fails."""
    try:
        found = library.dataset(path).to_table()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # pylance's panics are no `Exception`
        return f"{type(error).__name__}: {error}"
    # Views come back as plain text and bytes, JSON as text: compared as Python values.
    return found.schema if found.to_pydict() == rows.to_pydict() else "other rows"


def _problems(rows: pa.Table, place: Path, version: str) -> list[str]:
    wrote: dict[str, str | None] = {}
    for library in (lance, lance_io):
        try:
            library.write_dataset(rows, place / library.__name__, data_storage_version=version)
            wrote[library.__name__] = None
        except LanceError as error:
            wrote[library.__name__] = f"refused: {error}"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            wrote[library.__name__] = f"{type(error).__name__}: {error}"
    problems = []
    theirs = _rows_read(lance, place / "lance", rows) if wrote["lance"] is None else "not written"
    if wrote["lance_io"] is None:
        for reader in (lance, lance_io):
            found = _rows_read(reader, place / "lance_io", rows)
            if isinstance(found, str):
                problems.append(f"ours, read by {reader.__name__}: {found}")
            elif not isinstance(theirs, str) and not found.equals(theirs):
                problems.append(f"ours, read by {reader.__name__}, is {found}, theirs {theirs}")
    elif not isinstance(theirs, str) or not wrote["lance_io"].startswith("refused"):
        problems.append(f"not written by us: {wrote['lance_io']}")
    if not isinstance(theirs, str) and isinstance(found := _rows_read(lance_io, place / "lance", rows), str):
        problems.append(f"theirs, read by us: {found}")
    return problems


_PECULIAR: Final[set[str]] = set()  # columns that one of the libraries refused, or gave back as others
_NUMBERS: Final = count()


def _all_problems(columns: Mapping[str, Any], folder: Path, version: str, *, alone: bool) -> list[str]:
    """Those of all columns: each in a table of its own, or only those that were peculiar before."""
    peculiar = [name for name in columns if alone or products.ALL or name in _PECULIAR]
    groups = [[name] for name in peculiar] + [[name for name in columns if name not in peculiar]]
    return [
        problem
        for group in groups
        for problem in _problems_together({name: columns[name] for name in group}, folder, version)
    ]


def _problems_together(columns: Mapping[str, Any], folder: Path, version: str) -> list[str]:
    """Those of each column alone: a table that is the same to both libraries has columns that are."""
    names = [*columns]
    rows = pa.table([columns[name] for name in names], [f"x{number}" for number in range(len(names))])
    if not names or _are_alike(rows, folder / f"{next(_NUMBERS)}", version):
        return []
    if len(names) == 1:
        _PECULIAR.add(names[0])
        return [f"{names[0]}: {problem}" for problem in _problems(rows, folder / f"{next(_NUMBERS)}", version)]
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    return [
        problem
        for half in halves
        for problem in _problems_together({name: columns[name] for name in half}, folder, version)
    ]


def _are_alike(rows: pa.Table, folder: Path, version: str) -> bool:
    """Whether both libraries write these rows, and both read what both wrote, with the types of pylance."""
    try:
        for library in (lance, lance_io):
            library.write_dataset(rows, folder / library.__name__, data_storage_version=version)
    except KeyboardInterrupt:
        raise
    except BaseException:  # which column it is, the halves say
        return False
    theirs = _rows_read(lance, folder / "lance", rows)
    ours = [_rows_read(library, folder / "lance_io", rows) for library in (lance, lance_io)]
    return (
        not isinstance(_rows_read(lance_io, folder / "lance", rows), str)
        and not isinstance(theirs, str)
        and all(not isinstance(schema, str) and schema.equals(theirs) for schema in ours)
    )


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_both_libraries_store_the_same_types(version: str, family: str, nesting: str, tmp_path: Path) -> None:
    columns = {name: NESTINGS[nesting](array) for name, array in FAMILIES[family].items()}
    problems = _all_problems(columns, tmp_path, version, alone=nesting == "itself")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("first", [0, 3, 9])
def test_dictionaries_of_flags_that_begin_within_a_byte(version: str, first: int, tmp_path: Path) -> None:
    flags = pa.array([index % 3 == 0 for index in range(40)])[first : first + 17]
    keys = pa.array([*range(17), None, 16, 0], pa.int8())
    rows = pa.table({"x": pa.DictionaryArray.from_arrays(keys, flags)})
    assert _problems(rows, tmp_path, version) == []


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("nesting", ["itself", "list", "struct"])
def test_dictionaries_that_differ_by_chunk(version: str, nesting: str, tmp_path: Path) -> None:
    columns = {}
    for name, array in FAMILIES["dictionaries"].items():
        values = array.dictionary
        others = [values, values.slice(1), pa.concat_arrays([values.slice(1), values]), values.slice(0, 1)]
        chunks = [pa.DictionaryArray.from_arrays(pa.array([0, None, 0, 0], array.indices.type), one) for one in others]
        columns[name] = pa.chunked_array([NESTINGS[nesting](chunk) for chunk in chunks])
    problems = _all_problems(columns, tmp_path, version, alone=False)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("writer", [lance, lance_io], ids=["pylance", "ours"])
@pytest.mark.parametrize("dtype", [pa.string(), pa.int32(), pa.float16()], ids=str)
def test_rows_of_dictionaries_that_are_too_large_together(writer: Any, dtype: pa.DataType, tmp_path: Path) -> None:
    keys = pa.array(range(100), pa.int8())
    plain = pa.array(range(1000)).cast(dtype if dtype == pa.float16() else pa.int32()).cast(dtype)
    chunks = [pa.DictionaryArray.from_arrays(keys, plain.slice(start, 100)) for start in range(0, 1000, 100)]
    rows = pa.table({"x": pa.chunked_array(chunks)})
    writer.write_dataset(rows, tmp_path / "t", max_page_bytes=150, data_cache_bytes=100)
    for reader in (lance, lance_io):
        found = reader.dataset(tmp_path / "t").take([1, 150, 101, 999])
        assert found.schema == rows.schema
        assert found["x"].to_pylist() == [rows["x"][row].as_py() for row in (1, 150, 101, 999)]


def _empty_maps(valid: list[bool], values: pa.DataType) -> pa.Array:
    """Maps without entries, whose keys have no values; not all of them are there."""
    offsets = pa.array([0 if one else None for one in valid] + [0], pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.nulls(0), pa.array([], values))


@pytest.mark.parametrize("form", ["maps", "in structs", "in lists", "no rows", "beside numbers", "no values"])
def test_maps_whose_keys_are_null(form: str, tmp_path: Path) -> None:
    maps = _empty_maps([True, False, True], pa.null() if form == "no values" else pa.int32())
    if form == "in structs":
        maps = pa.StructArray.from_arrays([maps], ["m"])
    elif form == "in lists":
        maps = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), maps)
    elif form == "no rows":
        maps = maps.slice(0, 0)
    rows = pa.table({"m": maps, "n": range(3)} if form == "beside numbers" else {"m": maps})
    for library in (lance, lance_io):
        path = tmp_path / library.__name__
        library.write_dataset(rows, path)
        found = [
            [table.to_table(), table.take([len(rows) - 1, 0] if len(rows) else []), table.to_table(filter="m is null")]
            for table in (lance.dataset(path), lance_io.dataset(path))
        ]
        assert found[0] == found[1]
        assert found[1][0] == rows
        found[1][0].validate(full=True)
