"""Cleaning up: what goes is what goes with pylance, and what anybody still holds on to stays."""

from __future__ import annotations

import os
import random
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.commit.cleanups.cleanup import CleanupRefused, auto_cleanup, plan_cleanup, run_cleanup
from lance_io.commit.cleanups.cleanup_values import CleanupPlan, CleanupStats
from lance_io.commit.target import CommitTarget, SystemClock
from lance_io.errors import FormatError, UsageError
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.store.api import ALL as ALL_KEYS
from lance_io.store.failures import OutcomeUnknown, Transient
from lance_io.store.local.atomic_writes import NewFile
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location, resolve_uri
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.auto_cleanup import (
    INTERVAL_KEY,
    OLDER_THAN_KEY,
    RETAIN_KEY,
    auto_cleanup_policy,
    duration_s,
)
from lance_io.table.transaction.garbage import (
    NS,
    CleanupPolicy,
    References,
    candidate_versions,
    find_removable_files,
    is_version_old_enough,
    is_version_protected,
    kind_of,
)
from lance_io.table.transaction.transaction import Transaction
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from tests.commit.tables import Sample, commit_sync
from tests.seeds import seed_of

DAY_S = 24 * 3600
ALL = CleanupPolicy(older_than_s=0.0, young_s=0.0)
ORPHANS = {
    "data": ("old.lance", "fresh.lance", "old.txt"),
    "_transactions": ("9-old.txn", "9-fresh.txn"),
    "_deletions": ("0-1-5old.arrow", "0-1-5fresh.bin"),
    "_versions": (".tmp-old", ".tmp-fresh", "18446744073709551000.manifest-old"),
    "_indices/00000000-0000-4000-8000-000000000000": ("old.idx",),
}
LATE = {
    "_transactions/9-fresh.txn": "transaction_files_removed",
    "_deletions/0-1-5fresh.bin": "deletion_files_removed",
    "_versions/.tmp-fresh": "",
}


