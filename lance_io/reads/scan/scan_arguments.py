"""Arguments of a scan: its keywords for type checkers, and their order. `LanceDataset.scanner` documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from lance_io.reads.scan.scan_options import ColumnOrdering
    from lance_io.reads.scan.scan_statistics import ScanStatistics


class ScanKeywords(TypedDict, total=False):
    """All keywords of a scan except `columns`, `filter`, `limit` and `offset`."""

    nearest: Any
    batch_size: int | None
    batch_size_bytes: int | None
    batch_readahead: int | None
    fragment_readahead: int | None
    scan_in_order: bool | None
    fragments: Iterable[Any] | None
    index_segments: Any
    full_text_query: Any
    prefilter: bool | None
    with_row_id: bool | None
    with_row_address: bool | None
    use_stats: bool | None
    fast_search: bool | None
    io_buffer_size: int | None
    late_materialization: bool | list[str] | None
    blob_handling: Literal["all_binary", "blobs_descriptions", "all_descriptions"] | None
    use_scalar_index: bool | None
    include_deleted_rows: bool | None
    scan_stats_callback: Callable[[ScanStatistics], None] | None
    strict_batch_size: bool | None
    order_by: Sequence[ColumnOrdering | str] | str | None
    disable_scoring_autoprojection: bool | None
    row_addr_allowlist: bytes | None
    row_addr_blocklist: bytes | None
    timeout: float | timedelta | None


SCAN_KEYWORDS: Final = frozenset(ScanKeywords.__annotations__)

_OF_DATASETS: Final = (
    "nearest",
    "batch_size",
    "batch_size_bytes",
    "batch_readahead",
    "fragment_readahead",
    "scan_in_order",
)
_OF_FRAGMENTS: Final = ("with_row_id", "with_row_address")

POSITIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "scanner": (*_OF_DATASETS, "fragments", "index_segments", "full_text_query"),
    "to_table": _OF_DATASETS,
    "to_batches": _OF_DATASETS,
    "to_pandas": ("nearest", "batch_size", "batch_readahead", "fragment_readahead", "scan_in_order"),
    "fragment.to_table": (
        *_OF_FRAGMENTS,
        "blob_handling",
        "order_by",
        "use_scalar_index",
        "io_buffer_size",
        "late_materialization",
        "include_deleted_rows",
        "batch_size_bytes",
        "strict_batch_size",
    ),
    "fragment.to_pandas": ("batch_size", *_OF_FRAGMENTS, "blob_mode", "order_by"),
}
"""What each method takes by position behind `columns`, `filter`, `limit` and `offset`, in pylance's order."""


def named(method: str, more: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a method, merged with arguments by position. Raises `TypeError` as Python does."""
    names = POSITIONAL[method]
    shown = method.rpartition(".")[2]
    if len(more) > len(names):
        raise TypeError(f"{shown}() takes at most {4 + len(names)} arguments by position, found {4 + len(more)}")
    given = dict(zip(names, more, strict=False))
    for name in given:
        if name in options:
            raise TypeError(f"{shown}() got multiple values for argument {name!r}")
    return {**given, **options}
