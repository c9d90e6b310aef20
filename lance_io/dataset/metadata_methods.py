"""Methods of datasets that change configuration and metadata, and those that list past transactions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lance_io.plans.lazy_module import lazy_plans
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
    changes = lazy_plans("lance_io.changes.edits.change_plans")
    history = lazy_plans("lance_io.changes.operations.transaction_history")


def warn_deprecated(old: str, new: str) -> None:
    """Warn of a name that pylance deprecates, at the line that calls the method."""
    warnings.warn(f"{old} is deprecated. Use {new} instead.", DeprecationWarning, stacklevel=3)


class MetadataChanges(SyncFace, DatasetProperties):
    """Configuration, metadata and history of `LanceDataset`."""

    def _change(self, plan: Plan[DatasetState]) -> None:
        begun = self._state
        self._move_to(self._run(plan), begun)

    # -- configuration and metadata -----------------------------------------------------------------------------------

    def update_config(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's configuration, as a new version.

        Args:
            values: New text by key; None removes a key.
            replace: True removes all keys that `values` lacks.

        Returns:
            The new configuration.
        """
        self._change(changes.update_config(self._state, values, replace_all=replace))
        return self.config()

    def delete_config_keys(self, keys: list[str]) -> None:
        """Remove entries of the table's configuration, as a new version.

        Args:
            keys: Keys to remove.
        """
        self._change(changes.delete_config_keys(self._state, keys))

    def update_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata, as a new version.

        Args:
            values: New text by key; None removes a key.
            replace: True removes all keys that `values` lacks.

        Returns:
            The new metadata.
        """
        self._change(changes.update_metadata(self._state, values, replace_all=replace))
        return self.metadata

    def update_schema_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata, as a new version.

        Args:
            values: New text by key; None removes a key.
            replace: True removes all keys that `values` lacks.

        Returns:
            The new metadata.
        """
        self._change(changes.update_schema_metadata(self._state, values, replace_all=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: dict[str, str]) -> None:
        """Replace the schema's metadata. Deprecated: use `update_schema_metadata(metadata, replace=True)`.

        Args:
            new_metadata: All entries of the new metadata.
        """
        warn_deprecated("replace_schema_metadata", "update_schema_metadata(metadata, replace=True)")
        self._change(changes.update_schema_metadata(self._state, new_metadata, replace_all=True))

    def update_field_metadata(self, field_updates: Mapping[str | int, Values], *, replace: bool = False) -> None:
        """Set entries of the metadata of fields, as a new version.

        Args:
            field_updates: By field path or id: new text by key; None removes a key.
            replace: True removes all keys that a field's update lacks.
        """
        self._change(changes.update_field_metadata(self._state, field_updates, replace_all=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: dict[str, str]) -> None:
        """Replace the metadata of a field. Deprecated: use `update_field_metadata` with `replace=True`.

        Args:
            field_name: Path of the field.
            new_metadata: All entries of the new metadata.
        """
        warn_deprecated("replace_field_metadata", "update_field_metadata with field paths and replace=True")
        self._change(changes.update_field_metadata(self._state, {field_name: new_metadata}, replace_all=True))

    # -- history ----------------------------------------------------------------------------------------------------

    def read_transaction(self, version: int) -> Transaction | None:
        """Read the transaction of a version.

        Args:
            version: Number of the version.

        Returns:
            The transaction; None if the table no longer has its record.

        Raises:
            OSError: The version does not exist.
        """
        return self._run(history.read_transaction(self._state, version))

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Read the transactions of this version and of those before it, newest first.

        Args:
            recent_transactions: Maximum number of transactions; the one of this version always counts.

        Returns:
            The transactions, up to the first version that a cleanup removed. None stands for a lost record.
        """
        return self._run(history.get_transactions(self._state, recent_transactions))


class AsyncMetadataChanges(AsyncFace, DatasetProperties):
    """Configuration, metadata and history of `AsyncDataset`: the same names and parameters, awaitable."""

    async def _change(self, plan: Plan[DatasetState]) -> None:
        begun = self._state
        self._move_to(await run_change(plan, answers_sync=begun.answers_sync), begun)

    async def update_config(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the configuration. See `LanceDataset.update_config`."""
        await self._change(changes.update_config(self._state, values, replace_all=replace))
        return self.config()

    async def delete_config_keys(self, keys: list[str]) -> None:
        """Remove entries of the configuration. See `LanceDataset.delete_config_keys`."""
        await self._change(changes.delete_config_keys(self._state, keys))

    async def update_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the table's metadata. See `LanceDataset.update_metadata`."""
        await self._change(changes.update_metadata(self._state, values, replace_all=replace))
        return self.metadata

    async def update_schema_metadata(self, values: Values, *, replace: bool = False) -> dict[str, str]:
        """Set entries of the schema's metadata. See `LanceDataset.update_schema_metadata`."""
        await self._change(changes.update_schema_metadata(self._state, values, replace_all=replace))
        return self.schema_metadata

    async def replace_schema_metadata(self, new_metadata: dict[str, str]) -> None:
        """Replace the schema's metadata. Deprecated. See `LanceDataset.replace_schema_metadata`."""
        warn_deprecated("replace_schema_metadata", "update_schema_metadata(metadata, replace=True)")
        await self._change(changes.update_schema_metadata(self._state, new_metadata, replace_all=True))

    async def update_field_metadata(self, field_updates: Mapping[str | int, Values], *, replace: bool = False) -> None:
        """Set entries of the metadata of fields. See `LanceDataset.update_field_metadata`."""
        await self._change(changes.update_field_metadata(self._state, field_updates, replace_all=replace))

    async def replace_field_metadata(self, field_name: str, new_metadata: dict[str, str]) -> None:
        """Replace the metadata of a field. Deprecated. See `LanceDataset.replace_field_metadata`."""
        warn_deprecated("replace_field_metadata", "update_field_metadata with field paths and replace=True")
        await self._change(changes.update_field_metadata(self._state, {field_name: new_metadata}, replace_all=True))

    async def read_transaction(self, version: int) -> Transaction | None:
        """Read the transaction of a version. See `LanceDataset.read_transaction`."""
        return await self._run(history.read_transaction(self._state, version))

    async def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Read recent transactions. See `LanceDataset.get_transactions`."""
        return await self._run(history.get_transactions(self._state, recent_transactions))
