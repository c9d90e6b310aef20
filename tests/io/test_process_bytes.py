"""What all scans of a process may hold: less in a container that has little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lance_io.io.budget import process_bytes, process_pool
from lance_io.limits import IO_BUFFER_PROCESS_BYTES, MIB
from lance_io.runtime import memory_limit_bytes

if TYPE_CHECKING:
    from pathlib import Path

UNLIMITED = "9223372036854771712"  # what version 1 says


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/jobs/one", {"jobs/one/memory.max": "max", "jobs/memory.max": "7"}, 7, id="of-a-parent"),
        pytest.param("0::/jobs/one", {"jobs/one/memory.max": "5", "jobs/memory.max": "7"}, 5, id="the-smallest"),
        pytest.param("0::/", {"memory.max": "9"}, 9, id="own-namespace"),
        pytest.param("0::/gone/away", {"memory.max": "9"}, 9, id="path-of-the-host"),
        pytest.param("0::/jobs", {"jobs/memory.max": "max"}, None, id="no-limit"),
        pytest.param("0::/../..", {"memory.max": "9"}, 9, id="outside-of-the-namespace"),
        pytest.param(
            "5:cpu,memory:/a\n0::/",
            {"memory/a/memory.limit_in_bytes": "11", "memory/memory.limit_in_bytes": UNLIMITED},
            11,
            id="version-1",
        ),
        pytest.param("4:memory:/a", {"memory/memory.limit_in_bytes": UNLIMITED}, int(UNLIMITED), id="as-good-as-none"),
        pytest.param("", {}, None, id="no-groups"),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, groups: str, files: dict[str, str], expected: int | None) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mount" / name).write_text(f"{text}\n")
    assert memory_limit_bytes(tmp_path / "cgroup", tmp_path / "mount") == expected
    assert memory_limit_bytes(tmp_path / "missing", tmp_path / "mount") is None


def test_a_process_holds_a_quarter_of_its_memory_at_most() -> None:
    assert process_bytes(None) == process_bytes(int(UNLIMITED)) == IO_BUFFER_PROCESS_BYTES
    assert process_bytes(512 * MIB) == 128 * MIB
    assert process_pool().capacity_bytes == process_bytes(memory_limit_bytes())
