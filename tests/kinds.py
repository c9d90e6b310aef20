"""Marks the tests: `server` and `spark` by folders, fixtures and imports, `slow` by the list of durations.

A test without the mark `server` cannot start one of the servers: what is marked wrong fails.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scripts.find_tests import FIXTURES, SERVERS, needs_beside_fixtures
from servers.local_server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DURATIONS: Final = Path(__file__).with_name("slow_tests.json")  # `make slow-tests` writes it
needs_beside = cache(needs_beside_fixtures)


def mark(items: Iterable[pytest.Item]) -> None:
    """Give each test the marks of its kind."""
    slow = json.loads(DURATIONS.read_text())["seconds"]
    for item in items:
        needs = needs_beside(item.path)
        fixtures = {FIXTURES.get(name) for name in getattr(item, "fixturenames", ())}
        if (needs | fixtures) & SERVERS:
            item.add_marker(pytest.mark.server)
        if "java" in needs:
            item.add_marker(pytest.mark.spark)
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


@contextmanager
def servers_refused_unless_marked(item: pytest.Item) -> Iterator[None]:
    """While a test without the mark runs, starting a server is an error."""
    if item.get_closest_marker("server") is not None:
        yield
        return

    def refuse(server: LocalServer) -> LocalServer:
        raise AssertionError(
            f"{item.nodeid} starts {server.title} without the mark `server`: see scripts/find_tests.py"
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalServer, "start", refuse)
        yield
