"""How many rows fragments have, where the manifest does not say so (spec: legacy 0.1, section 9; table, section 2.4).

Releases before 0.8 left it out, and what those before 0.9 say is not believed (`manifest.py`). The data files know.
What is committed on top of such a version says it then.
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
    """The same version, all of whose fragments say how many rows they have: data files are opened for that, if need be.

    Where a data file is not there, the version can be looked at, and whoever needs its rows is told (`missing_file`).
    Raises what opening a data file does otherwise.
    """
    if state.missing_file is not None:  # of another version
        state = replace(state, missing_file=None)
    manifest = state.manifest
    unknown = [place for place, rows in enumerate(manifest.fragments.physical_rows) if not rows]
    unknown = [place for place in unknown if manifest.stored.fragments[place].files]
    if not unknown:
        return state
    refs = [file_refs(state.places, place)[0] for place in unknown]
    try:
        counts: list[int] = yield Together([_count(state.context, ref) for ref in refs])
    except NotFound as error:
        return replace(state, missing_file=error)
    message = table_pb2.Manifest()
    message.CopyFrom(manifest.message)
    for place, num_rows in zip(unknown, counts, strict=True):
        message.fragments[place].physical_rows = num_rows
    found = from_message(message, VERSION_MAX, manifest.index_section)
    return replace(state, manifest=found)


def _count(context: ReadContext, ref: FileRef) -> Plan[int]:
    num_rows: int = yield ReadFile(context, ref.key, _num_rows(context, ref), ref.size_bytes or None)
    return num_rows


def _num_rows(context: ReadContext, ref: FileRef) -> FileSteps[int]:
    file, _ = yield from open_cached(context, ref, [])
    return file.num_rows
