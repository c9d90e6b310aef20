"""Operations on tables of a catalog that use the cluster: the catalog's procedures as functions.

    ops.compact(spark, "lance.texts", target_rows_per_fragment=1_000_000)

Each is `CALL lance.system.NAME(...)`, so it runs over Spark Connect, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.spark.worker.writing.carried_functions import CarriedFunction
from lance_io.udf import BatchUDF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession,
    table: str,
    *,
    target_rows_per_fragment: int | None = None,
    max_bytes_per_file: int | None = None,
    materialize_deletions: bool | None = None,
) -> dict[str, Any]:
    """Rewrite small fragments, and those with deleted rows, in a Spark job with a task for each group of them.

    Args:
        spark: A session with the catalog.
        table: Its name with the catalog's: `lance.texts`.
        target_rows_per_fragment: Rows of a full fragment; None for 1,048,576.
        max_bytes_per_file: Bytes of a full file; None for the default.
        materialize_deletions: Whether fragments with deleted rows are rewritten; None for yes.

    Returns:
        The version, and numbers of fragments and files: `version`, `fragments_removed`, `fragments_added`,
        `files_removed`, `files_added`.

    Raises:
        UsageError: The table's name has no catalog.
    """
    return _call(
        spark,
        "compact",
        table,
        target_rows_per_fragment=target_rows_per_fragment,
        max_bytes_per_file=max_bytes_per_file,
        materialize_deletions=materialize_deletions,
    )


def cleanup(
    spark: SparkSession,
    table: str,
    *,
    older_than_days: float | None = None,
    retain_versions: int | None = None,
    delete_unverified: bool | None = None,
) -> dict[str, Any]:
    """Remove old versions, and files that no version refers to. Tagged versions stay.

    Args:
        spark: A session with the catalog.
        table: Its name with the catalog's.
        older_than_days: Least age of the versions; None for two weeks, unless `retain_versions` is given.
        retain_versions: Newest versions that stay.
        delete_unverified: True also removes files of unknown writers that are younger than seven days.

    Returns:
        `versions_removed` and `bytes_removed`.

    Raises:
        UsageError: The table's name has no catalog.
    """
    return _call(
        spark,
        "cleanup",
        table,
        older_than_days=None if older_than_days is None else float(older_than_days),
        retain_versions=retain_versions,
        delete_unverified=delete_unverified,
    )


def create_index(
    spark: SparkSession,
    table: str,
    column: str,
    index_type: str,
    *,
    name: str | None = None,
    replace: bool | None = None,
    options: Mapping[str, Any] | None = None,
    num_segments: int | None = None,
) -> dict[str, Any]:
    """Build an index in a Spark job: each task builds a segment over its fragments, and one commit has them all.

    The model of an index of vectors is learned by the worker of the driver, and shared by all segments.

    Args:
        spark: A session with the catalog.
        table: Its name with the catalog's.
        column: The column.
        index_type: `BTREE`, `BITMAP`, `INVERTED`, `IVF_PQ` and others, or `JSON` with the options `path` and
            `target_index_type`.
        name: Its name; None for one made of the column's.
        replace: Whether it replaces one of this name; None for yes.
        options: Parameters of the kind, and `memory_limit` of each task in MiB.
        num_segments: Segments, at most one for each fragment; None for one for each core of the cluster, with at least
            a million rows each.

    Returns:
        `version`, `name`, `segments` and `bytes`.

    Raises:
        UsageError: The table's name has no catalog.
    """
    texts = None if options is None else {key: str(value) for key, value in options.items()}
    return _call(
        spark,
        "create_index",
        table,
        column=column,
        index_type=index_type,
        name=name,
        replace=replace,
        options=texts,
        num_segments=num_segments,
    )


def optimize_indices(
    spark: SparkSession,
    table: str,
    *,
    name: str | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool | None = None,
    memory_limit: int | None = None,
    num_segments: int | None = None,
) -> dict[str, Any]:
    """Add new rows to indices in a Spark job, with a task for each new segment, and one commit for all indices.

    Args:
        spark: A session with the catalog.
        table: Its name with the catalog's.
        name: The index; None for all.
        num_indices_to_merge: Segments that become one with the new rows; None for 1, 0 for none.
        retrain: Whether all segments are built again, and models learned again; None for no.
        memory_limit: MiB of rows that a task may hold in memory; None for 256.
        num_segments: Segments that are built for an index; None as for `create_index`.

    Returns:
        `version`, `segments_removed`, `segments_added` and `bytes`.

    Raises:
        UsageError: The table's name has no catalog.
    """
    return _call(
        spark,
        "optimize_indices",
        table,
        name=name,
        num_indices_to_merge=num_indices_to_merge,
        retrain=retrain,
        memory_limit=memory_limit,
        num_segments=num_segments,
    )


def add_columns(
    spark: SparkSession,
    table: str,
    columns: Mapping[str, str] | Callable[[Any], Any],
    *,
    pandas: bool = False,
    read_columns: Sequence[str] | None = None,
    output_schema: pa.Schema | None = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Add columns that expressions or a function compute, in a Spark job over the fragments, in one commit.

    Rows that others append meanwhile get the columns, too, as long as they are few.

    Args:
        spark: A session with the catalog.
        table: Its name with the catalog's.
        columns: Expressions of the filters' language by name of the new column; or a function, which takes a record
            batch, and returns a record batch or a pandas frame of the new columns with as many rows. It is sent to the
            workers as Spark's own functions are.
        pandas: Whether the function takes a pandas frame.
        read_columns: Columns of a function's argument, also `_rowid` and `_rowaddr`; None for all.
        output_schema: Schema of the function's result; None to infer it from the first row.
        batch_size: Rows that a function gets at once; None for at most 8,192.

    Returns:
        `version`, `fragments` and `bytes`.

    Raises:
        UsageError: The table's name has no catalog, or the function cannot be sent.
    """
    if callable(columns):
        if isinstance(columns, BatchUDF):
            output_schema, columns = output_schema or columns.output_schema, columns.func
        carried = CarriedFunction.of(
            columns, is_pandas=pandas, read_columns=read_columns, output_schema=output_schema, batch_size=batch_size
        )
        return _call(spark, "add_columns", table, function=carried.to_text())
    if pandas or read_columns is not None or output_schema is not None or batch_size is not None:
        raise UsageError("pandas, read_columns, output_schema and batch_size go with a function")
    return _call(spark, "add_columns", table, columns=dict(columns))


