"""The tables that are measured: written by pylance (and by pyarrow as Parquet) once, then found again.

    name     rows        files  columns
    five     5,000,000       5  seven: ascending and random int64, double, random string, one of five strings,
                                nullable int64, list of int32
    one      1,000,000       1  the same seven
    many     1,000,000      64  the same seven
    vectors    500,000       1  fixed-size list of 128 floats
    spark_narrow   500,000   4  ascending int64, double from 0 to 1, int32, random string
    spark_vectors   50,000   4  ascending int64, double from 0 to 1, fixed-size list of 256 floats
    spark_large    500,000   8  the same, more than half a gigabyte
    sql_narrow  23,000,000   8  ascending int64, double from 0 to 1, two small int32, two keys, random string: 1 GB
    sql_vectors  1,900,000  16  ascending int64, double from 0 to 1, two keys, fixed-size list of 256 floats: 2 GB
    sql_days, sql_shops  100, 1000  1  the keys, and by what rows are summed
    keyed        5,000,000   4  shuffled int64 without repetitions, one of 100 numbers, two of 50 labels, double
    texts          500,000   4  texts of twenty words out of 50,000, frequent and rare ones
    clusters       500,000   4  three times the same: fixed-size list of 128 floats near one of 2,000 centers
    functions      200,000   1  columns for the functions of filters, all values different (`functionrows`)

And in old file versions: `five_2.0`, `many_2.0`, `vectors_2.0`, `five_0.1`, made as those without a number, and

    sorted_0.1 2,000,000     1  the seven, in batches of 8,192 rows

`scale` multiplies the rows, but not those of `sql_days` and `sql_shops`. The content depends on nothing but the table's
name and the scale. The default settings of both writers are used; Parquet is compressed with snappy, one file for each
Lance fragment.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.functionrows import function_rows

READ_BYTES = 8 << 20
GENERATION = 1  # counts changes of the content, so that an old cache is not mistaken for the new one
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)
COLORS = pa.array(["red", "green", "blue", "yellow", "black"])
VECTOR_WIDTH = 128
NUM_CENTERS = 2000
NUM_DAYS, NUM_SHOPS = 100, 1000  # keys of the joins in SQL
TEXT_WORDS = np.array([f"word{number:x}" for number in range(50_000)])  # the most frequent first
FREQUENT = 2000  # words are looked for among as many of the first ones
KEY_STEP, KEYS_END = 2_654_435_761, 1 << 32  # row n has the key n * KEY_STEP modulo KEYS_END: none twice, in no order

MakeRows = Callable[[int, int, np.random.Generator], pa.Table]


def default_cache() -> Path:
    """Where tables are kept between runs: `lance-io/bench` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lance-io" / "bench"


