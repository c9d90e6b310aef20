"""Where the memory of kernels comes from."""

from __future__ import annotations

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
