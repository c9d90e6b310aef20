"""fsspec filesystems.

Those with coroutines (`async_impl`) run on the running loop, whatever loop they were made for: each loop gets a twin,
made of the same arguments, with sessions of its own. A twin keeps no listings. Those that block run in threads, on a
shallow copy that keeps no listings either. What is asked for are single files by their whole names: neither patterns
(`*`) nor bulk calls that expand them.
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
from weakref import WeakKeyDictionary, finalize

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

DECIDING: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})  # `mode="create"` is up to the service
REPLACES_NOTHING: Final = frozenset({"smb", "webhdfs", "webHDFS", "hdfs", "arrow_hdfs"})  # by a rename
_ETAGS: Final = ("ETag", "etag", "e_tag", "generation", "md5Hash", "sha", "blob_id", "oid")
_TIMES: Final = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
_TELLS_CONTENT: Final = (*_ETAGS, *_TIMES, "ino", "size")
_READS: Final = frozenset({"cat_file", "info", "ls", "find"})

_Twins: TypeAlias = "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Any]]"


class FsspecCalls:
    """Calls of an fsspec filesystem; see `FilesystemCalls`.

    make              gives the filesystem, when it is first needed: making it may take long
    kind              its class
    given             the filesystem, or the URL and options that it is made of
    options           what it is made of, as far as known: credentials in it are kept out of messages
    hidden            credentials in a URL, which are kept out, too
    exclusive_create  the user vouches for `mode="create"`
    """

    def __init__(
        self,
        make: Callable[[], Any],
        kind: type,
        *,
        given: Any,
        identity: str,
        options: Any = None,
        hidden: Sequence[str] = (),
        exclusive_create: bool = False,
    ) -> None:
        self._make = make
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
        """The calls of one that a user has made. Raises `UsageError` for one that answers from a cache."""
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
        """Twins belong to the loops that made them."""
        never_finalize(dict(self._twins))
        self._twins.clear()
        self._is_inherited = True
        self._closes_at_exit = False

    async def _filesystem(self) -> Any:
        """The filesystem for the running loop, made once."""
        loop = asyncio.get_running_loop()
        found = self._twins.get(loop)
        if found is None or found.cancelled() or (found.done() and found.exception() is not None):
            if not self._closes_at_exit and runtime.on_engine_thread():
                self._closes_at_exit = True
                runtime.on_engine_close(self.aclose)
            found = self._twins[loop] = asyncio.ensure_future(self._prepare())
        return await asyncio.shield(found)

    async def _prepare(self) -> Any:
        def make() -> Any:
            fs = self._make()
            if has_coroutines(fs):
                return twin_of(fs)
            return copy_without_listings(_remake(fs) if self._is_inherited else fs)  # connections are the parent's

        return await in_thread(make)

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
        """Not offered: what a negative start means differs."""
        raise NotImplementedError

    async def describe(self, key: str) -> ObjectMeta:
        """What it says about a file."""
        fs = await self._filesystem()
        if not has_coroutines(fs):
            await in_thread(fs.invalidate_cache, _parent(key))
        info = await self._do("info", key)
        if info["type"] == "directory":
            raise FileNotFoundError(key)
        return _meta(key, info)

    async def entries(self, folder: str, *, deep: bool) -> list[ObjectMeta]:
        """A listing that was made for this call."""
        fs = await self._filesystem()
        place = folder if folder == "/" else folder.rstrip("/")
        if not has_coroutines(fs):
            await in_thread(fs.invalidate_cache, place)
        if deep:
            infos = await self._below(fs, place)
        else:
            infos = await self._do("ls", place, detail=True)
        metas = []
        for info in infos:
            name = info["name"].rstrip("/")
            if folder.startswith("/") and not name.startswith("/"):
                name = f"/{name}"
            if name == place.rstrip("/"):
                continue
            if info["type"] != "directory":
                metas.append(_meta(name, info))
            elif not deep:
                metas.append(ObjectMeta(f"{name}/", 0))
        return metas

    async def _below(self, fs: Any, place: str) -> list[dict[str, Any]]:
        """All files below a folder.

        Where fsspec's own walk would list them, which passes over folders that cannot be listed, as if they were empty,
        each is listed here: only one that is gone is empty.
        """
        from fsspec.asyn import AsyncFileSystem
        from fsspec.spec import AbstractFileSystem

        if has_coroutines(fs):
            walks = getattr(type(fs), "_find", None) is AsyncFileSystem._find
        else:
            walks = type(fs).find is AbstractFileSystem.find
        if not walks:
            return list((await self._do("find", place, detail=True)).values())
        if not has_coroutines(fs):
            return await in_thread(_walk, fs, place)
        walk = _Walk(place)
        for folder in walk.folders():
            try:
                walk.add(folder, await fs._ls(folder, detail=True))
            except FileNotFoundError as error:
                walk.passes_over(folder, error)
        return walk.files

    async def write(self, key: str, data: bytes, *, create: bool) -> str | None:
        """One call, which sends the file in one request up to some size."""
        how = {"mode": "create"} if create else {}
        await self._do("pipe_file", key, data, **how)
        return None

    async def write_file(self, key: str, local_path: str, *, create: bool) -> None:
        """In parts, as the filesystem sees fit."""
        how = {"mode": "create"} if create else {}
        await self._do("put_file", local_path, key, **how)

    async def make_folder(self, folder: str) -> None:
        """With those above."""
        await self._do("makedirs", folder, exist_ok=True)

    async def rename(self, source: str, key: str) -> None:
        """As the filesystem moves files."""
        fs = await self._filesystem()
        if (path := _local_path(fs)) is not None:
            await in_thread_to_the_end(os.replace, path(source), path(key))
            return
        if not REPLACES_NOTHING.isdisjoint(protocols(_innermost(fs))):
            with contextlib.suppress(FileNotFoundError):
                await self._do("rm_file", key)
        await self._do("mv", source, key)

    async def rename_absent(self, source: str, key: str) -> None:
        """By a link, on the local disk: no other filesystem with such renames says what it does here."""
        path = _local_path(await self._filesystem())
        assert path is not None
        await in_thread_to_the_end(os.link, path(source), path(key))
        await self._do("rm_file", source)

    async def copy(self, source: str, key: str) -> None:
        """On the other side, where it can."""
        await self._do("cp_file", source, key)

    async def remove(self, key: str) -> None:
        """One file."""
        await self._do("rm_file", key)

    def key_of(self, uri: str) -> str:
        """As the filesystem strips its protocol."""
        scheme, separator, _ = uri.partition("://")
        if separator and (scheme.lower() not in self._known or self._strip is None):
            raise UsageError(f"expected a path of this filesystem ({self.scheme}), found one of {scheme}://")
        key = uri if self._strip is None else self._strip(uri)
        return key if key == "/" else key.rstrip("/")

    async def aclose(self) -> None:
        """Close the sessions of this loop's twin; it is made anew when it is needed again."""
        twin = self._twins.pop(asyncio.get_running_loop(), None)
        if twin is not None and (made := _made(twin)) is not None:
            await _close(made)


