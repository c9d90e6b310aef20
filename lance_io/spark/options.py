"""The options of `format("lance_io")`: texts by name, checked, as a frozen value for each kind of job.

Our own names match in any case and without `_`: `versionAsOf`, `version_as_of` and `versionasof` (the form that Spark
passes on) are the same option. In the families `storage.*`, `properties.*` and `<column>.arrow.fixed-size-list.size`
the user's part of the name is kept unchanged; Spark has put it in lower case.

    read          ReadOptions
    stream_read   StreamReadOptions    the options of a read except version and limit, and the triggers
    write         WriteOptions
    stream_write  StreamWriteOptions   the options of a write, and `stream_id`

A write into a view also has the view's read options. They are ignored, except that naming a version is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from lance_io.caller_text import utf8
from lance_io.errors import UnsupportedError, UsageError
from lance_io.spark.option_values import (
    bytes_value,
    moment_value,
    one_of,
    parse_columns,
    switch_value,
    text_value,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

Purpose: TypeAlias = Literal["read", "write", "stream_read", "stream_write"]

MIB: Final = 1 << 20
BATCH_BYTES: Final = 16 * MIB  # vectors in large batches cross into the JVM twice as fast as in small batches
SPLIT_BYTES: Final = 128 * MIB  # few large tasks: each has an overhead of 60 to 150 ms
PARTITIONS_MAX: Final = 10_000
ROWS_PER_FILE_MAX: Final = 1 << 20
BYTES_PER_FILE_MAX: Final = 90 << 30
COMMIT_RETRIES: Final = 20
JOB_ID_SEARCH: Final = 1_000  # kept versions that are searched for a caller's `job_id`

VECTOR_SIZE: Final = "arrow.fixed-size-list.size"  # also the metadata key of a Spark column of vectors
ROW_VERSIONS: Final = ("_row_created_at_version", "_row_last_updated_at_version")
SYSTEM_COLUMNS: Final = ("_rowid", "_rowaddr", "_fragid", *ROW_VERSIONS)


@dataclass(frozen=True)
class TargetOptions:
    """Options that open the table.

    path      URI of the table
    storage   storage options by name; not shown in `repr`, because they include credentials
    io_concurrency  requests in flight per worker process, None for the store's default
    tune_worker     whether to change process-wide settings of Spark's processes, see `worker_tuning`
    """

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    io_concurrency: int | None = None
    tune_worker: bool = False

    @property
    def storage_options(self) -> dict[str, str]:
        """The storage options to open the dataset with."""
        options = dict(self.storage)
        if self.io_concurrency is not None:
            options.setdefault("requests_max", str(self.io_concurrency))
        return options


@dataclass(frozen=True)
class ReadOptions(TargetOptions):
    """Options of a read.

    version, timestamp_as_of, tag  the version, at most one of them; the default is the newest. Times without a zone are
                      UTC
    columns           paths of names, None for all columns
    filter            SQL predicate, or None
    limit             the most rows to read, or None
    batch_size        rows per record batch, or None
    batch_bytes       approximate bytes per record batch
    split_bytes       decoded bytes of the projected columns per partition
    num_partitions    number of partitions, instead of `split_bytes`
    max_partitions    the most partitions; has precedence over `split_bytes`
    with_row_id, with_row_address, with_fragment_id  append `_rowid`, `_rowaddr`, `_fragid`
    uint64            "decimal" or "long"
    timestamp_ns      "error_on_loss", "truncate" or "long"
    blobs             "binary" or "descriptions"
    io_buffer_bytes   bytes that a scan may prefetch, None for the engine's default
    recheck_filters   whether Spark keeps the predicates that were pushed
    row_versions      columns of versions of rows to append; not an option, but what SQL names
    """

    version: int | None = None
    timestamp_as_of: datetime | None = None
    tag: str | None = None
    columns: tuple[tuple[str, ...], ...] | None = None
    filter: str | None = None
    limit: int | None = None
    batch_size: int | None = None
    batch_bytes: int = BATCH_BYTES
    split_bytes: int = SPLIT_BYTES
    num_partitions: int | None = None
    max_partitions: int = PARTITIONS_MAX
    with_row_id: bool = False
    with_row_address: bool = False
    with_fragment_id: bool = False
    uint64: str = "decimal"
    timestamp_ns: str = "error_on_loss"
    blobs: str = "binary"
    io_buffer_bytes: int | None = None
    recheck_filters: bool = False
    row_versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class StreamReadOptions(ReadOptions):
    """Options of a streaming read.

    starting_version       stream only rows of later versions; None begins with the rows of the newest version
    max_rows_per_trigger, max_bytes_per_trigger  whole fragments up to this limit, at least one; None for no limit
    skip_changes           skip deletes, updates and overwrites instead of stopping at them
    """

    starting_version: int | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    skip_changes: bool = False


@dataclass(frozen=True)
class WriteOptions(TargetOptions):
    """Options of a write.

    data_storage_version  file version, None for the table's version or the default
    max_rows_per_file, max_bytes_per_file  size of a full file
    rows_per_file_given   whether the caller set `max_rows_per_file`, which makes it a hard limit
    merge_schema          whether to add columns that the table lacks
    overwrite_schema      whether an overwrite may change the schema
    create                whether an append creates a missing table
    commit_retries        attempts to commit after the first
    job_id                the caller's idempotence key, None for none
    job_id_search         number of kept versions that are searched for `job_id`
    commit_message        property of the transaction, or None
    properties            other properties of the transaction
    vector_sizes          items per vector of columns to write as vectors, by lower-case name
    narrow_floats         whether FLOAT and DOUBLE may be stored in narrower floats
    case_sensitive        whether a name that differs from the table's in case only is that of another column
    """

    data_storage_version: str | None = None
    max_rows_per_file: int = ROWS_PER_FILE_MAX
    rows_per_file_given: bool = False
    max_bytes_per_file: int = BYTES_PER_FILE_MAX
    merge_schema: bool = False
    overwrite_schema: bool = False
    create: bool = True
    commit_retries: int = COMMIT_RETRIES
    job_id: str | None = None
    job_id_search: int = JOB_ID_SEARCH
    commit_message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    vector_sizes: Mapping[str, int] = field(default_factory=dict)
    narrow_floats: bool = False
    case_sensitive: bool = False


@dataclass(frozen=True)
class StreamWriteOptions(WriteOptions):
    """Options of a streaming write.

    stream_id            idempotence key, together with the number of a batch
    stream_reset         whether to start over under the same key
    checkpoint_location  location of the query's checkpoint, None if Spark does not pass it
    """

    stream_id: str = ""
    stream_reset: bool = False
    checkpoint_location: str | None = None


# -- names -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: its field, its parser, and the kinds of job that have it."""

    field: str
    parse: Callable[[str, str], Any]
    purposes: tuple[Purpose, ...]


