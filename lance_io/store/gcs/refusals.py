"""From what Google Cloud Storage answers to our errors.

A refusal has an HTTP status and, mostly, a JSON document `{"error": {"message": ..., "errors": [{"reason": ...}]}}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound
from lance_io.store.failures import InvalidRange, PreconditionFailed, StoreFailure, Throttled, Transient

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TEXT_MAX: Final = 2000  # of what a message shows of an answer
_TOO_MANY: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})  # told with 403, too


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    key: str,
    operation: str,
    secrets: Iterable[str] = (),
) -> LanceError:
    """The error for an answer that is no success; `body` is a document, possibly empty or something else."""
    reason, message = _told(body)
    text = f"HTTP {status}" + (f" {reason}" if reason else "") + (f": {message}" if message else "")
    text = scrub(text, secrets)
    known: dict[str, Any] = {"path": key, "operation": operation, "status": status}
    if status in (429, 503) or reason in _TOO_MANY:
        throttled = Throttled(f"the store asks for fewer requests: {text}", **known)
        after = headers.get("retry-after")
        throttled.retry_after_s = float(after) if after and after.isdecimal() else None
        return throttled
    if status >= 500 or status == 408:
        return Transient(f"the store failed: {text}", **known)
    if status in (404, 410):  # 410: an upload that is over
        return NotFound(f"there is no such object: {text}", path=key)
    if status == 412:
        if operation == "put_create":
            return AlreadyExists("an object of this key is there already", path=key)
        return PreconditionFailed(f"the object has changed: {text}", **known)
    if status == 416:
        return InvalidRange(f"the range lies behind the end of the object: {text}", path=key)
    if status in (401, 403):
        return AccessDenied(f"the store refused the credentials, or they do not allow this: {text}", path=key)
    return StoreFailure(f"unexpected answer: {text}", **known)


def _told(body: bytes) -> tuple[str, str]:
    """Reason and message of a refusal."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        if isinstance(error, str):  # of the service for tokens
            return error[:TEXT_MAX], ""
        reasons = error.get("errors") or [{}]
        return str(reasons[0].get("reason", ""))[:TEXT_MAX], str(error.get("message", ""))[:TEXT_MAX]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "", " ".join(text.split())[:TEXT_MAX]


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text without what must not be shown."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text
