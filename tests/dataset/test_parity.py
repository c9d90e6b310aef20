"""Our public names against pylance's, and those of the asynchronous classes against ours.

What is not offered is there, too, and says so when it is used (`interop/test_not_offered.py`).
"""

from __future__ import annotations

import inspect
from importlib import import_module
from inspect import getattr_static
from typing import Any

import lance
import lance.file
import pytest
from lance.dataset import LanceScanner as PeerScanner
from lance.dataset import ScannerBuilder as PeerBuilder

import lance_io
from lance_io.dataset import ScannerBuilder
from lance_io.dataset.fragment import AsyncFragment
from lance_io.dataset.scanner import AsyncScanner
from lance_io.file import AsyncFileReader, LanceFileReader
from lance_io.not_offered import NotOffered, NotOfferedProperty
from lance_io.reads.scan.scan_arguments import SCAN_KEYWORDS

PEERS = {
    lance_io.LanceDataset: lance.LanceDataset,
    lance_io.LanceScanner: PeerScanner,
    lance_io.LanceFragment: lance.LanceFragment,
    ScannerBuilder: PeerBuilder,
    LanceFileReader: lance.file.LanceFileReader,
    lance_io.BlobFile: lance.BlobFile,
}
REFUSED = {"join", "join_asof", "sort_by", "replace_schema"}  # raise whatever they are given
OF_OTHER_INDICES = {  # keywords of vector and full text indices, which are ignored where scalar ones are built
    *("metric", "replace", "num_partitions", "ivf_centroids", "pq_codebook", "num_sub_vectors", "accelerator"),
    *("index_cache_size", "shuffle_partition_batches", "shuffle_partition_concurrency", "ivf_centroids_file"),
    *("precomputed_partition_dataset", "storage_options", "filter_nan", "target_partition_size"),
    *("streaming_sample_rate", "streaming_coreset_rate", "streaming_refine_passes", "skip_transpose", "rabitq_model"),
    "document_granularity",
}
NOT_GIVEN = (None, False)  # a scan keyword of a fragment that is left out, by either library


def is_not_offered(ours: type, name: str) -> bool:
    return isinstance(getattr_static(ours, name), (NotOffered, NotOfferedProperty))


MODULES = {  # what programs import by name from pylance's modules
    "": """
        dataset write_dataset LanceDataset LanceFragment LanceScanner LanceOperation Transaction FragmentMetadata
        Session BlobFile BlobColumn Blob blob_array blob_field DataStatistics FieldStatistics ScanStatistics
        CleanupStats DatasetBasePath schema_to_json json_to_schema set_logger bytes_read_counter iops_counter
        __version__
    """,
    ".dataset": """
        LanceDataset LanceScanner ScannerBuilder LanceOperation Transaction ColumnOrdering Tags Branches LanceStats
        Index AutoCleanupConfig write_dataset LANCE_COMMIT_MESSAGE_KEY
    """,
    ".fragment": "LanceFragment FragmentMetadata DataFile DeletionFile RowIdMeta write_fragments",
    ".file": "LanceFileReader LanceFileWriter LanceFileSession ReaderResults stable_version",
    ".schema": "LanceSchema schema_to_json json_to_schema",
    ".commit": "CommitConflictError CommitLock",
    ".blob": "Blob BlobColumn BlobFile blob_array blob_field",
    ".log": "set_logger",
    ".progress": "FragmentWriteProgress NoopFragmentWriteProgress",
    ".util": "sanitize_ts td_to_micros",
}


