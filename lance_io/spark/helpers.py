"""Functions for the driver program: register the source, read and write tables.

Without a Spark session: count rows, plan a read, and remove the files of a failed job.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.spark.options import check_texts, is_moment, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from pyspark.sql import DataFrame, SparkSession

    from lance_io.dataset import distributed
    from lance_io.spark import engine, source
    from lance_io.spark.read import read_plan
    from lance_io.spark.read.read_plan import ReadPlan
else:
    source = lazy_module("lance_io.spark.source")
    engine = lazy_module("lance_io.spark.engine")
    read_plan = lazy_module("lance_io.spark.read.read_plan")
    distributed = lazy_module("lance_io.dataset.distributed")

_NAME = "lance_io"
_MODES = ("append", "overwrite")
_OFFSET = re.compile(r"(?:Z|UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?)?")  # +05:30, GMT-8


def register(spark: SparkSession, name: str = _NAME) -> None:
    """Register `format(name)` in a session.

    Spark discovers `lance_io` by itself if the package is installed. Register it if it is not installed (for example in
    a directory that only this program has on its path), if another `pyspark_*` package fails to import, which hides all
    others from Spark, or to use another name.

    Args:
        spark: The session.
        name: The name for `format`.
    """
    if name == _NAME:
        spark.dataSource.register(source.LanceDataSource)
        return

    class Named(source.LanceDataSource):
        @classmethod
        def name(cls) -> str:
            return name

    spark.dataSource.register(Named)


def read_table(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    """Call `spark.read.format("lance_io")` with options of any type: lists, numbers, times and dicts become texts.

    Args:
        spark: The session. A `timestamp_as_of` without a zone is in the session's zone.
        uri: URI of the table.
        **options: The options of docs/spark.md; `columns` as a list of names or paths, `storage` and `properties` as
            dicts.

    Returns:
        The rows, which Spark reads lazily.

    Raises:
        UsageError: The session's zone is unknown, or a text has half of a surrogate pair.
    """
    texts = option_texts(options)
    check_texts({**texts, "path": uri})
    for name in texts:
        if is_moment(name):
            texts[name] = _in_zone(texts[name], spark.conf.get("spark.sql.session.timeZone"))
    return spark.read.format(_NAME).options(**texts).load(uri)


def plan(uri: str, **options: Any) -> ReadPlan:
    """Plan the partitions of a read, without a Spark session. Reads one manifest.

    Args:
        uri: URI of the table.
        **options: See `read_table`.

    Returns:
        The partitions, and estimates of their bytes and requests.

    Raises:
        UsageError: An option is unknown or invalid.
        LanceError: The table cannot be loaded, or the filter or columns do not fit it.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "read")
    version = engine.open_version(checked)
    return read_plan.plan_read(version, checked, read_plan.read_scan(version, checked))


def count(uri: str, **options: Any) -> int:
    """Count the rows of a read, without a Spark session.

    Without a filter the manifest has the count. With a filter this process scans the filter's columns.

    Args:
        uri: URI of the table.
        **options: See `read_table`.

    Returns:
        The number of rows.

    Raises:
        UsageError: An option is unknown or invalid.
        LanceError: The table cannot be loaded, or the filter or columns do not fit it.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "read")
    version = engine.open_version(checked)  # reads no column, but unknown names in `columns` still raise
    return version.count(read_plan.read_scan(version, checked), io_buffer_bytes=engine.io_buffer_bytes(checked))


def write_table(df: DataFrame, uri: str, mode: str = "append", *, files: int | None = None, **options: Any) -> None:
    """Call `df.write.format("lance_io")` with options of any type: numbers, switches and dicts become texts.

    Args:
        df: The rows to write.
        uri: URI of the table.
        mode: "append" or "overwrite".
        files: The most tasks that write; each writes at least one file. None leaves the number to Spark.
        **options: The options of docs/spark.md.

    Raises:
        UsageError: An argument or option is invalid; raised before Spark starts the job.
    """
    if mode not in _MODES:
        raise UsageError(f"mode must be append or overwrite, got {mode!r}")
    if files is not None and files < 1:
        raise UsageError(f"files must be at least 1, got {files}")
    texts = option_texts(options)
    parse_options({**texts, "path": uri}, "write")
    rows = df if files is None else df.coalesce(files)
    rows.write.format(_NAME).mode(mode).options(**texts).save(uri)


def cleanup_job(uri: str, job_id: str, **options: Any) -> list[str]:
    """Remove the data files of a job that no version refers to, and their blob files.

    Lost attempts and killed tasks leave such files. Call this when no task of the job is running any more. Files of the
    job are recognized by name; all manifests are read to find the files that versions refer to.

    Args:
        uri: URI of the table.
        job_id: The `job_id` of the write, or the transaction's property `lance_io.job`.
        **options: `storage` and other options that open the table.

    Returns:
        The paths of the removed files.

    Raises:
        UsageError: The table has branches.
        LanceError: The table cannot be read; nothing is removed then.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "write")
    return distributed.remove_job_files(engine.table_place(checked), job_id)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as texts, without those that are None.

    A list of columns has names (dots lead to members of structs, back-quotes protect special characters), or tuples of
    plain names.
    """
    texts: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, dict):
            texts |= {f"{name}.{key}": _text(each) for key, each in value.items() if each is not None}
        elif isinstance(value, (list, tuple)):
            texts[name] = ",".join(_path(each) for each in value)
        else:
            texts[name] = _text(value)
    return texts


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _path(value: Any) -> str:
    if isinstance(value, str):
        return value
    names = [str(name) for name in value]
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def _in_zone(text: str, zone: str | None) -> str:
    """A time with the session's zone, unless it has a zone or is not a time."""
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return text  # `parse_options` raises for it
    return text if moment.tzinfo is not None or not zone else moment.replace(tzinfo=_zone(zone)).isoformat()


def _zone(name: str) -> tzinfo:
    """A zone by Spark's name for it: a region, or an offset from UTC. Raises `UsageError` for other names."""
    from datetime import timedelta, timezone
    from zoneinfo import ZoneInfo

    offset = _OFFSET.fullmatch(name)
    if offset is None:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError) as error:
            raise UsageError(f"the session's zone {name!r} is unknown: give the time a zone") from error
    sign, hours, minutes, seconds = offset.groups(default="0")
    distance = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    return timezone(-distance if sign == "-" else distance)
