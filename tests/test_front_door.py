"""The pages that a newcomer sees first are true: the block runs, numbers are stored ones, links and reasons exist."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import lance
import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
README = (CHECKOUT / "README.md").read_text()
PERFORMANCE = (CHECKOUT / "docs" / "performance.md").read_text()
DEPENDENCIES = (CHECKOUT / "docs" / "dependencies.md").read_text()
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
PAGES = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/tour.md", "docs/performance.md"]
PAGES += ["docs/dependencies.md", "minio/README.md", ".github/pull_request_template.md"]


def stored(file: str, name: str, peer: str) -> float:
    """How many times faster a stored run was than a peer."""
    report = json.loads((CHECKOUT / "benchmarks" / "results" / file).read_text())
    if file == "latest.json":
        (finding,) = (finding for finding in report["findings"] if finding["name"] == name)
        return finding["against"][peer]["median"]
    (turns,) = (
        result["turns"]
        for result in report["results"]
        if (result["name"], result["latency_ms"], result["condition"]) == (name, 30, "plain")
    )
    pairs = zip(turns[peer], turns["lance_io"], strict=True)
    return statistics.median(theirs["wall_s"] / ours["wall_s"] for theirs, ours in pairs)


def assert_is(shown: str, file: str, name: str, peer: str) -> None:
    """Two digits of a stored number."""
    assert float(shown.replace(",", "")) == float(f"{stored(file, name, peer):.2g}"), (name, peer)


def test_the_readme_is_short_and_its_block_too() -> None:
    assert len(README.split()) <= 600
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip() and "import" not in line]) <= 12


def test_the_block_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert lance.dataset(str(tmp_path / "drinks.lance")).count_rows() == 1001
    drinks = lance.dataset(str(tmp_path / "drinks.lance")).take([7, 999, 7], columns=["drink"])
    assert done.stdout.startswith(str(drinks))


def test_numbers_of_the_readme_are_those_of_stored_runs() -> None:
    bullets = re.findall(r"^- \*\*(\w+)\*\* .*: ([\d.,]+) times \(`(.+)`\)\.$", README, re.MULTILINE)
    assert len(bullets) == README.count("\n- **") == 5
    for subject, shown, name in bullets:
        assert_is(shown, "latency.json" if subject == "Buckets" else "latest.json", name, "pylance")


def test_numbers_of_performance_are_those_of_stored_runs() -> None:
    local, bucket = PERFORMANCE.split("## On a bucket")
    rows = re.findall(r"^\| [^|]+ \| `(.+)` \| ([\d.,]+) \| ([\d.,]*) \|$", local, re.MULTILINE)
    assert len(rows) == local.count("| `") >= 20
    for name, pylance, parquet in rows:
        assert_is(pylance, "latest.json", name, "pylance")
        if parquet:
            assert_is(parquet, "latest.json", name, "parquet")
    rows = re.findall(r"^\| [^|]+ \| `(.+)` \| ([\d.,]+) \|$", bucket, re.MULTILINE)
    assert len(rows) == bucket.count("| `") >= 5
    for name, pylance in rows:
        assert_is(pylance, "latency.json", name, "pylance")
    for file in ("latest.json", "latency.json"):
        made_at = json.loads((CHECKOUT / "benchmarks" / "results" / file).read_text())["made_at"]
        assert re.search(rf"{file}\]\(\S+\): {made_at[:10]}", PERFORMANCE)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    path = CHECKOUT / page
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text())
    for link in links:
        if link.startswith("http"):
            continue
        target, _, heading = link.partition("#")
        assert (path.parent / target).exists(), link
        if heading:
            headings = re.findall(r"^#+ (.+)$", (path.parent / target).read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
            assert heading in slugs, link
    assert links or page != "README.md"


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_that_are_named_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    text = (CHECKOUT / page).read_text()
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE)
    assert set(named) <= targets


def test_each_dependency_has_its_reason() -> None:
    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}

    def packages(section: str) -> dict[str, set[str]]:
        _, _, text = DEPENDENCIES.partition(f"## {section}\n")
        rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text.partition("\n## ")[0], re.MULTILINE)[1:]
        return {
            name: set(re.findall(r"`(\w+)`", cell)) for cells, cell in rows for name in re.split(", ", cells.strip("`"))
        }

    assert names(PROJECT["dependencies"]) == packages("Always installed").keys()
    extras: dict[str, set[str]] = {}
    for extra, requirements in PROJECT["optional-dependencies"].items():
        for name in names(requirements):
            extras.setdefault(name, set()).add(extra)
    assert packages("Extras") == extras
    cargo = tomllib.loads((CHECKOUT / "kernels" / "Cargo.toml").read_text())["dependencies"]
    assert {name.strip("` ") for name in packages("Crates of the kernels")} == cargo.keys()
    for library in ("adlfs", "gcsfs", "cachetools", "lz4", "zstandard", "pyroaring"):
        assert re.search(rf"^\| [^|]*\b{library}\b[^|]* \| [^|]+ \| .{{30,}} \|$", DEPENDENCIES, re.MULTILINE), library


# -- .github -----------------------------------------------------------------------------------------------------------

WORKFLOWS = sorted((CHECKOUT / ".github" / "workflows").glob("*.yml"))
PYTHONS = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", name)}


def jobs_of(workflow: Path) -> list[dict]:
    """The jobs of a workflow."""
    return [*yaml.safe_load(workflow.read_text())["jobs"].values()]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_an_action_or_a_make_target(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for job in jobs_of(workflow):
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands and all(("run" in step) != ("uses" in step) for step in job["steps"])
        for command in commands:
            words = command.split()
            assert words[0] == "make" and words[1] in targets and all("=" in word for word in words[2:]), command
        assert job["env"]["PYTHON"] == "python"  # the one of the next step, and none of the runner's own
        assert any(step.get("uses", "").startswith("actions/setup-python@") for step in job["steps"])


def test_each_python_stands_in_the_classifiers() -> None:
    used = set()
    for workflow in WORKFLOWS:
        for job in jobs_of(workflow):
            matrix = job.get("strategy", {}).get("matrix", {}).get("python", [])
            (version,) = (step["with"]["python-version"] for step in job["steps"] if "python" in step.get("uses", ""))
            assert version == "${{ matrix.python }}" if matrix else version in PYTHONS
            used |= {*matrix, *([] if matrix else [version])}
    assert used == PYTHONS
    assert min(PYTHONS, key=lambda version: int(version.partition(".")[2])) == PROJECT["requires-python"].strip(">=")


def test_checks_units_servers_and_wheels_have_workflows() -> None:
    commands = {
        step["run"] for workflow in WORKFLOWS for job in jobs_of(workflow) for step in job["steps"] if "run" in step
    }
    assert commands == {"make check", "make unit", "make test-servers", "make wheel"}


def test_no_address_is_invented() -> None:
    """The project has no address yet: neither its metadata nor its pages name one."""
    assert "urls" not in PROJECT and all("email" not in author for author in PROJECT["authors"])
    texts = [(CHECKOUT / page).read_text() for page in PAGES]
    assert not [text for text in texts if re.search(r"[\w.]+@[\w-]+\.\w+|github\.com/(?!actions)|pypi\.org", text)]
    assert not re.search(r"pip install '?lance_io", "".join(texts))
    assert "read and write" in PROJECT["description"].lower()


def test_five_first_issues_name_files_that_exist() -> None:
    contributing = (CHECKOUT / "CONTRIBUTING.md").read_text()
    _, _, section = contributing.partition("## Good first issues\n")
    items = re.findall(r"^\d\. (.+(?:\n   .+)*)", section.partition("\n## ")[0], re.MULTILINE)
    assert len(items) == 5
    for item in items:
        named = re.findall(r"`((?:[\w.]+/)+[\w.]+)`", item)
        assert named and all((CHECKOUT / name).exists() for name in named), item


# -- the changelog -----------------------------------------------------------------------------------------------------

GROUPS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_sections_of_the_changelog_have_groups() -> None:
    text = (CHECKOUT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", text, re.MULTILINE)
    assert versions[0] == PROJECT["version"] and versions[-1] == "0.1.0"
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(versions)
    assert len([line for line in text.partition("## 0.1.0")[2].splitlines() if line]) <= 40
    groups = [*re.finditer(r"^### (.+)$", text, re.MULTILINE)]
    assert groups and all(group[1] in GROUPS for group in groups)


def test_changes_are_fragments_of_a_group() -> None:
    for path in (CHECKOUT / "changes.d").iterdir():
        if path.name != "README.md":
            assert re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(GROUPS).lower()})\.md", path.name), path.name
            text = path.read_text().strip()
            assert text and not text.startswith(("-", "#")), path.name
