"""From a URI to a store and a location in it.

    none, file://, file-object-store://   local disk; `~` and relative paths are resolved
    file:/path                            the same as file:///path
    memory://                             a new store for every call
    shared-memory://name/path             the store of that name in this process
    s3://bucket/path, s3a://              `lance_io[s3]`
    gs://bucket/path                      `lance_io[gcs]`
    oss://bucket/path                     as s3://, with Alibaba's options
    az://container/path, abfs[s]://       `lance_io[azure]`; also container@account.dfs.core.windows.net/path
    others                                schemes of fsspec, `lance_io[fsspec]`
    a `FilesystemUri`                     a path on a filesystem object of the user

All but the first, and those in memory, are URLs: `%20` is a space, `.` and `..` are resolved, and `?` or `#` ends them,
as in pylance.
Client libraries are imported only when their scheme is opened.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lance_io.caller_text import utf8
from lance_io.errors import UnsupportedError, UsageError
from lance_io.lazy_names import lazy_module
from lance_io.records import dataclass
from lance_io.redaction import hide_secrets
from lance_io.runtime import in_thread, load_modules
from lance_io.store.profile import LOCAL, MEMORY
from lance_io.store.provided_options import source_of
from lance_io.store.storage_options import durability, normalize, planning

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from lance_io.store import known_options, memory
    from lance_io.store.api import ObjectStore
    from lance_io.store.azure import container as azure
    from lance_io.store.filesystem import resolve as filesystems
    from lance_io.store.gcs import gcs_store as gcs
    from lance_io.store.local import disk
    from lance_io.store.memory import MemoryStore
    from lance_io.store.provided_options import OptionsSource
    from lance_io.store.s3 import bucket as s3
else:
    known_options = lazy_module("lance_io.store.known_options")
    disk = lazy_module("lance_io.store.local.disk")
    memory = lazy_module("lance_io.store.memory")
    s3 = lazy_module("lance_io.store.s3.bucket")
    gcs = lazy_module("lance_io.store.gcs.gcs_store")
    azure = lazy_module("lance_io.store.azure.container")
    filesystems = lazy_module("lance_io.store.filesystem.resolve")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SHORT_FILE = re.compile(r"file:(?!//)", re.IGNORECASE)
_NOT_YET = frozenset({"s3+ddb"})
_AZURE = frozenset({"az", "abfs", "abfss"})
_CLIENTS = {  # modules that a scheme's store imports
    **dict.fromkeys(("file", "file-object-store"), ("lance_io.store.local.disk",)),
    **dict.fromkeys(("memory", "shared-memory"), ("lance_io.store.memory",)),
    **dict.fromkeys(("s3", "s3a", "oss"), ("lance_io.store.s3.bucket", "lance_io.store.http.gets")),
    "gs": ("lance_io.store.gcs.gcs_store", "lance_io.store.http.gets"),
    **dict.fromkeys(_AZURE, ("lance_io.store.azure.container", "lance_io.store.http.gets")),
    "s3+ddb": ("lance_io.store.s3.bucket", "aiobotocore.session"),
}
_PROVIDED = frozenset({"s3", "s3a", "gs", *_AZURE, "s3+ddb"})  # these support a storage options provider
_OTHERS = ("lance_io.store.filesystem.resolve", "fsspec.core", "lance_io.store.filesystem.fsspec_calls")
_TEXT_MISTAKES = str.maketrans("", "", "\t\r\n")  # characters that are removed from URLs
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_DOT = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_shared: dict[str, MemoryStore] = {}


class FilesystemUri(str):
    """A path or URI on a filesystem object of the user.

    filesystem  of fsspec, pyarrow or obstore
    """

    __slots__ = ("filesystem",)
    filesystem: Any

    def __new__(cls, uri: str, filesystem: Any) -> FilesystemUri:
        self = super().__new__(cls, uri)
        self.filesystem = filesystem
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FilesystemUri, (str(self), self.filesystem)


def uri_on(filesystem: Any, uri: Any) -> Any:
    """A URI on a filesystem; `uri` itself if `filesystem` is None. Raises `UsageError` for anything but a URI."""
    if filesystem is None:
        return uri
    if not isinstance(uri, (str, os.PathLike)):
        raise UsageError("filesystem: an open dataset has its own; give the path of the table")
    return FilesystemUri(uri_text(uri), filesystem)


def uri_of(location: Location) -> str:
    """A URI that opens a location again, in this process or another one."""
    filesystem = getattr(getattr(location.store, "calls", None), "given", None)
    if filesystem is None or isinstance(filesystem, tuple):  # a URL is enough to open it
        return location.uri
    return FilesystemUri(location.uri, filesystem)


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a store.

    path  key prefix without a trailing slash (except `/` itself); empty for a whole bucket or memory store
    uri   the same as text for people and other processes, without credentials
    """

    store: ObjectStore
    path: str
    uri: str

    def key(self, *parts: str) -> str:
        """The key of an object below this location."""
        return "/".join([self.path.rstrip("/"), *parts] if self.path else parts)

    def below(self, *parts: str) -> Location:
        """A location below this one."""
        return Location(self.store, self.key(*parts), "/".join([self.uri.rstrip("/"), *parts]))


