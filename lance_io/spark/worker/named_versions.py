"""Versions that a query names: by the options of the read, or in SQL by number, tag, branch or time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lance_io.dataset import distributed
from lance_io.errors import LanceError, NotFound
from lance_io.spark.engine import open_version, table_place
from lance_io.spark.worker.jvm_connections import MissingTable

if TYPE_CHECKING:
    from lance_io.dataset.distributed import TablePlace, TableVersion
    from lance_io.spark.options import ReadOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def open_named(options: ReadOptions, ref: str | None = None, micros: int | None = None) -> TableVersion:
    """Open a version.

    ref     a number, tag or branch of SQL; None for none
    micros  a time of SQL, in microseconds; None for none
    Raises `MissingTable` if there is no table, and `NotFound`, with the versions that are kept, if there is no such
    version.
    """
    table = table_place(options)
    try:
        if ref is not None:
            return _of_ref(table, ref)
        if micros is not None:
            return distributed.TableVersion.open(table, at=_EPOCH + timedelta(microseconds=micros))
        return open_version(options)
    except (NotFound, ValueError) as error:
        raise NotFound(f"{error}{_kept(table, error)}") from error


def _of_ref(table: TablePlace, ref: str) -> TableVersion:
    if ref.isascii() and ref.isdecimal():
        return distributed.TableVersion.open(table, int(ref))
    try:
        return distributed.TableVersion.open(table, ref)
    except (NotFound, ValueError) as error:
        try:
            return distributed.TableVersion.open(table, (ref, None))
        except (LanceError, ValueError):
            raise NotFound(f"the table has no tag or branch {ref!r}") from error


def _kept(table: TablePlace, error: Exception) -> str:
    """A sentence about the versions that there are. Raises `MissingTable` if there are none."""
    try:
        times = table.version_times()
    except NotFound:
        times = {}
    if not times:
        raise MissingTable(str(error)) from error
    (oldest, oldest_at), (newest, newest_at) = min(times.items()), max(times.items())
    shown = f"{oldest} of {oldest_at.isoformat(timespec='seconds')}"
    return f"; the oldest version kept is {shown}, the newest {newest} of {newest_at.isoformat(timespec='seconds')}"
