"""Automatic mutants of `lance_io`: changes of one expression that some test must notice.

`scripts/campaign.py` runs them. The operators are mutmut's; this module chooses the mutants, the files in which it
applies them, and the tests that it runs:

- a seed draws them, from every folder ("room") in proportion to its lines, at most one per line;
- each is applied in a copy of the checkout in the folder for temporary files, one copy for each worker;
- the tests that name the mutated module or function run first, then those of its room, then some wider ones, each time
  the fast ones first, until one fails. A run that exceeds its time counts as a failure, too.

`scripts/invisible_mutants.toml` names mutants that no test can notice, with the reason.
"""

from __future__ import annotations

import bisect
import difflib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from xml.etree import ElementTree

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
INVISIBLE: Final = ROOT / "scripts" / "invisible_mutants.toml"
RESULTS: Final = ROOT / ".cache" / "campaign"  # results for later runs

TOP: Final = "(top)"  # the modules beside the rooms
MINIMUM: Final = 3  # mutants of each room
NAMED_MAX: Final = 6  # number of test files that run first because they name the changed code
EARLIER: Final = "an earlier run"
EXTRA_S: Final = 120  # time limit beside four times the time of the tests alone
ADDRESS_SPACE_KB: Final = 16 << 20  # of each process: a mutant may allocate any amount

# Left out: each takes too long for the few mutants that it alone would notice.
SLOW: Final = (
    "tests/dataset/write/test_fidelity.py",
    "tests/dataset/write/test_fidelity_kinds.py",
    "tests/interop/test_types.py",
    "tests/s3/test_writers.py",
)
# The others start clusters of their own, and take minutes.
_SPARK: Final = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        "options",
        "docs",
        "stream_jobs",
        "read_tasks",
        "version_rows",
        "types",
        "planning",
        "write_jobs",
        "local_writing",
        "told",
        "worker_tuning",
    )
)
# The tests nearest to a room, and wider ones for the mutants that these do not notice.
TESTS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    TOP: (("tests/test_errors.py", "tests/test_types.py", "tests/io"), ("tests/dataset",)),
    "_dataset": (("tests/names/test_samplers.py",), ("tests/names",)),
    "changes": (("tests/dataset",), ("tests/commit", "tests/interop")),
    "cli": (("tests/cli",), ("tests/test_examples.py",)),
    "codecs": (("tests/kernels", "tests/encodings"), ("tests/file",)),
    "commit": (("tests/commit", "tests/simulate"), ("tests/dataset",)),
    "dataset": (
        ("tests/dataset",),
        (
            "tests/interop",
            "tests/s3/test_datasets.py",
            "tests/spark/test_planning.py",
            "tests/spark/test_write_jobs.py",
        ),
    ),
    "encodings": (("tests/encodings", "tests/file"), ("tests/dataset",)),
    "file": (("tests/file",), ("tests/dataset",)),
    "filters": (("tests/filters",), ("tests/dataset",)),
    "format": (("tests/format", "tests/file"), ("tests/encodings", "tests/dataset")),
    "index": (("tests/index",), ("tests/dataset/search",)),
    "io": (("tests/io", "tests/store"), ("tests/file",)),
    "levels": (("tests/levels", "tests/encodings"), ("tests/file",)),
    "plans": (("tests/plans", "tests/commit"), ("tests/file", "tests/dataset")),
    "reads": (("tests/dataset",), ("tests/file", "tests/interop", "tests/s3/test_datasets.py")),
    "runtime": (("tests/test_runtime.py", "tests/io"), ("tests/dataset",)),
    "spark": (_SPARK, ("tests/spark/test_local_reading.py",)),
    "store": (("tests/store", "tests/io"), ("tests/s3", "tests/commit")),
    "table": (("tests/table", "tests/commit"), ("tests/dataset",)),
    "testing": (("tests/io", "tests/store", "tests/commit"), ("tests/simulate",)),
}


# -- making mutants --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A change of a module.

    module   its path in the checkout
    line     number of the changed line
    names    the functions and classes around it
    removed  removed lines, without their indentation
    added    added lines, without their indentation
    code     the module with the change
    """

    module: str
    line: int
    names: tuple[str, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    code: str = field(repr=False)

    @property
    def room(self) -> str:
        """The folder of `lance_io` that contains the module."""
        return room_of(self.module)

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the change, which does not depend on the line number."""
        return (self.module, *(f"-{line}" for line in self.removed), *(f"+{line}" for line in self.added))

    def diff(self) -> str:
        """The change for a reader."""
        return "\n".join([f"{self.module}:{self.line}", *self.key[1:]])


