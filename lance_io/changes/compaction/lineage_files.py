"""Ids and versions of rows in separate data files, if the table's configuration enables it (spec: table, 6.6).

A manifest holds the sequences of all fragments and is written by every commit. With `lance.row_lineage.spill` = `true`
a sequence of more than `lance.row_lineage.inline_max_bytes` becomes a column, as in pylance. All such columns of a
fragment share a file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.changes.write.data_files import FileLimits, NewFiles, data_file_name
from lance_io.errors import UsageError
from lance_io.format.schema import LINEAGE_NAMES, Field, Schema
from lance_io.levels.arrays import numbers
from lance_io.plans.cpu_requests import Compute
from lance_io.table.manifest.fragment import CREATED_AT_FIELD, FRAGMENT_ROWS_MAX, ROW_IDS_FIELD, UPDATED_AT_FIELD
from lance_io.table.manifest.row_ids import decode_row_ids, decode_row_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment

SPILL_KEY: Final = "lance.row_lineage.spill"
INLINE_MAX_KEY: Final = "lance.row_lineage.inline_max_bytes"
INLINE_BYTES_MAX: Final = 200 * 1024  # pylance's default
_PARTS: Final = {  # in the order of the columns
    ROW_IDS_FIELD: ("row_ids", decode_row_ids),
    CREATED_AT_FIELD: ("created_at_versions", decode_row_versions),
    UPDATED_AT_FIELD: ("last_updated_at_versions", decode_row_versions),
}


class LineageFiles:
    """The lineage files of one task of a compaction; none unless the configuration enables them.

    new_name  returns the name of a file
    files     one `NewFiles` for each fragment with a lineage file
    """

    def __init__(self, state: DatasetState, version: FileVersion, new_name: Callable[[], str] = data_file_name) -> None:
        self._new_name = new_name
        self._state = state
        self._version = version
        self._bytes_max = inline_bytes_max(state.manifest.config)
        self.files: list[NewFiles] = []

    def spill(self, fragments: Sequence[Fragment]) -> Plan[list[Fragment]]:
        """Move long sequences of new fragments to columns of an additional file."""
        spilled = list(fragments)
        for index, fragment in enumerate(fragments):
            spilled[index] = yield from self._spill(fragment)
        return spilled

    def _spill(self, fragment: Fragment) -> Plan[Fragment]:
        sequences = {field_id: getattr(fragment, name) for field_id, (name, _) in _PARTS.items()}
        ids = [field_id for field_id, data in sequences.items() if data is not None and len(data) > self._bytes_max]
        if not ids:
            return fragment
        files = self._add_file(ids)
        num_rows = fragment.physical_rows or 0

        def columns() -> list[pa.Array]:
            return [numbers(_PARTS[field_id][1](sequences[field_id], num_rows)) for field_id in ids]

        arrays = yield Compute(columns, lambda: 8 * num_rows * len(ids))
        yield from files.add(pa.RecordBatch.from_arrays(arrays, schema=files.schema.to_storage()))
        yield from files.complete_last_file()
        (written,) = files.fragments
        spilled: dict[str, Any] = {_PARTS[field_id][0]: None for field_id in ids}
        return replace(
            fragment, files=(*fragment.files, *written.files), spilled=fragment.spilled | frozenset(ids), **spilled
        )

    def _add_file(self, ids: Sequence[int]) -> NewFiles:
        fields = tuple(Field(field_id, LINEAGE_NAMES[field_id], "uint64", nullable=False) for field_id in ids)
        limits = FileLimits(rows=FRAGMENT_ROWS_MAX)
        files = NewFiles(self._state.location, Schema(fields), self._version, limits, new_name=self._new_name)
        self.files.append(files)
        return files


def inline_bytes_max(config: Mapping[str, str]) -> int:
    """Size above which a sequence becomes a column, in bytes; unreachable unless the configuration enables it.

    Raises `UsageError` if the configured size is no number.
    """
    if config.get(SPILL_KEY, "").lower() != "true":
        return 1 << 63
    text = config.get(INLINE_MAX_KEY, str(INLINE_BYTES_MAX))
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"Invalid value for {INLINE_MAX_KEY}: {text!r} is no number of bytes") from error
