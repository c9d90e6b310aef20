"""Deletes, configuration, restoring and history: each change made by both libraries gives the same table."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.errors import LanceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"a": pa.array(range(100), pa.int64()), "s": [f"row {i}" if i % 7 else None for i in range(100)]})


def fresh(library: Any, path: Path, **options: Any) -> Any:
    """Four fragments of 25 rows."""
    return library.write_dataset(ROWS, str(path), max_rows_per_file=25, **options)


def facts(table: Any) -> dict[str, Any]:
    """What a version is, without the names and sizes of files."""
    return {
        "version": table.version,
        "rows": table.to_table(with_row_id=True, with_row_address=True).to_pydict(),
        "fragments": [
            (one.fragment_id, one.physical_rows, one.num_deletions, one.metadata.deletion_file and deletion(one))
            for one in table.get_fragments()
        ],
        "config": table.config(),
        "metadata": table.metadata,
        "schema": [(f.name, str(f.type), f.metadata) for f in table.schema],
        "schema metadata": table.schema.metadata,
        "transaction": type(table.read_transaction(table.version).operation).__name__,
    }


def deletion(fragment: Any) -> tuple[Any, ...]:
    file = fragment.metadata.deletion_file
    return file.file_type, file.read_version, file.num_deleted_rows


CHANGES: dict[str, Callable[[Any], Any]] = {
    "some rows": lambda t: t.delete("a % 3 = 0"),
    "by text with nulls": lambda t: t.delete("s is null or a > 90"),
    "by expression": lambda t: t.delete(pc.field("a") < 30),
    "a whole fragment": lambda t: t.delete("a < 25"),
    "everything": lambda t: t.delete("true"),
    "nothing": lambda t: t.delete("a = 1000"),
    "twice": lambda t: (t.delete("a = 3"), t.delete("a in (4, 5, 30)")),
    "the rest of a fragment": lambda t: (t.delete("a < 20"), t.delete("a < 25")),
    "all rows": lambda t: t.truncate_table(),
    "config": lambda t: (t.update_config({"x": "1", "y": "2"}), t.update_config({"x": None, "z": "3"})),
    "config replaced": lambda t: (t.update_config({"x": "1"}), t.update_config({"y": "2"}, replace=True)),
    "config keys": lambda t: (t.update_config({"x": "1", "y": "2"}), t.delete_config_keys(["x"])),
    "metadata": lambda t: (
        t.update_metadata({"m": "1"}),
        t.update_metadata({"n": "2"}),
        t.update_metadata({"m": None}),
    ),
    "schema metadata": lambda t: (t.update_schema_metadata({"k": "v"}), t.update_schema_metadata({"l": "w"})),
    "schema metadata replaced": lambda t: (t.update_schema_metadata({"k": "v"}), t.replace_schema_metadata({"q": "r"})),
    "field metadata": lambda t: (t.update_field_metadata({"a": {"k": "v"}, "s": {"x": "y"}}), t.delete("a = 1")),
    "field metadata replaced": lambda t: (
        t.update_field_metadata({"a": {"k": "v"}}),
        t.replace_field_metadata("a", {"n": "m"}),
    ),
    "insert": lambda t: (t.insert(ROWS.slice(0, 3)), t.insert(ROWS.slice(5, 2), mode="overwrite")),
    "restore": lambda t: (t.delete("a < 60"), t.update_config({"x": "1"}), type(t).restore(older(t, 1))),
}


def older(table: Any, version: int) -> Any:
    return table.checkout_version(version)


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_those_of_pylance(tmp_path: Path, change: str, stable: bool) -> None:
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for library, name in ((lance, "theirs"), (lance_io, "ours")):
            table = fresh(library, tmp_path / name, enable_stable_row_ids=stable)
            results.append(CHANGES[change](table))
            if change != "restore":
                assert table.version == library.dataset(str(tmp_path / name)).version  # the object moves
    assert results[0] == results[1]
    for reader in (lance, lance_io):
        assert facts(reader.dataset(str(tmp_path / "ours"))) == facts(reader.dataset(str(tmp_path / "theirs")))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "no such column": lambda t: t.delete("zz = 1"),
    "no boolean": lambda t: t.delete("a"),
    "no expression": lambda t: t.delete("a ="),
    "no such field": lambda t: t.update_field_metadata({"nope": {"x": "y"}}),
    "no such version": lambda t: t.read_transaction(99),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_those_of_pylance(tmp_path: Path, case: str) -> None:
    theirs, ours = fresh(lance, tmp_path / "theirs"), fresh(lance_io, tmp_path / "ours")
    with pytest.raises((OSError, ValueError)) as expected:
        REFUSED[case](theirs)
    with pytest.raises(LanceError) as raised:
        REFUSED[case](ours)
    assert isinstance(raised.value, expected.type)
    assert lance.dataset(tmp_path / "ours").version == 1


@pytest.mark.parametrize("library", [lance, lance_io])
def test_a_predicate_that_fails_deletes_nothing(tmp_path: Path, library: Any) -> None:
    table = fresh(library, tmp_path / "t")
    for target in (table, table.get_fragments()[0]):
        for predicate in ("cast(s as int) = 1", "1 / (a - 20) = 1"):
            with pytest.raises(OSError, match=r"(?i)cast|parse|divide"):
                target.delete(predicate)
    assert (table.version, table.count_rows()) == (1, 100)


@pytest.mark.parametrize("library", [lance, lance_io])
def test_ids_of_new_fragments_fit(tmp_path: Path, library: Any) -> None:
    for number, error in ((-1, OverflowError), (1 << 64, OverflowError), (1.5, TypeError), ("1", TypeError)):
        with pytest.raises(error):
            library.LanceFragment.create(tmp_path / "t", ROWS, fragment_id=number)
    assert library.LanceFragment.create(tmp_path / "t", ROWS, fragment_id=7).id == 7


def test_many_deleted_rows_become_a_bitmap_and_stay_merged(tmp_path: Path) -> None:
    rows = pa.table({"a": range(20_000)})
    table = lance_io.write_dataset(rows, tmp_path / "t")
    expected = 20_000
    for predicate, kind in (("a < 5000", "array"), ("a = 7000", "bitmap"), ("a % 2 = 0", "bitmap")):
        expected -= table.delete(predicate)["num_deleted_rows"]
        for reader in (lance, lance_io):
            seen = reader.dataset(tmp_path / "t")
            assert seen.get_fragments()[0].metadata.deletion_file.file_type == kind
            assert seen.count_rows() == seen.to_table().num_rows == expected
    lance.dataset(tmp_path / "t").delete("a > 19000")
    assert lance_io.dataset(tmp_path / "t").count_rows() == lance.dataset(tmp_path / "t").to_table().num_rows


def test_two_stale_deletes_are_merged(tmp_path: Path) -> None:
    """Other rows of the same fragment: both hold. The same rows: the second is made anew and finds none."""
    fresh(lance_io, tmp_path / "t")
    first, second, third = (lance_io.dataset(tmp_path / "t") for _ in range(3))
    assert first.delete("a in (1, 2)") == {"num_deleted_rows": 2}
    assert second.delete("a in (3, 30)") == {"num_deleted_rows": 2}
    assert third.delete("a in (2, 3, 4)") == {"num_deleted_rows": 1}
    assert (first.version, second.version, third.version) == (2, 3, 4)
    for reader in (lance, lance_io):
        left = reader.dataset(tmp_path / "t").to_table()["a"].to_pylist()
        assert left == [i for i in range(100) if i not in (1, 2, 3, 4, 30)]


def test_a_stale_delete_follows_a_compaction(tmp_path: Path) -> None:
    fresh(lance_io, tmp_path / "t")
    stale = lance_io.dataset(tmp_path / "t")
    lance.dataset(tmp_path / "t").optimize.compact_files()
    assert stale.delete("a < 50") == {"num_deleted_rows": 50}
    assert lance.dataset(tmp_path / "t").to_table()["a"].to_pylist() == list(range(50, 100))


def test_history_is_that_of_pylance(tmp_path: Path) -> None:
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        table = fresh(library, tmp_path / name)
        table.delete("a < 30")
        table.insert(ROWS.slice(0, 2))
        table.update_config({"k": "v"})
    for reader in (lance, lance_io):
        ours, theirs = reader.dataset(str(tmp_path / "ours")), reader.dataset(str(tmp_path / "theirs"))
        assert [described(one) for one in ours.get_transactions()] == [
            described(one) for one in theirs.get_transactions()
        ]
        assert len(ours.get_transactions(2)) == 2
    ours = lance_io.dataset(tmp_path / "ours")
    by_us, by_them = ours.read_transaction(2), lance.dataset(tmp_path / "ours").read_transaction(2)
    assert by_us.uuid == by_them.uuid
    assert [one.to_json() for one in by_us.operation.updated_fragments] == [
        one.to_json() for one in by_them.operation.updated_fragments
    ]


def described(transaction: Any) -> tuple[Any, ...]:
    operation = transaction.operation
    return (
        transaction.read_version,
        type(operation).__name__,
        [(one.id, one.physical_rows, one.num_deletions) for one in getattr(operation, "fragments", [])],
        getattr(operation, "predicate", None),
        getattr(operation, "deleted_fragment_ids", None),
    )


def test_drop(tmp_path: Path) -> None:
    fresh(lance_io, tmp_path / "t").delete("a = 1")
    (tmp_path / "t" / "data" / ".lance-io-unfinished").write_bytes(b"half")
    lance_io.LanceDataset.drop(tmp_path / "t")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="Not found"):
        lance_io.LanceDataset.drop(tmp_path / "t")
    lance_io.LanceDataset.drop(tmp_path / "t", ignore_not_found=True)


@pytest.mark.parametrize("who", ["lance", "lance_io", "awaited"])
async def test_drop_leaves_what_is_behind_links(who: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    (tmp_path / "elsewhere" / "kept").write_text("not the table's")
    table = tmp_path / "t"
    fresh(lance_io, table)
    (table / "link").symlink_to(tmp_path / "elsewhere")
    (table / "data" / "file").symlink_to(tmp_path / "elsewhere" / "kept")
    (table / "data" / "empty").mkdir()
    if who == "awaited":
        await lance_io.AsyncDataset.drop(table)
    else:
        {"lance": lance, "lance_io": lance_io}[who].LanceDataset.drop(str(table))
    assert not table.exists()
    assert (tmp_path / "elsewhere" / "kept").read_text() == "not the table's"
    assert (tmp_path / "elsewhere" / "empty").is_dir()


async def test_the_awaitable_twins(tmp_path: Path) -> None:
    table = await lance_io.AsyncDataset.write(ROWS, tmp_path / "t", max_rows_per_file=25)
    assert await table.delete("a < 30") == {"num_deleted_rows": 30}
    assert await table.update_config({"k": "v"}) == {"k": "v"}
    assert await table.update_metadata({"m": "n"}) == {"m": "n"}
    assert await table.update_schema_metadata({"q": "r"}) == {"q": "r"}
    await table.update_field_metadata({"a": {"x": "y"}})
    await table.delete_config_keys(["k"])
    await table.truncate_table()
    await table.insert(ROWS)
    older = await table.checkout_version(1)
    await older.restore()
    assert older.version == 10
    assert lance.dataset(tmp_path / "t").to_table().equals(ROWS.cast(older.schema))
    names = [type(one.operation).__name__ for one in await older.get_transactions(20) if one is not None]
    assert names == ["Restore", "Append", "Delete", *["UpdateConfig"] * 5, "Delete", "Overwrite"]
    await lance_io.AsyncDataset.drop(tmp_path / "t")


def test_one_text_is_no_list_of_keys(tmp_path: Path) -> None:
    """Its letters would be keys, too."""
    for library in (lance, lance_io):
        table = library.write_dataset(pa.table({"a": [1]}), tmp_path / library.__name__)
        table.update_config({"k": "1", "e": "2"})
        with pytest.raises(TypeError):
            table.delete_config_keys("key")
        assert lance.dataset(tmp_path / library.__name__).config() == {"k": "1", "e": "2"}
