"""`lance-io write`: what pylance reads of it, and what is refused."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from lance.file import LanceFileReader

import lance_io
from lance_io.cli import sources
from lance_io.cli.output import Meter, transfer
from lance_io.cli.sources import CsvOptions, open_sources, read_rows
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 5000


def orders(start: int = 0, num_rows: int = NUM_ROWS) -> pa.Table:
    """Columns that all kinds of source can hold."""
    numbers = range(start, start + num_rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"name {i}" for i in numbers],
            "price": [i / 8 for i in numbers],
            "day": pa.array([date(2024, 1, 1 + i % 28) for i in numbers]),
        }
    )


def save(table: pa.Table, path: Path) -> Path:
    """A table as a file of the kind that the name says."""
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=1500)
        case ".csv":
            pc.write_csv(table, path)
        case ".tsv":
            pc.write_csv(table, path, pc.WriteOptions(delimiter="\t"))
        case ".arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, 700)
        case ".arrows":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, 700)
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "arrow", "arrows"])
def test_writes_every_kind_of_file(run: Any, tmp_path: Path, kind: str) -> None:
    source, uri = save(orders(), tmp_path / f"orders.{kind}"), tmp_path / "t.lance"
    report = run("write", source, uri, "--max-rows-per-file", 2000, "--commit-message", "first", "--json").report
    written = lance.dataset(uri)
    assert written.to_table() == orders()
    files = [file for fragment in written.get_fragments() for file in fragment.data_files()]
    assert report.pop("seconds") > 0
    assert report == {
        "uri": str(uri),
        "mode": "create",
        "version": 1,
        "num_rows": NUM_ROWS,
        "num_fragments": 3,
        "num_data_files": 3,
        "data_bytes": sum(file.file_size_bytes for file in files),
    }
    assert [fragment.count_rows() for fragment in written.get_fragments()] == [2000, 2000, 1000]
    assert written.read_transaction(1).transaction_properties == {"__lance_commit_message": "first"}


def test_modes(run: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    first, second = (save(orders(at), tmp_path / name) for at, name in [(0, "a.parquet"), (NUM_ROWS, "b.arrow")])
    assert run("write", first, second, uri, "--data-storage-version", "2.1").code == 0
    both = pa.concat_tables([orders(), orders(NUM_ROWS)])
    assert lance.dataset(uri).to_table() == both
    refused = run("write", first, uri)
    assert refused.code == 1
    assert "already exists" in refused.err
    assert run("write", first, uri, "--mode", "append", "--json").report["version"] == 2
    assert lance.dataset(uri).to_table() == pa.concat_tables([both, orders()])
    assert lance.dataset(uri).data_storage_version == "2.1"
    shown = run("write", second, uri, "-m", "overwrite")
    assert "version 3" in shown.out
    assert "5,000 rows in 1 fragment, 1 data file" in shown.out
    assert lance.dataset(uri).to_table() == orders(NUM_ROWS)


def test_csv_has_the_types_of_the_table_it_joins(run: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    table = pa.table({"a": pa.array([1], pa.int16()), "b": ["07"], "c": pa.array([datetime(2024, 1, 1)])})
    lance.write_dataset(table, uri)
    more = tmp_path / "more.csv"
    more.write_text("c,b,a\n2024-01-02T03:04:05.5,08,2\n2024-01-03,09,\n")
    assert run("write", more, uri, "-m", "append").code == 0
    assert lance.dataset(uri).schema == table.schema
    assert lance.dataset(uri).to_table().to_pylist()[1:] == [
        {"a": 2, "b": "08", "c": datetime(2024, 1, 2, 3, 4, 5, 500_000)},
        {"a": None, "b": "09", "c": datetime(2024, 1, 3)},
    ]


def test_csv_options(run: Any, tmp_path: Path) -> None:
    source, uri = tmp_path / "data", tmp_path / "t.lance"
    source.write_text('a;when\n7;2024-01-02\n8;"2024-01-03"\n')
    types = ["--csv-type", "a=string", "--csv-type", "when=timestamp[us, tz=UTC]"]
    assert run("write", source, uri, "--format", "csv", "--csv-delimiter", ";", "--csv-type", "a=string").code == 0
    assert lance.dataset(uri).to_table().to_pylist() == [
        {"a": "7", "when": date(2024, 1, 2)},
        {"a": "8", "when": date(2024, 1, 3)},
    ]
    assert run("write", source, uri, "--format", "csv", *types).code == 2
    assert "is no Arrow type" in run("write", source, uri, "--csv-type", "a=text").err
    assert "NAME=TYPE" in run("write", source, uri, "--csv-type", "a").err
    assert "one character" in run("write", source, uri, "--csv-delimiter", "::").err
    missing = run("write", source, uri, "--format", "csv", "--csv-delimiter", ";", "--csv-type", "When=date32")
    assert (missing.code, "no such column; there are a, when" in missing.err) == (2, True)
    for delimiter in ("é", '"', "\n"):
        ran = run("write", source, uri, "--csv-delimiter", delimiter)
        assert (ran.code, "one character" in ran.err) == (2, True)


def test_field_ids_of_parquet_are_left_behind(run: Any, tmp_path: Path) -> None:
    field = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "17", "unit": "m"})
    pq.write_table(pa.table([pa.array([1])], schema=pa.schema([field])), tmp_path / "a.parquet")
    assert run("write", tmp_path / "a.parquet", tmp_path / "t").code == 0
    assert lance.dataset(tmp_path / "t").schema.field("a").metadata == {b"unit": b"m"}


def test_refused_sources(run: Any, tmp_path: Path) -> None:
    good, uri = save(orders(), tmp_path / "a.parquet"), tmp_path / "t.lance"
    other = save(orders().rename_columns(["id", "name", "price", "date"]), tmp_path / "b.parquet")
    cut, unknown, text = (tmp_path / name for name in ("cut.parquet", "q", "late.csv"))
    cut.write_bytes(good.read_bytes()[:-100])
    unknown.write_text("?")
    text.write_text("a\n" + "1\n" * 100 + "x\n")
    for given, word in [
        ([tmp_path / "nothing.csv"], "no such file"),
        ([tmp_path], "folder"),
        ([unknown], "--format"),
        ([cut], "cut.parquet"),
        ([good, other], "date, day"),
        ([text, "--csv-type", "a=int64"], "--csv-type"),
    ]:
        ran = run("write", *given, uri)
        assert ran.code in (1, 2)
        assert word in ran.err
        assert len(ran.err.splitlines()) == 1
        assert not list(uri.glob("_versions/*"))


def test_a_source_that_fails_late_leaves_no_rows(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CSV_BLOCK_BYTES", 1000)
    source, uri = tmp_path / "late.csv", tmp_path / "t.lance"
    save(orders(), tmp_path / "a.parquet")
    assert run("write", tmp_path / "a.parquet", uri).code == 0
    source.write_text("id,name,price,day\n" + "1,x,2.5,2024-01-01\n" * 5000 + "many,x,2.5,2024-01-01\n")
    ran = run("write", source, uri, "-m", "append", "--max-rows-per-file", 1000)
    assert ran.code == 1
    assert "CSV conversion error" in ran.err
    assert lance.dataset(uri).version == 1
    assert len(list(uri.glob("data/*"))) == 1


def test_rows_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 500)
    paths = [str(save(orders(), tmp_path / name)) for name in ("a.parquet", "b.arrow", "c.arrows")]
    opened = open_sources(paths, None, CsvOptions())
    assert [one.num_rows for one in opened] == [NUM_ROWS, None, None]
    before = pa.total_allocated_bytes()
    for batch in read_rows(opened):
        assert batch.num_rows <= 1500
        assert pa.total_allocated_bytes() - before < orders().nbytes


def test_meter_tells_rows_bytes_and_rates(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    meter = Meter(3000, clock=lambda: now[0])
    now[0] += 2
    meter.add(1000, 3 << 20)
    assert meter.text() == "1,000/3,000 rows, 3.0 MiB, 500 rows/s, 1.5 MiB/s"
    with transfer("writing", None) as advance:  # no terminal: nothing is shown
        advance(1, 1)
    assert capsys.readouterr() == ("", "")


def test_pages_shows_the_choices_of_our_files(run: Any, tmp_path: Path) -> None:
    """The codecs that `pages` names are those that pylance finds in the same file."""
    chance, num_rows = np.random.default_rng(1), 20_000
    text = pa.array([chance.bytes(6).hex() for _ in range(num_rows)])
    asked: dict[str, tuple[pa.Array, dict[str, str]]] = {
        "bits": (pa.array(chance.integers(0, 1 << 40, num_rows)), {}),
        "lz4": (pa.array(chance.integers(0, 1 << 40, num_rows)), {"compression": "lz4"}),
        "runs": (pa.array(np.repeat(np.arange(num_rows // 100), 100)), {"rle-threshold": "0.9"}),
        "split": (pa.array(np.cumsum(chance.random(num_rows)).astype("f4")), {"bss": "on", "compression": "zstd"}),
        "words": (pa.array(np.array(["red", "green", "blue"])[chance.integers(0, 3, num_rows)]), {}),
        "fsst": (text, {}),
        "plain": (text, {"compression": "none"}),
        "zstd": (text, {"compression": "zstd"}),
        "wide": (pa.array([chance.bytes(300) for _ in range(num_rows)], pa.binary()), {}),
        "one": (pa.array([7] * num_rows), {}),
        "null": (pa.nulls(num_rows, pa.int32()), {}),
        "flags": (pa.array(chance.random(num_rows) > 0.5), {}),
        "vector": (pa.FixedSizeListArray.from_arrays(pa.array(chance.random(num_rows * 4, np.float32)), 4), {}),
    }
    fields = [
        pa.field(name, array.type, metadata={f"lance-encoding:{key}": value for key, value in options.items()})
        for name, (array, options) in asked.items()
    ]
    table = pa.table([array for array, _ in asked.values()], schema=pa.schema(fields))
    uri = tmp_path / "t.lance"
    lance_io.write_dataset(table, uri)
    (file,) = run("pages", uri, "--json").report["files"]
    theirs = LanceFileReader(str(uri / file["path"])).metadata().columns
    for mine, column in zip(file["columns"], theirs, strict=True):
        description = column.pages[0].encoding
        assert mine["layouts"] == [_layout_of(description, mine["name"])]
        chain = _chain_of(description)
        assert [word for word in re.findall("[a-z0-9_]+", mine["codecs"][0]) if word in _CODECS.values()] == chain
    assert "chunks" in run("pages", uri, "--each-page").out


_CODECS = {
    "InlineBitpacking": "inline_bitpacking",
    "Rle": "rle",
    "Fsst": "fsst",
    "Variable": "variable",
    "CompressionAlgorithmLz4": "lz4",
    "CompressionAlgorithmZstd": "zstd",
    "ByteStreamSplit": "byte_stream_split",
    "FixedSizeList": "fixed_size_list",
}


def _layout_of(description: str, name: str) -> str:
    """The layout in pylance's description of a page, as `pages` calls it."""
    (found,) = re.findall(r"(MiniBlock|FullZip|Constant)Layout \{", description)
    return {"MiniBlock": "mini-block", "FullZip": "full-zip", "Constant": "all-null" if name == "null" else "constant"}[
        found
    ]


def _chain_of(description: str) -> list[str]:
    """The codecs in pylance's description of a page, dictionary first, then from outside to inside."""
    found = re.search(r" value_compression: (.*?)\n {16}dictionary: (.*?)\n {16}num_dictionary", description, re.DOTALL)
    if found is None:
        _, _, values = description.partition(" value_compression: ")
        parts = [values]
    else:
        parts = [found[2], found[1]]
    words = [word for part in parts for word in re.findall("|".join(rf"{one}\b" for one in _CODECS), part)]
    return [_CODECS[word] for word, before in zip(words, ["", *words], strict=False) if word != before]


def test_format_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0" * 100)
    with pytest.raises(UsageError, match="neither Parquet nor Arrow"):
        sources.detect_format(str(tmp_path / "x.bin"))
