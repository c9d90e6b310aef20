"""One process of the campaign: damages and reads cases FIRST to LAST of SPECIMENS, a JSON line per case.

    python -m tests.fuzz.worker SPECIMENS SEED FIRST LAST [verbose]

Case `n` is drawn from seed and number alone, so any case can be run again by itself. The address space is limited
anew for every case, so that what asks for far too much is stopped there; and the peak of resident memory is measured,
as a case may also fill what earlier ones have mapped. A case that does not end is ended by a watchdog with the stack of
every thread.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance_io.encodings.v2_1.fullzip
import lance_io.file.file_requests
import lance_io.file.open.open_file
import lance_io.store.url
from lance_io import limits
from lance_io.io.buffer_pool import POOL_BYTES, buffer_pool
from lance_io.store.profile import LOCAL
from tests.fuzz.damage import Damaged, blind, damage_data_file, damage_manifest
from tests.fuzz.indexed import damage_index_file, index_files, is_seen, read_indexed
from tests.fuzz.indexed_vectors import damage_text, read_vectors, vector_files
from tests.fuzz.reading import Verdict, read_file, read_table

SECONDS_MAX = 5.0  # of processor time, so that a busy machine is no finding
HANG_SECONDS = 60
EXTRA_BYTES = 64 << 20
TRUNCATIONS = -1


class Specimens:
    """The undamaged files and tables, in a fixed order."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted((folder / "files").iterdir())
        self.tables = sorted((folder / "tables").iterdir())

    def draw(self, dice: random.Random) -> tuple[Path, Path]:
        """(file or table, the file to damage)."""
        if dice.random() < 0.65 and self.files:
            path = dice.choice(self.files)
            return path, path if path.is_file() else dice.choice(sorted(path.glob("data/*")))
        table = dice.choice(self.tables)
        if parts := [*index_files(table), *vector_files(table)]:
            return table, dice.choice(parts)
        manifests = sorted((table / "_versions").glob("*.manifest"))[:1]  # newest first by name
        deletions = sorted(table.glob("_deletions/*"))
        data = sorted(path for path in table.glob("data/**/*") if path.is_file())  # sidecars of blobs, too
        return table, dice.choice(dice.choice([group for group in (manifests, manifests, deletions, data) if group]))


def damaged(whole: Path, victim: Path, dice: random.Random) -> Damaged:
    """The victim's bytes, damaged."""
    data = victim.read_bytes()
    if victim.suffix == ".manifest":
        return damage_manifest(data, dice)
    if victim in index_files(whole):
        return damage_index_file(data, dice)
    if victim in vector_files(whole):
        return (damage_text(data, dice) if dice.random() < 0.2 else None) or damage_index_file(data, dice)
    if victim.suffix == ".lance":
        found = damage_data_file(data, dice)
        return found if whole == victim else Damaged(found.data, found.what)
    return blind(data, dice)


def read_damaged(whole: Path, victim: Path, case: Damaged, dice: random.Random) -> Verdict:
    """Put the damaged file in its place and read the whole."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        copy = Path(scratch) / whole.name
        if whole == victim:
            copy.write_bytes(case.data)
            return read_file(str(copy), dice)
        shutil.copytree(whole, copy, copy_function=os.link)
        target = copy / victim.relative_to(whole)
        target.unlink()
        target.write_bytes(case.data)
        if index_files(whole):
            return read_indexed(str(copy), whole.name, case.what, dice)
        if vector_files(whole):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that an index of unknown codes is not used
                return read_vectors(str(copy), is_seen(case.what), dice)
        return read_table(str(copy), dice)


SCRATCH = os.environ.get("LANCE_IO_FUZZ_SCRATCH")


def plan_small(*, small: bool) -> None:
    """Let files of some kilobytes take the ways that only large ones take: cut pages, indexes read by entry, metadata
    read by column, tails that hold only a part of it."""
    limits.SCAN_PIECE_BYTES = 1000 if small else 8 << 20
    lance_io.encodings.v2_1.fullzip.REPETITION_INDEX_KEPT_BYTES_MAX = 100 if small else 1 << 20  # type: ignore[attr-defined]
    lance_io.file.open.open_file.WIDE_METADATA_BYTES = 100 if small else 1 << 20
    profile = replace(LOCAL, tail_bytes=200, whole_file_bytes=0, take_gap_bytes=0) if small else LOCAL
    lance_io.store.url.LOCAL = profile  # type: ignore[attr-defined]


def run_case(specimens: Specimens, seed: int, number: int) -> dict[str, Any]:
    """One case; what a report needs to know about it."""
    dice = random.Random(f"{seed}:{number}")
    whole, victim = specimens.draw(dice)
    case = damaged(whole, victim, dice)
    victim_bytes = sum(f.stat().st_size for f in whole.rglob("*") if f.is_file()) if whole != victim else len(case.data)
    plan_small(small=dice.random() < 0.4)
    started, resident = time.process_time(), PeakResident()
    bytes_max = 4 * victim_bytes + EXTRA_BYTES
    with AddressSpace(bytes_max):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        verdict = read_damaged(whole, victim, case, dice)
        faulthandler.cancel_dump_traceback_later()
    if time.process_time() - started > SECONDS_MAX:
        verdict.findings.append(f"{time.process_time() - started:.1f} seconds of processor time")
    if (grown := resident.grown_bytes()) > bytes_max:
        verdict.findings.append(f"resident memory grew by {grown} bytes, {bytes_max} are allowed")
    verdict.check_place(case.where)
    return {
        "case": number,
        "of": f"{whole.name}/{victim.name}" if whole != victim else whole.name,
        "what": case.what,
        "read": verdict.read,
        "errors": sorted({f"{type(e).__name__}: {e}" for e in verdict.errors}),
        "findings": verdict.findings,
        "other rows": verdict.other_rows,
        "grown": grown,
    }


class AddressSpace:
    """A limit on what the process may map, above what it has mapped already."""

    def __init__(self, extra_bytes: int) -> None:
        self.extra_bytes = extra_bytes

    def __enter__(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + self.extra_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class PeakResident:
    """By how much the peak of resident memory exceeds what was resident when this was made."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak (Linux, proc(5))
        self._before = _status_bytes("VmRSS")

    def grown_bytes(self) -> int:
        return _status_bytes("VmHWM") - self._before


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def warm_up(specimens: Specimens) -> None:
    """Load modules, start threads and make the buffers that reads share, whose memory is not a case's."""
    lance_io.file.file_requests._scratch.get(lance_io.file.file_requests.SCRATCH_BYTES_MAX)
    buffer_pool().allocate(POOL_BYTES)
    for seed in range(40 if specimens.files else 0):
        plan_small(small=seed % 2 == 1)
        whole = Damaged(specimens.files[0].read_bytes(), "nothing")
        verdict = read_damaged(specimens.files[0], specimens.files[0], whole, random.Random(seed))
        assert not verdict.errors and not verdict.findings, (verdict.errors, verdict.findings)
    plan_small(small=False)
    for table in specimens.tables:
        victim = next((table / "_versions").glob("*.manifest"))
        verdict = read_damaged(table, victim, Damaged(victim.read_bytes(), "nothing"), random.Random(1))
        assert not verdict.errors and not verdict.findings, (table, verdict.errors, verdict.findings)


def main() -> None:
    folder, seed, first, last = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    specimens = Specimens(folder)
    warm_up(specimens)
    for number in range(first, last):
        print(f'{{"begin": {number}}}', flush=True)
        print(json.dumps(run_case(specimens, seed, number)), flush=True)


if __name__ == "__main__":
    main()