class _Walk:
    """A walk through folders below one, which is to be there itself.

    files  what was found, as the filesystem describes it
    """

    def __init__(self, place: str) -> None:
        self.files: list[dict[str, Any]] = []
        self._place = place
        self._waiting = [place]

    def folders(self) -> Iterator[str]:
        """Each in turn; those that `add` finds are among them."""
        while self._waiting:
            yield self._waiting.pop()

    def add(self, folder: str, infos: Iterable[dict[str, Any]]) -> None:
        """A folder was listed."""
        for info in infos:
            name = info["name"].rstrip("/")
            if info["type"] != "directory":
                self.files.append(info)
            elif name.strip("/") != folder.strip("/"):
                self._waiting.append(name)

    def passes_over(self, folder: str, error: FileNotFoundError) -> None:
        """A folder is not there. Raises the error for the first one, and where it hides a lost connection."""
        if folder == self._place or cause_of(error) is not error:
            raise error


def _walk(fs: Any, place: str) -> list[dict[str, Any]]:
    walk = _Walk(place)
    for folder in walk.folders():
        try:
            walk.add(folder, fs.ls(folder, detail=True))
        except FileNotFoundError as error:
            walk.passes_over(folder, error)
    return walk.files


def protocols(fs: Any) -> tuple[str, ...]:
    """The names of a filesystem or class, the first one its own."""
    named = getattr(fs, "protocol", "fsspec")
    return (named,) if isinstance(named, str) else tuple(named) or ("fsspec",)


