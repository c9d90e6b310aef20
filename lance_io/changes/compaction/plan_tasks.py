"""Groups of fragments that are rewritten together (spec: commit, section 10). Pure.

candidate   a fragment with fewer rows than the target, unless its files have the maximal size; or with too many deleted
            rows
run         adjacent candidates that the same indices cover; with a byte limit other fragments may lie between them
bin         a part of a run with the target number of rows; the rest of the run joins the last bin: a task
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
    """The properties of a fragment that planning needs.

    index           index of the fragment in the manifest
    fragment_id     id of the fragment
    physical_rows   number of rows, including deleted ones
    num_deleted     number of deleted rows
    num_bytes       size of its data files
    covered_by      index segments that cover it
    """

    index: int
    fragment_id: int
    physical_rows: int
    num_deleted: int
    num_bytes: int
    covered_by: Hashable = ()

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return self.physical_rows - self.num_deleted


def plan_bins(fragments: Sequence[SourceFragment], options: CompactionSettings) -> list[list[SourceFragment]]:
    """The tasks of a compaction: fragments that are rewritten together, in the order of the table."""
    bins = [part for run in _runs(fragments, options) for part in _cut(run, options.target_rows_per_fragment)]
    return list(_within_limits(bins, options))


def num_new_fragments(num_rows: int, options: CompactionSettings) -> int:
    """Number of new fragments of a task, unless files end earlier because of their size."""
    return max(1, num_rows // max(1, options.target_rows_per_fragment))


def rows_per_fragment(num_rows: int, options: CompactionSettings) -> int:
    """Rows of each new fragment except the last, so that all have about the same size."""
    return max(1, -(-num_rows // num_new_fragments(num_rows, options)))


def _is_dirty(fragment: SourceFragment, options: CompactionSettings) -> bool:
    if not options.materialize_deletions or not fragment.physical_rows:
        return False
    return fragment.num_deleted / fragment.physical_rows > options.materialize_deletions_threshold


def _is_full_sized(fragment: SourceFragment, options: CompactionSettings) -> bool:
    limit_bytes = options.max_bytes_per_file or BYTES_PER_FILE
    return is_full_sized(fragment.physical_rows, fragment.num_bytes, limit_bytes)


def _runs(fragments: Iterable[SourceFragment], options: CompactionSettings) -> Iterator[list[SourceFragment]]:
    """Neighbours that may be rewritten together. A single small fragment without deletions has nothing to gain.

    New fragments come after the ones that stay. With a byte limit, the remainders of two runs would then be adjacent
    and the next compaction would join them: so fragments that stay do not end a run.
    """
    excluded = frozenset(options.excluded_fragment_ids)
    run: list[SourceFragment] = []
    for fragment in fragments:
        is_small = fragment.physical_rows < options.target_rows_per_fragment and not _is_full_sized(fragment, options)
        is_chosen = fragment.fragment_id not in excluded and (is_small or _is_dirty(fragment, options))
        ends_run = fragment.fragment_id in excluded or not options.max_bytes_per_file
        if run and (run[-1].covered_by != fragment.covered_by if is_chosen else ends_run):
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
    """The first tasks, up to the limits of one call."""
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
