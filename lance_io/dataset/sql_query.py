"""`LanceDataset.sql`: a SELECT over one table. DuckDB runs the query, this package reads the table.

DuckDB requests the columns of a query and pushes down the conditions that a scan can check. It computes joins, groups
and orders itself. Each query has a connection of its own with one table and no file access, so that no query text can
read anything else, or write.
"""

from __future__ import annotations

import json
import operator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from lance_io.caller_text import utf8
from lance_io.dataset import bases
from lance_io.dataset.scanner import LanceScanner
from lance_io.errors import BindError, EvaluationError, LanceError, UsageError
from lance_io.plans.streams import SharedItems, shared_async
from lance_io.reads.scan.scan_options import LIMIT_END, scan_options
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID
from lance_io.runtime import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import ModuleType
    from typing import Self

    from lance_io.reads.version.state import DatasetState

T = TypeVar("T")

TABLE_NAME: Final = "dataset"
_BATCH_ROWS: Final = 8192
_SCAN: Final = "PYTHON_ARROW_SCAN"  # names of DuckDB's operators; an unknown name only disables the early end
_LIMITS: Final = ("LIMIT", "STREAMING_LIMIT")
_SETTINGS: Final = {  # no files, no network, no extensions, none of the caller's variables
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


@dataclass(frozen=True)
class _QueryOptions:
    """A query and its options."""

    state: DatasetState
    text: str
    table_name: str = TABLE_NAME
    with_row_id: bool = False
    with_row_addr: bool = False
    batch_size: int | None = None
    batch_size_bytes: int | None = None
    blob_handling: str | None = None


class SqlTable:
    """The table as DuckDB sees it: a pyarrow dataset of which it requests columns and rows.

    DuckDB does not push down limits; `_limit` comes from its plan (`_limit_of`).
    """

    _query: _QueryOptions
    _limit: int | None

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.scanner().projected_schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> LanceScanner:
        """A scan of some columns and of the rows that pass a filter."""
        query = self._query
        if columns is None:
            columns = [*query.state.arrow_schema.names]
            columns += [ROW_ID] * query.with_row_id + [ROW_ADDRESS] * query.with_row_addr
        options = scan_options(
            columns=columns,
            filter=filter,
            limit=self._limit,
            blob_handling=query.blob_handling,
            batch_size_bytes=query.batch_size_bytes,
        )
        return LanceScanner._of(query.state, options)


def _table(query: _QueryOptions) -> Any:
    kind = bases.subclass(SqlTable, bases.Dataset)  # pyarrow's constructor expects a C++ dataset
    table = kind.__new__(kind)
    table._query, table._limit = query, None
    return table


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "sql() needs the package duckdb: pip install 'lance_io[sql]'", name="duckdb"
        ) from error
    return duckdb


class _Query:
    """One query; you can run it any number of times."""

    def __init__(self, query: _QueryOptions) -> None:
        self._query = query

    def _reader(self) -> pa.RecordBatchReader:
        """The result, batch by batch. The connection stays open until the reader ends."""
        duckdb = _duckdb()
        connection = duckdb.connect(config=_SETTINGS)
        try:
            statement = _only_select(duckdb, connection, self._query.text)
            table = _table(self._query)
            connection.register(self._query.table_name, table)
            if statement.type == duckdb.StatementType.SELECT and "limit" in statement.query.lower():
                table._limit = _limit_of(connection, statement.query)
            rows = connection.sql(statement.query).to_arrow_reader(self._query.batch_size or _BATCH_ROWS)
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise BindError(f"SQL: {error}") from error
        except duckdb.PermissionException as error:
            raise BindError(f"SQL: a query can read only its own table: {error}") from error
        except duckdb.Error as error:
            raise EvaluationError(f"SQL: {error}") from error
        batches = _read(duckdb, connection, rows)
        if self._query.batch_size_bytes is not None:
            batches = _portions(batches, self._query.batch_size_bytes)
        return pa.RecordBatchReader.from_batches(rows.schema, SharedItems(batches))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._query.text!r}>"


def _only_select(duckdb: ModuleType, connection: Any, text: str) -> Any:
    """Parse the text. Raises `UsageError` for anything but one SELECT, or an EXPLAIN of one."""
    utf8(text, "SQL", BindError)
    statements = connection.extract_statements(text)
    reads = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if len(statements) != 1 or statements[0].type not in reads:
        raise UsageError(f"SQL: expected one SELECT statement, found {text[:200]!r}")
    return statements[0]


def _limit_of(connection: Any, query: str) -> int | None:
    """Rows that a query needs of its one scan; None for all that pass the pushed-down filters.

    DuckDB plans this, but does not pass it on: a limit with nothing but projections between it and the scan. A filter
    in between is one that the scan does not get. Orders, groups, joins and unnesting are operators of their own.
    """
    (_, plan), *_ = connection.sql(f"EXPLAIN (FORMAT json) {query}").fetchall()
    limits: list[int | None] = []
    nodes: list[tuple[Any, int | None]] = [(node, None) for node in json.loads(plan)]
    while nodes:
        node, limit = nodes.pop()
        name, info, below = node["name"], node.get("extra_info", {}), node["children"]
        if name == _SCAN:
            limits.append(limit)
        elif name in _LIMITS:
            texts = [info.get("Limit", ""), info.get("Offset", "0")]
            limit = sum(map(int, texts)) if all(text.isdecimal() for text in texts) else None
            limit = None if limit is None or limit >= LIMIT_END else limit
        elif name != "PROJECTION":
            limit = None
        nodes += [(child, limit) for child in below]
    return limits[0] if len(limits) == 1 else None


