"""One group of appends: one version with all rows, or several if the appends have incompatible base versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.changes.write.group_version import GroupVersion, RecentVersions, count_rows
from lance_io.changes.write.input_data import Rows
from lance_io.changes.write.write_rows import write_rows
from lance_io.commit.commit_counts import COMMITS
from lance_io.errors import CommitConflictError, LanceError, NotFound
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import RollBackOnError
from lance_io.redaction import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.changes.upkeep import remove_versions as cleanups
    from lance_io.changes.write.append_queues import AppendQueue
    from lance_io.changes.write.group_version import GroupAppend
    from lance_io.commit.target import CommittedVersion
    from lance_io.plans.plan import Plan
else:
    cleanups = lazy_plans("lance_io.changes.upkeep.remove_versions")

_logger = get_logger(__name__)


def commit_group(appends: Sequence[GroupAppend], queue: AppendQueue) -> Plan[Sequence[GroupAppend]]:
    """Commit the rows of all appends and resolve each append's `done`.

    Returns the appends by URI for which there is no table yet. Raises the error of all appends that are not done.
    """
    version = GroupVersion(appends, queue.recent)
    try:
        committed: CommittedVersion | None = yield RollBackOnError(version.write(), version.roll_back)
    except (CommitConflictError, NotFound) as error:
        if len(version.opened) < 2 or not version.commit_files.may_remove:
            raise
        return (yield from _commit_apart(version, queue, error))
    if committed is not None:
        COMMITS.add_group(len(version.written))
        if queue.recent is None or queue.recent.last.manifest.version < committed.manifest.version:
            assert version.base is not None
            queue.recent = RecentVersions.of(committed, version.base, queue.recent)
        states = [append.target.state(committed) for append in version.written]
        cleans_up = not all(append.options.skip_auto_cleanup for append in version.written)
        if cleans_up and states[0].manifest.config:
            yield from cleanups.after_commit(states[0])
        for append, state in zip(version.written, states, strict=True):
            append.done.set_result(state)
    return version.absent


def _commit_apart(version: GroupVersion, queue: AppendQueue, error: LanceError) -> Plan[Sequence[GroupAppend]]:
    """Commit the appends of each base version separately: only the older ones may conflict."""
    _logger.info("a group of appends to several versions is split: %s", error)
    absent: list[GroupAppend] = []
    for opened in version.opened:
        apart = [append for append in opened if not append.done.done()]
        if not apart:
            continue
        try:
            absent += yield from commit_group(apart, queue)
        except Exception as failure:
            for append in apart:
                append.fail(failure, is_shared=len(apart) > 1)
    return absent


def create_table(append: GroupAppend) -> Plan[None]:
    """Create the table with the rows of an append to a missing table."""
    rows = Rows(append.schema, iter(append.batches), count_rows([append]), is_held=True)
    append.done.set_result((yield from write_rows(append.target, rows, append.options)))
