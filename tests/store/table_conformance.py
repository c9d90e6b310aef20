"""What a table in a bucket keeps to, whichever store it is: faults, ends of processes, many writers, cancelling, forks.

A subclass of `TableConformance` in the tests of each store has these tests; `docs/conformance.md` has its column.
`LANCE_IO_SIMULATE` is the size.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.changes.upkeep.held_versions import RefConflict
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitUnknownError, LanceError
from lance_io.reads.version.session import Session
from tests.s3.proxy import HARMS, EndingProxy, FaultyProxy, HoldingProxy
from tests.s3.settling import all_bytes_are_back
from tests.s3.test_writers import write_together
from tests.simulate.world import CASES, SIZE, Case, commit_of, numbers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.listening import ThreadedProxy
    from tests.servers import TableServer

CHECKOUT = Path(__file__).resolve().parents[2]
ROWS = 100_000
TAKES = 50
TURNS = SIZE  # of each change
# By default the changes that write in ways of their own: the others differ from them above the store.
ENDED = ("create", "append", "overwrite", "delete", "merge", "tag", "branch", "remove branch", "cleanup")
STORES = ("S3: MinIO", "S3: versitygw", "GCS: fake-gcs-server", "Azure: Azurite")
TRIES_MAX = 60
SECONDS_MAX = 100


class TableConformance:
    """Subclasses give the fixture `server` and the title of their column."""

    TITLE: ClassVar[str]

    @pytest.fixture
    def uri(self, server: TableServer) -> str:
        """A fresh place."""
        return server.uri(f"test-{uuid.uuid4().hex}/t.lance")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """On each store the changes that write in ways of their own, and a quarter of the others; with a size all."""
        if metafunc.function.__name__ == "test_every_change_is_made_once_through_faults":
            others = [case for case in CASES if case.name not in ENDED]
            skipped = [case for number, case in enumerate(others) if number % len(STORES) != STORES.index(self.TITLE)]
            cases = [case for case in CASES if case not in skipped or SIZE > 1]
            metafunc.parametrize("case", cases, ids=lambda case: case.name)

    def test_every_change_is_made_once_through_faults(self, server: TableServer, uri: str, case: Case) -> None:
        """Tried until it goes, each time by a process that knows nothing of the time before.

        Two of five requests come to harm; the table is the old one or the new one.
        """
        done = Counter[Any]()
        for seed in range(TURNS):
            place = f"{uri}/{seed}"
            prepare(server, place, case)
            old, new = outcomes(server, place, case)
            change = case.change
            with FaultyProxy(server.endpoint, seed, rate=0.4) as faulty:
                for _ in range(TRIES_MAX):
                    error = run(change, session_of(place, impatient(server, faulty)))
                    left = newest(server, place)
                    if error is None:
                        break
                    if isinstance(error, CommitUnknownError):
                        if error.transaction is None:  # a tag may be there
                            break
                        change = commit_of(error)
                    else:
                        assert left == old or change is not case.change or not case.commits, error
                done += faulty.done
            assert left == new, error
        assert set(HARMS) <= done.keys() or TURNS < 10

    @pytest.mark.parametrize(
        "case", [case for case in CASES if case.name in ENDED or SIZE > 1], ids=lambda case: case.name
    )
    def test_a_process_may_end_at_any_write(
        self, server: TableServer, uri: str, case: Case, record_property: Callable[[str, object], None]
    ) -> None:
        """After each of the requests that write, one by one, the store hears no more of a process.

        The table is the old one or the new one, and whole; another process finds the change made, or makes it.
        """
        with EndingProxy(server.endpoint) as proxy:
            for folder in ("tried", "counted"):  # a bucket is tried once
                prepare(server, f"{uri}/{folder}", case)
                old, new = outcomes(server, f"{uri}/{folder}", case)
                proxy.let(None)
                assert run(case.change, session_of(f"{uri}/{folder}", impatient(server, proxy))) is None
            ends = proxy.writes
            assert newest(server, f"{uri}/counted") == new
            for number in range(1, ends + 1):
                place = f"{uri}/{number}"
                prepare(server, place, case)
                proxy.let(number)
                error = run(case.change, session_of(place, impatient(server, proxy)))
                assert proxy.is_over
                left = newest(server, place)
                assert left in (old, new), error
                assert left == new or error is not None
                change = case.change if left == old or not case.commits else None
                if isinstance(error, CommitUnknownError) and error.transaction is not None:
                    change = commit_of(error)
                if change is not None:
                    again = run(change, session_of(place, server.options()))
                    assert again is None or isinstance(again, RefConflict)  # what it has named is nobody else's
                    assert newest(server, place) == new
        record_property("process_ends", ends)

    def test_processes_of_writers_lose_nothing(self, server: TableServer, uri: str) -> None:
        """Sixteen writers in four processes, pylance's among them where it can write; see `test_writers.py`."""
        write_together(server, uri, server.options(), server.peer_options() if server.peer_writes else None)

    async def test_what_is_cancelled_holds_nothing(self, server: TableServer, uri: str) -> None:
        """Opening, a scan and takes, while they wait for answers; then the same table goes on."""
        rows = large_table()
        await AsyncDataset.write(rows, uri, storage_options=server.options(), max_rows_per_file=ROWS // 2)
        with HoldingProxy(server.endpoint) as proxy:
            options = server.through(proxy.endpoint)
            await cancel_when_held(proxy, lambda: [AsyncDataset.open(uri, storage_options=options)])
            async with AsyncDataset.open(uri, storage_options=options) as table:
                await cancel_when_held(proxy, lambda: [table.take([at * 1000]) for at in range(TAKES)])
                await cancel_when_held(proxy, lambda: [table.to_table()])
                async for _ in table.to_batches(batch_size=1000):
                    break
                await cancel_when_held(proxy, lambda: [table.to_table(), table.take([7, ROWS - 7])])
                assert await table.take([7]) == rows.take([7])
                assert await table.to_table() == rows
        await all_bytes_are_back()

    def test_a_table_that_is_open_in_a_forked_process(self, server: TableServer, uri: str) -> None:
        """Parent and child both read on and write; a scan that is under way goes on in the parent."""
        lance_io.write_dataset(large_table(), uri, storage_options=server.options())
        assert run_program(FORKING, uri, server.options()) == (0, "", "")


FORKING = """
ds.take([1, 99_999])
place = uri.replace("t.lance", "forked.lance")
lance_io.write_dataset(pa.table({"a": [1]}), place, storage_options=options)
scan = iter(ds.to_batches(["a"], batch_size=1000))
next(scan)
pid = os.fork()
assert ds.take([99_999, 3], ["a"])["a"].to_pylist() == [99_999, 3]
assert sum(batch.num_rows for batch in ds.to_batches(["a"])) == 100_000
lance_io.write_dataset(pa.table({"a": [2]}), place, mode="append", storage_options=options)
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sum(batch.num_rows for batch in scan) == 99_000
    assert lance_io.dataset(place, storage_options=options).count_rows() == 3
"""


def large_table() -> pa.Table:
    """Of more than one piece."""
    return pa.table({"a": pa.array(range(ROWS), pa.int64()), "s": [f"row {number}" for number in range(ROWS)]})


async def cancel_when_held(proxy: HoldingProxy, work: Callable[[], list[Any]]) -> None:
    """Cancel coroutines as soon as an answer for one of them is held back; all end by that, and hold nothing."""
    proxy.hold()
    tasks = [asyncio.ensure_future(one) for one in work()]
    assert await asyncio.to_thread(proxy.held.wait, SECONDS_MAX)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    await all_bytes_are_back()
    proxy.let_go()


# -- tables that change ------------------------------------------------------------------------------------------------


def prepare(server: TableServer, uri: str, case: Case) -> None:
    """Make the table that a case changes."""
    session = session_of(uri, server.options())
    for change in case.before:
        runtime.run(change(session))


def outcomes(server: TableServer, uri: str, case: Case) -> tuple[tuple[int, list[int]], tuple[int, list[int]]]:
    """How the table is that a case changes, and how it is to be afterwards."""
    old = newest(server, uri)
    return old, (old[0] + case.commits, list(case.after))


def impatient(server: TableServer, proxy: ThreadedProxy) -> dict[str, str]:
    """Options of a client that soon gives up, so that failures are seen."""
    return server.through(proxy.endpoint, client_max_retries="1", request_timeout="10s")


def session_of(uri: str, options: dict[str, str]) -> Session:
    """A session for which the tables of `tests/simulate` lie at a place in the bucket."""
    session = Session()
    locate = session.locate
    session.locate = lambda _uri, _options: locate(uri, options)
    return session


def newest(server: TableServer, uri: str) -> tuple[int, list[int]]:
    """Number and rows of the newest version, 0 and none without a table; all that is there was found to be whole."""
    ours, theirs = server.options(), server.peer_options()
    try:
        table = lance_io.dataset(uri, storage_options=ours)
    except ValueError:
        return 0, []
    peer = lance.dataset(uri, storage_options=theirs)
    rows: list[int] = []
    versions = [each["version"] for each in table.versions()]
    for version in versions:
        rows = numbers(lance_io.dataset(uri, version, storage_options=ours))
        assert rows == sorted(peer.checkout_version(version).to_table()["a"].to_pylist())
        assert table.read_transaction(version) is not None
    assert (table.version, peer.version) == (versions[-1], versions[-1])
    assert {tag["version"] for tag in table.tags.list().values()} <= set(versions)
    return table.version, rows


def run(change: Callable[[Session], Awaitable[Any]], session: Session) -> LanceError | None:
    """What a change raises."""
    try:
        runtime.run(change(session))
    except LanceError as error:
        return error
    return None


async def until_it_goes(work: Callable[[], Awaitable[Any]]) -> Any:
    """Its result, however often it takes."""
    for _ in range(TRIES_MAX):
        try:
            return await work()
        except LanceError as error:
            last = error
    raise last


# -- programs ----------------------------------------------------------------------------------------------------------

PRELUDE = """
import asyncio, json, os, signal, sys, threading, time
import lance_io, pyarrow as pa
import lance_io.runtime.engine
lance_io.runtime.engine.CLOSE_SECONDS_MAX = 20.0  # on a loaded machine sessions close late, and warn if left open
uri, options = sys.argv[1], json.loads(sys.argv[2])
ds = lance_io.dataset(uri, storage_options=options)
"""


def run_program(code: str, uri: str, options: dict[str, str]) -> tuple[int, str, str]:
    """Run code in a process of its own, where `ds` is the table: exit code, what it has said, complaints."""
    warnings = ["-W", "default", "-W", "ignore::DeprecationWarning"]
    command = [sys.executable, *warnings, "-c", PRELUDE + textwrap.dedent(code), uri, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=CHECKOUT, check=False)
    return done.returncode, done.stdout, done.stderr
