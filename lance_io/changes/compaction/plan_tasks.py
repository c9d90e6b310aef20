"""Which fragments are rewritten together (spec: commit, section 10). Pure.

candidate   a fragment with fewer rows than are wanted, unless it has all the bytes that a file may have, or with too
            many deleted rows
run         candidates side by side that the same indices cover; with a limit of bytes others may lie between them
bin         a part of a run that has the rows wanted; what is left at the end joins the last one: a task
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_io.changes.write.data_files import BYTES_PER_FILE, is_full_sized

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from lance_io.changes.compaction.compaction_options import CompactionSettings


@dataclass(frozen=True, slots=True)
class SourceFragment:
    """What planning knows of a fragment.

    place           in the table
    fragment_id     its id
    physical_rows   rows, deleted ones included
    num_deleted     rows that are deleted
    num_bytes       of its data files
    covered_by      the indices that know it
    """

    place: int
    fragment_id: int
    physical_rows: int
    num_deleted: int
    num_bytes: int
    covered_by: Hashable = ()

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return self.physical_rows - self.num_deleted


def plan_bins(fragments: Sequence[SourceFragment], options: CompactionSettings) -> list[list[SourceFragment]]:
    """The tasks of a compaction: fragments that are rewritten together, in the order of the table."""
    bins = [one for run in _runs(fragments, options) for one in _cut(run, options.target_rows_per_fragment)]
    return list(_within_limits(bins, options))


def num_new_fragments(num_rows: int, options: CompactionSettings) -> int:
    """Into how many fragments the rows of a task go, unless files end earlier for their size."""
    return max(1, num_rows // max(1, options.target_rows_per_fragment))


def rows_per_fragment(num_rows: int, options: CompactionSettings) -> int:
    """Rows of each of them but the last, so that all are of about one size."""
    return max(1, -(-num_rows // num_new_fragments(num_rows, options)))


def _is_dirty(fragment: SourceFragment, options: CompactionSettings) -> bool:
    if not options.materialize_deletions or not fragment.physical_rows:
        return False
    return fragment.num_deleted / fragment.physical_rows > options.materialize_deletions_threshold


def _is_full_sized(fragment: SourceFragment, options: CompactionSettings) -> bool:
    limit_bytes = options.max_bytes_per_file or BYTES_PER_FILE
    return is_full_sized(fragment.physical_rows, fragment.num_bytes, limit_bytes)


def _runs(fragments: Iterable[SourceFragment], options: CompactionSettings) -> Iterator[list[SourceFragment]]:
    """Neighbours that may go together. One small fragment without deletions gains nothing by itself.

    What is rewritten comes to lie behind what stays. A limit of bytes would find what it has left of two runs side by
    side then, and join it the next time: so fragments that stay do not part them.
    """
    excluded = frozenset(options.excluded_fragment_ids)
    run: list[SourceFragment] = []
    for fragment in fragments:
        is_small = fragment.physical_rows < options.target_rows_per_fragment and not _is_full_sized(fragment, options)
        is_chosen = fragment.fragment_id not in excluded and (is_small or _is_dirty(fragment, options))
        parts = fragment.fragment_id in excluded or not options.max_bytes_per_file
        if run and (run[-1].covered_by != fragment.covered_by if is_chosen else parts):
            yield run
            run = []
        if is_chosen:
            run.append(fragment)
    if run:
        yield run


def _cut(run: list[SourceFragment], target_rows: int) -> Iterator[list[SourceFragment]]:
    bins: list[list[SourceFragment]] = [[]]
    num_rows = 0
    for fragment in run:
        if num_rows >= max(1, target_rows):
            bins.append([])
            num_rows = 0
        bins[-1].append(fragment)
        num_rows += fragment.num_rows
    if num_rows < target_rows and len(bins) > 1:
        rest = bins.pop()
        bins[-1] += rest
    return iter(bins)


def _within_limits(bins: Iterable[list[SourceFragment]], options: CompactionSettings) -> Iterator[list[SourceFragment]]:
    """The first tasks that stay within what one call may read."""
    num_fragments = num_rows = num_bytes = 0
    for each in bins:
        if len(each) == 1 and not _is_dirty(each[0], options):
            continue
        num_fragments += len(each)
        num_rows += sum(fragment.num_rows for fragment in each)
        num_bytes += sum(fragment.num_bytes for fragment in each)
        for used, limit in (
            (num_fragments, options.max_source_fragments),
            (num_rows, options.max_source_rows),
            (num_bytes, options.max_source_bytes),
        ):
            if limit is not None and used > limit:
                return
        yield each
