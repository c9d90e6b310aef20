"""Functions of batches, and their checkpoints, beside pylance's."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import lance.udf as theirs
import pandas as pd
import pyarrow as pa
import pytest

import lance_io
import lance_io.udf as ours

if TYPE_CHECKING:
    from pathlib import Path

BATCH = pa.record_batch({"a": [1, 2]})
SCHEMA = pa.schema([("b", pa.int64())])
BOTH = pytest.mark.parametrize("make", [ours, theirs], ids=["ours", "theirs"])


@BOTH
def test_functions(make: Any) -> None:
    @make.batch_udf(output_schema=SCHEMA)  # type: ignore[untyped-decorator]
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.array([2 * one for one in batch["a"].to_pylist()])], ["b"])

    assert isinstance(double, make.BatchUDF)
    assert (double.output_schema, double.cache) == (SCHEMA, None)
    assert double(BATCH).to_pydict() == double._call(BATCH).to_pydict() == {"b": [2, 4]}
    assert make.BatchUDF(lambda _: pd.DataFrame({"b": [1, 2]}), SCHEMA)._call(BATCH).to_pydict() == {"b": [1, 2]}
    with pytest.raises(ValueError, match="output_schema must be provided"):
        make.BatchUDF(double.func)._call(BATCH)
    for wrong in (lambda _: pa.record_batch({"c": [1, 2]}), lambda _: pd.DataFrame({"b": [1.5, 2]})):
        with pytest.raises((ValueError, AssertionError), match="Output schema of function does not match the expected"):
            make.BatchUDF(wrong, SCHEMA)._call(BATCH)
    with pytest.raises((TypeError, AttributeError)):
        make.BatchUDF(lambda _: 5, SCHEMA)._call(BATCH)


@BOTH
def test_what_columns_are_made_of(make: Any, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": range(10)}), str(tmp_path / "t"), max_rows_per_file=4)
    lance.write_dataset(pa.table({"a": pa.array([], pa.int64())}), str(tmp_path / "empty"))
    library = lance_io if make is ours else lance
    table, empty = library.dataset(str(tmp_path / "t")), library.dataset(str(tmp_path / "empty"))
    asked: list[int] = []

    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        asked.append(len(batch))
        return pa.record_batch({"b": batch["a"]})

    normalize = make.normalize_transform
    assert normalize({"b": "a + 1"}, table) == {"b": "a + 1"}
    for source in (table, table.get_fragments()[1]):
        assert normalize(copy, source).output_schema == SCHEMA
    assert asked == [1, 1]
    if make is ours:  # pylance finds no row to ask with
        assert normalize(copy, empty).output_schema == SCHEMA
    given = make.BatchUDF(copy, SCHEMA)
    assert normalize(given, table) is given
    counted = normalize(lambda batch: pa.record_batch({n: batch[n] for n in batch.schema.names}), table, ["_rowid"])
    assert counted.output_schema.names == ["_rowid"]
    for data in (pa.table({"b": range(10)}), pa.table({"b": range(10)}).to_reader(), pd.DataFrame({"b": range(10)})):
        assert normalize(data, table).read_all().to_pydict() == {"b": list(range(10))}
    assert normalize(iter([BATCH]), table, reader_schema=BATCH.schema).read_all().num_rows == 2
    for wrong, error in (
        (lambda _: 5, TypeError),
        (5, TypeError),
        (pa.field("b", pa.int64()), TypeError),
        ({"b": 5}, TypeError),
    ):
        with pytest.raises(error):
            normalize(wrong, table)
    for wrong in (iter([BATCH]), "a + 1"):
        with pytest.raises(ValueError, match="Must provide schema"):
            normalize(wrong, table)


@BOTH
def test_checkpoints(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    checkpoint, place = make.BatchUDFCheckpoint(path), make.BatchUDFCheckpoint.BatchInfo
    assert checkpoint.get_batch(place(0, 0)) is None and checkpoint.get_fragment(0) is None
    for fragment, batch in ((0, 0), (0, 1), (1, 0)):
        checkpoint.insert_batch(place(fragment, batch), BATCH.slice(batch))
    assert checkpoint.get_batch(place(0, 1)).equals(BATCH.slice(1))
    checkpoint.insert_fragment(0, '{"id": 0}')
    again = make.BatchUDFCheckpoint(path)
    assert again.get_fragment(0) == '{"id": 0}'
    assert again.get_batch(place(0, 0)) is None and again.get_batch(place(1, 0)).equals(BATCH)
    again.cleanup()
    assert not path.exists()
    assert make.BatchUDF(lambda _: BATCH, SCHEMA, path).cache.path == path or make is theirs


def test_a_checkpoint_is_of_one_state_of_a_table(tmp_path: Path) -> None:
    checkpoint = ours.BatchUDFCheckpoint(tmp_path / "c.sqlite")
    for _ in range(2):
        checkpoint.bind("version 3")
    with pytest.raises(ValueError, match="the table has changed since"):
        ours.BatchUDFCheckpoint(tmp_path / "c.sqlite").bind("version 4")


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Those of pylance, whose results are pickles, among them."""
    theirs.BatchUDFCheckpoint(tmp_path / "theirs.sqlite")
    with pytest.raises(ValueError, match="expected a checkpoint of lance_io"):
        ours.BatchUDFCheckpoint(tmp_path / "theirs.sqlite")
    (tmp_path / "text").write_text("no database, and longer than its header would be" * 10)
    with pytest.raises(ValueError, match="a database of SQLite"):
        ours.BatchUDFCheckpoint(tmp_path / "text")
    checkpoint = ours.BatchUDFCheckpoint(tmp_path / "c.sqlite")
    checkpoint._ask("INSERT INTO batches VALUES (0, 0, ?)", b"damaged")
    with pytest.raises(ValueError, match="expected an Arrow IPC stream"):
        checkpoint.get_batch(ours.BatchUDFCheckpoint.BatchInfo(0, 0))


def test_what_was_kept_survives_a_kill_and_many_threads(tmp_path: Path) -> None:
    code = "import sys, os, pyarrow as pa, lance_io.udf as u; c = u.BatchUDFCheckpoint(sys.argv[1]); "
    code += "c.insert_batch(c.BatchInfo(0, 0), pa.record_batch({'a': [1, 2]})); os.kill(os.getpid(), 9)"
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "c.sqlite")], check=False)
    assert ran.returncode == -9
    checkpoint = ours.BatchUDFCheckpoint(tmp_path / "c.sqlite")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: checkpoint.insert_batch(checkpoint.BatchInfo(1, n), BATCH), range(40)))
    places = [(0, 0), *((1, n) for n in range(40))]
    assert all(checkpoint.get_batch(checkpoint.BatchInfo(*place)).equals(BATCH) for place in places)
