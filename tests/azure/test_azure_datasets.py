"""Tables in Azure as users meet them, beside pylance: URLs, versions, tags, pickling, clean-up, forks, secrets."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import NotFound
from lance_io.reads.open_version import open_options
from tests.s3.test_reprs import reached_from

if TYPE_CHECKING:
    from tests.servers import AzureServer

TABLE = pa.table({"a": range(1000), "s": [f"row {number}" for number in range(1000)]})


@pytest.mark.parametrize("scheme", ["az", "abfs", "abfss"])
def test_urls(scheme: str, azure: AzureServer, s3_uri: str) -> None:
    """With the account in the options, and in the URL; pylance's tables, and ours for pylance."""
    options = azure.options()
    ours = f"{scheme}{s3_uri.removeprefix('az')}"
    path = s3_uri.rpartition("/")[2]
    theirs = f"az://{azure.container}@{azure.account}.dfs.core.windows.net/{path}/theirs"
    lance.write_dataset(TABLE, theirs, storage_options=options)
    lance_io.write_dataset(TABLE, f"{ours}/ours", storage_options=options)
    for name in ("ours", "theirs"):
        for uri in (
            f"{ours}/{name}",
            f"{scheme}://{azure.container}@{azure.account}.dfs.core.windows.net/{path}/{name}",
        ):
            assert lance_io.dataset(uri, storage_options=options).to_table() == TABLE
        assert lance.dataset(f"{s3_uri}/{name}", storage_options=options).to_table() == TABLE


def test_a_table_and_its_versions(azure: AzureServer, s3_uri: str) -> None:
    options = azure.options()
    table = lance_io.write_dataset(TABLE, s3_uri, storage_options=options)
    table.insert(TABLE)
    table.tags.create("twice")
    assert table.delete("a >= 500")["num_deleted_rows"] == 1000
    theirs = lance.dataset(s3_uri, storage_options=options)
    assert (theirs.version, theirs.count_rows()) == (3, 1000)
    theirs.optimize.compact_files()
    table = lance_io.dataset(s3_uri, storage_options=options)
    assert table.to_table() == theirs.to_table()
    assert lance_io.dataset(s3_uri, "twice", storage_options=options).count_rows() == 2000
    assert pickle.loads(pickle.dumps(table)).take([7])["a"].to_pylist() == [7]
    table.tags.delete("twice")
    cleaned = table.cleanup_old_versions(timedelta(0))
    assert cleaned.old_versions > 0
    assert lance.dataset(s3_uri, storage_options=options).to_table() == table.to_table()


async def test_the_asynchronous_way(azure: AzureServer, s3_uri: str) -> None:
    await AsyncDataset.write(TABLE, s3_uri, storage_options=azure.options())
    async with AsyncDataset.open(s3_uri, storage_options=azure.options()) as table:
        found = await asyncio.gather(*(table.take([number]) for number in range(0, 1000, 50)))
        assert [one["a"].to_pylist() for one in found] == [[number] for number in range(0, 1000, 50)]
        assert await table.count_rows("a < 10") == 10


def test_a_table_that_is_not_there(azure: AzureServer, s3_uri: str) -> None:
    for uri in (s3_uri, "az://no-such-container/t.lance"):
        with pytest.raises((ValueError, NotFound)) as caught:
            lance_io.dataset(uri, storage_options=azure.options())
        assert azure.account_key not in str(caught.value)


def test_large_files_go_up_in_blocks(azure: AzureServer, s3_uri: str) -> None:
    table = pa.table({"x": np.tile(np.arange(256, dtype=np.uint8), 18 << 12)})
    lance_io.write_dataset(table, s3_uri, storage_options=azure.options())
    assert lance.dataset(s3_uri, storage_options=azure.options()).to_table() == table


def test_no_part_of_an_open_table_shows_credentials(azure: AzureServer, s3_uri: str) -> None:
    options = azure.options()
    lance_io.write_dataset(TABLE, s3_uri, storage_options=options)
    table = lance_io.dataset(s3_uri, storage_options=options)
    assert table.take([7])["a"].to_pylist() == [7]
    assert table.to_table(filter="a > 990").num_rows == 9
    how: dict[str, Any] = {"storage_options": options, "base_store_params": {"az://other/base": options}}
    found = [*reached_from(table), *reached_from(open_options(s3_uri, **how))]
    kinds = {type(one).__name__ for one in found}
    assert {"AzureStore", "AzureOptions", "AccountClients", "SharedKey", "ContainerSite"} <= kinds, kinds
    assert {type(one).__name__ for one in found if azure.account_key in repr(one)} == set()
