"""Base classes of `pyarrow.dataset` from which the public classes derive.

Importing `pyarrow.dataset` takes 0.2 s where pandas is installed, because pyarrow imports pandas. Opening a table and
taking rows avoid that: the public classes are built on first use. The bases are defined in `pyarrow._dataset`. DuckDB
recognises datasets by that base, and only after `pyarrow.dataset` has been imported.
"""

from __future__ import annotations

import sys
from typing import Any

from lance_io import runtime

runtime.load_modules_sync("pyarrow.dataset")

from pyarrow.dataset import Dataset, Fragment, Scanner  # noqa: E402 - a thread imported it above

__all__ = ["Dataset", "Fragment", "Scanner", "subclass"]


def subclass(methods: type, base: type) -> Any:
    """The public class `Lance...`: `methods` plus a pyarrow base, whose members `methods` overrides.

    The class is stored in the module of `methods`, once.
    """
    home = vars(sys.modules[methods.__module__])
    name = f"Lance{base.__name__}"
    if name not in home:
        public_class = type(name, (methods, base), {"__module__": methods.__module__, "__doc__": methods.__doc__})
        home.setdefault(name, public_class)  # another thread may have been first
    return home[name]
