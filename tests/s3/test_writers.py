"""Many writers in several processes that share nothing but a bucket, ours and pylance's, lose nothing.

`LANCE_IO_WRITERS` is the number of writers per process, 4 by default; 16 is the full size.
What stores have in common, of writers and else, is in `tests/store/table_conformance.py`.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

import lance_io
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.reads.version.session import Session
from tests.commit.dynalite import dynalite_server
from tests.commit.test_dynamodb import make_table
from tests.s3.proxy import HARMS, FaultyProxy
from tests.simulate.writers import row, run_all

if TYPE_CHECKING:
    from tests.servers import S3Server, TableServer

WRITERS = int(os.environ.get("LANCE_IO_WRITERS", "4"))
PROCESSES = 4
APPENDS = max(1, WRITERS // 4)  # of each writer
DELETES = 4
DATABASE_WRITERS = 16
OF_COMPACTIONS = (lance_io.LanceOperation.Rewrite, lance_io.LanceOperation.BaseOperation)  # which reserve ids before


def tasks_for(uri: str, ours: dict[str, str], theirs: dict[str, str] | None) -> tuple[list[dict[str, Any]], list[int]]:
    """What each process does, and the rows that are there in the end. The first one is pylance's, if it has options."""
    per_process = WRITERS * APPENDS
    tasks = []
    for process in range(PROCESSES):
        is_ours = process > 0 or theirs is None
        tasks.append(
            {
                "uri": uri,
                "options": ours if is_ours else theirs,
                "kind": "ours" if is_ours else "pylance",
                "first": process * per_process,
                "writers": WRITERS,
                "appends": APPENDS,
                "deletes": [-1 - number for number in range(DELETES)] if process == 1 else [],
                "compactions": 0 if is_ours else 3,
            }
        )
    return tasks, list(range(PROCESSES * per_process))


def check(uri: str, ours: dict[str, str], theirs: dict[str, str], expected: list[int], rows_before: int) -> None:
    """All rows once, read by both; versions without a gap, one for every change, compactions apart."""
    table = lance_io.dataset(uri, storage_options=ours)
    assert sorted(table.to_table()["a"].to_pylist()) == sorted(expected)
    peer = lance.dataset(uri, storage_options=theirs)
    assert sorted(peer.to_table()["a"].to_pylist()) == sorted(expected)
    versions = [version["version"] for version in table.versions()]
    assert versions == list(range(1, table.version + 1))
    operations = [type(table.read_transaction(version).operation) for version in versions]
    assert sum(each not in OF_COMPACTIONS for each in operations) == 1 + len(expected) + rows_before


def write_together(server: TableServer, uri: str, ours: dict[str, str], theirs: dict[str, str] | None) -> None:
    """All processes write to a new table, ours with some options and pylance's with others."""
    before = pa.table({"a": pa.array([-1 - number for number in range(DELETES)], pa.int64())})
    lance_io.write_dataset(before, uri, storage_options=server.options(), max_rows_per_file=2)
    tasks, expected = tasks_for(uri, ours, theirs)
    run_all(tasks)
    check(uri, server.options(), server.peer_options(), expected, DELETES)


def test_nor_do_they_through_faults(s3: S3Server, s3_uri: str) -> None:
    """Pylance is spared half answers: it gives up where a listing breaks off."""
    with FaultyProxy(s3.endpoint, 1) as ours, FaultyProxy(s3.endpoint, 2, harms=("refused", "lost", "late")) as theirs:
        options = [s3.through(proxy.endpoint) for proxy in (ours, theirs)]
        write_together(s3, s3_uri, *options)
    assert ours.done["lost"] and ours.done["cut"] and theirs.done["refused"]


async def append_beside_a_database(
    s3: S3Server, uri: str, options: dict[str, str], database: str, writers: int
) -> None:
    """Writers of one loop append to a new table, whose versions are numbered by a database."""
    direct = s3.options(dynamodb_endpoint=database)
    uri = f"{uri.replace('s3://', 's3+ddb://')}?ddbTableName={await make_table(direct)}"
    session = Session()
    await AsyncDataset.write(row(0), uri, storage_options=direct)
    how = {"mode": "append", "storage_options": options, "session": session}
    await asyncio.gather(*(AsyncDataset.write(row(1 + number), uri, **how) for number in range(writers)))
    await asyncio.to_thread(check, uri, direct, direct, list(range(writers + 1)), -1)


async def test_writers_beside_a_database_lose_nothing(s3: S3Server, s3_uri: str) -> None:
    with dynalite_server() as database:
        options = s3.options(dynamodb_endpoint=database)
        await append_beside_a_database(s3, s3_uri, options, database, DATABASE_WRITERS)


async def test_nor_do_these_through_faults(s3: S3Server, s3_uri: str) -> None:
    """Bucket and database both answer badly."""
    with dynalite_server() as database, FaultyProxy(s3.endpoint, 3) as objects, FaultyProxy(database, 4) as rows:
        options = s3.options(aws_endpoint=objects.endpoint, dynamodb_endpoint=rows.endpoint)
        await append_beside_a_database(s3, s3_uri, options, database, DATABASE_WRITERS)
    assert all(any(proxy.done[harm] for harm in HARMS) for proxy in (objects, rows))