def resolve_uri(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Location:
    """Resolve a URI to its store and the location in it; makes no request, but calls a provider for the first time.

    storage_options  case-insensitive names; unknown ones cause a warning and are ignored, as in pylance
    Raises `UsageError` for an unknown scheme or an invalid option, `UnsupportedError` for a scheme that
    this release does not open, `ModuleNotFoundError` if the scheme's client library is missing.
    """
    text = uri_text(uri)
    options, source = normalize(storage_options), source_of(storage_options)
    if isinstance(uri, FilesystemUri):
        _expect_no_provider(source, "filesystem=")
        filesystem = filesystems.open_filesystem(uri.filesystem, storage_options)
        key = filesystem.key_of(text)
        return Location(filesystem, key, key)
    if _SHORT_FILE.match(text):
        text = _long_file(text)
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else "file"
    rest = text[match.end() :] if match else text
    if scheme in _CLIENTS:
        if options:
            known_options.warn_unknown(options, stacklevel=3)
        utf8(text, text)
    if scheme in ("file", "file-object-store"):
        path = _file_path(rest) if match else os.path.abspath(os.path.expanduser(rest))
        planned = planning(options)
        how = durability(planned)
        return Location(disk.LocalStore(profile=LOCAL.with_options(planned), durability=how), path, path)
    if scheme in ("memory", "shared-memory"):
        return _in_memory(scheme, rest, text, options)
    if scheme in _NOT_YET:
        raise UnsupportedError(f"{text}: this release opens local paths, s3://, gs:// and az://, not {scheme}://")
    if scheme not in _PROVIDED:
        _expect_no_provider(source, scheme)
    if scheme in _CLIENTS:
        return _open_bucket(scheme, rest, options, source)
    opened = filesystems.open_fsspec_url(text, storage_options)
    if opened is not None:
        return Location(*opened, text.rstrip("/"))
    raise UsageError(
        f"No object store provider found for scheme: '{scheme}' in {text!r}; schemes of fsspec need "
        "pip install 'lance_io[fsspec]'"
    )


def _in_memory(scheme: str, rest: str, text: str, options: Mapping[str, str]) -> Location:
    """A location in a new store, or in the shared store that the URI names."""
    name, _, path = rest.partition("/")
    _expect_no_user(scheme, name)
    if scheme == "memory":
        return Location(memory.MemoryStore(profile=MEMORY.with_options(planning(options))), rest.strip("/"), text)
    return Location(_shared.setdefault(name, memory.MemoryStore(name)), path.strip("/"), text)


def _open_bucket(scheme: str, rest: str, options: Mapping[str, str], source: OptionsSource | None) -> Location:
    """The location of `scheme://` + `rest` in a bucket or a container."""
    bucket, path = _split_bucket(scheme, rest, has_account=scheme in _AZURE)
    store: ObjectStore
    if scheme in _AZURE:
        store = azure.open_azure(bucket, options, source)
    elif scheme == "gs":
        store = gcs.open_gcs(bucket, options, source)
    elif scheme == "oss":
        store = s3.open_oss(bucket, options)
    else:
        store, scheme = s3.open_s3(bucket, options, source), "s3"
    return Location(store, path, f"{scheme}://{_without_end(rest)}".rstrip("/"))


def _expect_no_provider(source: OptionsSource | None, scheme: str) -> None:
    if source is not None:
        raise UnsupportedError(f"storage_options_provider is for s3://, gs:// and az://, not for {scheme}")


def is_opened_by_fsspec(uri: str) -> bool:
    """Whether fsspec opens a URI: its scheme has no store in this package, and fsspec supports it."""
    match = _SCHEME.match(uri)
    if match is None or match[1].lower() in _CLIENTS or match[1].lower() in _NOT_YET:
        return False

    return filesystems.is_known(match[1].lower())


async def load_client(uri: Any, storage_options: Mapping[str, Any] | None = None) -> None:
    """Import the modules that `resolve_uri` needs for a URI, and call the storage options provider, both in a thread.

    They would block the loop otherwise. Does nothing for anything but a URI, and if the library is missing:
    `resolve_uri` raises then.
    """
    match = _SCHEME.match(os.fspath(uri)) if isinstance(uri, (str, os.PathLike)) else None
    if isinstance(uri, FilesystemUri):
        return
    scheme = match[1].lower() if match else "file"
    with suppress(ModuleNotFoundError):
        await load_modules(*_CLIENTS.get(scheme, _OTHERS))
        if scheme not in _CLIENTS:
            await in_thread(filesystems.load_protocol, scheme)
    source = source_of(storage_options)
    if source is not None and scheme in _PROVIDED:
        await in_thread(source.first, normalize(storage_options))


def uri_text(uri: object) -> str:
    """A path or URI as text. Raises `TypeError` for anything else, bytes among it."""
    text = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if isinstance(text, str):
        return text
    hint = "; decode it with os.fsdecode" if isinstance(text, bytes) else ""
    shown = hide_secrets(repr(text))
    raise TypeError(f"expected a path or URI as str or os.PathLike, found {shown} of type {type(text).__name__}{hint}")


def _long_file(text: str) -> str:
    """`file:/path` as `file:///path`."""
    path = text.partition(":")[2]
    if path.startswith("/"):
        return f"file://{path}"
    raise UsageError(
        f"{text}: expected file:/absolute/path; write relative paths without file:, and such a name as ./{text}"
    )


def _file_path(rest: str) -> str:
    """The path of `file://` + `rest`: the host is empty or this machine."""
    host, slash, path = _without_end(rest).partition("/")
    if host in ("", "localhost") and slash:
        return os.path.abspath("/" + unquote(path.replace("\\", "/")))
    raise UsageError(f"file://{rest}: expected file:///absolute/path")


def _split_bucket(scheme: str, rest: str, *, has_account: bool = False) -> tuple[str, str]:
    """The bucket and the key prefix of `scheme://` + `rest`.

    has_account  the bucket may be followed by `@` and an account
    """
    if rest.startswith("arn:"):
        raise UnsupportedError(
            f"{scheme}://{rest}: found an ARN, such as of an access point, expected a bucket; give the "
            "alias of the access point (name-...-s3alias), which is the name of a bucket"
        )
    bucket, _, path = _without_end(rest).partition("/")
    if not has_account or ":" in bucket:
        _expect_no_user(scheme, bucket)
    if not bucket:
        raise UsageError(f"{scheme}://{rest}: expected {scheme}://bucket/path, found no bucket")
    try:
        key = unquote(_without_dots(path), errors="strict")
    except UnicodeDecodeError as error:
        raise UsageError(f"{scheme}://{rest}: expected escapes of UTF-8 text ({error.reason})") from None
    key = key.removesuffix("/")
    parts = key.split("/") if key else []
    if not {"", ".", ".."}.isdisjoint(parts) or _CONTROLS.search(key):
        raise UsageError(
            f"{scheme}://{rest}: expected parts between single slashes, without control characters, found {key!r}"
        )
    return bucket, key


def _expect_no_user(scheme: str, authority: str) -> None:
    """Raise `UsageError` for a user or a port; the message omits it, as it may be a password."""
    if ":" in authority or "@" in authority:
        raise UsageError(
            f"expected {scheme}://bucket/path, found a user or a port; credentials go into storage_options"
        )


def _without_end(rest: str) -> str:
    """A URL without query and fragment, which have no meaning here, and without the characters that URLs drop."""
    return re.split("[?#]", rest.translate(_TEXT_MISTAKES).rstrip("\x00 "), maxsplit=1)[0]


def _without_dots(path: str) -> str:
    """The path with its `.` and `..` resolved, which may be escaped; `..` at the root is dropped."""
    kept: list[str] = []
    parts = path.split("/")
    for part in parts:
        if not _DOT.fullmatch(part):
            kept.append(part)
        elif len(unquote(part)) == 2 and kept:
            kept.pop()
    if _DOT.fullmatch(parts[-1]):
        kept.append("")
    return "/".join(kept)
