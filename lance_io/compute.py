"""`pyarrow.compute`, loaded on first use of one of its functions: most scans and takes call none.

from lance_io.dataset import compute as pc
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow.compute

    function = globals()[name] = getattr(pyarrow.compute, name)
    return function
