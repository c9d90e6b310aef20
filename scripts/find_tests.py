"""Answer questions about the test files from their text, before any installation.

    python scripts/find_tests.py needs tests/store -k range      tools of scripts/require that these tests need
    python scripts/find_tests.py of lance_io/io/pacing.py        test files of a module, nearest first

A test needs a server if it is in the server's folder, asks for its fixture, also through the conftest files above it,
or imports a module that starts one. The script needs only the standard library.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]
ALWAYS: Final = ("python", "cargo", "cc")  # to build the kernels
EVERYTHING: Final = (*ALWAYS, "servers", "dynamodb", "java", "jdk", "strace", "disk")
SERVERS: Final = frozenset({"minio", "versity", "gcs", "azure", "dynamodb", "servers"})
FIXTURES: Final = {"s3": "minio", "versity": "versity", "gcs": "gcs", "azure": "azure"}  # of tests/conftest.py
IMPORTS: Final = {
    "servers.__main__": "servers",
    "servers.minio": "minio",
    "servers.versity": "versity",
    "servers.fake_gcs": "gcs",
    "servers.azurite": "azure",
    "tests.commit.dynalite": "dynamodb",
    "tests.simulate.syscalls": "strace",
    "benchmarks.latency": "proxy",
    "benchmarks.latency.worlds": "servers",
    "pyspark": "java",
    "tests.wheels": "jdk",
}
FOLDERS: Final = {"tests/spark": "java", "tests/s3": "minio"}
BY_NAME: Final = "getfixturevalue"  # pytest's way to a fixture whose name is a string


FOR_TYPES: Final = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)*", re.MULTILINE)


@dataclass
class Source:
    """The facts about a Python file that matter here.

    parameters  of all functions
    strings     constants
    fixtures    parameters of the fixtures that it defines
    automatic   fixtures that every test below has
    """

    parameters: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    fixtures: dict[str, set[str]] = field(default_factory=dict)
    automatic: set[str] = field(default_factory=set)


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Modules that a file imports at run time, with the names taken from them; also by a string that starts with
    `lance_io.`. It searches the text, which is ten times as fast as parsing a thousand files."""
    text = FOR_TYPES.sub("", path.read_text(encoding="utf-8"))
    names = set(re.findall(r"^[ \t]*import[ \t]+([\w.]+)", text, re.MULTILINE))
    names.update(re.findall(r"[\"'](lance_io\.[\w.]+)[\"']", text))
    for module, taken in re.findall(
        r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", text, re.MULTILINE
    ):
        names.update({module, *(f"{module}.{name}" for name in re.findall(r"\w+", taken))})
    return frozenset(names)


@cache
def source_of(path: Path) -> Source:
    """Parse a file; a missing file is empty."""
    source = Source()
    if path.exists():
        _visit(ast.parse(path.read_text(encoding="utf-8")), source)
    return source


def _visit(node: ast.AST, source: Source) -> None:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        for other in node.orelse:
            _visit(other, source)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        source.strings.add(node.value)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        parameters = {parameter.arg for parameter in (*node.args.args, *node.args.kwonlyargs)}
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if any("fixture" in decorator and "usefixtures" not in decorator for decorator in decorators):
            source.fixtures[node.name] = parameters
            if any("autouse=True" in decorator for decorator in decorators):
                source.automatic.add(node.name)
        else:
            source.parameters |= parameters
        for decorator in decorators:
            if "usefixtures" in decorator:
                source.parameters.update(re.findall(r"'(\w+)'", decorator))
    for child in ast.iter_child_nodes(node):
        _visit(child, source)


@cache
def _with_helpers(path: Path) -> frozenset[Path]:
    """The file, and the modules of `tests` that it imports, directly or not.

    Another test file counts only if the file imports tests from it: its other definitions need no fixtures.
    """
    files, queue = {path}, [path]
    while queue:
        imports = imports_of(queue.pop())
        for name in imports:
            helper = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if not name.startswith("tests.") or name == "tests.servers" or helper in files or not helper.exists():
                continue
            if helper.stem.startswith("test_") and not any(other.startswith(f"{name}.test") for other in imports):
                continue
            files.add(helper)
            queue.append(helper)
    return frozenset(files)


def needs_beside_fixtures(path: Path) -> set[str]:
    """Tools that every test of a file may need with any fixtures: by its folder, by imports, by strings."""
    imports = {name for file in _with_helpers(path) for name in imports_of(file)}
    imports |= {".".join(name.split(".")[:size]) for name in imports for size in (1, 2)}
    needs = {tool for name, tool in IMPORTS.items() if name in imports}
    needs |= {tool for folder, tool in FOLDERS.items() if ROOT / folder in path.parents}
    if any(BY_NAME in file.read_text(encoding="utf-8") for file in _with_helpers(path)):
        sources = [source_of(file) for file in _with_helpers(path)]
        strings = {string for source in sources for string in source.strings}
        needs |= _tools_of_fixtures(path, strings)
    return needs