def _read(duckdb: ModuleType, connection: Any, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except LanceError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise EvaluationError(f"SQL: {error}") from error
    finally:
        rows.close()
        connection.close()


def _portions(batches: Iterator[pa.RecordBatch], limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `limit_bytes` at most, each at least one row."""
    for batch in batches:
        num_rows = max(1, limit_bytes * batch.num_rows // max(batch.nbytes, 1))
        yield from (batch.slice(start, num_rows) for start in range(0, batch.num_rows, num_rows))


def _count(name: str, value: Any) -> int:
    """A number that is not negative. Raises `TypeError` and `OverflowError`, as pylance does."""
    number = operator.index(value)
    if number < 0:
        raise OverflowError(f"{name}: can't convert negative int to unsigned")
    return number


class SqlQuery(_Query):
    """A query that you can run. `SqlQueryBuilder.build` creates it."""

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Run the query and read the whole result.

        Raises:
            ValueError: The text is not one SELECT, does not fit the table, or fails for a row.
        """
        return [*self._reader()]

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Run the query and read the result as DuckDB computes it.

        Raises:
            ValueError: The text is not one SELECT, does not fit the table, or fails for a row.
        """
        return self._reader()


class AsyncSqlQuery(_Query):
    """A query that you can await; DuckDB works in threads."""

    async def to_batch_records(self) -> list[pa.RecordBatch]:
        """Run the query and read the whole result. See `SqlQuery.to_batch_records`."""
        return await self._in_thread(lambda: [*self._reader()])

    @shared_async
    async def to_stream_reader(self) -> AsyncIterator[pa.RecordBatch]:
        """Run the query and read the result batch by batch, with `async for`. See `SqlQuery.to_stream_reader`."""
        reader = await self._in_thread(self._reader)
        while (batch := await self._in_thread(partial(next, reader, None))) is not None:
            yield batch

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run DuckDB in a thread. Raises `RuntimeError` if the dataset is closed, before or meanwhile."""
        state = self._query.state
        state.check_open()
        try:
            with nullcontext() if state.schedulers is None else state.schedulers.beside():
                return await in_thread(work)
        except LanceError:  # DuckDB wraps errors of the dataset's reads in errors of its own
            state.check_open()
            raise


class SqlQueryBuilder:
    """Collects the options of a query; every setter returns the builder. `LanceDataset.sql` creates it.

    Args:
        state: State of the dataset.
        text: The query.

    Raises:
        TypeError: `text` is not a string.
    """

    _kind: type[Any] = SqlQuery

    def __init__(self, state: DatasetState, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"sql: expected a text, found {text!r}")
        self._query = _QueryOptions(state, text)

    def _set(self, **values: Any) -> Self:
        self._query = replace(self._query, **values)
        return self

    def table_name(self, table_name: str) -> Self:
        """Set the name of the table in the query, "dataset" by default.

        Args:
            table_name: The name.

        Raises:
            TypeError: `table_name` is not a string.
            UsageError: Half of a surrogate pair is in it.
        """
        if not isinstance(table_name, str):
            raise TypeError(f"table_name: expected a text, found {table_name!r}")
        utf8(table_name, "table_name")
        return self._set(table_name=table_name)

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Set whether the table has a column `_rowid`.

        Args:
            with_row_id: True adds the column.
        """
        return self._set(with_row_id=with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> Self:
        """Set whether the table has a column `_rowaddr`.

        Args:
            with_row_addr: True adds the column.
        """
        return self._set(with_row_addr=with_row_addr)

    def blob_handling(self, blob_handling: str) -> Self:
        """Set the form of blob columns.

        Args:
            blob_handling: "all_binary", or "blobs_descriptions", the default.

        Raises:
            TypeError: `blob_handling` is not a string.
            ValueError: `blob_handling` is invalid.
        """
        if not isinstance(blob_handling, str):
            raise TypeError(f"blob_handling: expected a text, found {blob_handling!r}")
        scan_options(blob_handling=blob_handling)
        return self._set(blob_handling=blob_handling)

    def batch_size(self, batch_size: int) -> Self:
        """Set the maximum rows of a batch of the result.

        Args:
            batch_size: Number of rows.

        Raises:
            ValueError: The number is 0.
            TypeError: The value is not an integer.
            OverflowError: The number is negative.
        """
        if _count("batch_size", batch_size) < 1:
            raise UsageError(f"batch_size must be at least 1, got {batch_size}")
        return self._set(batch_size=batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """Set the approximate maximum bytes of a batch, of the scan and of the result. Each batch has at least one row.

        Together with `batch_size`, both bounds apply.

        Args:
            batch_size_bytes: Number of bytes.

        Raises:
            TypeError: The value is not an integer.
            OverflowError: The number is negative.
        """
        return self._set(batch_size_bytes=max(1, _count("batch_size_bytes", batch_size_bytes)))

    def build(self) -> Any:
        """Build the query.

        Returns:
            A `SqlQuery`, or an `AsyncSqlQuery` from `AsyncDataset.sql`.
        """
        return self._kind(self._query)


class AsyncSqlQueryBuilder(SqlQueryBuilder):
    """Builds an `AsyncSqlQuery`. `AsyncDataset.sql` creates it; see `SqlQueryBuilder`."""

    _kind = AsyncSqlQuery
