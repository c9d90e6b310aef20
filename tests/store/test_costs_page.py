"""`docs/costs.md` has the numbers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from lance_io.limits import KIB, MIB
from lance_io.store.costs import STORE_COSTS
from lance_io.store.profile import CLOUD, S3_EXPRESS, StoreProfile

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "costs.md").read_text()


def test_every_store_and_its_numbers() -> None:
    rows = re.findall(r"(?m)^\| `([\w-]+)` \| (.*) \|$", PAGE)
    stores = {name: [float(cell.strip().lstrip("$")) for cell in cells.split("|")] for name, cells in rows[:5]}
    assert stores == {
        name: [
            costs.latency_s * 1e3,
            costs.connection_bytes_per_s / 1e6,
            costs.prices.get_usd_per_million,
            costs.prices.put_usd_per_million,
            costs.prices.list_usd_per_million,
            costs.prices.read_usd_per_gib,
            costs.prices.write_usd_per_gib,
        ]
        for name, costs in STORE_COSTS.items()
    }


def test_the_gaps_that_follow() -> None:
    def row(profile: StoreProfile) -> str:
        assert profile.costs is not None
        take, scan = profile.take_gap_bytes, profile.scan_gap_bytes
        return f"{profile.costs.prices.gap_bytes:,.0f} | {take // KIB} KiB | " + (
            f"{scan // MIB} MiB" if scan >= MIB else f"{scan // KIB} KiB"
        )

    for usd in ("0.02", "0.09"):
        assert f"(${usd}) | {row(CLOUD.with_options({'read_usd_per_gib': usd}))} |" in PAGE
    assert f"| `s3-express` | {row(S3_EXPRESS)} |" in PAGE
    assert f"| `s3`, in the region | {row(CLOUD).replace('inf', 'free')} |" in PAGE
