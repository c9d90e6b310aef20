"""Callers of the service: each requests a random row, checks the answer, pauses, and repeats."""

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
    """Callers in a separate thread, during a `with` block.

    latencies  of requests, in seconds
    failures   errors and wrong answers, one text each
    """

    def __init__(self, url: str, number: int) -> None:
        self.latencies: list[float] = []
        self.failures: list[str] = []
        self._url = url
        self._number = number
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
        """A percentile of the latencies, in milliseconds."""
        return float(np.percentile(self.latencies or [np.nan], percent)) * 1e3

    def problems(self) -> list[str]:
        """The problems, as sentences; none if every answer was right."""
        if not self.failures:
            return [] if self.latencies else ["no request was answered"]
        return [f"{len(self.failures):,} requests failed, or their answers were wrong; the first: {self.failures[0]}"]

    async def _call(self) -> None:
        async with aiohttp.ClientSession(self._url, timeout=aiohttp.ClientTimeout(PATIENCE_S)) as http:
            await asyncio.gather(*(self._caller(http, random.Random(seed)) for seed in range(self._number)))

    async def _caller(self, http: aiohttp.ClientSession, draw: random.Random) -> None:
        known: dict[str, Any] = {"version": 0, "rows": 1}
        while not self._is_over.is_set():
            row_id = draw.randrange(known["rows"])  # ids are dense: each version has those from 0 on
            started = time.perf_counter()
            try:
                async with http.get(f"/rows/{row_id}") as answer:
                    answer.raise_for_status()
                    content = await answer.json()
            except (aiohttp.ClientError, TimeoutError) as error:
                self.failures.append(repr(error))
            else:
                self.latencies.append(time.perf_counter() - started)
                if problem := _mistake(row_id, content, known["version"]):
                    self.failures.append(f"row {row_id}, version {content['version']}: {problem}")
                known = content
            await asyncio.sleep(PAUSE_S)


def _mistake(row_id: int, content: dict[str, Any], version: int) -> str | None:
    """The error in an answer to a request for a row, after one of a version."""
    row = content["row"]
    if content["version"] < version:
        return f"version {version} was served before"
    if row["id"] != row_id:
        return f"the answer is row {row['id']}"
    return corpus.mistake(row)
