"""`make campaign`: what it runs, what it makes of that, and how it ends."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import campaign
from scripts.campaign import CAMPAIGNS, Campaign, Part, Report, Stamp, page_with, section

CHECKOUT = Path(__file__).resolve().parents[1]
STAMP = Stamp("2026-11-24", "abc1234", "7")
TESTS = """
import os
import pathlib
import time

def test_small(record_property):
    record_property("measured", "a scan | 7 MiB")
    assert int(os.environ["SIZE"]) < 5, "the number was | large"

def test_seed():
    assert os.environ["LANCE_IO_SEED"] == "7"

def test_forever():
    if os.environ["SIZE"] == "9":
        pathlib.Path("begun").write_text(str(os.getpid()))
        time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with one file of tests."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def script(project: Path, size: int) -> str:
    """A program that runs one campaign there."""
    return (
        f"from pathlib import Path; from scripts import campaign as c; c.ROOT = Path({str(project)!r})\n"
        f"part = c.Part(('test_it.py',), 'SIZE', {size}, '{{tests}} tests of size {{size}}', 1)\n"
        "c.CAMPAIGNS = (c.Campaign('orders', 'What is tried.', (part,)),); c.commit_name = lambda: 'abc1234'\n"
        f"raise SystemExit(c.main(['--seed', '7', '--page', {str(project / 'page.md')!r}]))"
    )


@pytest.mark.parametrize("size", [4, 8])
def test_findings_are_told_with_a_command_that_shows_them_again(project: Path, size: int) -> None:
    done = subprocess.run([sys.executable, "-c", script(project, size)], cwd=CHECKOUT, capture_output=True, text=True)
    page = (project / "page.md").read_text()
    assert "seed 7" in done.stdout
    assert "| a scan | 7 MiB |\n" in page
    assert f"3 tests of size {size}" in page and "| 2" in page and "`abc1234`" in page
    assert done.returncode == (size > 5), done.stdout + done.stderr
    if size < 5:
        assert "| none |" in page
        return
    assert "| 1, below |" in page and "the number was" in page
    again = next(line.strip() for line in page.splitlines() if line.startswith("      ")).replace(
        "python", sys.executable
    )
    shown = subprocess.run(again, cwd=project, shell=True, capture_output=True, text=True)
    assert shown.returncode == 1 and "1 failed" in shown.stdout and "the number was" in shown.stdout


def test_after_an_interrupt_nothing_runs_and_the_page_is_as_it_was(project: Path) -> None:
    (project / "page.md").write_text("as it was")
    with subprocess.Popen([sys.executable, "-c", script(project, 9)], cwd=CHECKOUT, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (begun := project / "begun").exists() or not begun.read_text():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert process.stderr is not None and b"interrupted" in process.stderr.read()
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    assert (project / "page.md").read_text() == "as it was"


def test_a_section_is_replaced_and_the_others_stay() -> None:
    page = ""
    for number in (7, 1, 4):
        page = page_with(page, CAMPAIGNS[number].name, section(CAMPAIGNS[number], Report([f"first {number}"]), STAMP))
    finding = Report(["second"], ["`test`: failure"], ["a command"], details="Details.\n\n```diff\n-a\n```")
    again = page_with(page, CAMPAIGNS[4].name, section(CAMPAIGNS[4], finding, STAMP))
    assert [line[3:].lower() for line in again.splitlines() if line.startswith("## ")] == list(campaign.NAMES)
    assert again.count("Not run yet.") == len(campaign.NAMES) - 3
    assert "first 1" in again and "first 7" in again and "first 4" not in again
    assert again.count("Details.") == again.count("`test`: failure") == 1
    assert page_with(again, CAMPAIGNS[4].name, section(CAMPAIGNS[4], Report(["first 4"]), STAMP)) == page


def test_what_was_missed_once_stays_on_the_page() -> None:
    orders = next(each for each in CAMPAIGNS if each.name == "orders")
    assert "rebased" in orders.missed
    for page in (page_with("", "damage", ""), page_with("", "orders", section(orders, Report(["all"]), STAMP))):
        assert orders.missed in " ".join(page.split())
    assert "Not run yet" not in section(orders, Report(["all"]), STAMP)


def test_a_share_of_the_size_is_told() -> None:
    part = Part(("x",), "SIZE", 10_000, "{size} orders")
    assert campaign.cases_text(part, 1.0, 1) == "10,000 orders"
    assert campaign.cases_text(part, 0.2, 1) == "2,000 orders (`SIZE=2000`; at full size 10,000)"


def test_what_took_too_much_memory_is_a_finding() -> None:
    line = {"change": "merge", "kind": "rows", "size": 1024, "library": "lance_io", "limit": 128, "commit": "abc1234"}
    line["seconds"] = 1.0
    of_peer = {**line, "library": "lance", "limit": 12 << 10}
    lines = [{**line, "grown": 384}, {**line, "limit": 512, "grown": 769}, {**of_peer, "failed": "more than 12 GiB"}]
    report = campaign.memory_report(lines, "1024")
    assert len(report.findings) == 1 and "under 512 MiB: 769 MiB" in report.findings[0]
    assert "Measured: 3 at `abc1234`." in report.details and report.seconds == 3.0
    assert "| rows, 1 GiB | merge | 384 MiB, 1 s | 769 MiB, 1 s | failed (more than 12 GiB) |" in report.details
    assert campaign.memory_report([{**line, "failed": "MemoryError"}], "1024").findings


def test_what_the_campaigns_name_is_there() -> None:
    sources = "".join(path.read_text() for path in (CHECKOUT / "tests").rglob("*.py"))
    for each in CAMPAIGNS:
        for part in each.parts:
            assert f'"{part.variable}"' in sources
            assert all(
                (CHECKOUT / place.partition("::")[0]).exists() for place in part.tests if place.startswith("tests/")
            )


def test_every_seed_is_the_date_or_a_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEED", "")
    assert campaign.parse([]).seed == time.strftime("%Y%m%d", time.gmtime())
    monkeypatch.setenv("SEED", "12")
    assert campaign.parse(["orders"]).seed == "12"
    for wrong in (["--seed", "x"], ["nothing"]):
        with pytest.raises(SystemExit):
            campaign.parse(wrong)
    assert "there are damage, bombs" in capsys.readouterr().err


def test_the_page_has_every_campaign_that_is_known_and_no_other() -> None:
    if campaign.PAGE.exists():
        names = {line[3:].lower() for line in campaign.PAGE.read_text().splitlines() if line.startswith("## ")}
        assert names == {each.name for each in CAMPAIGNS}
        assert campaign.PAGE.read_text().startswith(campaign.INTRODUCTION)


def test_commands_can_be_pasted() -> None:
    for part in (part for each in CAMPAIGNS for part in each.parts):
        assert shlex.split(shlex.join(part.command())) == part.command()
    assert Campaign("a", "b").parts == ()
