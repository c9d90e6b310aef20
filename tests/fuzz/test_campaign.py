"""Damaged files and tables give valid data or one of three errors, in bounded time and memory.

`LANCE_IO_FUZZ_CASES` says how many random cases run (the campaign of a release is 10,000), `LANCE_IO_SEED` which.
A finding names its case, which `python -m tests.fuzz.worker SPECIMENS SEED CASE CASE+1` runs again by itself.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import lance_io
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.errors import FormatError, NotFound, UnsupportedError
from lance_io.file import LanceFileReader
from tests.fuzz.campaign import ROOT, report_text, run_cases, run_parts
from tests.fuzz.damage import Damaged
from tests.fuzz.reading import read_file, read_table
from tests.fuzz.specimens import make_old_specimens, make_specimens
from tests.fuzz.worker import read_damaged

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

CASES = int(os.environ.get("LANCE_IO_FUZZ_CASES", "300"))
SEED = int(os.environ.get("LANCE_IO_SEED", "1"))
pytestmark = pytest.mark.timeout(120 + CASES if CASES <= 1000 else 0)  # a campaign takes the time it takes


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specimens") / "all"
    make_specimens(folder, all_of_them=CASES > 1000)
    return folder


@pytest.fixture(scope="module")
def old_specimens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specimens") / "old"
    make_old_specimens(folder, all_of_them=CASES > 1000)
    return folder


@pytest.mark.parametrize("which", ["specimens", "old_specimens"])
def test_random_damage_is_data_or_a_named_error(which: str, request: pytest.FixtureRequest) -> None:
    specimens = request.getfixturevalue(which)
    reports = (run_parts if CASES > 1000 else run_cases)(specimens, SEED, 0, CASES)
    text = report_text(reports, SEED)
    print(text)
    assert len(reports) == CASES
    assert not any(report["findings"] for report in reports), text
    refused = sum(not report["read"] for report in reports)
    assert CASES // 10 < refused < CASES * 9 // 10, "the damage is too harmless, or hits what is checked first only"


def cuts(size: int) -> list[int]:
    """Every length in a small file; in a larger one every length near both ends, and some between."""
    if CASES > 1000 or size < 400:
        return list(range(size))
    return sorted({*range(60), *range(size - 120, size), *random.Random(size).sample(range(size), 40)})


@pytest.mark.parametrize("name", ["wide", "ours-wide", "array-wide"])
def test_a_cut_data_file_is_refused_at_every_length(specimens: Path, tmp_path: Path, name: str) -> None:
    data = (specimens / "files" / f"{name}.lance").read_bytes()
    path = tmp_path / "cut.lance"
    for length in cuts(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises((FormatError, UnsupportedError)):
            LanceFileReader(path)


@pytest.mark.parametrize(
    "table",
    ["few-2.1", "many-2.2", "stable-2.2", "ours-few-2.2", "ours-many-2.1", "old/few-2.0", "old/ours-few-2.0",
     "old/ours-stable-2.0", "old/batched", "old/ours-batched"],
)  # fmt: skip
@pytest.mark.parametrize("part", ["_versions/*.manifest", "_deletions/*", "data/*"])
def test_cut_files_of_a_table_never_give_other_rows(
    specimens: Path, old_specimens: Path, tmp_path: Path, table: str, part: str
) -> None:
    folder = old_specimens if table.startswith("old/") else specimens
    whole = folder / "tables" / f"{table.removeprefix('old/')}.lance"
    expected = lance_io.dataset(str(whole)).to_table()
    victim = sorted(whole.glob(part))[0]
    data = victim.read_bytes()
    copy = tmp_path / "cut.lance"
    shutil.copytree(whole, copy, copy_function=os.link)
    target = copy / victim.relative_to(whole)
    target.unlink()
    lengths = cuts(len(data))
    for length in lengths if CASES > 1000 else lengths[:: 1 + len(lengths) // 40]:
        target.write_bytes(data[:length])
        try:
            found = lance_io.dataset(str(copy)).to_table()
        except (FormatError, UnsupportedError, NotFound):
            continue
        assert found.equals(expected), f"{victim.name} cut to {length} of {len(data)} bytes"


def test_cut_data_files_of_old_versions_never_give_other_rows(old_specimens: Path, tmp_path: Path) -> None:
    """Of every type, by both writers; at full size at some three hundred lengths, every one of small files."""
    for whole in sorted((old_specimens / "files").iterdir())[:: 1 if CASES > 1000 else 9]:
        victim = whole if whole.is_file() else sorted(whole.glob("data/*"))[0]
        copy, data = tmp_path / whole.name, victim.read_bytes()
        expected = read_whole(whole)
        if whole.is_dir():
            shutil.copytree(whole, copy)
        target = copy / victim.relative_to(whole)
        ends = {*range(60), *range(max(0, len(data) - 120), len(data))}
        lengths = sorted(ends | set(random.Random(len(data)).sample(range(len(data)), min(len(data), 120))))
        for length in lengths if CASES > 1000 else lengths[::15]:
            target.write_bytes(data[:length])
            try:
                found = read_whole(copy)
            except (FormatError, UnsupportedError):
                continue
            assert found.equals(expected), f"{whole.name} cut to {length} of {len(data)} bytes"


def read_whole(path: Path) -> pa.Table:
    """All rows of a data file or of a table."""
    return LanceFileReader(path).read_all().to_table() if path.is_file() else lance_io.dataset(str(path)).to_table()


def test_undamaged_specimens_read_without_a_finding(specimens: Path, old_specimens: Path) -> None:
    paths = [path for folder in (specimens, old_specimens) for path in sorted((folder / "files").iterdir())]
    for path in paths[:: 1 if CASES > 1000 else 6]:
        verdict = (read_file if path.is_file() else read_table)(str(path), random.Random(3))
        assert not verdict.findings and not verdict.errors, path
        assert verdict.read


def test_the_peak_of_a_case_is_measured_even_in_memory_that_was_mapped_before() -> None:
    script = (
        "import mmap; from tests.fuzz.worker import PeakResident\n"
        "mapped = mmap.mmap(-1, 40 << 20)\n"
        "resident = PeakResident(); mapped.write(bytes(40 << 20)); mapped.close(); print(resident.grown_bytes())\n"
        "print(PeakResident().grown_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    filled, idle = map(int, done.stdout.split())
    assert filled > 38 << 20 > 4 << 20 > idle  # the kernel counts pages by and by


def test_an_error_of_ours_comes_out_as_itself(specimens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing turns every exception into a `FormatError`: a fault in a layout must be seen as a fault."""

    def planted(self: MiniBlockPage, *_: object) -> None:
        raise KeyError("planted")

    path = next(path for path in sorted((specimens / "files").iterdir()) if _has_mini_blocks(path))
    monkeypatch.setattr(MiniBlockPage, "build", planted)
    with pytest.raises(KeyError, match="planted"):
        LanceFileReader(path).read_all().to_table()
    with pytest.raises(KeyError, match="planted"):
        LanceFileReader(path).take_rows([0]).to_table()
    table = specimens / "tables" / "few-2.1.lance"
    with pytest.raises(KeyError, match="planted"):
        lance_io.dataset(str(table)).to_table()
    verdict = read_damaged(path, path, Damaged(path.read_bytes(), "nothing"), random.Random(1))
    assert any("KeyError" in finding for finding in verdict.findings), "the campaign sees it, too"


def _has_mini_blocks(path: Path) -> bool:
    return any("mini-block" in page.encoding for c in LanceFileReader(path).metadata().columns for page in c.pages)
