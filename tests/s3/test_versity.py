"""S3 as versitygw has it: tables beside pylance, what they cost, writers, and every change through faults."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.errors import CommitUnknownError
from tests.s3.proxy import CountingProxy, FaultyProxy
from tests.s3.test_fault_writes import TRIES_MAX, impatient, newest, run, session_of
from tests.s3.test_requests import FRAGMENTS, compare, part
from tests.s3.test_writers import DELETES, check, tasks_for
from tests.simulate.world import CASES, Case, commit_of
from tests.simulate.writers import run_all

if TYPE_CHECKING:
    from tests.servers import S3Server


@pytest.fixture
def uri(versity: S3Server) -> str:
    """A fresh place."""
    return f"s3://{versity.bucket}/test-{uuid.uuid4().hex}"


def test_reading_costs_what_it_costs_on_minio(versity: S3Server, uri: str) -> None:
    with CountingProxy(versity.endpoint) as proxy:
        spent = compare([part(number) for number in range(FRAGMENTS)], "2.1", uri, versity, proxy)
    assert (spent["open"], spent["count"]) == (2, 0)


def test_writers_of_ours_and_of_pylance_lose_nothing(versity: S3Server, uri: str) -> None:
    options = versity.options()
    before = pa.table({"a": pa.array([-1 - number for number in range(DELETES)], pa.int64())})
    lance_io.write_dataset(before, uri, storage_options=options, max_rows_per_file=2)
    tasks, expected = tasks_for(uri, options, options)
    run_all(tasks)
    check(uri, options, expected, DELETES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_change_is_made_once_or_not_at_all(versity: S3Server, uri: str, case: Case) -> None:
    """Tried until it goes, where two of five requests come to harm; the table is the old one or the new one."""
    for change in case.before:
        runtime.run(change(session_of(uri, versity.options())))
    old = newest(uri, versity.options())
    new = (old[0] + case.commits, list(case.after))
    change, error = case.change, None
    with FaultyProxy(versity.endpoint, 3, rate=0.4) as faulty:
        for _ in range(TRIES_MAX):
            error = run(change, session_of(uri, impatient(versity, faulty)))
            left = newest(uri, versity.options())
            if error is None:
                break
            if isinstance(error, CommitUnknownError):
                if error.transaction is None:  # a tag may be there
                    break
                change = commit_of(error)
            else:
                assert left == old or change is not case.change or not case.commits, error
    assert left == new, error


def test_pylance_goes_on_where_we_were(versity: S3Server, uri: str) -> None:
    rows, options = part(0), versity.options()
    how: dict[str, Any] = {"storage_options": options, "mode": "append"}
    lance_io.write_dataset(rows, uri, **how)
    lance.write_dataset(part(1), uri, **how)
    lance_io.write_dataset(part(2), uri, **how)
    assert (
        lance_io.dataset(uri, storage_options=options).to_table()
        == lance.dataset(uri, storage_options=options).to_table()
    )
