"""The keyword arguments of `scanner()` as one checked, immutable value.

None means "not given" everywhere, so that a dataset's `default_scan_options` can fill in.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from lance_io.errors import UnsupportedError, UsageError
from lance_io.lazy_names import lazy_module
from lance_io.limits import BATCH_BYTES, BATCH_ROWS, from_environment
from lance_io.reads.version.column_lists import MOMENT, columns_key
from lance_io.runtime import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.reads.scan.text import full_text_request as text_requests
    from lance_io.reads.scan.text.full_text_request import TextRequest
    from lance_io.reads.scan.vector_query import VectorQuery
    from lance_io.reads.version.state import FragmentPlace
else:
    text_requests = lazy_module("lance_io.reads.scan.text.full_text_request")  # for searches only

BlobHandling: TypeAlias = Literal["all_binary", "blobs_descriptions", "all_descriptions"]
BLOB_HANDLINGS: Final = ("all_binary", "all_descriptions", "blobs_descriptions")
BATCH_ROWS_MAX: Final = (1 << 32) - 1
LIMIT_END: Final = 1 << 63  # for a limit or an offset

# Keywords that are not offered. They are refused, because ignoring them would change rows.
_LATER: Final = {
    "index_segments": "index segments",
    "row_addr_allowlist": "row address filters",
    "row_addr_blocklist": "row address filters",
}
# Hints about indices and statistics, which do not change the rows of a scan, and keywords for searches only.
_HINTS: Final = ("prefilter", "use_stats", "fast_search", "use_scalar_index", "disable_scoring_autoprojection")
_FLAGS: Final = (
    *_HINTS,
    "scan_in_order",
    "with_row_id",
    "with_row_address",
    "include_deleted_rows",
    "strict_batch_size",
)

# Counts of rows, bytes or batches.
_COUNTS: Final = (
    "limit",
    "offset",
    "batch_size",
    "batch_size_bytes",
    "batch_readahead",
    "fragment_readahead",
    "io_buffer_size",
)
# Defaults that the environment may set for every scan, with the minimum value.
_VARIABLES: Final = {
    "LANCE_DEFAULT_BATCH_SIZE": ("batch_size", 1),
    "LANCE_DEFAULT_FRAGMENT_READAHEAD": ("fragment_readahead", 1),
    "LANCE_DEFAULT_IO_BUFFER_SIZE": ("io_buffer_size", 0),
}


class UnknownOption(UsageError, TypeError):
    """An unknown scan keyword: to Python a wrong call, to pylance a wrong entry of `default_scan_options`."""


@dataclass(frozen=True, slots=True)
class ColumnOrdering:
    """One key of `order_by`.

    Attributes:
        column_name: Name or dotted path.
        ascending: True sorts the smallest value first.
        nulls_first: True sorts nulls before all values.
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The keywords of `scanner()`; see there.

    starts_small  internal: the consumer may want only the first batch, as engines do that take a stream
    """

    columns: Any = None
    filter: Any = None
    limit: int | None = None
    offset: int | None = None
    batch_size: int | None = None
    batch_size_bytes: int | None = None
    batch_readahead: int | None = None
    fragment_readahead: int | None = None
    scan_in_order: bool | None = None
    fragments: Sequence[int | FragmentPlace] | None = None
    with_row_id: bool | None = None
    with_row_address: bool | None = None
    io_buffer_size: int | None = None
    late_materialization: bool | list[str] | None = None
    blob_handling: BlobHandling | None = None
    include_deleted_rows: bool | None = None
    scan_stats_callback: Callable[[Any], None] | None = None
    strict_batch_size: bool | None = None
    order_by: Sequence[ColumnOrdering] | None = None
    timeout: float | None = None
    starts_small: bool = False
    nearest: VectorQuery | None = None
    full_text_query: TextRequest | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_search(self) -> bool:
        """Whether rows are ordered by how well they match a query."""
        return self.nearest is not None or self.full_text_query is not None

    @property
    def plan_key(self) -> tuple[Any, ...] | None:
        """A hashable value that is equal for options of which the same rows and columns follow; None if there is none.

        Filters that show the current time have none, nor have those of Arrow, nor computed columns.
        """
        late = self.late_materialization
        if not isinstance(self.filter, str) or self.fragments is not None or self.is_search or isinstance(late, list):
            return None
        if isinstance(self.columns, dict) or self.include_deleted_rows or MOMENT.search(self.filter):
            return None
        rows = self.filter, self.limit, self.offset, self.with_row_id, self.with_row_address
        return columns_key(self.columns), *rows, late, self.blob_handling, *self.hints.items()

    def rows_alone(self) -> ScanOptions:
        """The options of a scan of the same rows before a search, an order and a limit, without output columns."""
        return replace(
            self,
            nearest=None,
            full_text_query=None,
            columns=[],
            limit=None,
            offset=None,
            order_by=None,
            with_row_id=None,
            with_row_address=None,
            blob_handling=None,
        )

    @property
    def batch_rows(self) -> int:
        """Maximum rows of a batch."""
        return BATCH_ROWS if self.batch_size is None else self.batch_size

    @property
    def cut_bytes(self) -> int | None:
        """Maximum bytes of values of a batch of several rows; None if the caller requested a number of rows."""
        if self.batch_size_bytes is not None:
            return self.batch_size_bytes
        return None if self.batch_size is not None or self.strict_batch_size else BATCH_BYTES

    def with_defaults(self, defaults: Mapping[str, Any] | None) -> ScanOptions:
        """These options, filled in from `default_scan_options` and then from the environment.

        defaults  None for scans without the dataset's defaults: those of one fragment, and counts
        """
        from_variables = {name: from_environment(key, None, least=least) for key, (name, least) in _VARIABLES.items()}
        defaults = {**{name: value for name, value in from_variables.items() if value is not None}, **(defaults or {})}
        if not defaults:
            return self
        given = {
            option.name: getattr(self, option.name) for option in fields(self) if getattr(self, option.name) is not None
        }
        filled = scan_options(**defaults)
        given["hints"] = {**filled.hints, **{name: hint for name, hint in self.hints.items() if hint is not None}}
        return replace(filled, **given)


_NAMES: Final = frozenset(option.name for option in fields(ScanOptions)) - {"hints", "starts_small"}


def scan_options(**given: Any) -> ScanOptions:
    """Check the keywords of a scan.

    Raises `UnsupportedError` for a keyword that needs an index, `UnknownOption` for an unknown name, `ValueError` for a
    value out of range, `OverflowError` for a negative batch size and `TypeError` for a value of the wrong type, as
    pylance does.
    """
    known: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None and name in _FLAGS and not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{name} must be a bool, got {type(value)}")
        if name in _HINTS:
            hints[name] = value
        elif name in _LATER:
            if value is not None:
                raise UnsupportedError(f"{name}: {_LATER[name]} needs an index, which this release does not read")
        elif name not in _NAMES:
            raise UnknownOption(f"Unknown option {name}")
        elif value is not None:
            known[name] = _count(name, value) if name in _COUNTS else value
    if isinstance(known.get("filter"), dict):
        raise UnsupportedError("filter: a search query needs an index, which this release does not read")
    if "order_by" in known:
        known["order_by"] = orderings(known["order_by"])
    if "nearest" in known:
        known["nearest"] = _vector_query(known["nearest"])
    if "full_text_query" in known:
        known["full_text_query"] = _text_request(known["full_text_query"])
        if "nearest" in known:
            raise UsageError("a scan has either nearest or full_text_query: search twice, and join the results")
    if "timeout" in known:
        known["timeout"] = seconds(known["timeout"])
    options = ScanOptions(**known, hints=hints)
    _check_numbers(options)
    _check_choices(options)
    return options


def _vector_query(given: Any) -> VectorQuery:
    """Check `nearest`, a mapping of the keywords of `ScannerBuilder.nearest`."""
    from lance_io.reads.scan.vector_query import VectorQuery, vector_query  # for searches only

    return given if isinstance(given, VectorQuery) else vector_query(**given)


def _text_request(given: Any) -> TextRequest:
    """Check `full_text_query`: words, `{"query", "columns"}` or a query of `lance_io.query`."""
    return given if isinstance(given, text_requests.TextRequest) else text_requests.text_request(given)


def _count(name: str, value: Any) -> int:
    """A whole number. Raises `TypeError` for other values, `OverflowError` for one that is too large for pylance."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {type(value).__name__!r} object cannot be interpreted as an integer, found {value!r}")
    number = operator.index(value)
    end = LIMIT_END if name in ("limit", "offset") else 1 << 64
    if number >= end:
        raise OverflowError(
            f"{name} must be below 2**{end.bit_length() - 1}, found {number}; leave it out for no bound"
        )
    return number


