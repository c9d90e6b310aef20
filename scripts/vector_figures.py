"""Measure indices of vectors beside pylance, and beside faiss where it is installed.

    python scripts/vector_figures.py builds FOLDER     builds of both libraries: seconds of processors, recall
    python scripts/vector_figures.py defaults FOLDER   searches without nprobes: recall, and bytes of a first search
    python scripts/vector_figures.py searches FOLDER   searches of one caller: milliseconds, and those of processors
    python scripts/vector_figures.py callers FOLDER    searches of 256 callers: a second, and a second of a processor
    python scripts/vector_figures.py memory FOLDER     builds in processes of their own: their memory

FOLDER keeps tables and indices from call to call. The others search the indices that `builds` has built by pylance.
The tables are 500,000 vectors of 128 numbers and 100,000 of 768, in clusters; `--table`, `--kind` and `--rows` choose
among them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa

import lance_io

faiss: Any = import_module("faiss") if find_spec("faiss") else None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

K: Final = 10
NPROBES: Final = 20
NUM_QUERIES: Final = 200
NUM_COLD: Final = 30
NUM_CALLERS: Final = 256
SEARCHES: Final = 1024
TURNS: Final = 3
BATCH_ROWS: Final = 20_000
FRAGMENTS: Final = 4
LIBRARIES: Final[dict[str, Any]] = {"pylance": lance, "lance_io": lance_io}
KINDS: Final = ("PQ", "FLAT", "SQ")
FAISS: Final = {"PQ": "PQ{parts}", "FLAT": "Flat", "SQ": "SQ8"}


@dataclass(frozen=True)
class Shape:
    """A table of vectors in clusters.

    partitions  of its indices
    parts       of its product codes
    """

    num_rows: int
    dim: int
    partitions: int
    parts: int
    centers: int = 2000

    def options(self, kind: str) -> dict[str, Any]:
        """The arguments of a build."""
        parts = {"num_sub_vectors": self.parts} if kind == "PQ" else {}
        return {"metric": "l2", "num_partitions": self.partitions, **parts}

    def vectors(self, seed: int, count: int) -> Vectors:
        """Vectors near the same centers for each seed."""
        centers = np.random.default_rng(11).standard_normal((self.centers, self.dim), dtype=np.float32)
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((count, self.dim), dtype=np.float32)
        return centers[rng.integers(0, self.centers, count)] + np.float32(0.6) * noise

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        for first in range(0, self.num_rows, BATCH_ROWS):
            count = min(BATCH_ROWS, self.num_rows - first)
            values = pa.array(self.vectors(first + 1, count).reshape(-1))
            columns = [pa.array(range(first, first + count)), pa.FixedSizeListArray.from_arrays(values, self.dim)]
            yield pa.RecordBatch.from_arrays(columns, self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32(), self.dim)})


SHAPES: Final = {"500k": Shape(500_000, 128, 700, 16), "100k": Shape(100_000, 768, 316, 96)}
LARGE: Final = Shape(5_000_000, 128, 2000, 16)


def table_of(folder: Path, name: str, shape: Shape) -> Path:
    """The table, written once."""
    path = folder / name / "plain.lance"
    if not path.exists():
        reader = pa.RecordBatchReader.from_batches(shape.schema, shape.batches())
        lance.write_dataset(reader, str(path), max_rows_per_file=-(-shape.num_rows // FRAGMENTS))
    return path


def copied(table: Path, name: str) -> str:
    """A copy of a table that shares its files."""
    copy = table.with_name(name)
    rmtree(copy, ignore_errors=True)
    copytree(table, copy, copy_function=os.link)
    return str(copy)


def nearest_of(shape: Shape, table: Path, queries: Vectors) -> npt.NDArray[np.int64]:
    """The rows that are nearest to each query, by comparing all of them."""
    kept: list[tuple[Vectors, npt.NDArray[np.int64]]] = []
    for batch in lance_io.dataset(str(table)).to_batches(["id", "v"], batch_size=BATCH_ROWS):
        rows = batch.column("v").flatten().to_numpy().reshape(-1, shape.dim)
        distances = (rows * rows).sum(axis=1) - 2 * queries @ rows.T
        nearest = np.argpartition(distances, K - 1, axis=1)[:, :K]
        kept.append((np.take_along_axis(distances, nearest, axis=1), batch.column("id").to_numpy()[nearest]))
    distances, ids = (np.concatenate([each[at] for each in kept], axis=1) for at in (0, 1))
    best: npt.NDArray[np.int64] = np.take_along_axis(ids, np.argsort(distances, axis=1)[:, :K], axis=1)
    return best


def recall(truth: npt.NDArray[np.int64], matches: Sequence[Sequence[int]]) -> float:
    """The share of the nearest rows that searches gave."""
    return sum(len({*rows} & {*best}) for rows, best in zip(matches, truth.tolist(), strict=True)) / truth.size


def ids_of(dataset: Any, query: Vectors, **asked: Any) -> list[int]:
    """One search."""
    nearest = {"column": "v", "q": query, "k": K, **asked}
    table = dataset.to_table(["id"], nearest=nearest, disable_scoring_autoprojection=True)
    rows: list[int] = table["id"].to_pylist()
    return rows


def builds(folder: Path, name: str, kinds: Sequence[str]) -> None:
    """Build each kind by each library, and search it."""
    shape = SHAPES[name]
    table, queries = table_of(folder, name, shape), shape.vectors(0, NUM_QUERIES)
    truth = nearest_of(shape, table, queries)
    for kind in kinds:
        for who, library in LIBRARIES.items():
            uri, seconds = str(table.with_name(f"{who}-{kind}.lance")), 0.0
            if not Path(uri).exists():
                dataset = library.dataset(copied(table, f"{who}-{kind}.half"))
                start = time.process_time()
                dataset.create_index("v", f"IVF_{kind}", **shape.options(kind))
                seconds = time.process_time() - start
                Path(uri).with_suffix(".half").rename(uri)
            dataset = library.dataset(uri)
            plain, refined = (
                recall(truth, [ids_of(dataset, query, nprobes=NPROBES, **more) for query in queries])
                for more in ({}, {"refine_factor": 10})
            )
            show(f"{name} IVF_{kind} {who}: {seconds:.1f} s of processors, recall {plain:.4f}, refined {refined:.4f}")
        if faiss is not None:
            build_by_faiss(shape, name, kind, truth, queries)


def build_by_faiss(shape: Shape, name: str, kind: str, truth: npt.NDArray[np.int64], queries: Vectors) -> None:
    """The same index by faiss, on one thread."""
    faiss.omp_set_num_threads(1)
    index = faiss.index_factory(shape.dim, f"IVF{shape.partitions},{FAISS[kind].format(parts=shape.parts)}")
    values = np.concatenate([batch.column(1).values.to_numpy().reshape(-1, shape.dim) for batch in shape.batches()])
    sample = np.random.default_rng(1).permutation(len(values))[: 256 * shape.partitions]
    start = time.process_time()
    index.train(values[sample])
    index.add(values)
    seconds = time.process_time() - start
    index.nprobe = NPROBES
    matches = index.search(queries, K)[1]
    start = time.process_time()
    for query in queries:
        index.search(query[None], K)
    each_ms = (time.process_time() - start) / len(queries) * 1e3
    show(
        f"{name} IVF_{kind} faiss: {seconds:.1f} s of processors, recall {recall(truth, matches.tolist()):.4f}, "
        f"{each_ms:.3f} ms a search"
    )


def defaults(folder: Path, name: str, kinds: Sequence[str]) -> None:
    """Search without a number of partitions, each library for itself."""
    shape = SHAPES[name]
    table, queries = table_of(folder, name, shape), shape.vectors(0, NUM_QUERIES)
    truth = nearest_of(shape, table, queries)
    for kind in kinds:
        uri = str(table.with_name(f"pylance-{kind}.lance"))
        for who, library in LIBRARIES.items():
            dataset = library.dataset(uri)
            share = recall(truth, [ids_of(dataset, query) for query in queries])
            num_bytes = 0
            for query in queries[:NUM_COLD]:
                dataset = library.dataset(uri)
                dataset.io_stats_incremental()
                ids_of(dataset, query)
                num_bytes += dataset.io_stats_incremental().read_bytes
            show(f"{name} IVF_{kind} {who}, no nprobes: recall {share:.4f}, {num_bytes / NUM_COLD / 1e6:.3f} MB cold")


def least_of_turns(uri: str, num_turns: int, search: Callable[[Any], None]) -> dict[str, tuple[float, float]]:
    """The least seconds, and of processors, of each library's turns; the first turn is not counted."""
    datasets = {who: library.dataset(uri) for who, library in LIBRARIES.items()}
    best = dict.fromkeys(datasets, (np.inf, np.inf))
    for turn in range(num_turns + 1):
        for who, dataset in datasets.items():
            wall, work = time.perf_counter(), time.process_time()
            search(dataset)
            wall, work = time.perf_counter() - wall, time.process_time() - work
            if turn:
                best[who] = min(best[who][0], wall), min(best[who][1], work)
    return best


