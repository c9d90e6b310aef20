"""A table as a whole: opened for changes that one process makes, dropped, renamed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lance_io.dataset.lance_dataset import LanceDataset
from lance_io.errors import AlreadyExists, NotFound, UnsupportedError

if TYPE_CHECKING:
    from lance_io.dataset.distributed.table_place import TablePlace


def open_dataset(table: TablePlace) -> LanceDataset:
    """Open the newest version of a table.

    Args:
        table: The table.

    Returns:
        The table, with the session of this process.

    Raises:
        ValueError: There is no table.
    """
    return LanceDataset(table.uri, storage_options=dict(table.storage_options) or None, session=table.session)


def drop_table(table: TablePlace) -> bool:
    """Remove a table with all of its files.

    Args:
        table: The table.

    Returns:
        Whether there was one.
    """
    try:
        LanceDataset.drop(table.uri, dict(table.storage_options) or None)
    except NotFound:
        return False
    return True


def rename_table(table: TablePlace, uri: str) -> None:
    """Move the folder of a table on a local disk, in one step.

    Args:
        table: The table.
        uri: Its new URI.

    Raises:
        UnsupportedError: The table is not on a local disk; on an object store no step renames a folder.
        AlreadyExists: There is something at the new URI.
        NotFound: There is no table.
    """
    source, target = _local_path(table.uri), _local_path(uri)
    if source is None or target is None:
        raise UnsupportedError(
            f"{table.uri} is not on a local disk, where one step renames a folder: write its rows to a new table"
        )
    if not os.path.isdir(source):
        raise NotFound(f"there is no table at {table.uri}", path=table.uri)
    if os.path.lexists(target):
        raise AlreadyExists(f"there is something at {uri}", path=uri)
    os.rename(source, target)


def _local_path(uri: str) -> str | None:
    path = uri.removeprefix("file://")
    return None if "://" in path else path