def rollback(spark: SparkSession, table: str, version: int) -> dict[str, Any]:
    """Make an old version the newest.

    Args:
        spark: A session with the catalog.
        table: Its name with the catalog's.
        version: Its number.

    Returns:
        `version`, the new one.

    Raises:
        UsageError: The table's name has no catalog.
    """
    return _call(spark, "rollback", table, version=version)


def _call(spark: SparkSession, procedure: str, table: str, **arguments: Any) -> dict[str, Any]:
    """Call a procedure; arguments of None are left out."""
    catalog, dot, name = table.partition(".")
    if not dot or not name:
        raise UsageError(f"table {table!r}: expected its name with the catalog's, such as lance.texts")
    given = {"table": name, **{key: value for key, value in arguments.items() if value is not None}}
    shown = ", ".join(f"{key} => {_literal(value)}" for key, value in given.items())
    quoted = catalog.replace("`", "``")
    (row,) = spark.sql(f"CALL `{quoted}`.system.{procedure}({shown})").collect()
    values: dict[str, Any] = row.asDict()
    return values


def _literal(value: Any) -> str:
    """A value as SQL."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"double('{value!r}')"
        case int():
            return str(value)
        case dict():
            return f"map({', '.join(_literal(text) for pair in value.items() for text in pair)})"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
