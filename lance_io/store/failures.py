"""Errors of stores, in terms of the read and write paths.

    StoreError
    ├── StoreFailure                    operation, attempts, status
    │   ├── Transient                   connection lost, timeout, 5xx: a retry may succeed
    │   │   ├── Throttled               429, 503, SlowDown; carries retry_after_s
    │   │   ├── Unsent                  no connection: the request was not sent
    │   │   └── OutcomeUnknown          a conditional write was sent, and it is unknown whether it was applied
    │   ├── StoreFull                   a full disk or quota; reads and removals may work
    │   ├── RangeIgnored                the answer to a ranged GET is not that range
    │   ├── LongBody                    the answer has more bytes than the range
    │   ├── PreconditionFailed          if-match: the object has changed
    │   └── ConflictRetry               a concurrent conditional write, without a winner yet (S3 409)
    ├── ShortRead (also FormatError)    the object ends inside the range
    └── InvalidRange (also FormatError) the range starts after the end of the object, or is invalid

    AccessDenied
    └── CredentialsRefused              credentials are invalid or expired; others may work

`ShortRead` and `InvalidRange` are format errors too: on a working store they mean that the object and the metadata with
the range disagree, so one of the two is damaged.

All of them, and a store's `NotFound` and `AlreadyExists`, have the number of attempts and the server's id of the last
request (`LanceError.attempts`, `LanceError.request_id`).
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
"""Headers with a server's request id: S3, Google, Azure, OSS and DynamoDB."""
_REQUEST_ID: Final = re.compile(r"[!-~]{1,256}")


class StoreFailure(StoreError):
    """Base of the failures below.

    operation  the operation class, such as "get"
    attempts   how many requests were made
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
    """A retry of the request may succeed: connection lost, timeout, server error."""

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
    """The store asks for fewer requests; `retry_after_s` is the pause that it requests in seconds, or None."""

    retry_after_s: float | None = None


class Unsent(Transient):
    """There was no connection to send the request over, so it had no effect."""


class OutcomeUnknown(Transient):
    """A write that decides something (create-if-absent, compare-and-swap) got no conclusive answer.

    It may have been applied, or may still be applied. A blind retry would meet its own result and mistake it for
    another writer's, so callers read the object back. `retry_after_s` as in `Throttled`.
    """

    retry_after_s: float | None = None


class StoreFull(StoreFailure):
    """The write needs more room: a full disk or quota. Reads and removals may work."""


class CredentialsRefused(AccessDenied):
    """The store rejects these credentials, or accepts them no longer. The request had no effect; others may work."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})  # of the operating system
HTTP_FULL: Final = 507  # HTTP status


class RangeIgnored(StoreFailure):
    """The answer to a ranged GET is the whole object or another range: a proxy without support for ranges."""


class LongBody(StoreFailure):
    """The answer to a ranged GET has more bytes than the range."""


class PreconditionFailed(StoreFailure):
    """The object does not match the condition."""


class ConflictRetry(StoreFailure):
    """Two conditional writes of one key met; the store applied neither and asks for a retry."""


class ShortRead(StoreError, FormatError):
    """The object ends before the range does: it is truncated, or the metadata with the range is damaged."""


class InvalidRange(StoreError, FormatError):
    """The range starts at or after the end of the object, or its end is before its start."""


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """The server's id of a request, from the headers of its answer; None if there is none.

    headers  names in lower case, or a case-insensitive mapping
    """
    for name in REQUEST_IDS:
        value = headers.get(name)
        if value and _REQUEST_ID.fullmatch(value):
            return value
    return None


@contextmanager
def answered_with(headers: Mapping[str, str]) -> Iterator[None]:
    """Adds the request id in these headers to errors raised inside."""
    try:
        yield
    except LanceError as error:
        error.request_id = error.request_id or request_id_of(headers)
        raise


def note_bucket(error: LanceError, bucket: str, attempts: int = 1) -> None:
    """Add the bucket to an error's message: a key alone does not identify the object.

    attempts  how many requests were made
    """
    error.attempts = max(error.attempts, attempts)
    named = f"(bucket {bucket})"
    if not error.message.endswith(named):
        error.message = f"{error.message} {named}"
        error.args = (error.message,)
