"""Repeated takes of the same columns from one fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.rows.take_rows import take_fragment_positions
from lance_io.dataset.run_plan import run
from lance_io.dataset.version.column_lists import as_list
from lance_io.dataset.version.system_columns import ROW_ADDRESS
from lance_io.file.row_indices import row_numbers
from lance_io.plans.plan import drive_async

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.dataset.version.column_lists import Selection
    from lance_io.dataset.version.state import DatasetState
    from lance_io.plans.plan import Plan


class _Session:
    def __init__(self, state: DatasetState, place: int, columns: Selection, *, with_row_address: bool) -> None:
        self._state = state
        self._place = place
        self._columns = _with_address(state, columns) if with_row_address else columns

    def _taking(self, indices: Any) -> Plan[pa.Table]:
        return take_fragment_positions(self._state, self._place, row_numbers(indices), self._columns)


class FragmentSession(_Session):
    """What `LanceFragment.open_session` gives."""

    def take(self, indices: Any) -> pa.Table:
        """Rows by position among the rows of the fragment that are left; errors as `LanceFragment.take`."""
        return run(self._state, self._taking(indices))


class AsyncFragmentSession(_Session):
    """What `AsyncFragment.open_session` gives."""

    async def take(self, indices: Any) -> pa.Table:
        """See `FragmentSession.take`."""
        return await runtime.wrap(drive_async(self._taking(indices)))


def _with_address(state: DatasetState, columns: Selection) -> Selection:
    """The columns with the row address behind them."""
    if isinstance(columns, dict):
        return {**columns, ROW_ADDRESS: ROW_ADDRESS}
    listed = as_list(columns)
    return [*(state.schema.names if listed is None else (name for name in listed if name != ROW_ADDRESS)), ROW_ADDRESS]
