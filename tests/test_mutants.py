"""Mutants of the package: what is changed, what is not, and how the tests' verdict is found."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import mutants
from scripts.campaign import mutants_report, run_mutants
from scripts.mutants import Copy, Mutant, Outcome, Source, draw, invisible, modules, shares

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[1]
MODULE = '''"""A docstring with 1 in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generator, TypeVar, overload

if TYPE_CHECKING:
    from nowhere import x2

T = TypeVar("T")
Steps = Generator[int, int, int]
_logger = logging.getLogger(__name__)


@overload
def least(of: int = 1) -> int: ...


@cached(size=3)
def least(of: int = 1) -> int:
    """Another with 2 in it."""
    _logger.warning("of %d", 3)
    if of < 4:
        raise ValueError(f"{of} is less", 5)
    return of + 6
'''


def changes(text: str) -> set[tuple[str, str]]:
    """All changes of a module, as the lines that go and come."""
    source = Source("lance_io/a/b.py", text)
    made = [
        source.mutant(line, change)
        for line, kinds in source.changes.items()
        for group in kinds.values()
        for change in group
    ]
    return {(" ".join(each.removed), " ".join(each.added)) for each in made if each is not None}


def test_behaviour_is_changed_and_nothing_else() -> None:
    assert changes(MODULE) == {
        ("def least(of: int = 1) -> int:", "def least(of: int = 2) -> int:"),
        ("if of < 4:", "if of <= 4:"),
        ("if of < 4:", "if of < 5:"),
        ("return of + 6", "return of - 6"),
        ("return of + 6", "return of + 7"),
    }


def test_a_mutant_knows_where_it_is() -> None:
    source = Source("lance_io/a/b.py", "class A:\n    def f(self):\n        return 1\n")
    mutant = source.mutant(3, source.changes[3]["operator_number"][0])
    assert mutant is not None
    assert (mutant.room, mutant.line, mutant.names) == ("a", 3, ("A", "f"))
    assert mutant.diff() == "lance_io/a/b.py:3\n-return 1\n+return 2"
    assert mutant.code == "class A:\n    def f(self):\n        return 2\n"


def test_every_room_gets_some_and_large_ones_more() -> None:
    found = shares({"large": 9000, "small": 10, "middle": 990}, 100)
    assert sum(found.values()) == 100
    assert found["small"] == 3 and found["large"] > 6 * found["middle"]
    assert sum(shares({"large": 9000, "small": 10, "middle": 990}, 3).values()) == 3


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with a package of two rooms, and tests that notice some of what is changed in one of them."""
    root = tmp_path / "project"
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\naddopts = '--import-mode=importlib'\n",
        "lance_io/__init__.py": "",
        "lance_io/a/adding.py": "def plus_six(x):\n    return x + 6\n",
        "lance_io/b/other.py": "def unseen(y):\n    return y < 3\n",
        "lance_io/proto/generated.py": "X = 1\n",
        "tests/a/test_sum.py": "from lance_io.a import adding\ndef test_it():\n    assert adding.plus_six(2) == 8\n",
        "tests/b/test_nothing.py": "def test_it():\n    pass\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setattr(mutants, "RESULTS", root / "results")
    monkeypatch.setattr(Copy.__init__, "__defaults__", (root,))
    monkeypatch.setattr(
        mutants, "TESTS", {"a": (("tests/a",), ("tests/b",)), "b": (("tests/b",), ("tests/a",)), "(top)": ((), ())}
    )
    yield root


def test_a_draw_is_the_same_for_the_same_seed(project: Path) -> None:
    first, again, *others = (draw(6, seed, project) for seed in "112345")
    assert first == again
    assert {mutant.room for mutant in first} == {"a", "b"}
    assert any(other != first for other in others)
    assert "proto" not in modules(project)


def test_mutants_are_killed_survive_or_are_known(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = Source("lance_io/a/adding.py", (project / "lance_io/a/adding.py").read_text())
    unseen = Source("lance_io/b/other.py", (project / "lance_io/b/other.py").read_text())
    all_of_them = [
        mutant
        for source, kind, number in (
            (killed, "operator_number", 0),
            (unseen, "operator_number", 0),
            (unseen, "operator_swap_op", 0),
        )
        if (mutant := source.mutant(2, source.changes[2][kind][number])) is not None
    ]
    monkeypatch.setattr(mutants, "draw", lambda number, seed: all_of_them)
    monkeypatch.setattr(mutants, "invisible", lambda: {all_of_them[2].key: "for a reason"})
    outcomes = mutants.run(3, "1", 1, believe="nothing")
    assert [outcome.verdict for outcome in outcomes] == ["killed", "survived", "invisible"]
    assert outcomes[0].by == "tests/a/test_sum.py::test_it"
    assert "+return y < 4" in capsys.readouterr().out
    assert "x + 6" in (project / "lance_io/a/adding.py").read_text()

    report = mutants_report(outcomes, "again")
    assert [finding.split()[0] for finding in report.findings] == ["`lance_io/b/other.py:2`", "only"]
    assert "-return y < 3\n+return y < 4" in report.details and "| b | 2 | 0 | 1 | 1 |" in report.details

    monkeypatch.setattr(mutants.Campaign, "_judged", lambda self, copy, mutant: Outcome(mutant, "killed"))
    for believe, believed in (("killed", [0]), ("all", [0, 1])):
        again = {outcome.mutant.key: outcome.by for outcome in mutants.run(3, "1", 1, believe=believe)}
        assert [again[mutant.key] == "an earlier run" for mutant in all_of_them] == [n in believed for n in range(3)]
    assert [outcome.verdict for outcome in mutants.run(3, "1", 1, minutes=-1)] == ["invisible"]


def test_what_an_earlier_run_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = Mutant("lance_io/a/b.py", 3, (), ("a < 1",), ("a <= 1",), "")
    outcomes = [Outcome(mutant, "killed", by=mutants.EARLIER), Outcome(mutant, "killed", by="tests/a")]
    monkeypatch.setattr(mutants, "run", lambda *_, **__: outcomes)
    report = run_mutants("1", 2, 1, believe="killed", minutes=None)
    assert (
        report.details.startswith("1 verdicts are those of an earlier run") and "--believe killed" in report.commands[0]
    )


def test_whoever_does_not_end_is_ended_with_all_its_processes(project: Path, tmp_path: Path) -> None:
    held = tmp_path / "held"  # by whoever has it open for writing: reading ends when they are gone
    os.mkfifo(held)
    (project / "tests/a/test_sum.py").write_text(
        "import os, subprocess, sys, time\n"
        "def test_it():\n"
        f"    held = os.open({str(held)!r}, os.O_WRONLY)\n"
        "    os.write(held, b'here')\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], pass_fds=[held])\n"
        "    time.sleep(600)\n"
    )
    copy = Copy(tmp_path / "copy")
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    assert copy.run(["tests/a"], 3.0) == (None, "")
    assert os.listdir(tmp_path / "copy") == ["checkout"]  # nothing temporary stays
    os.set_blocking(reader, True)
    with open(reader, "rb") as stream:
        assert stream.read() in (b"here", b"")  # nothing where the machine is so slow that it did not come so far


def test_inherited_tests_belong_to_the_file_that_is_run(project: Path, tmp_path: Path) -> None:
    (project / "lance_io/a/suite.py").write_text("class Suite:\n    def test_it(self):\n        pass\n")
    (project / "tests/a/test_suite.py").write_text(
        "from lance_io.a.suite import Suite\n\n\nclass TestThis(Suite):\n    pass\n"
    )
    campaign = mutants.Campaign(tmp_path / "copies", 1)
    campaign.rehearse({"a"}, {})
    assert {"tests/a/test_suite.py", "tests/a/test_sum.py"} <= campaign.seconds.keys()
    assert not any(file.startswith("lance_io/") for file in campaign.seconds)


def test_every_room_has_its_tests() -> None:
    assert modules(CHECKOUT).keys() == mutants.TESTS.keys()
    for groups in mutants.TESTS.values():
        for place in (*groups[0], *groups[1]):
            assert (CHECKOUT / place).exists(), place
    assert all((CHECKOUT / file).is_file() for file in mutants.SLOW)


def test_what_is_named_as_invisible_is_still_there() -> None:
    for (module, *difference), reason in invisible().items():
        lines = {line.strip() for line in (CHECKOUT / module).read_text().splitlines()}
        assert {line[1:] for line in difference if line.startswith("-")} <= lines, f"{module} has changed: {difference}"
        assert len(reason) > 10


def test_a_key_outlives_other_lines() -> None:
    one, two = (Mutant("lance_io/a/b.py", line, (), ("a < 1",), ("a <= 1",), "") for line in (3, 30))
    assert one.key == two.key == ("lance_io/a/b.py", "-a < 1", "+a <= 1")
