"""`ScannerBuilder`: the options of a scan, collected one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lance_io.dataset import scanner
from lance_io.lazy_names import lazy_module
from lance_io.not_offered import ScannerBuilderNotOffered
from lance_io.reads.scan.scan_options import scan_options

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.dataset.scanner import LanceScanner
    from lance_io.index.text.full_text_query import FullTextQuery
    from lance_io.reads.scan import vector_query as vector_queries
    from lance_io.reads.scan.text import full_text_request as text_requests
else:
    text_requests = lazy_module("lance_io.reads.scan.text.full_text_request")
    vector_queries = lazy_module("lance_io.reads.scan.vector_query")


class ScannerBuilder(ScannerBuilderNotOffered):
    """Collects the options of a scan; `to_scanner` checks them.

    Every setter returns the builder. The dataset's `default_scan_options` apply only if you pass them to
    `apply_defaults`.

    Args:
        ds: The dataset to scan.
    """

    def __init__(self, ds: LanceDataset) -> None:
        self._dataset = ds
        self._given: dict[str, Any] = {}

    def _set(self, name: str, value: Any) -> Self:
        self._given[name] = value
        return self

    def apply_defaults(self, default_opts: dict[str, Any]) -> Self:
        """Set several options at once.

        Args:
            default_opts: Values by the names of the setters.
        """
        self._given.update(default_opts)
        return self

    def columns(self, cols: list[str] | dict[str, str] | None = None) -> Self:
        """Set the output columns.

        Args:
            cols: Names or paths, or a dict of new names and SQL expressions; None for all columns.
        """
        return self._set("columns", cols)

    def filter(self, filter: Any) -> Self:
        """Set the filter.

        Args:
            filter: SQL text or a boolean `pyarrow.compute` expression; None for all rows.
        """
        return self._set("filter", filter)

    def limit(self, n: int | None = None) -> Self:
        """Set the maximum number of rows.

        Args:
            n: Number of rows, after the filter; None for all.
        """
        return self._set("limit", n)

    def offset(self, n: int | None = None) -> Self:
        """Set the number of rows to skip.

        Args:
            n: Number of rows, after the filter; None for 0.
        """
        return self._set("offset", n)

    def batch_size(self, batch_size: int) -> Self:
        """Set the rows per batch.

        Args:
            batch_size: Maximum number of rows.
        """
        return self._set("batch_size", batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """Set the bytes per batch.

        Args:
            batch_size_bytes: Maximum bytes of values; a single row may have more.
        """
        return self._set("batch_size_bytes", batch_size_bytes)

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Set the number of batches decoded at once.

        Args:
            nbatches: Number of batches; None for the default.
        """
        return self._set("batch_readahead", nbatches)

    def fragment_readahead(self, nfragments: int | None = None) -> Self:
        """Set the number of fragments read at once.

        Args:
            nfragments: Number of fragments; None for the default.
        """
        return self._set("fragment_readahead", nfragments)

    def scan_in_order(self, scan_in_order: bool = True) -> Self:
        """Set whether rows keep their order.

        Args:
            scan_in_order: False lets fragments of slow stores arrive as they are ready.
        """
        return self._set("scan_in_order", scan_in_order)

    def with_fragments(self, fragments: Iterable[Any] | None) -> Self:
        """Restrict the scan to some fragments.

        Args:
            fragments: `LanceFragment`s, in the order to scan; None for all.

        Raises:
            TypeError: An element is no fragment.
        """
        return self._set("fragments", None if fragments is None else scanner.fragment_names(fragments))

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Set whether to append `_rowid`.

        Args:
            with_row_id: True appends the column.
        """
        return self._set("with_row_id", with_row_id)

    def with_row_address(self, with_row_address: bool = True) -> Self:
        """Set whether to append `_rowaddr`.

        Args:
            with_row_address: True appends the column.
        """
        return self._set("with_row_address", with_row_address)

    def io_buffer_size(self, io_buffer_size: int) -> Self:
        """Set the bound of the readahead.

        Args:
            io_buffer_size: Maximum bytes read and not yet consumed.
        """
        return self._set("io_buffer_size", io_buffer_size)

    def late_materialization(self, late_materialization: bool | list[str]) -> Self:
        """Set which columns are read only for rows that pass the filter.

        Args:
            late_materialization: True for all columns, False for none, or names of columns.
        """
        return self._set("late_materialization", late_materialization)

    def blob_handling(self, blob_handling: str | None) -> Self:
        """Set the form of blob columns.

        Args:
            blob_handling: "blobs_descriptions" or "all_binary"; None for the default, descriptions.
        """
        return self._set("blob_handling", blob_handling)

    def include_deleted_rows(self, flag: bool) -> Self:
        """Set whether to include deleted rows, with a null row id.

        Args:
            flag: True includes them; needs `with_row_id`.
        """
        return self._set("include_deleted_rows", flag)

    def scan_stats_callback(self, callback: Any) -> Self:
        """Set a callback for statistics.

        Args:
            callback: Called with `ScanStatistics` at the end of each run.
        """
        return self._set("scan_stats_callback", callback)

    def strict_batch_size(self, strict_batch_size: bool = False) -> Self:
        """Set whether all batches but the last have `batch_size` rows.

        Args:
            strict_batch_size: True lets batches span fragments.
        """
        return self._set("strict_batch_size", strict_batch_size)

    def order_by(self, orderings: Any) -> Self:
        """Sort the rows.

        Args:
            orderings: Names or `ColumnOrdering`s.
        """
        return self._set("order_by", orderings)

    def use_stats(self, use_stats: bool = True) -> Self:
        """Set whether statistics may save reads. The rows are the same.

        Args:
            use_stats: False reads without statistics.
        """
        return self._set("use_stats", use_stats)

    def use_scalar_index(self, use_scalar_index: bool = True) -> Self:
        """Set whether an index may answer the filter. The rows are the same.

        Args:
            use_scalar_index: False answers the filter without indices.
        """
        return self._set("use_scalar_index", use_scalar_index)

    def prefilter(self, prefilter: bool) -> Self:
        """Set when a search applies the filter.

        Args:
            prefilter: True searches only rows that pass the filter; False filters the result of the search.
        """
        return self._set("prefilter", prefilter)

    def fast_search(self, flag: bool) -> Self:
        """Set whether a search leaves out fragments that no index covers.

        Args:
            flag: True leaves them out.
        """
        return self._set("fast_search", flag)

    def disable_scoring_autoprojection(self, disable: bool = True) -> Self:
        """Set whether the result of a search has `_distance` or `_score` only if `columns` name it.

        Args:
            disable: True adds no such column.
        """
        return self._set("disable_scoring_autoprojection", disable)

    def nearest(
        self,
        column: str,
        q: Any,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        ef: int | None = None,
        query_parallelism: int | None = None,
        approx_mode: Literal["fast", "normal", "accurate"] = "normal",
        distance_range: tuple[float | None, float | None] | None = None,
        search_effort: float | None = None,
    ) -> Self:
        """Find the rows whose vectors are nearest to `q`, by an IVF index of the column, else by comparing all vectors.

        Args:
            column: Name or dotted path of a column of vectors (fixed-size lists of float16, float32, float64, bfloat16
                or uint8), or of lists of these. In a list, the nearest vector gives the distance, summed over `q`.
            q: A vector, or several. For several, the search finds `k` rows for each, and `query_index` names the query.
            k: Rows to find; 10, or the limit of the scan, by default.
            metric: "l2" (squared), "cosine", "dot" or "hamming". By default that of the column's index, else "l2", and
                "hamming" for uint8, which has no other.
            nprobes: Partitions of an index to search.
            minimum_nprobes: Partitions to search at first; more while there are fewer than `k` rows.
            maximum_nprobes: Partitions to search at most.
            refine_factor: Computes the exact distances of this many times `k` candidates of an index.
            use_index: Whether an index answers the search; it also decides the default metric.
            ef: Checked; no effect, as graphs are not read.
            query_parallelism: Checked; no effect.
            approx_mode: Checked; no effect.
            distance_range: `(lower, upper)`: keeps distances `lower <= d < upper`; None for no bound.
            search_effort: From 0, the minimum, to 1, all partitions; `nprobes` is then ignored.

        Raises:
            TypeError: A value has the wrong type, or the column holds no vectors.
            ValueError: A value is out of range, or the column does not exist.
        """
        query = vector_queries.vector_query(
            column,
            q,
            k=k,
            metric=metric,
            nprobes=nprobes,
            minimum_nprobes=minimum_nprobes,
            maximum_nprobes=maximum_nprobes,
            refine_factor=refine_factor,
            use_index=use_index,
            ef=ef,
            query_parallelism=query_parallelism,
            approx_mode=approx_mode,
            distance_range=distance_range,
            search_effort=search_effort,
        )
        vector_queries.vector_column(self._dataset._state.schema, query)
        return self._set("nearest", query)

    def full_text_search(self, query: str | FullTextQuery, columns: list[str] | None = None) -> Self:
        """Find the rows that have words, by full-text indices, else by searching all texts. The best are first.

        Args:
            query: Words, or a query of `lance_io.query`.
            columns: Where words are looked for; None for all columns with an index. Ignored for a query.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: `columns` is empty.
        """
        given = {"query": query} if columns is None else {"query": query, "columns": columns}
        return self._set("full_text_query", text_requests.text_request(given))

    def to_scanner(self) -> LanceScanner:
        """Build the scanner.

        Raises:
            ValueError: An option is unknown or has an invalid value.
            TypeError: An option has a value of the wrong type.
            NotImplementedError: An option needs an index that this release does not read.
        """
        return scanner.LanceScanner._of(self._dataset._state, scan_options(**self._given).with_defaults(None))
