"""`lance-io merge`, by what pylance's `merge_insert` makes of the same rows on a copy of the table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lance_io.cli import merge_sources
from lance_io.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable

Merge = Any
COUNTS = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")


def rows(ids: range, price: float) -> pa.Table:
    """Two key columns and two others."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "shop": pa.array([i % 3 for i in ids], pa.int16()),
            "name": [f"name {i}" for i in ids],
            "price": [price + i for i in ids],
        }
    )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """100 rows in two fragments."""
    place = str(tmp_path / "t.lance")
    lance.write_dataset(rows(range(100), 0.0), place, max_rows_per_file=60)
    return place


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The last ten rows with higher prices, and five new ones."""
    path = tmp_path / "new.parquet"
    pq.write_table(rows(range(90, 105), 1000.0), path)
    return path


def content(uri: str) -> list[dict[str, Any]]:
    """All rows, by their key."""
    found: list[dict[str, Any]] = lance.dataset(uri).to_table().sort_by("id").to_pylist()
    return found


def by_pylance(uri: str, source: pa.Table, build: Callable[[Merge], Merge], on: Any) -> tuple[Any, Any]:
    """What pylance does on a copy of the table: its counts, and all rows then."""
    twin = f"{uri}.twin"
    shutil.rmtree(twin, ignore_errors=True)
    shutil.copytree(uri, twin)
    return build(lance.dataset(twin).merge_insert(on)).execute(source), content(twin)


CLAUSES: dict[str, tuple[list[str], Callable[[Merge], Merge]]] = {
    "upsert": ([], lambda merge: merge.when_matched_update_all().when_not_matched_insert_all()),
    "insert only": (["--when-matched", "nothing"], lambda merge: merge.when_not_matched_insert_all()),
    "update only": (["--when-not-matched", "nothing"], lambda merge: merge.when_matched_update_all()),
    "update if": (
        ["--update-if", "source.price > target.price + 1000 and target.id > 95"],
        lambda merge: merge.when_matched_update_all(
            "source.price > target.price + 1000 and target.id > 95"
        ).when_not_matched_insert_all(),
    ),
    "delete": (
        ["--when-matched", "delete", "--when-not-matched", "nothing"],
        lambda merge: merge.when_matched_delete(),
    ),
    "replace": (
        ["--when-not-matched-by-source", "delete"],
        lambda merge: merge.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete(),
    ),
    "delete if": (
        ["--when-not-matched-by-source", "delete", "--delete-if", "shop = 1"],
        lambda merge: (
            merge.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete("shop = 1")
        ),
    ),
}


@pytest.mark.parametrize("clauses", CLAUSES)
def test_clauses(run: Any, uri: str, source: Path, clauses: str) -> None:
    options, build = CLAUSES[clauses]
    counts, wanted = by_pylance(uri, pq.read_table(source), build, ["id", "shop"])
    before = sorted(path.name for path in Path(uri).rglob("*"))
    dry = run("merge", uri, source, "--on", "id,shop", *options, "--dry-run", "--json").report
    assert dry == {"done": False, "version": 1, **counts}
    assert sorted(path.name for path in Path(uri).rglob("*")) == before
    done = run("merge", uri, source, "--on", "id", "--on", "shop", *options, "--json").report
    assert done == {"done": True, "version": 2, **counts}
    assert content(uri) == wanted


def test_is_told_in_words(run: Any, uri: str, source: Path) -> None:
    command = ("merge", uri, source, "--on", "id")
    assert run(*command, "--dry-run").out == "5 rows would be inserted, 10 updated, 0 deleted\n"
    assert run(*command, "--memory-limit", 1 << 25).out == "version 2: 5 rows inserted, 10 updated, 0 deleted\n"


def test_several_sources_of_several_kinds(run: Any, uri: str, tmp_path: Path) -> None:
    new = rows(range(95, 110), 500.0)
    paths = [tmp_path / "a.csv", tmp_path / "b.arrow", tmp_path / "c.lance"]
    pc.write_csv(new.slice(0, 5), paths[0])
    with pa.OSFile(str(paths[1]), "wb") as sink, pa.ipc.new_file(sink, new.schema) as writer:
        writer.write_table(new.slice(5, 5))
    lance.write_dataset(rows(range(3), 0.0), paths[2])
    lance.write_dataset(new.slice(10), paths[2], mode="overwrite")
    _, wanted = by_pylance(uri, new, CLAUSES["upsert"][1], "id")
    assert run("merge", uri, *paths, "--on", "id", "--json").report["num_inserted_rows"] == 10
    assert content(uri) == wanted


def test_a_source_without_some_columns(run: Any, uri: str, tmp_path: Path) -> None:
    path = tmp_path / "prices"
    path.write_text("price;id\n7.5;3\n8.5;200\n")
    new = pa.table({"price": [7.5, 8.5], "id": [3, 200]})
    _, wanted = by_pylance(uri, new, CLAUSES["upsert"][1], "id")
    assert run("merge", uri, path, "--on", "id", "--format", "csv", "--csv-delimiter", ";").code == 0
    assert content(uri) == wanted


def test_the_declared_key(run: Any, tmp_path: Path) -> None:
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    table = pa.table({"id": [1, 2], "v": [1, 2]}, pa.schema([key, ("v", pa.int64())]))
    uri, source = str(tmp_path / "keyed"), tmp_path / "more.csv"
    lance.write_dataset(table, uri)
    source.write_text("id,v\n2,20\n3,30\n")
    assert run("merge", uri, source).code == 0
    assert content(uri) == [{"id": 1, "v": 1}, {"id": 2, "v": 20}, {"id": 3, "v": 30}]


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        ([], 2, "keys"),
        (["--on", "nope"], 2, "nope"),
        (["--on", "id", "--when-matched", "nothing", "--when-not-matched", "nothing"], 2, "not configured"),
        (["--on", "id", "--when-matched", "nothing", "--update-if", "true"], 2, "--update-if"),
        (["--on", "id", "--delete-if", "shop = 1"], 2, "--delete-if"),
        (["--on", "id", "--when-matched", "fail"], 2, "id = 90"),
        (["--on", "id", "--update-if", "price > 3"], 2, "price"),
        (["--on", "id", "--when-not-matched-by-source", "delete", "--delete-if", "nope > 3"], 1, "nope"),
        (["--on", "id", "--memory-limit", "100"], 2, "memory_limit"),
        (["--on", "shop"], 2, "Ambiguous"),
        (["--on", "id", "--when-matched", "other"], 2, "other"),
    ],
)
def test_refused(run: Any, uri: str, source: Path, options: list[str], code: int, word: str) -> None:
    ran = run("merge", uri, source, *options)
    assert ran.code == code, ran.err
    assert word in ran.err
    assert lance.dataset(uri).version == 1


def test_refused_sources(run: Any, uri: str, tmp_path: Path) -> None:
    assert run("merge", uri, tmp_path / "gone.parquet", "--on", "id").code == 1
    assert "name its files" in run("merge", uri, tmp_path, "--on", "id").err
    other = tmp_path / "other.csv"
    other.write_text("id,colour\n1,red\n")
    assert "colour" in run("merge", uri, other, "--on", "id").err
    assert run("merge", f"{uri}.not", other, "--on", "id").code == 1


@pytest.mark.parametrize(("answer", "updated"), [("n\n", 0), ("y\n", 10)])
def test_asks_on_a_terminal(uri: str, source: Path, monkeypatch: pytest.MonkeyPatch, answer: str, updated: int) -> None:
    monkeypatch.setattr(merge_sources, "is_interactive", lambda: True)
    ran = CliRunner().invoke(app, ["merge", uri, str(source), "--on", "id"], input=answer)
    assert f"Insert 5, update 10, delete 0 rows of {uri}?" in ran.stderr
    assert (ran.exit_code == 0) == bool(updated)
    assert sum(row["price"] >= 1000 for row in content(uri) if row["id"] < 100) == updated


def test_a_lance_table_as_source_of_a_write(run: Any, tmp_path: Path) -> None:
    source, uri = tmp_path / "source", tmp_path / "copy"
    lance.write_dataset(rows(range(50), 1.0), source, max_rows_per_file=20)
    lance.dataset(source).delete("id % 7 = 1")
    assert run("write", source, uri, "--json").report["num_rows"] == 43
    assert content(str(uri)) == content(str(source))
    table = pa.table({"b": lance.blob_array([b"one"])}, pa.schema([lance.blob_field("b")]))
    lance.write_dataset(table, tmp_path / "blobs", data_storage_version="2.2")
    ran = run("write", tmp_path / "blobs", tmp_path / "other")
    assert (ran.code, "`clone`" in ran.err, (tmp_path / "other").exists()) == (2, True, False)
