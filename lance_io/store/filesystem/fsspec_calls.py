"""fsspec filesystems.

Async ones (`async_impl`) run on the running loop, whichever loop they were created for: each loop gets a twin, created
from the same arguments, with its own sessions and without a listings cache. Blocking ones run in threads, on a shallow
copy without a listings cache. All calls are for single files by their full names: no patterns (`*`), and no bulk calls
that expand them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary, finalize, getweakrefs

from lance_io import runtime
from lance_io.errors import UsageError
from lance_io.store.api import ObjectMeta
from lance_io.store.filesystem.filesystem_calls import (
    Traits,
    cause_of,
    fingerprint,
    in_thread,
    in_thread_to_the_end,
    secret_texts,
)
from lance_io.store.forking import never_finalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

DECIDING: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})  # the service decides a `mode="create"`
RENAME_FAILS_IF_PRESENT: Final = frozenset(
    {"smb", "webhdfs", "webHDFS", "hdfs", "arrow_hdfs"}
)  # renames do not replace
_ETAGS: Final = ("ETag", "etag", "e_tag", "generation", "md5Hash", "sha", "blob_id", "oid")
_TIMES: Final = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
_IDENTIFIES_CONTENT: Final = (*_ETAGS, *_TIMES, "ino", "size")
_READS: Final = frozenset({"cat_file", "info", "ls", "find"})

_Twins: TypeAlias = "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Any]]"


class FsspecCalls:
    """Calls of an fsspec filesystem; see `FilesystemCalls`.

    create            returns the filesystem, on first use: creating it may take long
    kind              its class
    given             the filesystem, or its URL and options
    options           its known arguments: credentials in them are redacted in messages
    hidden            credentials in its URL, which are redacted, too
    exclusive_create  the user guarantees that `mode="create"` works
    """

    def __init__(
        self,
        create: Callable[[], Any],
        kind: type,
        *,
        given: Any,
        identity: str,
        options: Any = None,
        hidden: Sequence[str] = (),
        exclusive_create: bool = False,
    ) -> None:
        self._create = create
        self._kind = kind
        self.given = given
        self.identity = identity
        self._options = options
        self._hidden = hidden
        self._exclusive = exclusive_create
        self.scheme = protocols(kind)[0]
        self.traits = _traits(kind, exclusive_create)
        self._known = protocols(kind)
        self._is_async = getattr(kind, "async_impl", False) is True
        self._strip: Callable[[str], str] | None = kind._strip_protocol  # type: ignore[attr-defined]
        self._twins: _Twins = WeakKeyDictionary()
        finalize(self, _release, self._twins).atexit = False
        self._is_inherited = False
        self._closes_at_exit = False

    @classmethod
    def of_filesystem(cls, fs: Any, *, exclusive_create: bool = False) -> FsspecCalls:
        """The calls of a user's filesystem. Raises `UsageError` for one that answers from a cache."""
        given = fs
        if type(fs).__name__ == "AsyncFileSystemWrapper":
            fs = fs.sync_fs
        calls = cls(
            lambda: fs,
            type(fs),
            given=given,
            identity=f"{protocols(_innermost(fs))[0]}+fsspec#{fingerprint(_token(fs).encode())}",
            options=_arguments(fs),
            exclusive_create=exclusive_create,
        )
        _refuse_caches(fs)
        calls.scheme = protocols(_innermost(fs))[0]
        calls.traits = _traits(fs, exclusive_create)
        calls._strip = fs._strip_protocol if fs is _innermost(fs) else None
        calls._known = protocols(_innermost(fs))
        calls._is_async = has_coroutines(fs)
        return calls

    @property
    def blocks(self) -> bool:
        """Whether it has no coroutines."""
        return not self._is_async

    @property
    def secrets(self) -> Sequence[str]:
        """Texts among its options that may be credentials."""
        return [*secret_texts(self._options), *self._hidden]

    def start_over(self) -> None:
        """Drop twins, which belong to the loops of the parent."""
        never_finalize(dict(self._twins))
        self._twins.clear()
        self._is_inherited = True
        self._closes_at_exit = False

    async def _filesystem(self) -> Any:
        """The filesystem for the running loop, created once."""
        loop = asyncio.get_running_loop()
        twin = self._twins.get(loop)
        if twin is None or twin.cancelled() or (twin.done() and twin.exception() is not None):
            if not self._closes_at_exit and runtime.on_engine_thread():
                self._closes_at_exit = True
                runtime.on_engine_close(self.aclose)
            twin = self._twins[loop] = asyncio.ensure_future(self._prepare())
        return await asyncio.shield(twin)

    async def _prepare(self) -> Any:
        def create() -> Any:
            fs = self._create()
            if has_coroutines(fs):
                return twin_of(fs)
            return copy_without_listings(
                _remake(fs) if self._is_inherited else fs
            )  # its connections belong to the parent

        return await in_thread(create)

    async def _do(self, name: str, *args: Any, **kwargs: Any) -> Any:
        fs = await self._filesystem()
        if has_coroutines(fs):
            return await getattr(fs, f"_{name}")(*args, **kwargs)
        if name in _READS:
            return await in_thread(getattr(fs, name), *args, **kwargs)
        return await in_thread_to_the_end(getattr(fs, name), *args, **kwargs)

    async def read(self, key: str, start: int, end: int) -> bytes:
        """See `FilesystemCalls`, like all methods."""
        return bytes(await self._do("cat_file", key, start=start, end=end))

    async def read_all(self, key: str) -> tuple[bytes, ObjectMeta]:
        """The whole file."""
        data = bytes(await self._do("cat_file", key))
        return data, ObjectMeta(key, len(data))

    async def read_suffix(self, key: str, num_bytes: int) -> tuple[bytes, ObjectMeta]:
        """Not offered: the meaning of a negative start differs between filesystems."""
        raise NotImplementedError

    async def describe(self, key: str) -> ObjectMeta:
        """Metadata of a file."""
        fs = await self._filesystem()
        if not has_coroutines(fs):
            await in_thread(fs.invalidate_cache, _parent(key))
        info = await self._do("info", key)
        if info["type"] == "directory":
            raise FileNotFoundError(key)
        return _meta(key, info)

    async def entries(self, folder: str, *, deep: bool) -> list[ObjectMeta]:
        """A listing, not from a cache."""
        fs = await self._filesystem()
        path = folder if folder == "/" else folder.rstrip("/")
        if not has_coroutines(fs):
            await in_thread(fs.invalidate_cache, path)
        if deep:
            infos = await self._below(fs, path)
        else:
            infos = await self._do("ls", path, detail=True)
        metas = []
        for info in infos:
            name = info["name"].rstrip("/")
            if folder.startswith("/") and not name.startswith("/"):
                name = f"/{name}"
            if name == path.rstrip("/"):
                continue
            if info["type"] != "directory":
                metas.append(_meta(name, info))
            elif not deep:
                metas.append(ObjectMeta(f"{name}/", 0))
        return metas

    async def _below(self, fs: Any, root: str) -> list[dict[str, Any]]:
        """All files below a folder.

        The generic walk of fsspec skips folders that cannot be listed, as if they were empty. If a filesystem uses it,
        each folder is listed here: only a missing one counts as empty.
        """
        from fsspec.asyn import AsyncFileSystem
        from fsspec.spec import AbstractFileSystem

        if has_coroutines(fs):
            walks = getattr(type(fs), "_find", None) is AsyncFileSystem._find
        else:
            walks = type(fs).find is AbstractFileSystem.find
        if not walks:
            return list((await self._do("find", root, detail=True)).values())
        if not has_coroutines(fs):
            return await in_thread(_walk, fs, root)
        walk = _Walk(root)
        for folder in walk.folders():
            try:
                walk.add(folder, await fs._ls(folder, detail=True))
            except FileNotFoundError as error:
                walk.skip_missing(folder, error)
        return walk.files

    async def write(self, key: str, data: bytes, *, create: bool) -> str | None:
        """One call, which sends the file in one request up to some size."""
        how = {"mode": "create"} if create else {}
        await self._do("pipe_file", key, data, **how)
        return None

    async def write_file(self, key: str, local_path: str, *, create: bool) -> None:
        """With the filesystem's own part sizes."""
        how = {"mode": "create"} if create else {}
        await self._do("put_file", local_path, key, **how)

    async def make_folder(self, folder: str) -> None:
        """With its parents."""
        await self._do("makedirs", folder, exist_ok=True)

    async def rename(self, source: str, key: str) -> None:
        """Replaces another file."""
        fs = await self._filesystem()
        if (path := _local_path(fs)) is not None:
            await in_thread_to_the_end(os.replace, path(source), path(key))
            return
        if not RENAME_FAILS_IF_PRESENT.isdisjoint(protocols(_innermost(fs))):
            with contextlib.suppress(FileNotFoundError):
                await self._do("rm_file", key)
        await self._do("mv", source, key)

    async def rename_absent(self, source: str, key: str) -> None:
        """With a link, on the local disk: other filesystems do not specify this for renames."""
        path = _local_path(await self._filesystem())
        assert path is not None
        await in_thread_to_the_end(os.link, path(source), path(key))
        await self._do("rm_file", source)

    async def copy(self, source: str, key: str) -> None:
        """A copy within the filesystem, if it supports that."""
        await self._do("cp_file", source, key)

    async def remove(self, key: str) -> None:
        """Removes one file."""
        await self._do("rm_file", key)

    def key_of(self, uri: str) -> str:
        """Strips the protocol as the filesystem does."""
        scheme, separator, _ = uri.partition("://")
        if separator and (scheme.lower() not in self._known or self._strip is None):
            raise UsageError(f"expected a path of this filesystem ({self.scheme}), found one of {scheme}://")
        key = uri if self._strip is None else self._strip(uri)
        return key if key == "/" else key.rstrip("/")

    async def aclose(self) -> None:
        """Close the sessions of this loop's twin; the next call creates another one."""
        twin = self._twins.pop(asyncio.get_running_loop(), None)
        if twin is not None and (filesystem := _result_of(twin)) is not None:
            await _close(filesystem)


