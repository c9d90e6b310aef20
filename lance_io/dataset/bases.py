"""The classes of `pyarrow.dataset` that ours are subclasses of.

pyarrow imports pandas, where that is installed, while it makes them: 0.2 s, which opening a table and taking rows do
without. So the public classes that need them are made when they are first asked for. They are defined in
`pyarrow._dataset`; DuckDB takes for datasets what is one, and looks only where `pyarrow.dataset` has been imported.
"""

from __future__ import annotations

import sys
from typing import Any

from lance_io import runtime

runtime.load_modules_sync("pyarrow.dataset")

from pyarrow.dataset import Dataset, Fragment, Scanner  # noqa: E402 - by a thread, before

__all__ = ["Dataset", "Fragment", "Scanner", "subclass"]


def subclass(methods: type, base: type) -> Any:
    """The public class `Lance...` of a base: the methods of ours, which override all that it inherits from pyarrow's.

    It is put into the module of `methods`, once.
    """
    home = vars(sys.modules[methods.__module__])
    name = f"Lance{base.__name__}"
    if name not in home:
        made = type(name, (methods, base), {"__module__": methods.__module__, "__doc__": methods.__doc__})
        home.setdefault(name, made)  # another thread may have been first
    return home[name]
