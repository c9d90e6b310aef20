"""Checkpoint file with results of a function that computes new columns: an interrupted call resumes from it.

The file is an SQLite database:

    batches       results of the function for rows of unfinished fragments
    fragments     records of fragments whose file is written
    table_facts   the conditions of both: the columns that are read, the new columns with their ids, and the record of
                  each fragment before the change

A file with other conditions is refused: its values would be wrong, and a fragment's record from before a deletion
would undo the deletion.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import LanceError, NotFound, OperationError
from lance_io.levels.arrays import values_of
from lance_io.plans.cpu_requests import Call
from lance_io.plans.store_requests import Head
from lance_io.reads.metadata.describe import fragment_metadata, stored_fragment
from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
from lance_io.table.manifest.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment

_TABLES: Final = """
create table if not exists table_facts (name text primary key, value text not null);
create table if not exists fragments (fragment_id integer primary key, record text not null);
create table if not exists batches (
    fragment_id integer not null, first_row integer not null, num_rows integer not null, rows_sum text not null,
    result blob not null, primary key (fragment_id, first_row)
);
"""
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


class ColumnCheckpoint:
    """Finished batches and fragments of new columns.

    path     path of the file; it is created if it does not exist
    state    the version that the columns are computed on
    schema   schema of the new columns, with their ids
    columns  columns of the function's argument
    Raises `OperationError` for a file of another change or another format, and for one that another process uses.
    """

    def __init__(self, path: str, state: DatasetState, schema: Schema, columns: Sequence[str]) -> None:
        self._path = path
        self._state = state
        facts = {
            "columns": json.dumps(list(columns)),
            "new_columns": json.dumps([[field.id, field.name, str(field.arrow_type)] for field in schema.walk()]),
        }
        with self._errors():
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                self._database.execute("pragma locking_mode = exclusive")
                self._database.execute("pragma journal_mode = wal")
                self._database.execute("pragma synchronous = normal")
                self._database.executescript(_TABLES)
                self._check(facts)
            except BaseException:
                self._database.close()
                raise

    def _check(self, facts: dict[str, str]) -> None:
        now = {str(fragment.id): _record(fragment) for fragment in self._state.manifest.fragments}
        stored = dict(self._database.execute("select name, value from table_facts"))
        for name, value in facts.items():
            if stored.get(name, value) != value:
                raise self._refusal(f"it was made for {name.replace('_', ' ')} {stored[name]}, these are {value}")
        before = json.loads(stored.get("fragments", "{}"))
        for fragment_id, record in before.items():
            if now.get(fragment_id) != record:
                raise self._refusal(f"fragment {fragment_id} of the table has changed since it was made")
        facts = {**facts, "fragments": json.dumps(now)}
        self._database.executemany("insert or replace into table_facts values (?, ?)", facts.items())

    def _refusal(self, why: str) -> OperationError:
        return OperationError(
            f"checkpoint file {self._path} cannot be used: {why}. Remove it to compute all values again"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, pa.ArrowInvalid) as error:
            if isinstance(error, LanceError):
                raise
            raise self._refusal(str(error)) from error

    # -- batches of the current fragment: called in any thread, one at a time ------------------------------------------

    def find_batch(self, fragment_id: int, addresses: pa.Array) -> pa.RecordBatch | None:
        """The stored result of the function for these rows, if there is one."""
        first, num_rows, total = _key(addresses)
        with self._errors():
            row = self._database.execute(
                "select result from batches where fragment_id = ? and first_row = ? and num_rows = ? and rows_sum = ?",
                (fragment_id, first, num_rows, total),
            ).fetchone()
            if row is None:
                return None
            batch = pa.ipc.open_stream(row[0]).read_next_batch()
            if batch.num_rows != num_rows:
                raise self._refusal(f"it has {batch.num_rows} values for {num_rows} rows")
            return batch

    def add_batch(self, fragment_id: int, addresses: pa.Array, result: pa.RecordBatch) -> None:
        """Store the result of the function for these rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, result.schema) as writer:
            writer.write_batch(result)
        with self._errors():
            self._database.execute(
                "insert or replace into batches values (?, ?, ?, ?, ?)",
                (fragment_id, *_key(addresses), memoryview(sink.getvalue())),
            )

    # -- fragments: `FinishedFragments` ----------------------------------------------------------------------------

    def find(self, fragment: Fragment) -> Plan[Fragment | None]:
        """A fragment with its new file, if the file is written and still exists."""
        record = yield Call(partial(self._find, fragment.id))
        if record is None:
            return None
        after = stored_fragment(FragmentMetadata.from_json(record))
        new = after.files[-1]
        try:
            meta = yield Head(self._state.location.store, self._state.location.key(DATA, new.path))
        except NotFound:
            return None  # a cleanup removed it, because no version names it: write it again
        return None if new.size_bytes not in (None, meta.size_bytes) else after

    def _find(self, fragment_id: int) -> str | None:
        with self._errors():
            row = self._database.execute(
                "select record from fragments where fragment_id = ?", (fragment_id,)
            ).fetchone()
            return None if row is None else str(row[0])

    def add(self, before: Fragment, after: Fragment) -> Plan[None]:
        """Store a fragment whose file is written; deletes its batches."""
        yield Call(partial(self._add, before.id, _record(after)))

    def _add(self, fragment_id: int, record: str) -> None:
        with self._errors():
            self._database.execute("begin")
            self._database.execute("insert or replace into fragments values (?, ?)", (fragment_id, record))
            self._database.execute("delete from batches where fragment_id = ?", (fragment_id,))
            self._database.execute("commit")

    def forget(self) -> Plan[None]:
        """Remove the file, after the commit."""
        yield Call(self._remove)

    def _remove(self) -> None:
        self.close()
        for end in ("", *_SIDE_FILES):
            Path(self._path + end).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file and keep it for another call."""
        with self._errors():
            self._database.close()


def _record(fragment: Fragment) -> str:
    return json.dumps(fragment_metadata(fragment).to_json(), sort_keys=True)


def _key(addresses: pa.Array) -> tuple[int, int, str]:
    """Key of some rows: the first address, the number of rows, and the sum of their addresses."""
    rows = values_of(addresses)
    total: Any = rows.sum(dtype="uint64")
    return int(rows[0]), len(rows), str(int(total))
