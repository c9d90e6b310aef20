"""Giving rows their stable ids and versions as a commit is built (spec: table, section 6; commit, section 2.3).

A transaction brings fragments without ids: they are given out from the manifest that the commit builds on, so that a
second attempt simply numbers anew. Rows that were moved by an update bring their ids with them; rows that were
inserted beside them get fresh ones behind.
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

    from lance_io.proto import table_pb2
    from lance_io.table.manifest.roaring import U32Array
    from lance_io.table.manifest.row_ids import U64Array

SPILLED: Final = ("spilled_row_ids", "spilled_created_at_versions", "spilled_last_updated_at_versions")


def is_spilled(fragment: table_pb2.DataFragment) -> bool:
    """Whether ids or versions of a fragment's rows are columns of its data files (feature flag 2048)."""
    return any(fragment.HasField(name) for name in SPILLED)


def _refuse_spilled(fragment: table_pb2.DataFragment, what: str) -> None:
    raise UnsupportedError(
        f"fragment {fragment.id} keeps {what} of its rows in a data file (feature flag 2048), and this change depends "
        "on them, which is not implemented"
    )


@dataclass()
class RowIdCounter:
    """The first stable row id that is not given out yet."""

    next_id: int

    def assign(self, fragment: table_pb2.DataFragment) -> int:
        """Make the id sequence of a new fragment as long as its rows; gives the number of ids that it brought.

        Raises `OperationError` when it brings more ids than it has rows, or does not say how many rows it has.
        """
        num_rows = fragment.physical_rows
        if not num_rows:
            raise OperationError("a new fragment does not say how many rows it has, which row ids depend on")
        if fragment.HasField("spilled_row_ids"):
            return num_rows  # whoever spilled them had all
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
    """A version sequence of one version per physical row, as runs."""
    message = rowids_pb2.RowDatasetVersionSequence()
    starts = np.flatnonzero(np.r_[True, versions[1:] != versions[:-1]]) if len(versions) else np.empty(0, np.int64)
    ends = np.r_[starts[1:], len(versions)]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        run = message.runs.add(version=int(versions[start]))
        run.span.range.start, run.span.range.end = start, end
        run.span.range.SetInParent()
    return message.SerializeToString()


def constant_row_versions(num_rows: int, version: int) -> bytes:
    """A version sequence that gives all rows one version."""
    message = rowids_pb2.RowDatasetVersionSequence()
    run = message.runs.add(version=version)
    run.span.range.SetInParent()
    run.span.range.end = num_rows
    return message.SerializeToString()


def stamp_new(fragment: table_pb2.DataFragment, version: int) -> None:
    """All rows of a new fragment were created by `version`; sequences that it brings stay."""
    sequence = constant_row_versions(fragment.physical_rows, version)
    if not fragment.HasField("inline_created_at_versions") and not fragment.HasField("spilled_created_at_versions"):
        fragment.inline_created_at_versions = sequence
    is_spilled = fragment.HasField("spilled_last_updated_at_versions")
    if not fragment.HasField("inline_last_updated_at_versions") and not is_spilled:
        fragment.inline_last_updated_at_versions = sequence


def stamp_moved(
    fragment: table_pb2.DataFragment, version: int, num_moved: int, sources: Iterable[table_pb2.DataFragment]
) -> None:
    """The first `num_moved` rows of a new fragment keep the version that created them, by their ids in `sources`.

    The others were created by `version`, which all of them were last changed by.
    """
    num_rows = fragment.physical_rows
    if is_spilled(fragment):
        _refuse_spilled(fragment, "the ids or versions")
    fragment.inline_last_updated_at_versions = constant_row_versions(num_rows, version)
    created = np.full(num_rows, version, dtype=np.uint64)
    if fragment.HasField("inline_created_at_versions") and any(map(is_spilled, sources)):  # which cannot be asked
        created[:num_moved] = decode_row_versions(fragment.inline_created_at_versions, num_moved)
    else:
        moved = decode_row_ids(fragment.inline_row_ids, num_rows)[:num_moved]
        created[:num_moved] = _created_at(moved, sources)
    fragment.inline_created_at_versions = encode_row_versions(created)


def _created_at(ids: U64Array, sources: Iterable[table_pb2.DataFragment]) -> U64Array:
    """The version that created each row, 1 for rows that no source has or knows the version of."""
    created = np.ones(len(ids), dtype=np.uint64)
    order = np.argsort(ids)
    ordered = ids[order]
    for source in sources:
        if source.HasField("spilled_row_ids") or source.HasField("spilled_created_at_versions"):
            _refuse_spilled(source, "the ids or versions")
        known = decode_row_ids(source.inline_row_ids, source.physical_rows)
        slots = np.searchsorted(ordered, known)
        found = slots < len(ordered)
        found[found] = ordered[slots[found]] == known[found]
        if not found.any():
            continue
        data = source.inline_created_at_versions if source.HasField("inline_created_at_versions") else None
        created[order[slots[found]]] = decode_row_versions(data, source.physical_rows)[found]
    return created


def stamp_all(fragment: table_pb2.DataFragment, version: int) -> None:
    """All rows of a fragment were last changed by `version`; what its data files say of that counts no more."""
    fragment.ClearField("spilled_last_updated_at_versions")
    fragment.inline_last_updated_at_versions = constant_row_versions(fragment.physical_rows, version)


def stamp_updated(fragment: table_pb2.DataFragment, version: int, offsets: U32Array) -> None:
    """The rows at `offsets` of a fragment were last changed by `version`."""
    num_rows = fragment.physical_rows
    if len(offsets) and int(offsets[-1]) >= num_rows:
        raise OperationError(f"fragment {fragment.id}: row {int(offsets[-1])} of {num_rows} was updated")
    if fragment.HasField("spilled_last_updated_at_versions"):
        _refuse_spilled(fragment, "the versions")
    data = fragment.inline_last_updated_at_versions if fragment.HasField("inline_last_updated_at_versions") else None
    versions = decode_row_versions(data, num_rows).copy()
    versions[offsets] = version
    fragment.inline_last_updated_at_versions = encode_row_versions(versions)
