"""`LanceFileSession`: data files and other objects below one path of a store (names are pylance's)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lance_io.errors import NotFound, UsageError
from lance_io.file.reader import LanceFileReader
from lance_io.file.write.writers import LanceFileWriter
from lance_io.limits import MIB
from lance_io.runtime import run
from lance_io.store.api import ALL, DIRECTLY_BELOW
from lance_io.store.provided_options import with_provider
from lance_io.store.url import resolve_uri, uri_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lance_io.store.api import Selection

Paths: TypeAlias = list[str]  # the class has a method of that name
PIECE_BYTES: Final = 16 * MIB  # of uploads and downloads


@dataclass(slots=True)
class ListResult:
    """Folders and objects directly below a path, as paths relative to the session's base.

    Attributes:
        common_prefixes: Folders, without a trailing slash.
        objects: Objects.
    """

    common_prefixes: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)


class LanceFileSession:
    """Opens readers and writers below `base_path`, and manages the objects there.

    Paths are relative to `base_path` and stay below it: a path with `..` raises UsageError, a path that is no text
    raises TypeError.

    Args:
        base_path: Path or URI.
        storage_options: Options of the store, as for `lance_io.dataset`.
        filesystem: Filesystem of fsspec or pyarrow, or store of obstore, on which `base_path` is a path.
        storage_options_provider: Refreshes storage options before they expire, as for `lance_io.dataset`.
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        *,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> None:
        self._base = os.fspath(base_path).rstrip("/")
        self._options = storage_options = with_provider(storage_options, storage_options_provider)
        self._filesystem = filesystem
        self._location = resolve_uri(uri_on(filesystem, base_path), storage_options)

    def open_reader(self, path: str, columns: list[str] | None = None) -> LanceFileReader:
        """Open a file for reading.

        Args:
            path: Path of the file.
            columns: Names of the columns to read, top-level or dotted; None for all.

        Returns:
            The reader. See `LanceFileReader` for the errors.
        """
        return LanceFileReader(self._uri(path), self._options, columns, filesystem=self._filesystem)

    def open_writer(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        max_page_bytes: int | None = None,
        keep_original_array: bool | None = None,
    ) -> LanceFileWriter:
        """Open a file for writing.

        Args:
            path: Path of the file.
            schema: See `LanceFileWriter`.
            data_cache_bytes: See `LanceFileWriter`.
            version: See `LanceFileWriter`.
            max_page_bytes: See `LanceFileWriter`.
            keep_original_array: See `LanceFileWriter`.

        Returns:
            The writer. Close it, or use it in a `with` block.
        """
        return LanceFileWriter(
            self._uri(path),
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            storage_options=self._options,
            max_page_bytes=max_page_bytes,
            keep_original_array=keep_original_array,
            filesystem=self._filesystem,
        )

    def contains(self, path: str) -> bool:
        """Whether an object exists at a path.

        Args:
            path: Path of the object.

        Returns:
            True for an object, False for a folder.
        """
        try:
            return not run(self._store.head(self._key(path))).is_folder
        except NotFound:
            return False

    def list(self, path: str | None = None) -> Paths:
        """List all objects below a path, recursively.

        Args:
            path: Path of a folder, None for `base_path`.

        Returns:
            Paths of the objects; empty if there is no such folder.
        """
        return [entry for entry in self._entries(path, ALL) if not entry.endswith("/")]

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """List folders and objects directly below a path.

        Args:
            path: Path of a folder, None for `base_path`.

        Returns:
            The folders and objects.
        """
        result = ListResult()
        for entry in self._entries(path, DIRECTLY_BELOW):
            (result.common_prefixes if entry.endswith("/") else result.objects).append(entry.rstrip("/"))
        return result

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Read a byte range of an object.

        Args:
            path: Path of the object.
            offset: First byte.
            length: Number of bytes.

        Returns:
            The bytes.

        Raises:
            OSError: If the object is shorter than `offset + length`.
        """
        return bytes(run(self._store.get_range(self._key(path), offset, offset + length)))

    def delete_file(self, path: str) -> None:
        """Delete an object.

        Args:
            path: Path of the object.

        Raises:
            NotFound: If there is no such object.
        """

        async def delete(key: str) -> None:
            await self._store.head(key)
            await self._store.delete([key])

        run(delete(self._key(path)))

    def upload_file(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        """Copy a local file to the store. The object appears whole or not at all.

        Args:
            local_path: Path of the local file.
            remote_path: Path of the object.
        """
        key = self._key(remote_path)

        async def upload(source: Any) -> None:
            async with await self._store.open_upload(key) as target:
                while piece := source.read(PIECE_BYTES):
                    await target.write([piece])
                await target.close()

        with open(local_path, "rb") as source:
            run(upload(source))

    def download_file(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        """Copy an object to a local file.

        Args:
            remote_path: Path of the object.
            local_path: Path of the local file.

        Raises:
            NotFound: If there is no such object; no local file is created then.
        """
        key = self._key(remote_path)

        async def download(target: Any) -> None:
            size_bytes = (await self._store.head(key)).size_bytes
            for start in range(0, size_bytes, PIECE_BYTES):
                target.write(await self._store.get_range(key, start, min(start + PIECE_BYTES, size_bytes)))

        run(self._store.head(key))  # fails before the local file is created
        with open(local_path, "wb") as target:
            run(download(target))

    @property
    def _store(self) -> Any:
        return self._location.store

    def _uri(self, path: str) -> str:
        return f"{self._base}/{_check_path(path)}"

    def _key(self, path: str) -> str:
        return self._location.key(*_check_path(path).split("/"))

    def _entries(self, path: str | None, selection: Selection) -> Paths:
        root = self._location.key("")
        prefix = root + (f"{_check_path(path)}/" if path and _check_path(path) else "")

        async def entries() -> Paths:
            return [meta.key[len(root) :] async for meta in self._store.list(prefix, selection)]

        return run(entries())


def _check_path(path: str) -> str:
    """A path below the base. Raises UsageError if it leaves the base, TypeError if it is no text."""
    if not isinstance(path, str):
        raise TypeError(f"paths in a session must be text, got {path!r}")
    parts = [part for part in path.split("/") if part and part != "."]
    if ".." in parts:
        raise UsageError(f"{path!r} leaves the folder of this session")
    return "/".join(parts)
