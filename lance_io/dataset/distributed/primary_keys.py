"""Declared primary keys of rows that tasks insert, as a Bloom filter for the transaction (spec: commit, 2.2 and 4).

task     keys = PrimaryKeys.of(job); keys.add(batch); keys.to_bytes()
planner  joined_keys(schema, columns of the match, bytes of all tasks)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from lance_io.changes.merge.inserted_keys import InsertedKeys
from lance_io.changes.merge.merge_clauses import primary_key
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.dataset.distributed.write_job import WriteJob
    from lance_io.format.schema import Schema
    from lance_io.table.transaction.operations import KeyFilter


class PrimaryKeys:
    """The keys of the rows of one task.

    Args:
        columns: The key's columns.
        schema: The table's schema.
    """

    def __init__(self, columns: Sequence[str], schema: Schema) -> None:
        self._columns = tuple(columns)
        self._keys = InsertedKeys(columns, schema)

    @classmethod
    def of(cls, job: WriteJob) -> Self | None:
        """The collector for the rows of a task.

        Args:
            job: The job.

        Returns:
            The collector; None if the table declares no primary key, or the rows lack columns of it.
        """
        columns = primary_key(job.schema)
        return cls(columns, job.schema) if columns and set(columns) <= set(job.columns) else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the keys of rows.

        Args:
            batch: The rows, as they are stored.
        """
        self._keys.add({name: batch.column(name) for name in self._columns})

    def to_bytes(self) -> bytes:
        """The keys so far, for the planner."""
        return self._keys.filter().bitmap


def joined_keys(schema: Schema, columns: Sequence[str], of_tasks: Sequence[bytes | None]) -> KeyFilter | None:
    """The keys of all tasks; None if the columns are not the table's primary key, or a task does not know its keys."""
    declared = primary_key(schema)
    if not declared or sorted(columns) != sorted(declared) or any(bitmap is None for bitmap in of_tasks):
        return None
    filter = InsertedKeys(declared, schema).filter()
    joined = np.frombuffer(filter.bitmap, np.uint8).copy()
    for bitmap in of_tasks:
        if bitmap is None or len(bitmap) != len(joined):
            raise UsageError("a task sent keys of another form")
        joined |= np.frombuffer(bitmap, np.uint8)
    return replace(filter, bitmap=joined.tobytes())
