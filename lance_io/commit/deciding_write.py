"""The write that decides a commit: it creates the manifest of a version, unless its number is taken.

It runs to its end even if the commit is cancelled. It records its outcome in the `CommitFiles` of the commit at once,
so that a later error cannot look like a failed commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.commit.handler import Created, NewVersion, Taken
from lance_io.commit.other_names import create_version
from lance_io.errors import CommitUnknownError, LanceError
from lance_io.plans.plan import Shielded
from lance_io.plans.store_requests import Put
from lance_io.redaction import get_logger
from lance_io.table.manifest.paths import HINT_NAME, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.commit.commit_files import CommitFiles
    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan

_logger = get_logger(__name__)


def write_deciding(
    target: CommitTarget, new: NewVersion, files: CommitFiles, publish: Callable[[VersionFile], None] | None = None
) -> Plan[Created | Taken]:
    """Create the manifest of a version, and the hint for readers of unordered stores.

    files    receives the outcome
    publish  called as soon as the version and the hint exist

    Raises the errors of `CommitHandler.create`.
    """
    outcome: Created | Taken = yield Shielded(_decide(target, new, files, publish))
    return outcome


def _decide(
    target: CommitTarget, new: NewVersion, files: CommitFiles, publish: Callable[[VersionFile], None] | None
) -> Plan[Any]:
    files.outcome = "sent"  # stays so after an unexpected error
    try:
        outcome = yield from create_version(target.location, target.handler, new)
    except CommitUnknownError:
        raise
    except LanceError:  # the handler guarantees that the version does not exist
        files.outcome = "lost"
        raise
    if isinstance(outcome, Taken):
        files.outcome = "lost"
        return outcome
    files.outcome = "committed"
    if target.writes_hint and new.scheme != "detached":
        yield from _write_hint(target, new.version)
    if publish is not None:
        publish(outcome.file)
    return outcome


def _write_hint(target: CommitTarget, version: int) -> Plan[None]:
    key, content = target.location.key(VERSIONS, HINT_NAME), b'{"version":%d}' % version
    try:
        yield Put(target.location.store, key, content, durability="none", in_place=True)
    except Exception as error:  # of any class: it is only a hint, and the version exists
        _logger.warning("version %d is committed, but the hint was not written: %s", version, error)
