"""The methods of datasets that change configuration and metadata, and those that tell what has changed the table."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lance_io.plans.lazy_module import later_plans
from lance_io.reads.properties import DatasetProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace, run_change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.changes.edits import change_plans as changes
    from lance_io.changes.operations import transaction_history as history
    from lance_io.changes.operations.lance_operation import Transaction
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

    Values = Mapping[str, str | None]
else:
    changes = later_plans("lance_io.changes.edits.change_plans")
    history = later_plans("lance_io.changes.operations.transaction_history")


def warn_deprecated(old: str, new: str) -> None:
    """Warn of a name that pylance gives up, at the line that calls the method."""
    warnings.warn(f"{old} is deprecated. Use {new} instead.", DeprecationWarning, stacklevel=3)


class MetadataChanges(SyncFace, DatasetProperties):
    """Part of `LanceDataset`."""

    def _change(self, plan: Plan[DatasetState]) -> None:
        begun = self._state
        self._move_to(self._run(plan), begun)

    # -- configuration and metadata -----------------------------------------------------------------------------------

    def update_config(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the configuration; None removes one, `replace` all others. Gives the new configuration."""
        self._change(changes.update_config(self._state, values, replace_all=replace))
        return self.config()

    def delete_config_keys(self, keys: list[str]) -> None:
        """Remove entries of the configuration."""
        self._change(changes.delete_config_keys(self._state, keys))

    def update_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata; as `update_config`."""
        self._change(changes.update_metadata(self._state, values, replace_all=replace))
        return self.metadata

    def update_schema_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata; as `update_config`."""
        self._change(changes.update_schema_metadata(self._state, values, replace_all=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: dict[str, str]) -> None:
        """Give the schema other metadata. Deprecated."""
        warn_deprecated("replace_schema_metadata", "update_schema_metadata(metadata, replace=True)")
        self._change(changes.update_schema_metadata(self._state, new_metadata, replace_all=True))

    def update_field_metadata(self, field_updates: Mapping[str | int, Values], *, replace: bool = False) -> None:
        """Set entries of the metadata of fields, given by path or id; as `update_config`."""
        self._change(changes.update_field_metadata(self._state, field_updates, replace_all=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: dict[str, str]) -> None:
        """Give a field other metadata. Deprecated."""
        warn_deprecated("replace_field_metadata", "update_field_metadata with field paths and replace=True")
        self._change(changes.update_field_metadata(self._state, {field_name: new_metadata}, replace_all=True))

    # -- history ----------------------------------------------------------------------------------------------------

    def read_transaction(self, version: int) -> Transaction | None:
        """What made a version; None when no record of it is left. Raises `OSError` for a version that is not there."""
        return self._run(history.read_transaction(self._state, version))

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """What made this version and those before it, newest first, up to where a cleanup has removed one.

        recent_transactions  how many; that of this version comes in any case
        """
        return self._run(history.get_transactions(self._state, recent_transactions))


class AsyncMetadataChanges(AsyncFace, DatasetProperties):
    """The same for `AsyncDataset`: same names, same parameters, awaitable."""

    async def _change(self, plan: Plan[DatasetState]) -> None:
        begun = self._state
        self._move_to(await run_change(plan, answers_sync=begun.answers_sync), begun)

    async def update_config(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the configuration; see `LanceDataset.update_config`."""
        await self._change(changes.update_config(self._state, values, replace_all=replace))
        return self.config()

    async def delete_config_keys(self, keys: list[str]) -> None:
        """Remove entries of the configuration."""
        await self._change(changes.delete_config_keys(self._state, keys))

    async def update_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata."""
        await self._change(changes.update_metadata(self._state, values, replace_all=replace))
        return self.metadata

    async def update_schema_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata."""
        await self._change(changes.update_schema_metadata(self._state, values, replace_all=replace))
        return self.schema_metadata

    async def replace_schema_metadata(self, new_metadata: dict[str, str]) -> None:
        """Give the schema other metadata. Deprecated."""
        warn_deprecated("replace_schema_metadata", "update_schema_metadata(metadata, replace=True)")
        await self._change(changes.update_schema_metadata(self._state, new_metadata, replace_all=True))

    async def update_field_metadata(self, field_updates: Mapping[str | int, Values], *, replace: bool = False) -> None:
        """Set entries of the metadata of fields."""
        await self._change(changes.update_field_metadata(self._state, field_updates, replace_all=replace))

    async def replace_field_metadata(self, field_name: str, new_metadata: dict[str, str]) -> None:
        """Give a field other metadata. Deprecated."""
        warn_deprecated("replace_field_metadata", "update_field_metadata with field paths and replace=True")
        await self._change(changes.update_field_metadata(self._state, {field_name: new_metadata}, replace_all=True))

    async def read_transaction(self, version: int) -> Transaction | None:
        """What made a version; see `LanceDataset.read_transaction`."""
        return await self._run(history.read_transaction(self._state, version))

    async def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """What made this version and those before it; see `LanceDataset.get_transactions`."""
        return await self._run(history.get_transactions(self._state, recent_transactions))
