"""Operations that name one thing twice: refused where that would double rows or lose some, taken where it says nothing.

Each is made of pylance's values and of ours, so that the tests say what pylance does with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from typing import TYPE_CHECKING, Any

import lance
import lance.fragment
import pyarrow as pa
import pytest

import lance_io
import lance_io.fragment
from lance_io.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS = 20
REFUSED_BY_PYLANCE = ("rewrite two groups", "rewrite one group", "replace twice")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Four fragments of five rows."""
    lance.write_dataset(table_of(0, NUM_ROWS), tmp_path / "t", max_rows_per_file=5)
    return str(tmp_path / "t")


def table_of(start: int, stop: int) -> pa.Table:
    values = pa.array(range(start, stop), pa.int64())
    return pa.table({"a": values, "b": values})


class Parts:
    """What operations are made of, in the classes of one library."""

    def __init__(self, library: Any, uri: str) -> None:
        self.library, self.uri, self.ops = library, uri, library.LanceOperation
        dataset = library.dataset(uri)
        self.schema, self.lance_schema = dataset.schema, dataset.lance_schema
        self.old = [fragment.metadata for fragment in dataset.get_fragments()]

    def new(self) -> Any:
        """A fragment of five rows that no version has."""
        [fragment] = lance.fragment.write_fragments(table_of(100, 105), self.uri)
        return self.library.fragment.FragmentMetadata.from_json(json.dumps(fragment.to_json()))

    def unnumbered(self, place: int) -> Any:
        """A fragment of the table, as if it were new."""
        return dataclasses.replace(self.old[place], id=0)

    def group(self, old: list[Any], new: list[Any]) -> Any:
        return self.ops.RewriteGroup(old, new)

    def replacement(self, fragment_id: int, fragment: Any) -> Any:
        return self.ops.DataReplacementGroup(fragment_id, fragment.files[0])

    def shortened(self, place: int, predicate: str) -> Any:
        """A fragment of which rows are deleted."""
        left = self.library.dataset(self.uri).get_fragments()[place].delete(predicate)
        return getattr(left, "metadata", left)


def doubled_file(make: Callable[[Parts, list[Any]], Any]) -> Callable[[Parts], Any]:
    """An operation that brings one new fragment twice."""
    return lambda parts: make(parts, [parts.new()] * 2)


def foreign_file(make: Callable[[Parts, Any], Any]) -> Callable[[Parts], Any]:
    """An operation that puts the file of fragment 1 into fragment 0, too."""
    return lambda parts: make(parts, dataclasses.replace(parts.old[0], files=parts.old[1].files))


DOUBLED: dict[str, tuple[Callable[[Parts], Any], str]] = {
    "append a file": (doubled_file(lambda p, new: p.ops.Append(new)), "adds the data file .* twice"),
    "append an old file": (lambda p: p.ops.Append([p.new(), p.unnumbered(2)]), "is there already: fragments 2 and "),
    "overwrite": (doubled_file(lambda p, new: p.ops.Overwrite(p.schema, new)), "adds the data file .* twice"),
    "update": (doubled_file(lambda p, new: p.ops.Update(new_fragments=new)), "adds the data file .* twice"),
    "update an old file": (lambda p: p.ops.Update(new_fragments=[p.unnumbered(2)]), "is there already"),
    "update of what goes": (
        lambda p: p.ops.Update(removed_fragment_ids=[1], new_fragments=[p.unnumbered(1)]),
        "which fragment 1 has already",
    ),
    "update by a neighbour": (foreign_file(lambda p, one: p.ops.Update(updated_fragments=[one])), "already"),
    "update and removal": (
        lambda p: p.ops.Update(updated_fragments=[p.shortened(0, "a = 1")], removed_fragment_ids=[0]),
        "both changes fragment 0, which has rows left, and removes it",
    ),
    "two updates": (
        lambda p: p.ops.Update(updated_fragments=[p.shortened(0, "a = 1"), p.shortened(0, "a = 2")]),
        "changes fragment 0 twice",
    ),
    "two deletions": (
        lambda p: p.ops.Delete([p.shortened(0, "a = 1"), p.shortened(0, "a = 2")], [], "a in (1, 2)"),
        "changes fragment 0 twice",
    ),
    "deletion and removal": (
        lambda p: p.ops.Delete([p.shortened(0, "a = 1")], [0], "a = 1"),
        "both changes fragment 0, which has rows left, and removes it",
    ),
    "merge a file": (doubled_file(lambda p, new: p.ops.Merge([*p.old, *renumbered(new)], p.lance_schema)), "twice"),
    "merge a fragment": (lambda p: p.ops.Merge([*p.old, p.old[0]], p.lance_schema), "two fragments with id 0"),
    "merge an old file": (
        lambda p: p.ops.Merge([*p.old, dataclasses.replace(p.old[1], id=99)], p.lance_schema),
        "which fragment 1 has already",
    ),
    "merge by a neighbour": (
        foreign_file(lambda p, one: p.ops.Merge([one, *p.old[1:]], p.lance_schema)),
        "which fragment 1 has already",
    ),
    "rewrite two groups": (
        lambda p: p.ops.Rewrite([p.group([p.old[1]], [p.new()]), p.group([p.old[1]], [p.new()])], []),
        "attempts to replace fragment id=1 more than once",
    ),
    "rewrite one group": (
        lambda p: p.ops.Rewrite([p.group([p.old[1], p.old[1]], [p.new()])], []),
        "attempts to replace fragment id=1 more than once",
    ),
    "rewrite into a file": (
        doubled_file(lambda p, new: p.ops.Rewrite([p.group([p.old[0]], new[:1]), p.group([p.old[1]], new[1:])], [])),
        "adds the data file .* twice",
    ),
    "rewrite into an old file": (
        lambda p: p.ops.Rewrite([p.group([p.old[0]], [p.unnumbered(1)])], []),
        "is there already",
    ),
    "rewrite into its own": (
        lambda p: p.ops.Rewrite([p.group([p.shortened(0, "a = 1")], [p.unnumbered(0)])], []),
        "which fragment 0 has already",
    ),
    "replace twice": (
        lambda p: p.ops.DataReplacement([p.replacement(0, p.new()), p.replacement(0, p.new())]),
        "replaces field 0 of fragment 0 twice",
    ),
    "replace by a file": (
        doubled_file(lambda p, new: p.ops.DataReplacement([p.replacement(place, new[place]) for place in (0, 1)])),
        "adds the data file .* twice",
    ),
    "replace by an old file": (
        lambda p: p.ops.DataReplacement([p.replacement(0, p.old[1])]),
        "is there already: fragments 0 and 1",
    ),
}


