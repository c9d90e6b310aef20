"""Where the memory of kernels comes from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lance_io import _kernels

MIB = 1 << 20


def advice_at(address: int) -> list[str]:
    """The flags of the mapping that an address lies in, as the system tells them."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            start, end = (int(border, 16) for border in first.split("-"))
            is_inside = start <= address < end
        elif is_inside and first == "VmFlags:":
            return rest
    raise AssertionError("an address outside of all mappings")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the advice that a mapping was given")
@pytest.mark.parametrize("num_mib", [5, 64])
def test_large_memory_is_asked_for_in_large_pages(tmp_path: Path, num_mib: int) -> None:
    """Filling fresh memory in pages of 4 KiB costs more than decoding it."""
    path = tmp_path / "large"
    path.write_bytes(bytes(num_mib * MIB))
    with path.open("rb") as file:
        whole = np.array([0], dtype=np.int64), np.array([num_mib * MIB], dtype=np.int64)
        buffer, *_ = _kernels.read_ranges(file.fileno(), *whole, 0, 1, None)
    middle = np.frombuffer(memoryview(buffer), dtype=np.uint8)[num_mib * MIB // 2 :]
    assert "hg" in advice_at(middle.ctypes.data)


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are Linux's")
def test_large_memory_begins_with_a_large_page(tmp_path: Path) -> None:
    """Otherwise up to 2 MiB at each of its ends are pages of 4 KiB."""
    num_bytes = 33 * MIB + 4096  # larger than what is kept of freed blocks
    path = tmp_path / "large"
    path.write_bytes(bytes(num_bytes))
    whole = np.array([0], dtype=np.int64), np.array([num_bytes], dtype=np.int64)
    with path.open("rb") as file:
        held = [_kernels.read_ranges(file.fileno(), *whole, 0, 1, None)[0] for _ in range(4)]
    for buffer in held:
        assert np.frombuffer(memoryview(buffer), dtype=np.uint8).ctypes.data % (2 * MIB) == 0


HELD = """
import sys
import zstandard
from lance_io import _kernels


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))


frame = zstandard.compress(bytes(7 << 20))
size = (7 << 20).to_bytes(8, "little") if sys.argv[1] == "sized" else b""
_kernels.inflate(size + frame, 2, 1 << 31)
before = resident()
held = [_kernels.inflate(size + frame, 2, 1 << 31) for _ in range(30)]
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what is resident")
@pytest.mark.parametrize("kind", ["sized", "bare"])
def test_what_is_decompressed_takes_no_more_than_it_is(kind: str) -> None:
    """30 times 7 MiB: memory that doubled as they came had 8 each."""
    command = [sys.executable, "-c", HELD, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert 200 <= int(done.stdout) <= 220
