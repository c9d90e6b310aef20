"""Options of a compaction: keywords, defaults, and values of the table's configuration."""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, get_args

from lance_io.changes.operations.schema_fit import check_mixture
from lance_io.errors import OperationError, UsageError
from lance_io.file.write.writers import version_for_tables
from lance_io.format.version import version_of_name
from lance_io.limits import MIB
from lance_io.reads.memory_limit import check_memory_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.format.version import FileVersion

CompactionMode = Literal["reencode", "try_binary_copy", "force_binary_copy"]
Verify = Literal["write", "read"]

CONFIG_PREFIX: Final = "lance.compaction."
_NOT_IN_CONFIG: Final = frozenset(("num_threads", "io_buffer_size", "excluded_fragment_ids", "memory_limit", "verify"))
_NEVER_DEFERS: Final = "never_defer_index_remap"  # in JSON, because pylance's key is only true or false
_LIMITS: Final = ("max_source_fragments", "max_source_rows", "max_source_bytes")


class CompactionOptions(TypedDict, total=False):
    """The keywords of a compaction. None, or a missing key, takes the table's configuration or the default.

    Names and defaults are pylance's, except `memory_limit` and `verify`.

    Attributes:
        target_rows_per_fragment: Target number of rows of a fragment; smaller ones are merged. Default 1,048,576.
        max_rows_per_group: Rows of a batch in files of version 0.1. Default 1,024.
        max_bytes_per_file: Stored bytes at which a data file ends, None for the limit of `write_dataset`.
        materialize_deletions: Whether to rewrite fragments with many deleted rows. Default True.
        materialize_deletions_threshold: Share of deleted rows above which a fragment is rewritten. Default 0.1.
        num_threads: Accepted; the number of processors limits the work.
        batch_size: Rows that are read at once, None to derive them from the memory limit.
        io_buffer_size: Bytes of prefetch.
        compaction_mode: "reencode" decodes and encodes all pages, which makes full pages. "force_binary_copy" copies
            encoded pages and fails if that is impossible. "try_binary_copy" copies, with "reencode" as fallback.
        binary_copy_read_batch_bytes: Bytes of pages that are read at once. Default 16 MiB.
        defer_index_remap: True keeps all indices and records the new row addresses. False builds scalar indices again
            and removes the moved rows from the others. None keeps those indices that are known to support the record.
        max_source_fragments: Limit for the fragments of one call: no further task starts beyond it.
        max_source_rows: Limit for the rows of one call.
        max_source_bytes: Limit for the bytes of one call.
        excluded_fragment_ids: Ids of fragments that are not rewritten.
        data_storage_version: File version of new data files, None for the table's.
        memory_limit: Memory limit for rows in bytes.
        verify: "write" compares numbers and hashes of the rows that are read and encoded. "read" also reads the new
            files. Default "write".
    """

    target_rows_per_fragment: int | None
    max_rows_per_group: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    num_threads: int | None
    batch_size: int | None
    io_buffer_size: int | None
    compaction_mode: CompactionMode | None
    binary_copy_read_batch_bytes: int | None
    defer_index_remap: bool | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: Iterable[int] | None
    data_storage_version: str | None
    memory_limit: int | None
    verify: Verify | None


