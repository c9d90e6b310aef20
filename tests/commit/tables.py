"""Small tables to commit to: one data file that fragments can be made of, and a table that begins with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

from lance_io.commit.loop import CommitRequest, commit, create_table
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.commit.target import CommitTarget, CommittedVersion
    from lance_io.format.schema import Schema
    from lance_io.store.url import Location
    from lance_io.table.manifest.fragment import Fragment

ROWS = 4


class Sample:
    """A data file of four rows that pylance wrote, as fragment and as bytes.

    fragment  of id 0, to be added any number of times
    """

    def __init__(self, folder: Path, *, stable: bool = False) -> None:
        table = pa.table({"a": pa.array(range(ROWS), pa.int64())})
        lance.write_dataset(table, folder, enable_stable_row_ids=stable)
        [path] = (folder / "_versions").glob("*.manifest")
        manifest = decode_manifest(path.read_bytes())
        self.schema: Schema = manifest.schema
        unnumbered = {"row_ids": None, "created_at_versions": None, "last_updated_at_versions": None}
        self.fragment: Fragment = replace(manifest.fragments[0], id=0, **unnumbered)
        self.file_name = self.fragment.files[0].path
        self.data = (folder / "data" / self.file_name).read_bytes()

    def append(self, read_version: int) -> Transaction:
        """Four rows more."""
        return Transaction(read_version, ops.Append((self.fragment,)))

    def overwrite(self, read_version: int) -> Transaction:
        """Four rows instead of all others; also makes a table."""
        return Transaction(read_version, ops.Overwrite((self.fragment,), self.schema))

    def place_data(self, place: Location) -> None:
        """Put the data file where the table expects it (stores that answer at once)."""
        place.store.put_sync(place.key("data", self.file_name), self.data)  # type: ignore[attr-defined]

    def create_sync(self, target: CommitTarget) -> CommittedVersion:
        """Make a table of four rows."""
        self.place_data(target.place)
        return drive_sync(create_table(target, CommitRequest(self.overwrite(0))))

    async def create(self, target: CommitTarget) -> CommittedVersion:
        """The same in any store."""
        await target.place.store.put(target.place.key("data", self.file_name), self.data)
        return await drive_async(create_table(target, CommitRequest(self.overwrite(0))))


def commit_sync(target: CommitTarget, transaction: Transaction, **request: Any) -> CommittedVersion:
    """Commit in this thread."""
    return drive_sync(commit(target, CommitRequest(transaction, **request)))


async def commit_async(target: CommitTarget, transaction: Transaction, **request: Any) -> CommittedVersion:
    """Commit on the running loop."""
    return await drive_async(commit(target, CommitRequest(transaction, **request)))
