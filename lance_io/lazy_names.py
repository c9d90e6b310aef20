"""Lazy loading: public names of packages (PEP 562), and modules.

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if TYPE_CHECKING:
    from lance_io.store.local import disk
else:
    disk = lazy_module("lance_io.store.local.disk")

`lazy_plans` (`plans/lazy_module.py`) loads modules whose functions return plans. Lazy imports count as imports:
`tests/test_layers.py` looks for import cycles through them, too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that loads its public names on first use.

    homes  the module of each public name
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names


class LazyModule:
    """Stands for a module that may not be imported yet. The first use replaces it by the module.

    home  globals of the module that uses it
    """

    def __init__(self, name: str, home: dict[str, Any]) -> None:
        self.__name__ = name
        self._home = home

    def __repr__(self) -> str:
        return f"lazy_module({self.__name__!r})"

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_home":  # while it is unpickled
            raise AttributeError(attribute)
        module = import_module(self.__name__)
        for name in [name for name, value in [*self._home.items()] if value is self]:
            self._home[name] = module
        return getattr(module, attribute)


def lazy_module(name: str) -> Any:
    """A module for a global of the calling module; imported on first use."""
    return LazyModule(name, sys._getframe(1).f_globals)
