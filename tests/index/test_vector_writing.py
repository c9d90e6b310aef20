"""The checks of `vector_writing.py`: some here; all 312 with `LANCE_IO_VECTOR_CHECKS=12`, a campaign."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.index.vector_writing import KINDS, METRICS, checks

NUM_QUERIES = int(os.environ.get("LANCE_IO_VECTOR_CHECKS", "0"))


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_pylance_computes_what_the_files_say(kind: str, options: dict[str, Any]) -> None:
    for number, metric in enumerate(METRICS):
        for stable in (False, True) if NUM_QUERIES else (number % 2 == 1,):
            assert all(checks(kind, options, metric, stable=stable, num_queries=NUM_QUERIES or 3))
