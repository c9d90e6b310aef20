"""Measure the memory of changes of tables, of every kind and size, of lance_io under two limits and of pylance.

    python scripts/measure_memory.py RESULTS.jsonl --sizes 1024 4096 [--kinds vectors] [--folder FOLDER]

The script makes each kind of table once and restores it before each change: an update of 1 % of the rows, a merge of
10 % from a reader, a compaction; of texts also updates and new columns of all rows, and takes, which may need the size
of their result and 128 MiB. A line of the results has the peak of a fresh process, less its memory after import and
opening, in MiB, and the commit of the code. The script does not repeat measurements that the results have. It measures
pylance up to 4 GiB; pylance has failed if it needs more than 12 GiB or an hour. One table is on disk at a time, with
twice its size at most.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import change_memory
from scripts.campaign import commit_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS: Final = ("rows", "vectors", "blobs", "texts", "zeros")
CHANGES: Final = ("update", "merge", "compact")
WHOLE: Final = ("merge", "compact", "rewrite", "column", "take", "shuffle")
"""The changes of texts, whose decoded bytes count."""
LIMITS_MIB: Final = (128, 512)
ALLOWED_MIB: Final = 256  # beside the limit
TAKEN_MIB: Final = 128  # beside the result of a take
PEER: Final = "lance"
PEER_SIZE_MIB: Final = 4096
PEER_LIMIT_MIB: Final = 12 << 10
SECONDS_MAX: Final = 3600
POLL_SECONDS: Final = 0.05


def cases(size_mib: int, kind: str) -> Iterator[tuple[str, str, int]]:
    """The measurements of a table: the change, the library and the limit in MiB."""
    for change in WHOLE if kind in ("texts", "zeros") else CHANGES:
        for limit_mib in LIMITS_MIB:
            yield change, "lance_io", limit_mib
        if size_mib <= PEER_SIZE_MIB:
            yield change, PEER, PEER_LIMIT_MIB


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    """The case of a line of the results."""
    return tuple(line[name] for name in ("kind", "size", "change", "library", "limit"))


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(results: Path, sizes_mib: Sequence[int], kinds: Sequence[str] = KINDS, folder: str | None = None) -> None:
    """Append the missing measurements to the results."""
    for size_mib in sizes_mib:
        for kind in kinds:
            measured = {key(line) for line in read_results(results)}
            wanted = [case for case in cases(size_mib, kind) if (kind, size_mib, *case) not in measured]
            if wanted:
                with tempfile.TemporaryDirectory(prefix="lance-io-memory-", dir=folder) as scratch:
                    _measure_table(results, Path(scratch) / "table", kind, size_mib, wanted)


def _measure_table(results: Path, table: Path, kind: str, size_mib: int, wanted: list[tuple[str, str, int]]) -> None:
    commit = commit_name()
    num_rows = size_mib * change_memory.MIB // change_memory.ROW_BYTES[kind]
    call = [sys.executable, change_memory.__file__]
    subprocess.run([*call, "--make", "all", kind, str(num_rows), "0", "lance_io", str(table)], check=True)
    files = {path for path in table.rglob("*") if path.is_file()}
    for change, library, limit_mib in wanted:
        measured = _run([*call, "--run", change, kind, str(num_rows), str(limit_mib), library, str(table)], library)
        line = {"change": change, "kind": kind, "size": size_mib, "limit": limit_mib, "library": library, **measured}
        line["commit"] = commit
        print(json.dumps(line), flush=True)
        with results.open("a") as out:
            out.write(json.dumps(line) + "\n")
        for path in table.rglob("*"):
            if path.is_file() and path not in files:
                path.unlink()


def _run(command: list[str], library: str) -> dict[str, Any]:
    """The output of the process, or the reason why it failed."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        killed = ""
        while process.poll() is None and not killed:
            if library == PEER and _resident_mib(process.pid) > PEER_LIMIT_MIB:
                killed = f"more than {PEER_LIMIT_MIB >> 10} GiB"
            elif time.monotonic() - started > SECONDS_MAX:
                killed = f"more than {SECONDS_MAX} s"
            time.sleep(POLL_SECONDS)
        if killed:
            process.kill()
            process.communicate()
            return {"failed": killed}
        output = process.communicate()[0]
        if process.returncode:
            errors.seek(0)
            words = errors.read().strip().splitlines()
            return {"failed": (words[-1] if words else f"ended with {process.returncode}")[:200]}
    measured: dict[str, Any] = json.loads(output)
    return measured


def _resident_mib(pid: int) -> float:
    """The memory of a process; 0 after its end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0) / 1024


def is_above(line: dict[str, Any]) -> bool:
    """Whether a line of ours has failed, or is above its limit."""
    if line["library"] == PEER or "failed" in line:
        return bool(line["library"] != PEER)
    allowed = line["gives"] + TAKEN_MIB if "gives" in line else line["limit"] + ALLOWED_MIB
    return bool(line["grown"] > allowed)


def table_of(results: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown, a line for each change of each table."""
    columns = [("lance_io", limit) for limit in LIMITS_MIB] + [(PEER, PEER_LIMIT_MIB)]
    heads = " | ".join(f"limit {limit} MiB, at most {limit + ALLOWED_MIB}" for limit in LIMITS_MIB)
    lines = [f"| Table | Change | {heads} | pylance |", "|---|---|---|---|---|"]
    by_key = {key(result): result for result in results}
    for kind, size, change in dict.fromkeys(key(result)[:3] for result in results):
        cells = [_cell(by_key.get((kind, size, change, *column))) for column in columns]
        size_text = f"{size >> 10} GiB" if size >= 1024 else f"{size} MiB"
        lines.append(f"| {kind}, {size_text} | {change} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    if "failed" in result:
        return f"failed ({result['failed'].replace('|', '/')})"
    gives = f" for {result['gives']:,}" if "gives" in result else ""
    return f"{result['grown']:,} MiB{gives}, {result['seconds']:.0f} s"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096], metavar="MIB")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--folder", help="for the tables; a temporary one by default")
    given = parser.parse_args()
    measure(given.results, given.sizes, given.kinds, given.folder)
    results = read_results(given.results)
    print(table_of(results))
    raise SystemExit(1 if any(is_above(line) for line in results) else 0)


if __name__ == "__main__":
    main()
