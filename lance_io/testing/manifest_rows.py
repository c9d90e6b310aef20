"""A manifest database in memory: the smallest implementation of `commit/external.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from lance_io.commit.external import Row
    from lance_io.plans.plan import Plan


class MemoryManifestStore:
    """An `ExternalManifestStore` whose rows are in this process's memory.

    Attributes:
        rows: Rows by table URI and version.
    """

    answers_sync = True

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], Row] = {}

    def check(self) -> Plan[None]:
        """See `ExternalManifestStore.check`; never fails."""
        yield from ()

    def get(self, base: str, version: int) -> Plan[Row | None]:
        """See `ExternalManifestStore.get`."""
        yield from ()
        return self.rows.get((base, version))

    def get_latest(self, base: str) -> Plan[Row | None]:
        """See `ExternalManifestStore.get_latest`."""
        yield from ()
        highest = max((version for each, version in self.rows if each == base), default=None)
        return None if highest is None else self.rows[base, highest]

    def put_if_absent(self, base: str, row: Row) -> Plan[None]:
        """See `ExternalManifestStore.put_if_absent`."""
        yield from ()
        if self.rows.setdefault((base, row.version), row) is not row:
            raise AlreadyExists(f"there is a row of version {row.version}", path=base)

    def put_if_present(self, base: str, row: Row) -> Plan[None]:
        """See `ExternalManifestStore.put_if_present`."""
        yield from ()
        if (base, row.version) not in self.rows:
            raise NotFound(f"there is no row of version {row.version}", path=base)
        self.rows[base, row.version] = row

    def list_rows(self, base: str) -> Plan[list[Row]]:
        """See `ExternalManifestStore.list_rows`."""
        yield from ()
        return [row for (each, _), row in sorted(self.rows.items()) if each == base]

    def remove_same(self, base: str, row: Row) -> Plan[bool]:
        """See `ExternalManifestStore.remove_same`."""
        yield from ()
        is_same = self.rows.get((base, row.version)) == row
        if is_same:
            del self.rows[base, row.version]
        return is_same
