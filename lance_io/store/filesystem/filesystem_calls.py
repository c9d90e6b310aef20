"""What the adapter asks of a filesystem, and what all of its kinds share: threads, and texts without credentials."""

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
SECRET_LENGTH_MIN: Final = 4  # shorter texts would blot out half of a message

_SECRET_NAME = re.compile(
    r"key|secret|token|pass|cred|sas|auth|cookie|header|private|connection_string|connstr|signature", re.IGNORECASE
)
_salt = secrets.token_bytes(16)
_numbers = count()


class ForkedRuntimeError(UnsupportedError):
    """The threads of another library did not come along into this forked process: it would wait for ever."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a filesystem promises, as far as it is known without asking it.

    creates         one of many creators of a name wins, and the filesystem decides who
    unproven        the service behind it may not know of it: try it first
    renames         a write may be seen half done: it is made under a temporary name and then renamed
    suffix          `read_suffix` is one request
    is_local        a read costs microseconds
    has_folders     a folder must be there before a file in it
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
        """Its name, for people."""

    @property
    def identity(self) -> str:
        """Tells it from others of this process; no credential can be read from it."""

    @property
    def traits(self) -> Traits:
        """What it promises."""

    @property
    def secrets(self) -> Sequence[str]:
        """Texts that no message may show."""

    given: Any
    """What it was made of: another process makes it of this again."""

    @property
    def blocks(self) -> bool:
        """Whether its calls are made in threads."""

    async def read(self, key: str, start: int, end: int) -> bytes:
        """Bytes of a file; fewer where it ends."""

    async def read_all(self, key: str) -> tuple[bytes, ObjectMeta]:
        """A whole file; its etag is None where telling it would be another request."""

    async def read_suffix(self, key: str, num_bytes: int) -> tuple[bytes, ObjectMeta]:
        """The end of a file, at least a byte; asked for only where the traits say so."""

    async def describe(self, key: str) -> ObjectMeta:
        """Size and etag, not from a cache. Raises `FileNotFoundError` for a folder, too."""

    async def entries(self, folder: str, *, deep: bool) -> list[ObjectMeta]:
        """What is in a folder, not from a cache: files and, unless `deep`, folders, whose keys end in `/`.

        folder  ends in `/`, or is empty
        deep    files in folders of it, too
        """

    async def write(self, key: str, data: bytes, *, create: bool) -> str | None:
        """Write a file; its etag if the answer tells it. `create`: `FileExistsError` if there is one."""

    async def write_file(self, key: str, local_path: str, *, create: bool) -> None:
        """The same with the content of a file on this machine, in bounded memory."""

    async def make_folder(self, folder: str) -> None:
        """Make a folder and those above it; one that is there stays."""

    async def rename(self, source: str, key: str) -> None:
        """Give a file another name, in place of one that has it."""

    async def rename_absent(self, source: str, key: str) -> None:
        """The same if no file has that name: `FileExistsError`."""

    async def copy(self, source: str, key: str) -> None:
        """Write a file with the content of another."""

    async def remove(self, key: str) -> None:
        """Remove a file."""

    def key_of(self, uri: str) -> str:
        """The key that a URI or path names, without a slash at its end. Raises `UsageError`."""

    async def aclose(self) -> None:
        """Close what the running loop has opened."""

    def start_over(self) -> None:
        """Forget what was opened (after a fork)."""


_pool: LastingPool | None = None


def _threads() -> LastingPool:
    global _pool
    if _pool is None:
        _pool = LastingPool(THREADS_MAX, "lance_io-filesystem")
    return _pool


def _forget_threads() -> None:
    """In a forked child: they are not there."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_threads)


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call what blocks. Not the pool for the iterators of users: these may wait for what goes on here."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


async def in_thread_to_the_end(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The same for what writes: whoever is cancelled comes back when nothing is written any more."""
    return await to_the_end(in_thread(function, *args, **kwargs))


_NO_ANSWER: Final = frozenset(
    {"ConnectionError", "TimeoutError", "ClientConnectionError", "RequestException", "gaierror", "SSLError"}
)
_GONE: Final = (404, 410)


def cause_of(error: Exception) -> Exception:
    """What a filesystem calls "not found" where it is that: a lost connection or a refusal that it turned into one."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or not isinstance(cause, Exception):
        return error
    status = status_of(cause)
    if status is not None:
        return error if status in _GONE else cause
    return cause if _NO_ANSWER & {kind.__name__ for kind in type(cause).__mro__} else error


def status_of(error: Exception) -> int | None:
    """The HTTP status that an error of a client library carries."""
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if str(value).isdecimal():
            return int(str(value))
    return None


def fingerprint(content: bytes) -> str:
    """A short text that differs where the content does; nobody can find the content by it, here or elsewhere."""
    return blake2b(content, key=_salt, digest_size=6).hexdigest()


def pickled(filesystem: Any) -> bytes:
    """What tells a filesystem from others: equal ones that can be pickled have the same."""
    try:
        return pickle.dumps(filesystem)
    except Exception:  # one in memory, or one that somebody wrote, which may raise anything
        return b"%d" % next(_numbers)


def secret_texts(options: Any, *, is_secret: bool = False) -> list[str]:
    """All texts in options that may be credentials, by the names of the options, however deep they are.

    options    mappings, sequences and texts; anything else has none
    is_secret  whether what is no mapping counts as one
    """
    if isinstance(options, dict):
        found: list[str] = []
        for name, value in options.items():
            found += secret_texts(value, is_secret=is_secret or bool(_SECRET_NAME.search(str(name))))
        return found
    if isinstance(options, (list, tuple)):
        return [text for value in options for text in secret_texts(value, is_secret=is_secret)]
    if isinstance(options, bytes):
        options = options.decode("latin-1")
    return [options] if is_secret and isinstance(options, str) and len(options) >= SECRET_LENGTH_MIN else []