def searches(folder: Path, name: str, kinds: Sequence[str]) -> None:
    """Search by one caller for row ids alone, the libraries in turns; the best turn of each counts."""
    shape = SHAPES[name]
    table, queries = table_of(folder, name, shape), shape.vectors(0, NUM_QUERIES)

    def search(dataset: Any) -> None:
        for query in queries:
            nearest = {"column": "v", "q": query, "k": K, "nprobes": NPROBES}
            dataset.to_table(["_rowid"], nearest=nearest, disable_scoring_autoprojection=True)

    for kind in kinds:
        best = least_of_turns(str(table.with_name(f"pylance-{kind}.lance")), 2 * TURNS, search)
        ours, theirs = ([each / NUM_QUERIES * 1e3 for each in best[who]] for who in ("lance_io", "pylance"))
        show(
            f"{name} IVF_{kind}, one caller: {ours[0]:.3f} ms, pylance {theirs[0]:.3f}: {theirs[0] / ours[0]:.2f}; "
            f"of processors {ours[1]:.3f} ms, pylance {theirs[1]:.3f}: {theirs[1] / ours[1]:.2f}"
        )


def callers(folder: Path, name: str, kinds: Sequence[str]) -> None:
    """Search by many threads at once, the libraries in turns; the best turn of each counts."""
    shape = SHAPES[name]
    table, queries = table_of(folder, name, shape), shape.vectors(0, SEARCHES)
    pool = ThreadPoolExecutor(NUM_CALLERS)

    def search(dataset: Any) -> None:
        asked = [pool.submit(ids_of, dataset, query, nprobes=NPROBES) for query in queries]
        for each in asked:
            each.result()

    for kind in kinds:
        best = least_of_turns(str(table.with_name(f"pylance-{kind}.lance")), TURNS, search)
        (theirs, theirs_cpu), (ours, ours_cpu) = (
            [SEARCHES / each for each in best[who]] for who in ("pylance", "lance_io")
        )
        show(
            f"{name} IVF_{kind}, {NUM_CALLERS} callers: {ours:.0f} a second, pylance {theirs:.0f}, {ours / theirs:.2f} "
            f"a second of a processor {ours_cpu:.0f}, pylance {theirs_cpu:.0f}: {ours_cpu / theirs_cpu:.2f}"
        )


