"""Modules of plans that are imported when something of them is first used: see `later` (`lazy_names.py`).

if TYPE_CHECKING:
    from lance_io.reads.metadata import describe
else:
    describe = later_plans("lance_io.reads.metadata.describe")
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_io.lazy_names import Later
from lance_io.plans.plan import Import

if TYPE_CHECKING:
    from types import ModuleType

    from lance_io.plans.plan import Plan


class LaterPlans(Later):
    """A module whose functions give plans; classes and constants of it are looked up at once."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute[0].isupper() or attribute.startswith("__"):
            return super().__getattr__(attribute)
        return partial(self._name_plan, attribute)

    def _name_plan(self, function: str, *given: Any, **options: Any) -> Plan[Any]:
        plan = self._plan(function, *given, **options)
        plan.__name__ = function  # type: ignore[attr-defined]  # for stack traces, and `io/call_metrics.py`
        return plan

    def _plan(self, function: str, *given: Any, **options: Any) -> Plan[Any]:
        """The plan that a function gives, after the module has been asked for."""
        yield load(self)
        return (yield from super().__getattr__(function)(*given, **options))


def later_plans(name: str) -> Any:
    """The module of this name, whose functions give plans: on a loop a thread imports it when one is run."""
    return LaterPlans(name, sys._getframe(1).f_globals)


def load(*modules: ModuleType | Later) -> Import:
    """What a plan asks for before it uses modules that are imported later: on a loop a thread imports them."""
    return Import(tuple(module.__name__ for module in modules))
