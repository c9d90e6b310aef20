"""The conflict check for versions that a cleanup has removed between the read version of a transaction and the newest.

Their transactions are gone, so the two manifests are compared instead (`table/transaction/continuity.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import CommitConflictError, NotFound
from lance_io.plans.plan import Together, ask
from lance_io.plans.store_requests import Head, Read
from lance_io.records import dataclass
from lance_io.table.manifest.manifest import Manifest, decode_manifest
from lance_io.table.transaction.continuity import data_files_in, discontinuity, new_data_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.commit.commit_request import CommitRequest
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.table.transaction.transaction import Transaction

MISSING_SHOWN: Final = 5
FILES_AT_ONCE: Final = 64


@dataclass(frozen=True)
class Gap:
    """Versions that were removed before a commit could check them.

    since    the version that the transaction was made for
    missing  newer versions that are gone and were not checked
    """

    target: CommitTarget
    request: CommitRequest
    transaction: Transaction
    since: int
    missing: Sequence[int]

    def holds_transaction(self, newest: Manifest) -> Plan[bool]:
        """Whether the newest version already includes the transaction; if not, the transaction may follow it.

        Raises `CommitConflictError` if the manifests do not show that it fits.
        """
        if self.request.is_repeated:
            named = data_files_in(self.transaction, newest)
            if named == "all":
                return True
            if named == "some":
                raise self._unsure("the table has some of its data files already")
            yield from self._look_for_files()
        made_for = yield from self._fetch_base()
        reason = discontinuity(self.transaction, made_for, newest, knows_rows=self.request.affected is not None)
        if reason is not None:
            raise self._unsure(reason)
        return False

    def _fetch_base(self) -> Plan[Manifest | None]:
        """The version that the transaction was made for, None if it is gone."""
        base, version, target = self.request.base, self.since, self.target
        if base is not None and base.version == version:
            return base
        try:
            file = yield from target.handler.find_version(target.location, version)
            return decode_manifest((yield Read(target.location.store, file.key)))
        except NotFound:
            return None

    def _look_for_files(self) -> Plan[None]:
        """Check that the data files of the transaction exist: a cleanup may have taken them for garbage."""
        location = self.target.location
        keys = [location.key(path) for path in new_data_files(self.transaction)]
        for start in range(0, len(keys), FILES_AT_ONCE):
            try:
                yield Together([ask(Head(location.store, key)) for key in keys[start : start + FILES_AT_ONCE]])
            except NotFound as error:
                raise self._unsure(f"its data file {error.path} is gone") from error

    def _unsure(self, reason: str) -> CommitConflictError:
        shown = ", ".join(map(str, self.missing[:MISSING_SHOWN])) + ", ..." * (len(self.missing) > MISSING_SHOWN)
        return CommitConflictError(
            f"This {self.transaction.name} transaction was made for version {self.since}. A cleanup has removed "
            f"newer versions ({shown}), and it is unknown whether it conflicts with them: {reason}. "
            "Open the table again, and repeat the operation on its newest version",
            path=self.target.location.uri,
            retryable=True,
        )
