"""Compactions leave indices as they are where pylance finds their rows afterwards, whatever it does next."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import optimize as lance_optimize

import lance_io
from lance_io.optimize import Compaction
from lance_io.plans.plan import drive_sync
from lance_io.reads.version.index_entries import load_indices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lance_io.table.manifest.index_section import IndexMetadata

SCALAR = {
    "BTREE": "a",
    "BITMAP": "b",
    "ZONEMAP": "c",
    "BLOOMFILTER": "d",
    "LABEL_LIST": "l",
    "NGRAM": "s",
    "INVERTED": "t",
}
VECTOR = ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ"]
GRAPHS = ["IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ"]
FILTERS = [  # the column first
    ("a", "a < 9"),
    ("a", "a in (1, 47, 203)"),
    ("a", "a is null"),
    ("b", "b = 33"),
    ("b", "b < 40"),
    ("c", "c > 190"),
    ("d", "d = 77"),
    ("l", "array_has_any(l, ['3'])"),
    ("s", "contains(s, 's4 ')"),
]


def rows(first: int, count: int, kinds: list[str]) -> pa.Table:
    """The columns that indices of these kinds are over."""
    numbers = range(first, first + count)
    vectors = pa.array(np.random.default_rng(first).random(count * 8, dtype="f4"))
    values = {
        "l": [[str(n % 5), str(n % 7)] for n in numbers],
        "v": pa.FixedSizeListArray.from_arrays(vectors, 8),
        **dict.fromkeys("abcd", pa.array([None if n % 17 == 0 else n for n in numbers], pa.int64())),
        **dict.fromkeys("st", pa.array([f"s{n % 10} w{n % 7}" for n in numbers])),
    }
    columns = {column(kind): values[SCALAR.get(kind, "v")] for kind in kinds}
    return pa.table({"id": pa.array(numbers, pa.int64()), **columns})


def column(kind: str) -> str:
    return SCALAR.get(kind, kind.lower())


def make(path: Path, kinds: list[str]) -> Path:
    """Six fragments of 50 rows with an index of each kind (PQ needs 256)."""
    for first in range(0, 300, 50):
        ds = lance.write_dataset(rows(first, 50, kinds), str(path), mode="append" if first else "create")
    for kind in kinds:
        if kind in SCALAR:
            ds.create_scalar_index(SCALAR[kind], kind, name=kind)
        else:
            more = {"num_sub_vectors": 2} if kind.endswith("PQ") else {}
            ds.create_index(column(kind), kind, name=kind, num_partitions=1, **more)
    return path


@pytest.fixture(scope="module", params=["plain", "graphs"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A table with all kinds but graphs of vectors, and one with all of these: they share what may be recorded."""
    kinds = [*SCALAR, *VECTOR] if request.param == "plain" else [*GRAPHS, "BITMAP"]
    return make(tmp_path_factory.mktemp(request.param) / "t.lance", kinds), kinds


def check(path: Path, kinds: list[str]) -> None:
    """By index pylance gives what it gives without; and so do we."""
    peer, mine = lance.dataset(str(path)), lance_io.dataset(str(path))
    for text in (text for name, text in FILTERS if name in peer.schema.names):
        by_scan = peer.to_table(columns=["id"], filter=text, use_scalar_index=False).sort_by("id")
        assert peer.to_table(columns=["id"], filter=text).sort_by("id").equals(by_scan), text
        assert mine.to_table(columns=["id"], filter=text).sort_by("id").equals(by_scan), text
    if "INVERTED" in kinds:
        wanted = [row["id"] for row in peer.to_table(columns=["id", "t"]).to_pylist() if "s4" in row["t"].split()]
        assert sorted(peer.to_table(columns=["id"], full_text_query="s4")["id"].to_pylist()) == sorted(wanted)
    query = np.random.default_rng(7).random(8, dtype="f4")
    for kind in kinds:
        if kind not in SCALAR:
            nearest = {"column": kind.lower(), "q": query, "k": 8}
            exact = peer.to_table(columns=["id"], nearest={**nearest, "use_index": False})["id"]
            more = {"refine_factor": 40} | ({"ef": 1000} if kind in GRAPHS else {})
            assert peer.to_table(columns=["id"], nearest={**nearest, **more})["id"].equals(exact), kind


