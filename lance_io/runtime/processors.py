"""Processors and memory that this process may use, within the bounds of its control group (container).

    /proc/self/cgroup          one line per hierarchy: number, controllers, path of the process's group
    <path>/cpu.max             version 2 (number 0, no controllers): microseconds of processors, or `max`, in a period
    cpu/<path>/cpu.cfs_quota_us, cpu.cfs_period_us   version 1: the same, -1 for no bound
    <path>/memory.max          version 2: bytes, or `max`
    memory/<path>/memory.limit_in_bytes   version 1: bytes; no limit is a number above all memory

A bound also holds for all groups below, so the smallest bound from the group up to the root counts. The affinity of the
process reflects its cpuset, the processors that it may run on.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    ReadText = Callable[[str], str | None]

_GROUPS: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


def processors() -> int:
    """Number of processors that the process may use, at least 1; rounded up."""
    num_available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota(_text(_GROUPS) or "", lambda name: _text(_MOUNT / name))
    return max(1, num_available if quota is None else min(num_available, math.ceil(quota)))


def processor_quota(groups: str, read: ReadText) -> float | None:
    """Number of processors that a group may use on average; None for no bound.

    groups  text of /proc/self/cgroup
    read    returns the text of a file below the mount of control groups, None if it does not exist
    """
    quotas = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            quotas += [_quota(read(f"{group}cpu.max")) for group in _upwards(path)]
        elif "cpu" in controllers.split(","):
            for group in _upwards(path):
                pair = read(f"cpu/{group}cpu.cfs_quota_us"), read(f"cpu/{group}cpu.cfs_period_us")
                quotas.append(_quota(" ".join(text or "" for text in pair)))
    return min((quota for quota in quotas if quota is not None), default=None)


def _upwards(path: str) -> Iterator[str]:
    """The folders of a group and of its ancestors. In a container the path may not exist, but the root does."""
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        yield "".join(f"{part}/" for part in parts[:depth])


def _quota(text: str | None) -> float | None:
    """Parse a quota and its period; None for `max`, -1 and incomplete text."""
    numbers = (text or "").split()
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers) or not int(numbers[1]):
        return None
    return int(numbers[0]) / int(numbers[1])


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def memory_limit_bytes(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int | None:
    """Memory that the process may use, in bytes; None for no bound.

    groups, mount  files of the control groups; tests replace them
    """
    limits = []
    for line in (_text(groups) or "").splitlines():  # exists on Linux only
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += [_text(mount / f"{group}memory.max") for group in _upwards(path)]
        elif "memory" in controllers.split(","):
            limits += [_text(mount / f"memory/{group}memory.limit_in_bytes") for group in _upwards(path)]
    return min((int(text) for text in limits if text is not None and text.strip().isdecimal()), default=None)
