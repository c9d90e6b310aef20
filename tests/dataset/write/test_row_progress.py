"""What `update`, `delete` and `merge_insert` tell while they run (`progress`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Told = list[tuple[int, int | None]]

NUM_ROWS = 200_000  # of which 30 are deleted
NEW = pa.table({"a": pa.array(range(NUM_ROWS - 1000, NUM_ROWS + 500), pa.int64()), "s": ["new"] * 1500})
PART = pa.table({"a": pa.array([25, 27, 120_000], pa.int64()), "s": ["x", "y", "z"]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of four fragments, with deleted rows, made by pylance; its file is the only one of its columns."""
    path = str(tmp_path / "t")
    rows = pa.table({"a": pa.array(range(NUM_ROWS), pa.int64()), "s": ["old"] * NUM_ROWS, "n": [1] * NUM_ROWS})
    lance.write_dataset(rows, path, max_rows_per_file=50_000)
    lance.dataset(path).delete("a < 20 or a between 60000 and 60009")
    return path


def merged(table: Any, source: pa.Table, mode: str, **how: Any) -> Any:
    builder = table.merge_insert("a").when_matched_update_all().write_mode(mode)
    if mode == "rewrite_rows":
        builder = builder.when_not_matched_insert_all()
    return builder.execute(source, **how)


CHANGES: dict[
    str, tuple[Callable[..., Any], int, int | None]
] = {  # the call, rows that it does, and says to have to do
    "update": (lambda t, **how: t.update({"s": "'x'"}, **how), NUM_ROWS - 30, NUM_ROWS - 30),
    "update where": (lambda t, **how: t.update({"s": "'x'"}, "a % 2 = 0", **how), NUM_ROWS // 2 - 15, None),
    "delete": (lambda t, **how: t.delete("a >= 40000", **how), NUM_ROWS - 40_010, None),
    "merge": (lambda t, **how: merged(t, NEW, "rewrite_rows", **how), 1500, 1500),
    "merge columns": (lambda t, **how: merged(t, PART, "rewrite_columns", **how), 3, 3),
}


def check(told: Told, num_rows: int, in_all: int | None) -> None:
    done = [one for one, _ in told]
    assert done == sorted(set(done)) and done[-1] == num_rows, told
    assert {total for _, total in told} == {in_all}


@pytest.mark.parametrize("name", CHANGES)
def test_progress_goes_up_to_all_rows(uri: str, name: str) -> None:
    call, num_rows, in_all = CHANGES[name]
    told: Told = []
    done = call(lance_io.dataset(uri), progress=lambda *one: told.append(one))
    check(told, num_rows, in_all)
    assert len(told) > 1 or name == "merge"
    assert sum(done.values()) == num_rows


@pytest.mark.parametrize("name", CHANGES)
async def test_progress_of_the_asynchronous_methods(uri: str, name: str) -> None:
    call, num_rows, in_all = CHANGES[name]
    told: Told = []
    async with lance_io.AsyncDataset.open(uri) as table:
        change: Awaitable[Any] = call(table, progress=lambda *one: told.append(one))
        await change
    check(told, num_rows, in_all)


@pytest.mark.parametrize("name", CHANGES)
def test_what_progress_raises_ends_the_change(uri: str, name: str) -> None:
    def refuse(*_: object) -> None:
        raise KeyError("enough")

    files = {one["path"] for one in lance_io.dataset(uri).all_files().read_all().to_pylist()}
    table = lance_io.dataset(uri)
    with pytest.raises(KeyError, match="enough"):
        CHANGES[name][0](table, progress=refuse)
    assert table.version == lance.dataset(uri).version == 2
    assert {one["path"] for one in table.all_files().read_all().to_pylist()} == files


def test_nothing_to_do_tells_nothing(uri: str) -> None:
    table, told = lance_io.dataset(uri), []
    table.delete("a < 0", progress=lambda *one: told.append(one))
    table.update({"s": "'x'"}, "a < 0", progress=lambda *one: told.append(one))
    assert told == []
    table.merge_insert("a").when_matched_delete().execute(PART, progress=lambda *one: told.append(one))
    assert told == []


def test_a_change_made_anew_begins_again(uri: str) -> None:
    """Another writer changes the same rows while the update is under way."""
    told: Told = []

    def disturb(*one: Any) -> None:
        told.append(one)
        if len(told) == 1:
            lance.dataset(uri).delete("a = 30")

    lance_io.dataset(uri).update({"s": "'x'"}, progress=disturb)
    second = next(at for at in range(1, len(told)) if told[at][0] <= told[at - 1][0])
    assert {total for _, total in told[:second]} == {NUM_ROWS - 30}
    check(told[second:], NUM_ROWS - 31, NUM_ROWS - 31)
