"""Every call that changes a table loses races in a row, to drawn mixtures of what others change.

Each chain is a handle that missed some changes, then 0 to 4 lost races, with one or two changes of others before each:
of rows of the same fragment or of another one, or of nothing that the call touches, by other processes, or by its own
where that can be. Afterwards every version holds what a plain model says, every file that a version names is there,
and none that no version names; fragments have the data files that they had, but for what the call gives them.

`LANCE_IO_CHAINS` says how many chains are drawn for each call and kind of table.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lance_io.commit.target import SystemClock
from lance_io.errors import CommitConflictError
from tests.seeds import seed_of
from tests.simulate.chain_calls import CALLS, IN_PLACE, OF_SCHEMA, start
from tests.simulate.chain_world import POINTS, ChainWorld, Change, Outcome, Strike, is_legal

CHAINS = int(os.environ.get("LANCE_IO_CHAINS", "2"))
RACES_MAX = 4
_starts: dict[tuple[bool, bool], ChainWorld] = {}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lost goes on at once."""
    monkeypatch.setattr(SystemClock, "random", lambda self: 0.0)


def world_of(*, stable: bool, database: bool) -> ChainWorld:
    """The table that a chain begins with."""
    if (stable, database) not in _starts:
        _starts[stable, database] = start(stable=stable, database=database)
    return ChainWorld(CALLS, _starts[stable, database], database=database)


def run_chain(world: ChainWorld, mine: Change, stale: list[Change], strikes: list[Strike]) -> Outcome:
    """A chain, and whether all that must be true is."""
    outcome = world.run(mine, stale, strikes)
    assert is_legal(outcome, OF_SCHEMA | {"add-index"}), repr(outcome.error)
    world.check(outcome, in_place=IN_PLACE.get(mine.name, False))
    return outcome


FRAGMENTS = st.integers(0, 2)
SLOTS = st.integers(0, 7)
CHANGES = st.builds(Change, st.sampled_from([*CALLS]), FRAGMENTS, SLOTS, st.booleans())
POINT = st.sampled_from(["deciding", "deciding", "deciding", *POINTS])
STRIKES = st.builds(Strike, POINT, st.lists(CHANGES, min_size=1, max_size=2).map(tuple))


@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=CHAINS, phases=[Phase.generate, Phase.shrink])  # explaining takes minutes
@given(data=st.data())
def test_chains(name: str, database: bool, data: st.DataObject) -> None:
    world = world_of(stable=data.draw(st.booleans(), "stable row ids"), database=database)
    mine = Change(name, data.draw(FRAGMENTS, "fragment"), data.draw(SLOTS, "slot"))
    stale = data.draw(st.lists(CHANGES, max_size=2), "missed")
    strikes = data.draw(st.lists(STRIKES, max_size=RACES_MAX), "strikes")
    run_chain(world, mine, stale, strikes)


@pytest.mark.parametrize("name", CALLS)
def test_every_pair(name: str) -> None:
    """One other call, missed and before each deciding write; in a campaign all of them."""
    dice = random.Random(seed_of(f"pairs {name}"))
    for other in dice.sample([*CALLS], min(CHAINS, len(CALLS))):
        races, fragment = dice.randint(0, RACES_MAX), dice.randrange(3)
        world = world_of(stable=dice.random() < 0.3, database=dice.random() < 0.3)
        run_chain(world, Change(name), *chain_of(other, races, fragment))


# -- chains that must end well ---------------------------------------------------------------------------------------

HARMLESS = ("config", "append", "delete", "update", "drop", "add-index", "patch")
"""What others do in the chains below."""


def chain_of(other: str, races: int, fragment: int) -> tuple[list[Change], list[Strike]]:
    """One change that is missed, and one before each deciding write; of other rows than slot 0."""
    changes = [Change(other, fragment, 1 + number) for number in range(races + 1)]
    return changes[:1], [Strike("deciding", (one,)) for one in changes[1:]]


@pytest.mark.parametrize("races", [1, 2, RACES_MAX])
@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("detached", "clean")])
def test_changes_of_nothing_that_a_call_touches_are_only_in_its_way(name: str, races: int) -> None:
    world = world_of(stable=False, database=False)
    outcome = run_chain(world, Change(name), *chain_of("config", races, 0))
    assert outcome.error is None and outcome.lost == races


@pytest.mark.parametrize("others", ["delete", "update", "mixed"])
@pytest.mark.parametrize("name", ["delete", "delete-two", "update", "update-two", "merge", "merge-delete", "patch"])
@pytest.mark.parametrize("database", [False, True], ids=["put-absent", "database"])
def test_rows_of_one_fragment_are_changed_in_chains(name: str, others: str, database: bool) -> None:
    """Deletion files are merged again and again; that of the last time is there."""
    world = world_of(stable=False, database=database)
    names = ["delete", "append", "update", "config", "delete"] if others == "mixed" else [others] * 5
    changes = [Change(one, 0, 1 + number) for number, one in enumerate(names)]
    strikes = [Strike("deciding", (one,)) for one in changes[1:]]
    outcome = run_chain(world, Change(name), changes[:1], strikes)
    assert outcome.error is None and outcome.lost == len(strikes)


@pytest.mark.parametrize("other", HARMLESS)
@pytest.mark.parametrize("name", ["append", "group-append", "commit-append", "commit-batch", "distributed"])
def test_appends_go_with_everything(name: str, other: str) -> None:
    world = world_of(stable=False, database=False)
    outcome = run_chain(world, Change(name), *chain_of(other, 2, 0))
    assert outcome.error is None and (outcome.lost > 0 or other == "drop")  # which there is nothing more of


def test_a_conflict_leaves_nothing_behind() -> None:
    """Columns cannot be added beside rows: what the attempts wrote is gone."""
    for name in ("add-sql", "add-function", "join", "cast"):
        world = world_of(stable=False, database=False)
        before = world.keys()
        outcome = run_chain(world, Change(name), [], [Strike("deciding", (Change("delete", 0, 1),))])
        assert isinstance(outcome.error, CommitConflictError)
        new = world.keys() - before
        folders: dict[str, Any] = {
            folder: [key for key in new if f"/{folder}/" in key] for folder in ("data", "_deletions")
        }
        assert not folders["data"] and len(folders["_deletions"]) == 1