def has_coroutines(fs: Any) -> bool:
    """Whether a filesystem has them; one that stands for a folder of another says so of itself in any case."""
    return bool(_innermost(fs).async_impl)


def twin_of(fs: Any) -> Any:
    """The same filesystem for the loop that will use it first, with those inside it; it keeps no listings."""
    return _remake(fs)


def _remake(fs: Any) -> Any:
    """Another filesystem of the same arguments, with those inside it made anew."""
    from fsspec.spec import AbstractFileSystem

    def own(value: Any) -> Any:
        return _remake(value) if isinstance(value, AbstractFileSystem) else value

    options = {name: own(value) for name, value in fs.storage_options.items() if name not in ("asynchronous", "loop")}
    if has_coroutines(fs):
        options["asynchronous"] = True
    made = type(fs)(*[own(value) for value in fs.storage_args], **options, skip_instance_cache=True)
    _forget_listings(made)
    return made


def copy_without_listings(fs: Any) -> Any:
    """The same filesystem with the same connections, without the listings that its user may have."""
    from fsspec.spec import AbstractFileSystem

    inner = fs.__dict__.get("fs")
    if hasattr(type(fs), "__del__"):  # the copy would close what both have; there are no listings of others in these
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
            f"{type(_innermost(fs)).__name__} answers from a cache, where a table's newest version may be missing: "
            "give the filesystem that is below it"
        )


def _traits(fs: Any, exclusive: bool) -> Traits:
    """What a filesystem, or one of a class, promises."""
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
    """What gives the path on this machine of a key, where there is one."""
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(fs, LocalFileSystem):
        return str
    if type(fs).__name__ == "DirFileSystem" and (below := _local_path(fs.fs)) is not None:
        return lambda key: below(fs._join(key))
    return None


def _token(fs: Any) -> str:
    """What tells it from others; those that are equal for fsspec have the same."""
    return f"{type(fs).__module__}.{type(fs).__qualname__} {getattr(fs, '_fs_token_', None) or id(fs)}"


def _arguments(fs: Any) -> dict[str, Any]:
    """By their names what a filesystem was made of, and what those inside it were."""
    found = dict(fs.storage_options)
    with contextlib.suppress(TypeError, ValueError):
        names = list(inspect.signature(type(fs).__init__).parameters)[1:]
        found |= dict(zip(names, fs.storage_args, strict=False))
    inner = fs.__dict__.get("fs")
    return {**found, "fs": _arguments(inner)} if hasattr(inner, "storage_options") else found


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _meta(key: str, info: dict[str, Any]) -> ObjectMeta:
    etag = next((str(info[name]) for name in _ETAGS if info.get(name)), None)
    if etag is None:
        told = repr([(name, info[name]) for name in _TELLS_CONTENT if name in info])
        etag = blake2b(told.encode(), digest_size=8).hexdigest()
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


def _made(twin: asyncio.Future[Any]) -> Any:
    return twin.result() if twin.done() and not twin.cancelled() and twin.exception() is None else None


def _release(twins: _Twins) -> None:
    """The calls' last user is gone: close the twins' sessions on their loops, where those still run."""
    for loop, twin in list(twins.items()):
        if (made := _made(twin)) is not None:
            runtime.close_soon(loop, partial(_close, made))


async def _close(fs: Any) -> None:
    """Close the sessions that the known libraries keep, and those of filesystems inside."""
    session = fs.__dict__.get("_session")
    if session is not None and inspect.iscoroutinefunction(getattr(session, "close", None)):
        await session.close()
    creator = fs.__dict__.get("_s3creator")
    if creator is not None:
        await creator.__aexit__(None, None, None)
    service = fs.__dict__.get("service_client")
    if service is not None and inspect.iscoroutinefunction(getattr(service, "close", None)):
        await service.close()
    inner = fs.__dict__.get("fs")
    if getattr(inner, "async_impl", False):
        await _close(inner)
