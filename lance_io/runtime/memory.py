"""How much memory the process may use, where a control group (a container) says so.

    /proc/self/cgroup            one line per hierarchy: number, controllers, path of the process's group
    <mount>/<path>/memory.max    version 2 (number 0, no controllers): bytes, or `max`
    <mount>/memory/<path>/memory.limit_in_bytes   version 1: bytes; no limit is a number above all memory

A limit holds for all groups below, so the smallest from the group up to the root counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


def memory_limit_bytes(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int | None:
    """The bound in bytes, or None where there is none to be found."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # another system than Linux
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits(mount, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(mount / "memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits(root: Path, path: str, name: str) -> list[int]:
    """What the groups from `path` up to the root say. In a container the path may not be there, but the root is."""
    parts = [part for part in path.split("/") if part and part != ".."]
    found = []
    for depth in range(len(parts), -1, -1):
        try:
            text = root.joinpath(*parts[:depth], name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    return found