_READ: Final[tuple[Purpose, ...]] = ("read",)
_READS: Final[tuple[Purpose, ...]] = ("read", "stream_read")
_WRITES: Final[tuple[Purpose, ...]] = ("write", "stream_write")
_ALL: Final[tuple[Purpose, ...]] = (*_READS, *_WRITES)

OPTIONS: Final[Mapping[str, _Option]] = {
    "path": _Option("path", text_value, _ALL),
    "io_concurrency": _Option("io_concurrency", whole_number(1), _ALL),
    "tune_worker": _Option("tune_worker", switch_value, _ALL),
    # which version
    "version": _Option("version", whole_number(0), _READ),
    "versionAsOf": _Option("version", whole_number(0), _READ),
    "timestampAsOf": _Option("timestamp_as_of", moment_value, _READ),
    "asOfTimestamp": _Option("timestamp_as_of", moment_value, _READ),
    "tag": _Option("tag", text_value, _READ),
    # which rows and columns
    "columns": _Option("columns", parse_columns, _READS),
    "filter": _Option("filter", text_value, _READS),
    "limit": _Option("limit", whole_number(0), _READ),
    "with_row_id": _Option("with_row_id", switch_value, _READS),
    "with_row_address": _Option("with_row_address", switch_value, _READS),
    "with_fragment_id": _Option("with_fragment_id", switch_value, _READS),
    # in which form
    "batch_size": _Option("batch_size", whole_number(1), _READS),
    "batch_bytes": _Option("batch_bytes", bytes_value, _READS),
    "split_bytes": _Option("split_bytes", bytes_value, _READS),
    "num_partitions": _Option("num_partitions", whole_number(1), _READS),
    "max_partitions": _Option("max_partitions", whole_number(1), _READS),
    "uint64": _Option("uint64", one_of("decimal", "long"), _READS),
    "timestamp_ns": _Option("timestamp_ns", one_of("error_on_loss", "truncate", "long"), _READS),
    "blobs": _Option("blobs", one_of("binary", "descriptions"), _READS),
    "io_buffer_bytes": _Option("io_buffer_bytes", bytes_value, _READS),
    "recheck_filters": _Option("recheck_filters", switch_value, _READ),
    # streaming reads
    "starting_version": _Option("starting_version", whole_number(0), ("stream_read",)),
    "max_rows_per_trigger": _Option("max_rows_per_trigger", whole_number(1), ("stream_read",)),
    "max_bytes_per_trigger": _Option("max_bytes_per_trigger", bytes_value, ("stream_read",)),
    "skip_changes": _Option("skip_changes", switch_value, ("stream_read",)),
    # writes
    "data_storage_version": _Option("data_storage_version", text_value, _WRITES),
    "max_rows_per_file": _Option("max_rows_per_file", whole_number(1), _WRITES),
    "max_bytes_per_file": _Option("max_bytes_per_file", bytes_value, _WRITES),
    "mergeSchema": _Option("merge_schema", switch_value, _WRITES),
    "overwriteSchema": _Option("overwrite_schema", switch_value, _WRITES),
    "caseSensitive": _Option("case_sensitive", switch_value, _WRITES),
    "create": _Option("create", switch_value, _WRITES),
    "commit_retries": _Option("commit_retries", whole_number(0), _WRITES),
    "commit_message": _Option("commit_message", text_value, _WRITES),
    "narrow_floats": _Option("narrow_floats", switch_value, _WRITES),
    "job_id": _Option("job_id", text_value, ("write",)),
    "job_id_search": _Option("job_id_search", whole_number(0), ("write",)),
    # streaming writes
    "stream_id": _Option("stream_id", text_value, ("stream_write",)),
    "txnAppId": _Option("stream_id", text_value, ("stream_write",)),
    "stream_reset": _Option("stream_reset", switch_value, ("stream_write",)),
    "checkpointLocation": _Option("checkpoint_location", text_value, ("stream_write",)),
}

