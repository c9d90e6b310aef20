"""Many clients at once ask a `table_service.py`, and count what they get.

    python examples/service/load_test.py http://127.0.0.1:8080 --clients 64 --seconds 10

Seven of ten requests look up a row, one searches, two append a row. Prints how many were answered each second and how
long they took. Fails where an answer is wrong, or where the service, its metrics and its callers do not agree on how
many rows were added.
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
    """What the clients got.

    seconds  how long each request took, by its kind
    added    rows that were acknowledged
    wrong    answers that are not what they should be
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    added: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, kind: str, started: float, is_right: bool, told: object) -> None:
        """Note an answer."""
        self.seconds[kind].append(time.perf_counter() - started)
        self.added += is_right and kind == "append"
        if not is_right:
            self.wrong.append(f"{kind}: {told}")


class Client:
    """One of many that ask, each with ids of its own for the rows that it adds."""

    def __init__(self, session: aiohttp.ClientSession, ids: list[int], first_id: int, seed: int) -> None:
        self.session = session
        self.ids = ids
        self.next_id = first_id
        self.random = random.Random(seed)

    async def ask(self, answers: Answers) -> None:
        """Make one request, and note what came of it."""
        kind = self.random.choices(["lookup", "search", "append"], [7, 1, 2])[0]
        started = time.perf_counter()
        is_right, told = await getattr(self, kind)()
        answers.note(kind, started, is_right, told)

    async def lookup(self) -> tuple[bool, object]:
        """A row by its id."""
        wanted = self.random.choice(self.ids)
        async with self.session.get(f"/rows/{wanted}") as answer:
            told = await answer.text()
            return answer.status == 200 and json.loads(told)["row"]["id"] == wanted, told

    async def search(self) -> tuple[bool, object]:
        """A few rows that pass a filter."""
        query = {"filter": f"id >= {self.random.choice(self.ids)}", "limit": str(SEARCHED_ROWS), "columns": "id"}
        async with self.session.get("/rows", params=query) as answer:
            told = await answer.text()
            return answer.status == 200 and 0 < len(json.loads(told)["rows"]) <= SEARCHED_ROWS, told

    async def append(self) -> tuple[bool, object]:
        """One row more; it is looked up from then on."""
        added, self.next_id = self.next_id, self.next_id + 1
        async with self.session.post("/rows", data=json.dumps({"id": added})) as answer:
            told = await answer.text()
            self.ids.append(added)
            return answer.status == 201, told


async def look(session: aiohttp.ClientSession) -> tuple[int, int, int]:
    """Rows of the table, and the appends and versions of the group commits that the service has counted."""
    async with session.get("/health") as answer:
        rows = (await answer.json())["rows"]
    async with session.get("/metrics") as answer:
        text = await answer.text()
    appends, commits = (
        int(re.findall(rf"(?m)^lance_io_group_{name}_total (\d+)", text)[0]) for name in ("appends", "commits")
    )
    return rows, appends, commits


async def run(url: str, num_clients: int, seconds: float, num_requests: int | None) -> int:
    """Ask from all clients, print what came of it; gives the exit code."""
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
    """Print throughput, times and counts; 1 where these do not agree."""
    for kind, times in sorted(answers.seconds.items()):
        times.sort()
        p50, p99 = (1000 * times[min(int(share * len(times)), len(times) - 1)] for share in (0.5, 0.99))
        print(f"{kind:7} {len(times):7} answers  {len(times) / took:8.0f}/s  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms")
    rows, appends, commits = (now - then for then, now in zip(before, after, strict=True))
    print(
        f"rows added: {answers.added} acknowledged, {rows} in the table, {appends} by /metrics, in {commits} versions"
    )
    for told in answers.wrong[:5]:
        print(f"wrong: {told}")
    agree = answers.added == rows == appends and not answers.wrong
    print("all answers are right" if agree else f"{len(answers.wrong)} answers are wrong, or counts differ")
    return 0 if agree else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, help="of each client at most")
    asked = parser.parse_args()
    sys.exit(asyncio.run(run(asked.url, asked.clients, asked.seconds, asked.requests)))
