"""A temporary file without a name on local disk, for rows that exceed a memory limit.

All functions block: plans call them in a pool. The operating system frees the disk space when the file descriptor is
closed, at the latest when the process ends.

`SpillFile.close` only drops its reference to the open file. A thread inside `append` or `read` has a reference, too;
when the last reference goes, the descriptor is closed. If `close` closed the descriptor at once, another file could be
opened under the same descriptor number, and the thread would write into that other file.
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


class _OpenFile:
    """An open temporary file. Its descriptor is closed when the last reference to this object goes.

    descriptor  number of the file descriptor
    """

    def __init__(self, close: Callable[[int], None] = os.close) -> None:
        self._close = close  # `__del__` may run when the interpreter has already cleared the names of this module
        with tempfile.TemporaryFile(prefix="lance_io-") as file:
            self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):  # missing if the file could not be created
            self._close(self.descriptor)


class SpillFile:
    """Bytes on local disk, appended at the end and read at offsets. The first `append` creates the file."""

    def __init__(self) -> None:
        self._file: _OpenFile | None = None
        self._size_bytes = 0

    def append(self, data: npt.NDArray[Any]) -> int:
        """Append the memory of an array; returns the offset of its first byte in the file.

        Raises `OperationError` if the disk is full or fails.
        """
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        offset = self._size_bytes
        try:
            if self._file is None:
                self._file = _OpenFile()
            file, num_written = self._file, 0
            while num_written < len(view):
                num_written += os.pwrite(file.descriptor, view[num_written:], offset + num_written)
        except OSError as error:
            raise OperationError(
                f"rows beyond memory_limit could not be spilled to {tempfile.gettempdir()}: {error}. "
                "Free space there, set TMPDIR to a folder on another disk, or raise memory_limit"
            ) from error
        self._size_bytes = offset + len(view)
        return offset

    def read(self, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Read `num_bytes` bytes that `append` has written, from `offset` on."""
        assert self._file is not None, "an offset comes from `append`, which has created the file"
        file, data = self._file, np.empty(num_bytes, np.uint8)
        view, num_read = data.data, 0
        while num_read < num_bytes:
            step_bytes = os.preadv(file.descriptor, [view[num_read:]], offset + num_read)
            if not step_bytes:
                raise OperationError(
                    f"a file of spilled rows ends at byte {offset + num_read}, before {offset + num_bytes}"
                )
            num_read += step_bytes
        return data

    def close(self) -> None:
        """Free the space on disk, as soon as no thread uses the file any more."""
        self._file = None
