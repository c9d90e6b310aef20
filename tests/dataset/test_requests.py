"""How many requests a call makes, and what is remembered between calls."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io

if TYPE_CHECKING:
    from lance_io.store.counters import StatsSnapshot
    from tests.servers import S3Server


def spent(table: Any, call: Any) -> StatsSnapshot:
    """What the table's store counted while `call` ran."""
    stats = table._state.location.store.stats
    before = stats.snapshot()
    call()
    return stats.snapshot() - before


def copied(uri: str, s3_uri: str, s3: S3Server) -> str:
    """A local table copied to the S3 server."""
    options = {**s3.options(), "allow_http": "true"}
    lance.write_dataset(lance.dataset(uri).to_table(), s3_uri, max_rows_per_file=40, storage_options=options)
    lance.dataset(s3_uri, storage_options=options).delete("s in ('s7', 's50')")
    return s3_uri


def test_opening_and_counting(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    requests = table._state.location.store.stats.snapshot()
    assert (requests["list"].requests, requests["get"].requests, requests.requests) == (1, 1, 2)
    assert spent(table, table.count_rows).requests == 0
    assert spent(table, lambda: table.scanner(limit=0).to_table()).requests == 0


def test_an_unchanged_manifest_is_not_read_again(mutable_uri: str) -> None:
    table = lance_io.dataset(mutable_uri)
    assert spent(table, table.checkout_latest)["get"].requests == 0
    lance.write_dataset(pa.table({"i": [1]}), mutable_uri, mode="append")
    assert spent(table, table.checkout_latest)["get"].requests == 1
    session = lance_io.Session()
    lance_io.dataset(mutable_uri, session=session)
    again = lance_io.dataset(mutable_uri, session=session)
    assert again._state.location.store.stats.snapshot()["get"].requests == 1
    assert session.is_same_as(again.session())
    assert session.size_bytes() > 0


def test_deletions_are_loaded_for_the_fragments_concerned_and_once(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    head = table.scanner(["_rowid"], limit=3)
    assert len(_keys(table, head.to_table)) == 1  # all four fragments have deletions, the rows are in the first
    assert _keys(table, head.to_table) == []
    assert len(_keys(table, lambda: table.to_table(columns=["_rowid"]))) == 3


def _keys(table: Any, call: Any) -> list[str]:
    """Objects read while `call` ran, by way of the cache's misses."""
    cache = table.session().cache
    before = {key for key in cache._entries if key[0] == "deletions"}
    call()
    return [key[-1] for key in cache._entries if key[0] == "deletions" and key not in before]


def test_s3_reads_equal_local_ones(mixed_uri: str, s3_uri: str, s3: S3Server) -> None:
    uri = copied(mixed_uri, s3_uri, s3)
    options = {**s3.options(), "allow_http": "true"}
    table = lance_io.dataset(uri, storage_options=options)
    expected = lance.dataset(uri, storage_options=options)
    requests = table._state.location.store.stats.snapshot()
    assert (requests["list"].requests, requests["get"].requests, requests.requests) == (1, 1, 2)
    assert spent(table, table.count_rows).requests == 0
    assert table.to_table(with_row_id=True).combine_chunks() == expected.to_table(with_row_id=True).combine_chunks()
    assert table.take([80, 1, 1], ["s"]) == expected.take([80, 1, 1], ["s"]).replace_schema_metadata(
        table.schema.metadata
    )
    assert table.to_table(["s"], pc.field("doubled") > 100) == expected.to_table(["s"], "doubled > 100")
    assert sum(batch.num_rows for batch in table.to_batches(batch_size=9)) == len(table) == 91
    assert pickle.loads(pickle.dumps(table)).to_table() == table.to_table()
    warm = spent(table, lambda: table.take([5], ["a", "s"]))
    assert warm["head"].requests == 0
    assert warm["get"].requests <= 2
    for text in (repr(table), repr(table._state), str(table.session()), repr(table.scanner())):
        assert s3.options()["aws_secret_access_key"] not in text


async def test_s3_from_a_loop(mixed_uri: str, s3_uri: str, s3: S3Server) -> None:
    uri = copied(mixed_uri, s3_uri, s3)
    async with lance_io.AsyncDataset.open(uri, storage_options=s3.options()) as table:
        assert (await table.to_table(["s"])).num_rows == 91
        assert (await table.take([3, 2], ["_rowoffset"])).column(0).to_pylist() == [3, 2]
        async for _ in table.to_batches(batch_size=1):
            break


@pytest.mark.parametrize("name", ["pyarrow.dataset", "pyarrow", "numpy", "aiobotocore", "aiohttp", "asyncio"])
def test_importing_the_package_loads_nothing_heavy(name: str) -> None:
    code = f"import sys, lance_io; print({name!r} in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_dataset_is_a_function_and_a_module() -> None:
    code = (
        "import lance_io; from lance_io.dataset import LanceDataset, Tags; import lance_io.reads.takes.take_rows\n"
        "assert callable(lance_io.dataset) and LanceDataset.__name__ == 'LanceDataset'\n"
        "assert all(getattr(lance_io, name) for name in lance_io.__all__)\n"
        "assert {'dataset', 'LanceDataset'} <= {*dir(lance_io)}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