def covered(path: Path) -> dict[str, set[int]]:
    """The live fragments that each index covers, as pylance has them."""
    ds = lance.dataset(str(path))
    live = {fragment.fragment_id for fragment in ds.get_fragments()}
    return {
        index.name: live.intersection(*(segment.fragment_ids for segment in index.segments))
        for index in ds.describe_indices()
        if not index.name.startswith("__")
    }


def expected(path: Path, kinds: list[str], *, gone: bool) -> dict[str, set[int]]:
    """What they should cover after a compaction of everything; gone: rows were deleted before it."""
    live = {fragment.fragment_id for fragment in lance.dataset(str(path)).get_fragments()}
    is_lost = gone and GRAPHS[0] in kinds
    return {kind: set() if is_lost else live for kind in kinds}


def record(path: Path) -> IndexMetadata | None:
    entries = drive_sync(load_indices(lance_io.dataset(str(path))._state))
    return next((one for one in entries if one.is_system), None)


def record_bytes(path: Path) -> int:
    entry = record(path)
    return 0 if entry is None or entry.message is None else len(entry.message.index_details.value)


@pytest.mark.parametrize("deletes", [(), (0,), (1,), (2,), (0, 1, 2)], ids=lambda ones: "".join(map(str, ones)) or "no")
def test_what_pylance_finds(tmp_path: Path, template: tuple[Path, list[str]], deletes: tuple[int, ...]) -> None:
    """Rows are deleted before, between and after two compactions; tasks of the first are committed in two commits."""
    source, kinds = template
    path = tmp_path / "t.lance"
    shutil.copytree(source, path)

    def delete(step: int) -> None:
        if step in deletes:
            lance.dataset(str(path)).delete(f"id % 5 = {step}")

    delete(0)
    ds = lance_io.dataset(str(path))
    results = [task.execute(ds) for task in Compaction.plan(ds, {"target_rows_per_fragment": 64}).tasks]
    assert len(results) > 2
    Compaction.commit(ds, results[1:])
    Compaction.commit(ds, results[:1])
    assert covered(path) == expected(path, kinds, gone=0 in deletes)
    check(path, kinds)
    delete(1)
    lance_io.dataset(str(path)).optimize.compact_files()
    assert covered(path) == expected(path, kinds, gone=0 in deletes or 1 in deletes)
    check(path, kinds)
    delete(2)
    other = tmp_path / "other.lance"
    shutil.copytree(path, other)
    change = lance.dataset(str(path)).optimize
    change.optimize_indices()
    check(path, kinds)
    lance.dataset(str(path)).optimize.compact_files()
    check(path, kinds)
    lance.dataset(str(other)).optimize.compact_files()
    check(other, kinds)
    lance.write_dataset(rows(300, 40, kinds), str(other), mode="append")
    lance.dataset(str(other)).optimize.optimize_indices()
    check(other, kinds)
    lance_io.dataset(str(other)).optimize.compact_files()
    check(other, kinds)


def test_only_graphs_of_these_fragments(tmp_path: Path) -> None:
    """Where rows of some fragments are deleted, graphs and others still cover the other fragments."""
    path = make(tmp_path / "t.lance", ["IVF_HNSW_SQ", "BITMAP"])
    lance.dataset(str(path)).delete("id < 100 and id % 3 = 0")
    lance_io.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=60)
    kept = {fragment.fragment_id for fragment in lance.dataset(str(path)).get_fragments() if fragment.count_rows() > 90}
    assert kept
    assert covered(path) == {"IVF_HNSW_SQ": kept, "BITMAP": kept}
    check(path, ["IVF_HNSW_SQ", "BITMAP"])