NO_CATALOG: Final = (
    "Spark's catalog does not pass a table's options to readers and writers. Give the path instead: "
    "spark.read.format('lance_io').load(path), df.write.format('lance_io').mode('append').save(path), or in SQL "
    "CREATE TEMP VIEW v USING lance_io OPTIONS (path '...'), which takes INSERT too"
)

_LATER: Final = {
    "overwrite_where": "delete the rows with the Python API and append, in two versions",
    "pushdown": "use the options `columns` and `filter`, which the read applies",
}
_FROM_SPARK: Final = frozenset({"owner", "provider", "location", "checkpointlocation", "queryname", "python"})
_VERSION_FIELDS: Final = frozenset({"version", "timestamp_as_of", "tag"})
_CLASSES: Final[Mapping[str, type[TargetOptions]]] = {
    "read": ReadOptions,
    "stream_read": StreamReadOptions,
    "write": WriteOptions,
    "stream_write": StreamWriteOptions,
}
_WORDS: Final = {
    "read": "a read",
    "stream_read": "a streaming read",
    "write": "a write",
    "stream_write": "a streaming write",
}


def _squeeze(name: str) -> str:
    return name.replace("_", "").lower()


_BY_NAME: Final = {_squeeze(name): (name, option) for name, option in OPTIONS.items()}
_UNKNOWN: Final = ("", _Option("", text_value, ()))
_LATER_BY_NAME: Final = {_squeeze(name): (name, instead) for name, instead in _LATER.items()}


@overload
def parse_options(given: Mapping[str, str], for_: Literal["read"]) -> ReadOptions: ...
@overload
def parse_options(given: Mapping[str, str], for_: Literal["stream_read"]) -> StreamReadOptions: ...
@overload
def parse_options(given: Mapping[str, str], for_: Literal["write"]) -> WriteOptions: ...
@overload
def parse_options(given: Mapping[str, str], for_: Literal["stream_write"]) -> StreamWriteOptions: ...
def parse_options(given: Mapping[str, str], for_: Purpose) -> TargetOptions:
    """The checked options of a job.

    given  texts by name, from Spark
    Raises `UsageError` for an unknown name (with a suggestion), an option of another kind of job, an invalid value,
    half of a surrogate pair, and a missing `path` or `stream_id`; `UnsupportedError` for an option of a later release.
    """
    check_texts(given)
    parsed: dict[str, Any] = {}
    names: dict[str, str] = {}
    families: dict[str, dict[str, Any]] = {"storage": {}, "properties": {}, "vector_sizes": {}}
    for key, text in given.items():
        if _take_family(key, str(text), families):
            continue
        name, option = _option(key, for_)
        if option is None:
            continue
        if option.field in parsed:
            raise UsageError(f"options {names[option.field]} and {key} say the same; give one of them")
        parsed[option.field] = option.parse(name, str(text))
        names[option.field] = key
    _check_path(parsed, given)
    values = {**parsed, "storage": families["storage"]}
    if for_ in _WRITES:
        values |= {"properties": families["properties"], "vector_sizes": families["vector_sizes"]}
        values["rows_per_file_given"] = "max_rows_per_file" in parsed
    _check_together(values, for_)
    return _CLASSES[for_](**values)


def check_texts(given: Mapping[str, str]) -> None:
    """Refuse names and texts with half of a surrogate pair, which neither Spark nor a table can hold.

    Raises `UsageError`, without the text: it may be a secret.
    """
    for name, text in given.items():
        utf8(name, "the name of an option")
        utf8(str(text), f"option {name}")


