"""Check that a version's files exist and match its manifest. Reads no rows except descriptions of blobs.

Per fragment: each data file opens and has the expected rows, columns and size; the deletion file exists and lists as
many rows as the manifest says; row id sequences have one id for each row; blob files exist and are long enough. Between
fragments: ids are unique.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError, LanceError, NotFound
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.data_file import OpenedFile
from lance_io.file.open.open_file import open_cached
from lance_io.lazy_names import lazy_module
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
    payload_check = lazy_module("lance_io.reads.checks.payload_check")  # scans do not need it

FRAGMENTS_AT_ONCE: Final = 64
UNREAD_ROWS_MAX: Final = 1 << 20  # of a fragment, plausible in any case: their numbers take 8 MiB
ROWS_PER_BYTE: Final = 8  # of a file; only files with constant columns have more


def validate(state: DatasetState, fragment_indexes: Sequence[int]) -> Plan[None]:
    """Check these fragments. Raises `FormatError` or `NotFound` for the first problem."""
    twice = [fragment_id for fragment_id, count in Counter(state.fragment_ids).items() if count > 1]
    if twice:
        raise FormatError(f"two fragments have the id {twice[0]}", path=state.location.uri)
    for start in range(0, len(fragment_indexes), FRAGMENTS_AT_ONCE):
        some = fragment_indexes[start : start + FRAGMENTS_AT_ONCE]
        yield Together([_check_files(state, fragment_index) for fragment_index in some])
        try:
            yield from load_live(state, some)
            if state.has_stable_row_ids:
                yield from load_row_columns(state, some, [ROW_ID])
        except NotFound as error:
            raise _missing(state, error) from error
    if state.schema.has_blobs:
        yield from _check_payloads(state, fragment_indexes)


def _check_payloads(state: DatasetState, fragment_indexes: Sequence[int]) -> Plan[None]:
    check = payload_check.PayloadCheck(state)
    try:
        for fragment_index in fragment_indexes:
            yield from check.check(fragment_index)
    except NotFound as error:
        raise _missing(state, error) from error


def check_unread(state: DatasetState, fragment_indexes: Sequence[int]) -> Plan[None]:
    """Check implausible row counts of fragments of which a scan reads no column.

    Only the manifest gives these counts, and a damaged one would fill memory with row numbers. Raises `FormatError` if
    a file has another number of rows.
    """
    for fragment_index in fragment_indexes:
        num_rows = int(state.physical_rows[fragment_index])
        sizes = [file.size_bytes for file in state.manifest.fragments[fragment_index].files if file.size_bytes]
        if num_rows > max(UNREAD_ROWS_MAX, ROWS_PER_BYTE * min(sizes, default=0)):
            yield from _check_files(state, fragment_index)


def _check_files(state: DatasetState, fragment_index: int) -> Plan[None]:
    fragment = state.manifest.fragments[fragment_index]
    num_rows = int(state.physical_rows[fragment_index])
    for file, ref in zip(fragment.files, state.sources[fragment_index].files, strict=True):
        try:
            opened = yield from open_file(state.context, ref)
        except NotFound as error:
            raise _missing(state, error) from error
        where = f"fragment {fragment.id}"
        if opened.num_rows != num_rows:
            raise FormatError(
                f"the file has {opened.num_rows} rows, the manifest says {num_rows}", path=ref.key, where=where
            )
        # the manifest lists none for version 0.1
        num_columns = len(opened.paths) if isinstance(opened, OpenedFile) else 0
        beyond = [column for column in file.column_indices if column >= num_columns]
        if beyond:
            raise FormatError(
                f"the manifest names column {beyond[0]} of a file that has {num_columns}",
                path=ref.key,
                where=where,
            )


def _missing(state: DatasetState, error: LanceError) -> NotFound:
    text = f"version {state.manifest.version} refers to a file that is not there: {error.message}"
    return NotFound(text, path=error.path).copy_request_info(error)


def open_file(context: ReadContext, ref: FileRef) -> Plan[TableFile]:
    """The metadata of a data file; a size of 0 means unknown."""
    opening: tuple[TableFile, Any] = yield ReadFile(context, ref.key, open_cached(context, ref, []))
    return opening[0]
