"""Tables of file versions 2.0 and 0.1: engines, commands, and what is done to versions, on disk and on S3."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lance_io
from lance_io.cli.main import app
from lance_io.errors import FormatError, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import S3Server

OLD = pytest.mark.parametrize("version", ["0.1", "2.0"])


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "i": numbers,
            "s": [None if i % 5 == 0 else f"text {i}" for i in numbers],
            "l": [[i] * (i % 3) for i in numbers],
            "n": [{"x": i / 2} for i in numbers],
        }
    )


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str] | None]:
    """A URI, and the options of its store."""
    if request.param == "local":
        return str(tmp_path / "t.lance"), None
    server: S3Server = request.getfixturevalue("s3")
    return f"{request.getfixturevalue('s3_uri')}/t.lance", server.options()


def make(place: tuple[str, Any], version: str) -> Any:
    """A table of four versions: two writes of two files each by either library, a deletion, a tag on the second one."""
    uri, options = place
    how = {"max_rows_per_file": 40, "max_rows_per_group": 16, "storage_options": options}
    lance.write_dataset(rows(0, 80), uri, data_storage_version=version, **how)
    lance_io.write_dataset(rows(80, 80), uri, mode="append", **how)
    table = lance_io.dataset(uri, storage_options=options)
    assert table.data_storage_version == version
    table.tags.create("both", 2)
    table.delete("i % 10 = 3")
    return lance_io.dataset(uri, storage_options=options)


def peer(place: tuple[str, Any], version: Any = None) -> lance.LanceDataset:
    return lance.dataset(place[0], version=version, storage_options=place[1])


@OLD
def test_engines(place: tuple[str, Any], version: str) -> None:
    made = make(place, version)
    found = duckdb.sql("select sum(i), count(s), sum(n.x), sum(len(l)) from made where i > 20")
    left = [row for row in peer(place).to_table().to_pylist() if row["i"] > 20]
    sums = (
        sum(row["i"] for row in left),
        sum(row["s"] is not None for row in left),
        sum(row["n"]["x"] for row in left),
        sum(len(row["l"]) for row in left),
    )
    assert found.fetchall() == [sums]
    lazy = pl.scan_pyarrow_dataset(made).filter(pl.col("i") > 150).select("s")
    assert lazy.collect()["s"].to_list() == [row["s"] for row in left if row["i"] > 150]


@OLD
def test_commands(place: tuple[str, Any], version: str) -> None:
    make(place, version)
    options = [f"--storage-option={key}={value}" for key, value in (place[1] or {}).items()]

    def run(*words: str) -> Any:
        ran = CliRunner().invoke(app, [words[0], place[0], *words[1:], *options, "--json"])
        assert ran.exit_code == 0, (ran.output, ran.exception)
        return json.loads(ran.stdout)

    info, pages, plan = run("info"), run("pages"), run("explain")
    assert info["num_rows"] == peer(place).count_rows() == 144
    assert info["file_versions"] == [version] == [info["data_storage_version"]]
    assert {one["file_version"] for one in pages["files"]} == {version}
    assert plan["num_requests"] > 0 and plan["operation"] == "scan"


@OLD
def test_versions_are_restored_tagged_and_cleaned_up(place: tuple[str, Any], version: str) -> None:
    table = make(place, version)
    before = lance_io.dataset(place[0], "both", storage_options=place[1])
    assert before.to_table() == peer(place, 2).to_table()
    before.restore()
    assert peer(place).to_table() == before.to_table() and peer(place).data_storage_version == version
    table = lance_io.dataset(place[0], storage_options=place[1])
    table.validate()
    stats = table.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert stats.old_versions == 2  # the tagged one and the newest stay
    assert [one["version"] for one in peer(place).versions()] == [2, 4]
    assert peer(place).to_table() == before.to_table() == peer(place, "both").to_table()
    table.delete("i < 100")
    lance_io.write_dataset(rows(200, 3), place[0], mode="append", storage_options=place[1])
    assert peer(place).to_table() == lance_io.dataset(place[0], storage_options=place[1]).to_table()


@OLD
def test_validate_finds_what_is_wrong(tmp_path: Path, version: str) -> None:
    table = make((str(tmp_path / "t.lance"), None), version)
    table.validate()
    first, second = sorted((tmp_path / "t.lance" / "data").iterdir())[:2]
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match=first.name):
        lance_io.dataset(table.uri).validate()
    first.write_bytes(whole)
    lance_io.dataset(table.uri).validate()
    second.unlink()
    with pytest.raises(NotFound, match=second.name):
        lance_io.dataset(table.uri).validate()
