"""Whether a version's files are there and agree with what its manifest says about them; no rows but descriptions of
blobs are read.

Per fragment: every data file opens, has the rows and columns that the manifest counts on, and its size; the deletion
file is there and lists as many rows as the manifest says; row id sequences have as many ids as there are rows; the
files that blobs are in are there, and reach as far as the blobs do. Between fragments: ids are unique.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError, LanceError, NotFound
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.data_file import OpenedFile
from lance_io.file.open.open_file import open_cached
from lance_io.lazy_names import later
from lance_io.plans.plan import Together
from lance_io.reads.rows.deletions_and_ids import load_live, load_row_columns
from lance_io.reads.version.system_columns import ROW_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.plans.plan import Plan
    from lance_io.reads.checks import payload_check
    from lance_io.reads.version.state import DatasetState
else:
    payload_check = later("lance_io.reads.checks.payload_check")  # which scans do not need

FRAGMENTS_AT_ONCE: Final = 64
UNREAD_ROWS_MAX: Final = 1 << 20  # of a fragment that are believed in any case: their numbers take 8 MiB
ROWS_PER_BYTE: Final = 8  # of a file; more are only in files whose columns are constant


def validate(state: DatasetState, places: Sequence[int]) -> Plan[None]:
    """Check the fragments at `places`. Raises `FormatError` or `NotFound` for the first thing that is not right."""
    twice = [one for one, count in Counter(state.fragment_ids).items() if count > 1]
    if twice:
        raise FormatError(f"two fragments have the id {twice[0]}", path=state.location.uri)
    for start in range(0, len(places), FRAGMENTS_AT_ONCE):
        some = places[start : start + FRAGMENTS_AT_ONCE]
        yield Together([_check_files(state, place) for place in some])
        try:
            yield from load_live(state, some)
            if state.has_stable_row_ids:
                yield from load_row_columns(state, some, [ROW_ID])
        except NotFound as error:
            raise _missing(state, error) from error
    if state.schema.has_blobs:
        yield from _check_payloads(state, places)


def _check_payloads(state: DatasetState, places: Sequence[int]) -> Plan[None]:
    check = payload_check.PayloadCheck(state)
    try:
        for place in places:
            yield from check.check(place)
    except NotFound as error:
        raise _missing(state, error) from error


def check_unread(state: DatasetState, places: Sequence[int]) -> Plan[None]:
    """Check the row counts of fragments of which a scan reads no column, where they are hard to believe.

    Only the manifest speaks of these rows then, and a damaged count would fill memory with their numbers. Raises
    `FormatError` where a file has another number of rows.
    """
    for place in places:
        num_rows = int(state.physical_rows[place])
        sizes = [file.size_bytes for file in state.manifest.fragments[place].files if file.size_bytes]
        if num_rows > max(UNREAD_ROWS_MAX, ROWS_PER_BYTE * min(sizes, default=0)):
            yield from _check_files(state, place)


def _check_files(state: DatasetState, place: int) -> Plan[None]:
    fragment = state.manifest.fragments[place]
    num_rows = int(state.physical_rows[place])
    for file, ref in zip(fragment.files, state.sources[place].files, strict=True):
        try:
            found = yield from open_file(state.context, ref)
        except NotFound as error:
            raise _missing(state, error) from error
        where = f"fragment {fragment.id}"
        if found.num_rows != num_rows:
            raise FormatError(
                f"the file has {found.num_rows} rows, the manifest says {num_rows}", path=ref.key, where=where
            )
        num_columns = len(found.paths) if isinstance(found, OpenedFile) else 0  # of 0.1 the manifest names none
        beyond = [column for column in file.column_indices if column >= num_columns]
        if beyond:
            raise FormatError(
                f"the manifest names column {beyond[0]} of a file that has {num_columns}",
                path=ref.key,
                where=where,
            )


def _missing(state: DatasetState, error: LanceError) -> NotFound:
    text = f"version {state.manifest.version} refers to a file that is not there: {error.message}"
    return NotFound(text, path=error.path).asked_as(error)


def open_file(context: ReadContext, ref: FileRef) -> Plan[TableFile]:
    """The metadata of a data file; a size of 0 is one that is not known."""
    opening: tuple[TableFile, Any] = yield ReadFile(context, ref.key, open_cached(context, ref, []))
    return opening[0]
