"""The server, and the tables in its bucket: written once, and kept in the cache folder.

    name    rows         files  columns
    one     1,000,000        1  the seven of `benchmarks.tables`
    mixed   5,000,000        5  the same
    many    1,000,000       64  the same
    vec       500,000        1  128 floats
    big    20,000,000       20  the seven: about 1 GiB
    near      500,000        4  ascending int64, 128 floats in clusters; an index of product codes of these
    words     500,000        4  ascending int64, texts of twenty words; an index of these
    keyed   5,000,000        4  keys in no order, categories, labels, floats; a BTREE of the keys
    late_WIDTH_FILES            three keys and a value of so many bytes: `benchmarks.passing`

Each is there three times: as pylance writes it, as `lance_io` writes it (anew in each run), and, where a scenario asks
for it, as Parquet. `scale` multiplies the rows.
"""

from __future__ import annotations

import shutil
import tempfile
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import lance
import numpy as np
import pyarrow.parquet as pq

import lance_io
from benchmarks.latency.backends import BACKENDS
from benchmarks.latency.proxyport import Proxy, running_proxy
from benchmarks.passing import CELLS
from benchmarks.tables import RECIPES, documents, embeddings, keyed, read_through, seven_columns, vectors

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarks.tables import MakeRows

GENERATION = 1  # counts changes of the content, so that an old cache is not mistaken for the new one
THEIRS, OWN, AS_PARQUET = "pylance", "lance_io", "parquet"


@dataclass(frozen=True)
class World:
    """A table: how it is made.

    column          of a scan of one column, and of the index of words
    partition_rows  rows of a partition of its index of vectors; 0 for none
    has_words       whether it has a full-text index
    key             a column with a BTREE; empty for none
    """

    name: str
    num_rows: int
    num_files: int
    make_rows: MakeRows
    column: str
    partition_rows: int = 0
    has_words: bool = False
    key: str = ""

    def scaled(self, scale: float) -> World:
        """With so many times the rows, at least a hundred in a file."""
        file_rows = max(100, round(self.num_rows * scale / self.num_files))
        return replace(self, num_rows=file_rows * self.num_files)

    @property
    def file_rows(self) -> int:
        """Rows in each file."""
        return self.num_rows // self.num_files


WORLDS = {
    world.name: world
    for world in (
        World("one", 1_000_000, 1, seven_columns, "text"),
        World("mixed", 5_000_000, 5, seven_columns, "text"),
        World("many", 1_000_000, 64, seven_columns, "text"),
        World("vec", 500_000, 1, vectors, "vector"),
        World("big", 20_000_000, 20, seven_columns, "text"),
        World("near", 500_000, 4, embeddings, "vector", 714),
        World("words", 500_000, 4, documents, "text", has_words=True),
        World("keyed", 5_000_000, 4, keyed, "value", key="key"),
    )
}

WORLDS |= {
    recipe.name: World(recipe.name, recipe.num_rows, recipe.num_fragments, recipe.make_rows, "rest")
    for recipe in (RECIPES[name] for name in dict.fromkeys(cell.table for cell in CELLS))
}