def needs_of(path: Path) -> set[str]:
    """Tools of scripts/require that the tests of a file need, beside `ALWAYS`."""
    parameters = {name for file in _with_helpers(path) for name in source_of(file).parameters}
    return needs_beside_fixtures(path) | _tools_of_fixtures(path, parameters)


def _tools_of_fixtures(path: Path, names: Iterable[str]) -> set[str]:
    """The tools behind fixtures of these names, resolved as pytest does for tests of a file."""
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT / "tests")]
    helpers = [source_of(file) for file in sorted(_with_helpers(path) - {path})]
    levels = [source_of(path), *helpers, *(source_of(folder / "conftest.py") for folder in folders)]
    automatic = {name for level in levels for name in level.automatic}
    tools: set[str] = set()
    seen: set[tuple[str, int]] = set()
    queue = [(name, 0) for name in {*names, *automatic}]
    while queue:
        name, first = queue.pop()
        if (name, first) in seen:
            continue
        seen.add((name, first))
        number = next((n for n, level in enumerate(levels) if n >= first and name in level.fixtures), None)
        if number is None:
            continue
        if number == len(levels) - 1 and name in FIXTURES:
            tools.add(FIXTURES[name])
        queue.extend((other, number + 1 if other == name else 0) for other in levels[number].fixtures[name])
    return tools


def test_files(words: Iterable[str]) -> Iterator[Path]:
    """The test files among the arguments of pytest, and those below its folders."""
    for word in words:
        path = (ROOT / word.partition("::")[0]).resolve()
        if path.is_dir():
            yield from sorted(path.rglob("test_*.py"))
        elif path.suffix == ".py" and path.exists():
            yield path


def tools_for(words: list[str]) -> list[str]:
    """Tools for a run of pytest with these arguments; all tools if the arguments name no test file."""
    files = [*test_files(word for word in words if not word.startswith("-"))]
    if not files or ROOT / "tests" in {(ROOT / word).resolve() for word in words}:
        return [*EVERYTHING, "proxy"]
    needs: set[str] = set().union(*(needs_of(file) for file in files))
    return [*ALWAYS, *sorted(needs | ({"jdk"} if "java" in needs else set()))]  # sessions of Spark load our JAR


# -- the tests of a module ---------------------------------------------------------------------------------------------


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _importers() -> dict[str, set[str]]:
    """The modules of the package, and for each the modules that import it."""
    modules = {_module_name(file): file for file in (ROOT / "lance_io").rglob("*.py")}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, file in modules.items():
        for imported in imports_of(file) & modules.keys():
            importers[imported].add(name)
    return importers


def tests_of(path: Path) -> list[tuple[str, Path]]:
    """Test files of a module, nearest first, each with the reason: named after it, imports it, a helper of the file
    imports it, or the number of modules between them. Ends with those one step further than the nearest. For a module
    that is imported by a computed name, the tests of its folder."""
    importers = _importers()
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    reasons = {file: "named after it" for file in files if file.stem == f"test_{path.stem}"}
    known = ring = {_module_name(path)}
    rings_left, between = 2, 0
    while ring and rings_left:
        far = f"{between} modules away" if between else ""
        for reason, helped in (("imports it", False), ("a helper imports it", True)):
            for file in files:
                read = _with_helpers(file) if helped else {file}
                if file not in reasons and any(imports_of(each) & ring for each in read):
                    reasons[file] = far or reason
        rings_left -= bool(reasons)
        ring = {importer for name in ring for importer in importers[name]} - known
        known = known | ring
        between += 1
    room = ROOT / "tests" / path.relative_to(ROOT / "lance_io").parts[0]
    if not reasons:
        reasons = {file: "of its room" for file in files if not room.is_dir() or room in file.parents}
    return [(reason, file) for file, reason in reasons.items()]


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    question, *words = arguments or [""]
    if question == "needs":
        print(*tools_for(words))
    elif question == "of" and len(words) == 1:
        path = (ROOT / words[0]).resolve()
        if not path.is_relative_to(ROOT / "lance_io") or path.suffix != ".py" or not path.exists():
            sys.exit(f"{words[0]!r} is no module of lance_io; expected a path such as lance_io/io/cache.py")
        for reason, file in tests_of(path):
            print(f"{reason:20} {file.relative_to(ROOT)}")
    else:
        sys.exit("usage: find_tests.py needs [ARGUMENTS OF PYTEST] | of lance_io/FOLDER/MODULE.py")


if __name__ == "__main__":
    main(sys.argv[1:])
