"""`lance-io index`, compared with what pylance says about the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def uri(tmp_path: Path) -> str:
    numbers = range(1000)
    rows = pa.table(
        {
            "i": numbers,
            "s": [f"k{n % 9}" for n in numbers],
            "j": pa.array([f'{{"a": {n % 7}}}' for n in numbers], pa.json_()),
        }
    )
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows, path, max_rows_per_file=300)
    return path


def test_an_index_from_beginning_to_end(run: Any, uri: str) -> None:
    report = run("index", "create", uri, "i", "--json").report
    assert (report["version"], report["name"], report["kind"], report["num_rows"]) == (2, "i_idx", "BTree", 1000)
    assert report["size_bytes"] == lance.dataset(uri).describe_indices()[0].total_size_bytes
    assert not report["replaced"]
    assert run("index", "create", uri, "i", "--zone-rows", "100", "--json").report["replaced"]
    run("index", "create", uri, "s", "--kind", "bitmap", "--name", "by_s")
    run("index", "create", uri, "j", "--json-path", "a", "--memory-limit", "16")
    assert "query=[s = k3]@by_s(Bitmap)" in lance.dataset(uri).scanner(filter="s = 'k3'").explain_plan()

    listed = run("index", "list", uri, "--json").report["indices"]
    described = lance.dataset(uri).describe_indices()
    assert [(each["name"], each["columns"], each["num_rows"]) for each in listed] == [
        (index.name, index.field_names, index.num_rows_indexed) for index in described
    ]
    assert all(index.name in run("index", "list", uri).out for index in described)
    assert run("index", "list", uri, "--version", "1").out.strip() == "no index"
    assert run("index", "stats", uri, "i_idx", "--json").report == lance.dataset(uri).stats.index_stats("i_idx")
    assert "1,000 covered, 0 not" in run("index", "stats", uri, "i_idx").out

    lance.write_dataset(lance.dataset(uri).to_table(limit=50), uri, mode="append")
    version = run("index", "optimize", uri, "by_s", "--merge", "0", "--json").report["version"]
    assert [len(index.segments) for index in lance.dataset(uri).describe_indices()] == [2, 1, 1]
    report = run("index", "optimize", uri, "--json").report
    assert (report["version"], report["changed"]) == (version + 1, True)
    assert [index.num_rows_indexed for index in lance.dataset(uri).describe_indices()] == [1050] * 3
    assert run("index", "optimize", uri).out.strip() == "nothing to do"
    run("index", "optimize", uri, "--retrain")
    assert [len(index.segments) for index in lance.dataset(uri).describe_indices()] == [1, 1, 1]

    run("index", "drop", uri, "by_s")
    assert "by_s" not in run("index", "list", uri).out


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["create", "nothing"], "nothing not found in schema", 1),
        (["create", "i", "--kind", "label_list"], "must be a list", 1),
        (["create", "i", "--kind", "ngram", "--json-path", "a"], "--json-path", 2),
        (["create", "s", "--kind", "bitmap", "--zone-rows", "3"], "--zone-rows", 2),
        (["create", "i", "--kind", "hash"], "hash", 2),
        (["stats", "nothing"], "not found", 1),
        (["drop", "nothing"], "not found", 1),
    ],
)
def test_refusals(run: Any, uri: str, arguments: list[str], text: str, code: int) -> None:
    action, *others = arguments
    failed = run("index", action, uri, *others)
    assert (failed.code, text in failed.err) == (code, True), failed
    assert lance.dataset(uri).version == 1


def test_keep(run: Any, uri: str) -> None:
    run("index", "create", uri, "i")
    failed = run("index", "create", uri, "i", "--keep")
    assert failed.code == 2 and "already exists" in failed.err


def test_an_index_of_vectors(run: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "v.lance")
    numbers = pa.array([float(n * 7 % 31) for n in range(600 * 8)], pa.float32())
    lance.write_dataset(pa.table({"v": pa.FixedSizeListArray.from_arrays(numbers, 8)}), uri)
    options = ("--kind", "ivf_pq", "--sub-vectors", "2", "--bits", "4", "--partitions", "2", "--metric", "dot")
    report = run("index", "create", uri, "v", *options, "--json").report
    assert (report["kind"], report["num_rows"]) == ("IVF_PQ", 600)
    (segment,) = lance.dataset(uri).stats.index_stats("v_idx")["indices"]
    assert (segment["num_partitions"], segment["metric_type"], segment["sub_index"]["nbits"]) == (2, "dot", 4)
    assert run("index", "create", uri, "v", "--kind", "ivf_sq", "--json").report["replaced"]
    for wrong in (("--kind", "ivf_pq"), ("--metric", "dot"), ("--kind", "ivf_sq", "--bits", "8")):
        assert run("index", "create", uri, "v", *wrong).code == 2
