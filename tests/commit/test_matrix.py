"""Every ordered pair of twelve operations, committed by pylance and by us in all combinations: one outcome, one table.

`mine` was made for version 3 and is committed after `other`, which was made for version 3, too. Rows are found by their
addresses in one table, and by stable row ids in another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.commit.matrix_world import APPEND_AGAIN, KINDS, READ_VERSION, World, content, outcome, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# what the notes say, typed in from them; pylance is asked as well. Rows: mine; columns: other, in the order of KINDS
EXPECTED = """
    append         .  .  .  I  .  .  R  R  I  .  .  .
    delete         .  R  R  I  .  R  R  .  I  .  R  .
    update         .  R  R  I  .  R  R  R  I  .  R  .
    overwrite      .  .  .  R  .  .  .  .  .  .  .  .
    create-index   .  .  .  I  R  R  .  .  I  .  R  .
    rewrite        .  R  R  I  R  R  R  .  I  .  R  .
    merge          R  R  R  I  .  R  R  I  I  .  R  .
    project        R  .  R  I  .  .  R  R  I  .  R  .
    restore        .  .  .  .  .  .  .  .  .  .  .  .
    update-config  .  .  .  .  .  .  .  .  .  I  .  .
    replace-data   .  .  R  I  R  R  R  R  I  .  R  .
    update-bases   .  .  .  .  .  .  .  .  .  .  .  I
"""
WORDS = {".": "ok", "R": "retryable", "I": "incompatible"}
PAIRS = {
    (line.split()[0], other): WORDS[cell]
    for line in EXPECTED.strip().splitlines()
    for other, cell in zip(KINDS, line.split()[1:], strict=True)
}


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), stable=request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_alone_it_makes_the_version_that_pylance_makes(world: World, kind: str) -> None:
    theirs, ours = world.copy(), world.copy()
    world.commit_by_pylance(theirs, kind)
    world.commit_by_us(ours, kind)
    assert content(version_of(ours, READ_VERSION + 1)[0]) == content(version_of(theirs, READ_VERSION + 1)[0])


@pytest.mark.parametrize(("mine", "other"), PAIRS, ids=[f"{mine}-after-{other}" for mine, other in PAIRS])
def test_pair(world: World, mine: str, other: str) -> None:
    pylance, we = world.commit_by_pylance, world.commit_by_us
    results = [_run(world, first, second, other, mine) for first in (pylance, we) for second in (pylance, we)]
    assert [each[0] for each in results] == [PAIRS[mine, other]] * 4
    assert all(each[1] == results[0][1] for each in results)


def _run(
    world: World, first: Callable[[Path, str], None], second: Callable[[Path, str], None], other: str, mine: str
) -> tuple[str, object]:
    folder = world.copy()
    first(folder, other)
    again = APPEND_AGAIN if mine == other == "append" else mine  # a data file is added once
    result = outcome(lambda: second(folder, again))
    newest = READ_VERSION + (2 if result == "ok" else 1)
    manifest, transaction = version_of(folder, newest)
    return result, (content(manifest), transaction.read_version)
