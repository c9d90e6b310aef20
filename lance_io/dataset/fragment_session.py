"""Repeated takes of the same columns of one fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.reads.version.column_lists import as_list
from lance_io.reads.version.system_columns import ROW_ADDRESS

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.dataset.fragment import AsyncFragment, SyncFragment
    from lance_io.reads.version.column_lists import Selection
    from lance_io.reads.version.state import DatasetState


class FragmentSession:
    """Takes of the same columns of one fragment. `LanceFragment.open_session` creates it.

    Args:
        fragment: The fragment.
        columns: See `LanceFragment.take`.
        with_row_address: True appends `_rowaddr`.
    """

    def __init__(self, fragment: SyncFragment, columns: Selection, *, with_row_address: bool) -> None:
        self._fragment = fragment
        self._columns = _with_address(fragment._state, columns) if with_row_address else columns

    def take(self, indices: Any) -> pa.Table:
        """Read rows by position. See `LanceFragment.take`."""
        return self._fragment.take(indices, self._columns)


class AsyncFragmentSession:
    """Takes of the same columns of one fragment, awaitable. `AsyncFragment.open_session` creates it.

    Args:
        fragment: The fragment.
        columns: See `LanceFragment.take`.
        with_row_address: True appends `_rowaddr`.
    """

    def __init__(self, fragment: AsyncFragment, columns: Selection, *, with_row_address: bool) -> None:
        self._fragment = fragment
        self._columns = _with_address(fragment._state, columns) if with_row_address else columns

    async def take(self, indices: Any) -> pa.Table:
        """Read rows by position. See `LanceFragment.take`."""
        return await self._fragment.take(indices, self._columns)


def _with_address(state: DatasetState, columns: Selection) -> Selection:
    """The columns, then the row address."""
    if isinstance(columns, dict):
        return {**columns, ROW_ADDRESS: ROW_ADDRESS}
    listed = as_list(columns)
    return [*(state.schema.names if listed is None else (name for name in listed if name != ROW_ADDRESS)), ROW_ADDRESS]
