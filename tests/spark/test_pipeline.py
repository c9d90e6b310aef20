"""`examples/pipeline`: the whole of it with executors of its own, and what would tell that something is wrong."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.spark.sessions import JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.servers import S3Server

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "pipeline"))  # modules that go by name

import corpus
from callers import Callers
from service import make_app
from verify import differences, expected_table

PIPELINE = Path(corpus.__file__).parent
ROWS = 400
ENDS_WITHIN_S = 30.0  # from the end of the pipeline to that of what it has started


@contextmanager
def pipeline(s3: S3Server, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run it in a session of its own, with temporary files in `folder`; nothing of it may be left afterwards."""
    environment = {
        **os.environ,
        "LANCE_IO_TEST_S3_ENDPOINT": s3.endpoint,
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
        "TMPDIR": str(folder),
        "COLUMNS": "100",
        "TERM": "dumb",
    }
    command = [sys.executable, str(PIPELINE), "--rows", str(ROWS), *arguments]
    with subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
            deadline = time.monotonic() + ENDS_WITHIN_S
            while (left := processes_of(process.pid)) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert not left
            assert os.listdir(folder) == []
        finally:
            for pid in processes_of(process.pid):
                os.kill(pid, signal.SIGKILL)


def processes_of(session: int) -> dict[int, str]:
    """What runs in a session, by process id."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text().rpartition(")")
            if int(rest.split()[3]) == session and rest.split()[0] != "Z":
                found[int(stat.parent.name)] = (stat.parent / "cmdline").read_text().replace("\0", " ")[:200]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.timeout(900)
def test_every_row_once_and_every_answer_right(s3: S3Server, tmp_path: Path) -> None:
    with pipeline(s3, tmp_path, "--master", "local-cluster[2,1,768]") as process:
        told, _ = process.communicate()
        assert process.returncode == 0, told
    total = ROWS + 5 * (ROWS // 10)
    assert f"All {total} rows are there once, and no request failed." in told
    assert s3.secret not in told
    place = re.search(r"s3://\S+\.lance", told)
    assert place is not None, told
    table = lance.dataset(place[0], storage_options=s3.options())
    # the table, its index, three increments, the fourth with the new column, the merge, two of the compaction, and the
    # index again
    assert table.version == 10
    assert table.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
    assert len(table.get_fragments()) < 8
    rows = table.to_table(columns=["id", "text", "words", "language"]).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(total))
    assert [row for row in rows if corpus.mistake(row)] == []
    assert sum(row["language"] is not None for row in rows) == 2 * (ROWS // 10)
    changed = [row["id"] for row in rows if row["text"] == corpus.corrected_text_of(row["id"])]
    assert sorted(changed) == [*range(0, ROWS + 4 * (ROWS // 10), corpus.CORRECTED_EVERY)]


@pytest.mark.timeout(900)
def test_ctrl_c_leaves_nothing_behind(s3: S3Server, tmp_path: Path) -> None:
    with pipeline(s3, tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "files arrive" in line:  # so the service runs, and Spark is busy with the stream
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        told, _ = process.communicate()
        assert process.returncode == 128 + signal.SIGINT, told
        assert told.endswith("stopped\n")
        assert "Traceback" not in told


def test_an_interrupt_that_python_drops_comes_again() -> None:
    code = """
        import signal, time, weakref
        from tests.interrupting import keep_interrupts

        def interrupt(_):
            signal.raise_signal(signal.SIGINT)

        class Thing:
            pass

        keep_interrupts()
        try:
            thing = Thing()
            watch = weakref.ref(thing, interrupt)
            del thing
            time.sleep(60)
        except KeyboardInterrupt:
            print("from the callback")
        Thing.__del__ = interrupt
        try:
            Thing()
            time.sleep(60)
        except KeyboardInterrupt:
            print("from the destructor")
        """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PIPELINE.parents[1])
    assert (done.returncode, done.stdout, done.stderr) == (0, "from the callback\nfrom the destructor\n", "")


@pytest.mark.timeout(900)
def test_the_tour_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    tour = (PIPELINE.parents[1] / "docs" / "tour.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", tour, flags=re.DOTALL) if "spark" in block)
    for place in ("texts/", "arriving/", "checkpoint/"):
        code = code.replace(f'"{place}"', f'"{tmp_path}/{place}"')
    code = code.replace("s3://bucket", str(tmp_path))
    for folder, ids in (("texts", range(5)), ("arriving", range(5, 8))):
        (tmp_path / folder).mkdir()
        rows = corpus.make_rows(ids, with_language=folder == "arriving")
        corpus.write_parquet(rows, tmp_path / folder, "0.parquet")
    exec(code, {"spark": spark})
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()
    found = lance.dataset(f"{tmp_path}/texts.lance").to_table().sort_by("id")
    assert found["text"].to_pylist() == [corpus.text_of(number) for number in range(8)]
    assert [words is None for words in found["words"].to_pylist()] == [False] * 5 + [True] * 3
    assert found["language"].to_pylist() == [None] * 5 + [corpus.language_of(number) for number in range(5, 8)]


# -- what would tell ---------------------------------------------------------------------------------------------------


def test_differences_are_told() -> None:
    sent = [corpus.make_rows(range(10)), corpus.make_rows(range(10, 20), with_language=True)]
    expected = expected_table(sent)
    corrected = expected_table(sent, corpus.corrected(sent[0]))
    other = "has other values than were sent"
    assert differences(corrected, expected) == [f"column {name} {other}" for name in ("text", "words")]
    mixed = expected.take([3, *range(10, 20), 0, 1, 2, *range(4, 10)]).select(expected.column_names[::-1])
    assert differences(mixed, expected) == []
    assert differences(expected.slice(1), expected) == ["rows that are missing: 1 (id 0)"]
    doubled = pa.concat_tables([expected, expected.slice(5, 7)])
    assert differences(doubled, expected) == ["rows that are there more than once: 7 (id 5, 6, 7, 8, 9, ...)"]
    assert differences(expected, expected.slice(0, 19)) == ["rows that were not sent: 1 (id 19)"]
    for name in expected.column_names[1:]:
        index = expected.column_names.index(name)
        shuffled = expected[name].take([*range(18), 19, 18])
        found = differences(expected.set_column(index, name, shuffled), expected)
        assert found == ([f"column {name} has other values than were sent"] if shuffled != expected[name] else [])
    assert "the columns are" in differences(expected.drop(["language"]), expected)[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"text": "something else"}, "another text"),
        ({"words": 99}, "99 words"),
        ({"language": "la"}, "another language"),
        ({"id": 7}, "the answer is row 7"),
    ],
    ids=["right", "text", "words", "language", "id"],
)
async def test_wrong_answers_are_told(change: dict[str, Any], problem: str | None) -> None:
    async def answer(request: web.Request) -> web.Response:
        row_id = int(request.match_info["id"])
        text, language = corpus.text_of(row_id), corpus.language_of(row_id)
        row = {"id": row_id, "text": text, "words": len(text.split()), "language": language}
        return web.json_response({"version": 1, "rows": 5, "row": row | change})

    failures, answered = await call(answer)
    assert answered
    assert bool(failures) == (problem is not None)
    assert all(str(problem) in failure for failure in failures)


async def test_failed_requests_are_told() -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPServiceUnavailable

    failures, answered = await call(answer)
    assert failures and not answered
    assert all("503" in failure for failure in failures)


async def call(answer: Any) -> tuple[list[str], list[float]]:
    """Let callers ask a service of one's own for a moment; gives failures and latencies."""
    enough = asyncio.Event()
    asked = []

    async def counted(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) > 20:
            enough.set()
        return await answer(request)

    app = web.Application()
    app.router.add_get(r"/rows/{id:\d+}", counted)
    async with TestServer(app, host="127.0.0.1") as server:

        def run() -> Callers:
            with Callers(str(server.make_url("/")), 4) as callers:
                asyncio.run_coroutine_threadsafe(enough.wait(), loop).result()
            return callers

        loop = asyncio.get_running_loop()
        callers = await asyncio.to_thread(run)
    return callers.failures, callers.latencies


# -- the service -------------------------------------------------------------------------------------------------------


async def test_the_service_moves_on_to_new_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(expected_table([corpus.make_rows(range(5))]), uri).create_scalar_index("id", "BTREE")
    async with TestClient(TestServer(make_app(uri), host="127.0.0.1")) as client:
        told = await (await client.get("/rows/3")).json()
        assert (told["version"], told["rows"], corpus.mistake(told["row"])) == (2, 5, None)
        assert (await client.get("/rows/5")).status == 404
        lance.write_dataset(expected_table([corpus.make_rows(range(5, 9))]), uri, mode="append")
        async with asyncio.timeout(60):
            while (await (await client.get("/table")).json())["version"] < 3:
                pass
        told = await (await client.get("/rows/8")).json()
        assert (told["version"], told["rows"], told["row"]["id"]) == (3, 9, 8)


async def test_a_service_that_follows_no_more_says_so(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lance.write_dataset(expected_table([corpus.make_rows(range(5))]), str(uri))
    async with TestClient(TestServer(make_app(str(uri)), host="127.0.0.1")) as client:
        uri.rename(tmp_path / "elsewhere.lance")
        async with asyncio.timeout(60):
            while (await client.get("/table")).status == 200:
                pass