def write_files(world: World, writer: str, folder: Path) -> None:
    """Write the table below `folder`, with its index, by pylance, `lance_io`, or as Parquet."""
    rng = np.random.default_rng(seed=7)
    if writer == AS_PARQUET:
        (folder / "parquet").mkdir()
    for number in range(world.num_files):
        rows = world.make_rows(number * world.file_rows, world.file_rows, rng)
        mode = "append" if number else "create"
        if writer == AS_PARQUET:
            pq.write_table(rows, folder / "parquet" / f"{number:04d}.parquet")
        elif writer == OWN:
            lance_io.write_dataset(rows, folder / "table.lance", mode=mode, max_rows_per_file=world.file_rows)
        else:
            lance.write_dataset(rows, folder / "table.lance", mode=mode, max_rows_per_file=world.file_rows)
    if writer == AS_PARQUET or not (world.partition_rows or world.has_words or world.key):
        return
    library: Any = lance_io if writer == OWN else lance
    dataset = library.dataset(str(folder / "table.lance"))
    if world.partition_rows:
        partitions = max(1, world.num_rows // world.partition_rows)
        dataset.create_index(world.column, "IVF_PQ", num_partitions=partitions, num_sub_vectors=16)
    if world.has_words:
        dataset.create_scalar_index(world.column, "INVERTED", with_position=True)
    if world.key:
        dataset.create_scalar_index(world.key, "BTREE")


class Stage:
    """A server with a proxy in front, and the tables; a context manager.

    store  which protocol: a name of `BACKENDS`

    proxy           what contenders connect to
    options         storage options for it
    replay_options  for those who only fetch
    """

    def __init__(self, cache: Path, scale: float, store: str = "s3") -> None:
        self._cache, self._scale = cache, scale
        self._backend = BACKENDS[store](cache)
        self._stack = ExitStack()
        self._ready: dict[tuple[str, str], str] = {}
        self._places = 0
        self.proxy: Proxy
        self.options: dict[str, str]
        self.replay_options: dict[str, str]

    def __enter__(self) -> Self:
        backend = self._stack.enter_context(self._backend)
        for left in ("own/", "written/"):  # of a run that was interrupted
            self._empty(left)
        self.proxy = self._stack.enter_context(running_proxy(backend.endpoint, backend.name))
        self.options = backend.options(self.proxy.endpoint)
        self.replay_options = {**self.options, "proxy": self.proxy.endpoint}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            for left in ("own/", "written/"):
                self._empty(left)

    def world(self, name: str) -> World:
        """A table, at the scale of this run."""
        return WORLDS[name].scaled(self._scale)

    def uri(self, name: str, writer: str = THEIRS) -> str:
        """Where a table is, written if it is not there yet; its data files are in the proxy's memory."""
        if (name, writer) not in self._ready:
            self._ready[name, writer] = self._made(self.world(name), writer)
        return self._ready[name, writer]

    def local(self, name: str) -> str:
        """The same table as pylance writes it, on local disk."""
        folder = self._local_folder(self.world(name))
        read_through(folder)
        return str(folder / "table.lance")

    def _local_folder(self, world: World) -> Path:
        folder = self._cache / "latency" / "local" / f"{self._place(world, THEIRS)}"
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_files(world, THEIRS, folder)
            (folder / "complete").touch()
        return folder

    def new_uri(self) -> str:
        """A place where there is no table; it is emptied at the end of the run."""
        self._places += 1
        return f"{self._backend.scheme}://{self._backend.bucket}/written/{self._places}/table.lance"

    def _made(self, world: World, writer: str) -> str:
        place = self._place(world, writer)
        prefix = f"own/{place}" if writer == OWN else f"kept/{place}"
        if self._backend.keys(f"{prefix}/complete"):
            pass
        elif writer == THEIRS and self._backend.name != "s3":  # which are kept, where the server keeps nothing
            self._upload(self._local_folder(world), prefix)
        else:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                write_files(world, writer, Path(folder))
                self._upload(Path(folder), prefix)
        self._preload(prefix)
        name = "parquet" if writer == AS_PARQUET else "table.lance"
        return f"{self._backend.scheme}://{self._backend.bucket}/{prefix}/{name}"

    def _place(self, world: World, writer: str) -> str:
        versions = {THEIRS: f"pylance{lance.__version__}", OWN: "own", AS_PARQUET: "parquet"}
        return f"{world.name}-{world.file_rows}x{world.num_files}-{versions[writer]}-{GENERATION}"

    def _upload(self, folder: Path, prefix: str) -> None:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            self._backend.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path)
        with tempfile.NamedTemporaryFile() as empty:
            self._backend.put(f"{prefix}/complete", Path(empty.name))

    def _preload(self, prefix: str) -> None:
        for key in self._backend.keys(f"{prefix}/"):
            if key.endswith((".lance", ".parquet", ".idx")):
                url = f"{self.proxy.endpoint}{self._backend.path(key)}"
                asked = urllib.request.Request(url, headers={"Range": "bytes=0-0"})
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    answer.read()

    def _empty(self, prefix: str) -> None:
        for key in self._backend.keys(prefix):
            self._backend.remove(key)
