"""Modules of plans, imported on first use. See `lazy_module` (`lazy_names.py`) for other modules.

if TYPE_CHECKING:
    from lance_io.reads.metadata import describe
else:
    describe = lazy_plans("lance_io.reads.metadata.describe")
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_io.lazy_names import LazyModule
from lance_io.plans.plan import Import

if TYPE_CHECKING:
    from types import ModuleType

    from lance_io.plans.plan import Plan


class LazyPlans(LazyModule):
    """A lazy module whose functions return plans. Looking up a class or constant imports the module at once."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute[0].isupper() or attribute.startswith("__"):
            return super().__getattr__(attribute)
        return partial(self._name_plan, attribute)

    def _name_plan(self, function: str, *arguments: Any, **options: Any) -> Plan[Any]:
        plan = self._plan(function, *arguments, **options)
        plan.__name__ = function  # type: ignore[attr-defined]  # for stack traces, and `io/call_metrics.py`
        return plan

    def _plan(self, function: str, *arguments: Any, **options: Any) -> Plan[Any]:
        """The plan of a function; requests the import of the module first."""
        yield load(self)
        return (yield from super().__getattr__(function)(*arguments, **options))


def lazy_plans(name: str) -> Any:
    """A module whose functions return plans. Running one on an event loop imports the module in a thread."""
    return LazyPlans(name, sys._getframe(1).f_globals)


def load(*modules: ModuleType | LazyModule) -> Import:
    """The request that a plan yields before it uses lazy modules. On an event loop a thread imports them."""
    return Import(tuple(module.__name__ for module in modules))
