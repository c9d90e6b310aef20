"""Every pair of the calls that change a table, the second on a handle that missed the first, by either library.

What pylance says of each pair was noted from a run of it. Where our call is the second one, pylance makes the same one
on another copy: the same kind of error must come, with a text that begins with the same words, and the same table must
be left. `LANCE_IO_STALE_CALLS` is how many combinations of each call and table are tried.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lance_io.table.manifest.index_section import FRAGMENT_REUSE
from lance_io.table.transaction.conflicts import judge
from tests.commit.matrix_world import version_of
from tests.commit.stale_calls import (
    BY_PYLANCE_ONLY,
    CALLS,
    COMMITTED,
    COMPACTING,
    LIBRARIES,
    NOT_OF_STABLE,
    READ_VERSION,
    WITHOUT_VERSION,
    Table,
    can_be_run,
    run_pair,
    versions_of,
)
from tests.seeds import seed_of

if TYPE_CHECKING:
    from lance_io.table.transaction.transaction import Transaction

SIZE = int(os.environ.get("LANCE_IO_STALE_CALLS", "2"))
ROLES = [(one, two) for one in LIBRARIES for two in LIBRARIES]
TEXT_CHARS = 60  # of an error of pylance, which ours begins with

# rows: the stale call; columns: the call that it missed, in this order. "E": no conflict, but it no longer fits
EXPECTED = """
    append            .I..............R..I...........................I...I..........
    overwrite         .R.............................................R..............
    delete            .IR.RR....RRRRR...RI........................R.RIR.RI..R.R.....
    delete-far        .I.R.R.....RRRR....I...........................IR.RI..........
    delete-fragment   .IR.RRR.R.RRRRR...RI........................RRRIR.RI..R.R.....
    truncate          .I.................I...........................I...I..........
    update            .I..RRR...RRRRR.R.RI.........................RRIR.RI..R.R.....
    update-far        .I...R.R...RRRR.R..I...........................IR.RI..........
    merge             .I..RR..R.RRRRR.R.RI..........................RIR.RI..R.R.....
    insert-only       .I.........RRRR.R..I...........................IR..I..........
    patch             .IR.RRR.R.RRRRR.R.RI........................RRRIR.RI..R.R.....
    add-null          RIRRRRRRRRRRRRRIIIRI....RR.........RR....R.RRRRIRIRI..RRR....R
    add-sql           RIRRRRRRRRRRRRRIIIRI....RR.........RR....R.RRRRIRIRI..RRR....R
    cast              RIRRRRRRRRRRRRRIIIRI....RR.........RR....R.RRRRIRIRI..RRR....R
    join              RIRRRRRRRRRRRRRIIIRI....RR.........RR....R.RRRRIRIRI..RRR....R
    rename            .I.........RRRRRRR.I...........................IRR.I..........
    require           RI....RRRRRRRRRRRR.I.....................R.R.RRIRR.I..R.......
    drop              .I.........RRRRRRR.I...........................IRR.I..........
    compact           .IR.RRR.R.RRRRR...RI.R.................RR...RRRIR.RI.RR.R...RR
    restore           ..............................................................
    drop-index        .I.................I...................RR......I...I..........
    create-index      .I................RI.R.........................I..RI.R......R.
    config            ......................I.............................I.........
    metadata          .......................I......................................
    schema-metadata   .I.........RRRR....I....I..........I...........IR..I...I......
    field-metadata    .I.........RRRR....I.....I.....................IR..I...I......
    add-base          ..........................I...................................
    tag               ...........................E.........E........................
    branch            ............................E........E........................
    move-tag          ..............................E......E........................
    delete-tag        ..............................E...............................
    delete-branch     ...............................E..............................
    set-config        ................................II............................
    delete-config     ................................I.............................
    replace-config    ..................................I...........................
    replace-metadata  .I.........RRRR....I....I..........I...........IR..I...I......
    other-field       .I.........RRRR....I................I..........IR..I..........
    clean             ..............................................................
    migrate-names     ..............................................................
    rebuild-index     .I................RIR..................RR......I..RI..........
    optimize-index    .I................RIR..................RR......I..RI..........
    batch             .I..............R..I...........................I...I..........
    detached          ..............................................................
    commit-append     .I..............R..I...........................I...I..........
    commit-delete     .IR.RRR.R.RRRRR...RI........................RRRIR.RI..R.R.....
    commit-update     .IR.RRR.R.RRRRR.R.RI........................RRRIR.RI..R.R.....
    commit-patch      .IR.RRR.R.RRRRR.R.RI........................RRRIR.RI..R.R.....
    commit-overwrite  .R.............................................R..............
    commit-merge      RIRRRRRRRRRRRRRIIIRI....RR.........RR....R.RRRRIRIRI..RRR....R
    commit-project    .I.........RRRRRRR.I...........................IRR.I..........
    commit-rewrite    EIRRRRRRRERRRRR...RI.R.................RRE.ERRRIR.RI.RR.R...RR
    commit-restore    ........................II.........II..................I......
    commit-config     ......................I.............................I.........
    commit-index      .I................RI.R.........................I..RI.R......R.
    commit-replace    .I..IIR.R..RRRR.RIRI.........................R.IRIRI..R.R.....
    commit-metadata   .I.........RRRR....I....II.........I...........IR..I...I......
    compact-deferred  .IR.RRR.R.RRRRR...RI........................RRRIR.RI..R.R...RR
    stop-cleaning     ..............................................................
    describe-tag      ..............................E...............................
    describe-branch   ...............................E..............................
    index-segment     .I................RI.R.........................I..RI.R......R.
    begin-log         .I.........RRRR...RI...........................IR.RI....R....R
