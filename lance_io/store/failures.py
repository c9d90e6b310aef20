"""What can go wrong between us and a store, in the words of the read and write paths.

    StoreError
    ├── StoreFailure                    operation, attempts, status
    │   ├── Transient                   connection lost, timeout, 5xx: the same call may work
    │   │   ├── Throttled               429, 503, SlowDown; carries retry_after_s
    │   │   ├── Unsent                  no connection came about: nothing has been done
    │   │   └── OutcomeUnknown          a write under a condition was sent, and nobody says whether it was applied
    │   ├── StoreFull                   no room: a full disk, a used up quota; reads and removals may work
    │   ├── RangeIgnored                a ranged GET was answered with something else than that range
    │   ├── LongBody                    more bytes than the range holds
    │   ├── PreconditionFailed          if-match: the object has changed
    │   └── ConflictRetry               a concurrent conditional write; nobody has won yet (S3 409)
    ├── ShortRead (also FormatError)    the object ends inside the range
    └── InvalidRange (also FormatError) the range starts behind the end of the object, or is no range

    AccessDenied
    └── CredentialsRefused              these credentials are no good, or no more: others may be

`ShortRead` and `InvalidRange` are format errors too: on a store that works they mean that the metadata which named the
range and the object disagree, so one of the two is damaged.

All of them say how often a store was asked, and what the server calls the last request (`LanceError.attempts`,
`LanceError.request_id`), `NotFound` and `AlreadyExists` of a store too.
"""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lance_io.errors import AccessDenied, FormatError, LanceError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUEST_IDS: Final = (
    "x-amz-request-id",
    "x-guploader-uploadid",
    "x-ms-request-id",
    "x-oss-request-id",
    "x-amzn-requestid",
)
"""Headers in which servers name a request: those of S3, Google, Azure, OSS and DynamoDB."""
_REQUEST_ID: Final = re.compile(r"[!-~]{1,256}")


class StoreFailure(StoreError):
    """Base of the failures below.

    operation  the operation class, such as "get"
    attempts   how often the request was made
    status     HTTP status of the last answer, or None
    """

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        retryable: bool = False,
        operation: str | None = None,
        attempts: int = 1,
        status: int | None = None,
    ) -> None:
        super().__init__(message, path=path, retryable=retryable)
        self.operation = operation
        self.attempts = attempts
        self.status = status


class Transient(StoreFailure):
    """The request may work when it is made again: connection lost, timeout, server error."""

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        retryable: bool = True,
        operation: str | None = None,
        attempts: int = 1,
        status: int | None = None,
    ) -> None:
        super().__init__(message, path=path, retryable=retryable, operation=operation, attempts=attempts, status=status)


class Throttled(Transient):
    """The store asks for fewer requests; `retry_after_s` is the pause it named in seconds, or None."""

    retry_after_s: float | None = None


class Unsent(Transient):
    """There was no connection to send the request over: whatever it was to do has not been done."""


class OutcomeUnknown(Transient):
    """A write that decides something (create-if-absent, compare-and-swap) got no certain answer.

    It may have been applied, or be applied yet. Making it again blindly would meet its own result and take it for
    somebody else's, so whoever asked reads back what is there. `retry_after_s` as in `Throttled`.
    """

    retry_after_s: float | None = None


class StoreFull(StoreFailure):
    """There is no room for what was to be written: a full disk or a used up quota. Reads and removals may work."""


class CredentialsRefused(AccessDenied):
    """The store takes these credentials no more, or does not know them. Nothing was done; others may do."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})  # how a system says so
HTTP_FULL: Final = 507  # how a server does


class RangeIgnored(StoreFailure):
    """A ranged GET was answered with the whole object or another range: a proxy that does not know ranges."""


class LongBody(StoreFailure):
    """The answer to a ranged GET holds more bytes than the range."""


class PreconditionFailed(StoreFailure):
    """The object is not the one that the condition named."""


class ConflictRetry(StoreFailure):
    """Two conditional writes of one key met; the store decided for neither and asks to try again."""


class ShortRead(StoreError, FormatError):
    """The object ends before the range does: it is truncated, or the metadata that gave the range is damaged."""


class InvalidRange(StoreError, FormatError):
    """The range starts at or behind the end of the object, or its end lies before its start."""


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """What the server calls the request that it answers with these headers; None where it does not say.

    headers  names in lower case, or such as are found in any case
    """
    for name in REQUEST_IDS:
        found = headers.get(name)
        if found and _REQUEST_ID.fullmatch(found):
            return found
    return None


@contextmanager
def answered_with(headers: Mapping[str, str]) -> Iterator[None]:
    """Errors in here are about the answer with these headers, and say so."""
    try:
        yield
    except LanceError as error:
        error.request_id = error.request_id or request_id_of(headers)
        raise


def name_bucket(error: LanceError, bucket: str, attempts: int = 1) -> None:
    """Say in an error which bucket it is about: a key alone does not tell.

    attempts  how often the request was made
    """
    error.attempts = max(error.attempts, attempts)
    named = f"(bucket {bucket})"
    if not error.message.endswith(named):
        error.message = f"{error.message} {named}"
        error.args = (error.message,)