def segments(path: Path) -> dict[str, str]:
    """The UUID of each index, which has one segment."""
    entries = drive_sync(load_indices(lance_io.dataset(str(path))._state))
    return {entry.name: entry.uuid for entry in entries if not entry.is_system}


def test_what_is_asked_for_counts(tmp_path: Path) -> None:
    """True leaves all indices as they are, False builds all again; so does the table's configuration."""
    source = make(tmp_path / "t.lance", ["BTREE", "BITMAP"])
    before = segments(source)
    for name, given, config, rebuilt in (
        ("no", False, None, {"BTREE", "BITMAP"}),
        ("yes", True, None, set()),
        ("open", None, None, {"BTREE"}),
        ("config-no", None, "false", {"BTREE", "BITMAP"}),
        ("config-yes", None, "true", set()),
        ("both", False, "true", {"BTREE", "BITMAP"}),
    ):
        path = tmp_path / name
        shutil.copytree(source, path)
        ds = lance_io.dataset(str(path))
        if config is not None:
            ds.update_config({"lance.compaction.defer_index_remap": config})
        plan = Compaction.plan(ds, {"defer_index_remap": given})
        assert type(plan).from_json(plan.json()) == plan
        assert lance_optimize.CompactionPlan.from_json(plan.json()).num_tasks() == 1
        ds.optimize.compact_files(defer_index_remap=given)
        assert covered(path) == {"BTREE": {6}, "BITMAP": {6}}, name
        assert {index for index, uuid in segments(path).items() if uuid != before[index]} == rebuilt, name
        assert (record(path) is not None) == (len(rebuilt) < 2), name
        check(path, ["BTREE", "BITMAP"])


def test_async_leaves_them_too(tmp_path: Path) -> None:
    path = make(tmp_path / "t.lance", ["BTREE", "BITMAP"])

    async def compact() -> None:
        ds = await lance_io.AsyncDataset.open(str(path))
        await ds.optimize.compact_files()

    asyncio.run(compact())
    assert covered(path) == {"BTREE": {6}, "BITMAP": {6}}


def write_in_place(ds: Any) -> None:
    """Other values of `b` in the rows of one fragment."""
    fragment = ds.get_fragments()[0]
    addresses = ds.to_table(columns=[], with_row_address=True)["_rowaddr"].to_pylist()
    mine = [one for one in addresses if one >> 32 == fragment.fragment_id]
    values = pa.table(
        {"_rowaddr": pa.array(mine, pa.uint64()), "b": pa.array(range(5000, 5000 + len(mine)), pa.int64())}
    )
    changed, fields = fragment.update_columns(values, left_on="_rowaddr", right_on="_rowaddr")
    operation = lance_io.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
    lance_io.LanceDataset.commit(ds.uri, operation, read_version=ds.version)


def append(ds: Any) -> None:
    lance_io.write_dataset(rows(300, 40, ["BITMAP", "ZONEMAP"]), ds.uri, mode="append")


@pytest.mark.parametrize("change", [write_in_place, append])
def test_changes_after_a_recorded_compaction(tmp_path: Path, change: Callable[[Any], None]) -> None:
    """Values that are written anew leave the indices over them, whichever fragments their entries name."""
    path = make(tmp_path / "t.lance", ["BITMAP", "ZONEMAP"])
    lance_io.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=64)
    assert covered(path) == {"BITMAP": {6, 7, 8}, "ZONEMAP": {6, 7, 8}}
    change(lance_io.dataset(str(path)))
    assert covered(path) == {"BITMAP": {6, 7, 8} - ({6} if change is write_in_place else set()), "ZONEMAP": {6, 7, 8}}
    check(path, ["BITMAP", "ZONEMAP"])
    found = lance.dataset(str(path)).count_rows("b >= 5000")
    assert found == (100 if change is write_in_place else 0)


