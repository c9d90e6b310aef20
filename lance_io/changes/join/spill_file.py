"""A file on local disk without a name, for rows beyond a memory limit. All functions block; plans call them in a pool.

The operating system frees the file when its descriptor is closed or the process ends. `close` drops one reference to
the descriptor, which stays open until a thread that still writes drops its own. Otherwise a file that is opened
meanwhile could have the same number, and the thread would write into that one.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


class _Descriptor:
    """An open file, closed when nothing refers to this object any more."""

    def __init__(self, close: Callable[[int], None] = os.close) -> None:
        self._close = close
        with tempfile.TemporaryFile(prefix="lance_io-") as file:
            self.number = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "number"):
            self._close(self.number)


class SpillFile:
    """Bytes that are appended, and read at offsets. There is no file before the first ones."""

    def __init__(self) -> None:
        self._descriptor: _Descriptor | None = None
        self._end = 0

    def append(self, data: npt.NDArray[Any]) -> int:
        """Append the memory of an array; returns its offset. Raises `OperationError` if the disk is full or fails."""
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        start = self._end
        try:
            if self._descriptor is None:
                self._descriptor = _Descriptor()
            descriptor, done = self._descriptor, 0
            while done < len(view):
                done += os.pwrite(descriptor.number, view[done:], start + done)
        except OSError as error:
            raise OperationError(
                f"rows beyond memory_limit could not be spilled to {tempfile.gettempdir()}: {error}. "
                "Free space there, set TMPDIR to a folder on another disk, or raise memory_limit"
            ) from error
        self._end = start + len(view)
        return start

    def read(self, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Bytes at an offset."""
        assert self._descriptor is not None, "bytes were appended"
        descriptor, data = self._descriptor, np.empty(num_bytes, np.uint8)
        view, done = data.data, 0
        while done < num_bytes:
            read = os.preadv(descriptor.number, [view[done:]], offset + done)
            if not read:
                raise OperationError(
                    f"a file of spilled rows ends at byte {offset + done}, before {offset + num_bytes}"
                )
            done += read
        return data

    def close(self) -> None:
        """Free the space on disk."""
        self._descriptor = None