class _Walk:
    """A walk through the folders below a root, which must exist.

    files  found so far, as the filesystem describes them
    """

    def __init__(self, root: str) -> None:
        self.files: list[dict[str, Any]] = []
        self._root = root
        self._waiting = [root]

    def folders(self) -> Iterator[str]:
        """Folders to list, those that `add` finds included."""
        while self._waiting:
            yield self._waiting.pop()

    def add(self, folder: str, infos: Iterable[dict[str, Any]]) -> None:
        """Add the listing of a folder."""
        for info in infos:
            name = info["name"].rstrip("/")
            if info["type"] != "directory":
                self.files.append(info)
            elif name.strip("/") != folder.strip("/"):
                self._waiting.append(name)

    def skip_missing(self, folder: str, error: FileNotFoundError) -> None:
        """Skip a missing folder. Raises the error for the root, and if its cause is a lost connection."""
        if folder == self._root or cause_of(error) is not error:
            raise error


def _walk(fs: Any, root: str) -> list[dict[str, Any]]:
    walk = _Walk(root)
    for folder in walk.folders():
        try:
            walk.add(folder, fs.ls(folder, detail=True))
        except FileNotFoundError as error:
            walk.skip_missing(folder, error)
    return walk.files


def protocols(fs: Any) -> tuple[str, ...]:
    """Protocol names of a filesystem or class, its own first."""
    named = getattr(fs, "protocol", "fsspec")
    return (named,) if isinstance(named, str) else tuple(named) or ("fsspec",)


