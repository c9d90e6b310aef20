"""Samples and shares: for a seed those of pylance; of all processes together, every row once."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import lance
import lance.sampler as theirs
import pyarrow as pa
import pytest
from lance._dataset.sharded_batch_iterator import ShardedBatchIterator as PeerIterator

import lance_io
import lance_io.sampler as ours
from lance_io._dataset.sharded_batch_iterator import ShardedBatchIterator

if TYPE_CHECKING:
    from collections.abc import Iterable

ROWS = 100
SHARES = [(rank, world) for world in (1, 2, 3) for rank in range(world)]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("sampler") / "t")
    lance.write_dataset(pa.table({"a": range(ROWS + 2), "b": ["x"] * (ROWS + 2)}), place, max_rows_per_file=30)
    lance.dataset(place).delete("a in (7, 40)")
    return place


def lists(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    return [batch.to_pydict() for batch in batches]


def flat(batches: list[Any]) -> list[int]:
    return [row for batch in batches for row in batch["a"]]


@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("kind", ["ShardedFragmentSampler", "ShardedBatchSampler"])
def test_shares_are_those_of_pylance(uri: str, kind: str, randomize: bool) -> None:
    options: dict[str, Any] = {"batch_size": 16, "columns": ["a"]}
    filters = [None] if randomize and kind == "ShardedBatchSampler" else [None, "a % 3 = 0"]
    for filter in filters:
        for rank, world in SHARES:
            share, expected = (getattr(each, kind)(rank, world, randomize, 3) for each in (ours, theirs))
            found = lists(share(lance_io.dataset(uri), filter=filter, **options))
            wanted = lists(expected(lance.dataset(uri), filter=filter, **options))
            if filter is None:
                assert found == wanted
            assert flat(found) == flat(wanted)  # what passes a filter is packed into batches by the scan


def test_whole_scans(uri: str) -> None:
    table = lance_io.dataset(uri)
    for options in ({}, {"with_row_id": True, "columns": ["b"]}, {"columns": {"c": "a * 2"}}):
        found = lists(ours.FullScanSampler()(table, batch_size=8, **options))
        assert found == lists(theirs.FullScanSampler()(lance.dataset(uri), batch_size=8, **options))
    with pytest.raises(TypeError, match="abstract"):
        ours.Sampler()  # type: ignore[abstract]
    with pytest.warns(UserWarning, match="with_row_id is not supported for ShardedBatchSampler"):
        ours.ShardedBatchSampler(0, 2)(table, with_row_id=True)
    assert list(ours.ShardedFragmentSampler(5, 6)(table)) == []


@pytest.mark.parametrize("filter", [None, "a % 3 = 0"])
@pytest.mark.parametrize("epoch", [0, 4])
def test_shares_of_all_processes_are_every_row_once(uri: str, filter: str | None, epoch: int) -> None:
    table = lance_io.dataset(uri)
    for kind in (ours.ShardedFragmentSampler, ours.ShardedBatchSampler):
        rows: list[int] = []
        for rank in range(3):
            sampler = kind(rank, 3, randomize=True, seed=5)
            sampler.set_epoch(epoch)
            rows += [row for batch in sampler(table, batch_size=4, filter=filter) for row in batch["a"].to_pylist()]
        assert sorted(rows) == table.to_table(filter=filter)["a"].to_pylist()


def test_an_epoch_has_an_order_of_its_own_and_keeps_it(uri: str) -> None:
    table = lance_io.dataset(uri)
    sampler = ours.ShardedBatchSampler(0, 1, randomize=True)
    orders = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append(lists(sampler(table, batch_size=4)))
    assert orders[0] == orders[2] != orders[1]


def test_what_is_held_to_mix_filtered_batches_is_bounded(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_SHUFFLED_BATCHES_MAX", 5)
    sampler = ours.ShardedBatchSampler(0, 1, randomize=True)
    read: list[int] = []

    def batches() -> Iterable[pa.RecordBatch]:
        for number in range(20):
            read.append(number)
            yield pa.record_batch({"n": [number]})

    mixed = sampler._shuffle_some(iter(batches()))
    next(mixed)
    assert len(read) == 6
    assert len(list(mixed)) == 19


@pytest.mark.parametrize("randomize", [False, True])
def test_positions_are_those_of_pylance(randomize: bool) -> None:
    for total, world, size in ((30, 3, 7), (31, 3, 7), (10, 4, 3), (3, 4, 2), (0, 2, 5)):
        for rank in range(world):
            share, expected = (
                each.ShardedFixedBatchSampler(rank, world, randomize, 3, size, total) for each in (ours, theirs)
            )
            for epoch in (0, 1):
                share.set_epoch(epoch)
                expected.set_epoch(epoch)
                assert list(share) == list(expected)
            assert len(share) == len(list(share))
    for size, total in ((0, 10), (-1, 10), (-1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            ours.ShardedFixedBatchSampler(0, 1, batch_size=size, total_num_rows=total)


@pytest.mark.parametrize("options", [{}, {"filter": "a > 20"}, {"columns": ["a"]}])
def test_samplers_of_positions_may_be_called(uri: str, options: dict[str, Any]) -> None:
    for rank in range(4):
        share, expected = (each.ShardedFixedBatchSampler(rank, 4) for each in (ours, theirs))
        assert len(share) == len(expected) == 0 and list(share) == list(expected) == []
        found = lists(share(lance_io.dataset(uri), batch_size=5, **options))
        wanted = lists(expected(lance.dataset(uri), batch_size=5, **options))
        assert flat(found) == flat(wanted)
        if "filter" not in options:  # what passes a filter is packed into batches by the scan
            assert found == wanted
        sized = ours.ShardedFixedBatchSampler(rank, 4, batch_size=3, total_num_rows=7)
        assert lists(sized(lance_io.dataset(uri), batch_size=5, **options)) == found


@pytest.mark.parametrize("granularity", ["fragment", "batch"])
def test_batch_iterators(uri: str, granularity: str) -> None:
    options = {"columns": ["a"], "batch_size": 16, "granularity": granularity}
    for rank in range(2):
        with pytest.warns(UserWarning, match="deprecated"):
            found = lists(ShardedBatchIterator(uri, rank, 2, **options))
        with pytest.warns(UserWarning, match="deprecated"):
            assert found == lists(PeerIterator(uri, rank, 2, **options))
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="Unrecognized granularity: x"):
        ShardedBatchIterator(uri, 0, 1, granularity="x")


@pytest.mark.parametrize("n", [0, 5, 30, ROWS, 2 * ROWS])
@pytest.mark.parametrize("max_takes", [7, 2048])
def test_samples(uri: str, n: int, max_takes: int) -> None:
    options: dict[str, Any] = {"batch_size": 8, "max_takes": max_takes}
    found = list(ours.maybe_sample(lance_io.dataset(uri), n, ["a"], **options))
    rows = [row for batch in found for row in batch["a"].to_pylist()]
    live = set(range(ROWS + 2)) - {7, 40}
    assert len(rows) == len(set(rows)) == min(n, ROWS) and set(rows) <= live
    expected = list(theirs.maybe_sample(lance.dataset(uri), n, ["a"], batch_size=8))
    assert [len(batch) for batch in found] == [len(batch) for batch in expected]
    assert [batch.schema for batch in found] == [batch.schema for batch in expected]


def test_other_samples(uri: str) -> None:
    (batch,) = ours.maybe_sample(uri, 10, "b")
    assert (batch.num_rows, batch.schema.names) == (10, ["b"])
    (batch,) = ours.maybe_sample(uri, 10, {"c": "a + 1"})
    assert batch.schema.names == ["c"]
    (batch,) = ours.maybe_sample(uri, 10, ["a"], filt="a > 50")
    assert len(set(batch["a"].to_pylist())) == 10 and min(batch["a"].to_pylist()) > 50
    assert sum(map(len, ours.maybe_sample(uri, 1000, ["a"], filt="a > 50"))) == 51
    for make, table in ((ours, lance_io), (theirs, lance)):
        with pytest.raises(ValueError):
            list(make.maybe_sample(table.dataset(uri), -1, ["a"]))


def test_a_reservoir_gives_each_item_the_same_chance() -> None:
    random.seed(11)
    seen = Counter(item for _ in range(3000) for item in ours.reservoir_sampling(iter(range(10)), 3))
    assert all(780 < seen[item] < 1020 for item in range(10))  # 900 expected, 25 standard deviation
    assert sorted(ours.reservoir_sampling(range(2), 3)) == [0, 1]
