"""Names that pylance's classes have and this release does not offer; using one raises an error with an alternative.

Each name is an attribute, so that editors and documentation show it like any other. A method raises `UnsupportedError`
when it is called, a property when it is read. Both libraries work on the same tables, so you can use pylance for the
missing parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from lance_io.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

_CHANGE: Final = "let pylance make this change: `lance.dataset(uri).{name}(...)`, then `checkout_latest()` here"
_LOG: Final = "this release has no write-ahead log in memory; append with `insert` or `write_dataset`, or use pylance"
_OVERLAY: Final = "replace whole columns by `DataReplacement`, or commit overlays with pylance"
_SCANS: Final = "this release reads no write-ahead log in memory; use pylance"
_CLEANUP: Final = "`explain_cleanup_old_versions` gives totals; `all_files()` and `tracked_files()` list the files"
_BLOBS: Final = "write blobs by `blob_array` and `write_dataset`, and read them by `take_blobs` or `read_blobs`"


def _refusal(name: str, hint: str) -> Callable[..., NoReturn]:
    """A function that raises `UnsupportedError` with the name and the hint."""
    text = f"{name} is not offered by this release: {hint.format(name=name.rpartition('.')[2])}"

    def refuse(*args: object, **options: object) -> NoReturn:
        raise UnsupportedError(text)

    refuse.__name__, refuse.__qualname__, refuse.__doc__ = name.rpartition(".")[2], name, f"Not offered: {text}."
    return refuse


class NotOffered:
    """A method, or class of a namespace, that is not offered.

    hint  the alternative; `{name}` stands for the name
    """

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self._refuse = _refusal(name, self._hint)
        self.__doc__ = self._refuse.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., NoReturn]:
        return self._refuse


class NotOfferedProperty(property):
    """A property that is not offered; see `NotOffered`."""

    def __init__(self, hint: str) -> None:
        super().__init__(doc="Not offered.")
        self._hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self._refuse = _refusal(name, self._hint)
        self.__doc__ = self._refuse.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else self._refuse()


class DatasetNotOffered:
    """Names of `LanceDataset`."""

    from_pydantic_model = NotOffered("`write_dataset` takes a list of pydantic models")
    initialize_mem_wal = NotOffered(_LOG)
    mem_wal_index_details = NotOffered(_LOG)
    mem_wal_writer = NotOffered(_LOG)
    new_file_session = NotOffered("`lance_io.file.LanceFileSession(uri)` reads and writes files below a folder")
    remap_row_addrs = NotOffered("address rows by stable row ids, which a compaction keeps (`enable_stable_row_ids`)")
    storage_options_accessor = NotOfferedProperty("`latest_storage_options` has the options")


class ScannerBuilderNotOffered:
    """Names of `ScannerBuilder`."""

    minhash_search = NotOffered("this release searches no texts by MinHash; use pylance, on the same table")
    row_addr_prefilter = NotOffered("filter by `_rowaddr`, or take rows by `_take_rows`")
    substrait_aggregate = NotOffered("aggregate the batches of the scan, with `pyarrow.TableGroupBy` or DuckDB")
    with_index_segments = NotOffered("a search takes all segments of an index")


class OperationsNotOffered:
    """Names of `LanceOperation`."""

    DataOverlay = NotOffered(_OVERLAY)
    DataOverlayFile = NotOffered(_OVERLAY)
    DataOverlayGroup = NotOffered(_OVERLAY)


_ROOT: Final = {
    "BlobArray": "`lance_io.blob_array` makes an array of blobs",
    "BlobDescriptor": _BLOBS,
    "BlobDescriptorArrayBuilder": _BLOBS,
    "CleanupCandidateFile": _CLEANUP,
    "CleanupReferencedBranch": _CLEANUP,
    "CompactedSsTable": _LOG,
    "DedicatedBlobWriter": _BLOBS,
    "ExecutionPlan": "`scanner(...).explain_plan()` gives the plan as text",
    "FFILanceTableProvider": "DataFusion takes the batches of `scanner(...).to_reader()`",
    "LsmPointLookupPlanner": _SCANS,
    "LsmScanner": _SCANS,
    "LsmVectorSearchPlanner": _SCANS,
    "PackedBlobWriter": _BLOBS,
    "ShardSnapshot": _LOG,
    "ShardWriter": _LOG,
    "ShardingField": _LOG,
    "ShardingSpec": _LOG,
    "evaluate_sharding_spec": _LOG,
    "simd_info": "the kernels choose their instructions at run time and do not report them",
}


def not_offered(name: str) -> Callable[..., NoReturn] | None:
    """The substitute for a name of pylance's root that is not offered; None for any other name."""
    return _refusal(name, _ROOT[name]) if name in _ROOT else None
