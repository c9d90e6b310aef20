"""All kinds of changes at once by processes that are killed, one of them pylance's, on local disk; what is checked.

`LANCE_IO_CROWD_MINUTES` is how long the crowd is at it, with two processes of each kind; without it each process, one
of a kind, makes some calls.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import lance_io
from scripts import crowd, crowd_work
from scripts.crowd_work import Journal, Known, read_journal

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MINUTES = os.environ.get("LANCE_IO_CROWD_MINUTES")
SMALL = ["--crew", "1", "--calls", "3", "--kills", "1"]


def test_nothing_is_lost_in_a_crowd(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--minutes", MINUTES] if MINUTES else SMALL
    status = crowd.main([*arguments, "--folder", str(tmp_path / "crowd")])
    assert status == 0, capfd.readouterr().out


# -- what finds it ---------------------------------------------------------------------------------------------------


def known(rows: dict[int, int], *doubts: Any) -> Known:
    return Known(dict(rows), [*doubts])


def test_rows_are_compared_with_the_journals() -> None:
    one, other = known({1: 0, 2: 5}), known({7: 0}, ({8: 0, 9: None}, {8: 1, 9: 0}))
    for doubtful in ({8: 0}, {8: 1, 9: 0}):
        right = {1: 0, 2: 5, 7: 0, **doubtful}
        assert crowd.compare(right, [one, other]) == []
        assert "lost, such as [2]" in crowd.compare({key: n for key, n in right.items() if key != 2}, [one, other])[0]
        assert "should not be, such as [3]" in crowd.compare({**right, 3: 0}, [one, other])[0]
        assert "another counter, such as [1]" in crowd.compare({**right, 1: 1}, [one, other])[0]
    assert "neither before nor after" in crowd.compare({1: 0, 2: 5, 7: 0, 8: 1}, [one, other])[0]


def test_journals_say_what_is_known(tmp_path: Path) -> None:
    place = tmp_path / "delete0.jsonl"
    journal = Journal(place)
    journal.write(i=0, sets={"1": None})
    journal.write(i=0, ended="done")
    journal.write(i=1, sets={"2": None})
    journal.write(i=1, ended="refused")
    journal.write(i=2, sets={"3": None})  # killed
    journal.write(i=3, sets={"4": 1, "10": 0})
    journal.write(i=3, ended="done")
    journal.write(i=4, sets={"5": 1})
    journal.write(i=4, wrong="an error")
    journal.write(i=4, ended="unknown")
    with place.open("ab") as file:
        file.write(b'{"i": 5, "se')  # nor did that call begin
    found = read_journal(place, range(1, 7))
    assert found.rows == {2: 0, 4: 1, 6: 0, 10: 0}
    assert found.doubts == [({3: 0}, {3: None}), ({5: 0}, {5: 1})]
    assert (found.calls, found.ended, found.wrong) == (5, {"done": 2, "refused": 1, "unknown": 1}, ["an error"])
    Journal(place).write(i=5, sets={"6": None})
    assert read_journal(place, range(1, 7)).doubts[-1] == ({6: 0}, {6: None})


def test_files_that_are_gone_are_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(crowd_work.rows(range(9), [0] * 9, "first"), uri)
    table.delete("id = 1")
    assert crowd.check_versions(lance_io.dataset(uri), uri, None, random.Random(1)) == []
    [deletions] = (tmp_path / "t" / "_deletions").iterdir()
    deletions.unlink()
    found = crowd.check_versions(lance_io.dataset(uri), uri, None, random.Random(1))
    assert "1 files are gone that versions name" in found[0] and "version 2" in found[1]
