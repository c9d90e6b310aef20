"""Effects and cost of a compaction, before it runs: fragments, bytes, requests, time and money."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lance_io.changes.compaction.compact_files import plan_compaction, source_fragments
from lance_io.changes.compaction.plan_tasks import num_new_fragments
from lance_io.reads.scan.explain import explain_scan
from lance_io.reads.scan.io_plan import cost_report
from lance_io.reads.scan.scan_options import scan_options
from lance_io.store.costs import Cost
from lance_io.store.upload import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.costs import RequestCosts

COMMITS = 2  # the first reserves ids, the second replaces fragments
_PUTS_OF_A_COMMIT = 2  # transaction file and manifest
_FRAME_PUTS = 2  # start and completion of a multipart upload


@dataclass(frozen=True)
class ExplainedTask:
    """Fragments that would be rewritten together.

    Attributes:
        fragment_ids: Ids of the fragments.
        num_rows: Number of their live rows.
        num_new_fragments: Number of new fragments, unless files end earlier because of their size.
        bytes_read: Bytes that the scan reads.
        bytes_written: Approximate size of the new files, from the present size of the rows.
    """

    fragment_ids: list[int]
    num_rows: int
    num_new_fragments: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class CompactionExplanation:
    """Effects and cost of a compaction.

    Attributes:
        version: Version that the plan is based on.
        tasks: Tasks in the order of the table; empty if there is nothing to do.
        requests_read: Number of GETs.
        requests_written: Number of PUTs and parts of uploads, including both commits.
        cost: Expected seconds and US dollars; None if they are negligible.
    """

    version: int
    tasks: list[ExplainedTask]
    requests_read: int
    requests_written: int
    cost: dict[str, Any] | None

    @property
    def bytes_read(self) -> int:
        """Bytes that all tasks read."""
        return sum(task.bytes_read for task in self.tasks)

    @property
    def bytes_written(self) -> int:
        """Approximate size of the new files of all tasks, in bytes."""
        return sum(task.bytes_written for task in self.tasks)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}


def explain_compaction(
    state: DatasetState, given: Mapping[str, Any], store: RequestCosts | None = None
) -> Plan[CompactionExplanation]:
    """Explain `compact_files` with these keywords; reads only metadata.

    store  costs of another store; None for the table's own
    """
    options, tasks = yield from plan_compaction(state, given)
    sources = {source.fragment_id: source for source in (yield from source_fragments(state))}
    costs = store or state.context.store.profile.costs
    explained = []
    num_gets = num_puts = 0
    seconds = usd = 0.0
    for task in tasks:
        ids = [fragment.id for fragment in task.fragments]
        scan = yield from explain_scan(state, scan_options(fragments=tuple(ids)), store=costs)
        here = [sources[fragment_id] for fragment_id in ids]
        num_rows = sum(source.num_rows for source in here)
        shares = [source.num_rows / max(1, source.physical_rows) for source in here]
        written = int(sum(source.num_bytes * share for source, share in zip(here, shares, strict=True)))
        num_new = num_new_fragments(num_rows, options)
        explained.append(ExplainedTask(ids, num_rows, num_new, scan.num_bytes, written))
        num_gets += scan.num_requests
        num_parts = -(-(written // num_new) // PART_BYTES)
        num_puts += num_new * (1 if num_parts <= 1 else num_parts + _FRAME_PUTS)
        if costs is not None and scan.cost is not None:
            seconds += scan.cost.seconds + written / costs.network_bytes_per_s
            usd += scan.cost.usd + costs.prices.usd(bytes_written=written)
    num_puts += COMMITS * _PUTS_OF_A_COMMIT if tasks else 0
    cost = None
    if costs is not None and tasks:
        seconds += COMMITS * _PUTS_OF_A_COMMIT * costs.latency_s
        cost = cost_report(Cost(seconds, usd + costs.prices.usd(puts=num_puts, lists=COMMITS)), costs)
    return CompactionExplanation(state.manifest.version, explained, num_gets, num_puts, cost)
