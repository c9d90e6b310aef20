"""Maps Azure's error answers and its library's exceptions to our errors, so that none of the library's leave `store/`.

Azure identifies an error by HTTP status and by a code, in a header and in a small XML document.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied, LanceError
from lance_io.redaction import hide_secrets
from lance_io.store.cloud.refused_answers import Dialect, refusal
from lance_io.store.failures import StoreFailure, Transient, Unsent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DIALECT: Final = Dialect(
    throttled=frozenset({"ServerBusy", "OperationTimedOut", "TooManyRequests", "AccountIopsLimitExceeded"}),
    conflicts=frozenset({"ContainerBeingDeleted", "OperationNotAllowedInCurrentState"}),
    missing=frozenset({"BlobNotFound", "ContainerNotFound", "ResourceNotFound", "CannotVerifyCopySource"}),
    unknown=frozenset({"AuthenticationFailed"}),  # status 403: invalid signature, by a key or in a URL
    exists=frozenset({"BlobAlreadyExists", "ResourceAlreadyExists", "PathAlreadyExists"}),
)
_MESSAGE: Final = re.compile(r"<Message>([^<]{0,2000})")
_CODE: Final = re.compile(r"<Code>([^<]{0,200})</Code>")


class Refused(Exception):
    """An error answer, raised below Azure's library.

    headers  with case-insensitive names
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
    """The error for an HTTP answer; `body` may be an XML document, empty or another text."""
    text = body.decode("utf-8", "replace")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    return refusal(
        _DIALECT,
        status,
        headers.get("x-ms-error-code") or (code[1] if code else ""),
        message[1].partition("\n")[0] if message else "",
        headers=headers,
        key=key,
        operation=operation,
        secrets=secrets,
    )


def library_error(error: Exception, *, key: str, operation: str, secrets: Iterable[str] = ()) -> LanceError:
    """The error for an exception of azure.core, azure.storage.blob, azure.identity or aiohttp below them."""
    from azure.core import exceptions as azure

    name = type(error).__name__
    if isinstance(error, Refused):
        return answer_error(error.status, error.headers, error.body, key=key, operation=operation, secrets=secrets)
    status = getattr(error, "status_code", None)
    if isinstance(error, azure.HttpResponseError) and status:
        headers = getattr(error.response, "headers", None) or {}
        return refusal(_DIALECT, status, "", "", headers=headers, key=key, operation=operation, secrets=secrets)
    if isinstance(error, azure.ClientAuthenticationError):
        return no_credentials(error, secrets, key)
    text = hide_secrets(f"{name}: {error}", secrets)
    if _is_untrusted(error):  # no retry: the certificate stays untrusted
        return StoreFailure(f"cannot connect ({text})", path=key, operation=operation)
    if _is_unsent(error):
        return Unsent(f"no connection ({text})", path=key, operation=operation)
    if isinstance(error, (azure.ServiceRequestError, azure.ServiceResponseError, TimeoutError, OSError)):
        return Transient(f"no answer ({text})", path=key, operation=operation)
    if isinstance(error, azure.HttpResponseError):  # a truncated answer
        return Transient(f"no complete answer ({text})", path=key, operation=operation)
    return StoreFailure(f"the request failed ({text})", path=key, operation=operation)


def no_credentials(error: Exception, secrets: Iterable[str], key: str | None = None) -> AccessDenied:
    """The error for missing credentials."""
    reason = hide_secrets(str(error).partition("\n")[0], secrets)
    return AccessDenied(
        f"no Azure credentials ({reason}); name an account_key, a sas_token or a client_id in the storage options, "
        "or set skip_signature to 'true' for a public container",
        path=key,
    )


def _inner(error: Exception) -> Any:
    """aiohttp's error below one of azure.core."""
    return getattr(error, "inner_exception", None) or error.__cause__ or error


def _is_unsent(error: Exception) -> bool:
    """Whether connecting failed. (azure.core reports lost connections in the same way.)"""
    import aiohttp
    from azure.core import exceptions as azure

    return isinstance(error, azure.ServiceRequestTimeoutError) or isinstance(
        _inner(error), (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    )


def _is_untrusted(error: Exception) -> bool:
    import aiohttp

    return isinstance(_inner(error), aiohttp.ClientConnectorCertificateError)


def unreadable_answer(error: ValueError, *, key: str, operation: str, secrets: Iterable[str] = ()) -> StoreFailure:
    """The error for an answer that the library cannot parse."""
    text = hide_secrets(f"an answer that Azure's library cannot read ({error})", secrets)
    return StoreFailure(text, path=key, operation=operation)
