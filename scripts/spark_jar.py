"""Build the JAR that Spark loads, `lance_io/spark/lance_io.jar`, from the Java sources in `jvm/`.

    python scripts/spark_jar.py                      against the pyspark of this Python, into its place in the package
    .venv-spark-4.1/bin/python scripts/spark_jar.py --check      whether another pyspark gives the same bytes

The classes are compiled with `javac --release 17` against the JARs of pyspark and nothing else. `jvm_later/` has those
that name classes which only later releases of Spark have; the others load them by their names. The same sources give
the same bytes: the entries of the archive are in order, and all of one time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "jvm"
LATER_SOURCES: Final = ROOT / "jvm_later"
LATER_CLASS: Final = "org/apache/spark/sql/connector/write/InsertSummary.class"  # a Spark that has it has them all
JAR: Final = ROOT / "lance_io" / "spark" / "lance_io.jar"
PACKAGE: Final = "lance_io/spark"
LATER: Final = "lance_io/spark/later/"
SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
TIME: Final = (1980, 1, 1, 0, 0, 0)  # the first that an archive can hold


def find_javac() -> str | None:
    """The compiler of JAVA_HOME, else of PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        return str(Path(home) / "bin" / "javac")
    return shutil.which("javac")


def find_pyspark() -> Path:
    """The folder of this Python's pyspark. Raises `SystemExit` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("pyspark is not installed: its JARs are what the classes are compiled against")
    return Path(spec.origin).parent


def package_version() -> str:
    """The version of the package, which is that of the JAR."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def compile_classes(javac: str, pyspark: Path, folder: Path) -> None:
    """Compile all sources into a folder, those of later releases where this one has the classes.

    Raises `SystemExit` with the compiler's messages.
    """
    _compile(javac, [f"{pyspark}/jars/*"], SOURCES, folder)
    if has_later(pyspark):
        _compile(javac, [f"{pyspark}/jars/*", str(folder)], LATER_SOURCES, folder)


def _compile(javac: str, path: list[str], sources: Path, folder: Path) -> None:
    options = ["--release", "17", "-g:source,lines", "-Xlint:all,-classfile,-path,-processing", "-Werror", "-proc:none"]
    files = sorted(str(file) for file in sources.rglob("*.java"))
    command = [javac, *options, "-encoding", "UTF-8", "-cp", os.pathsep.join(path), "-d", str(folder), *files]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}")


def has_later(pyspark: Path) -> bool:
    """Whether a pyspark has the classes that the sources of later releases need."""
    for jar in (pyspark / "jars").glob("spark-catalyst_*.jar"):
        with zipfile.ZipFile(jar) as archive:
            return LATER_CLASS in archive.namelist()
    raise SystemExit(f"there is no spark-catalyst among the JARs of {pyspark}")


def jar_entries(classes: Path, version: str) -> dict[str, bytes]:
    """The files of the archive by name, in its order."""
    entries = {
        "META-INF/MANIFEST.MF": f"Manifest-Version: 1.0\nImplementation-Version: {version}\n\n".encode(),
        SERVICE: b"lance_io.spark.Provider\n",
        f"{PACKAGE}/version.properties": f"version={version}\n".encode(),
    }
    for path in sorted(classes.rglob("*.class")):
        entries[path.relative_to(classes).as_posix()] = path.read_bytes()
    return entries


def write_jar(entries: dict[str, bytes], target: Path) -> None:
    """Write an archive whose bytes depend on the entries only."""
    with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".jar", delete=False) as unfinished:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in entries.items():
                info = zipfile.ZipInfo(name, TIME)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.create_system = 3  # as on Unix, on all systems
                info.external_attr = 0o644 << 16
                archive.writestr(info, content)
    os.chmod(unfinished.name, 0o644)
    os.replace(unfinished.name, target)


def build(pyspark: Path, target: Path) -> None:
    """Compile and pack. Raises `SystemExit` if that is not possible."""
    javac = find_javac()
    if javac is None:
        raise SystemExit("there is no javac: scripts/require jdk says how to get a JDK")
    with tempfile.TemporaryDirectory() as folder:
        compile_classes(javac, pyspark, Path(folder))
        write_jar(jar_entries(Path(folder), package_version()), target)


def check(pyspark: Path) -> None:
    """Raise `SystemExit` unless compiling against a pyspark gives the bytes of the JAR in the package.

    A release without the classes that later sources need compiles the others only.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / JAR.name
        build(pyspark, again)
        if again.read_bytes() == JAR.read_bytes():
            return
        with zipfile.ZipFile(again) as theirs, zipfile.ZipFile(JAR) as ours:
            contents = [{name: archive.read(name) for name in archive.namelist()} for archive in (theirs, ours)]
        names = contents[0].keys() | contents[1].keys()
        others = sorted(name for name in names if contents[0].get(name) != contents[1].get(name))
        if not any(name.startswith(LATER) for name in contents[0]):
            others = [name for name in others if not name.startswith(LATER)]
        if not others:
            return
        raise SystemExit(f"compiled against {pyspark}, these differ from {JAR}: {', '.join(others)}")


def main() -> None:
    """Read the command line, and build or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=JAR)
    parser.add_argument("--pyspark", type=Path, default=None, help="folder of the pyspark to compile against")
    parser.add_argument("--check", action="store_true", help="compare with the JAR in the package")
    given = parser.parse_args()
    pyspark = given.pyspark or find_pyspark()
    if given.check:
        check(pyspark)
        return
    build(pyspark, given.out)
    print(f"{given.out} {given.out.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
