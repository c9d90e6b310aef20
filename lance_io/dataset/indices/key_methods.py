"""Methods of datasets that look up keys, and that load indices before they are asked. Each runs plans of `reads/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.io import call_metrics
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.run_plan import AsyncFace, SyncFace
from lance_io.reads.version.column_lists import as_list, columns_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lance_io.reads.index import prewarm as prewarming
    from lance_io.reads.keys import joined_look_ups, key_lookup
    from lance_io.reads.run_plan import Timeout
    from lance_io.reads.version.column_lists import Selection
else:
    joined_look_ups = lazy_module("lance_io.reads.keys.joined_look_ups")
    key_lookup = lazy_plans("lance_io.reads.keys.key_lookup")
    prewarming = lazy_plans("lance_io.reads.index.prewarm")


class DatasetKeys(SyncFace):
    """Key look-ups of `LanceDataset`."""

    def get(
        self,
        column: str,
        keys: Any,
        columns: Selection = None,
        *,
        on_missing: str = "skip",
        timeout: Timeout = None,
    ) -> pa.Table:
        """Read the rows that have given keys, by a BTREE or BITMAP index of the column.

        Fragments that the index does not cover are scanned. A null key matches no row.

        Args:
            column: Name of the indexed column, or a dotted path to one inside structs.
            keys: Values of the column: a list, numpy or Arrow array. They are cast to its type if nothing is lost.
            columns: See `LanceDataset.take`; None for all columns.
            on_missing: For a key that no row has: "skip" it, give a row of nulls ("null"), or "raise".
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Returns:
            The rows in the order of the keys. A key that n rows have gives n rows, in the order of the table; a key
            given twice gives its rows twice.

        Raises:
            UsageError: The column has no such index, or keys do not fit its type.
            KeyError: No row has one of the keys, and `on_missing` is "raise".
            BindError: A column does not exist.
            FormatError: The index is damaged.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        return self._run(key_lookup.get_rows(self._state, column, keys, columns, on_missing), timeout)

    def prewarm_index(
        self,
        name: str,
        *,
        with_position: bool = False,
        index_segments: Iterable[Any] | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Load an index into memory: the lookup, keys or zones by which it is searched, and its pages or bitmaps.

        It stops at three quarters of the memory for indices: more would push out the first pages.

        Args:
            name: Name of the index.
            with_position: Of full text indices; ignored.
            index_segments: UUIDs of the segments to load; None for all.
            timeout: Seconds, or a `timedelta`, after which the call is cancelled.

        Raises:
            UsageError: There is no index of this name that this release reads, or no such segment.
            FormatError: The index is damaged.
            DeadlineExceeded: The call takes longer than `timeout`.
        """
        self._run(prewarming.prewarm(self._state, name, index_segments), timeout)


class AsyncDatasetKeys(AsyncFace):
    """Key look-ups of `AsyncDataset`."""

    async def get(
        self,
        column: str,
        keys: Any,
        columns: Selection = None,
        *,
        on_missing: str = "skip",
        timeout: Timeout = None,
    ) -> pa.Table:
        """Read the rows that have given keys. See `LanceDataset.get`.

        Calls for the same columns with few keys each, made in one turn of a loop, read their rows together.
        """
        state = self._state
        if timeout is not None or call_metrics.watchers or not joined_look_ups.may_join(keys):
            return await self._run(key_lookup.get_rows(state, column, keys, columns, on_missing), timeout)

        async def run(keys_of_callers: Sequence[Any]) -> Sequence[pa.Table | Exception]:
            plan = key_lookup.get_rows_of_callers(state, column, keys_of_callers, columns, on_missing)
            return await self._run(plan)

        kind = (column, columns_key(as_list(columns)), on_missing)
        return await joined_look_ups.join(state.key_turns, kind, keys, run)

    async def prewarm_index(
        self,
        name: str,
        *,
        with_position: bool = False,
        index_segments: Iterable[Any] | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Load an index into memory. See `LanceDataset.prewarm_index`."""
        await self._run(prewarming.prewarm(self._state, name, index_segments), timeout)
