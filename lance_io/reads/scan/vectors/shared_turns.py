"""Searches of several callers at once, answered together.

As many searches run as there are processors. One that comes while they do waits; a search that ends hands all that
wait, as the queries of one search, to the first of them. So a single caller never waits for another, and under load
partitions are read and scanned once for all callers that want them, and rows are taken together.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.plans.plan import Wait
from lance_io.reads.scan.search_columns import query_of
from lance_io.reads.scan.vector_query import K, vector_column
from lance_io.runtime import cpu_count
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState

    Queries = npt.NDArray[Any]
    Run = Callable[[Queries], Plan[Sequence[pa.Table]]]

QUERIES_MAX: Final = 64  # that are answered together: they need memory at the same time
CANDIDATES_MAX: Final = 1 << 16  # of all of them
_LEADS: Final = "leads"
_ALONE: Final = "alone"


class _Ticket:
    """A search that waits.

    queries  [1, dim]
    outcome  its table, `_LEADS` if it runs the next searches, or `_ALONE` if those that ran it failed
    leads    whether it was told to run the next searches
    """

    __slots__ = ("leads", "outcome", "queries")

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.outcome: Future[Any]  # of one that waits
        self.leads = False


class SharedTurns:
    """Searches that differ only in their query. Thread-safe.

    projection   their output columns
    queries_max  that are answered together
    """

    def __init__(self, projection: Projection, queries_max: int = QUERIES_MAX) -> None:
        self.projection = projection
        self._queries_max = queries_max
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Forget all searches: in a forked child those of the parent do not run, and no thread leaves the lock."""
        self._lock = threading.Lock()
        self._num_running = 0
        self._waiting: deque[_Ticket] = deque()

    def search(self, queries: Queries, run: Run) -> Plan[pa.Table]:
        """The answer to a query [1, dim].

        run  returns the plan that answers queries [m, dim], with a table for each
        """
        ticket = _Ticket(queries)
        if not self._begins(ticket):
            try:
                outcome: Any = yield Wait(ticket.outcome)
            except BaseException:
                self._give_up(ticket)
                raise
            if outcome is _ALONE:
                return (yield from run(queries))[0]
            if outcome is not _LEADS:
                table: pa.Table = outcome
                return table
        group = self._group(ticket)
        answers: Sequence[pa.Table] | None = None
        try:
            together = queries if len(group) == 1 else np.concatenate([each.queries for each in group])
            answers = yield from run(together)
        finally:
            self._end(group, answers)
        return answers[0]

    def _begins(self, ticket: _Ticket) -> bool:
        """Whether a search runs at once; otherwise it is in line."""
        with self._lock:
            if self._num_running < cpu_count():
                self._num_running += 1
                return True
            ticket.outcome = Future()
            self._waiting.append(ticket)
            return False

    def _group(self, ticket: _Ticket) -> list[_Ticket]:
        """A search, and those that it answers, too."""
        with self._lock:
            count = min(len(self._waiting), self._queries_max - 1)
            return [ticket, *(self._waiting.popleft() for _ in range(count))]

    def _end(self, group: Sequence[_Ticket], answers: Sequence[Any] | None) -> None:
        """Hand on the turn and the answers; None if there are none."""
        self._hand_on()
        outcomes = [_ALONE] * len(group) if answers is None else answers
        for ticket, outcome in zip(group[1:], outcomes[1:], strict=True):
            ticket.outcome.set_result(outcome)

    def _give_up(self, ticket: _Ticket) -> None:
        """A search in line was cancelled."""
        with self._lock:
            if not ticket.leads:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                return
        self._hand_on()

    def _hand_on(self) -> None:
        with self._lock:
            if not self._waiting:
                self._num_running -= 1
                return
            following = self._waiting.popleft()
            following.leads = True
        following.outcome.set_result(_LEADS)


def shared_turns(state: DatasetState, options: ScanOptions, projection: Projection) -> SharedTurns | None:
    """The turns of searches that differ from this one in their query alone; None if it runs by itself.

    On an object store searches wait for the store, side by side, and share reads of partitions: waiting for each other
    would cost more than a scan.
    """
    query = query_of(options)
    filter, hints = options.filter, options.hints
    is_joined = len(query.queries) > 1 or vector_column(state.schema, query).is_multi
    is_alone = query.is_batch or is_joined or not state.is_local or options.timeout is not None
    has_more = options.order_by or options.fragments is not None or options.scan_stats_callback is not None
    if is_alone or has_more or not (filter is None or (isinstance(filter, str) and hints.get("prefilter"))):
        return None
    asked = query.column, query.k, query.metric, query.use_index, query.lower, query.upper, *sorted(query.hints.items())
    key = "shared turns", id(projection), asked, options.limit, options.offset, filter, *sorted(hints.items())
    turns: SharedTurns | None = state.prepared.get(key)
    if turns is None or turns.projection is not projection:
        candidates = (query.k or options.limit or K) * query.hints.get("refine_factor", 1)
        turns = SharedTurns(projection, max(1, min(QUERIES_MAX, CANDIDATES_MAX // candidates)))
        state.prepared.put(key, turns)
    return turns