def memory(folder: Path, num_rows: int, kinds: Sequence[str]) -> None:
    """Builds in processes of their own."""
    cases = [("100k", SHAPES["100k"], "PQ")]
    large = Shape(num_rows, LARGE.dim, LARGE.partitions, LARGE.parts)
    cases += [(f"{num_rows}", large, kind) for kind in kinds]
    for name, shape, kind in cases:
        uri = table_of(folder, name, shape)
        command = [sys.executable, __file__, "one-build", str(uri), kind, str(shape.partitions), str(shape.parts)]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        show(f"{shape.num_rows} x {shape.dim}, IVF_{kind}, {shape.partitions} partitions: {ended.stdout.strip()}")


def one_build(uri: str, kind: str, partitions: int, parts: int) -> None:
    """Build segments of an index that no version names, and print the memory of this process."""
    dataset = lance_io.dataset(uri)
    before, start = memory_mib("VmRSS"), time.process_time()
    options: dict[str, Any] = {"num_sub_vectors": parts} if kind == "PQ" else {}
    ids = [fragment.fragment_id for fragment in dataset.get_fragments()]
    dataset.create_index_uncommitted("v", f"IVF_{kind}", fragment_ids=ids, num_partitions=partitions, **options)
    peak = memory_mib("VmHWM")
    print(f"{peak - before} MiB above {before} MiB, {time.process_time() - start:.0f} s of processors")


def memory_mib(name: str) -> int:
    """A line of this process's status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) >> 10


def show(text: str) -> None:
    """Print a figure at once."""
    print(text, flush=True)


def main() -> None:
    """Run one of the measurements."""
    if sys.argv[1:2] == ["one-build"]:
        uri, kind, partitions, parts = sys.argv[2:]
        one_build(uri, kind, int(partitions), int(parts))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("builds", "defaults", "searches", "callers", "memory"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", choices=SHAPES, default="500k")
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=KINDS)
    parser.add_argument("--rows", type=int, default=LARGE.num_rows, help="of the large table of `memory`")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "memory":
        memory(options.folder, options.rows, options.kind)
        return
    measure = {"builds": builds, "defaults": defaults, "searches": searches, "callers": callers}[options.what]
    measure(options.folder, options.table, options.kind)


if __name__ == "__main__":
    main()
