"""How a filtered scan reads its late columns: row by row, or all rows of a run of which nearly all pass.

    before the first row       are the columns worth reading after the filter?        `worth_waiting`
                               or some of them with it, as they lie beside it?        `read_along`
    rows that were filtered    take their late columns, or read them without gaps?    `LateCosts.reads_all`

Both are functions of sizes, of the store's costs and of the rows that passed. The result is the same in each process,
and needs no read. `docs/decisions/017-late-columns.md` has the numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from lance_io.limits import KIB, MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.spans import IntArray
    from lance_io.store.costs import RequestCosts
    from lance_io.store.profile import StoreProfile

LATE_BYTES_LOCAL: Final = 10  # local disk: rows of narrower values take longer to look up than to decode
LATE_BYTES_CLOUD: Final = 1000  # object store: the same, with a lookup for every row that passes
TOGETHER_BYTES: Final = 2 * MIB  # late columns up to this size arrive in about a round trip
BEHIND_BYTES: Final = 4 * MIB  # half a page: read beyond the end of a run, on an object store
BEHIND_BYTES_LOCAL: Final = 1 * MIB  # the same on local disk
WAITING_BYTES_MAX: Final = 64 * MIB  # early columns of rows that wait for their late ones
# unwanted bytes that end a run; on an object store, as many as arrive in a round trip
GAP_BYTES_LOCAL: Final = 256 * KIB
SAVED_SHARE: Final = 0.1  # a take must save at least this share of the bytes
WIDTHS_MAX: Final = 8  # different ones of a row; more are taken for one
CHUNK_BYTES: Final = 4 * KIB  # read with each row of small values: the rest of its chunk
TAKE_ROW_NS: Final = 200.0  # local disk, per value and per byte, measured: looking rows up,
TAKE_BYTE_NS: Final = 1.6
SCAN_ROW_NS: Final = 20.0  # and decoding whole pages
SCAN_BYTE_NS: Final = 0.6


Role: TypeAlias = Literal["filter", "late", "unread"]


@dataclass(frozen=True, slots=True)
class LateCosts:
    """Costs of reading late columns.

    row_bytes    of all late columns together, as stored, about
    num_columns  leaves of them
    gap_bytes    ranges closer than this share a read of a take
    read_bytes_max  the longest read of a scan
    costs        of requests; None if they are negligible
    widths       bytes of a value, and the number of leaves with such values
    """

    row_bytes: float
    num_columns: int
    gap_bytes: int
    read_bytes_max: int
    costs: RequestCosts | None
    widths: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, profile: StoreProfile, row_bytes: float, num_columns: int, widths: Sequence[float] = ()) -> LateCosts:
        """The costs in a store.

        widths  estimated bytes of a value of each leaf, of which only the proportions count; none: all are alike
        """
        row_bytes = max(row_bytes, 0.01)
        shares = Counter([max(width, 1 / 8) for width in widths]) if widths else {1.0: max(1, num_columns)}
        scale = row_bytes / sum([width * number for width, number in shares.items()])
        if len(shares) > WIDTHS_MAX:
            shares, scale = {1.0: num_columns}, row_bytes / max(1, num_columns)
        return cls(
            row_bytes,
            num_columns,
            profile.take_gap_bytes,
            profile.scan_read_bytes_max,
            profile.costs,
            tuple([(width * scale, number) for width, number in shares.items()]),
        )

    @property
    def gap_rows(self) -> int:
        """Unwanted rows between two wanted ones that end a run; fewer are read as well."""
        num_bytes: float = GAP_BYTES_LOCAL
        if self.costs is not None:
            num_bytes = self.costs.latency_s * self.costs.connection_bytes_per_s
        return max(1, int(num_bytes / self.row_bytes))

    def reads_all(self, offsets: IntArray | None, num_rows: int, *, rows_behind: int = 0) -> bool:
        """Whether reading the late columns of all rows of a run is cheaper than taking those that pass.

        offsets      i64[n], ascending: the rows that pass; None for all
        num_rows     of the run
        rows_behind  after the run in its last pages, as far as known

        If both differ by less than a round trip, the one with fewer bytes wins.
        """
        num_kept = num_rows if offsets is None else len(offsets)
        behind_bytes = min(rows_behind * self.row_bytes, BEHIND_BYTES_LOCAL if self.costs is None else BEHIND_BYTES)
        if self.costs is None:
            behind = self._scan_ns(behind_bytes / self.row_bytes)
            return num_kept > 0 and self._take_ns(num_kept) > self._scan_ns(num_rows) + behind
        if not num_kept:
            return False
        num_requests, num_bytes = (
            (self.num_columns, num_rows * self.row_bytes) if offsets is None else self._taken(offsets)
        )
        all_bytes = num_rows * self.row_bytes + behind_bytes
        take_s = self._seconds(self.costs, num_requests, num_bytes)
        scan_s = self._seconds(self.costs, self.num_columns, all_bytes)
        if abs(take_s - scan_s) <= self.costs.latency_s:
            return num_bytes >= (1 - SAVED_SHARE) * all_bytes
        return scan_s < take_s

    def _seconds(self, costs: RequestCosts, num_requests: int, num_bytes: float) -> float:
        """Seconds of requests of about the same size, none longer than a read."""
        number = max(num_requests, -(-int(num_bytes) // self.read_bytes_max), 1)
        return costs.requests_s(number, num_bytes, num_bytes / number)

    def _take_ns(self, num_kept: int) -> float:
        return num_kept * (self.num_columns * TAKE_ROW_NS + self.row_bytes * TAKE_BYTE_NS)

    def _scan_ns(self, num_rows: float) -> float:
        return num_rows * (self.num_columns * SCAN_ROW_NS + self.row_bytes * SCAN_BYTE_NS)

    def _taken(self, offsets: IntArray) -> tuple[int, float]:
        """Requests of a take, and their bytes. Neighbours share a request; each end reads part of a chunk."""
        steps = np.diff(offsets)
        num_requests, num_bytes = 0, 0.0
        for value_bytes, number in self.widths:
            apart = steps > 1 + (self.gap_bytes + CHUNK_BYTES) / value_bytes
            num_runs = 1 + int(apart.sum())
            num_rows = len(offsets) + int((steps[~apart] - 1).sum())
            num_requests += number * num_runs
            num_bytes += number * (num_rows * value_bytes + num_runs * min(CHUNK_BYTES, 64 * value_bytes))
        return num_requests, num_bytes


def worth_waiting(num_rows: int, row_bytes: float, file_bytes: float, profile: StoreProfile) -> bool:
    """Whether to read columns after those of the filter, rather than with them.

    num_rows    of the scan
    row_bytes   of these columns together, as stored, about
    file_bytes  of a file of the scan, on average
    """
    if file_bytes <= profile.whole_file_bytes:  # one read brings the whole file
        return False
    return profile.costs is None or num_rows * row_bytes > TOGETHER_BYTES


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A top-level column of a data file, in the order in which columns are stored.

    file_bytes  of it, at most; None if they are not known
    role        "filter" if it is read for the filter, "late" if it may be read after that, "unread"
    """

    name: str
    file_bytes: float | None
    role: Role


