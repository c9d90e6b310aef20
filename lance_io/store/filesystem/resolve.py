"""The library of a filesystem object, and the path of a URI in it."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.redaction import hide_secrets, url_secrets
from lance_io.store.filesystem.filesystem_calls import THREADS_MAX, fingerprint
from lance_io.store.filesystem.filesystem_store import FilesystemStore
from lance_io.store.profile import LOCAL, SLOW_CLIENT, StoreProfile
from lance_io.store.storage_options import normalize, planning, switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.store.filesystem import fsspec_calls, obstore_calls, pyarrow_calls
    from lance_io.store.filesystem.filesystem_calls import FilesystemCalls
else:
    fsspec_calls = lazy_module("lance_io.store.filesystem.fsspec_calls")
    pyarrow_calls = lazy_module("lance_io.store.filesystem.pyarrow_calls")
    obstore_calls = lazy_module("lance_io.store.filesystem.obstore_calls")

EXCLUSIVE_CREATE: Final = "exclusive_create"
FILESYSTEM: Final = replace(SLOW_CLIENT, name="filesystem")
BLOCKING: Final = replace(
    FILESYSTEM, name="blocking-filesystem", requests_start=THREADS_MAX // 2, requests_max=THREADS_MAX
)
_OURS: Final = {*(field.name for field in fields(StoreProfile)), "block_size", "durability", EXCLUSIVE_CREATE}


def open_filesystem(filesystem: Any, storage_options: Mapping[str, str] | None) -> FilesystemStore:
    """The store of a filesystem; makes no request.

    storage_options  numbers for the planning of reads, and `exclusive_create`; the filesystem has its own credentials

    Raises `UsageError` for anything but a supported filesystem.
    """
    options = normalize(storage_options)
    unknown = sorted(options.keys() - _OURS)
    if unknown:
        raise UsageError(f"storage option {unknown[0]}: not supported with filesystem=, which has its own options")
    calls = _calls_of(filesystem, exclusive=switch(EXCLUSIVE_CREATE, options.get(EXCLUSIVE_CREATE, "false")))
    calls.given = filesystem
    return _store(calls, options, is_blocking=calls.blocks)


def is_known(protocol: str) -> bool:
    """Whether fsspec is installed and supports a protocol."""
    try:
        from fsspec.registry import known_implementations, registry
    except ModuleNotFoundError:
        return False
    return protocol in known_implementations or protocol in registry


def load_protocol(scheme: str) -> None:
    """Import the modules for URLs of this scheme, if fsspec supports it; opening the URL reports errors."""
    with suppress(ImportError, ValueError):
        import fsspec

        fsspec.get_filesystem_class(scheme)


def open_fsspec_url(url: str, storage_options: Mapping[str, Any] | None) -> tuple[FilesystemStore, str] | None:
    """The store and path of a URL, if fsspec supports its protocol; None for other URLs, and without fsspec.

    The filesystem is created on first use. Raises `ModuleNotFoundError` if its package is missing.
    """
    protocol = url.partition("://")[0].lower()
    if not is_known(protocol):
        return None
    import fsspec.core

    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise ModuleNotFoundError(f"{protocol}:// needs a package: {error}", name=error.name) from None
    if issubclass(kind, _caching()):
        raise UsageError(f"{protocol}:// answers from a cache: open the table by the URL inside of it")
    given = dict(storage_options or {})
    own = {name: value for name, value in given.items() if name.lower() not in _OURS}
    try:
        path = kind._strip_protocol(url.partition("::")[0])
        of_url = kind._get_kwargs_from_urls(url)
    except Exception as error:  # an invalid URL; the message may contain a part of a password
        text = hide_secrets(url)
        raise UsageError(f"{text}: {protocol}:// cannot be read as a URL ({type(error).__name__})") from None

    def create() -> Any:
        filesystem, _ = fsspec.core.url_to_fs(url, **own)
        fsspec_calls._refuse_caches(filesystem)
        return filesystem

    calls = fsspec_calls.FsspecCalls(
        create,
        kind,
        given=(url, own),
        identity=f"{protocol}+fsspec#{fingerprint(repr((_host(url, path), sorted(own.items()))).encode())}",
        options={**own, **of_url},
        hidden=url_secrets(url),
        exclusive_create=switch(EXCLUSIVE_CREATE, normalize(given).get(EXCLUSIVE_CREATE, "false")),
    )
    calls.scheme = protocol
    return _store(calls, normalize(given), is_blocking=calls.blocks), path if path == "/" else path.rstrip("/")


def _host(url: str, path: str) -> str:
    """The part of a URL that belongs to the filesystem and not to the path."""
    first, separator, rest = url.partition("::")
    return f"{first.removesuffix(path)}{separator}{rest}"


def _caching() -> tuple[type, ...]:
    from fsspec.implementations.cached import CachingFileSystem

    return (CachingFileSystem,)


def _store(calls: FilesystemCalls, options: dict[str, str], *, is_blocking: bool) -> FilesystemStore:
    profile = LOCAL if calls.traits.is_local else BLOCKING if is_blocking else FILESYSTEM
    return FilesystemStore(calls, profile=profile.with_options(planning(options)).within_descriptors())


def _calls_of(filesystem: Any, *, exclusive: bool) -> FilesystemCalls:
    if "fsspec" in sys.modules:
        from fsspec.spec import AbstractFileSystem

        if isinstance(filesystem, AbstractFileSystem):
            return fsspec_calls.FsspecCalls.of_filesystem(filesystem, exclusive_create=exclusive)
    if exclusive:
        raise UsageError(f"storage option {EXCLUSIVE_CREATE}: only for fsspec filesystems")
    if "pyarrow.fs" in sys.modules:
        import pyarrow.fs as pafs

        if isinstance(filesystem, pafs.PyFileSystem) and isinstance(filesystem.handler, pafs.FSSpecHandler):
            return _calls_of(filesystem.handler.fs, exclusive=exclusive)
        if isinstance(filesystem, pafs.FileSystem):
            return pyarrow_calls.PyArrowCalls(filesystem)
    if type(filesystem).__module__.partition(".")[0] == "obstore":
        return obstore_calls.ObstoreCalls(filesystem)
    raise UsageError(
        "filesystem: expected one of fsspec's or pyarrow's, or a store of obstore's, found "
        f"{type(filesystem).__module__}.{type(filesystem).__name__}"
    )