def is_moment(name: str) -> bool:
    """Whether an option of this name, in any spelling, is a time."""
    _, option = _BY_NAME.get(_squeeze(name), _UNKNOWN)
    return option.parse is moment_value


def parse_schema_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a load of unknown kind: Spark requests the schema before it creates a batch or stream reader.

    Options that only a streaming read has mark it as one. Raises like `parse_options`, and `UsageError` for a table of
    Spark's own catalog.
    """
    if {"owner", "provider"} <= {_squeeze(key) for key in given}:  # only Spark's catalog adds them
        raise UsageError(f"CREATE TABLE ... USING lance_io does not work: {NO_CATALOG}")
    streams = any(
        option.purposes == ("stream_read",) for key in given for _, option in [_BY_NAME.get(_squeeze(key), _UNKNOWN)]
    )
    return parse_options(given, "stream_read") if streams else parse_options(given, "read")


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write of unknown kind: one with an id is of a stream. Raises like `parse_options`."""
    streams = any(_BY_NAME.get(_squeeze(key), _UNKNOWN)[1].field == "stream_id" for key in given)
    return parse_options(given, "stream_write") if streams else parse_options(given, "write")


def _take_family(key: str, text: str, families: dict[str, dict[str, Any]]) -> bool:
    """Add an option to its family; returns whether it belongs to one."""
    family, dot, rest = key.partition(".")
    if dot and rest and family.lower() in ("storage", "properties"):
        families[family.lower()][rest] = text
        return True
    if key.lower().endswith(f".{VECTOR_SIZE}"):
        column = key[: -len(VECTOR_SIZE) - 1].lower()
        families["vector_sizes"][column] = whole_number(1)(key, text)
        return True
    return False


def _option(key: str, for_: Purpose) -> tuple[str, _Option | None]:
    """The option with this key; None to ignore it. Raises for invalid options."""
    squeezed = _squeeze(key)
    if squeezed in _LATER_BY_NAME:
        name, instead = _LATER_BY_NAME[squeezed]
        raise UnsupportedError(f"option {name} comes with a later release; {instead}")
    if squeezed == "paths":
        raise UsageError("a load reads one table: give one path, and join the DataFrames with union")
    name, option = _BY_NAME.get(squeezed, (key, None))
    if option is None:
        if squeezed in _FROM_SPARK:
            return key, None
        raise UsageError(f"unknown option {key!r}{_suggestion(squeezed, for_)}")
    if for_ in option.purposes:
        return name, option
    if squeezed in _FROM_SPARK:
        return name, None
    if for_ in _WRITES and not set(option.purposes) & {*_WRITES}:
        if option.field in _VERSION_FIELDS:
            raise UsageError(f"option {name}: a past version cannot be written to; write to the table itself")
        return name, None
    where = " and ".join(_WORDS[purpose] for purpose in option.purposes)
    raise UsageError(f"option {name} belongs to {where}, and this is {_WORDS[for_]}{_hint(option, for_)}")


def _hint(option: _Option, for_: Purpose) -> str:
    if for_ == "stream_read" and option.field in _VERSION_FIELDS:
        return ": give `starting_version` to say where the stream begins"
    return ""


def _suggestion(squeezed: str, for_: Purpose) -> str:
    usable = [name for name, (_, option) in _BY_NAME.items() if for_ in option.purposes]
    close = get_close_matches(squeezed, usable, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {_BY_NAME[close[0]][0]!r}?"
    names = ", ".join(sorted({name for name, option in OPTIONS.items() if for_ in option.purposes}))
    return f"; options of {_WORDS[for_]} are {names}, and storage.*"


def _check_path(parsed: Mapping[str, Any], given: Mapping[str, str]) -> None:
    if "path" in parsed:
        return
    if any(_squeeze(key) == "paths" for key in given):
        raise UsageError("a load reads one table: give one path, and join the DataFrames with union")
    raise UsageError(
        "option path is missing. A table of Spark's own catalog (CREATE TABLE ... USING lance_io, saveAsTable, "
        f"writeTo(...).create()) does not work: {NO_CATALOG}"
    )


def _check_together(values: Mapping[str, Any], for_: Purpose) -> None:
    versions = sorted(_VERSION_FIELDS & values.keys())
    if len(versions) > 1:
        raise UsageError(f"options {' and '.join(versions)}: give at most one of version, timestampAsOf and tag")
    if for_ == "stream_write" and not values.get("stream_id"):
        raise UsageError(
            "option stream_id is missing: a streaming write needs a name that stays the same as long as its "
            "checkpoint, so that a batch that Spark sends again is recognized"
        )
    if "num_partitions" in values and values["num_partitions"] > values.get("max_partitions", PARTITIONS_MAX):
        raise UsageError(f"option num_partitions: {values['num_partitions']} is more than max_partitions")
