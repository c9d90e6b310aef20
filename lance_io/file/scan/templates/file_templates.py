"""Templates of small files: one kernel call decodes all bytes of many files into whole columns. No I/O.

Most files of a table are alike: a byte-identical schema, one page per column, and page messages that differ only in
numbers. The metadata of such a file is parsed once; the kernel compares the bytes of other files with it and decodes
those that match. It stops at a file that matches no template: that file is added as a template, or read by the general
reader.

The metadata of files of version 0.1 has only page locations, so that all files of a table are alike.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from lance_io import _kernels, limits
from lance_io.encodings.decoded_size import decoded_bound, has_packed_dictionary
from lance_io.file.open.leaf_projection import FileColumns, LeafColumns
from lance_io.file.open.open_file import open_ending
from lance_io.file.scan.templates import page_templates
from lance_io.format.columns import ORDINARY_START, PAGE_TYPES
from lance_io.format.error_context import FILE_ERRORS
from lance_io.format.footer import ALIGNMENT_BYTES
from lance_io.format.v0_1.batch_table import version_at_end
from lance_io.format.version import V0_1, V2_0, V2_1, FileVersion
from lance_io.gil import yielding
from lance_io.lazy_names import lazy_module
from lance_io.limits import METADATA_BYTES_MAX, MIB, PAGE_ROWS_MAX
from lance_io.records import dataclass
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_io._kernels import Leaf
    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.v0_1 import whole_leaf
    from lance_io.file.open import batched_file
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.file_source import FileRef
    from lance_io.file.scan.templates import array_templates
    from lance_io.file.scan.templates.page_templates import PageTemplate
    from lance_io.format.columns import PageInfo
else:  # imports the readers of versions 2.0 and 0.1, which few tables need
    array_templates = lazy_module("lance_io.file.scan.templates.array_templates")
    whole_leaf = lazy_module("lance_io.encodings.v0_1.whole_leaf")
    batched_file = lazy_module("lance_io.file.open.batched_file")

_DERIVED_NAME: Final = "known files"  # name in `LeafColumns.derived`
SHAPES_MAX: Final = 8  # schemas with templates; each schema change of a table adds one
PAGES_MAX: Final = 16  # page templates per column
TEMPLATE_BYTES_MAX: Final = 4 * MIB  # of the templates' messages, all together
MISSES_MIN: Final = 8  # fewer misses are not significant
FILES_PER_MISS: Final = 4  # templates are given up if more than one in four files misses


_Key = tuple[FileVersion, bytes, int]  # version, schema, and number of columns


class PageTemplates(Protocol):
    """Factory of page templates; the modules `page_templates` and `array_templates`."""

    def template_of(self, page: PageLayout, infos: Sequence[PageInfo]) -> PageTemplate | None:
        """The template of a page; None for a page that must be decoded alone.

        infos  metadata of the page, followed by that of the items' page if a list page stores its items elsewhere
        """


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """Templates of the files with one schema.

    columns  columns of each leaf, those of its lists first
    headers  header columns of structs, with the messages of their pages
    pages    page templates of each leaf
    """

    columns: list[tuple[int, ...]]
    headers: dict[int, bytes]
    pages: list[list[PageTemplate]]


def _is_bounded(page: PageLayout) -> bool:
    """Whether the message of a page bounds its decoded size, and files like it decode to little.

    The kernel checks compressed dictionaries itself.
    """
    if has_packed_dictionary(page):
        return True
    bound = decoded_bound(page, page.num_rows, 0, usual=True)
    return bound is not None and bound <= limits.SCAN_DECODED_BYTES


class FileTemplates:
    """Templates of the files that have these leaves in these columns. Thread-safe."""

    def __init__(self, leaves: LeafColumns) -> None:
        self._leaves = leaves
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Drop all templates: after a fork, another thread's unfinished `add` would hold the lock forever."""
        self._lock = threading.Lock()
        self._shapes: dict[_Key, _Shape] = {}
        self._kernel: _kernels.KnownFiles | _kernels.KnownBatches | None = None
        self._builders: list[Callable[[Leaf], pa.Array]] = []
        self._template_bytes = 0
        self._num_read = self._num_missed = 0
        self._can_have_templates = not any(pa.types.is_dictionary(path.leaf_type) for path in self._leaves.paths)

    @classmethod
    def of(cls, leaves: LeafColumns) -> FileTemplates:
        """The templates that all readers of these leaves share."""
        templates: FileTemplates | None = leaves.derived.get(_DERIVED_NAME)
        return leaves.derived.setdefault(_DERIVED_NAME, cls(leaves)) if templates is None else templates

    @property
    def is_effective(self) -> bool:
        """Whether most files match a template. False for dictionary leaves: each file has its own dictionary."""
        missed = self._num_missed
        return self._can_have_templates and (missed < MISSES_MIN or missed * FILES_PER_MISS < self._num_read)

    def read(self, files: Sequence[tuple[Any, int]]) -> tuple[int, list[pa.Array]]:
        """Decode the leading files that match: their number, and an array of all their rows per leaf.

        files  all bytes of each file, and its number of rows by the manifest
        """
        kernel = self._kernel
        if kernel is None:
            return 0, []
        count, leaves = kernel.scan(list(files))
        self._num_read += count
        return count, [build(leaf) for build, leaf in zip(self._builders, leaves, strict=False)]

    def decode(
        self, refs: Sequence[FileRef], store_identity: str, files: Sequence[tuple[Any, int]]
    ) -> Iterator[tuple[int, int, list[pa.Array]]]:
        """Decode files, and learn templates from them: the first file, how many, and an array of their rows per leaf.

        files  as for `read`

        No rows for a file that matches no template: the general reader must read it.
        """
        at = 0
        while at < len(files):
            before = self.state
            count, arrays = self.read(files[at:])
            if count:
                yield at, count, arrays
                at += count
            elif not self.add(refs[at], store_identity, files[at][0], before):
                self.record_miss()
                yield at, 0, []
                at += 1

    def record_miss(self) -> None:
        """Count a file that the general reader has read."""
        self._num_missed += 1

    @property
    def state(self) -> object:
        """An object that changes whenever a template is added."""
        return self._kernel

    def add(self, ref: FileRef, store_identity: str, data: Any, state_at_miss: object) -> bool:
        """Add a template from all bytes of a file. True if the file may match now.

        state_at_miss  `state` when the file matched no template; if it has changed since, the file may match now
        """
        with self._lock:  # single flight: in the first jobs, several threads miss on the same kind of file
            if self._kernel is not state_at_miss:
                return True
            return self._can_have_templates and self._parse_and_add(ref, store_identity, data)

    def _parse_and_add(self, ref: FileRef, store_identity: str, data: Any) -> bool:
        try:
            if version_at_end(data) == V0_1:
                return self._kernel is None and self._add_batches(ref)
            opened = open_ending((store_identity, ref.key, ref.size_bytes), data, 0)
            if opened is None:
                return False
            file, schema = opened
            shape = self._shape_of(file.view(FileColumns(ref, self._leaves), keep=False).columns, file.version)
        except FILE_ERRORS:  # the general reader raises the precise error
            return False
        if shape is None:
            return False
        if self._kernel is not None and not self._shapes:  # one kernel does not decode 0.1 and other versions
            return False
        return self._add_shape((file.version, schema, file.footer.num_columns), shape)

    def _add_batches(self, ref: FileRef) -> bool:
        """Add the template of files of version 0.1; False if a leaf is unsupported."""
        leaves = [leaf for leaf in map(whole_leaf.WholeLeaf.of, self._leaves.paths) if leaf is not None]
        kernel = whole_leaf.known_batches(leaves, *batched_file.checked_ids(ref))
        if len(leaves) < len(self._leaves.paths):
            self._can_have_templates = False
            return False
        self._builders = [leaf.build_leaf for leaf in leaves]
        self._kernel = kernel
        return True

    def _shape_of(self, columns: Sequence[Column], version: FileVersion) -> _Shape | None:
        """The templates of a file with one page per leaf. None for more pages, or for a page without a template."""
        shape = _Shape([], {}, [])
        templates: PageTemplates = array_templates if version == V2_0 else page_templates
        shared: dict[tuple[bytes, int, pa.DataType], PageTemplate] = {}  # most columns of wide files share templates
        for column in yielding(columns):
            pages, path = column.pages, column.path
            only_pages = pages.only_pages
            if only_pages is None:
                return None
            infos = [info for _, info in only_pages]
            key = infos[0].encoding, len(infos[0].buffer_sizes), path.leaf_type
            is_shared = len(path.nodes) == 1 and path.members is None and version != V2_0
            template = shared.get(key) if is_shared else None
            if template is None:
                template = templates.template_of(pages[0], infos)
                if template is None or not _is_bounded(pages[0]):
                    return None
            if is_shared:
                shared[key] = template
            shape.columns.append(tuple([index for index, _ in only_pages]))
            shape.headers.update(pages.headers)
            shape.pages.append([template])
        return shape

    def _add_shape(self, key: _Key, shape: _Shape) -> bool:
        """Add the templates of a file; False if none of its pages is new, or there is no room."""
        known = self._shapes.get(key)
        if known is None:
            if len(self._shapes) >= SHAPES_MAX:
                return False
            known = _Shape(shape.columns, shape.headers, [[] for _ in shape.pages])
        pages = [leaf_pages[0] for leaf_pages in shape.pages]
        others = next(iter(self._shapes.values()), None)
        if others is not None and any(
            [known_pages[0].join_key != page.join_key for known_pages, page in zip(others.pages, pages, strict=True)]
        ):
            return False
        new = [
            page.described not in [known_page.described for known_page in known_pages]
            for known_pages, page in zip(known.pages, pages, strict=True)
        ]
        num_bytes = sum([len(page.described[0]) for page, is_new in zip(pages, new, strict=True) if is_new])
        is_full = any(
            [len(known_pages) >= PAGES_MAX for known_pages, is_new in zip(known.pages, new, strict=True) if is_new]
        )
        if not any(new) or is_full or self._template_bytes + num_bytes > TEMPLATE_BYTES_MAX:
            return False
        for known_pages, page, is_new in zip(known.pages, pages, new, strict=True):
            if is_new:
                known_pages.append(page)
        self._shapes[key] = known
        self._template_bytes += num_bytes
        if not self._builders:
            self._builders = [page.build for page in pages]
        self._kernel = self._build_kernel()
        return True

    def _build_kernel(self) -> _kernels.KnownFiles:
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
        bounds = METADATA_BYTES_MAX, ALIGNMENT_BYTES, PAGE_ROWS_MAX, limits.SCAN_DECODED_BYTES
        return _kernels.KnownFiles(shapes, ORDINARY_START, *bounds)