def names(cls: type) -> set[str]:
    """Public names of a class."""
    return {name for name in dir(cls) if not name.startswith("_")}


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Parameters by name, without `self`."""
    found = inspect.signature(function).parameters
    return {name: one for name, one in found.items() if name != "self"}


def is_property(cls: type, name: str) -> bool:
    """Whether a name stands for a value rather than a method."""
    return not callable(inspect.getattr_static(cls, name)) and not callable(getattr(cls, name))


@pytest.mark.parametrize("ours", PEERS, ids=lambda cls: cls.__name__)
def test_every_name_is_there(ours: type) -> None:
    assert names(PEERS[ours]) - names(ours) == set()


@pytest.mark.parametrize("module", MODULES)
def test_names_are_imported_from_the_modules_of_pylance(module: str) -> None:
    ours, theirs = import_module(f"lance_io{module}"), import_module(f"lance{module}")
    expected = MODULES[module].split()
    assert [name for name in expected if not hasattr(theirs, name)] == []
    assert [name for name in expected if not hasattr(ours, name)] == []


METHODS = [
    pytest.param(ours, name, id=f"{ours.__name__}.{name}")
    for ours, theirs in PEERS.items()
    for name in sorted(names(ours) & names(theirs) - REFUSED)
    if not is_not_offered(ours, name)
]


@pytest.mark.parametrize(("ours", "name"), METHODS)
def test_parameters_have_the_names_and_defaults_of_pylance(ours: type, name: str) -> None:
    theirs = PEERS[ours]
    if is_property(theirs, name) or ours is lance_io.BlobFile:
        assert callable(getattr(ours, name)) or is_property(ours, name)
        return
    assert callable(getattr(ours, name))
    expected, found = parameters(getattr(theirs, name)), parameters(getattr(ours, name))
    takes_more = any(one.kind is one.VAR_KEYWORD for one in found.values())
    for key, one in expected.items():
        if one.kind is one.VAR_POSITIONAL:
            assert any(each.kind is each.VAR_POSITIONAL for each in found.values())
        elif one.kind is one.VAR_KEYWORD:
            assert takes_more
        elif key in found:
            assert found[key].default == one.default
        else:  # by name only, among the keywords of a scan
            assert takes_more
            if name in ("create_scalar_index", "create_index_uncommitted") and key in OF_OTHER_INDICES:
                continue
            assert key in SCAN_KEYWORDS | {"filter", "limit", "offset"}
            assert one.default in NOT_GIVEN or key == "batch_readahead"
    positional = [key for key, one in found.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert (
        positional == [key for key, one in expected.items() if one.kind is one.POSITIONAL_OR_KEYWORD][: len(positional)]
    )


def test_opening_and_scanning_take_the_same_keywords() -> None:
    """Theirs in their order; ours have five more, at the end."""
    ours = [(one.name, one.default) for one in parameters(lance_io.dataset).values()]
    theirs_too = [(one.name, one.default) for one in parameters(lance.dataset).values()]
    more = ("timeout", "filesystem", "storage_options_provider", "memory_limit", "max_decoded_bytes")
    assert ours == theirs_too + [(name, None) for name in more]
    theirs = set(parameters(lance.LanceDataset.scanner)) - {"columns", "filter", "limit", "offset"}
    assert theirs | {"timeout"} == SCAN_KEYWORDS


TWINS = [
    (AsyncFileReader, LanceFileReader, {"file_statistics"}),
    (lance_io.AsyncDataset, lance_io.LanceDataset, {"filter", "join", "join_asof", "partition_expression"}
     | {"replace_schema", "sort_by"}),
    (AsyncFragment, lance_io.LanceFragment, {"partition_expression"}),
    (
        AsyncScanner,
        lance_io.LanceScanner,
        {"from_batches", "from_dataset", "from_fragment", "scan_batches", "take", "to_reader"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("twin", "sync", "without"), TWINS, ids=lambda one: getattr(one, "__name__", ""))
def test_the_asynchronous_twin_has_every_name(twin: type, sync: type, without: set[str]) -> None:
    assert names(sync) - names(twin) == without
    for name in sorted(names(sync) & names(twin)):
        ours, theirs = getattr(sync, name), getattr(twin, name)
        if callable(ours) and callable(theirs):
            positional = [
                [one.name for one in parameters(method).values() if one.kind is one.POSITIONAL_OR_KEYWORD]
                for method in (ours, theirs)
            ]
            assert positional[0] == positional[1], name
