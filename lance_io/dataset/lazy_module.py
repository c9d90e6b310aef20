"""Modules that are imported when something of them is first used: a new process reaches its first row without them.

if TYPE_CHECKING:
    from lance_io.dataset.version import tags_and_branches as refs
else:
    refs = later("lance_io.dataset.version.tags_and_branches")

They count as imports all the same: `tests/test_layers.py` looks for circles through them, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lance_io.plans.plan import Import

if TYPE_CHECKING:
    from types import ModuleType


class Later:
    """A module that may not have been imported yet."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"later({self.__name__!r})"

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self.__name__), attribute)


def later(name: str) -> Any:
    """The module of this name; every use of an attribute looks there."""
    return Later(name)


def load(*modules: ModuleType) -> Import:
    """What a plan asks for before it uses modules that are imported later: on a loop a thread imports them."""
    return Import(tuple(module.__name__ for module in modules))
