"""Members of structs and of items of lists that are added, cast and dropped, in files of every version.

A plain reference says what the rows must be; pylance must read them, too, before and after a commit of its own, which
numbers a column anew that it finds in two files.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset, LanceOperation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSIONS: Final = ("0.1", "2.0", "2.1", "2.2")
ITEM: Final = "item"  # in a path: the items of a list
N: Final = 8
INNER: Final = pa.struct([("p", pa.int32()), ("q", pa.string())])
SCHEMA: Final = pa.schema(
    [
        ("a", pa.int64()),
        ("st", pa.struct([("x", pa.int32()), ("in", INNER), ("j", pa.dictionary(pa.int32(), pa.string()))])),
        ("l", pa.list_(INNER)),
        ("sl", pa.struct([("k", pa.int32()), ("w", pa.large_list(INNER))])),
        ("ll", pa.list_(pa.list_(pa.struct([("p", pa.int32())])))),
        ("z", pa.string()),
    ]
)
PATHS: Final[dict[str, tuple[str, ...]]] = {
    "struct": ("st", "m"),
    "struct in struct": ("st", "in", "m"),
    "list": ("l", ITEM, "m"),
    "list in struct": ("sl", "w", ITEM, "m"),
    "list of lists": ("ll", ITEM, ITEM, "m"),
}


def row(i: int) -> dict[str, Any]:
    inner = {"p": i, "q": f"q{i}"}
    lists = [{"p": 10 * i + j, "q": None} for j in range(i % 3)]
    outer = [[{"p": j}] * j for j in range(i % 4)]
    struct = {"x": i if i % 3 else None, "in": inner, "j": f"j{i % 2}"}
    return {"a": i, "st": struct, "l": lists or None, "sl": {"k": i, "w": lists}, "ll": outer, "z": f"z{i}"}


ROWS: Final = [row(i) for i in range(N)]


def member(known: Any, path: tuple[str, ...], number: int, *, keeps: bool) -> Any:
    """A value with the member at the end of a path, which is a number; keeps: with all that it had, too."""
    if not path:
        return number
    if known is None:
        return None
    if path[0] == ITEM:
        return [member(one, path[1:], number + place, keeps=keeps) for place, one in enumerate(known)]
    below = member(known.get(path[0], {}), path[1:], number, keeps=keeps)
    return {**known, path[0]: below} if keeps else {path[0]: below}


def new_type(dtype: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
    """The type of a column with only the new member."""
    if not path[1:] and path[0] == "m":
        return pa.struct([("m", pa.int64())])
    if path[0] == ITEM:
        make = pa.large_list if pa.types.is_large_list(dtype) else pa.list_
        return make(new_type(dtype.value_type, path[1:]))
    return pa.struct([(path[0], new_type(dtype.field(path[0]).type, path[1:]))])


def new_column(path: tuple[str, ...], numbers: list[int]) -> pa.Table:
    top, below = path[0], path[1:]
    values = [member(ROWS[i][top], below, 100 * i, keeps=False) for i in numbers]
    return pa.table({top: pa.array(values, new_type(SCHEMA.field(top).type, below))})


def with_member(path: tuple[str, ...]) -> list[dict[str, Any]]:
    top = path[0]
    return [
        {**one, top: member(one[top], path[1:], 100 * one["a"], keeps=True)} for one in ROWS if one["a"] not in GONE
    ]


GONE: Final = (0, 5)  # deleted rows


def table(path: Path, version: str, schema: pa.Schema = SCHEMA, rows: list[Any] = ROWS) -> str:
    """Two fragments with a deleted row each, as pylance writes them."""
    found = lance.write_dataset(
        pa.Table.from_pylist(rows, schema), path / "t", max_rows_per_file=4, data_storage_version=version
    )
    found.delete(f"a in {GONE}")
    return str(path / "t")


def data_files(place: str) -> set[str]:
    return set(os.listdir(f"{place}/data"))


def check(place: str, expected: list[dict[str, Any]], *, peer: bool = True) -> None:
    """Both libraries read these rows, in each way, and do so after commits and a compaction of both."""
    libraries = (lance_io, lance) if peer else (lance_io,)
    for library in libraries:
        found = library.dataset(place)
        assert found.to_table().to_pylist() == expected
        assert found.take([1, 3]).to_pylist() == [expected[1], expected[3]]
        for name in expected[0]:
            assert found.to_table(columns=[name]).to_pylist() == [{name: one[name]} for one in expected]
    if not peer:
        return
    lance.dataset(place).validate()
    for library in (lance, lance_io):
        library.dataset(place).delete(f"a = {expected[0]['a']}")
        expected = expected[1:]
        for reader in libraries:
            assert reader.dataset(place).to_table().to_pylist() == expected
    for library in (lance_io, lance):
        library.dataset(place).optimize.compact_files(target_rows_per_fragment=100 if library is lance_io else 200)
        for reader in libraries:
            assert reader.dataset(place).to_table().to_pylist() == expected
        library.dataset(place).delete(f"a = {expected[0]['a']}")
        expected = expected[1:]


# -- new members -------------------------------------------------------------------------------------------------------


def by_reader(place: str, path: tuple[str, ...]) -> None:
    numbers = [i for i in range(N) if i not in GONE]
    lance_io.dataset(place).add_columns(new_column(path, numbers).to_reader(max_chunksize=2), batch_size=3)


def by_function(place: str, path: tuple[str, ...]) -> None:
    lance_io.dataset(place).add_columns(_computed(path), read_columns=["a"])


def by_udf(place: str, path: tuple[str, ...]) -> None:
    output = new_column(path, []).schema
    checkpoint = f"{place}.checkpoint"
    made = lance_io.batch_udf(output_schema=output, checkpoint_file=checkpoint)(_computed(path))
    lance_io.dataset(place).add_columns(made, read_columns=["a"])


def by_fragments(place: str, path: tuple[str, ...]) -> None:
    found = lance_io.dataset(place)
    changed = [fragment.merge_columns(_computed(path), columns=["a"]) for fragment in found.get_fragments()]
    operation = LanceOperation.Merge([fragment for fragment, _ in changed], changed[0][1])
    lance_io.LanceDataset.commit(place, operation, read_version=found.version)


def _computed(path: tuple[str, ...]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = new_column(path, batch.column("a").to_pylist())
        return found.combine_chunks().to_batches()[0] if batch.num_rows else found.schema.empty_table().to_batches()[0]

    return compute


WAYS: Final = {"reader": by_reader, "function": by_function, "udf": by_udf, "fragments": by_fragments}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("depth", list(PATHS))
def test_a_new_member_is_read_by_both(tmp_path: Path, version: str, depth: str) -> None:
    """A way for each depth and version, so that each way meets each of both."""
    ways = list(WAYS.values())
    add = ways[(list(PATHS).index(depth) + VERSIONS.index(version)) % len(ways)]
    place = table(tmp_path, version)
    add(place, PATHS[depth])
    check(place, with_member(PATHS[depth]))


@pytest.mark.parametrize("name", list(WAYS))
def test_every_way_gives_new_members_in_files_of_2_0(tmp_path: Path, name: str) -> None:
    place = table(tmp_path, "2.0")
    WAYS[name](place, PATHS["list in struct"])
    check(place, with_member(PATHS["list in struct"]))


@pytest.mark.parametrize("name", [*WAYS, "sql", "field"])
def test_new_members_in_files_of_0_1_are_refused_as_in_pylance(tmp_path: Path, name: str) -> None:
    place = table(
        tmp_path,
        "0.1",
        SCHEMA.remove(1).insert(1, pa.field("st", INNER)),
        [{**one, "st": one["st"]["in"]} for one in ROWS],
    )
    before, rows = data_files(place), lance.dataset(place).to_table()
    calls: dict[str, Callable[[], Any]] = {
        **{way: lambda add=add: add(place, PATHS["list"]) for way, add in WAYS.items()},
        "sql": lambda: lance_io.dataset(place).add_columns({"st": "named_struct('m', a)"}),
        "field": lambda: lance_io.dataset(place).add_columns(pa.field("st", pa.struct([("m", pa.int64())]))),
    }
    with pytest.raises((OSError, ValueError), match=r"not supported in Lance file version 0\.1|legacy dataset version"):
        calls[name]()
    assert data_files(place) == before
    assert lance_io.dataset(place).to_table() == rows
    assert lance_io.dataset(place).version == 2


async def test_several_members_at_once_beside_a_new_column(tmp_path: Path) -> None:
    place = table(tmp_path, "2.0")
    found = await AsyncDataset.open(place)
    await found.add_columns(
        {"st": "named_struct('m', a, 'in', named_struct('n', z))", "n": "a + 1", "sl": "named_struct('m', a)"}
    )
    expected = [
        {
            **one,
            "st": {**one["st"], "in": {**one["st"]["in"], "n": one["z"]}, "m": one["a"]},
            "sl": {**one["sl"], "m": one["a"]},
            "n": one["a"] + 1,
        }
        for one in ROWS
        if one["a"] not in GONE
    ]
    check(place, expected)


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_members_are_added_again_and_again(tmp_path: Path, version: str) -> None:
    """Some have values, some have none yet, and of some the old ones are dropped."""
    place = table(tmp_path, version)
    found = lance_io.dataset(place)
    found.add_columns(pa.field("st", pa.struct([("e", pa.int16())])))
    found.add_columns({"st": "named_struct('m', a)"})
    found.drop_columns(["st.x", "st.in.q"])
    found.add_columns({"st": "named_struct('in', named_struct('n', a))"})
    found.alter_columns({"path": "st.m", "data_type": pa.int32()}, {"path": "st.in.n", "name": "o"})
    expected = [
        {**one, "st": {"in": {"p": i, "o": i}, "j": one["st"]["j"], "e": None, "m": i}}
        for one in ROWS
        if (i := one["a"]) not in GONE
    ]
    check(place, expected)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_lists_of_another_length_are_refused(tmp_path: Path, version: str) -> None:
    """Nobody could read the column any more, as members of items come from files that differ."""
    place = table(tmp_path, version)
    before = data_files(place)
    given = [[{"m": 1}] for i in range(N) if i not in GONE]
    rows = pa.table({"l": pa.array(given, pa.list_(pa.struct([("m", pa.int64())])))})
    with pytest.raises(OSError, match=r"Column l: expected [02] values .* for a list of [02] items, found 1"):
        lance_io.dataset(place).add_columns(rows.to_reader())
    assert data_files(place) == before
    assert lance.dataset(place).to_table().to_pylist() == [one for one in ROWS if one["a"] not in GONE]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_the_members_of_a_list_that_is_not_given_are_null(tmp_path: Path, version: str) -> None:
    place = table(tmp_path, version)
    given = pa.nulls(N - len(GONE), pa.list_(pa.struct([("m", pa.int64())])))
    lance_io.dataset(place).add_columns(pa.table({"l": given}).to_reader())
    null = [{**one, "l": one["l"] and [{**item, "m": None} for item in one["l"]]} for one in ROWS]
    check(place, [one for one in null if one["a"] not in GONE])


def test_a_column_with_blobs_gets_no_members_in_files_of_2_0(tmp_path: Path) -> None:
    """It would be written again; pylance refuses any."""
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([("a", pa.int64()), ("st", pa.struct([pa.field("x", pa.int32()), blob]))])
    place = table(tmp_path, "2.0", schema, [{"a": i, "st": {"x": i, "b": b"bytes"}} for i in range(N)])
    before = data_files(place)
    with pytest.raises(OSError, match=r"`st`\.`b` has blobs"):
        lance_io.dataset(place).add_columns({"st": "named_struct('m', a)"})
    with pytest.raises(OSError, match=r"`st`\.`b` has blobs"):
        lance_io.dataset(place).alter_columns({"path": "st.x", "data_type": pa.int64()})
    assert data_files(place) == before


# -- casts -------------------------------------------------------------------------------------------------------------

CASTS: Final = ("st.x", "st.in.p", "l.item.p", "sl.k", "sl.w.item.p", "ll.item.item.p")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", CASTS)
def test_a_member_is_cast(tmp_path: Path, version: str, path: str) -> None:
    """pylance cannot read what it makes itself of a file of 2.0."""
    schema = (
        SCHEMA
        if version != "0.1"
        else SCHEMA.remove(1).insert(1, pa.field("st", pa.struct([("x", pa.int32()), ("in", INNER)])))
    )
    rows = [{**one, "st": {**one["st"], "x": one["a"]}} for one in ROWS]
    if version == "0.1":
        rows = [{**one, "st": {"x": one["a"], "in": one["st"]["in"]}, "l": one["l"] or []} for one in rows]
    place = table(tmp_path, version, schema, rows)
    expected = lance.dataset(place).to_table().to_pylist()
    lance_io.dataset(place).alter_columns({"path": path, "data_type": pa.int64()})
    found = lance_io.dataset(place).schema
    assert found == lance.dataset(place).schema != schema
    check(place, expected)


def test_members_of_a_struct_that_begins_a_file_of_0_1_stay_when_pylance_commits(tmp_path: Path) -> None:
    """It gives a struct that it finds in two files another id in one of them."""
    schema = pa.schema([("st", pa.struct([("x", pa.int32()), ("in", INNER)])), ("a", pa.int64())])
    place = table(tmp_path, "0.1", schema, [{"st": {"x": i, "in": {"p": i, "q": "q"}}, "a": i} for i in range(N)])
    expected = lance.dataset(place).to_table().to_pylist()
    lance_io.dataset(place).alter_columns({"path": "st.in.p", "data_type": pa.int64()})
    lance_io.dataset(place).alter_columns({"path": "st.x", "data_type": pa.int16()})
    check(place, expected)


PACKED: Final = pa.field(
    "st", pa.struct([("x", pa.int32()), ("y", pa.int64()), ("w", pa.int32())]), metadata={"packed": "true"}
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("nested", [False, True])
def test_a_member_of_a_packed_struct_is_cast(tmp_path: Path, version: str, nested: bool) -> None:
    """All its members are in one column; pylance refuses it."""
    place = packed_table(tmp_path, version, nested=nested)
    expected = lance.dataset(place).to_table().to_pylist()
    path = "o.st.x" if nested else "st.x"
    lance_io.dataset(place).alter_columns({"path": path, "data_type": pa.int64()})
    check(place, expected)


def packed_table(tmp_path: Path, version: str, *, nested: bool) -> str:
    values = [{"x": i, "y": 10 * i, "w": 20 * i} for i in range(N)]
    if nested:
        schema = pa.schema([("a", pa.int64()), ("o", pa.struct([PACKED, pa.field("k", pa.int8())]))])
        return table(tmp_path, version, schema, [{"a": i, "o": {"st": values[i], "k": i}} for i in range(N)])
    schema = pa.schema([pa.field("a", pa.int64()), PACKED])
    return table(tmp_path, version, schema, [{"a": i, "st": values[i]} for i in range(N)])


def test_fixed_size_lists_get_members(tmp_path: Path) -> None:
    """Files of 2.2 hold them. pylance does not read such lists beside other columns."""
    schema = pa.schema([("a", pa.int64()), ("f", pa.list_(INNER, 2))])
    rows = [{"a": i, "f": [{"p": i, "q": "q"}, {"p": -i, "q": None}] if i != 2 else None} for i in range(N)]
    place = table(tmp_path, "2.2", schema, rows)
    kept = [one for one in rows if one["a"] not in GONE]
    given = [[{"m": one["a"]}, {"m": 7}] if one["f"] else None for one in kept]
    values = pa.array(given, pa.list_(pa.struct([("m", pa.int64())]), 2))
    lance_io.dataset(place).add_columns(pa.table({"f": values}).to_reader())
    expected = [{**one, "f": one["f"] and [{**one["f"][0], "m": one["a"]}, {**one["f"][1], "m": 7}]} for one in kept]
    check(place, expected, peer=False)


# -- drops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", ["st.x", "st.in.q", "l.item.p", "sl.w"])
def test_a_member_is_dropped(tmp_path: Path, version: str, path: str) -> None:
    schema = (
        SCHEMA
        if version != "0.1"
        else SCHEMA.remove(1).insert(1, pa.field("st", pa.struct([("x", pa.int32()), ("in", INNER)])))
    )
    rows = [
        one if version != "0.1" else {**one, "l": one["l"] or [], "st": {"x": 1, "in": one["st"]["in"]}} for one in ROWS
    ]
    place = table(tmp_path, version, schema, rows)
    expected = [without(one, path.split(".")) for one in lance.dataset(place).to_table().to_pylist()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lance_io.dataset(place).drop_columns([path])
    check(place, expected)


def without(known: Any, path: list[str]) -> Any:
    if known is None:
        return None
    if path[0] == ITEM:
        return [without(one, path[1:]) for one in known]
    if len(path) == 1:
        return {name: value for name, value in known.items() if name != path[0]}
    return {**known, path[0]: without(known[path[0]], path[1:])}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("member", "nested"), [("x", False), ("w", False), ("y", True)])
def test_a_member_of_a_packed_struct_is_dropped_with_a_warning_where_pylance_errs(
    tmp_path: Path, version: str, member: str, nested: bool
) -> None:
    """It goes by the places of members; also after a drop of its own."""
    place = packed_table(tmp_path, version, nested=nested)
    path = ["o", "st", member] if nested else ["st", member]
    expected = [without(one, path) for one in lance_io.dataset(place).to_table().to_pylist()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lance_io.dataset(place).drop_columns([".".join(path)])
    told = [str(one.message) for one in caught]
    check(place, expected, peer=False)
    try:
        is_read = lance.dataset(place).to_table().to_pylist() == expected
    except pa.ArrowInvalid:
        is_read = False
    assert len(told) == (0 if is_read else 1)
    assert all(f"files of version {version}" in text and "`st`" in text for text in told)
    lance_io.dataset(place).update({"a": "a"})
    assert lance.dataset(place).to_table().to_pylist() == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_merge_of_some_members_is_read_by_both(tmp_path: Path, version: str) -> None:
    """In files of 2.0 it writes rows, as those with some members of a struct could not be read by pylance."""
    schema = pa.schema(
        [("a", pa.int64()), ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("z", pa.int8())]
    )
    rows = [{"a": i, "st": {"x": i, "y": f"y{i}"}, "z": i} for i in range(N)]
    place = table(tmp_path, version, schema, rows)
    source = pa.table({"a": [2, 6], "st": pa.array([{"x": 200}, {"x": 600}], pa.struct([("x", pa.int32())]))})
    merge = lance_io.dataset(place).merge_insert("a").when_matched_update_all()
    if version == "2.0":
        with pytest.raises(OSError, match=r"files of version 2\.0 have all members of a struct or none"):
            lance_io.dataset(place).merge_insert("a").when_matched_update_all().write_mode("rewrite_columns").execute(
                source
            )
    merge.execute(source)
    expected = [
        {**one, "st": {**one["st"], "x": 100 * one["a"]}} if one["a"] in (2, 6) else one
        for one in rows
        if one["a"] not in GONE
    ]
    for library in (lance_io, lance):
        assert library.dataset(place).to_table().sort_by("a").to_pylist() == expected
