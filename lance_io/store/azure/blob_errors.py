"""From what Azure answers, and what its library raises, to our errors. Nothing of the library's own leaves `store/`.

Azure names a failure by HTTP status and by a code, in a header and in a small XML document.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound
from lance_io.store.failures import (
    ConflictRetry,
    InvalidRange,
    PreconditionFailed,
    StoreFailure,
    Throttled,
    Transient,
    Unsent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_THROTTLED: Final = frozenset({"ServerBusy", "OperationTimedOut", "TooManyRequests", "AccountIopsLimitExceeded"})
_EXISTS: Final = frozenset({"BlobAlreadyExists", "ResourceAlreadyExists", "PathAlreadyExists"})
_MISSING: Final = frozenset({"BlobNotFound", "ContainerNotFound", "ResourceNotFound", "CannotVerifyCopySource"})
_UNDECIDED: Final = frozenset({"ContainerBeingDeleted", "OperationNotAllowedInCurrentState"})
_MESSAGE: Final = re.compile(r"<Message>([^<]{0,2000})")
_CODE: Final = re.compile(r"<Code>([^<]{0,200})</Code>")


class Refused(Exception):
    """An answer below Azure's library that refuses.

    headers  that know their names in any case
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        self.body = body


def answer_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    key: str,
    operation: str,
    secrets: Iterable[str] = (),
) -> LanceError:
    """The error for an HTTP answer; `body` is the XML document, possibly empty or something else."""
    text = body.decode("utf-8", "replace")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    return coded_error(
        status,
        headers.get("x-ms-error-code") or (code[1] if code else ""),
        message[1] if message else "",
        key=key,
        operation=operation,
        retry_after=headers.get("retry-after"),
        secrets=secrets,
    )


def coded_error(
    status: int,
    code: str,
    message: str,
    *,
    key: str,
    operation: str,
    retry_after: str | None = None,
    secrets: Iterable[str] = (),
) -> LanceError:
    """The error for a status and Azure's own code."""
    text = _text(status, code, message, secrets)
    known: dict[str, Any] = {"path": key, "operation": operation, "status": status}
    if status in (429, 503) or code in _THROTTLED:
        throttled = Throttled(f"the store asks for fewer requests: {text}", **known)
        throttled.retry_after_s = float(retry_after) if retry_after and retry_after.isdecimal() else None
        return throttled
    if status == 501:
        return StoreFailure(f"the store does not know this kind of request: {text}", **known)
    if status >= 500 or status == 408:
        return Transient(f"the store failed: {text}", **known)
    if operation == "put_create" and (code in _EXISTS or status == 412):
        return AlreadyExists("an object of this key is there already", path=key)
    if status == 409 and code in _UNDECIDED:
        return ConflictRetry(f"another write was under way: {text}", **known, retryable=True)
    if status == 404 or code in _MISSING:
        return NotFound(f"there is no such object: {text}", path=key)
    if status == 412:
        return PreconditionFailed(f"the object has changed: {text}", **known)
    if status == 416:
        return InvalidRange(f"the range lies behind the end of the object: {text}", path=key)
    if status in (401, 403):
        return AccessDenied(f"the store refused the credentials, or they do not allow this: {text}", path=key)
    return StoreFailure(f"unexpected answer: {text}", **known)


def library_error(error: Exception, *, key: str, operation: str, secrets: Iterable[str] = ()) -> LanceError:
    """The error for an exception of azure.core, azure.storage.blob, azure.identity or aiohttp below them."""
    from azure.core import exceptions as azure

    name = type(error).__name__
    if isinstance(error, Refused):
        return answer_error(error.status, error.headers, error.body, key=key, operation=operation, secrets=secrets)
    status = getattr(error, "status_code", None)
    if isinstance(error, azure.HttpResponseError) and status:
        return coded_error(status, "", "", key=key, operation=operation, secrets=secrets)
    if isinstance(error, azure.ClientAuthenticationError):
        return no_credentials(error, secrets, key)
    text = _scrub(f"{name}: {error}", secrets)
    if _is_distrust(error):  # a certificate that is not trusted stays so
        return StoreFailure(f"cannot connect ({text})", path=key, operation=operation)
    if _is_unsent(error):
        return Unsent(f"no connection ({text})", path=key, operation=operation)
    if isinstance(error, (azure.ServiceRequestError, azure.ServiceResponseError, TimeoutError, OSError)):
        return Transient(f"no answer ({text})", path=key, operation=operation)
    if isinstance(error, azure.HttpResponseError):  # an answer that broke off
        return Transient(f"no complete answer ({text})", path=key, operation=operation)
    return StoreFailure(f"the request failed ({text})", path=key, operation=operation)


def no_credentials(error: Exception, secrets: Iterable[str], key: str | None = None) -> AccessDenied:
    """Nothing was found to authorise requests with."""
    told = _scrub(str(error).partition("\n")[0], secrets)
    return AccessDenied(
        f"no Azure credentials ({told}); name an account_key, a sas_token or a client_id in the storage options, "
        "or set skip_signature to 'true' for a public container",
        path=key,
    )


def _inner(error: Exception) -> Any:
    """What aiohttp raised below azure.core's error."""
    return getattr(error, "inner_exception", None) or error.__cause__ or error


def _is_unsent(error: Exception) -> bool:
    """Did the connection fail before there was one? (azure.core says so of lost connections, too.)"""
    import aiohttp
    from azure.core import exceptions as azure

    return isinstance(error, azure.ServiceRequestTimeoutError) or isinstance(
        _inner(error), (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    )


def _is_distrust(error: Exception) -> bool:
    import aiohttp

    return isinstance(_inner(error), aiohttp.ClientConnectorCertificateError)


def _text(status: int, code: str, message: str, secrets: Iterable[str]) -> str:
    text = f"HTTP {status} {code}" if code else f"HTTP {status}"
    return _scrub(f"{text}: {message.partition(chr(10))[0]}" if message else text, secrets)


def _scrub(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
