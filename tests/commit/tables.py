"""Small tables to commit to: one data file that fragments can be made of, and a table that begins with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import pyarrow as pa

from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lance_io.commit.target import CommitTarget, CommittedVersion
    from lance_io.format.schema import Schema
    from lance_io.store.url import Location
    from lance_io.table.manifest.fragment import Fragment

ROWS = 4


class Sample:
    """A data file of four rows that pylance wrote, as fragment and as bytes.

    fragment  of id 0, to be added once; `another` has a file of another name
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

    def another(self) -> Fragment:
        """A fragment of id 0 whose file nobody has yet."""
        [file] = self.fragment.files
        return replace(self.fragment, files=(replace(file, path=f"{uuid4()}.lance"),))

    def append(self, read_version: int) -> Transaction:
        """Four rows more."""
        return Transaction(read_version, ops.Append((self.another(),)))

    def overwrite(self, read_version: int) -> Transaction:
        """Four rows instead of all others; also makes a table."""
        return Transaction(read_version, ops.Overwrite((self.fragment,), self.schema))

    def place_data(self, place: Location, *appends: Transaction) -> None:
        """Put the data file, and those of appends, where the table expects them (stores that answer at once)."""
        for key in self._keys(place, appends):
            place.store.put_sync(key, self.data)  # type: ignore[attr-defined]

    async def place_files(self, place: Location, *appends: Transaction) -> None:
        """The same in any store."""
        for key in self._keys(place, appends):
            await place.store.put(key, self.data)

    def _keys(self, place: Location, appends: Iterable[Transaction]) -> list[str]:
        fragments = [
            one for each in appends if isinstance(each.operation, ops.Append) for one in each.operation.fragments
        ]
        return [place.key("data", name) for name in (self.file_name, *(one.files[0].path for one in fragments))]

    def create_sync(self, target: CommitTarget) -> CommittedVersion:
        """Make a table of four rows."""
        self.place_data(target.location)
        return drive_sync(create_table(target, CommitRequest(self.overwrite(0))))

    async def create(self, target: CommitTarget) -> CommittedVersion:
        """The same in any store."""
        await self.place_files(target.location)
        return await drive_async(create_table(target, CommitRequest(self.overwrite(0))))


def commit_sync(target: CommitTarget, transaction: Transaction, **request: Any) -> CommittedVersion:
    """Commit in this thread."""
    return drive_sync(commit(target, CommitRequest(transaction, **request)))


async def commit_async(target: CommitTarget, transaction: Transaction, **request: Any) -> CommittedVersion:
    """Commit on the running loop."""
    return await drive_async(commit(target, CommitRequest(transaction, **request)))
