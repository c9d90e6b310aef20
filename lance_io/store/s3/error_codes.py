"""From what S3 answers, and what its clients raise, to our errors. Nothing of the clients' own leaves `store/`.

S3 names a failure twice: by HTTP status and by the code of a small XML document. The code decides where there is one,
since some services answer a 400 or 200 with `SlowDown`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

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

ERROR_BODY_BYTES_MAX = 1 << 16
_THROTTLED = frozenset(
    {"SlowDown", "SlowDownRead", "SlowDownWrite", "RequestLimitExceeded", "Throttling", "ThrottlingException",
     "TooManyRequests", "TooManyRequestsException", "ServerBusy", "ServiceUnavailable"}
)  # fmt: skip
_TRANSIENT = frozenset({"InternalError", "RequestTimeout", "OperationAborted", "XMinioServerNotInitialized"})
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NotFound", "NoSuchUpload"})
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired"})
_ELEMENT = re.compile(r"<(Code|Message)>([^<]{0,2000})</\1>")


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
    found = dict(_ELEMENT.findall(body.decode("utf-8", "replace")))
    return coded_error(
        status,
        found.get("Code", ""),
        found.get("Message", ""),
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
    """The error for a status and S3's own code."""
    text = _text(status, code, message, secrets)
    known: dict[str, Any] = {"path": key, "operation": operation, "status": status}
    if status in (429, 503) or code in _THROTTLED:
        throttled = Throttled(f"the store asks for fewer requests: {text}", **known)
        throttled.retry_after_s = float(retry_after) if retry_after and retry_after.isdecimal() else None
        return throttled
    if status == 409 and code in ("ConditionalRequestConflict", "OperationAborted"):
        return ConflictRetry(f"another conditional write was under way: {text}", **known, retryable=True)
    if status == 501 or code == "NotImplemented":
        return StoreFailure(f"the store does not know this kind of request: {text}", **known)
    if status >= 500 or status == 408 or code in _TRANSIENT:
        return Transient(f"the store failed: {text}", **known)
    if code in _MISSING or status == 404:
        return NotFound(f"there is no such object: {text}", path=key)
    if status == 412 or code == "PreconditionFailed":
        if operation == "put_create":
            return AlreadyExists("an object of this key is there already", path=key)
        return PreconditionFailed(f"the object has changed: {text}", **known)
    if status == 416:
        return InvalidRange(f"the range lies behind the end of the object: {text}", path=key)
    if code in _EXPIRED:
        return AccessDenied(f"the credentials have expired: {text}", path=key)
    if status in (401, 403):
        return AccessDenied(f"the store refused the credentials, or they do not allow this: {text}", path=key)
    return StoreFailure(f"unexpected answer: {text}", **known)


def client_error(error: Exception, *, key: str, operation: str, secrets: Iterable[str] = ()) -> LanceError:
    """The error for an exception of botocore or aiobotocore."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return _raised_error(error, key, operation, secrets)
    metadata = response.get("ResponseMetadata", {})
    details = response.get("Error", {})
    code = str(details.get("Code", ""))
    status = metadata.get("HTTPStatusCode") or (int(code) if code.isdecimal() else 0)
    headers = metadata.get("HTTPHeaders", {})
    return coded_error(
        status,
        code,
        str(details.get("Message", "")),
        key=key,
        operation=operation,
        retry_after=headers.get("retry-after"),
        secrets=secrets,
    )


def _raised_error(error: Exception, key: str, operation: str, secrets: Iterable[str]) -> LanceError:
    """No answer at all: credentials are missing, or the connection failed."""
    from botocore import exceptions as botocore

    name = type(error).__name__
    if isinstance(error, (botocore.NoCredentialsError, botocore.PartialCredentialsError)):
        return no_credentials(key)
    if isinstance(error, (botocore.CredentialRetrievalError, botocore.ProfileNotFound, botocore.TokenRetrievalError)):
        return AccessDenied(_scrub(f"no credentials: {error}", secrets), path=key)
    if isinstance(error, botocore.SSLError):  # a certificate that is not trusted stays so
        return StoreFailure(_scrub(f"cannot connect ({name}: {error})", secrets), path=key, operation=operation)
    if _is_unsent(error):
        return Unsent(_scrub(f"no connection ({name}: {error})", secrets), path=key, operation=operation)
    if isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError, botocore.IncompleteReadError)):
        return Transient(_scrub(f"no answer ({name}: {error})", secrets), path=key, operation=operation)
    return StoreFailure(_scrub(f"the request failed ({name}: {error})", secrets), path=key, operation=operation)


def credentials_error(error: Exception, *, secrets: Iterable[str] = ()) -> LanceError:
    """The error for what a provider of credentials raised, which may be anything: some ask services or run programs."""
    from botocore.exceptions import BotoCoreError

    if isinstance(error, BotoCoreError):
        found = client_error(error, key="", operation="get", secrets=secrets)
        found.path = None  # for whoever asks to say
        return found
    return AccessDenied(_scrub(f"no credentials ({type(error).__name__}: {error})", secrets))


def _is_unsent(error: Exception) -> bool:
    """Did the connection fail before there was one? (The client uses one class for that and for a broken pipe.)"""
    import aiohttp
    from botocore import exceptions as botocore

    cause = getattr(error, "kwargs", {}).get("error")
    return isinstance(error, (botocore.ConnectTimeoutError, botocore.ProxyConnectionError)) or isinstance(
        cause, aiohttp.ClientConnectorError
    )


def no_credentials(key: str | None = None) -> AccessDenied:
    """Nothing was found to sign with."""
    return AccessDenied(
        "no AWS credentials found in storage options, environment, profile or instance role; "
        "set aws_skip_signature to 'true' for a public bucket",
        path=key,
    )


def _text(status: int, code: str, message: str, secrets: Iterable[str]) -> str:
    text = f"HTTP {status}" if not code or code == str(status) else f"HTTP {status} {code}"
    return _scrub(f"{text}: {message}" if message else text, secrets)


def _scrub(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
