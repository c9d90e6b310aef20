"""The classes of `pyarrow.dataset` that ours are subclasses of.

They are defined in `pyarrow._dataset`; `pyarrow.dataset` adds file formats and filesystems that tables here have no
use for. pyarrow imports pandas, where that is installed, while it makes them.
"""

from __future__ import annotations

from lance_io import runtime

runtime.loaded_sync("pyarrow._dataset")

from pyarrow._dataset import Dataset, Fragment, Scanner  # noqa: E402 - by a thread, before

__all__ = ["Dataset", "Fragment", "Scanner"]