def has_coroutines(fs: Any) -> bool:
    """Whether a filesystem has coroutines; a wrapper of a folder claims to have them in any case."""
    return bool(_innermost(fs).async_impl)


def twin_of(fs: Any) -> Any:
    """The same filesystem for the loop that uses it first, with new inner ones; without a listings cache."""
    twin = _remake(fs)
    _detach_broken_finalizers(twin)
    return twin


def _detach_broken_finalizers(fs: Any) -> None:
    """Detach finalizers that would run a coroutine on no loop: asynchronous filesystems of adlfs have one.

    It would keep the twin for ever, as it refers to it, and print an error when the process ends. `_close` replaces it.
    """
    from fsspec.asyn import sync
    from fsspec.spec import AbstractFileSystem

    for reference in getweakrefs(fs):
        finalizer: Any = reference.__callback__
        if isinstance(finalizer, finalize) and (peeked := finalizer.peek()) is not None:
            _, function, arguments, _ = peeked
            if function is sync and arguments[:1] == (None,):
                finalizer.detach()
    if isinstance(inner := fs.__dict__.get("fs"), AbstractFileSystem):
        _detach_broken_finalizers(inner)


def _remake(fs: Any) -> Any:
    """Another filesystem with the same arguments, and new inner filesystems."""
    from fsspec.spec import AbstractFileSystem

    def own(value: Any) -> Any:
        return _remake(value) if isinstance(value, AbstractFileSystem) else value

    options = {name: own(value) for name, value in fs.storage_options.items() if name not in ("asynchronous", "loop")}
    if has_coroutines(fs):
        options["asynchronous"] = True
    filesystem = type(fs)(*[own(value) for value in fs.storage_args], **options, skip_instance_cache=True)
    _forget_listings(filesystem)
    return filesystem


def copy_without_listings(fs: Any) -> Any:
    """The same filesystem with the same connections, without the listings cache of its user."""
    from fsspec.spec import AbstractFileSystem

    inner = fs.__dict__.get("fs")
    if hasattr(type(fs), "__del__"):  # the copy's finalizer would close shared resources; these have no listings cache
        return fs
    copied = object.__new__(type(fs))
    copied.__dict__.update(fs.__dict__)
    if isinstance(inner, AbstractFileSystem):
        copied.__dict__["fs"] = copy_without_listings(inner)
    _forget_listings(copied)
    return copied