def renumbered(fragments: list[Any]) -> list[Any]:
    return [dataclasses.replace(one, id=100 + place) for place, one in enumerate(fragments)]


def commit(library: Any, uri: str, operation: Any, **how: Any) -> None:
    version = lance.dataset(uri).version
    library.LanceDataset.commit(uri, operation, read_version=version, **how)


def rows_of(uri: str) -> list[int]:
    found = [library.dataset(uri).to_table(columns=["a"])["a"].to_pylist() for library in (lance, lance_io)]
    assert found[0] == found[1]
    return list(found[0])


@pytest.mark.parametrize("name", DOUBLED)
def test_what_doubles_or_loses_rows_is_refused(uri: str, name: str) -> None:
    """Nothing comes of it; pylance commits most."""
    make, message = DOUBLED[name]
    peer = f"{uri}-of-pylance"
    shutil.copytree(uri, peer)
    with pytest.raises(OperationError, match=message):
        commit(lance_io, uri, make(Parts(lance_io, uri)))
    with pytest.raises(OperationError, match=message):
        commit(lance_io, uri, make(Parts(lance_io, uri)), detached=True)
    assert rows_of(uri) == [*range(NUM_ROWS)] and lance.dataset(uri).version == 1
    if name in REFUSED_BY_PYLANCE:
        with pytest.raises(OSError):
            commit(lance, peer, make(Parts(lance, peer)))
    else:
        commit(lance, peer, make(Parts(lance, peer)))
        assert lance.dataset(peer).version == 2


SAID_TWICE: dict[str, Callable[[Parts], Any]] = {
    "deleted fragments": lambda p: p.ops.Delete([], [1, 1], ""),
    "removed fragments": lambda p: p.ops.Update(removed_fragment_ids=[1, 1]),
    "deleted rows": lambda p: p.ops.Delete([p.shortened(0, "a = 1")] * 2, [], "a = 1"),
    "updated rows": lambda p: p.ops.Update(updated_fragments=[p.shortened(0, "a = 1")] * 2),
    "its own file": lambda p: p.ops.Overwrite(p.schema, [p.old[2], p.old[0]]),
    "the same columns": lambda p: p.ops.Merge(p.old, p.lance_schema),
}


@pytest.mark.parametrize("name", SAID_TWICE)
def test_what_changes_nothing_is_taken(uri: str, name: str) -> None:
    peer = f"{uri}-of-pylance"
    shutil.copytree(uri, peer)
    for library, place in ((lance_io, uri), (lance, peer)):
        commit(library, place, SAID_TWICE[name](Parts(library, place)))
    assert rows_of(uri) == rows_of(peer)


def test_columns_of_one_fragment_are_replaced_by_several_files(uri: str) -> None:
    """pylance wants all files of one replacement to hold the same columns."""
    lance.dataset(uri).add_columns({"c": "a + 1"})
    parts = Parts(lance_io, uri)
    files = [parts.new().files[0], dataclasses.replace(parts.new().files[0], fields=[2], column_indices=[0])]
    commit(lance_io, uri, parts.ops.DataReplacement([parts.ops.DataReplacementGroup(0, each) for each in files]))
    expected = [*range(100, 105), *range(5, NUM_ROWS)]
    for library in (lance, lance_io):
        table = library.dataset(uri).to_table()
        assert table["a"].to_pylist() == table["b"].to_pylist() == expected
        assert table["c"].to_pylist() == [*range(100, 105), *range(6, NUM_ROWS + 1)]


