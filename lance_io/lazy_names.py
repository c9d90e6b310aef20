"""What is loaded when it is first used: public names of packages (PEP 562), and modules.

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if TYPE_CHECKING:
    from lance_io.store.local import disk
else:
    disk = later("lance_io.store.local.disk")

Modules that give plans are loaded by `later_plans` (`plans/lazy_module.py`). They count as imports all the same:
`tests/test_layers.py` looks for circles through them, too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package defines as `__getattr__` and `__dir__`.

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


class Later:
    """A module that may not have been imported yet. Its first use puts the module in the place of this.

    home  the globals of the module that uses it
    """

    def __init__(self, name: str, home: dict[str, Any]) -> None:
        self.__name__ = name
        self._home = home

    def __repr__(self) -> str:
        return f"later({self.__name__!r})"

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_home":  # while it is unpickled
            raise AttributeError(attribute)
        module = import_module(self.__name__)
        for name in [name for name, value in [*self._home.items()] if value is self]:
            self._home[name] = module
        return getattr(module, attribute)


def later(name: str) -> Any:
    """The module of this name, for a global of the module that calls this: it is imported when it is first used."""
    return Later(name, sys._getframe(1).f_globals)
