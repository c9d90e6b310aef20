"""One handle asked twice, with one option changed, answers as pylance does each time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import lance
import pyarrow as pa
import pytest
from lance.blob import blob_array, blob_field

import lance_io
from lance_io.reads.scan.scan_options import _HINTS, ScanOptions
from lance_io.reads.version.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS: Final = 40
BLOBS: Final = [None if i % 6 == 5 else bytes([i]) * (i % 9) for i in range(NUM_ROWS)]
MARKED: Final = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})

# Values of each option of a scan, and what is asked besides while they change.
SCANS: Final[dict[str, list[Any]]] = {
    "columns": [None, ["i"], ["t", "i"], ["i", "t"], ["s.x"], ["s"], ["b"], [], {"i": "i"}, {"i": "i + 1"}, {"t": "i"}],
    "filter": [None, "i > 10", "i > 11", "t = 't3'", pa.compute.field("i") > 10, pa.compute.field("i") > 11],
    "limit": [None, 0, 3, 4],
    "offset": [None, 1, 12],
    "batch_size": [None, 1, 7],
    "with_row_id": [None, False, True],
    "with_row_address": [None, False, True],
    "blob_handling": [None, "all_binary", "blobs_descriptions", "all_descriptions"],
    "order_by": [None, ["i"], ["s.x"], ["t", "i"]],
    "late_materialization": [None, True, False, ["t"]],
    "scan_in_order": [None, True],
    "use_stats": [None, False],
}
BESIDES: Final[list[dict[str, Any]]] = [
    {},
    {"columns": ["i", "b"], "with_row_id": True},
    {"columns": ["t"], "filter": "i > 5", "with_row_address": True, "blob_handling": "all_binary"},
    {"columns": ["_rowid", "i", "_rowaddr"], "limit": 9},
]
# Options of which the rows do not depend, and `fragments`, whose values are the numbers of fragments.
QUIET: Final[dict[str, list[Any]]] = {
    "batch_size_bytes": [1, 400],
    "batch_readahead": [1, 3],
    "fragment_readahead": [1, 3],
    "io_buffer_size": [0, 1 << 16],
    "strict_batch_size": [False, True],
    "prefilter": [False, True],
    "fast_search": [False],
    "use_scalar_index": [False, True],
    "disable_scoring_autoprojection": [False, True],
    "scan_stats_callback": [lambda _: None],
    "fragments": [[], [1], [2, 0], [1, 2]],
    "timeout": [60, 3600.0],
}
DELETED: Final[list[dict[str, Any]]] = [{"include_deleted_rows": value, "with_row_id": True} for value in (True, False)]


@pytest.fixture(scope="module", params=["2.1", "2.2", "stable"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four fragments with a blob column, of the first kind in files of 2.1; some rows are deleted."""
    path = str(tmp_path_factory.mktemp("handle") / "t.lance")
    version = "2.2" if request.param == "stable" else request.param
    field, blobs = (
        (MARKED, pa.array(BLOBS, pa.large_binary())) if version == "2.1" else (blob_field("b"), blob_array(BLOBS))
    )
    columns = [
        pa.array(range(NUM_ROWS)),
        pa.array([f"t{i}" for i in range(NUM_ROWS)]),
        pa.array([{"x": NUM_ROWS - i, "y": str(i)} for i in range(NUM_ROWS)]),
        blobs,
    ]
    names = [pa.field("i", pa.int64()), pa.field("t", pa.string()), pa.field("s", columns[2].type), field]
    table = lance.write_dataset(
        pa.table(columns, schema=pa.schema(names)),
        path,
        max_rows_per_file=10,
        data_storage_version=version,
        enable_stable_row_ids=request.param == "stable",
    )
    table.delete("i in (3, 17, 18)")
    return path


FAILED: Final = "an error"
Call: TypeAlias = "Callable[[Any], Any]"  # of a handle, ours or pylance's


def answer(call: Call, handle: Any) -> Any:
    """What a call gives: names, types and rows; or that it fails."""
    try:
        found = call(handle)
    except Exception:
        return FAILED
    if isinstance(found, pa.Table):
        return [(field.name, field.type) for field in found.schema], found.to_pylist()
    return found


def assert_independent(uri: str, calls: dict[str, Call]) -> None:
    """On one handle in this order, and on another one in the reverse order: each call comes before each other one.

    Each must give what pylance gives, if that gives anything: what other handles of ours have asked is remembered with
    the schema, so that they would not do for a reference.
    """
    expected = {name: given for name, call in calls.items() if (given := answer(call, lance.dataset(uri))) != FAILED}
    for names in ([*calls], [*reversed(calls)]):
        handle = lance_io.dataset(uri, session=Session())
        for name in names:
            got = answer(calls[name], handle)
            assert got == expected.setdefault(name, got), f"{name} in {names}"


def scans(option: str, besides: dict[str, Any]) -> dict[str, Call]:
    """Scans that differ in one option."""
    asked = [{**besides, option: value} for value in SCANS[option]]
    return {str(one): lambda handle, one=one: handle.to_table(**one) for one in asked}


@pytest.mark.parametrize("besides", BESIDES, ids=["plain", "row ids", "filter", "row columns"])
@pytest.mark.parametrize("option", SCANS)
def test_scans(uri: str, option: str, besides: dict[str, Any]) -> None:
    calls = scans(option, besides)
    assert_independent(uri, calls)


