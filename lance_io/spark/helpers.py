"""For the driver program: registering the source, reading and writing a table, and what needs no Spark session.

Counting rows, how a read would be cut, and removing what a job that failed has left.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError
from lance_io.lazy_names import later
from lance_io.spark.options import is_moment, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from pyspark.sql import DataFrame, SparkSession

    from lance_io.dataset import distributed
    from lance_io.spark import engine, source
    from lance_io.spark.read import read_plan
    from lance_io.spark.read.read_plan import ReadPlan
else:
    source = later("lance_io.spark.source")
    engine = later("lance_io.spark.engine")
    read_plan = later("lance_io.spark.read.read_plan")
    distributed = later("lance_io.dataset.distributed")

_NAME = "lance_io"
_MODES = ("append", "overwrite")
_OFFSET = re.compile(r"(?:Z|UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?)?")  # +05:30, GMT-8


def register(spark: SparkSession, name: str = _NAME) -> None:
    """Make `format(name)` known to a session.

    Spark finds `lance_io` by itself where the package is installed. Registering helps where it is not (a directory that
    only this program has on its path), where the `pyspark_*` package of somebody else fails to import, which hides all
    others from Spark, and for another name.
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
    """`spark.read.format("lance_io")` with options of any type: lists, numbers, times and dicts become their text.

    uri      of the table
    options  as in docs/spark.md; `columns` as a list of names or paths, `storage` and `properties` as dicts
    """
    texts = option_texts(options)
    for name in texts:
        if is_moment(name):
            texts[name] = _in_zone(texts[name], spark.conf.get("spark.sql.session.timeZone"))
    return spark.read.format(_NAME).options(**texts).load(uri)


def plan(uri: str, **options: Any) -> ReadPlan:
    """How a read with these options would be cut, without a Spark session; reads one manifest.

    uri, options  as for `read_table`
    Raises what loading the table would raise.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "read")
    version = engine.open_version(checked)
    return read_plan.plan_read(version, checked, read_plan.read_scan(version, checked))


def count(uri: str, **options: Any) -> int:
    """How many rows a read with these options gives, without a Spark session.

    Nothing is read but the manifest, which says it, unless there is a filter: then this process scans the columns that
    the filter names.

    uri, options  as for `read_table`
    Raises what loading the table would raise.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "read")
    version = engine.open_version(checked)  # none of the columns is read, yet a wrong name stays a mistake
    return version.count(read_plan.read_scan(version, checked), io_buffer_bytes=engine.io_buffer_bytes(checked))


def write_table(df: DataFrame, uri: str, mode: str = "append", *, files: int | None = None, **options: Any) -> None:
    """`df.write.format("lance_io")` with options of any type: numbers, switches and dicts become their text.

    uri      of the table
    mode     "append" or "overwrite"
    files    how many tasks write at most, and so how many files there are at least; None leaves it to Spark
    options  as in docs/spark.md
    Raises `UsageError` for options that make no sense, before Spark starts anything.
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
    """Remove the data files of a job that no version refers to, and those of blobs beside them; gives their paths.

    To be called when no task of the job runs any more. Lost attempts and killed tasks leave files; a file of the job
    is known by its name, and one that counts by the manifests, all of which are read.

    job_id   as it was given to the write, or as the transaction's property `lance_io.job` says
    options  `storage` and others of where the table is
    Raises what reading the table raises: nothing is removed on a guess. `UsageError` for a table with branches.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "write")
    return distributed.remove_job_files(engine.table_place(checked), job_id)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as texts; those that are None are left out.

    A list of columns holds names as everywhere (dots lead to members of structs, back-quotes keep odd names together),
    or tuples of plain names.
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
    """A time of the session's zone, with that zone."""
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return text  # whoever checks the options says so
    return text if moment.tzinfo is not None or not zone else moment.replace(tzinfo=_zone(zone)).isoformat()


def _zone(name: str) -> tzinfo:
    """A zone as Spark names them: by region, or by its distance from UTC. Raises `UsageError` for other names."""
    from datetime import timedelta, timezone
    from zoneinfo import ZoneInfo

    offset = _OFFSET.fullmatch(name)
    if offset is None:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError) as error:
            raise UsageError(f"the session's zone {name!r} is not known here: give the time a zone") from error
    sign, hours, minutes, seconds = offset.groups(default="0")
    distance = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    return timezone(-distance if sign == "-" else distance)