def test_the_record_goes_with_its_last_index(tmp_path: Path) -> None:
    path = make(tmp_path / "t.lance", ["BITMAP", "ZONEMAP"])
    lance_io.dataset(str(path)).optimize.compact_files()
    for name in ("BITMAP", "ZONEMAP"):
        assert record(path) is not None
        lance_io.dataset(str(path)).drop_columns([SCALAR[name]])
    assert record(path) is None
    path = make(tmp_path / "u.lance", ["BITMAP"])
    lance_io.dataset(str(path)).optimize.compact_files()
    lance.dataset(str(path)).drop_index("BITMAP")
    assert record(path) is not None  # pylance leaves it
    lance_io.write_dataset(rows(300, 40, ["BITMAP"]), str(path), mode="append")
    lance_io.dataset(str(path)).optimize.compact_files()
    assert record(path) is None


def test_fifty_compactions(tmp_path: Path) -> None:
    """The record does not grow with rows that no index covers, nor with the compactions of them."""
    path = make(tmp_path / "t.lance", ["BITMAP"])
    sizes = []
    for number in range(50):
        ds = lance_io.write_dataset(rows(300 + 4 * number, 4, ["BITMAP"]), str(path), mode="append")
        ds.optimize.compact_files()
        sizes.append(record_bytes(path))
    assert 0 < max(sizes) <= 1024
    ((fragment_id,),) = covered(path).values()
    assert lance.dataset(str(path)).get_fragment(fragment_id).count_rows() == 300
    check(path, ["BITMAP"])


def test_fifty_compactions_of_rows_that_are_indexed(tmp_path: Path) -> None:
    """Nor does it where each compaction moves rows of an index that was brought up to date before."""
    kinds = ["BITMAP"]
    path = make(tmp_path / "t.lance", kinds)
    sizes = []
    for number in range(50):
        lance_io.write_dataset(rows(300 + 4 * number, 4, kinds), str(path), mode="append")
        lance.dataset(str(path)).optimize.optimize_indices()
        lance_io.dataset(str(path)).optimize.compact_files()
        sizes.append(record_bytes(path))
    assert 0 < max(sizes) <= 1200
    (live,) = covered(path).values()
    assert len(live) == 1 and lance.dataset(str(path)).count_rows() == 500
    check(path, ["BITMAP"])


def test_what_merged_indices_need_of_the_record(tmp_path: Path) -> None:
    """What is taken out of a record is needed by none of the kinds, once pylance has merged new rows into them."""
    kinds = [*SCALAR]  # vectors get segments of their own
    path = make(tmp_path / "t.lance", kinds)
    for number in range(8):
        for first in range(4):  # more fragments make a larger record
            new = rows(300 + 40 * number + 10 * first, 10, kinds)
            lance_io.write_dataset(new, str(path), mode="append")
        lance.dataset(str(path)).optimize.optimize_indices()
        lance_io.dataset(str(path)).delete(f"id % 40 = {number}")
        lance_io.dataset(str(path)).optimize.compact_files()
        check(path, kinds)
    for kind in ("ZONEMAP", "BLOOMFILTER"):  # without these, most of it goes
        assert record_bytes(path) > 1200
        lance.dataset(str(path)).drop_index(kind)
    for first in (700, 710, 720):  # a few of them each time
        lance_io.write_dataset(rows(first, 10, kinds), str(path), mode="append")
        lance.dataset(str(path)).optimize.optimize_indices()
        lance_io.dataset(str(path)).optimize.compact_files()
    assert record_bytes(path) < 1200
    check(path, kinds)


def test_a_record_too_large_is_not_made(tmp_path: Path) -> None:
    """A bit for each of two million rows is more than every version should carry."""
    path = tmp_path / "t.lance"
    numbers = pa.table({"a": pa.array(np.arange(2_000_000, dtype="i4") % 1000)})
    lance_io.write_dataset(numbers, str(path), max_rows_per_file=1_000_000)
    lance.dataset(str(path)).create_scalar_index("a", "ZONEMAP", name="ZONEMAP")
    lance_io.dataset(str(path)).delete("a % 8 = 3")
    lance_io.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=3_000_000)
    assert record(path) is None
    assert covered(path) == {"ZONEMAP": set()}
    assert lance.dataset(str(path)).count_rows("a = 9") == 2000
