"""Callers of the service: each asks for a row at random, checks the answer, pauses a moment, and asks again."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import aiohttp
import numpy as np

import corpus

PAUSE_S = 0.1
PATIENCE_S = 60.0


class Callers:
    """So many callers in a thread of their own, for as long as a `with` block lasts.

    latencies  seconds that each request took
    failures   what was wrong with answers, one text each
    """

    def __init__(self, url: str, number: int) -> None:
        self.latencies: list[float] = []
        self.failures: list[str] = []
        self._url = url
        self._number = number
        self._ids: dict[int, int] = {}  # which row is at a position: rows are only appended, so that never changes
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1, "callers")
        self._done: Future[None] | None = None

    def __enter__(self) -> Self:
        self._done = self._pool.submit(asyncio.run, self._call())
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._pool.shutdown()
        assert self._done is not None
        self._done.result()

    def percentile_ms(self, percent: float) -> float:
        """How long at most so many percent of the requests took."""
        return float(np.percentile(self.latencies or [np.nan], percent)) * 1e3

    def problems(self) -> list[str]:
        """What went wrong, in a sentence; nothing when every request was answered well."""
        if not self.failures:
            return [] if self.latencies else ["nobody got an answer"]
        return [f"{len(self.failures):,} requests failed, or their answers were wrong; the first: {self.failures[0]}"]

    async def _call(self) -> None:
        async with aiohttp.ClientSession(self._url, timeout=aiohttp.ClientTimeout(PATIENCE_S)) as http:
            await asyncio.gather(*(self._caller(http, random.Random(seed)) for seed in range(self._number)))

    async def _caller(self, http: aiohttp.ClientSession, draw: random.Random) -> None:
        known: dict[str, Any] = {"version": 0, "rows": 1}
        while not self._is_over.is_set():
            position = draw.randrange(known["rows"])
            started = time.perf_counter()
            try:
                async with http.get(f"/rows/{position}") as answer:
                    answer.raise_for_status()
                    told = await answer.json()
            except (aiohttp.ClientError, TimeoutError) as error:
                self.failures.append(repr(error))
            else:
                self.latencies.append(time.perf_counter() - started)
                if problem := self._mistake(position, told, known["version"]):
                    self.failures.append(f"position {position}, version {told['version']}: {problem}")
                known = told
            await asyncio.sleep(PAUSE_S)

    def _mistake(self, position: int, told: dict[str, Any], version: int) -> str | None:
        row = told["row"]
        if told["version"] < version:
            return f"version {version} was served before"
        if self._ids.setdefault(position, row["id"]) != row["id"]:
            return f"row {row['id']}, where row {self._ids[position]} was"
        return corpus.mistake(row)
