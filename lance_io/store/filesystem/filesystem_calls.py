"""Interface of a filesystem's calls, and helpers for all kinds: threads, and texts without credentials."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import secrets
from contextvars import copy_context
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lance_io.errors import UnsupportedError
from lance_io.records import dataclass
from lance_io.runtime import to_the_end
from lance_io.runtime.pool import LastingPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.store.api import ObjectMeta

T = TypeVar("T")
THREADS_MAX: Final = 32  # of this process, for all filesystems that block
FORK_ADVICE: Final = "start processes by 'spawn' or 'forkserver', or open the table by its URL"
SECRET_LENGTH_MIN: Final = 4  # shorter texts would redact half of a message

_SECRET_NAME = re.compile(
    r"key|secret|token|pass|cred|sas|auth|cookie|header|private|connection_string|connstr|signature", re.IGNORECASE
)
_salt = secrets.token_bytes(16)
_numbers = count()


class ForkedRuntimeError(UnsupportedError):
    """The threads of another library do not exist in this forked process: a call would wait for ever."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Known properties of a filesystem.

    creates         exclusive create: one of many creators of a name wins, decided by the filesystem
    unproven        the service behind it may ignore exclusive create: probe it first
    renames         readers may see a half-done write: write under a temporary name and rename
    suffix          `read_suffix` is one request
    is_local        a read takes microseconds
    has_folders     a folder must exist before a file in it
    """

    creates: bool
    unproven: bool = False
    renames: bool = False
    suffix: bool = False
    is_local: bool = False
    has_folders: bool = False


class FilesystemCalls(Protocol):
    """The calls of one filesystem. Errors are its own, or those of Python for files."""

    @property
    def scheme(self) -> str:
        """Its name, for messages."""

    @property
    def identity(self) -> str:
        """Identifies it in this process, without credentials."""

    @property
    def traits(self) -> Traits:
        """Its properties."""

    @property
    def secrets(self) -> Sequence[str]:
        """Texts to redact in messages."""

    given: Any
    """Its source, from which another process recreates it."""

    @property
    def blocks(self) -> bool:
        """Whether its calls run in threads."""

    async def read(self, key: str, start: int, end: int) -> bytes:
        """Bytes of a file; fewer at its end."""

    async def read_all(self, key: str) -> tuple[bytes, ObjectMeta]:
        """A whole file; the etag is None if it would take another request."""

    async def read_suffix(self, key: str, num_bytes: int) -> tuple[bytes, ObjectMeta]:
        """The end of a file, at least one byte; only called if `traits.suffix`."""

    async def describe(self, key: str) -> ObjectMeta:
        """Size and etag, not from a cache. Raises `FileNotFoundError`, for a folder, too."""

    async def entries(self, folder: str, *, deep: bool) -> list[ObjectMeta]:
        """Entries of a folder, not from a cache: files and, unless `deep`, folders, whose keys end in `/`.

        folder  ends in `/`, or is empty
        deep    include files in subfolders
        """

    async def write(self, key: str, data: bytes, *, create: bool) -> str | None:
        """Write a file; its etag if the answer has it. `create`: `FileExistsError` if there is one."""

    async def write_file(self, key: str, local_path: str, *, create: bool) -> None:
        """The same with the content of a file on this machine, in bounded memory."""

    async def make_folder(self, folder: str) -> None:
        """Create a folder and its parents; an existing one stays."""

    async def rename(self, source: str, key: str) -> None:
        """Rename a file; replaces an existing one."""

    async def rename_absent(self, source: str, key: str) -> None:
        """Rename a file; `FileExistsError` if there is one of that name."""

    async def copy(self, source: str, key: str) -> None:
        """Write a file with the content of another."""

    async def remove(self, key: str) -> None:
        """Remove a file."""

    def key_of(self, uri: str) -> str:
        """The key of a URI or path, without a trailing slash. Raises `UsageError`."""

    async def aclose(self) -> None:
        """Close the resources of the running loop."""

    def start_over(self) -> None:
        """Drop open resources (after a fork)."""


_pool: LastingPool | None = None


def _threads() -> LastingPool:
    global _pool
    if _pool is None:
        _pool = LastingPool(THREADS_MAX, "lance_io-filesystem")
    return _pool


def _forget_threads() -> None:
    """In a forked child: the threads do not exist."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_threads)


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a blocking function. Not in the pool for users' iterators: these may wait for calls that run here."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


async def in_thread_to_the_end(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The same for writes: after a cancellation it returns when the write has ended."""
    return await to_the_end(in_thread(function, *args, **kwargs))


_NO_ANSWER: Final = frozenset(
    {"ConnectionError", "TimeoutError", "ClientConnectionError", "RequestException", "gaierror", "SSLError"}
)
_GONE: Final = (404, 410)


def cause_of(error: Exception) -> Exception:
    """The cause of a "not found" error that is really a lost connection or a refusal; else the error itself."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or not isinstance(cause, Exception):
        return error
    status = status_of(cause)
    if status is not None:
        return error if status in _GONE else cause
    return cause if _NO_ANSWER & {kind.__name__ for kind in type(cause).__mro__} else error


def status_of(error: Exception) -> int | None:
    """The HTTP status of an error of a client library."""
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if str(value).isdecimal():
            return int(str(value))
    return None


def fingerprint(content: bytes) -> str:
    """A short text that depends on the content and does not reveal it; salted for this process."""
    return blake2b(content, key=_salt, digest_size=6).hexdigest()


def pickled(filesystem: Any) -> bytes:
    """Identifies a filesystem: equal filesystems that can be pickled have equal bytes."""
    try:
        return pickle.dumps(filesystem)
    except Exception:  # in-memory filesystems, and those of users, which may raise any error
        return b"%d" % next(_numbers)


def secret_texts(options: Any, *, is_secret: bool = False) -> list[str]:
    """All texts in options that may be credentials, by the names of the options, at any depth.

    options    mappings, sequences and texts; other types contain none
    is_secret  whether texts outside of mappings count as credentials
    """
    if isinstance(options, dict):
        texts: list[str] = []
        for name, value in options.items():
            texts += secret_texts(value, is_secret=is_secret or bool(_SECRET_NAME.search(str(name))))
        return texts
    if isinstance(options, (list, tuple)):
        return [text for value in options for text in secret_texts(value, is_secret=is_secret)]
    if isinstance(options, bytes):
        options = options.decode("latin-1")
    return [options] if is_secret and isinstance(options, str) and len(options) >= SECRET_LENGTH_MIN else []
