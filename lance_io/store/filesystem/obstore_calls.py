"""Stores of obstore, whose requests are coroutines of its own runtime.

That runtime does not survive a fork: a child that uses it waits for ever, even with a store that it creates itself. So
a child makes no requests if the parent had imported obstore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.store.api import ObjectMeta
from lance_io.store.filesystem.filesystem_calls import (
    FORK_ADVICE,
    ForkedRuntimeError,
    Traits,
    fingerprint,
    pickled,
    secret_texts,
)
from lance_io.store.forking import loaded_before_fork

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SUFFIX: Final = frozenset(
    {"S3Store", "GCSStore", "HTTPStore", "LocalStore", "MemoryStore"}
)  # Azure has no suffix ranges


class ObstoreCalls:
    """Calls of an obstore store; see `FilesystemCalls`. Keys are paths in it, without its prefix."""

    blocks = False

    def __init__(self, store: Any) -> None:
        self._store, self.given = store, store
        kind = type(store).__name__
        self.scheme = "obstore"
        self.identity = f"{kind}+obstore#{fingerprint(pickled(store))}"
        self.traits = Traits(
            creates=True,
            unproven=kind not in ("MemoryStore", "LocalStore"),
            suffix=kind in _SUFFIX,
            is_local=kind in ("MemoryStore", "LocalStore"),
        )

    @property
    def secrets(self) -> Sequence[str]:
        """Credentials in its configuration."""
        return secret_texts(dict(getattr(self._store, "config", None) or {}))

    def start_over(self) -> None:
        """Nothing to reset."""

    @property
    def _used(self) -> Any:
        if loaded_before_fork("obstore"):
            raise ForkedRuntimeError(
                f"{self.identity}: obstore does not work in a forked process whose parent had imported it; "
                f"{FORK_ADVICE}"
            )
        return self._store

    async def read(self, key: str, start: int, end: int) -> bytes:
        """See `FilesystemCalls`, like all methods."""
        return bytes(await self._used.get_range_async(key, start=start, end=end))

    async def read_all(self, key: str) -> tuple[bytes, ObjectMeta]:
        """The whole object."""
        answer = await self._used.get_async(key)
        meta = _meta(answer.meta)
        return bytes(await answer.bytes_async()), meta

    async def read_suffix(self, key: str, num_bytes: int) -> tuple[bytes, ObjectMeta]:
        """The end of an object, its size and etag."""
        answer = await self._used.get_async(key, options={"range": {"suffix": num_bytes}})
        meta = _meta(answer.meta)
        return bytes(await answer.bytes_async()), meta

    async def describe(self, key: str) -> ObjectMeta:
        """Size and etag."""
        return _meta(await self._used.head_async(key))

    async def entries(self, folder: str, *, deep: bool) -> list[ObjectMeta]:
        """A listing, with the store's pages."""
        prefix = folder.rstrip("/") or None
        if not deep:
            answer = await self._used.list_with_delimiter_async(prefix)
            folders = [ObjectMeta(f"{path.rstrip('/')}/", 0) for path in answer["common_prefixes"]]
            return [*(_meta(item) for item in answer["objects"]), *folders]
        return [_meta(item) async for page in self._used.list(prefix) for item in page]

    async def write(self, key: str, data: bytes, *, create: bool) -> str | None:
        """See `FilesystemCalls`; one request."""
        mode = "create" if create else "overwrite"
        answer = await self._used.put_async(key, data, mode=mode, use_multipart=False)
        etag: str | None = answer["e_tag"]
        return etag

    async def write_file(self, key: str, local_path: str, *, create: bool) -> None:
        """In parts; a create in one request, as parts cannot be conditional."""
        from pathlib import Path

        path: Path = Path(local_path)
        if create:
            await self._used.put_async(key, path, mode="create", use_multipart=False)
        else:
            await self._used.put_async(key, path)

    async def make_folder(self, folder: str) -> None:
        """No-op: folders are parts of keys."""

    async def rename(self, source: str, key: str) -> None:
        """Replaces another object."""
        await self._used.rename_async(source, key, overwrite=True)

    async def rename_absent(self, source: str, key: str) -> None:
        """Fails if there is an object."""
        await self._used.rename_async(source, key, overwrite=False)

    async def copy(self, source: str, key: str) -> None:
        """A copy within the store."""
        await self._used.copy_async(source, key, overwrite=True)

    async def remove(self, key: str) -> None:
        """Removes one object."""
        await self._used.delete_async(key)

    def key_of(self, uri: str) -> str:
        """A path in the store."""
        if "://" in uri:
            raise UsageError("expected a path in the obstore store, such as 'folder/table.lance', found a URL")
        return uri.strip("/")

    async def aclose(self) -> None:
        """Nothing to close."""


def _meta(answer: Any) -> ObjectMeta:
    return ObjectMeta(answer["path"], answer["size"], answer["e_tag"], answer["last_modified"])