@dataclass(frozen=True)
class CompactionSettings:
    """Options of a compaction, with defaults. See `CompactionOptions`."""

    target_rows_per_fragment: int = 1 << 20
    max_rows_per_group: int = 1024
    max_bytes_per_file: int | None = None
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    num_threads: int | None = None
    batch_size: int | None = None
    io_buffer_size: int | None = None
    compaction_mode: CompactionMode | None = None
    binary_copy_read_batch_bytes: int = 16 * MIB
    defer_index_remap: bool | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = field(default=())
    data_storage_version: str | None = None
    memory_limit: int | None = None
    verify: Verify = "write"

    @property
    def memory_limit_bytes(self) -> int:
        """The memory limit, or the default."""
        return check_memory_limit(self.memory_limit)

    @property
    def may_copy(self) -> bool:
        """Whether encoded pages may be copied."""
        return self.compaction_mode in ("try_binary_copy", "force_binary_copy")

    def file_version(self, of_table: FileVersion) -> FileVersion:
        """The version of new files."""
        return of_table if self.data_storage_version is None else version_of_name(self.data_storage_version)

    def to_json(self) -> dict[str, Any]:
        """The options in the form of pylance's tasks; omits options that pylance lacks if they have the default."""
        values = {**asdict(self), "defer_index_remap": bool(self.defer_index_remap)}
        if self.defer_index_remap is False:
            values[_NEVER_DEFERS] = True
        values["excluded_fragment_ids"] = list(self.excluded_fragment_ids)
        for name in ("memory_limit", "verify"):
            if values[name] == getattr(_DEFAULTS, name):
                del values[name]
        return {
            **values,
            "index_remap_mode": "Direct",
            "enable_binary_copy": False,
            "enable_binary_copy_force": False,
            "max_overlays_per_fragment": 10,
            "has_eager_remappable_index": None,
            "compaction_mode": None if self.compaction_mode is None else _MODE_NAMES[self.compaction_mode],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; ignores unknown keys."""
        known = {name: value for name, value in values.items() if name in _NAMES}
        if not known.get("defer_index_remap"):
            known["defer_index_remap"] = False if values.get(_NEVER_DEFERS) else None
        known["excluded_fragment_ids"] = tuple(known.get("excluded_fragment_ids") or ())
        mode = known.get("compaction_mode")
        known["compaction_mode"] = next((ours for ours, theirs in _MODE_NAMES.items() if mode in (ours, theirs)), None)
        return cls(**known)


_MODE_NAMES: Final[dict[CompactionMode, str]] = {
    "reencode": "Reencode",
    "try_binary_copy": "TryBinaryCopy",
    "force_binary_copy": "ForceBinaryCopy",
}
_NAMES: Final = {option.name: str(option.type) for option in fields(CompactionSettings)}
_DEFAULTS: Final = CompactionSettings()


def compaction_options(
    given: Mapping[str, Any], config: Mapping[str, str], table_version: FileVersion
) -> CompactionSettings:
    """The options of one compaction.

    given          keywords; None takes the configuration or the default
    config         configuration of the table
    table_version  file version of the table

    Raises `UsageError` for an unknown name or an invalid value, `TypeError` and `OverflowError` for a value of a wrong
    type, `OperationError` for a limit of zero and for a file version that cannot be mixed with the table's.
    """
    values: dict[str, Any] = {}
    for name in _NAMES.keys() - _NOT_IN_CONFIG:
        text = config.get(CONFIG_PREFIX + name)
        if text is not None:
            values[name] = _parse(name, text)
    for name, value in given.items():
        if name not in _NAMES:
            raise UsageError(f"Invalid compaction option: {name}")
        if value is not None:
            values[name] = _check_type(name, value)
    options = CompactionSettings(**values)
    for name in _LIMITS:
        if getattr(options, name) == 0:
            raise OperationError(f"CompactionOptions::{name} must be greater than 0 (use None for no limit)")
    if options.num_threads == 0:
        raise UsageError("num_threads must be at least 1, got 0")
    if options.max_rows_per_group < 1:
        raise UsageError(f"max_rows_per_group must be at least 1, got {options.max_rows_per_group}")
    check_memory_limit(options.memory_limit)
    version = table_version
    if options.data_storage_version is not None:
        version = version_for_tables(options.data_storage_version)
        check_mixture(version, table_version)
    return replace(options, data_storage_version=version.name)


def _parse(name: str, text: str) -> Any:
    """A value of the configuration. Raises `UsageError`."""
    kind = _NAMES[name]
    try:
        if kind.startswith("bool"):
            return {"true": True, "false": False}[text.lower()]
        if kind.startswith("int"):
            return _check_type(name, int(text))
        return _check_type(name, float(text) if kind == "float" else text)
    except (KeyError, ValueError, OverflowError) as error:
        raise UsageError(f"Invalid value for {CONFIG_PREFIX}{name}: {text!r} is no {kind.partition(' ')[0]}") from error


def _check_type(name: str, value: Any) -> Any:
    kind = _NAMES[name]
    if name == "excluded_fragment_ids":
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise TypeError(f"'{type(value).__name__}' object is not an instance of 'Sequence'")
        return tuple(_count(name, item) for item in value)
    if kind.startswith("bool"):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, found {value!r}")
        return value
    if kind == "float":
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise TypeError(f"{name} must be real number, not {type(value).__name__}")
        return float(value)
    if kind.startswith("int"):
        return _count(name, value)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, found {value!r}")
    choices = {"compaction_mode": get_args(CompactionMode), "verify": get_args(Verify)}.get(name)
    if choices is not None and value not in choices:
        shown = ", ".join(f'"{choice}"' for choice in choices)
        raise UsageError(f'Invalid {name.replace("_", " ")} "{value}". Valid values: {shown}')
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {type(value).__name__!r} object cannot be interpreted as an integer")
    number = operator.index(value)
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    return number
