"""pyarrow filesystems, in threads: their calls release the GIL.

None of them has an exclusive create; on the local disk a link replaces it. A pyarrow wrapper of an fsspec filesystem
is unwrapped (`resolve.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.limits import MIB
from lance_io.store.api import ObjectMeta
from lance_io.store.filesystem.filesystem_calls import (
    FORK_ADVICE,
    ForkedRuntimeError,
    Traits,
    fingerprint,
    in_thread,
    in_thread_to_the_end,
    pickled,
    secret_texts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.fs as pafs

PIECE_BYTES: Final = 8 * MIB  # of a file that is uploaded


class PyArrowCalls:
    """Calls of a pyarrow filesystem; see `FilesystemCalls`."""

    blocks = True

    def __init__(self, fs: pafs.FileSystem) -> None:
        import pyarrow.fs as pafs

        self.given = fs
        inner = fs
        self._root = ""  # prefix of keys on the local disk
        while isinstance(inner, pafs.SubTreeFileSystem):
            self._root = f"{inner.base_path.rstrip('/')}/{self._root}"
            inner = inner.base_fs
        self.scheme = "file" if isinstance(inner, pafs.LocalFileSystem) else inner.type_name
        self.identity = f"{self.scheme}+pyarrow#{fingerprint(pickled(fs))}"
        self._inner = inner
        self._is_inherited = False
        is_local = isinstance(inner, pafs.LocalFileSystem)
        is_hdfs = self.scheme == "hdfs"
        self.traits = Traits(
            creates=is_local, renames=is_local or is_hdfs, is_local=is_local, has_folders=is_local or is_hdfs
        )

    @property
    def secrets(self) -> Sequence[str]:
        """Texts among its options that may be credentials."""
        try:
            return secret_texts(self._inner.__reduce__()[1])
        except Exception:  # filesystems of users may raise any error
            return ()

    def start_over(self) -> None:
        """Clients of services do not survive a fork: their threads are gone."""
        self._is_inherited = not self.traits.is_local

    @property
    def _fs(self) -> Any:
        if self._is_inherited:
            raise ForkedRuntimeError(f"{self.identity}: pyarrow's clients do not survive a fork; {FORK_ADVICE}")
        return self.given

    async def read(self, key: str, start: int, end: int) -> bytes:
        """See `FilesystemCalls`, like all methods."""
        return await in_thread(self._read, key, start, end)

    def _read(self, key: str, start: int, end: int) -> bytes:
        with self._fs.open_input_file(key) as file:
            if start >= file.size():
                return b""
            data: bytes = file.read_at(end - start, start)
            return data

    async def read_all(self, key: str) -> tuple[bytes, ObjectMeta]:
        """The whole file."""

        def read() -> bytes:
            with self._fs.open_input_file(key) as file:
                data: bytes = file.readall()
                return data

        data = await in_thread(read)
        return data, ObjectMeta(key, len(data))

    async def read_suffix(self, key: str, num_bytes: int) -> tuple[bytes, ObjectMeta]:
        """Not offered."""
        raise NotImplementedError

    async def describe(self, key: str) -> ObjectMeta:
        """Metadata of a file."""
        info = await in_thread(self._fs.get_file_info, key)
        if not info.is_file:
            raise FileNotFoundError(key)
        return _meta(info)

    async def entries(self, folder: str, *, deep: bool) -> list[ObjectMeta]:
        """A listing."""
        import pyarrow.fs as pafs

        path = folder if folder == "/" else folder.rstrip("/")
        selector = pafs.FileSelector(path, recursive=deep, allow_not_found=True)
        infos = await in_thread(self._fs.get_file_info, selector)
        metas = []
        for info in infos:
            if info.is_file:
                metas.append(_meta(info))
            elif not deep and info.type == pafs.FileType.Directory:
                metas.append(ObjectMeta(f"{info.path.rstrip('/')}/", 0))
        return metas

    async def write(self, key: str, data: bytes, *, create: bool) -> str | None:
        """Writes one file; exclusive creation is done by `rename_absent`."""

        def write() -> None:
            with self._fs.open_output_stream(key, compression=None) as stream:
                stream.write(data)

        await in_thread_to_the_end(write)
        return None

    async def write_file(self, key: str, local_path: str, *, create: bool) -> None:
        """Writes piece by piece."""

        def write() -> None:
            with open(local_path, "rb") as source, self._fs.open_output_stream(key, compression=None) as stream:
                while piece := source.read(PIECE_BYTES):
                    stream.write(piece)

        await in_thread_to_the_end(write)

    async def make_folder(self, folder: str) -> None:
        """With its parents."""
        await in_thread_to_the_end(self._fs.create_dir, folder, recursive=True)

    async def rename(self, source: str, key: str) -> None:
        """Replaces another file."""
        if self.scheme == "hdfs":  # HDFS renames do not replace
            with suppress(FileNotFoundError):
                await self.remove(key)
        await in_thread_to_the_end(self._fs.move, source, key)

    async def rename_absent(self, source: str, key: str) -> None:
        """By a link on the local disk."""
        await in_thread_to_the_end(os.link, self._root + source, self._root + key)
        await self.remove(source)

    async def copy(self, source: str, key: str) -> None:
        """A copy within the filesystem, if it supports that."""
        await in_thread_to_the_end(self._fs.copy_file, source, key)

    async def remove(self, key: str) -> None:
        """Removes one file."""
        await in_thread_to_the_end(self._fs.delete_file, key)

    def key_of(self, uri: str) -> str:
        """A path of the filesystem, or one after its scheme."""
        scheme, separator, path = uri.partition("://")
        if not separator:
            path = uri
        elif scheme.lower() not in (self.scheme, *_SCHEMES.get(self.scheme, ())):
            raise UsageError(f"expected a path of this filesystem ({self.scheme}), found one of {scheme}://")
        path = str(self._fs.normalize_path(path))
        return path if path == "/" else path.rstrip("/")

    async def aclose(self) -> None:
        """Nothing to close."""


_SCHEMES: Final = {"gcs": ("gs",), "abfs": ("abfss", "az")}


def _meta(info: Any) -> ObjectMeta:
    return ObjectMeta(info.path, info.size, f"{info.mtime_ns}-{info.size}", info.mtime)
