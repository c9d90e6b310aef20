"""What is known of small files: from all bytes of many to whole columns, in one kernel call. Pure.

Most files of a table are alike: one schema, byte by byte, one page in each column, and pages whose messages say the
same but for numbers. What such a file says is understood once; the kernel compares the bytes of others with it, and
decodes those where nothing is different. For a file that it does not know it stops: that one is learned, or read in
general.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.known_pages import KnownPage, known_page
from lance_io.file.open.column_pages import Pages
from lance_io.file.open.leaf_projection import FileColumns, LeafColumns
from lance_io.file.open.open_file import open_whole
from lance_io.format.columns import ORDINARY_START, PAGE_TYPES
from lance_io.format.error_context import REFUSALS
from lance_io.format.footer import ALIGNMENT_BYTES
from lance_io.format.version import V2_1, V2_2
from lance_io.limits import METADATA_BYTES_MAX, MIB, PAGE_ROWS_MAX
from lance_io.runtime.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io._kernels import Leaf
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.file_source import FileRef

_NAME: Final = "known files"
SHAPES_MAX: Final = 8  # schemas that are known; a table gets another with each change of its own
PAGES_MAX: Final = 16  # kinds of pages that are known of a column
LEARNED_BYTES_MAX: Final = 4 * MIB  # of their messages
MISSES_MIN: Final = 8  # so many files that were not known say nothing about the others
MISSES_SHARE: Final = 4  # more than a quarter of all that were looked at do


class KnownFiles:
    """What is known of the files that have these leaves in these columns; safe from any thread."""

    def __init__(self, leaves: LeafColumns) -> None:
        self._leaves = leaves
        self._lock = threading.Lock()
        self._shapes: dict[tuple[tuple[int, int], bytes, int], list[list[KnownPage]]] = {}
        self._kernel: _kernels.KnownFiles | None = None
        self._builders: list[Callable[[Leaf], pa.Array]] = []
        self._learned_bytes = 0
        self._num_read = self._num_missed = self._num_learned = 0
        self._may_join = not any(pa.types.is_dictionary(path.leaf_type) for path in leaves.paths)

    @classmethod
    def of(cls, leaves: LeafColumns) -> KnownFiles:
        """What is known by everybody who reads these."""
        found: KnownFiles | None = leaves.made.get(_NAME)
        return leaves.made.setdefault(_NAME, cls(leaves)) if found is None else found

    @property
    def is_worth_asking(self) -> bool:
        """Whether most files turn out to be known; leaves with a dictionary have one in each file."""
        missed = self._num_missed
        return self._may_join and (missed < MISSES_MIN or missed * MISSES_SHARE < self._num_read)

    @property
    def num_learned(self) -> int:
        """How often something new was learned."""
        return self._num_learned

    def read(self, files: Sequence[tuple[Any, int]]) -> tuple[int, list[pa.Array]]:
        """How many of the files, from the first on, are known, and all of their rows: an array for each leaf.

        files  all bytes of each, and how many rows the table says that it has
        """
        kernel, builders = self._kernel, self._builders
        if kernel is None:
            return 0, []
        count, leaves = kernel.scan(list(files))
        self._num_read += count
        return count, [build(leaf) for build, leaf in zip(builders, leaves, strict=False)]

    def missed(self) -> None:
        """A file was read in general."""
        self._num_missed += 1

    def learn(self, ref: FileRef, store_identity: str, data: Any, num_learned: int) -> bool:
        """Whether there is something new to know of a file, of which all bytes are there: `read` is worth another try.

        num_learned  what it was when `read` did not know the file; where others have learned since, that comes first
        """
        with self._lock:
            return num_learned != self._num_learned or self._learn(ref, store_identity, data)

    def _learn(self, ref: FileRef, store_identity: str, data: Any) -> bool:
        try:
            opened = open_whole((store_identity, ref.key, ref.size_bytes), data)
            if opened is None or opened[0].version not in (V2_1, V2_2):
                return False
            file, schema = opened
            found = self._pages_of(file.view(FileColumns(ref, self._leaves), keep=False).columns)
        except REFUSALS:  # whoever reads it in general says what is wrong
            return False
        if found is None:
            return False
        numbers = file.version.major, file.version.minor
        return self._add((numbers, schema, file.footer.num_columns), found)

    def _pages_of(self, columns: Sequence[Column]) -> list[KnownPage] | None:
        """The only page of each column; None where one has others, or cannot be known."""
        found: list[KnownPage] = []
        alike: dict[tuple[bytes, int, pa.DataType], KnownPage] = {}  # of wide files most columns are
        for column in in_turns(columns):
            pages, path = column.pages, column.path
            if not isinstance(pages, Pages) or len(pages) != 1 or (info := pages.info(0)) is None:
                return None
            key = info.encoding, len(info.buffer_sizes), path.leaf_type
            is_plain = len(path.nodes) == 1 and path.members is None
            known = alike.get(key) if is_plain else None
            if known is None:
                known = known_page(pages[0], info.encoding)
                if known is None:
                    return None
                if is_plain:
                    alike[key] = known
            found.append(known)
        return found

    def _add(self, shape: tuple[tuple[int, int], bytes, int], pages: list[KnownPage]) -> bool:
        """Whether there is something new in these pages, one for each column, and room for it."""
        known = self._shapes.get(shape)
        if known is None:
            if len(self._shapes) >= SHAPES_MAX:
                return False
            known = [[] for _ in pages]
        others = next(iter(self._shapes.values()), None)
        if others is not None and any([a[0].join_key != b.join_key for a, b in zip(others, pages, strict=True)]):
            return False
        new = [page.described not in [one.described for one in had] for had, page in zip(known, pages, strict=True)]
        num_bytes = sum([len(page.described[0]) for page, is_new in zip(pages, new, strict=True) if is_new])
        is_full = any([len(had) >= PAGES_MAX for had, is_new in zip(known, new, strict=True) if is_new])
        if not any(new) or is_full or self._learned_bytes + num_bytes > LEARNED_BYTES_MAX:
            return False
        for had, page, is_new in zip(known, pages, new, strict=True):
            if is_new:
                had.append(page)
        self._shapes[shape] = known
        self._learned_bytes += num_bytes
        if not self._builders:
            self._builders = [page.build for page in pages]
        self._kernel = self._made()
        self._num_learned += 1
        return True

    def _made(self) -> _kernels.KnownFiles:
        shapes = [
            (
                *shape,
                [
                    (column, [page.described for page in pages])
                    for column, pages in zip(self._leaves.columns, known, strict=True)
                ],
            )
            for shape, known in self._shapes.items()
        ]
        return _kernels.KnownFiles(
            shapes, PAGE_TYPES[V2_2], ORDINARY_START, METADATA_BYTES_MAX, ALIGNMENT_BYTES, PAGE_ROWS_MAX
        )
