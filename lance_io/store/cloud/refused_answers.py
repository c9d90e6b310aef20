"""Maps error answers of S3, Google and Azure to our errors, by HTTP status and the store's own error code.

A `Dialect` holds the meaning of a store's codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound
from lance_io.records import dataclass
from lance_io.redaction import hide_secrets
from lance_io.store.failures import (
    HTTP_FULL,
    ConflictRetry,
    CredentialsRefused,
    InvalidRange,
    PreconditionFailed,
    StoreFailure,
    StoreFull,
    Throttled,
    Transient,
    request_id_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Dialect:
    """Error codes and statuses of a store that mean more than the status alone.

    throttled  too many requests
    conflicts  with status 409: another write is in progress; a retry may succeed
    transient  the store failed; a retry may succeed
    missing    no such object
    exists     create-only put: the object already exists
    expired    the credentials have expired
    unknown    the credentials are unknown or do not match
    gone       statuses that mean the same as 404
    """

    throttled: frozenset[str] = _NONE
    conflicts: frozenset[str] = _NONE
    transient: frozenset[str] = _NONE
    missing: frozenset[str] = _NONE
    exists: frozenset[str] = _NONE
    expired: frozenset[str] = _NONE
    unknown: frozenset[str] = _NONE
    gone: frozenset[int] = frozenset({404})


def refusal(
    dialect: Dialect,
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str],
    key: str,
    operation: str,
    secrets: Iterable[str] = (),
    has_no_body: bool = False,
) -> LanceError:
    """The error for an unsuccessful answer.

    code, message  from the store, may be empty
    headers        of the answer, by lower-case name
    has_no_body    the answer cannot give its reason, which may be the credentials
    """
    shown = f"HTTP {status}" if not code or code == str(status) else f"HTTP {status} {code}"
    text = hide_secrets(f"{shown}: {message}" if message else shown, secrets)
    error = _error_by_status(dialect, status, code, text, key, operation, has_no_body=has_no_body)
    if isinstance(error, Throttled):
        pause = headers.get("retry-after")
        error.retry_after_s = float(pause) if pause and pause.isdecimal() else None
    request_id = request_id_of(headers)
    error.request_id = None if request_id is None else hide_secrets(request_id, secrets)
    return error


def _error_by_status(
    dialect: Dialect, status: int, code: str, text: str, key: str, operation: str, *, has_no_body: bool
) -> LanceError:
    """The error of this status and code, with `text` in its message."""
    known: dict[str, Any] = {"path": key, "operation": operation, "status": status}
    if status in (429, 503) or code in dialect.throttled:
        return Throttled(f"the store asks for fewer requests: {text}", **known)
    if operation == "put_create" and (status == 412 or code in dialect.exists):
        return AlreadyExists("an object with this key already exists", path=key)
    if status == 409 and code in dialect.conflicts:
        return ConflictRetry(f"another write was in progress: {text}", **known, retryable=True)
    if status == 501 or code == "NotImplemented":
        return StoreFailure(f"the store does not support this request: {text}", **known)
    if status == HTTP_FULL:
        return StoreFull(f"the store is full: {text}", **known)
    if status >= 500 or status == 408 or code in dialect.transient:
        return Transient(f"the store failed: {text}", **known)
    if status in dialect.gone or code in dialect.missing:
        return NotFound(f"no such object: {text}", path=key)
    if status == 412:
        return PreconditionFailed(f"the object has changed: {text}", **known)
    if status == 416:
        return InvalidRange(f"the range lies beyond the end of the object: {text}", path=key)
    if code in dialect.expired:
        return CredentialsRefused(f"the credentials have expired: {text}", path=key)
    if status == 401 or code in dialect.unknown or has_no_body:
        return CredentialsRefused(f"the store refused the credentials: {text}", path=key)
    if status == 403:
        return AccessDenied(f"the store refused the credentials, or they do not allow this: {text}", path=key)
    return StoreFailure(f"unexpected answer: {text}", **known)
