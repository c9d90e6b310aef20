"""Builds beside another process that appends and deletes rows while the column is read."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 40_000
STEPS = 4
QUERIES = {
    "k": ["k = 5", "k = 41", "k < 300", "k > 39990", "k IN (1, 2, 1000003)", "k = 1000003", "k != 7"],
    "c": ["c = 3", "c > 5", "c IN (1, 2)", "NOT c = 0"],
}


@pytest.mark.parametrize(("kind", "column"), [("BTREE", "k"), ("BITMAP", "c")])
def test_a_build_covers_the_fragments_that_it_began_with(tmp_path: Path, kind: str, column: str) -> None:
    """It ends, and finds the rows of a scan: those that are left of its fragments, and the others'."""
    rng = np.random.default_rng(2)
    rows = pa.table({"k": rng.permutation(NUM_ROWS), "c": rng.integers(0, 7, NUM_ROWS)})
    ds = lance_io.write_dataset(rows, tmp_path, max_rows_per_file=NUM_ROWS // 4)
    before = {fragment.fragment_id for fragment in ds.get_fragments()}
    command = [sys.executable, "-m", "tests.index.other_writer", str(tmp_path)]
    versions: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        stdin, stdout = other.stdin, other.stdout
        assert stdin is not None and stdout is not None
        assert stdout.readline() == "ready\n"

        def change(*_: Any) -> None:
            if len(versions) < STEPS:
                print("next", file=stdin, flush=True)
                versions.append(int(stdout.readline()))

        ds.create_scalar_index(column, kind, "x", progress=change)
        num_meanwhile = len(versions)
        while len(versions) < STEPS:
            change()
        stdin.close()
        assert other.wait() == 0
    assert num_meanwhile > 0
    opened, theirs = lance_io.dataset(tmp_path), lance.dataset(tmp_path)
    (index,) = opened.describe_indices()
    assert {number for segment in index.segments for number in segment.fragment_ids} == before
    assert before < {fragment.fragment_id for fragment in opened.get_fragments()}
    for text in QUERIES[column]:
        scan = opened.to_table(filter=text, with_row_address=True, use_scalar_index=False)
        assert opened.to_table(filter=text, with_row_address=True) == scan, text
        addresses = theirs.to_table(filter=text, with_row_address=True)["_rowaddr"].to_pylist()
        assert sorted(addresses) == sorted(scan["_rowaddr"].to_pylist()), text
