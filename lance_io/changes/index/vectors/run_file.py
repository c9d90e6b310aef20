"""A file on local disk without a name, which the operating system frees when it is closed. All functions block."""

from __future__ import annotations

import os
import tempfile
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lance_io.errors import OperationError

if TYPE_CHECKING:
    import numpy.typing as npt


class RunFile:
    """Bytes that are appended, and read at offsets."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0

    def append(self, data: npt.NDArray[Any]) -> int:
        """Append an array; returns the offset of its bytes. Raises `OperationError` if the disk is full or fails."""
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        start = self._end
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="lance_io-")
            done = 0
            while done < len(view):
                done += os.pwrite(self._file.fileno(), view[done:], start + done)
        except OSError as error:
            raise OperationError(
                f"rows beyond memory_limit could not be spilled to {tempfile.gettempdir()}: {error}. "
                "Free space there, set TMPDIR to a folder on another disk, or raise memory_limit"
            ) from error
        self._end = start + len(view)
        return start

    def read(self, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Bytes at an offset."""
        assert self._file is not None, "bytes were appended"
        data = np.empty(num_bytes, np.uint8)
        view, done = data.data, 0
        while done < num_bytes:
            read = os.preadv(self._file.fileno(), [view[done:]], offset + done)
            if not read:
                raise OperationError(
                    f"a file of spilled rows ends at byte {offset + done}, {num_bytes - done} are missing"
                )
            done += read
        return data

    def close(self) -> None:
        """Free the space on disk."""
        if self._file is not None:
            self._file.close()
            self._file = None
