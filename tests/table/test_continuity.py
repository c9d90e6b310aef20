"""What two manifests prove about the versions between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.commit.target import CommitTarget
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.manifest.fragment import DeletionFile
from lance_io.table.manifest.index_section import IndexMetadata
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.continuity import data_files_in, discontinuity, new_data_files
from lance_io.table.transaction.operations import UpdateMap
from lance_io.table.transaction.transaction import Transaction
from tests.commit.tables import Sample, commit_sync

if TYPE_CHECKING:
    from lance_io.table.manifest.manifest import Manifest

UUID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


class Between:
    """A table of three fragments (0, 1, 2), and what was done to it since."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.target = CommitTarget(Location(MemoryStore(), "t", "memory://t"))
        sample.create_sync(self.target)
        for version in (1, 2):
            made = commit_sync(self.target, sample.append(version))
        self.made_for = made.manifest

    def after(self, name: str) -> Manifest:
        """The newest version after a change."""
        fragments = self.made_for.fragments
        deletion = DeletionFile("arrow", 3, 7, 1, None)
        change: Any = {
            "nothing": ops.ReserveFragments(1),
            "append": ops.Append((self.sample.another(),)),
            "delete in 0": ops.Delete((replace(fragments[0], deletion_file=deletion),), (), ""),
            "delete 0": ops.Delete((), (0,), ""),
            "delete all": ops.Delete((), (0, 1, 2), ""),
            "overwrite": ops.Overwrite((self.sample.fragment,), self.sample.schema),
            "config": ops.UpdateConfig(config_updates=UpdateMap({"k": "v"})),
            "field": ops.UpdateConfig(field_metadata_updates={0: UpdateMap({"k": "v"})}),
            "index": ops.CreateIndex((IndexMetadata(UUID, "i", (0,), 3, frozenset({0})),)),
        }[name]
        return commit_sync(self.target, Transaction(3, change)).manifest


MINE: dict[str, Any] = {
    "append": lambda one: ops.Append((one.sample.fragment,)),
    "delete in 0": lambda one: ops.Delete((one.made_for.fragments[0],), (), ""),
    "delete 0": lambda one: ops.Delete((), (0,), ""),
    "overwrite": lambda one: ops.Overwrite((one.sample.fragment,), one.sample.schema),
    "restore": lambda _: ops.Restore(1),
    "reserve": lambda _: ops.ReserveFragments(1),
    "update in 0": lambda one: ops.Update((), (one.made_for.fragments[0],)),
    "config": lambda _: ops.UpdateConfig(config_updates=UpdateMap({"x": "y"})),
    "index": lambda _: ops.CreateIndex((IndexMetadata(UUID, "j", (0,), 3, frozenset({0})),)),
    "rewrite 0": lambda one: ops.Rewrite((ops.RewriteGroup((one.made_for.fragments[0],), (one.sample.fragment,)),)),
    "merge": lambda one: ops.Merge(tuple(one.made_for.fragments), one.sample.schema),
    "project": lambda one: ops.Project(one.sample.schema),
    "replace in 0": lambda one: ops.DataReplacement((ops.DataReplacementGroup(0, one.sample.fragment.files[0]),)),
    "bases": lambda _: ops.UpdateBases(()),
}
ALWAYS = {"nothing", "append", "delete in 0", "delete 0", "delete all", "overwrite", "config", "field", "index"}
FITS: dict[str, set[str]] = {
    "append": ALWAYS - {"delete all", "overwrite", "field"},
    "delete in 0": {"nothing", "append", "config", "index"},
    "delete 0": {"nothing", "append", "config", "index"},
    "overwrite": ALWAYS,
    "restore": ALWAYS,
    "reserve": ALWAYS,
    "update in 0": {"nothing", "append", "config", "index"},
    "config": ALWAYS - {"config", "field"},
    "index": {"nothing", "append", "delete in 0", "config"},
    "rewrite 0": {"nothing", "append", "config"},
    "merge": {"nothing", "config"},
    "project": ALWAYS - {"delete all", "overwrite", "field"},
    "replace in 0": {"nothing", "append", "config"},
    "bases": ALWAYS - {"config"},
}


@pytest.mark.parametrize("other", sorted(ALWAYS))
def test_what_fits_over_a_gap(sample: Sample, other: str) -> None:
    between = Between(sample)
    newest = between.after(other)
    for name, make in MINE.items():
        reason = discontinuity(Transaction(3, make(between)), between.made_for, newest, knows_rows=False)
        assert (reason is None) == (other in FITS[name]), f"{name} over {other}: {reason}"


@pytest.mark.parametrize("other", ["delete in 0", "delete 0"])
def test_known_rows_are_merged_with_other_deletions(sample: Sample, other: str) -> None:
    between = Between(sample)
    newest = between.after(other)
    for name in ("delete in 0", "delete 0", "update in 0"):
        reason = discontinuity(Transaction(3, MINE[name](between)), between.made_for, newest, knows_rows=True)
        assert (reason is None) == (other == "delete in 0" and name != "delete 0")


def test_without_the_first_version_little_is_sure(sample: Sample) -> None:
    between = Between(sample)
    newest = between.after("nothing")
    sure = {name for name, make in MINE.items() if _fits_blindly(make(between), newest)}
    assert sure == {"overwrite", "restore", "reserve"}
    assert not _fits_blindly(ops.UpdateMemWalState(), newest)


def _fits_blindly(operation: Any, newest: Manifest) -> bool:
    return discontinuity(Transaction(3, operation), None, newest, knows_rows=True) is None


def test_data_files_that_are_there(sample: Sample) -> None:
    between = Between(sample)
    known, other = sample.fragment, replace(sample.fragment, files=(replace(sample.fragment.files[0], path="x.lance"),))
    counts = {(known,): "all", (other,): "none", (known, other): "some"}
    for fragments, count in counts.items():
        for operation in (
            ops.Append(fragments),
            ops.Overwrite(fragments, sample.schema),
            ops.Update((), (), fragments),
        ):
            assert data_files_in(Transaction(3, operation), between.made_for) == count
    assert data_files_in(Transaction(3, ops.Delete((), (0,), "")), between.made_for) == "none"
    assert new_data_files(Transaction(3, ops.Append((other,)))) == ["data/x.lance"]
