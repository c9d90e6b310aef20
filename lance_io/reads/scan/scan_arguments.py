"""The keywords of a scan for type checkers; `LanceDataset.scanner` documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import timedelta

    from lance_io.reads.scan.scan_options import ColumnOrdering
    from lance_io.reads.scan.scan_statistics import ScanStatistics


class ScanKeywords(TypedDict, total=False):
    """Everything a scan takes besides `columns`, `filter`, `limit` and `offset`."""

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
