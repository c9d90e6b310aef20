"""What a compaction would do and cost, without doing it: fragments, bytes, requests, money by the store's costs."""

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

COMMITS = 2  # one that reserves ids, one with the fragments
_PUTS_OF_A_COMMIT = 2  # the transaction, the manifest
_FRAME_PUTS = 2  # that begin and end an upload in parts


@dataclass(frozen=True)
class ExplainedTask:
    """Fragments that would be rewritten together.

    fragment_ids       of the fragments
    num_rows           that are left in them
    num_new_fragments  that they would become, unless files end earlier for their size
    bytes_read         that scanning them asks for
    bytes_written      about, as the rows take now
    """

    fragment_ids: list[int]
    num_rows: int
    num_new_fragments: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class CompactionExplanation:
    """What a compaction would do.

    version              that it would be planned on
    tasks                in the order of the table; none where there is nothing to do
    requests_read        GETs
    requests_written     PUTs, and parts of uploads, those of both commits among them
    cost                 seconds and US dollars as the store is expected to be; None where they are nothing to speak of
    """

    version: int
    tasks: list[ExplainedTask]
    requests_read: int
    requests_written: int
    cost: dict[str, Any] | None

    @property
    def bytes_read(self) -> int:
        """Of all tasks."""
        return sum(task.bytes_read for task in self.tasks)

    @property
    def bytes_written(self) -> int:
        """Of all tasks, about."""
        return sum(task.bytes_written for task in self.tasks)

    def to_dict(self) -> dict[str, Any]:
        """In plain values, for JSON."""
        return {**asdict(self), "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}


def explain_compaction(
    state: DatasetState, given: Mapping[str, Any], store: RequestCosts | None = None
) -> Plan[CompactionExplanation]:
    """What `compact_files` with these keywords would do; reads metadata only.

    store  as if the table were in such a store; None for its own
    """
    options, tasks = yield from plan_compaction(state, given)
    sources = {one.fragment_id: one for one in (yield from source_fragments(state))}
    costs = store or state.context.store.profile.costs
    explained = []
    num_gets = num_puts = 0
    seconds = usd = 0.0
    for task in tasks:
        ids = [fragment.id for fragment in task.fragments]
        scan = yield from explain_scan(state, scan_options(fragments=tuple(ids)), store=costs)
        num_rows = sum(sources[one].num_rows for one in ids)
        shares = [sources[one].num_rows / max(1, sources[one].physical_rows) for one in ids]
        written = int(sum(sources[one].num_bytes * share for one, share in zip(ids, shares, strict=True)))
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
