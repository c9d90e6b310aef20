"""Rounds and requests of vector searches on a bucket, as exact numbers; a request lasts one unit of time.

The table and its indices are pylance's, with few pages. The centroids and the codebook are given, because pylance
trains at random: then the same partitions are near a query in every run, and the same rows in them.
Answers are decoded on the loop, because virtual time does not wait for threads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.index.vector.ivf import Ivf
from tests.index.test_index_rounds import Bench, counts

if TYPE_CHECKING:
    import pathlib

    from lance_io.dataset.lance_dataset import AsyncDataset
    from lance_io.testing.wrap import Request

NUM_ROWS, DIM, PARTITIONS = 16_000, 16, 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("vectors")
    values = np.random.default_rng(5).normal(size=(NUM_ROWS, DIM)).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIM)
    rows = pa.table({"id": range(NUM_ROWS), "text": [f"text {row}" for row in range(NUM_ROWS)], "v": vectors})
    table = lance.write_dataset(rows, path, max_rows_per_file=NUM_ROWS // 4)
    words = np.random.default_rng(6).normal(size=(DIM, 256, 1)).astype("f4")
    model = {"ivf_centroids": values[:PARTITIONS], "pq_codebook": words}
    table.create_index("v", "IVF_PQ", metric="l2", num_partitions=PARTITIONS, num_sub_vectors=DIM, **model)
    table.create_scalar_index("id", "BTREE")
    return path


def search(seed: int, filter: str | None = None, columns: tuple[str, ...] = ("id",), **more: Any) -> Any:
    query = np.random.default_rng(seed).normal(size=DIM).astype("f4")
    nearest = {"column": "v", "q": query, "k": 10, **more}

    async def call(table: AsyncDataset) -> pa.Table:
        return await table.to_table([*columns], filter, nearest=nearest, prefilter=filter is not None)

    return call


@pytest.mark.parametrize("nprobes", [1, 8])
def test_rounds_of_a_search(folder: pathlib.Path, nprobes: int) -> None:
    again, other = search(1, nprobes=nprobes), search(3, nprobes=nprobes)  # their nearest partitions differ
    rounds = [rounds for rounds, _ in counts(Bench(folder).run(again, again, other))]
    assert rounds == [4, 1, 2]  # again: its partitions are kept


def test_rounds_of_a_search_by_an_index_of_ours(tmp_path: pathlib.Path) -> None:
    values = np.random.default_rng(5).normal(size=(NUM_ROWS, DIM)).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIM)
    rows = pa.table({"id": range(NUM_ROWS), "v": vectors})
    table = lance_io.write_dataset(rows, tmp_path, max_rows_per_file=NUM_ROWS // 4)
    table.create_index("v", "IVF_SQ", metric="l2", num_partitions=40)
    bench = Bench(tmp_path)
    for nprobes in (1, 20):
        again = search(1, nprobes=nprobes)
        measured = bench.run(again, again, search(2, nprobes=nprobes))
        assert [rounds for rounds, _ in counts(measured)] == [4, 1, 2]
        assert all(len(log) <= 66 for _, log, _ in measured)
    refined = search(1, nprobes=20, refine_factor=10)
    assert [rounds for rounds, _ in counts(bench.run(refined, refined))] == [5, 2]


def test_requests_of_a_search_of_many_partitions(folder: pathlib.Path) -> None:
    """At most 66 cold: of pylance 77 to 102."""
    again = search(1, nprobes=20)
    measured = counts(Bench(folder).run(again, again, search(2, nprobes=20)))
    assert [rounds for rounds, _ in measured] == [4, 1, 2]
    assert measured[0][1] <= 40
    assert measured[1][1] <= 4


def test_rounds_of_a_refined_search(folder: pathlib.Path) -> None:
    again = search(1, nprobes=8, refine_factor=3)
    other = search(2, nprobes=8, refine_factor=3)
    rounds = [rounds for rounds, _ in counts(Bench(folder).run(again, again, other))]
    assert rounds == [5, 2, 3]


def test_kept_partitions_are_read_once(folder: pathlib.Path) -> None:
    everything = search(3, nprobes=40)
    measured = Bench(folder).run(everything, search(4, nprobes=40), search(5, nprobes=3))
    logs = [[line for line in log if "_indices" in line] for _, log, _ in measured]
    assert logs[0]
    assert logs[1] == logs[2] == []


def test_few_rows_of_a_filter_leave_the_partitions_alone(folder: pathlib.Path) -> None:
    """The filter is answered by its scalar index, and its rows are compared."""
    measured = Bench(folder).run(search(1, nprobes=1), search(2, "id < 20", nprobes=1), search(2, "id < 20", nprobes=1))
    assert not [line for line in measured[1][1] if "auxiliary" in line]
    rounds, log, rows = measured[2]
    assert rounds == 2
    assert rows.num_rows == 10
    assert not [line for line in log if "_indices" in line]


def test_a_filter_is_answered_while_the_index_is_opened(folder: pathlib.Path) -> None:
    """Cold: the filter's index takes three rounds, the vectors' two; then partitions and rows."""
    text = "id < 9000"
    measured = Bench(folder).run(*[search(seed, text, nprobes=8) for seed in (1, 1, 2)])
    assert [rounds for rounds, _ in counts(measured)] == [5, 1, 2]
    peer = lance.dataset(folder)
    for seed, (_, _, rows) in zip((1, 1, 2), measured, strict=True):
        query = np.random.default_rng(seed).normal(size=DIM).astype("f4")
        nearest = {"column": "v", "q": query, "k": 10, "nprobes": 8}
        assert rows["id"] == peer.to_table(["id"], text, nearest=nearest, prefilter=True)["id"]


@pytest.mark.parametrize(("cancelled", "num_reads"), [(0, 2), (1, 1)], ids=["that reads", "that waits"])
def test_searches_of_one_turn_share_partitions(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, cancelled: int, num_reads: int
) -> None:
    """Callers that want the same partitions at once read them once, and one that gives up leaves them to others.

    The first caller reads, as nothing is left to open; if it gives up meanwhile, the next one reads.
    """
    bench, reading = Bench(folder), asyncio.Event()
    send = bench.store.request

    async def watched(request: Request, answer: Any) -> Any:
        if request.key.endswith("auxiliary.idx") and (request.end or 0) - (request.start or 0) > 1 << 17:  # partitions
            reading.set()
        return await send(request, answer)

    monkeypatch.setattr(bench.store, "request", watched)

    async def together(table: AsyncDataset) -> list[pa.Table]:
        calls = [asyncio.ensure_future(search(seed, nprobes=40)(table)) for seed in range(20, 28)]
        await reading.wait()
        calls.pop(cancelled).cancel()
        return [await call for call in calls]

    decoded = []
    check = Ivf.check_partition
    monkeypatch.setattr(Ivf, "check_partition", lambda ivf, *columns: decoded.append(1) or check(ivf, *columns))
    opening = search(1, nprobes=1)
    _, (_, log, tables) = bench.run(opening, together)
    num_decoded = len(decoded)
    _, (_, single, alone) = Bench(folder).run(opening, search(27, nprobes=40))
    assert tables[-1] == alone
    assert num_decoded == len(decoded) - num_decoded > 30
    read = sorted(line for line in single if "auxiliary" in line)
    assert sorted(line for line in log if "auxiliary" in line) == sorted(read * num_reads)
    assert read


def test_queries_of_a_batch_share_partitions(folder: pathlib.Path) -> None:
    queries = np.random.default_rng(8).normal(size=(6, DIM)).astype("f4")
    nearest = {"column": "v", "q": queries, "k": 5, "nprobes": 40}
    ((_, together, rows),) = Bench(folder).run(lambda table: table.to_table(["id"], nearest=nearest))
    single = {**nearest, "q": queries[0]}
    ((_, alone, _),) = Bench(folder).run(lambda table: table.to_table(["id"], nearest=single))
    assert rows.num_rows == 30
    assert sorted(line for line in together if "_indices" in line) == sorted(
        line for line in alone if "_indices" in line
    )


def test_explained_reads_are_those_of_the_search(folder: pathlib.Path) -> None:
    query = np.random.default_rng(1).normal(size=DIM).astype("f4")
    nearest = {"column": "v", "q": query, "k": 10, "nprobes": 5}
    ((_, _, plan),) = Bench(folder).run(lambda table: table.scanner(["id"], nearest=nearest).explain_io(cold=True))
    ((_, log, _),) = Bench(folder).run(lambda table: table.to_table(["id"], nearest=nearest))
    planned = {
        f"get t/{plan.short_key(key)} {start}-{end}" for each in plan.rounds for key, start, end in each.requests
    }
    assert planned == {line for line in log if "_indices" in line}
    assert any("v_idx" in note for note in plan.notes)
