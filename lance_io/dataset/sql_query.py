"""`LanceDataset.sql`: a SELECT over one table, answered by DuckDB in its dialect, while this package reads the table.

DuckDB asks for the columns that a query needs and hands over the conditions that a scan can check; the rest, joins,
groups and orders, it does itself. A query has a connection of its own, which knows one table and no files: whatever
text it is given can read nothing but the table, and writes nothing.
"""

from __future__ import annotations

import json
import operator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

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
_SCAN: Final = "PYTHON_ARROW_SCAN"  # names of DuckDB's operators; under others it would just read on
_LIMITS: Final = ("LIMIT", "STREAMING_LIMIT")
_SETTINGS: Final = {  # no files, no network, no extensions, none of the caller's variables
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


@dataclass(frozen=True)
class _Asked:
    """A query and how it is to be answered."""

    state: DatasetState
    text: str
    table_name: str = TABLE_NAME
    with_row_id: bool = False
    with_row_addr: bool = False
    batch_size: int | None = None
    batch_size_bytes: int | None = None
    blob_handling: str | None = None


class SqlTable:
    """What DuckDB sees of the table: a dataset of pyarrow's, of which it asks for columns and rows.

    It does not ask for a number of rows; `_limit` is what its plan says (`_limit_of`).
    """

    _asked: _Asked
    _limit: int | None

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self.scanner().projected_schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> LanceScanner:
        """A scan of some columns and of the rows that pass a filter."""
        asked = self._asked
        if columns is None:
            columns = [*asked.state.arrow_schema.names]
            columns += [ROW_ID] * asked.with_row_id + [ROW_ADDRESS] * asked.with_row_addr
        options = scan_options(
            columns=columns,
            filter=filter,
            limit=self._limit,
            blob_handling=asked.blob_handling,
            batch_size_bytes=asked.batch_size_bytes,
        )
        return LanceScanner._of(asked.state, options)


def _table(asked: _Asked) -> Any:
    kind = bases.subclass(SqlTable, bases.Dataset)  # pyarrow's constructor would want a C++ dataset
    table = kind.__new__(kind)
    table._asked, table._limit = asked, None
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
    """One query, to be run any number of times."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def _reader(self) -> pa.RecordBatchReader:
        """The result, batch by batch; the connection lives as long as somebody reads."""
        duckdb = _duckdb()
        connection = duckdb.connect(config=_SETTINGS)
        try:
            statement = _only_select(duckdb, connection, self._asked.text)
            table = _table(self._asked)
            connection.register(self._asked.table_name, table)
            if statement.type == duckdb.StatementType.SELECT and "limit" in statement.query.lower():
                table._limit = _limit_of(connection, statement.query)
            rows = connection.sql(statement.query).to_arrow_reader(self._asked.batch_size or _BATCH_ROWS)
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise BindError(f"SQL: {error}") from error
        except duckdb.PermissionException as error:
            raise BindError(f"SQL: a query reads the table that it is made of, and nothing else: {error}") from error
        except duckdb.Error as error:
            raise EvaluationError(f"SQL: {error}") from error
        batches = _read(duckdb, connection, rows)
        if self._asked.batch_size_bytes is not None:
            batches = _portions(batches, self._asked.batch_size_bytes)
        return pa.RecordBatchReader.from_batches(rows.schema, SharedItems(batches))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._asked.text!r}>"


def _only_select(duckdb: ModuleType, connection: Any, text: str) -> Any:
    """The one statement of a text. Raises `UsageError` for anything but one SELECT, or an EXPLAIN of one."""
    statements = connection.extract_statements(text)
    reads = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    if len(statements) != 1 or statements[0].type not in reads:
        raise UsageError(f"SQL: expected one SELECT statement, found {text[:200]!r}")
    return statements[0]


def _limit_of(connection: Any, query: str) -> int | None:
    """How many rows of its one scan a query needs; None for all that pass the filters which the scan is given.

    DuckDB plans that, and keeps it for itself: a limit above nothing but projections of the scan. A filter between them
    is one that the scan is not given; ordering, grouping, joining and unnesting are operators of their own.
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
        nodes += [(one, limit) for one in below]
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
    """The same rows in batches of about so many bytes at most, each at least one row."""
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
    """A query that can be run. Made by `SqlQueryBuilder.build`."""

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """All of the result."""
        return [*self._reader()]

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """The result as it is made."""
        return self._reader()


class AsyncSqlQuery(_Query):
    """The same from a coroutine: DuckDB works in threads."""

    async def to_batch_records(self) -> list[pa.RecordBatch]:
        """All of the result."""
        return await self._beside(lambda: [*self._reader()])

    @shared_async
    async def to_stream_reader(self) -> AsyncIterator[pa.RecordBatch]:
        """The result as it is made; for `async for`."""
        reader = await self._beside(self._reader)
        while (batch := await self._beside(partial(next, reader, None))) is not None:
            yield batch

    async def _beside(self, work: Callable[[], T]) -> T:
        """Work of DuckDB's in a thread. Raises `RuntimeError` where the dataset is closed, or was meanwhile."""
        state = self._asked.state
        state.check_open()
        try:
            with nullcontext() if state.schedulers is None else state.schedulers.beside():
                return await in_thread(work)
        except LanceError:  # DuckDB reads through the dataset, and tells of what that raised in its own way
            state.check_open()
            raise


class SqlQueryBuilder:
    """Collects how a query is to be answered; every method returns the builder. Made by `LanceDataset.sql`."""

    _kind: type[Any] = SqlQuery

    def __init__(self, state: DatasetState, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"sql: expected a text, found {text!r}")
        self._asked = _Asked(state, text)

    def _set(self, **values: Any) -> Self:
        self._asked = replace(self._asked, **values)
        return self

    def table_name(self, table_name: str) -> Self:
        """What the query calls the table, "dataset" by default."""
        if not isinstance(table_name, str):
            raise TypeError(f"table_name: expected a text, found {table_name!r}")
        return self._set(table_name=table_name)

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Whether the table has a column `_rowid`."""
        return self._set(with_row_id=with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> Self:
        """Whether the table has a column `_rowaddr`."""
        return self._set(with_row_addr=with_row_addr)

    def blob_handling(self, blob_handling: str) -> Self:
        """How blobs come: "all_binary", or by default "blobs_descriptions".

        Raises `ValueError` for what pylance does not know either.
        """
        if not isinstance(blob_handling, str):
            raise TypeError(f"blob_handling: expected a text, found {blob_handling!r}")
        scan_options(blob_handling=blob_handling)
        return self._set(blob_handling=blob_handling)

    def batch_size(self, batch_size: int) -> Self:
        """Rows of a batch of the result at most."""
        if _count("batch_size", batch_size) < 1:
            raise UsageError(f"batch_size must be at least 1, got {batch_size}")
        return self._set(batch_size=batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """About how many bytes a batch of the scan, and one of the result, takes at most; each has at least one row.

        Together with `batch_size` both hold.
        """
        return self._set(batch_size_bytes=max(1, _count("batch_size_bytes", batch_size_bytes)))

    def build(self) -> Any:
        """The query, a `SqlQuery`."""
        return self._kind(self._asked)


class AsyncSqlQueryBuilder(SqlQueryBuilder):
    """The same. Made by `AsyncDataset.sql`; builds an `AsyncSqlQuery`."""

    _kind = AsyncSqlQuery
