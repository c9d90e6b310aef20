"""How large rows become as pages, by column: what waits for its page is counted by what others became."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.written import EncodedPage
    from lance_io.file.write.accumulate import ClosedPage


OVERHEAD_PART: Final = 8  # incompressible rows take at most about this part more than their leaf data
REMEMBERED_BYTES: Final = 1 << 20  # leaf data of earlier pages that counts beside that of the last: rows change


class PageSizes:
    """Leaf data of pages, and the bytes that they took; of one file, or of all that one write makes.

    num_columns  leaf columns of such a file
    """

    def __init__(self, num_columns: int) -> None:
        self._raw_bytes = [0] * num_columns
        self._stored_bytes = [0] * num_columns
        self._sampled: set[int] = set()

    def knows(self, column: int) -> bool:
        """Whether any rows of a column were encoded."""
        return self._raw_bytes[column] > 0

    def add(self, page: ClosedPage, encoded: Sequence[EncodedPage]) -> None:
        """Count a page that was written. Of those before it only the last count, and a sample of its column no more."""
        column = page.column
        kept, raw = 1.0, self._raw_bytes[column]
        if column in self._sampled:
            self._sampled.remove(column)
            kept = 0.0
        elif raw > REMEMBERED_BYTES:
            kept = REMEMBERED_BYTES / raw
        self._raw_bytes[column] = int(raw * kept) + page.num_bytes
        self._stored_bytes[column] = int(self._stored_bytes[column] * kept) + _num_bytes(encoded)

    def sample(self, page: ClosedPage, encoded: Sequence[EncodedPage]) -> None:
        """Count rows that were encoded to see their size, until a page of their column is written."""
        if not self.knows(page.column):
            self.add(page, encoded)
            self._sampled.add(page.column)

    def estimate(self, waiting: Sequence[int]) -> int:
        """Bytes that rows will take, of which these many bytes of leaf data wait in each column.

        Columns of which nothing was encoded yet count as much as they can take.
        """
        known = zip(waiting, self._raw_bytes, self._stored_bytes, strict=True)
        return sum([_scale(num_bytes, raw, stored) for num_bytes, raw, stored in known])

    def estimate_all(self, num_bytes: int) -> int:
        """The same for leaf data of all columns together."""
        return _scale(num_bytes, sum(self._raw_bytes), sum(self._stored_bytes))


def _scale(num_bytes: int, raw: int, stored: int) -> int:
    return num_bytes * stored // raw if raw else num_bytes + num_bytes // OVERHEAD_PART


def _num_bytes(encoded: Sequence[EncodedPage]) -> int:
    return sum([buffer.num_bytes for page in encoded for buffer in page.buffers])
