"""The classes of `pyarrow.dataset` that ours are subclasses of, loaded at a tenth of the usual cost.

They are defined in `pyarrow._dataset`; `pyarrow.dataset` adds file formats and filesystems that tables here have no
use for. Loading `_dataset` makes one constant, the scalar True, with `pyarrow.scalar`, which imports pandas to see
whether it was given one of its values: several times what all the rest of opening a table costs. So during the
import that one call is answered with the same scalar, made from its bit. All other calls pass through, of other
threads too.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import lib

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _true_without_pandas() -> Iterator[None]:
    original = lib.scalar
    true = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\1")])[0]

    def scalar(value: Any, *args: Any, **options: Any) -> Any:
        return true if value is True and not args and not options else original(value, *args, **options)

    lib.scalar = scalar
    try:
        yield
    finally:
        lib.scalar = original


with _true_without_pandas():
    from pyarrow._dataset import Dataset, Fragment, Scanner

__all__ = ["Dataset", "Fragment", "Scanner"]