"""
PAIRS = {
    (line.split()[0], other): cell
    for line in EXPECTED.strip().splitlines()
    for other, cell in zip(CALLS, line.split()[1], strict=True)
}
ROW_CALLS = ("delete", "delete-far", "delete-fragment", "update", "update-far", "merge", "insert-only", "patch")
METADATA = ("schema-metadata", "replace-metadata", "commit-metadata")
KEEPING = ("rename", "require", "drop", "commit-project")  # calls that leave what METADATA set meanwhile


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("table"), stable=request.param)


def expected(table: Table, second: str, mine: str, other: str) -> str:
    """What the call gives."""
    if (second, mine, other) == ("ours", "commit-index", "compact-deferred"):  # which does not say what it left alone
        return "R"
    renamed = (mine, other) == ("detached", "migrate-names")  # after which manifests have the names that it needs
    return "E" if table.is_stable and mine in NOT_OF_STABLE and not renamed else PAIRS[mine, other]


def made_by(table: Table, library: str) -> dict[str, Transaction]:
    """The last transaction of each call that makes one."""
    found = {}
    for name, call in CALLS.items():
        refused = table.is_stable and name in NOT_OF_STABLE
        if name in WITHOUT_VERSION or refused or (library == "ours" and name in BY_PYLANCE_ONLY):
            continue
        folder = table.copy()
        call(LIBRARIES[library].dataset(str(folder)))
        found[name] = version_of(folder, READ_VERSION + versions_of(name))[1]
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
                kind = {".": "ok", "R": "retryable", "I": "incompatible", "E": "ok"}[PAIRS[mine, other]]
                if "compact-deferred" in (mine, other):
                    continue  # whether it left indices alone is not in its record
                if mine in ROW_CALLS and COMMITTED.get(other, other) == mine and verdict == "ok":
                    continue  # which rows both touch is known when deletions are merged
                assert verdict == kind, f"{mine} by {second} after {other} by {first}"


@pytest.mark.parametrize("mine", CALLS)
def test_stale_calls(table: Table, mine: str) -> None:
    """Made, or told why not; and then both libraries see the same table."""
    dice = random.Random(seed_of(f"stale {mine}"))
    choices = [
        (other, first, second)
        for other in CALLS
        for first, second in ROLES
        if can_be_run(table, first, other, second, mine)
    ]
    for other, first, second in dice.sample(choices, min(SIZE, len(choices))):
        ours, left = run_pair(table, LIBRARIES[first], other, LIBRARIES[second], mine)
        where = f"{mine} by {second} after {other} by {first}"
        assert ours.kind == expected(table, second, mine, other), where
        if second == "pylance" or not can_be_run(table, first, other, "pylance", mine):
            continue
        theirs, left_by_them = run_pair(table, LIBRARIES[first], other, LIBRARIES["pylance"], mine)
        assert theirs.kind == expected(table, "pylance", mine, other), where
        if theirs.kind != ours.kind:
            continue
        if not (mine == "branch" and theirs.kind == "E"):  # where pylance tells of internals
            assert ours.text.startswith(theirs.text[:TEXT_CHARS]), where
            kind = ValueError if isinstance(theirs.error, ValueError) else OSError
            assert theirs.error is None or isinstance(ours.error, kind), where
        if mine in KEEPING and other in METADATA:  # whose change pylance loses
            left_by_them = replace(left_by_them, schema=left.schema)
        # A compaction of pylance that is refused later than by the version that reserves its ids leaves that one.
        if mine in COMPACTING and ours.kind in ("R", "I") and "ReserveFragments" not in ours.text:
            left_by_them = replace(left_by_them, version=left_by_them.version - 1, versions=left_by_them.versions[:-1])
        if left_by_them.indices == (FRAGMENT_REUSE,):  # which we drop with the last index that needs it
            left_by_them = replace(left_by_them, indices=())
        if (mine, other) != ("drop-index", "compact"):  # of which the next test tells
            assert left == left_by_them, where


def test_an_index_that_was_rewritten_meanwhile_is_dropped(table: Table) -> None:
    """A compaction of pylance gives it another identifier; pylance itself drops nothing then, and says nothing."""
    _, left = run_pair(table, LIBRARIES["pylance"], "compact", LIBRARIES["ours"], "drop-index")
    assert left.indices == ()
