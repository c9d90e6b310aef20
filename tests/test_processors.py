"""How many processors a container may use, by the texts of its control groups as systems show them."""

from __future__ import annotations

import os

import pytest

from lance_io.runtime import processors
from lance_io.runtime.processors import processor_quota

DOCKER_1 = (
    "12:cpuset:/docker/3f2a\n11:pids:/docker/3f2a\n4:cpu,cpuacct:/docker/3f2a\n3:memory:/docker/3f2a\n"
    "1:name=systemd:/docker/3f2a\n0::/system.slice/containerd.service\n"
)
PODS_2 = "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-9d.scope\n"


def version_1(quota_us: int, period_us: int = 100_000, group: str = "") -> dict[str, str]:
    """Files of a group of version 1."""
    return {f"cpu/{group}cpu.cfs_quota_us": f"{quota_us}\n", f"cpu/{group}cpu.cfs_period_us": f"{period_us}\n"}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0, id="2-own-namespace"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, None, id="2-no-bound"),
        pytest.param("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5, id="2-half-of-one"),
        pytest.param("0::/../../other\n", {"cpu.max": "150000 100000\n"}, 1.5, id="2-outside-of-the-namespace"),
        pytest.param(PODS_2, {"cpu.max": "300000 100000\n"}, 3.0, id="2-path-of-the-host"),
        pytest.param(
            PODS_2,
            {
                "kubepods.slice/cpu.max": "max 100000\n",
                "kubepods.slice/kubepods-burstable.slice/cpu.max": "400000 200000\n",
                "kubepods.slice/kubepods-burstable.slice/cri-containerd-9d.scope/cpu.max": "600000 100000\n",
            },
            2.0,
            id="2-of-a-parent",
        ),
        pytest.param(DOCKER_1, version_1(250_000), 2.5, id="1-docker"),
        pytest.param(DOCKER_1, version_1(-1), None, id="1-no-bound"),
        pytest.param(DOCKER_1, version_1(-1) | version_1(100_000, 50_000, "docker/3f2a/"), 2.0, id="1-on-the-host"),
        pytest.param(DOCKER_1, {"cpu/cpu.cfs_quota_us": "100000\n"}, None, id="1-without-a-period"),
        pytest.param(DOCKER_1, version_1(100_000, 0), None, id="1-damaged"),
        pytest.param("", {}, None, id="another-system"),
    ],
)
def test_quotas_of_control_groups(groups: str, files: dict[str, str], expected: float | None) -> None:
    assert processor_quota(groups, files.get) == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes have no affinity here")
def test_there_are_no_more_than_this_process_may_run_on() -> None:
    before = os.sched_getaffinity(0)
    assert 1 <= processors() <= len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert processors() == 1
    finally:
        os.sched_setaffinity(0, before)
