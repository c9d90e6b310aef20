"""Load test: many concurrent clients send requests to a `table_service.py`, and check the answers.

    python examples/service/load_test.py http://127.0.0.1:8080 --clients 64 --seconds 10

Of ten requests, seven look up a row, one searches, two append a row. Prints throughput and latencies. Fails if an
answer is wrong, or if the table, the metrics and the clients disagree on the number of added rows.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field

import aiohttp

SEARCHED_ROWS = 5


@dataclass
class Answers:
    """The answers to all clients.

    seconds  latencies by kind of request
    added    number of acknowledged rows
    wrong    wrong answers
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    added: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, kind: str, started: float, is_right: bool, text: object) -> None:
        """Record an answer."""
        self.seconds[kind].append(time.perf_counter() - started)
        self.added += is_right and kind == "append"
        if not is_right:
            self.wrong.append(f"{kind}: {text}")


class Client:
    """A client, with its own ids for the rows that it adds."""

    def __init__(self, session: aiohttp.ClientSession, ids: list[int], first_id: int, seed: int) -> None:
        self.session = session
        self.ids = ids
        self.next_id = first_id
        self.random = random.Random(seed)

    async def ask(self, answers: Answers) -> None:
        """Send a random request, and record the answer."""
        kind = self.random.choices(["lookup", "search", "append"], [7, 1, 2])[0]
        started = time.perf_counter()
        is_right, text = await getattr(self, kind)()
        answers.note(kind, started, is_right, text)

    async def lookup(self) -> tuple[bool, object]:
        """Look up a row by its id."""
        wanted = self.random.choice(self.ids)
        async with self.session.get(f"/rows/{wanted}") as answer:
            text = await answer.text()
            return answer.status == 200 and json.loads(text)["row"]["id"] == wanted, text

    async def search(self) -> tuple[bool, object]:
        """Search a few rows by a filter."""
        query = {"filter": f"id >= {self.random.choice(self.ids)}", "limit": str(SEARCHED_ROWS), "columns": "id"}
        async with self.session.get("/rows", params=query) as answer:
            text = await answer.text()
            return answer.status == 200 and 0 < len(json.loads(text)["rows"]) <= SEARCHED_ROWS, text

    async def append(self) -> tuple[bool, object]:
        """Append a row; later lookups include it."""
        added, self.next_id = self.next_id, self.next_id + 1
        async with self.session.post("/rows", data=json.dumps({"id": added})) as answer:
            text = await answer.text()
            self.ids.append(added)
            return answer.status == 201, text


async def look(session: aiohttp.ClientSession) -> tuple[int, int, int]:
    """Rows of the table, and the service's counts of appends and versions of group commits."""
    async with session.get("/health") as answer:
        rows = (await answer.json())["rows"]
    async with session.get("/metrics") as answer:
        text = await answer.text()
    appends, commits = (
        int(re.findall(rf"(?m)^lance_io_group_{name}_total (\d+)", text)[0]) for name in ("appends", "commits")
    )
    return rows, appends, commits


async def run(url: str, num_clients: int, seconds: float, num_requests: int | None) -> int:
    """Run all clients and print the report; returns the exit code."""
    connector = aiohttp.TCPConnector(limit=num_clients)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        async with session.get("/rows", params={"columns": "id", "limit": "1000"}) as answer:
            known = [row["id"] for row in (await answer.json())["rows"]]
        first_id = time.time_ns() // 1000
        clients = [Client(session, [*known], first_id + (n << 20), n) for n in range(num_clients)]
        answers, before, started = Answers(), await look(session), time.perf_counter()

        async def keep_asking(client: Client) -> None:
            asked = 0
            while time.perf_counter() - started < seconds and (num_requests is None or asked < num_requests):
                await client.ask(answers)
                asked += 1

        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(keep_asking(client))
        took = time.perf_counter() - started
        after = await look(session)
    return report(answers, took, before, after)


def report(answers: Answers, took: float, before: tuple[int, int, int], after: tuple[int, int, int]) -> int:
    """Print throughput, latencies and counts; returns 1 if counts disagree or answers are wrong, else 0."""
    for kind, times in sorted(answers.seconds.items()):
        times.sort()
        p50, p99 = (1000 * times[min(int(share * len(times)), len(times) - 1)] for share in (0.5, 0.99))
        print(f"{kind:7} {len(times):7} answers  {len(times) / took:8.0f}/s  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms")
    rows, appends, commits = (now - then for then, now in zip(before, after, strict=True))
    print(
        f"rows added: {answers.added} acknowledged, {rows} in the table, {appends} by /metrics, in {commits} versions"
    )
    for text in answers.wrong[:5]:
        print(f"wrong: {text}")
    agree = answers.added == rows == appends and not answers.wrong
    print("all answers are right" if agree else f"{len(answers.wrong)} answers are wrong, or counts differ")
    return 0 if agree else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, help="the most requests of each client")
    asked = parser.parse_args()
    sys.exit(asyncio.run(run(asked.url, asked.clients, asked.seconds, asked.requests)))
