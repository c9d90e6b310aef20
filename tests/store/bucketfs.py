"""An fsspec filesystem with coroutines, as those of buckets are: objects appear whole, listings are cached.

Its objects belong to the class, by the name of the bucket, as they would to a service. Each instance must be used on
one loop, as if it had a session there.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

from fsspec.asyn import AsyncFileSystem


class BucketFileSystem(AsyncFileSystem):
    """Paths are `bucket/key`.

    secret           a credential
    honours_create   whether `mode="create"` is decided by the service; else it overwrites
    """

    protocol = "bucketfs"
    buckets: ClassVar[dict[str, dict[str, tuple[bytes, int]]]] = {}
    calls: ClassVar[list[tuple[str, str]]] = []
    hook: ClassVar[Any] = None  # awaited with operation and path before each call is served
    after: ClassVar[Any] = None  # the same when it has been
    _numbers = count(1)

    def __init__(self, secret: str = "", honours_create: bool = True, **options: Any) -> None:
        super().__init__(secret=secret, honours_create=honours_create, **options)
        self.honours_create = honours_create
        self._home: asyncio.AbstractEventLoop | None = None

    @classmethod
    def clear(cls) -> None:
        cls.buckets.clear()
        cls.calls.clear()
        cls.hook = cls.after = None

    @classmethod
    def objects(cls, path: str) -> dict[str, tuple[bytes, int]]:
        return cls.buckets.setdefault(path.partition("/")[0], {})

    @classmethod
    def store(cls, path: str, data: bytes) -> None:
        cls.objects(path)[path] = data, next(cls._numbers)

    async def _served(self, operation: str, path: str) -> str:
        self._home = self._home or asyncio.get_running_loop()
        assert self._home is asyncio.get_running_loop(), "a session of another loop"
        path = self._strip_protocol(path)
        self.calls.append((operation, path))
        if type(self).hook is not None:
            await type(self).hook(operation, path)
        return path

    async def _told(self, operation: str, path: str) -> None:
        if type(self).after is not None:
            await type(self).after(operation, path)

    def _describe(self, path: str) -> dict[str, Any]:
        data, number = self.objects(path)[path]
        moment = datetime.fromtimestamp(number, UTC)
        return {"name": path, "size": len(data), "type": "file", "ETag": f'"{number}"', "LastModified": moment}

    def _find_object(self, path: str) -> bytes:
        try:
            return self.objects(path)[path][0]
        except KeyError:
            raise FileNotFoundError(path) from None

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        path = await self._served("get", path)
        data = self._find_object(path)
        if start is not None and start >= len(data):
            raise OSError(f"416: https://user:{self.storage_options['secret']}@host/?sig=abc the range is not there")
        return data[start:end]

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        for entry in self.dircache.get(self._parent(path), []):  # as many filesystems do
            if entry["name"] == path:
                return entry
        path = await self._served("head", path)
        self._find_object(path)
        return self._describe(path)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        entries = self.dircache.get(path)
        if entries is None:
            await self._served("list", path)
            found = {}
            for name in self.objects(path):
                if name.startswith(f"{path}/"):
                    first, more, _rest = name[len(path) + 1 :].partition("/")
                    at = f"{path}/{first}"
                    found[at] = {"name": at, "size": 0, "type": "directory"} if more else self._describe(name)
            if not found:
                raise FileNotFoundError(path)
            entries = self.dircache[path] = list(found.values())
        return entries if detail else [entry["name"] for entry in entries]

    async def _find(self, path: str, detail: bool = False, **_: Any) -> Any:
        path = await self._served("list", path)
        return {name: self._describe(name) for name in list(self.objects(path)) if name.startswith(f"{path}/")}

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        path = await self._served("create" if mode == "create" else "put", path)
        if mode == "create" and self.honours_create and path in self.objects(path):
            raise FileExistsError(path)
        self.store(path, bytes(value))
        await self._told("put", path)

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **_: Any) -> None:
        with open(lpath, "rb") as source:  # noqa: ASYNC230
            await self._pipe_file(rpath, source.read(), mode=mode)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path = await self._served("put", path2)
        self.store(path, self._find_object(self._strip_protocol(path1)))

    async def _rm_file(self, path: str, **_: Any) -> None:
        path = await self._served("delete", path)
        self._find_object(path)
        del self.objects(path)[path]


class GuestFileSystem(BucketFileSystem):
    """One that URLs `guestfs://` open once it is registered."""

    protocol = "guestfs"