@dataclass(frozen=True)
class Change:
    """A node and its replacement."""

    node: cst.CSTNode
    instead: cst.CSTNode
    names: tuple[str, ...]


_LOGGERS = {"_logger", "LOGGER", "logger", "logging"}
_TYPES = {"cast", "TypeVar", "NewType", "ParamSpec", "TypeVarTuple"}
_OBVIOUS = {"isinstance", "len"}  # any other argument is an error at once
_FOR_READERS = {"__all__", "__slots__"}


class _Finder(cst.CSTVisitor):
    """Collects the changes of a module by line and operator; none of docstrings, types, decorators, error texts."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.changes: dict[int, dict[str, list[Change]]] = defaultdict(dict)
        self._line = 1
        self._names: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Make the changes of a node; return whether to visit its children."""
        position = self.get_metadata(PositionProvider, node, None)
        if position is not None:
            self._line = position.start.line
        if _is_silent(node) or (not self._names and _is_no_behaviour(node)):
            return False
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                for instead in operator(node):
                    change = Change(node, instead, tuple(self._names))
                    self.changes[self._line].setdefault(operator.__name__, []).append(change)
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Leave a function or class."""
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef) and not _is_silent(original_node):
            self._names.pop()


def _is_silent(node: cst.CSTNode) -> bool:
    """Whether a change in this node does not affect behaviour, or is obvious at once."""
    match node:
        case cst.Annotation() | cst.Decorator() | cst.Import() | cst.ImportFrom() | cst.Raise():
            return True
        case cst.If(test=cst.Name("TYPE_CHECKING")):
            return True
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
            return True
        case cst.Call(func=cst.Attribute(value=cst.Name(name))) if name in _LOGGERS:
            return True
        case cst.Call(func=cst.Name(name)) if name in _TYPES | _OBVIOUS:
            return True
        case cst.Subscript(value=cst.Name("Literal")):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(name))]) if name in _FOR_READERS:
            return True
        case cst.FunctionDef():
            words = {_last_name(each.decorator) for each in node.decorators}
            return bool(words & {"overload", "abstractmethod"})
    return False


def _is_no_behaviour(node: cst.CSTNode) -> bool:
    """Whether a statement of a module only defines types or a logger, such as `Steps = Generator[...]`."""
    match node:
        case cst.Assign(value=cst.Subscript(value=cst.Name())):
            return True
        case cst.Assign(value=cst.Call(func=cst.Name(name))):
            return name in _TYPES
        case cst.Assign(value=cst.Call(func=cst.Attribute(value=cst.Name(name)))):
            return name in _LOGGERS
    return False


def _last_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call):
        return _last_name(node.func)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


class Source:
    """A module and all its possible changes."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self._text = path, text
        wrapper = MetadataWrapper(cst.parse_module(text))
        finder = _Finder()
        wrapper.visit(finder)
        self._module = wrapper.module
        self.changes = dict(finder.changes)

    def mutant(self, line: int, change: Change) -> Mutant | None:
        """The module with a change; None if the result is not valid Python, or the same."""
        changed = self._module.deep_replace(change.node, change.instead)
        assert isinstance(changed, cst.Module)
        try:
            compile(changed.code, self.path, "exec")
        except SyntaxError:
            return None
        differences = list(difflib.unified_diff(self._text.splitlines(), changed.code.splitlines(), n=0, lineterm=""))[
            2:
        ]
        removed = tuple(each[1:].strip() for each in differences if each.startswith("-"))
        added = tuple(each[1:].strip() for each in differences if each.startswith("+"))
        if removed == added:
            return None
        return Mutant(self.path, line, change.names, removed, added, changed.code)


def room_of(module: str) -> str:
    """The room of a module's path."""
    parts = module.split("/")
    return parts[1] if len(parts) > 2 else TOP


