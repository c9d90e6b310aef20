"""Versions of a table with stable row ids take no more bytes than pylance's, whatever was done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 50
ROWS = 6_000


def rows(keys: Any, version: int) -> pa.Table:
    numbers = pa.array(keys, pa.int64())
    return pa.table({"k": numbers, "v": pa.array(np.full(len(numbers), version), pa.int64())})


def drawn(seed: int) -> list[tuple[str, Any]]:
    """Operations, with what they are given."""
    random = np.random.default_rng(seed)
    num_keys = ROWS
    found: list[tuple[str, Any]] = []
    for step in range(STEPS):
        name = str(random.choice(["append", "delete", "update", "merge", "merge", "compact"]))
        modulo = int(random.integers(3, 30))
        match name:
            case "append":
                new = range(num_keys, num_keys + int(random.integers(10, 400)))
                num_keys = new.stop
                found.append((name, rows(list(new), step)))
            case "delete" | "update":
                found.append((name, f"k % {modulo} = {int(random.integers(modulo))}"))
            case "merge":
                met = random.permutation(num_keys)[: int(random.integers(1, num_keys // 4))]
                new = range(num_keys, num_keys + int(random.integers(0, 50)))
                num_keys = new.stop
                found.append((name, rows(random.permutation(np.concatenate((met, np.array(new)))), step)))
            case _:
                found.append((name, None))
    return found


def apply(library: Any, uri: str, name: str, given: Any) -> None:
    ds = library.dataset(uri)
    match name:
        case "append":
            library.write_dataset(given, uri, mode="append")
        case "delete":
            ds.delete(given)
        case "update":
            ds.update({"v": "v + 1"}, where=given)
        case "merge":
            ds.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(given)
        case _:
            ds.optimize.compact_files(materialize_deletions_threshold=0.3)


def manifest_bytes(path: Path) -> list[int]:
    """Of all versions, oldest first."""
    return [file.stat().st_size for file in sorted((path / "_versions").glob("*.manifest"), reverse=True)]


def test_manifests_after_fifty_operations(tmp_path: Path) -> None:
    paths = {lance: tmp_path / "theirs.lance", lance_io: tmp_path / "mine.lance"}
    for path in paths.values():
        lance.write_dataset(rows(range(ROWS), -1), str(path), max_rows_per_file=2_000, enable_stable_row_ids=True)
    for name, given in drawn(1):
        for library, path in paths.items():
            apply(library, str(path), name, given)
    mine, theirs = (manifest_bytes(paths[library]) for library in (lance_io, lance))
    assert len(mine) == len(theirs)
    assert mine[-1] <= 1.05 * theirs[-1]
    assert sum(mine) <= 1.05 * sum(theirs)
    tables = [library.dataset(str(path)).to_table().sort_by("k") for library, path in paths.items()]
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize("is_partial", [False, True])
def test_updated_rows_lie_as_in_pylance(tmp_path: Path, *, is_partial: bool) -> None:
    """Those that keep their ids come in the order of the table, inserted ones behind them in that of the source."""
    source = shuffled(5_000, 2_000).drop_columns(["s"] if is_partial else [])
    found = []
    for library in (lance, lance_io):
        path = tmp_path / f"{library.__name__}.lance"
        lance.write_dataset(texts(5_000), str(path), max_rows_per_file=1_500, enable_stable_row_ids=True)
        merge = library.dataset(str(path)).merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(source)
        found.append(lance.dataset(str(path)).to_table(with_row_id=True))
    assert found[1].equals(found[0])


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
def test_a_source_in_pieces(tmp_path: Path, *, is_partial: bool, is_held: bool) -> None:
    """Batches of a source, held by the caller or not, are in the table's order together."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(texts(20_000), uri, max_rows_per_file=6_000, enable_stable_row_ids=True)
    source = shuffled(20_000, 14_000).drop_columns(["s"] if is_partial else [])
    batches = source.to_batches(max_chunksize=5_000)
    given = pa.Table.from_batches(batches) if is_held else pa.RecordBatchReader.from_batches(source.schema, batches)
    merge = lance_io.dataset(uri).merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(given)
    there = lance.dataset(uri)
    new = pa.concat_tables([one.to_table(with_row_id=True) for one in there.get_fragments() if one.fragment_id > 3])
    updated = new.filter(pc.less(new["k"], 20_000))
    assert updated["k"].to_pylist() == sorted(key for key in source["k"].to_pylist() if key < 20_000)
    assert updated["_rowid"].to_pylist() == updated["k"].to_pylist()  # as the table was written
    value = dict(zip(source["k"].to_pylist(), source["v"].to_pylist(), strict=True))
    assert new["v"].to_pylist() == [value[key] for key in new["k"].to_pylist()]
    shown = [
        None if is_partial and key >= 20_000 else f"[{key}]" if is_partial else f"<{key}>"
        for key in new["k"].to_pylist()
    ]
    assert new["s"].to_pylist() == shown


def texts(count: int) -> pa.Table:
    return rows(range(count), -1).append_column("s", pa.array([f"[{number}]" for number in range(count)]))


def shuffled(num_keys: int, num_met: int) -> pa.Table:
    """Some keys of a table, and 100 more, in any order."""
    random = np.random.default_rng(5)
    new = np.arange(num_keys, num_keys + 100)
    keys = random.permutation(np.concatenate((random.permutation(num_keys)[:num_met], new))).tolist()
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(range(len(keys)), pa.int64()),
            "s": [f"<{one}>" for one in keys],
        }
    )
