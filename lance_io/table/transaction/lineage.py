"""Assigns stable row ids and versions to rows when a commit is built (spec: table, section 6; commit, section 2.3).

Fragments of a transaction have no row ids. The commit allocates them from the manifest that it builds on, so a retry
just allocates again. Rows moved by an update keep their ids; rows inserted beside them get new ids behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.errors import OperationError, UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.proto import rowids_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.row_ids import count_row_ids, decode_row_ids, decode_row_versions

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from lance_io.codecs.roaring import U32Array
    from lance_io.proto import table_pb2
    from lance_io.table.manifest.row_ids import U64Array

SPILLED: Final = ("spilled_row_ids", "spilled_created_at_versions", "spilled_last_updated_at_versions")


def is_spilled(fragment: table_pb2.DataFragment) -> bool:
    """Whether ids or versions of a fragment's rows are columns of its data files (feature flag 2048)."""
    return any(fragment.HasField(name) for name in SPILLED)


def _refuse_spilled(fragment: table_pb2.DataFragment, values: str) -> None:
    raise UnsupportedError(
        f"fragment {fragment.id} keeps {values} of its rows in a data file (feature flag 2048), and this change "
        "depends on them, which is not implemented"
    )


@dataclass()
class RowIdCounter:
    """The first unallocated stable row id."""

    next_id: int

    def assign(self, fragment: table_pb2.DataFragment) -> int:
        """Extend the id sequence of a new fragment to all of its rows; returns the number of ids it had.

        Raises `OperationError` if it has more ids than rows, or does not say how many rows it has.
        """
        num_rows = fragment.physical_rows
        if not num_rows:
            raise OperationError("a new fragment does not say how many rows it has, which row ids depend on")
        if fragment.HasField("spilled_row_ids"):
            return num_rows  # a spilled sequence is complete
        message = parse_message(rowids_pb2.RowIdSequence, fragment.inline_row_ids, "row id sequence")
        brought = count_row_ids(message)
        if brought > num_rows:
            raise OperationError(f"a new fragment of {num_rows} rows brings {brought} row ids")
        if brought < num_rows:
            end = self.next_id + num_rows - brought
            message.segments.add().range.SetInParent()
            message.segments[-1].range.start, message.segments[-1].range.end = self.next_id, end
            self.next_id = end
            fragment.inline_row_ids = message.SerializeToString()
        return brought


def encode_row_versions(versions: npt.NDArray[np.uint64]) -> bytes:
    """The version sequence, as runs, for one version per physical row."""
    message = rowids_pb2.RowDatasetVersionSequence()
    starts = np.flatnonzero(np.r_[True, versions[1:] != versions[:-1]]) if len(versions) else np.empty(0, np.int64)
    ends = np.r_[starts[1:], len(versions)]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        run = message.runs.add(version=int(versions[start]))
        run.span.range.start, run.span.range.end = start, end
        run.span.range.SetInParent()
    return message.SerializeToString()


def constant_row_versions(num_rows: int, version: int) -> bytes:
    """A version sequence with the same version for all rows."""
    message = rowids_pb2.RowDatasetVersionSequence()
    run = message.runs.add(version=version)
    run.span.range.SetInParent()
    run.span.range.end = num_rows
    return message.SerializeToString()


def stamp_new(fragment: table_pb2.DataFragment, version: int) -> None:
    """Record that `version` created all rows of a new fragment; existing sequences stay."""
    sequence = constant_row_versions(fragment.physical_rows, version)
    if not fragment.HasField("inline_created_at_versions") and not fragment.HasField("spilled_created_at_versions"):
        fragment.inline_created_at_versions = sequence
    is_spilled = fragment.HasField("spilled_last_updated_at_versions")
    if not fragment.HasField("inline_last_updated_at_versions") and not is_spilled:
        fragment.inline_last_updated_at_versions = sequence


def stamp_moved(
    fragment: table_pb2.DataFragment, version: int, num_moved: int, sources: Iterable[table_pb2.DataFragment]
) -> None:
    """Record the versions of a new fragment with moved rows.

    The first `num_moved` rows keep the version that created them, looked up by id in `sources`; `version` created the
    others. `version` is the last change of all rows.
    """
    num_rows = fragment.physical_rows
    if is_spilled(fragment):
        _refuse_spilled(fragment, "the ids or versions")
    fragment.inline_last_updated_at_versions = constant_row_versions(num_rows, version)
    created = np.full(num_rows, version, dtype=np.uint64)
    if fragment.HasField("inline_created_at_versions") and any(map(is_spilled, sources)):  # no lookup in these sources
        created[:num_moved] = decode_row_versions(fragment.inline_created_at_versions, num_moved)
    else:
        moved = decode_row_ids(fragment.inline_row_ids, num_rows)[:num_moved]
        created[:num_moved] = _created_at(moved, sources)
    fragment.inline_created_at_versions = encode_row_versions(created)


def _created_at(ids: U64Array, sources: Iterable[table_pb2.DataFragment]) -> U64Array:
    """The version that created each row; 1 if no source has the row or its version."""
    created = np.ones(len(ids), dtype=np.uint64)
    order = np.argsort(ids)
    ordered = ids[order]
    for source in sources:
        if source.HasField("spilled_row_ids") or source.HasField("spilled_created_at_versions"):
            _refuse_spilled(source, "the ids or versions")
        known = decode_row_ids(source.inline_row_ids, source.physical_rows)
        slots = np.searchsorted(ordered, known)
        matches = slots < len(ordered)
        matches[matches] = ordered[slots[matches]] == known[matches]
        if not matches.any():
            continue
        data = source.inline_created_at_versions if source.HasField("inline_created_at_versions") else None
        created[order[slots[matches]]] = decode_row_versions(data, source.physical_rows)[matches]
    return created


def stamp_all(fragment: table_pb2.DataFragment, version: int) -> None:
    """Record `version` as the last change of all rows of a fragment; versions in its data files no longer count."""
    fragment.ClearField("spilled_last_updated_at_versions")
    fragment.inline_last_updated_at_versions = constant_row_versions(fragment.physical_rows, version)


def stamp_updated(fragment: table_pb2.DataFragment, version: int, offsets: U32Array) -> None:
    """Record `version` as the last change of the rows at `offsets` of a fragment."""
    num_rows = fragment.physical_rows
    if len(offsets) and int(offsets[-1]) >= num_rows:
        raise OperationError(f"fragment {fragment.id}: row {int(offsets[-1])} of {num_rows} was updated")
    if fragment.HasField("spilled_last_updated_at_versions"):
        _refuse_spilled(fragment, "the versions")
    data = fragment.inline_last_updated_at_versions if fragment.HasField("inline_last_updated_at_versions") else None
    versions = decode_row_versions(data, num_rows).copy()
    versions[offsets] = version
    fragment.inline_last_updated_at_versions = encode_row_versions(versions)
