"""What is known of small files: from all bytes of many to whole columns, in one kernel call. Pure.

Most files of a table are alike: one schema, byte by byte, one page in each column, and pages whose messages say the
same but for numbers. What such a file says is understood once; the kernel compares the bytes of others with it, and
decodes those where nothing is different. For a file that it does not know it stops: that one is learned, or read in
general.

Files of version 0.1 say nothing of themselves but where their pages are, so that all of a table are alike.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.decoded_size import decoded_bound, has_packed_dictionary
from lance_io.file.open.leaf_projection import FileColumns, LeafColumns
from lance_io.file.open.open_file import open_ending
from lance_io.file.scan.templates import page_templates
from lance_io.format.columns import ORDINARY_START, PAGE_TYPES
from lance_io.format.error_context import REFUSALS
from lance_io.format.footer import ALIGNMENT_BYTES
from lance_io.format.v0_1.batch_table import version_at_end
from lance_io.format.version import V0_1, V2_0, V2_1, FileVersion
from lance_io.lazy_names import later
from lance_io.limits import METADATA_BYTES_MAX, MIB, PAGE_ROWS_MAX
from lance_io.records import dataclass
from lance_io.store.forking import survive_fork
from lance_io.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io._kernels import Leaf
    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.v0_1 import whole_leaf
    from lance_io.file.open import batched_file
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.file_source import FileRef
    from lance_io.file.scan.templates import array_templates
    from lance_io.file.scan.templates.page_templates import PageTemplate
    from lance_io.format.columns import PageInfo
else:  # with all that reads versions 2.0 and 0.1, which few tables need
    array_templates = later("lance_io.file.scan.templates.array_templates")
    whole_leaf = later("lance_io.encodings.v0_1.whole_leaf")
    batched_file = later("lance_io.file.open.batched_file")

_NAME: Final = "known files"
SHAPES_MAX: Final = 8  # schemas that are known; a table gets another with each change of its own
PAGES_MAX: Final = 16  # kinds of pages that are known of a column
LEARNED_BYTES_MAX: Final = 4 * MIB  # of their messages
MISSES_MIN: Final = 8  # so many files that were not known say nothing about the others
MISSES_SHARE: Final = 4  # more than a quarter of all that were looked at do


_Key = tuple[FileVersion, bytes, int]  # the schema, and the number of columns


class PageTemplates(Protocol):
    """What makes templates of pages; the modules `page_templates` and `array_templates`."""

    def template_of(self, page: PageLayout, infos: Sequence[PageInfo]) -> PageTemplate | None:
        """The template of a page; None for those that are decoded by themselves.

        infos  what the metadata says about it; of a page of lists that has items elsewhere, about these, too
        """


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """What files with one schema have in common.

    columns  behind each leaf, those of its lists first
    headers  columns that stand for structs, with the messages of their pages
    pages    known ones of each leaf
    """

    columns: list[tuple[int, ...]]
    headers: dict[int, bytes]
    pages: list[list[PageTemplate]]


def _is_bounded(page: PageLayout) -> bool:
    """Whether messages say what such pages become; of compressed dictionaries the kernel looks into each file."""
    return has_packed_dictionary(page) or decoded_bound(page, page.num_rows, 0) is not None


class FileTemplates:
    """What is known of the files that have these leaves in these columns; safe from any thread."""

    def __init__(self, leaves: LeafColumns) -> None:
        self._leaves = leaves
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Know nothing: after a fork nobody ends what another thread was about to learn."""
        self._lock = threading.Lock()
        self._shapes: dict[_Key, _Shape] = {}
        self._kernel: _kernels.KnownFiles | _kernels.KnownBatches | None = None
        self._builders: list[Callable[[Leaf], pa.Array]] = []
        self._learned_bytes = 0
        self._num_read = self._num_missed = 0
        self._may_join = not any(pa.types.is_dictionary(path.leaf_type) for path in self._leaves.paths)

    @classmethod
    def of(cls, leaves: LeafColumns) -> FileTemplates:
        """What is known by everybody who reads these."""
        found: FileTemplates | None = leaves.made.get(_NAME)
        return leaves.made.setdefault(_NAME, cls(leaves)) if found is None else found

    @property
    def is_worth_asking(self) -> bool:
        """Whether most files turn out to be known; leaves with a dictionary have one in each file."""
        missed = self._num_missed
        return self._may_join and (missed < MISSES_MIN or missed * MISSES_SHARE < self._num_read)

    def read(self, files: Sequence[tuple[Any, int]]) -> tuple[int, list[pa.Array]]:
        """How many of the files, from the first on, are known, and all of their rows: an array for each leaf.

        files  all bytes of each, and how many rows the table says that it has
        """
        kernel = self._kernel
        if kernel is None:
            return 0, []
        count, leaves = kernel.scan(list(files))
        self._num_read += count
        return count, [build(leaf) for build, leaf in zip(self._builders, leaves, strict=False)]

    def record_miss(self) -> None:
        """A file was read in general."""
        self._num_missed += 1

    @property
    def state(self) -> object:
        """Something else whenever more is known."""
        return self._kernel

    def add(self, ref: FileRef, store_identity: str, data: Any, before: object) -> bool:
        """Whether a file, of which all bytes are there, was understood: it and its like are known from now on.

        before  the state when it was not known; if that is another by now, it is worth another look
        """
        with self._lock:  # in the first jobs several threads meet the same kind of file: the first one learns it
            if self._kernel is not before:
                return True
            return self._may_join and self._learn(ref, store_identity, data)

    def _learn(self, ref: FileRef, store_identity: str, data: Any) -> bool:
        try:
            if version_at_end(data) == V0_1:
                return self._kernel is None and self._learn_batches(ref)
            opened = open_ending((store_identity, ref.key, ref.size_bytes), data, 0)
            if opened is None:
                return False
            file, schema = opened
            found = self._shape_of(file.view(FileColumns(ref, self._leaves), keep=False).columns, file.version)
        except REFUSALS:  # whoever reads it in general says what is wrong
            return False
        if found is None:
            return False
        if self._kernel is not None and not self._shapes:  # of files of version 0.1, which stand alone
            return False
        return self._add((file.version, schema, file.footer.num_columns), found)

    def _learn_batches(self, ref: FileRef) -> bool:
        """Whether files of version 0.1 can be known; they say nothing of themselves but where their pages are."""
        leaves = [leaf for leaf in map(whole_leaf.WholeLeaf.of, self._leaves.paths) if leaf is not None]
        kernel = whole_leaf.known_batches(leaves, *batched_file.checked_ids(ref))
        if len(leaves) < len(self._leaves.paths):
            self._may_join = False
            return False
        self._builders = [leaf.build_leaf for leaf in leaves]
        self._kernel = kernel
        return True

    def _shape_of(self, columns: Sequence[Column], version: FileVersion) -> _Shape | None:
        """A file's, with the only page of each leaf; None where one has others, or has no template."""
        shape = _Shape([], {}, [])
        templates: PageTemplates = array_templates if version == V2_0 else page_templates
        alike: dict[tuple[bytes, int, pa.DataType], PageTemplate] = {}  # of wide files most columns are
        for column in in_turns(columns):
            pages, path = column.pages, column.path
            lone = pages.lone
            if lone is None:
                return None
            infos = [info for _, info in lone]
            key = infos[0].encoding, len(infos[0].buffer_sizes), path.leaf_type
            is_shared = len(path.nodes) == 1 and path.members is None and version != V2_0
            template = alike.get(key) if is_shared else None
            template = templates.template_of(pages[0], infos) if template is None else template
            if template is None or not _is_bounded(pages[0]):
                return None
            if is_shared:
                alike[key] = template
            shape.columns.append(tuple([index for index, _ in lone]))
            shape.headers.update(pages.headers)
            shape.pages.append([template])
        return shape

    def _add(self, key: _Key, found: _Shape) -> bool:
        """Whether there is something new in the pages of a file, and room for it."""
        known = self._shapes.get(key)
        if known is None:
            if len(self._shapes) >= SHAPES_MAX:
                return False
            known = _Shape(found.columns, found.headers, [[] for _ in found.pages])
        pages = [of_leaf[0] for of_leaf in found.pages]
        others = next(iter(self._shapes.values()), None)
        if others is not None and any(
            [had[0].join_key != page.join_key for had, page in zip(others.pages, pages, strict=True)]
        ):
            return False
        new = [
            page.described not in [one.described for one in had] for had, page in zip(known.pages, pages, strict=True)
        ]
        num_bytes = sum([len(page.described[0]) for page, is_new in zip(pages, new, strict=True) if is_new])
        is_full = any([len(had) >= PAGES_MAX for had, is_new in zip(known.pages, new, strict=True) if is_new])
        if not any(new) or is_full or self._learned_bytes + num_bytes > LEARNED_BYTES_MAX:
            return False
        for had, page, is_new in zip(known.pages, pages, new, strict=True):
            if is_new:
                had.append(page)
        self._shapes[key] = known
        self._learned_bytes += num_bytes
        if not self._builders:
            self._builders = [page.build for page in pages]
        self._kernel = self._made()
        return True

    def _made(self) -> _kernels.KnownFiles:
        shapes = [
            (
                key,
                (PAGE_TYPES[key[0]], ALIGNMENT_BYTES if key[0] >= V2_1 else 1),
                list(shape.headers.items()),
                [
                    (columns, [page.described for page in pages])
                    for columns, pages in zip(shape.columns, shape.pages, strict=True)
                ],
            )
            for key, shape in self._shapes.items()
        ]
        return _kernels.KnownFiles(shapes, ORDINARY_START, METADATA_BYTES_MAX, ALIGNMENT_BYTES, PAGE_ROWS_MAX)
