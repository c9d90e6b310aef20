"""Every pair of the calls that change a table, the second on a handle that missed the first, by either library.

What pylance says of each pair was noted from a run of it; it is asked again where the draw says so, like all other
combinations of libraries. `LANCE_IO_STALE_CALLS` is how many combinations of each call are tried.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from lance_io.table.transaction.conflicts import judge
from tests.commit.matrix_world import version_of
from tests.commit.stale_calls import BY_PYLANCE_ONLY, CALLS, LIBRARIES, READ_VERSION, VERSIONS_OF, Table, run_pair
from tests.seeds import seed_of

if TYPE_CHECKING:
    from lance_io.table.transaction.transaction import Transaction

SIZE = int(os.environ.get("LANCE_IO_STALE_CALLS", "6"))
ROLES = [(one, two) for one in LIBRARIES for two in LIBRARIES]

# rows: the stale call; columns: the call that it missed, in this order. "E": no conflict, but it no longer fits
EXPECTED = """
    append           .  I  .  .  .  .  .  .  .  .  .  .  .  .  .  .  R  .  .  I  .  .  .  .  .  .  .  .  .
    overwrite        .  R  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
    delete           .  I  R  .  R  R  .  .  .  .  R  R  R  R  R  .  .  .  R  I  .  .  .  .  .  .  .  .  .
    delete-far       .  I  .  R  .  R  .  .  .  .  .  R  R  R  R  .  .  .  R  I  .  .  .  .  .  .  .  .  .
    delete-fragment  .  I  R  .  R  R  R  .  R  .  R  R  R  R  R  .  .  .  R  I  .  .  .  .  .  .  .  .  .
    truncate         .  I  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  I  .  .  .  .  .  .  .  .  .
    update           .  I  .  .  R  R  R  .  .  .  R  R  R  R  R  .  R  .  R  I  .  .  .  .  .  .  .  .  .
    update-far       .  I  .  .  .  R  .  R  .  .  .  R  R  R  R  .  R  .  R  I  .  .  .  .  .  .  .  .  .
    merge            .  I  .  .  R  R  .  .  R  .  R  R  R  R  R  .  R  .  R  I  .  .  .  .  .  .  .  .  .
    insert-only      .  I  .  .  .  .  .  .  .  .  .  R  R  R  R  .  R  .  .  I  .  .  .  .  .  .  .  .  .
    patch            .  I  R  .  R  R  R  .  R  .  R  R  R  R  R  .  R  .  R  I  .  .  .  .  .  .  .  .  .
    add-null         R  I  R  R  R  R  R  R  R  R  R  R  R  R  R  I  I  I  R  I  .  .  .  .  R  R  .  .  .
    add-sql          R  I  R  R  R  R  R  R  R  R  R  R  R  R  R  I  I  I  R  I  .  .  .  .  R  R  .  .  .
    cast             R  I  R  R  R  R  R  R  R  R  R  R  R  R  R  I  I  I  R  I  .  .  .  .  R  R  .  .  .
    join             R  I  R  R  R  R  R  R  R  R  R  R  R  R  R  I  I  I  R  I  .  .  .  .  R  R  .  .  .
    rename           .  I  .  .  .  .  .  .  .  .  .  R  R  R  R  R  R  R  .  I  .  .  .  .  .  .  .  .  .
    require          R  I  .  .  .  .  R  R  R  R  R  R  R  R  R  R  R  R  .  I  .  .  .  .  .  .  .  .  .
    drop             .  I  .  .  .  .  .  .  .  .  .  R  R  R  R  R  R  R  .  I  .  .  .  .  .  .  .  .  .
    compact          .  I  R  R  R  R  R  R  R  .  R  R  R  R  R  .  .  .  R  I  .  R  .  .  .  .  .  .  .
    restore          .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .
    drop-index       .  I  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  I  .  .  .  .  .  .  .  .  .
    create-index     .  I  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  R  I  .  R  .  .  .  .  .  .  .
    config           .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  I  .  .  .  .  .  .
    metadata         .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  I  .  .  .  .  .
    schema-metadata  .  I  .  .  .  .  .  .  .  .  .  R  R  R  R  .  .  .  .  I  .  .  .  .  I  .  .  .  .
    field-metadata   .  I  .  .  .  .  .  .  .  .  .  R  R  R  R  .  .  .  .  I  .  .  .  .  .  I  .  .  .
    add-base         .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  I  .  .
    tag              .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  E  .
    branch           .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  E
"""
PAIRS = {
    (line.split()[0], other): cell
    for line in EXPECTED.strip().splitlines()
    for other, cell in zip(CALLS, line.split()[1:], strict=True)
}
ROW_CALLS = ("delete", "delete-far", "delete-fragment", "update", "update-far", "merge", "insert-only", "patch")


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("table"), stable=request.param)


def made_by(table: Table, library: str) -> dict[str, Transaction]:
    """The last transaction of each call that makes one."""
    found = {}
    for name, call in CALLS.items():
        count = VERSIONS_OF.get(name, 1)
        if count == 0 or (library == "ours" and name in BY_PYLANCE_ONLY):
            continue
        folder = table.copy()
        call(LIBRARIES[library].dataset(str(folder)))
        found[name] = version_of(folder, READ_VERSION + count)[1]
    return found


def test_the_matrix_says_what_pylance_does(table: Table) -> None:
    """All pairs of transactions that either library makes, as our matrix judges them."""
    made = {library: made_by(table, library) for library in LIBRARIES}
    for first, second in ROLES:
        for mine, transaction in made[second].items():
            if mine in ("truncate", "restore"):  # made again until it succeeds; made for the newest version
                continue
            for other, before in made[first].items():
                verdict = judge(transaction, before, knows_rows=mine in ROW_CALLS)
                expected = {".": "ok", "R": "retryable", "I": "incompatible"}[PAIRS[mine, other]]
                if mine == other in ROW_CALLS and verdict == "ok":
                    continue  # which rows both touch is known when deletions are merged
                assert verdict == expected, f"{mine} by {second} after {other} by {first}"


@pytest.mark.parametrize("mine", CALLS)
def test_stale_calls(table: Table, mine: str) -> None:
    """Made, or told why not; and then both libraries see the same table."""
    dice = random.Random(seed_of(f"stale {mine}"))
    choices = [
        (other, first, second)
        for other in CALLS
        for first, second in ROLES
        if not (first == "ours" and other in BY_PYLANCE_ONLY) and not (second == "ours" and mine in BY_PYLANCE_ONLY)
    ]
    for other, first, second in dice.sample(choices, min(SIZE, len(choices))):
        verdict, _ = run_pair(table, LIBRARIES[first], other, LIBRARIES[second], mine)
        assert verdict == PAIRS[mine, other], f"{mine} by {second} after {other} by {first}"


def test_an_index_that_was_rewritten_meanwhile_is_dropped(table: Table) -> None:
    """A compaction of pylance gives it another identifier; pylance itself drops nothing then, and says nothing."""
    _, facts = run_pair(table, LIBRARIES["pylance"], "compact", LIBRARIES["ours"], "drop-index")
    assert isinstance(facts, tuple)
    assert facts[4] == []