@pytest.mark.parametrize("num_new", [3, 40])
def test_one_file_among_many(uri: str, num_new: int) -> None:
    """Few names are looked for one by one, many at once."""
    parts = Parts(lance_io, uri)
    new = [parts.new() for _ in range(num_new)]
    commit(lance_io, uri, parts.ops.Append(new))
    assert len(rows_of(uri)) == NUM_ROWS + 5 * num_new
    with pytest.raises(OperationError, match=f"adds the data file {new[-1].files[0].path}, which is there already"):
        commit(lance_io, uri, parts.ops.Append([*(parts.new() for _ in range(num_new - 1)), new[-1]]))
    assert lance.dataset(uri).version == 2


def test_a_name_means_a_file_below_its_base(uri: str, tmp_path: Path) -> None:
    """A clone has files of its own whose names its base has, too."""
    clone = str(tmp_path / "clone")
    lance.dataset(uri).shallow_clone(clone, 1)
    names = [fragment.metadata.files[0].path for fragment in lance.dataset(uri).get_fragments()]
    (tmp_path / "clone" / "data").mkdir(exist_ok=True)
    for name in names:
        shutil.copy(tmp_path / "t" / "data" / name, tmp_path / "clone" / "data" / name)
    own = [Parts(lance_io, uri).unnumbered(place) for place in range(4)]
    commit(lance_io, clone, lance_io.LanceOperation.Append(own))
    assert rows_of(clone) == [*range(NUM_ROWS)] * 2
    with pytest.raises(OperationError, match="is there already: fragments 4 and 8"):
        commit(lance_io, clone, lance_io.LanceOperation.Append(own[:1]))


def test_a_table_is_not_created_of_one_file_twice(tmp_path: Path) -> None:
    lance.write_dataset(table_of(0, 5), tmp_path / "source")
    parts = Parts(lance_io, str(tmp_path / "source"))
    with pytest.raises(OperationError, match=r"adds the data file .* twice"):
        lance_io.LanceDataset.commit(str(tmp_path / "t"), parts.ops.Overwrite(parts.schema, parts.old * 2))
    assert not (tmp_path / "t" / "_versions").exists()


def test_a_batch_of_appends_names_each_file_once(uri: str) -> None:
    parts = Parts(lance_io, uri)
    new = parts.new()
    appends = [lance_io.Transaction(1, parts.ops.Append([new])) for _ in range(2)]
    with pytest.raises(OperationError, match=r"adds the data file .* twice"):
        lance_io.LanceDataset.commit_batch(uri, appends)
    assert lance.dataset(uri).version == 1


def test_what_another_writer_added_meanwhile_counts(uri: str) -> None:
    """Two transactions of one file, both made for version 1: the second one comes after the first."""
    parts = Parts(lance_io, uri)
    new = parts.new()
    stale = lance_io.dataset(uri)
    commit(lance, uri, lance.LanceOperation.Append([Parts(lance, uri).new(), like(new)]))
    for target in (uri, stale):
        with pytest.raises(OperationError, match="is there already: fragments 5 and 6"):
            lance_io.LanceDataset.commit(target, parts.ops.Append([new]), read_version=1)
        with pytest.raises(OperationError, match="is there already"):
            asyncio.run(commit_async(uri, parts.ops.Append([new])))
    assert len(rows_of(uri)) == NUM_ROWS + 10


async def commit_async(uri: str, operation: Any) -> None:
    await lance_io.AsyncDataset.commit(uri, operation, read_version=1)


def like(fragment: Any) -> Any:
    """A fragment of ours as one of pylance's."""
    return lance.fragment.FragmentMetadata.from_json(json.dumps(fragment.to_json()))


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_transaction_that_is_committed_again_is_still_recognised(uri: str, is_cleaned: bool) -> None:
    """Its files are there because it was committed: no error, and no second time."""
    parts = Parts(lance_io, uri)
    transaction = lance_io.Transaction(1, parts.ops.Append([parts.new()]))
    for _ in range(2):
        assert lance_io.LanceDataset.commit(uri, transaction).version == 2
    lance_io.dataset(uri).delete("a = 3")
    if is_cleaned:
        lance_io.dataset(uri).cleanup_old_versions(versions=[1, 2])
    assert lance_io.LanceDataset.commit(uri, transaction).version == (3 if is_cleaned else 2)
    assert lance.dataset(uri).version == 3
    assert rows_of(uri) == [*(one for one in range(NUM_ROWS) if one != 3), *range(100, 105)]
