"""How processes share the tests among them."""

from __future__ import annotations

from typing import Final

from xdist.scheduler.loadfile import LoadFileScheduling

SPARK: Final = "tests/spark/"


class SparkTogether(LoadFileScheduling):
    """A file goes to one process, and all of Spark's files to the same one.

    A process makes Spark sessions of its own, of ten seconds each. What has the most tests begins first: the folder.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)