def numbers() -> pa.Table:
    return pa.table({"a": range(10)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven versions with deletions, an index and an overwrite, and orphans of each kind, aged and fresh."""
    root = tmp_path / "t"
    lance.write_dataset(numbers(), root).delete("a = 3")
    lance.write_dataset(numbers(), root, mode="append").create_scalar_index("a", "BTREE")
    lance.write_dataset(numbers(), root, mode="overwrite")
    lance.write_dataset(numbers(), root, mode="append")
    for name, orphans in ORPHANS.items():
        for orphan in orphans:
            path = root / name / orphan
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(b"x")
            if "old" in orphan:
                age(path)
    return root


def age(path: Path) -> None:
    old = time.time() - 8 * DAY_S
    os.utime(path, (old, old))


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def folders(root: Path) -> set[str]:
    """Of single indices and data files."""
    paths = [*root.glob("_indices/*"), *root.glob("data/*")]
    return {str(path.relative_to(root)) for path in paths if path.is_dir()}


def target_of(root: Path) -> CommitTarget:
    return CommitTarget(resolve_uri(str(root), {"durability": "none"}))


def manifests_of(target: CommitTarget) -> list[Any]:
    """The manifest files; what a cleanup that crashed announced may lie beside them."""
    found = target.location.store.list_sync(target.location.key("_versions", ""))  # type: ignore[attr-defined]
    return [meta for meta in found if meta.name.endswith(".manifest")]


def clean(root: Path, policy: CleanupPolicy, **how: Any) -> CleanupStats:
    target = target_of(root)
    plan = drive_sync(plan_cleanup(target, policy, **how))
    done = drive_sync(run_cleanup(target, plan))
    assert done == plan.stats
    return done


@pytest.mark.parametrize("delete_unverified", [False, True])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"older_than": timedelta(0)}, {"older_than_s": 0.0}),
        ({"retain_versions": 3}, {"retain_versions": 3}),
        ({"older_than": timedelta(0), "retain_versions": 4}, {"older_than_s": 0.0, "retain_versions": 4}),
        ({"older_than": timedelta(days=1)}, {"older_than_s": float(DAY_S)}),
        ({}, {}),
    ],
    ids=lambda value: "-".join(value) or "default",
)
def test_the_same_goes_as_with_pylance(
    folder: Path, theirs: dict[str, Any], ours: dict[str, Any], delete_unverified: bool
) -> None:
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin)
    stats = lance.dataset(folder).cleanup_old_versions(**theirs, delete_unverified=delete_unverified)
    done = clean(twin, CleanupPolicy(**ours, delete_unverified=delete_unverified, young_s=0.0))
    more = set(LATE) if delete_unverified else set()  # these pylance keeps until all versions that stay are younger
    assert more <= files(folder)
    assert files(twin) == files(folder) - more
    assert folders(twin) == folders(folder)
    names = CleanupStats.__dataclass_fields__.keys() - {"young_versions_kept"}  # a rule of ours
    expected = {name: getattr(stats, name) for name in names}
    for name in more:
        expected["bytes_removed"] += 1
        if LATE[name]:
            expected[LATE[name]] += 1
    assert {name: getattr(done, name) for name in names} == expected
    assert lance.dataset(twin).to_table() == lance.dataset(folder).to_table()


def test_a_plan_changes_nothing(folder: Path) -> None:
    before = files(folder)
    plan = drive_sync(plan_cleanup(target_of(folder), ALL))
    assert plan.stats.old_versions == 5
    assert files(folder) == before


def test_young_versions_stay(folder: Path) -> None:
    done = clean(folder, CleanupPolicy(retain_versions=1))
    assert (done.old_versions, done.young_versions_kept) == (0, 5)


def test_nothing_at_or_after_the_current_version_goes(folder: Path) -> None:
    assert clean(folder, ALL, current=3).old_versions == 2
    assert [each["version"] for each in lance.dataset(folder).versions()] == [3, 4, 5, 6]


async def test_any_store_will_do(folder: Path) -> None:
    """The asynchronous driver, and a store in memory."""
    target = CommitTarget(Location(MemoryStore(), "t", "memory://t"))
    for name in files(folder):
        await target.location.store.put(f"t/{name}", (folder / name).read_bytes())
    plan = await drive_async(plan_cleanup(target, ALL))
    done = await drive_async(run_cleanup(target, plan))
    assert (done.old_versions, done.data_files_removed, done.failed_deletes) == (5, 2, 0)


# -- what is held on to ----------------------------------------------------------------------------------------------


def test_tagged_versions_stay_or_are_complained_about(folder: Path) -> None:
    lance.dataset(folder).tags.create("kept", 2)
    with pytest.raises(CleanupRefused, match=r"versions \[2\]"):
        clean(folder, ALL)
    done = clean(folder, CleanupPolicy(older_than_s=0.0, young_s=0.0, error_if_tagged=False))
    assert done.old_versions == 4
    assert lance.dataset(folder, version="kept").count_rows() == 9


def test_branches_hold_on_to_what_they_left(folder: Path) -> None:
    branch = lance.dataset(folder, version=3).create_branch("side")
    lance.write_dataset(numbers(), branch.uri, mode="append")
    assert clean(folder, ALL).old_versions == 4
    assert lance.dataset(folder).checkout_version(("side", None)).to_table().num_rows == 29
    assert lance.dataset(folder, version=3).count_rows() == 19


def test_a_branch_is_cleaned_by_itself(folder: Path) -> None:
    branch = lance.dataset(folder, version=3).create_branch("side")
    lance.write_dataset(numbers(), branch.uri, mode="overwrite")
    root, before = resolve_uri(str(folder)), files(folder)
    target = CommitTarget(root.below("tree", "side"))
    plan = drive_sync(plan_cleanup(target, ALL, root=root, branch="side"))
    assert drive_sync(run_cleanup(target, plan)).old_versions == 1
    assert {name.split("/")[0] for name in before - files(folder)} == {"tree"}


def test_detached_versions_stay(folder: Path) -> None:
    dataset = lance.dataset(folder, version=1)
    fragments = [each.metadata for each in dataset.get_fragments()]
    operation = lance.LanceOperation.Overwrite(dataset.schema, fragments)
    detached = lance.LanceDataset.commit(folder, operation, read_version=3, detached=True).version
    clean(folder, ALL)
    assert lance.dataset(folder, version=detached).to_table().num_rows == 10


def test_a_damaged_manifest_stops_everything(folder: Path) -> None:
    oldest = max((folder / "_versions").glob("*.manifest"))
    oldest.write_bytes(oldest.read_bytes()[:-1])
    before = files(folder)
    with pytest.raises(FormatError):
        clean(folder, ALL)
    assert files(folder) == before


def test_sidecars_go_with_their_data_file(tmp_path: Path) -> None:
    from lance import blob_array, blob_field

    schema = pa.schema([blob_field("b")])
    table = pa.table([blob_array([b"x" * (5 << 20)])], schema=schema)
    root = tmp_path / "t"
    lance.write_dataset(table, root, data_storage_version="2.2")
    assert any(name.endswith(".blob") for name in files(root))
    lance.write_dataset(table, root, mode="overwrite")
    clean(root, ALL)
    stems = {name.split("/")[1].removesuffix(".lance") for name in files(root) if name.startswith("data/")}
    assert len(stems) == 1
    assert folders(root) == {f"data/{stem}" for stem in stems}
    assert sum(name.endswith(".blob") for name in files(root)) == 1


@pytest.mark.parametrize("unverified", [False, True])
@pytest.mark.parametrize("is_async", [False, True], ids=["now", "later"])
async def test_what_killed_writers_left_goes_when_it_is_old(folder: Path, unverified: bool, is_async: bool) -> None:
    places = ["data", "data/0", "_versions", "_transactions", "_deletions", "_refs/tags"]
    for place in places:
        for is_aged in (True, False):
            file = NewFile(f"{folder}/{place}/some", "none")  # neither published nor discarded
            file.write([b"half"], 0)
            if is_aged:
                age(Path(file._temporary))
            os.close(file._fd)
    before = files(folder)
    policy = CleanupPolicy(older_than_s=DAY_S, delete_unverified=unverified)
    if is_async:
        target = target_of(folder)
        done = await drive_async(run_cleanup(target, await drive_async(plan_cleanup(target, policy))))
    else:
        done = clean(folder, policy)
    gone = {name for name in before - files(folder) if "/.lance-io-" in name}
    assert len(gone) == len(places) * (1 + unverified)
    assert done.bytes_removed >= 4 * len(gone) and done.old_versions == 0


# -- when things go wrong --------------------------------------------------------------------------------------------


def test_staging_objects_go_when_they_are_old_and_no_row_can_point_at_them(folder: Path) -> None:
    """What commits through a database left in `_versions/`; pylance leaves them for good."""

    def stage(version: int) -> str:
        path = folder / "_versions" / f"{2**64 - 1 - version}.manifest-{uuid4()}"
        path.write_bytes(b"x")
        age(path)
        return f"_versions/{path.name}"

    newest = lance.dataset(folder).version
    done, waiting, young = stage(newest), stage(newest + 1), stage(newest)
    os.utime(folder / young)
    before = files(folder)
    assert clean(folder, CleanupPolicy(delete_unverified=True)).old_versions == 0
    assert {name for name in before - files(folder) if name.startswith("_versions/1844")} == {done}
    assert clean(folder, ALL).old_versions == newest - 1
    long_gone = stage(1)
    clean(folder, CleanupPolicy())
    assert {young, waiting} <= files(folder)
    assert long_gone not in files(folder)


def test_a_version_restored_meanwhile_keeps_its_files(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "sample")
    target = target_of(tmp_path / "t")
    sample.create_sync(target)
    commit_sync(target, Transaction(1, ops.Delete((), (0,), "all")))
    plan = drive_sync(plan_cleanup(target, ALL))
    assert plan.stats.data_files_removed == 1
    commit_sync(target, Transaction(2, ops.Restore(1)))
    done = drive_sync(run_cleanup(target, plan))
    assert (done.old_versions, done.data_files_removed) == (1, 0)
    assert lance.dataset(tmp_path / "t").to_table().num_rows == 4


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
async def test_versions_that_could_not_be_removed_keep_their_files(folder: Path, fault: Fault) -> None:
    local = resolve_uri(str(folder))
    target = CommitTarget(Location(FaultyStore(local.store, {1: fault}), local.path, local.uri))  # 0 announces
    plan = await drive_async(plan_cleanup(target, ALL))
    done = await drive_async(run_cleanup(target, plan))
    assert done.failed_deletes == 5
    for version in range(1, 7):
        if fault is Fault.REFUSED:
            assert lance.dataset(folder, version=version).to_table() is not None
    assert lance.dataset(folder).to_table().num_rows == 20


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH])
async def test_at_every_write_the_table_stays_whole(tmp_path: Path, fault: Fault) -> None:
    """Every version that can be opened has all of its files, and a second cleanup finishes the work."""
    sample = Sample(tmp_path / "sample")
    for number in range(20):
        target = CommitTarget(Location(MemoryStore(), "t", "memory://t"))
        sample.create_sync(target)
        for version in (1, 2):
            commit_sync(target, sample.overwrite(version))
        store = FaultyStore(target.location.store, {number: fault})
        faulty = replace(target, location=replace(target.location, store=store))
        with suppress(Crashed, Transient, OutcomeUnknown):
            await drive_async(run_cleanup(faulty, await drive_async(plan_cleanup(faulty, ALL))))
        for meta in manifests_of(target):
            manifest = decode_manifest(target.location.store.get_sync(meta.key))  # type: ignore[attr-defined]
            for fragment in manifest.fragments:
                target.location.store.head_sync(f"t/data/{fragment.files[0].path}")  # type: ignore[attr-defined]
            target.location.store.head_sync(f"t/_transactions/{manifest.transaction_file}")  # type: ignore[attr-defined]
        again = drive_sync(plan_cleanup(target, ALL))
        drive_sync(run_cleanup(target, again))
        assert len(manifests_of(target)) == 1
        if len(store.seen) <= number:
            break
    else:
        raise AssertionError("a cleanup makes fewer than 20 writes")


def test_two_cleanups_at_once_pass_over_what_the_other_removed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for number in range(4):
        lance.write_dataset(pa.table({"a": [number]}), uri, mode="append" if number else "create")
    target = target_of(Path(uri))
    plans = [drive_sync(plan_cleanup(target, ALL)) for _ in range(2)]
    done = [drive_sync(run_cleanup(target, plan)) for plan in plans]
    assert [each.failed_deletes for each in done] == [0, 0]
    assert done[0].old_versions == 3 and lance.dataset(uri).to_table()["a"].to_pylist() == [0, 1, 2, 3]


class Vanishing(MemoryStore):
    """Manifests that are removed between a listing and the reading."""

    gone: tuple[str, ...] = ()

    def list_sync(self, prefix: str, asked: Any = ALL_KEYS) -> Any:
        found = super().list_sync(prefix, asked)
        self.delete_sync(self.gone)
        return found


def test_a_manifest_that_is_gone_does_not_stop_a_cleanup(sample: Sample) -> None:
    store = Vanishing()
    target = CommitTarget(Location(store, "t", "memory://t"))
    sample.create_sync(target)
    for version in (1, 2):
        commit_sync(target, sample.append(version))
    store.gone = (manifests_of(target)[-1].key,)  # the oldest
    plan = drive_sync(plan_cleanup(target, ALL))
    assert [one.version for one in plan.versions] == [2]
    drive_sync(run_cleanup(target, plan))
    assert len(manifests_of(target)) == 1


# -- whose clock ----------------------------------------------------------------------------------------------------

AFTER_A_SECOND = CleanupPolicy(older_than_s=1.0)


def test_a_writer_whose_clock_is_behind_is_protected(clock: LaterClock, target: CommitTarget, sample: Sample) -> None:
    """Its versions are as young as the store says."""
    behind = replace(target, clock=LaterClock())
    behind.clock.ahead_ns = -3600 * NS  # type: ignore[attr-defined]
    sample.create_sync(behind)
    commit_sync(behind, sample.append(1))
    plan = drive_sync(plan_cleanup(target, AFTER_A_SECOND))
    assert (plan.versions, plan.num_young) == ((), 1)
    clock.ahead_ns = 601 * NS
    assert [one.version for one in drive_sync(plan_cleanup(target, AFTER_A_SECOND)).versions] == [1]


def test_a_cleanup_whose_clock_is_ahead_removes_nothing_young(target: CommitTarget, sample: Sample) -> None:
    """Before it removes anything it learns the time from the store."""
    sample.create_sync(target)
    commit_sync(target, sample.append(1))
    target.location.store.put_sync("t/data/fresh.lance", b"x")  # type: ignore[attr-defined]
    ahead = replace(target, clock=LaterClock())
    ahead.clock.ahead_ns = 30 * DAY_S * NS  # type: ignore[attr-defined]
    plan = drive_sync(plan_cleanup(ahead, AFTER_A_SECOND))
    assert plan.stats.old_versions == 1 and plan.stats.data_files_removed == 1
    done = drive_sync(run_cleanup(ahead, plan))
    assert done == CleanupStats()
    assert len(manifests_of(target)) == 2


# -- rules -----------------------------------------------------------------------------------------------------------

HOUR_NS = 3600 * NS


def going(policy: CleanupPolicy, now_ns: int) -> set[int]:
    """Of ten versions, one an hour, those that go."""
    return {
        one
        for one in candidate_versions(range(1, 11), policy)
        if is_version_old_enough(one * HOUR_NS, policy, now_ns=now_ns)
        and not is_version_protected(one * HOUR_NS, policy, now_ns=now_ns)
    }


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (CleanupPolicy(older_than_s=0), range(1, 10)),
        (CleanupPolicy(older_than_s=5 * 3600), range(1, 6)),
        (CleanupPolicy(retain_versions=3), range(1, 8)),
        (CleanupPolicy(retain_versions=30), ()),
        (CleanupPolicy(older_than_s=5 * 3600, retain_versions=8), (1, 2)),
        (CleanupPolicy(versions=frozenset({2, 10})), (2,)),
        (CleanupPolicy(older_than_s=0, young_s=2 * 3600), range(1, 9)),
        (CleanupPolicy(), ()),
    ],
)
def test_which_versions_go(policy: CleanupPolicy, gone: Any) -> None:
    assert going(policy, 10 * HOUR_NS + 1) == set(gone)


@pytest.mark.parametrize(
    ("policy", "young"),
    [
        (CleanupPolicy(retain_versions=1), True),
        (CleanupPolicy(older_than_s=1.0), True),
        (CleanupPolicy(older_than_s=0.0), False),
        (CleanupPolicy(versions=frozenset({1}), retain_versions=1), False),
    ],
)
def test_who_speaks_of_young_versions_is_believed(policy: CleanupPolicy, young: bool) -> None:
    """Even if the clock of the writer was ahead."""
    assert is_version_protected(HOUR_NS, policy, now_ns=HOUR_NS + 599 * NS) is young
    assert is_version_protected(HOUR_NS, policy, now_ns=HOUR_NS - 5 * NS) is young
    assert not is_version_protected(HOUR_NS, policy, now_ns=HOUR_NS + 600 * NS)


def test_after_two_weeks_they_go_by_default() -> None:
    assert going(CleanupPolicy(), 10 * HOUR_NS + 14 * DAY_S * NS) == set(range(1, 10))


# -- after a commit --------------------------------------------------------------------------------------------------


def test_config_asks_for_cleanups(
    target: CommitTarget, clock: LaterClock, sample: Sample, caplog: pytest.LogCaptureFixture
) -> None:
    sample.create_sync(target)
    config = {INTERVAL_KEY: "3", OLDER_THAN_KEY: "1s"}
    second = commit_sync(target, Transaction(1, ops.UpdateConfig(config_updates=ops.UpdateMap(config))))
    assert drive_sync(auto_cleanup(target, second.manifest)) is None
    clock.ahead_ns = 11 * 60 * NS
    third = commit_sync(target, sample.append(1))
    done = drive_sync(auto_cleanup(target, third.manifest))
    assert done is not None and done.old_versions == 1  # the writer stood on version 2
    broken = Transaction(3, ops.UpdateConfig(config_updates=ops.UpdateMap({OLDER_THAN_KEY: "x", INTERVAL_KEY: "1"})))
    assert drive_sync(auto_cleanup(target, commit_sync(target, broken).manifest)) is None
    assert "expected a duration" in caplog.text


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


class LaterClock(SystemClock):
    ahead_ns = 0

    def time_ns(self) -> int:
        return super().time_ns() + self.ahead_ns


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


@pytest.fixture
def target(clock: LaterClock) -> CommitTarget:
    """A table whose store goes by the same clock."""
    store = MemoryStore(clock=lambda: clock.time_ns() / NS)
    return CommitTarget(Location(store, "t", "memory://t"), clock=clock)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("14days", 14 * DAY_S),
        ("1h 30m", 5400),
        ("2weeks1day", 15 * DAY_S),
        ("500ms", 0.5),
        ("1 M", 30.44 * DAY_S),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "x", "1 fortnight", "-1s", "1h x"])
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        duration_s(text)


@pytest.mark.parametrize(
    ("config", "version", "policy"),
    [
        ({}, 20, None),
        ({INTERVAL_KEY: "20"}, 19, None),
        ({INTERVAL_KEY: "0"}, 19, CleanupPolicy(error_if_tagged=False)),
        ({INTERVAL_KEY: "20"}, 40, CleanupPolicy(error_if_tagged=False)),
        (
            {INTERVAL_KEY: "20", OLDER_THAN_KEY: "1h", RETAIN_KEY: "5"},
            40,
            CleanupPolicy(older_than_s=3600.0, retain_versions=5, error_if_tagged=False),
        ),
    ],
)
def test_when_a_cleanup_follows(config: dict[str, str], version: int, policy: CleanupPolicy | None) -> None:
    assert auto_cleanup_policy(config, version) == policy


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data/x.lance", "data"),
        ("data/x/1.blob", "data"),
        ("data/x/y.lance", None),
        ("data/x.blob", None),
        ("data/x.txt", None),
        ("_deletions/0-1-2.arrow", "deletion"),
        ("_deletions/0-1-2.bin", "deletion"),
        ("_deletions/readme", None),
        ("_transactions/1-x.txn", "transaction"),
        ("_indices/u/a.idx", "index"),
        ("_indices/a.idx", None),
        ("_versions/1.manifest", None),
        ("_versions/1.manifest-uuid", None),
        ("_versions/1.manifest-0b9718b5-4ead-4910-8a91-9d1cd76a873a", "temporary"),
        ("_versions/18446744073709551613.manifest-0b9718b5-4ead-4910-8a91-9d1cd76a873a", "temporary"),
        ("_versions/1.other-0b9718b5-4ead-4910-8a91-9d1cd76a873a", None),
        ("data/1.manifest-0b9718b5-4ead-4910-8a91-9d1cd76a873a", None),
        ("_versions/.tmpX", "temporary"),
        ("data/.tmpX", "temporary"),
        ("_versions/.probe-X", "temporary"),
        ("_versions/.cleanup-pin-1-X", "temporary"),
        ("_refs/tags/a.json", None),
        ("tree/side/data/x.lance", None),
    ],
)
def test_which_files_are_ours_to_remove(path: str, kind: str | None) -> None:
    assert kind_of(path) == kind


def test_files_of_unknown_age_are_young() -> None:
    kept, removed = References(), References(files={"data/gone.lance"})
    written = {"data/x.lance": None, "data/old.lance": 0, "data/gone.lance": None, "data/gone/1.blob": None}
    found = dict(find_removable_files(written, kept, removed, delete_unverified=False, now_ns=8 * DAY_S * NS))
    assert set(found) == {"data/old.lance", "data/gone.lance", "data/gone/1.blob"}


def test_time_is_the_machines() -> None:
    assert SystemClock().time_ns() > 0 and 0 <= SystemClock().random() <= 1


# -- what need not be read -------------------------------------------------------------------------------------------


def reads_of(target: CommitTarget, policy: CleanupPolicy) -> tuple[CleanupPlan, int]:
    """The plan, and how many manifests were read for it."""
    before = target.location.store.stats.snapshot()
    plan = drive_sync(plan_cleanup(target, policy))
    return plan, (target.location.store.stats.snapshot() - before)["get"].requests


def test_old_versions_and_files_go_unread(folder: Path) -> None:
    for name in files(folder):
        age(folder / name)
    newest = max((folder / "_versions").glob("*.manifest"), key=lambda path: -int(path.stem))
    os.utime(newest)
    plan, num_reads = reads_of(target_of(folder), ALL)
    assert (plan.stats.old_versions, num_reads) == (5, 1)
    young = next((folder / "_transactions").glob("0-*.txn"))
    os.utime(young)  # one that nobody names who stays: it goes only if a version that goes names it
    plan, num_reads = reads_of(target_of(folder), ALL)
    assert num_reads == 6
    assert f"_transactions/{young.name}" in {meta.key[len(str(folder)) + 1 :] for meta, _ in plan.files}


def test_a_version_is_read_where_only_its_object_is_young(folder: Path) -> None:
    """A copy of a table has young objects, of versions that may be old."""
    plan, num_reads = reads_of(target_of(folder), CleanupPolicy(older_than_s=3600.0, young_s=0.0))
    assert (plan.stats.old_versions, num_reads) == (0, 6)


class TenDaysOn(SystemClock):
    """Ten days on."""

    def time_ns(self) -> int:
        return time.time_ns() + 10 * DAY_S * NS


def plan_by_reading_all(root: Path, policy: CleanupPolicy) -> tuple[set[int], set[str]]:
    """What may go by the rules, with every manifest read: versions, and paths of other files."""
    now_ns = TenDaysOn().time_ns()
    manifests = {path: decode_manifest(path.read_bytes()) for path in (root / "_versions").glob("*.manifest")}
    chosen = candidate_versions([manifest.version for manifest in manifests.values()], policy)
    kept, removed, going = References(), References(), set()
    for path, manifest in manifests.items():
        newest_ns = max(manifest.timestamp_ns, path.stat().st_mtime_ns)
        goes = (
            manifest.version in chosen
            and is_version_old_enough(manifest.timestamp_ns, policy, now_ns=now_ns)
            and not is_version_protected(newest_ns, policy, now_ns=now_ns)
        )
        (removed if goes else kept).add(manifest)
        going |= {manifest.version} if goes else set()
    written = {name: (root / name).stat().st_mtime_ns for name in files(root)}
    found = find_removable_files(written, kept, removed, delete_unverified=policy.delete_unverified, now_ns=now_ns)
    return going, {path for path, _ in found}


def test_the_same_goes_as_when_all_is_read(tmp_path: Path) -> None:
    drawn = random.Random(seed_of(7))
    root = tmp_path / "t"
    ds = lance.write_dataset(numbers(), root)
    for number in range(20):
        ds.delete(f"a = {number % 10}")
        if number % 3 == 0:
            ds = lance.write_dataset(numbers(), root, mode="append" if number % 2 else "overwrite")
    for _ in range(40):
        for name in files(root):
            written = time.time() + drawn.choice([1, 3600, 4 * DAY_S, 10 * DAY_S]) * drawn.random()
            os.utime(root / name, (written, written))
        policy = CleanupPolicy(
            older_than_s=drawn.choice([None, 0.0, 30.0, DAY_S * 1.0, DAY_S * 11.0]),
            retain_versions=drawn.choice([None, 1, 7]),
            delete_unverified=drawn.random() < 0.3,
            young_s=drawn.choice([0.0, None, 1800.0]),
        )
        versions, paths = plan_by_reading_all(root, policy)
        plan = drive_sync(plan_cleanup(replace(target_of(root), clock=TenDaysOn()), policy))
        assert {one.version for one in plan.versions} == versions
        depth = len(str(root)) + 1
        assert {meta.key[depth:] for meta, _ in plan.files} == paths


def test_progress(folder: Path) -> None:
    told: list[tuple[int, int | None]] = []
    ds = lance_io.dataset(folder)
    ds.cleanup_old_versions(older_than=timedelta(0), progress=lambda *counts: told.append(counts))
    assert told[0] == (5, 6)  # those that go at first sight
    assert told[1] == (6, 6)
    assert [done for done, _ in told[2:]] == sorted(done for done, _ in told[2:])
    assert told[-1][0] == told[-1][1]