def scan(asked: dict[str, Any], handle: Any) -> pa.Table:
    """A scan, perhaps of some fragments by their numbers."""
    if "fragments" in asked:
        asked = {**asked, "fragments": [handle.get_fragment(number) for number in asked["fragments"]]}
    return handle.to_table(**asked)


@pytest.mark.parametrize("besides", BESIDES, ids=["plain", "row ids", "filter", "row columns"])
def test_scans_that_differ_in_what_rows_do_not_depend_on(uri: str, besides: dict[str, Any]) -> None:
    changes: list[dict[str, Any]] = [{}]
    changes += [{option: value} for option, values in QUIET.items() for value in values]
    assert_independent(uri, {str(one): partial(scan, {**besides, **one}) for one in changes})


def test_searches(tmp_path: Path) -> None:
    """Of vectors of small whole numbers, whose distances are exact."""
    vectors = pa.array([[i % 7, i % 5, i] for i in range(NUM_ROWS)], pa.list_(pa.float32(), 3))
    lance.write_dataset(pa.table({"i": range(NUM_ROWS), "v": vectors}), tmp_path / "t.lance")
    searches: list[dict[str, Any]] = [
        {"column": "v", "q": [1.0, 2.0, 3.0 * k], "k": k, "metric": metric} for k in (1, 4) for metric in ("l2", "dot")
    ]
    searches.append({**searches[0], "distance_range": (None, 3.0)})
    asked = [{"nearest": search, **besides} for search in searches for besides in ({}, {"filter": "i > 10"})]
    calls: dict[str, Call] = {str(one): lambda handle, one=one: handle.to_table(**one) for one in asked}
    assert_independent(str(tmp_path / "t.lance"), calls | {"all": lambda handle: handle.to_table()})


def matching_rows(options: dict[str, Any], handle: Any) -> list[int]:
    """The rows that a search of texts gives, by number."""
    return sorted(handle.to_table(columns=["i"], **options)["i"].to_pylist())


def test_searches_of_texts(tmp_path: Path) -> None:
    """Of an indexed column and a column without an index."""
    words = [[f"w{i % 3} w{i % 4 + 10}" for i in range(NUM_ROWS)], [f"w{i % 5} w{i % 2 + 20}" for i in range(NUM_ROWS)]]
    table = lance.write_dataset(pa.table({"i": range(NUM_ROWS), "s": words[0], "t": words[1]}), tmp_path / "t.lance")
    table.create_scalar_index("s", "INVERTED")
    queries: list[Any] = ["w1", "w2 w11", {"query": "w1", "columns": ["t"]}, {"query": "w1 w20", "columns": ["s", "t"]}]
    asked = [{"full_text_query": query, **besides} for query in queries for besides in ({}, {"filter": "i > 10"})]
    calls: dict[str, Call] = {str(options): partial(matching_rows, options) for options in asked}
    assert_independent(str(tmp_path / "t.lance"), calls | {"all": lambda handle: handle.to_table()})


def test_no_option_is_left_out() -> None:
    named = {*SCANS, *QUIET, "include_deleted_rows", "nearest", "full_text_query"}
    no_keywords = {"hints", "starts_small"}
    assert {*ScanOptions.__dataclass_fields__, *_HINTS} - no_keywords == named


def test_batches_of_several_sizes(uri: str) -> None:
    handle = lance_io.dataset(uri, session=Session())
    for batch_size in (7, 1, 1000, 7):
        for strict in (False, True):
            sizes = [len(one) for one in handle.to_batches(["i"], batch_size=batch_size, strict_batch_size=strict)]
            assert sum(sizes) == NUM_ROWS - 3 and max(sizes) == min(batch_size, NUM_ROWS - 3 if strict else 10)
            assert not strict or {*sizes[:-1]} <= {batch_size}


def test_scans_with_deleted_rows(uri: str) -> None:
    assert_independent(uri, {str(one): lambda handle, one=one: handle.to_table(**one) for one in DELETED})


COLUMNS: Final[list[Any]] = [None, ["i"], ["b"], ["b", "i"], ["i", "b"], ["s.y"], {"i": "i + 1"}, []]


def ways(ids: list[int]) -> dict[str, Callable[[Any, Any], pa.Table]]:
    """To take columns of a handle."""
    return {
        "take": lambda columns, handle: handle.take([0, 30, 12], columns=columns),
        "rows": lambda columns, handle: handle._take_rows([ids[30], ids[1]], columns=columns),
        "fragment": lambda columns, handle: handle.get_fragment(1).take([0, 2], columns=columns),
        "fragment's scan": lambda columns, handle: handle.get_fragment(1).to_table(columns=columns),
        "scan": lambda columns, handle: handle.to_table(columns=columns),
    }


def test_takes(uri: str) -> None:
    """Of rows, row ids and rows of a fragment, which shows blobs of the first kind as bytes."""
    ids = lance.dataset(uri).to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    for columns in COLUMNS:
        assert_independent(uri, {f"{name} {columns}": partial(take, columns) for name, take in ways(ids).items()})
    for name, take in ways(ids).items():
        assert_independent(uri, {f"{name} {columns}": partial(take, columns) for columns in COLUMNS})