def modules(root: Path = ROOT) -> dict[str, list[str]]:
    """The modules of each room, without generated code."""
    by_room: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "lance_io").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if room_of(name) != "proto" and path.stat().st_size:
            by_room[room_of(name)].append(name)
    return dict(by_room)


def shares(lines: dict[str, int], number: int) -> dict[str, int]:
    """The number of mutants of each room: in proportion to its lines, but with a minimum."""
    minimum = min(MINIMUM, number // len(lines))
    left, total = number - minimum * len(lines), sum(lines.values())
    exact = {room: left * count / total for room, count in lines.items()}
    counts = {room: minimum + int(share) for room, share in exact.items()}
    for room in sorted(exact, key=lambda room: exact[room] % 1, reverse=True)[: number - sum(counts.values())]:
        counts[room] += 1
    return counts


def draw(number: int, seed: str, root: Path = ROOT) -> list[Mutant]:
    """`number` mutants of all rooms, the same for the same code and seed.

    The first ones are, more or less, those of a draw of a smaller number.
    """
    sizes = {
        room: {name: len((root / name).read_text().splitlines()) for name in names}
        for room, names in modules(root).items()
    }
    drawn: list[tuple[float, Mutant]] = []
    for room, share in shares({room: sum(each.values()) for room, each in sizes.items()}, number).items():
        of_room = _drawn_from(sizes[room], share, random.Random(f"{seed} {room}"), root)
        drawn += [((index + 0.5) / share, mutant) for index, mutant in enumerate(of_room)]
    return [mutant for _, mutant in sorted(drawn, key=lambda each: each[0])]


def _drawn_from(sizes: dict[str, int], number: int, dice: random.Random, root: Path) -> Iterator[Mutant]:
    """Mutants of the modules of a room, each of another line."""
    sources: dict[str, Source] = {}
    seen: set[tuple[str, int]] = set()
    names = list(sizes)
    count = 0
    for _ in range(number * 100):
        if count == number:
            return
        name = dice.choices(names, list(sizes.values()))[0]
        if name not in sources:
            sources[name] = Source(name, (root / name).read_text())
        source = sources[name]
        lines = sorted(source.changes)
        if not lines:
            continue
        line = lines[min(bisect.bisect_left(lines, dice.randint(1, sizes[name])), len(lines) - 1)]
        kinds = source.changes[line]  # first the operator: most changes of most lines are of arguments
        mutant = source.mutant(line, dice.choice(kinds[dice.choice(sorted(kinds))]))
        if (name, line) not in seen and mutant is not None:
            seen.add((name, line))
            count += 1
            yield mutant


def invisible(path: Path = INVISIBLE) -> dict[tuple[str, ...], str]:
    """The reasons why mutants are not visible from outside, by their keys."""
    entries = tomllib.loads(path.read_text())["mutant"]
    return {
        (entry["module"], *(f"-{line}" for line in entry["removed"]), *(f"+{line}" for line in entry["added"])): entry[
            "reason"
        ]
        for entry in entries
    }


# -- testing mutants -------------------------------------------------------------------------------------------------

Verdict = Literal["killed", "survived", "invisible"]


@dataclass(frozen=True)
class Outcome:
    """The result for a mutant.

    by  the test that noticed it, or the reason why no test can
    """

    mutant: Mutant
    verdict: Verdict
    seconds: float = 0.0
    by: str = ""


class Stopped(Exception):
    """The campaign was interrupted."""


class Copy:
    """A copy of the checkout for mutants, one after the other."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.tree, self._temporary = folder / "checkout", folder / "tmp"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        kernels = [path.relative_to(root).as_posix() for path in (root / "lance_io").glob("_kernels*")]
        for name in {*listed.stdout.split("\0"), *kernels} - {""}:
            if (root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.tree / name)
        if (beside := root.parent / "shared").is_dir():
            (folder / "shared").symlink_to(beside)  # tests look there for files of other writers
        # Bytecode checked by hash: a mutant may have the size of the module and its time in seconds.
        command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "lance_io"]
        subprocess.run(command, cwd=self.tree, check=True)
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def run(self, tests: Iterable[str], limit_s: float | None, *options: str) -> tuple[int | None, str]:
        """Run tests until one fails: pytest's exit code, None if the time is exceeded; and its output."""
        self._temporary.mkdir()
        pytest = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *options]
        command = ["bash", "-c", 'ulimit -v "$0"; exec "$@"', str(ADDRESS_SPACE_KB), *pytest, *tests]
        environment = {**os.environ, "CI": "true", "PYTHONPATH": str(self.tree), "TMPDIR": str(self._temporary)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if self._is_stopped:
            raise Stopped
        with subprocess.Popen(
            command,
            cwd=self.tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as self._process:
            try:
                output, _ = self._process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                output = ""
                self.end()
                self._process.communicate()
                return None, output
            finally:
                self.end()  # also servers that the tests did not stop
                shutil.rmtree(self._temporary, ignore_errors=True)
        if self._is_stopped:
            raise Stopped
        return self._process.returncode, output

    def end(self) -> None:
        """End the tests that run, with every process that they started."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop(self) -> None:
        """End the tests that run, and start no others."""
        self._is_stopped = True
        self.end()


def test_file(name: str, root: Path) -> str:
    """The file of a test by the dotted name of its class: of the class that runs, even if it inherits the test."""
    parts = name.split(".")
    paths = ("/".join(parts[:end]) + ".py" for end in range(len(parts), 0, -1))
    return next(path for path in paths if (root / path).is_file())


Work = TypeVar("Work")
Answer = TypeVar("Answer")


class Campaign:
    """Tests mutants with several workers.

    seconds  time of each test file without a mutant
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._copies = [Copy(folder / str(number)) for number in range(workers)]
        self.seconds: dict[str, float] = {}
        self._texts: dict[str, str] = {}

    def _spread(self, work: Callable[[Copy, Work], Answer], over: Sequence[Work]) -> list[Answer]:
        """Do the work for each item, in all copies in parallel."""
        free: SimpleQueue[Copy] = SimpleQueue()
        for copy in self._copies:
            free.put(copy)

        def run_in_copy(each: Work) -> Answer:
            copy = free.get()
            try:
                return work(copy, each)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(len(self._copies)) as pool:
            jobs = [pool.submit(run_in_copy, each) for each in over]
            try:
                return [job.result() for job in jobs]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in self._copies:
                    copy.stop()
                raise

    def rehearse(self, rooms: Iterable[str], known: dict[str, dict[str, float]]) -> None:
        """Run the tests of the rooms without a mutant; they must pass, and their times are recorded.

        known  times that are known already; gets the others
        """
        tests = sorted({path for room in rooms for group in TESTS[room] for path in group} - known.keys())
        known.update(zip(tests, self._spread(self._rehearsal, tests), strict=True))
        for each in known.values():
            self.seconds |= each
        self._texts = {file: (ROOT / file).read_text() for file in self.seconds}

    def _rehearsal(self, copy: Copy, path: str) -> dict[str, float]:
        report = copy.tree.parent / "junit.xml"
        slow = [f"--ignore={file}" for file in SLOW]
        code, output = copy.run([path], None, f"--junitxml={report}", "-o", "junit_family=xunit1", *slow)
        if code != 0:
            raise RuntimeError(f"{path} fails without any mutant:\n{output[-3000:]}")
        times: Counter[str] = Counter()
        for case in ElementTree.parse(report).iter("testcase"):
            times[test_file(case.attrib["classname"], copy.tree)] += float(case.attrib["time"])  # type: ignore[assignment]
        print(f"without a mutant: {path} passes in {sum(times.values()):.0f} s", flush=True)
        return dict(times)

    def stages(self, mutant: Mutant) -> list[list[str]]:
        """The test files for a mutant, in groups, in the order of their runs."""
        near, wide = ([file for path in group for file in self._below(path)] for group in TESTS[mutant.room])
        wide = [file for file in wide if file not in near]
        named = sorted([*near, *wide], key=lambda file: (-self._nearness(mutant, file), self.seconds[file]))
        first = [file for file in named[:NAMED_MAX] if self._nearness(mutant, file)]
        rest = [[file for file in group if file not in first] for group in (near, wide)]
        return [stage for stage in (first, *rest) if stage]

    def _below(self, path: str) -> list[str]:
        """The files of a folder, the fast ones first."""
        files = [file for file in self.seconds if file == path or file.startswith(f"{path}/")]
        return sorted({*files} - {*SLOW}, key=lambda file: self.seconds[file])

    def _nearness(self, mutant: Mutant, file: str) -> int:
        """How closely a test file matches the changed code, by the names in it."""
        module = mutant.module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        text = self._texts[file]
        words = {name for name in mutant.names if len(name) > 5}
        return (
            4 * file.endswith(f"/test_{module.rpartition('.')[2]}.py")
            + 2 * (re.search(rf"\b{re.escape(module)}\b", text) is not None)
            + sum(re.search(rf"\b{re.escape(word)}\b", text) is not None for word in words)
        )

    def judge(
        self, mutants: Sequence[Mutant], report: Callable[[Outcome], None], minutes: float | None = None
    ) -> list[Outcome]:
        """Test mutants, and start none after `minutes`; report each outcome at once."""
        reasons, lock, started = invisible(), threading.Lock(), time.monotonic()

        def judge_one(copy: Copy, mutant: Mutant) -> Outcome | None:
            reason = reasons.get(mutant.key)
            if minutes is not None and not reason and time.monotonic() > started + 60 * minutes:
                return None
            outcome = Outcome(mutant, "invisible", by=reason) if reason else self._judged(copy, mutant)
            with lock:
                report(outcome)
            return outcome

        return [outcome for outcome in self._spread(judge_one, mutants) if outcome is not None]

    def _judged(self, copy: Copy, mutant: Mutant) -> Outcome:
        module, started = copy.tree / mutant.module, time.monotonic()
        whole = module.read_text()
        module.write_text(mutant.code)
        try:
            for stage in self.stages(mutant):
                code, output = copy.run(stage, EXTRA_S + 4 * sum(self.seconds[file] for file in stage))
                if code != 0:
                    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
                    by = "time" if code is None else failed[0] if failed else f"exit code {code}"
                    return Outcome(mutant, "killed", time.monotonic() - started, by)
        finally:
            module.write_text(whole)
        return Outcome(mutant, "survived", time.monotonic() - started)


Believed = Literal["nothing", "killed", "all"]


def run(
    number: int, seed: str, workers: int, *, believe: Believed = "nothing", minutes: float | None = None
) -> list[Outcome]:
    """Draw mutants and judge them.

    believe  results to take over from an earlier run of the same code: the times of tests, and the mutants that it
             killed, or all that it judged; nothing by default
    minutes  time after which it starts no other mutant
    """
    mutants = draw(number, seed)
    verdicts, times = RESULTS / "mutants.jsonl", RESULTS / "tests.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    if believe == "nothing":
        verdicts.unlink(missing_ok=True)
        times.unlink(missing_ok=True)
    before = {key: verdict for key, verdict in _before(verdicts) if believe == "all" or verdict == "killed"}
    reasons = invisible()
    done = [
        Outcome(mutant, before[mutant.key], by=EARLIER)
        for mutant in mutants
        if mutant.key in before and mutant.key not in reasons
    ]
    others = [mutant for mutant in mutants if mutant.key not in before or mutant.key in reasons]
    count = len(done)

    def report(outcome: Outcome) -> None:
        nonlocal count
        count += 1
        where = f"{outcome.mutant.module}:{outcome.mutant.line}"
        print(f"[{count}/{number}] {outcome.verdict:9} {where} ({outcome.seconds:.0f} s) {outcome.by}", flush=True)
        if outcome.verdict == "survived":
            print(outcome.mutant.diff(), flush=True)
        if outcome.verdict != "invisible":
            with verdicts.open("a") as out:
                out.write(json.dumps({"verdict": outcome.verdict, "key": outcome.mutant.key}) + "\n")

    with tempfile.TemporaryDirectory(prefix="lance-io-mutants-", ignore_cleanup_errors=True) as folder:
        campaign = Campaign(Path(folder), workers)
        known = json.loads(times.read_text()) if times.exists() else {}
        campaign.rehearse({mutant.room for mutant in others if mutant.key not in reasons}, known)
        times.write_text(json.dumps(known, indent=1))
        return done + campaign.judge(others, report, minutes)


def _before(verdicts: Path) -> Iterator[tuple[tuple[str, ...], Verdict]]:
    """Keys and verdicts of an earlier run."""
    if verdicts.exists():
        for line in verdicts.read_text().splitlines():
            entry = json.loads(line)
            yield tuple(entry["key"]), entry["verdict"]