def _forget_listings(fs: Any) -> None:
    from fsspec.dircache import DirCache

    if "dircache" in fs.__dict__:
        fs.dircache = DirCache(use_listings_cache=False)


def _innermost(fs: Any) -> Any:
    while type(fs).__name__ == "DirFileSystem":
        fs = fs.fs
    return fs


def _refuse_caches(fs: Any) -> None:
    kinds = {kind.__name__ for kind in type(_innermost(fs)).__mro__}
    if "CachingFileSystem" in kinds:
        raise UsageError(
            f"{type(_innermost(fs)).__name__} answers from a cache, which may miss a table's newest version: "
            "pass the filesystem inside of it"
        )


def _traits(fs: Any, exclusive: bool) -> Traits:
    """Properties of a filesystem or its class."""
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.spec import AbstractFileSystem

    inner = _innermost(fs)
    kind: Any = inner if isinstance(inner, type) else type(inner)
    if issubclass(kind, LocalFileSystem):
        return Traits(creates=True, renames=True, is_local=True, has_folders=True)
    is_async = bool(kind.async_impl)
    decides = exclusive or (not DECIDING.isdisjoint(protocols(kind)) and "_pipe_file" in vars(kind))
    renames = not is_async and not exclusive and kind.mv is not AbstractFileSystem.mv
    return Traits(creates=decides, unproven=decides, renames=renames, has_folders=not is_async)


def _local_path(fs: Any) -> Callable[[str], str] | None:
    """A function from a key to its path on this machine, if there is one."""
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(fs, LocalFileSystem):
        return str
    if type(fs).__name__ == "DirFileSystem" and (below := _local_path(fs.fs)) is not None:
        return lambda key: below(fs._join(key))
    return None


def _token(fs: Any) -> str:
    """Identifies it; equal for filesystems that fsspec considers equal."""
    return f"{type(fs).__module__}.{type(fs).__qualname__} {getattr(fs, '_fs_token_', None) or id(fs)}"


def _arguments(fs: Any) -> dict[str, Any]:
    """Arguments of a filesystem by name, with those of inner ones."""
    arguments = dict(fs.storage_options)
    with contextlib.suppress(TypeError, ValueError):
        names = list(inspect.signature(type(fs).__init__).parameters)[1:]
        arguments |= dict(zip(names, fs.storage_args, strict=False))
    inner = fs.__dict__.get("fs")
    return {**arguments, "fs": _arguments(inner)} if hasattr(inner, "storage_options") else arguments


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _meta(key: str, info: dict[str, Any]) -> ObjectMeta:
    etag = next((str(info[name]) for name in _ETAGS if info.get(name)), None)
    if etag is None:
        content = repr([(name, info[name]) for name in _IDENTIFIES_CONTENT if name in info])
        etag = blake2b(content.encode(), digest_size=8).hexdigest()
    modified = next((info[name] for name in _TIMES if info.get(name)), None)
    return ObjectMeta(key, int(info["size"] or 0), etag, _moment(modified))


def _moment(value: Any) -> datetime | None:
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _result_of(twin: asyncio.Future[Any]) -> Any:
    return twin.result() if twin.done() and not twin.cancelled() and twin.exception() is None else None


def _release(twins: _Twins) -> None:
    """The calls' last user is gone: close the twins' sessions on their loops, if those still run."""
    for loop, twin in list(twins.items()):
        if (filesystem := _result_of(twin)) is not None:
            runtime.close_soon(loop, partial(_close, filesystem))


async def _close(fs: Any) -> None:
    """Close the sessions of the known libraries, and those of inner filesystems."""
    session = fs.__dict__.get("_session")
    if session is not None and inspect.iscoroutinefunction(getattr(session, "close", None)):
        await session.close()
    creator = fs.__dict__.get("_s3creator")
    if creator is not None:
        await creator.__aexit__(None, None, None)
    service = fs.__dict__.get("service_client")
    if service is not None and inspect.iscoroutinefunction(getattr(service, "close", None)):
        await service.close()
    credential = fs.__dict__.get("credential")
    if inspect.iscoroutinefunction(getattr(credential, "close", None)) and not _is_given(credential, fs):
        await credential.close()
    inner = fs.__dict__.get("fs")
    if getattr(inner, "async_impl", False):
        await _close(inner)


def _is_given(value: Any, fs: Any) -> bool:
    """Whether a filesystem got a value as an argument, so that its user may use it elsewhere."""
    return any(value is given for given in (*fs.storage_args, *fs.storage_options.values()))
