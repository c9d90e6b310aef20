"""Tables in which two fragments have one id, as release 0.16 left some: read as pylance reads them, but for its takes.

Rows are found by position, and in the order of the manifest. What an address says, and an id, is true of two fragments.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, LanceError, OperationError, UsageError
from tests.fuzz.test_found import change_manifest
from tests.interop.comparing import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDS = (0, 1, 1, 2)  # of the historical table
NUM_ROWS = 12


@pytest.fixture(params=[IDS, (0, 0, 1, 2), (2, 0, 1, 0)], ids=str)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Four fragments of three rows."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": range(NUM_ROWS)}), uri, max_rows_per_file=3)

    def share(message: Any) -> None:
        for fragment, fragment_id in zip(message.fragments, request.param, strict=True):
            fragment.id = fragment_id

    change_manifest(tmp_path / "t", share)
    return uri


READS: dict[str, Callable[[Any], Any]] = {
    "all": lambda one: one.to_table(with_row_id=True, with_row_address=True),
    "count": lambda one: one.count_rows(),
    "filter": lambda one: one.to_table(filter="a > 1 and a < 10", with_row_id=True),
    "filtered count": lambda one: one.count_rows("a % 2 = 0"),
    "address": lambda one: one.to_table(filter="_rowid = 4294967297"),
    "limit of a filter": lambda one: one.to_table(filter="a > 0", limit=7, offset=3),
    "ids": lambda one: [each.fragment_id for each in one.get_fragments()],
    "counts": lambda one: [each.count_rows() for each in one.get_fragments()],
    "tables": lambda one: [each.to_table(with_row_id=True) for each in one.get_fragments()],
    "filters": lambda one: [each.to_table(filter="a % 2 = 0") for each in one.get_fragments()],
    "heads": lambda one: [each.head(2) for each in one.get_fragments()],
    "takes": lambda one: [each.take([0, 2]) for each in one.get_fragments()],
    "files": lambda one: [each.metadata.files[0].path for each in one.get_fragments()],
    "some": lambda one: one.scanner(fragments=one.get_fragments()[1:3]).to_table(),
    "turned": lambda one: one.scanner(fragments=one.get_fragments()[::-1]).to_table(),
}


@pytest.mark.parametrize("name", READS)
def test_scans_and_fragments_are_those_of_pylance(uri: str, name: str) -> None:
    read = READS[name]
    assert read(lance_io.dataset(uri)) == read(lance.dataset(uri))


def test_fragments_travel_and_are_read_from_coroutines(uri: str) -> None:
    expected = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    sent = pickle.loads(pickle.dumps(lance_io.dataset(uri).get_fragments()))
    assert [one.to_table()["a"].to_pylist() for one in sent] == expected

    async def read() -> list[list[int]]:
        async with lance_io.AsyncDataset.open(uri) as dataset:
            return [(await one.to_table())["a"].to_pylist() for one in dataset.get_fragments()]

    assert asyncio.run(read()) == expected


def test_positions_are_those_of_the_scan(uri: str) -> None:
    """In pylance a position stands for an address, which is that of another row, or of none; so do limits, at times."""
    table, everything = lance_io.dataset(uri), lance.dataset(uri).to_table()
    for positions in ([8], [3, 4, 5, 6], [11, 0, 7, 3, 3], [*range(NUM_ROWS)]):
        assert table.take(positions) == everything.take(positions)
    for offset in range(NUM_ROWS):
        assert table.to_table(limit=4, offset=offset) == everything.slice(offset, 4)
        assert table.head(offset + 1) == everything.slice(0, offset + 1)
    assert sorted(table.sample(NUM_ROWS)["a"].to_pylist()) == [*range(NUM_ROWS)]
    assert lance.dataset(uri).take([*range(NUM_ROWS)])["a"].to_pylist() != [*range(NUM_ROWS)]


def test_what_an_id_does_not_tell_is_refused(uri: str) -> None:
    """And what it tells is given as by pylance."""
    table, peer = lance_io.dataset(uri), lance.dataset(uri)
    ids = [fragment.fragment_id for fragment in peer.get_fragments()]
    for fragment_id in (*set(ids), 7):
        address = fragment_id << 32 | 1
        if ids.count(fragment_id) == 2:
            for read in (table.get_fragment, lambda one: table._take_rows([one << 32 | 1])):
                with pytest.raises(FormatError, match=f"two fragments have one id, {fragment_id},"):
                    read(fragment_id)
        elif fragment_id in ids:
            assert table.get_fragment(fragment_id).to_table() == peer.get_fragment(fragment_id).to_table()
            assert table._take_rows([address]) == peer._take_rows([address])
        else:
            assert table.get_fragment(fragment_id) is peer.get_fragment(fragment_id) is None


def test_fragments_of_another_version_are_not_taken_for_those(uri: str) -> None:
    """Where ids do not tell fragments apart, their places do, and these are of one version."""
    shared = lance_io.dataset(uri).get_fragments()[1]
    lance_io.write_dataset(pa.table({"a": [0]}), uri, mode="overwrite")
    for given in ([shared], [*lance_io.dataset(uri).get_fragments(), shared]):
        with pytest.raises(UsageError, match="expected only fragments of version 2"):
            lance_io.dataset(uri).scanner(fragments=given).to_table()


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda _, uri: lance_io.write_dataset(pa.table({"a": [100]}), uri, mode="append"),
    "delete": lambda one, _: one.delete("a = 1"),
    "delete a fragment": lambda one, _: one.delete("a >= 3 and a < 6"),
    "raw": lambda one, uri: lance_io.LanceDataset.commit(
        uri, lance_io.LanceOperation.Delete([], [lance.dataset(uri).get_fragments()[1].fragment_id], ""), 1
    ),
    "update": lambda one, _: one.update({"a": "a + 100"}, where="a = 1"),
    "merge": lambda one, _: one.merge_insert("a").when_matched_update_all().execute(pa.table({"a": [1, 4, 7, 10]})),
    "compact": lambda one, _: one.optimize.compact_files(),
    "add columns": lambda one, _: one.add_columns({"b": "a"}),
    "config": lambda one, _: one.update_config({"k": "v"}),
    "rename": lambda one, _: one.alter_columns({"path": "a", "name": "b"}),
    "restore": lambda one, _: one.restore(),
    "of a fragment": lambda one, _: one.get_fragments()[2].delete("a = 7"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_refused_by_name(uri: str, name: str) -> None:
    """pylance refuses most, and loses rows by others."""
    with pytest.raises(LanceError, match="two fragments"):
        CHANGES[name](lance_io.dataset(uri), uri)
    for library in LIBRARIES:
        assert library.dataset(uri).version == 1
        assert library.dataset(uri).to_table()["a"].to_pylist() == [*range(NUM_ROWS)]


def test_rows_are_written_anew(uri: str) -> None:
    rows = lance_io.dataset(uri).to_table()
    lance_io.write_dataset(rows, uri, mode="overwrite", max_rows_per_file=3)
    for library in LIBRARIES:
        assert library.dataset(uri).to_table() == rows
        assert library.dataset(uri).take([11, 0, 7]) == rows.take([11, 0, 7])
    lance_io.dataset(uri).delete("a = 1")
    with pytest.raises(OperationError, match="two fragments with id"):
        lance_io.dataset(uri, version=1).restore()


def test_all_rows_go(uri: str) -> None:
    """An operation that removes every fragment leaves none of these."""
    ids = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]
    lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Delete([], ids, "true"), 1)
    assert all(library.dataset(uri).count_rows() == 0 for library in LIBRARIES)
