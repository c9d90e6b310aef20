"""Merges as text: `explain_plan`, and `analyze_plan` with measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_io.changes.merge.merge_clauses import SOURCE, TARGET, side_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.changes.join.source_rows import SourceRows
    from lance_io.changes.merge.match_rows import MergeConditions
    from lance_io.changes.merge.merge_clauses import MergeClauses
    from lance_io.changes.merge.source_fit import SourceFit
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment


@dataclass(frozen=True)
class MergeMeasurements:
    """Measurements of a merge, as ends of the lines of its plan."""

    merge: str
    join: str
    source: str


def measure_merge(
    result: Mapping[str, object], written: Sequence[Fragment], joined: str, source: SourceRows, seconds: float
) -> MergeMeasurements:
    """Measurements of a merge.

    result   numbers of inserted, updated and deleted rows
    written  the new data files, a fragment each
    joined   the join method
    seconds  duration after the source was pulled
    """
    num_bytes = sum(file.size_bytes or 0 for fragment in written for file in fragment.files[-1:])
    counts = ", ".join(f"{name}={count}" for name, count in result.items())
    spilled = ", on local disk" if source.is_spilled else ""
    return MergeMeasurements(
        f", elapsed={seconds * 1000:.3f}ms, metrics=[bytes_written={num_bytes}, {counts}, "
        f"num_files_written={len(written)}]",
        f", done=[{joined}]",
        f", metrics=[rows={source.num_rows}, bytes={source.num_bytes}{spilled}]",
    )


def describe_merge(
    state: DatasetState,
    clauses: MergeClauses,
    fit: SourceFit,
    conditions: MergeConditions,
    *,
    patches: bool,
    verbose: bool,
    done: MergeMeasurements | None = None,
) -> str:
    """The steps of a merge as a tree.

    patches  whether columns are written for fragments, not rows
    done     measurements, after the merge
    """
    done = done or MergeMeasurements("", "", "")
    on = ", ".join(clauses.on)
    num_rows = int(state.physical_rows.sum())
    read = dict.fromkeys([*clauses.on, *side_columns(conditions.update, TARGET), *_rest_columns(conditions)])
    lines = [
        f"MergeInsert: {clauses.describe()}, write_mode={'rewrite_columns' if patches else 'rewrite_rows'}{done.merge}"
    ]
    if patches:
        names = (name for name in fit.names if name not in clauses.on)
        lines.append(f"  WriteColumns: projection=[{_join(names)}], of fragments with matches")
    else:
        lines.append(f"  WriteRows: projection=[{_join(field.name for field in fit.table.fields)}]")
        missing = [field.name for field in (*fit.missing, *fit.partial_structs)]
        if missing and clauses.matched == "update":
            lines.append(f"    LanceTake: projection=[{_join(missing)}], of matched rows")
    lines.append(
        f"  HashJoin: on=[{on}], table=the side that takes less memory, else partitions on local disk{done.join}"
    )
    lines.append(
        f"    LanceRead: uri={state.location.uri}, projection=[{_join(read)}], "
        f"num_fragments={len(state.manifest.fragments)}, num_rows={num_rows}, row_addr=true, "
        f"row_id={str(state.has_stable_row_ids).lower()}"
    )
    lines.append(f"    Source: projection=[{_join(fit.names)}]{done.source}")
    if verbose:
        condition_columns = _join(side_columns(conditions.update, SOURCE)) or "none"
        lines.append(f"      columns in the condition=[{condition_columns}], types=[{_types(fit)}]")
    return "\n".join(lines) + "\n"


def _rest_columns(conditions: MergeConditions) -> list[str]:
    return [] if conditions.rest is None else [path[0] for path in conditions.rest.paths]


def _types(fit: SourceFit) -> str:
    return ", ".join(f"{field.name}: {field.logical_type}" for field in fit.schema.fields)


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)
