"""Estimates of the stored size of queued rows, by column, from the sizes of earlier pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.written import EncodedPage
    from lance_io.file.write.accumulate import ClosedPage


OVERHEAD_PART: Final = 8  # incompressible rows take at most about an eighth more than their leaf data
REMEMBERED_BYTES: Final = 1 << 20  # weight limit of earlier pages, in bytes of leaf data: recent pages predict best


class PageSizes:
    """Leaf data and stored bytes of pages, of one file or of all files of a write.

    num_columns  number of leaf columns of these files
    """

    def __init__(self, num_columns: int) -> None:
        self._raw_bytes = [0] * num_columns
        self._stored_bytes = [0] * num_columns
        self._sampled: set[int] = set()

    def has_pages(self, column: int) -> bool:
        """Whether any rows of a column have been encoded."""
        return self._raw_bytes[column] > 0

    def add(self, page: ClosedPage, encoded: Sequence[EncodedPage]) -> None:
        """Record a written page. Limits the weight of earlier pages; the page replaces a sample of its column."""
        column = page.column
        weight, raw = 1.0, self._raw_bytes[column]
        if column in self._sampled:
            self._sampled.remove(column)
            weight = 0.0
        elif raw > REMEMBERED_BYTES:
            weight = REMEMBERED_BYTES / raw
        self._raw_bytes[column] = int(raw * weight) + page.num_bytes
        self._stored_bytes[column] = int(self._stored_bytes[column] * weight) + _num_bytes(encoded)

    def sample(self, page: ClosedPage, encoded: Sequence[EncodedPage]) -> None:
        """Record rows that were encoded only for their size, until a page of their column is written."""
        if not self.has_pages(page.column):
            self.add(page, encoded)
            self._sampled.add(page.column)

    def estimate(self, queued_bytes: Sequence[int]) -> int:
        """Estimate of the stored bytes of queued rows, from the bytes of their leaf data per column.

        A column without encoded pages counts with its upper bound.
        """
        totals = zip(queued_bytes, self._raw_bytes, self._stored_bytes, strict=True)
        return sum([_scale(num_bytes, raw, stored) for num_bytes, raw, stored in totals])

    def estimate_all(self, num_bytes: int) -> int:
        """As `estimate`, from the bytes of leaf data of all columns together."""
        return _scale(num_bytes, sum(self._raw_bytes), sum(self._stored_bytes))


def _scale(num_bytes: int, raw: int, stored: int) -> int:
    return num_bytes * stored // raw if raw else num_bytes + num_bytes // OVERHEAD_PART


def _num_bytes(encoded: Sequence[EncodedPage]) -> int:
    return sum([buffer.num_bytes for page in encoded for buffer in page.buffers])
