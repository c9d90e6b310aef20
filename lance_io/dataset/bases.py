"""The classes of `pyarrow.dataset` that ours are subclasses of.

They are defined in `pyarrow._dataset`; `pyarrow.dataset` adds file formats and filesystems that tables here have no
use for.
"""

from __future__ import annotations

from pyarrow._dataset import Dataset, Fragment, Scanner

__all__ = ["Dataset", "Fragment", "Scanner"]
