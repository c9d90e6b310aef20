"""Row counts of fragments whose manifest entry lacks them (spec: legacy 0.1, section 9; table, section 2.4).

Releases before 0.8 left the counts out, and the counts of releases before 0.9 are not trusted (`manifest.py`). The data
files have the counts. Commits on top of such a version record them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_io.errors import NotFound
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.open_file import open_cached
from lance_io.plans.plan import Together
from lance_io.proto import table_pb2
from lance_io.reads.version.object_keys import file_refs
from lance_io.table.manifest.manifest import VERSION_MAX, from_message

if TYPE_CHECKING:
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState


def with_row_counts(state: DatasetState) -> Plan[DatasetState]:
    """The same version with complete row counts; opens data files if necessary.

    If a data file is missing, the version still opens, and reads of its rows raise the error (`missing_file`). Raises
    other errors of opening a data file.
    """
    if state.missing_file is not None:  # it belongs to another version
        state = replace(state, missing_file=None)
    manifest = state.manifest
    unknown = [fragment_index for fragment_index, rows in enumerate(manifest.fragments.physical_rows) if not rows]
    unknown = [fragment_index for fragment_index in unknown if manifest.stored.fragments[fragment_index].files]
    if not unknown:
        return state
    refs = [file_refs(state.object_keys, fragment_index)[0] for fragment_index in unknown]
    try:
        counts: list[int] = yield Together([_count(state.context, ref) for ref in refs])
    except NotFound as error:
        return replace(state, missing_file=error)
    message = table_pb2.Manifest()
    message.CopyFrom(manifest.message)
    for fragment_index, num_rows in zip(unknown, counts, strict=True):
        message.fragments[fragment_index].physical_rows = num_rows
    completed = from_message(message, VERSION_MAX, manifest.index_section)
    return replace(state, manifest=completed)


def _count(context: ReadContext, ref: FileRef) -> Plan[int]:
    num_rows: int = yield ReadFile(context, ref.key, _num_rows(context, ref), ref.size_bytes or None)
    return num_rows


def _num_rows(context: ReadContext, ref: FileRef) -> FileSteps[int]:
    file, _ = yield from open_cached(context, ref, [])
    return file.num_rows
