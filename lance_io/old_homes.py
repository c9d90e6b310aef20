"""Modules under the names that they had when earlier releases pickled their objects."""

from __future__ import annotations

import importlib
import sys


def stand_for(package: str, homes: dict[str, str]) -> None:
    """Lets modules be imported under old names below a package, which pickles of earlier releases do.

    package  the old package, which calls this when it is imported, and then only
    homes    today's module by the old module's name
    """
    for name, home in homes.items():
        sys.modules[f"{package}.{name}"] = importlib.import_module(home)