def seven_columns(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows `first_id` and following of the table with one column for each common kind of data."""
    lengths = rng.integers(8, 24, num_rows)
    ends = np.cumsum(lengths, dtype=np.int32)
    letters = LETTERS[rng.integers(0, len(LETTERS), int(lengths.sum()))]
    list_ends = np.cumsum(rng.integers(0, 7, num_rows), dtype=np.int32)
    items = rng.integers(0, 1000, int(list_ends[-1]), dtype=np.int32)
    return pa.table(
        {
            "id": np.arange(first_id, first_id + num_rows),
            "random": rng.integers(-(2**62), 2**62, num_rows),
            "float": rng.random(num_rows),
            "text": pa.StringArray.from_buffers(num_rows, pa.py_buffer(_offsets(ends)), pa.py_buffer(letters)),
            "color": COLORS.take(rng.integers(0, len(COLORS), num_rows)),
            "nullable": pa.array(rng.integers(0, 10_000, num_rows), mask=rng.random(num_rows) < 0.2),
            "list": pa.ListArray.from_arrays(_offsets(list_ends), items),
        }
    )


def keyed(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows with a key, a category and labels, for indices."""
    labels = pa.DictionaryArray.from_arrays(
        rng.integers(0, 50, 2 * num_rows, dtype=np.int32), [f"label {number}" for number in range(50)]
    )
    return pa.table(
        {
            "key": np.arange(first_id, first_id + num_rows) * KEY_STEP % KEYS_END,
            "category": rng.integers(0, 100, num_rows),
            "labels": pa.ListArray.from_arrays(
                _offsets(2 * np.arange(1, num_rows + 1, dtype=np.int32)), labels.cast(pa.string())
            ),
            "value": rng.random(num_rows),
        }
    )


def vectors(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Embeddings of `VECTOR_WIDTH` floats; `first_id` does not matter to them."""
    del first_id
    values = rng.standard_normal(num_rows * VECTOR_WIDTH, dtype=np.float32)
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(values, VECTOR_WIDTH)})


def near_vectors(seed: int, num_rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Vectors in clusters, the same clusters for each seed."""
    centers = np.random.default_rng(11).standard_normal((NUM_CENTERS, VECTOR_WIDTH), dtype=np.float32)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((num_rows, VECTOR_WIDTH), dtype=np.float32)
    return centers[rng.integers(0, NUM_CENTERS, num_rows)] + np.float32(0.6) * noise


def clusters(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """The same vectors in a column for each kind of index."""
    del rng
    values = near_vectors(first_id + 1, num_rows).reshape(-1)
    vectors = pa.FixedSizeListArray.from_arrays(values, VECTOR_WIDTH)
    return pa.table({"v_pq": vectors, "v_flat": vectors, "v_sq": vectors})  # pylance cannot index a column "flat"


def embeddings(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Vectors in clusters, beside ascending numbers."""
    del rng
    values = near_vectors(first_id + 1, num_rows).reshape(-1)
    numbers = np.arange(first_id, first_id + num_rows)
    return pa.table({"id": numbers, "vector": pa.FixedSizeListArray.from_arrays(values, VECTOR_WIDTH)})


def texts(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Texts of twenty words, drawn as often as in natural languages; `first_id` does not matter to them."""
    del first_id
    shares = 1 / np.arange(1, len(TEXT_WORDS) + 1)
    words = TEXT_WORDS[rng.choice(len(TEXT_WORDS), (num_rows, 20), p=shares / shares.sum())]
    return pa.table({"text": [" ".join(row) for row in words]})


def documents(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Texts as in `texts`, beside ascending numbers."""
    return texts(first_id, num_rows, rng).add_column(0, "id", [np.arange(first_id, first_id + num_rows)])


def frequent_words(number: int, num_words: int) -> str:
    """Some of the most frequent words of `texts`, others for each number."""
    ranks = np.random.default_rng(number).choice(FREQUENT, num_words, replace=False)
    return " ".join(TEXT_WORDS[ranks])


def spark_narrow(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Plain columns, some 40 bytes a row."""
    seven = seven_columns(first_id, num_rows, rng)
    small = rng.integers(0, 100, num_rows, np.int32)
    return pa.table({"id": seven["id"], "number": seven["float"], "small": small, "text": seven["text"]})


def spark_vectors(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Wide rows."""
    values = rng.standard_normal(num_rows * 256, dtype=np.float32)
    columns = {"id": np.arange(first_id, first_id + num_rows), "number": rng.random(num_rows)}
    return pa.table({**columns, "vector": pa.FixedSizeListArray.from_arrays(values, 256)})


def sql_narrow(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Sales: a number, units, two keys of other tables and a text."""
    seven = seven_columns(first_id, num_rows, rng)
    units = rng.integers(1, 10, num_rows, np.int32)
    return pa.table(
        {"id": seven["id"], "number": seven["float"], "units": units, **_keys(num_rows, rng), "text": seven["text"]}
    )


def sql_vectors(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Vectors with keys of other tables."""
    rows = spark_vectors(first_id, num_rows, rng)
    return pa.table({**{name: rows[name] for name in rows.column_names}, **_keys(num_rows, rng)})


def _keys(num_rows: int, rng: np.random.Generator) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return {
        "day": rng.integers(0, NUM_DAYS, num_rows, np.int32),
        "shop": rng.integers(0, NUM_SHOPS, num_rows, np.int32),
    }


def sql_days(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Days and their quarters."""
    del rng
    days = np.arange(first_id, first_id + num_rows, dtype=np.int32)
    return pa.table({"day": days, "quarter": days * 4 // NUM_DAYS})


def sql_shops(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Shops and their regions."""
    del rng
    shops = np.arange(first_id, first_id + num_rows, dtype=np.int32)
    return pa.table({"shop": shops, "region": [f"region {shop % 20}" for shop in shops]})


def _offsets(ends: np.ndarray[tuple[int], np.dtype[np.int32]]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.concatenate([np.zeros(1, np.int32), ends])


@dataclass(frozen=True)
class BenchTable:
    """A table on disk, as Lance and as Parquet."""

    name: str
    num_rows: int
    num_fragments: int
    columns: tuple[str, ...]
    lance_uri: str
    parquet_folder: str


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Write below another name and rename at the end: an interrupted run leaves nothing that looks complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    half_done = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        yield half_done
        half_done.chmod(0o755)
        half_done.rename(folder)
    except BaseException:
        shutil.rmtree(half_done, ignore_errors=True)
        raise


@dataclass(frozen=True)
class Recipe:
    """How a table is made.

    old_version  of its files, where that is not the newest; then there is no Parquet beside it
    group_rows   rows of a batch, of files of version 0.1
    is_scaled    whether `scale` multiplies its rows
    """

    name: str
    num_rows: int
    num_fragments: int
    make_rows: MakeRows
    old_version: str | None = None
    group_rows: int = 1024
    is_scaled: bool = True

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self.make_rows(0, 1, np.random.default_rng(0)).column_names
        return names

    def ready(self, cache: Path, scale: float) -> BenchTable:
        """The table, found in `cache` or written there. `scale` multiplies the rows, at least one per fragment."""
        fragment_rows = max(1, round(self.num_rows * (scale if self.is_scaled else 1) / self.num_fragments))
        folder = cache / f"{self.name}-{fragment_rows}x{self.num_fragments}-pylance{lance.__version__}-{GENERATION}"
        if not folder.exists():
            self._write(folder, fragment_rows)
        return BenchTable(
            name=self.name,
            num_rows=fragment_rows * self.num_fragments,
            num_fragments=self.num_fragments,
            columns=tuple(self.columns),
            lance_uri=str(folder / "table.lance"),
            parquet_folder=str(folder / "parquet"),
        )

    def _write(self, folder: Path, fragment_rows: int) -> None:
        with written_whole(folder) as half_done:
            (half_done / "parquet").mkdir()
            rng = np.random.default_rng(seed=7)
            for number in range(self.num_fragments):
                rows = self.make_rows(number * fragment_rows, fragment_rows, rng)
                mode = "append" if number else "create"
                lance.write_dataset(
                    rows,
                    half_done / "table.lance",
                    mode=mode,
                    max_rows_per_file=fragment_rows,
                    max_rows_per_group=self.group_rows,
                    data_storage_version=self.old_version,
                )
                if self.old_version is None:
                    pq.write_table(rows, half_done / "parquet" / f"{number:04d}.parquet", compression="snappy")


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("five", 5_000_000, 5, seven_columns),
        Recipe("one", 1_000_000, 1, seven_columns),
        Recipe("many", 1_000_000, 64, seven_columns),
        Recipe("vectors", 500_000, 1, vectors),
        Recipe("keyed", 5_000_000, 4, keyed),
        Recipe("texts", 500_000, 4, texts),
        Recipe("clusters", 500_000, 4, clusters),
        Recipe("spark_narrow", 500_000, 4, spark_narrow),
        Recipe("spark_vectors", 50_000, 4, spark_vectors),
        Recipe("spark_large", 500_000, 8, spark_vectors),
        Recipe("sql_narrow", 23_000_000, 8, sql_narrow),
        Recipe("sql_vectors", 1_900_000, 16, sql_vectors),
        Recipe("sql_days", NUM_DAYS, 1, sql_days, is_scaled=False),
        Recipe("sql_shops", NUM_SHOPS, 1, sql_shops, is_scaled=False),
        Recipe("functions", 200_000, 1, function_rows),
        Recipe("five_2.0", 5_000_000, 5, seven_columns, "2.0"),
        Recipe("many_2.0", 1_000_000, 64, seven_columns, "2.0"),
        Recipe("vectors_2.0", 500_000, 1, vectors, "2.0"),
        Recipe("five_0.1", 5_000_000, 5, seven_columns, "0.1"),
        Recipe("sorted_0.1", 2_000_000, 1, seven_columns, "0.1", 8192),
    )
}


def read_through(folder: Path) -> int:
    """Read every file below a folder, so that the page cache has it; gives the number of bytes.

    A run may begin long after the tables were written: who comes first must not pay for the disk.
    """
    num_bytes = 0
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        with path.open("rb") as file:
            while piece := file.read(READ_BYTES):
                num_bytes += len(piece)
    return num_bytes


class Tables:
    """The tables of a run: `tables("five")` gives one, written if it is not there yet.

    cache  folder where they are kept; scale multiplies their rows
    """

    def __init__(self, cache: Path, scale: float) -> None:
        self.cache = cache
        self.scale = scale
        self._ready: dict[str, BenchTable] = {}
        self._scratch: str | None = None

    def __call__(self, name: str) -> BenchTable:
        if name not in self._ready:
            self._ready[name] = RECIPES[name].ready(self.cache, self.scale)
        table = self._ready[name]
        read_through(Path(table.lance_uri).parent)  # for each case: some systems drop what was not read for a while
        return table

    def rows(self, name: str) -> pa.Table:
        """All rows of a table, made anew."""
        recipe = RECIPES[name]
        return recipe.make_rows(0, max(1, round(recipe.num_rows * self.scale)), np.random.default_rng(seed=7))

    def new_folder(self) -> Path:
        """An empty folder on the disk of the tables; it goes when this object does."""
        if self._scratch is None:
            self.cache.mkdir(parents=True, exist_ok=True)
            self._scratch = tempfile.mkdtemp(prefix="written.", dir=self.cache)
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=self._scratch))