def read_along(columns: Sequence[StoredColumn], num_files: int, profile: StoreProfile) -> set[str]:
    """Late columns that are cheaper to read with the filter's, in the requests for these.

    columns    of a file of the scan
    num_files  of the scan

    A column comes along if the bytes that it adds to a request cost no more than a request for a row of it: it lies
    beside a column of the filter, or beside others that come along, and takes less than the gap that takes read over.
    All that come along are small enough to arrive in about a round trip. Without costs of requests there are none.
    """
    if profile.costs is None:
        return set()
    added: dict[str, float] = {}
    for direction in (columns, columns[::-1]):
        behind = float("inf")  # bytes since the last column that is read
        for column in direction:
            if column.role == "filter":
                behind = 0.0
            elif column.file_bytes is None:
                behind = float("inf")
            elif column.role == "late" and behind + column.file_bytes <= profile.take_gap_bytes:
                added[column.name] = min(behind + column.file_bytes, added.get(column.name, float("inf")))
                behind = 0.0
            else:
                behind += column.file_bytes
    along, all_bytes = set(), 0.0
    for name, num_bytes in sorted(added.items(), key=lambda item: (item[1], item[0])):
        all_bytes += num_bytes * num_files
        if all_bytes > TOGETHER_BYTES:
            break
        along.add(name)
    return along


def is_wide(value_bytes: float, profile: StoreProfile) -> bool:
    """Whether values of a type are worth a lookup by row."""
    return value_bytes > (LATE_BYTES_LOCAL if profile.costs is None else LATE_BYTES_CLOUD)
