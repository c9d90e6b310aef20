"""How processes share the tests among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xdist.scheduler.loadfile import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SPARK: Final = "tests/spark/"
# Files of few tests that take long. At the end one process would wait for another that has begun them.
LONG: Final = (
    "tests/interop/test_alone.py",
    "tests/index/test_text_answers.py",
    "tests/interop/test_compatibility.py",
    "tests/interop/test_crowd.py",
    "tests/interop/test_pylance_names.py",
    "tests/index/test_index_property.py",
)


class SparkTogether(LoadFileScheduling):
    """A file goes to one process, and all of Spark's files to the same one.

    A process makes Spark sessions of its own, of ten seconds each. Spark's folder begins first, then the long files,
    then those with the most tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        first = next((scope for scope in (SPARK, *LONG) if scope in self.workqueue), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