def limit_rows(options: ScanOptions, num_rows: int) -> ScanOptions:
    """The same scan with at most `num_rows` rows. Raises `ValueError` for a negative number."""
    num_rows = _count("limit", num_rows)
    if num_rows < 0:
        raise UsageError("Limit must be non-negative")
    return replace(options, limit=num_rows if options.limit is None else min(num_rows, options.limit))


def orderings(given: Any) -> tuple[ColumnOrdering, ...] | None:
    """`order_by` as a tuple; a name means an ascending ordering. None when empty."""
    if isinstance(given, (str, ColumnOrdering)):
        given = [given]
    result: list[ColumnOrdering] = []
    for ordering in given:
        if isinstance(ordering, str):
            result.append(ColumnOrdering(ordering))
        elif hasattr(ordering, "column_name"):
            result.append(ColumnOrdering(ordering.column_name, bool(ordering.ascending), bool(ordering.nulls_first)))
        else:
            raise TypeError(f"order_by takes names or ColumnOrdering, got {type(ordering)}")
    return tuple(result) or None


def _check_numbers(options: ScanOptions) -> None:
    if options.limit is not None and options.limit < 0:
        raise UsageError("Limit must be non-negative")
    if options.offset is not None and options.offset < 0:
        raise UsageError("Offset must be non-negative")
    if options.batch_size is not None:
        if options.batch_size < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if not 1 <= options.batch_size <= BATCH_ROWS_MAX:
            raise UsageError(f"batch_size must be between 1 and {BATCH_ROWS_MAX}, got {options.batch_size}")
    if options.fragment_readahead is not None and options.fragment_readahead < 0:  # 0: the default number of fragments
        raise UsageError("fragment_readahead must be non-negative")
    for name in ("batch_size_bytes", "io_buffer_size"):  # 0 of the latter: no bound
        value = getattr(options, name)
        if value is not None and value < 0:
            raise OverflowError("can't convert negative int to unsigned")
    for name in ("batch_readahead", "batch_size_bytes"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be greater than 0")


def _check_choices(options: ScanOptions) -> None:
    if options.blob_handling is not None and options.blob_handling not in BLOB_HANDLINGS:
        expected = ", ".join(BLOB_HANDLINGS)
        raise UsageError(f"Invalid blob_handling: {options.blob_handling}. Expected one of: {expected}")
    late = options.late_materialization
    if late is not None and not isinstance(late, bool):
        if not isinstance(late, list) or not all(isinstance(name, str) for name in late):
            raise UsageError("late_materialization must be a bool or a list of strings")
    if options.strict_batch_size and options.batch_size_bytes is not None:
        raise UsageError(
            f"strict_batch_size=true cannot be combined with batch_size_bytes={options.batch_size_bytes}; "
            "strict row batching can merge batches beyond the byte limit"
        )
    if options.include_deleted_rows and not options.with_row_id:
        raise UsageError("include_deleted_rows is set but with_row_id is false")
