"""Modules that are imported when something of them is first used: a new process reaches its first row without them.

if TYPE_CHECKING:
    from lance_io.dataset.version import tags_and_branches as refs
else:
    refs = later("lance_io.dataset.version.tags_and_branches")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module that may not have been imported yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"later({self._name!r})"

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def later(name: str) -> Any:
    """The module of this name; every use of an attribute looks there."""
    return Later(name)
