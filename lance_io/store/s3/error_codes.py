"""Maps error answers of S3 and exceptions of its clients to our errors, so that none of the clients' leave `store/`.

S3 identifies an error by HTTP status and by a code in a small XML document. The code takes precedence, because some
services send `SlowDown` with status 400 or 200.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lance_io.errors import AccessDenied, LanceError
from lance_io.redaction import hide_secrets
from lance_io.store.cloud.refused_answers import Dialect, refusal
from lance_io.store.failures import StoreFailure, Transient, Unsent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ERROR_BODY_BYTES_MAX = 1 << 16
_DIALECT: Final = Dialect(
    throttled=frozenset(
        {"SlowDown", "SlowDownRead", "SlowDownWrite", "RequestLimitExceeded", "Throttling", "ThrottlingException",
         "TooManyRequests", "TooManyRequestsException", "ServerBusy", "ServiceUnavailable"}
    ),
    conflicts=frozenset({"ConditionalRequestConflict", "OperationAborted"}),
    transient=frozenset({"InternalError", "RequestTimeout", "OperationAborted", "XMinioServerNotInitialized"}),
    missing=frozenset({"NoSuchKey", "NoSuchBucket", "NotFound", "NoSuchUpload"}),
    expired=frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}),
    unknown=frozenset(
        {"InvalidAccessKeyId", "InvalidToken", "InvalidTokenId", "InvalidClientTokenId", "InvalidSecurity",
         "NotSignedUp", "SignatureDoesNotMatch", "UnrecognizedClientException"}
    ),
)  # fmt: skip
_ELEMENT = re.compile(r"<(Code|Message)>([^<]{0,2000})</\1>")


def code_of(body: bytes) -> str:
    """S3's code in the body of an error answer; empty without one."""
    elements: dict[str, str] = dict(_ELEMENT.findall(body.decode("utf-8", "replace")))
    return elements.get("Code", "")


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
    elements = dict(_ELEMENT.findall(body.decode("utf-8", "replace")))
    return coded_error(
        status,
        elements.get("Code", ""),
        elements.get("Message", ""),
        headers=headers,
        key=key,
        operation=operation,
        secrets=secrets,
    )


def coded_error(
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str],
    key: str,
    operation: str,
    secrets: Iterable[str] = (),
) -> LanceError:
    """The error for a status and S3's code."""
    if code == "PreconditionFailed":  # some services send it with status 200
        status = 412
    has_no_body = operation == "head" and status in (400, 403) and code in ("", str(status))
    return refusal(
        _DIALECT,
        status,
        code,
        message,
        headers=headers,
        key=key,
        operation=operation,
        secrets=secrets,
        has_no_body=has_no_body,
    )


def client_error(error: Exception, *, key: str, operation: str, secrets: Iterable[str] = ()) -> LanceError:
    """The error for an exception of botocore or aiobotocore."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return _raised_error(error, key, operation, secrets)
    metadata = response.get("ResponseMetadata", {})
    details = response.get("Error", {})
    code = str(details.get("Code", ""))
    status = metadata.get("HTTPStatusCode") or (int(code) if code.isdecimal() else 0)
    return coded_error(
        status,
        code,
        str(details.get("Message", "")),
        headers=metadata.get("HTTPHeaders", {}),
        key=key,
        operation=operation,
        secrets=secrets,
    )


def _raised_error(error: Exception, key: str, operation: str, secrets: Iterable[str]) -> LanceError:
    """The error for an exception without an answer: missing credentials, or a failed connection."""
    from botocore import exceptions as botocore

    name = type(error).__name__
    if isinstance(error, (botocore.NoCredentialsError, botocore.PartialCredentialsError)):
        return no_credentials(key)
    if isinstance(
        error,
        (
            *(botocore.CredentialRetrievalError, botocore.ProfileNotFound, botocore.TokenRetrievalError),
            botocore.MetadataRetrievalError,
        ),
    ):
        return AccessDenied(hide_secrets(f"no credentials: {error}", secrets), path=key)
    if isinstance(error, botocore.SSLError):  # no retry: the certificate stays untrusted
        return StoreFailure(hide_secrets(f"cannot connect ({name}: {error})", secrets), path=key, operation=operation)
    if _is_unsent(error):
        return Unsent(hide_secrets(f"no connection ({name}: {error})", secrets), path=key, operation=operation)
    if isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError, botocore.IncompleteReadError)):
        return Transient(hide_secrets(f"no answer ({name}: {error})", secrets), path=key, operation=operation)
    return StoreFailure(hide_secrets(f"the request failed ({name}: {error})", secrets), path=key, operation=operation)


def credentials_error(error: Exception, *, secrets: Iterable[str] = ()) -> LanceError:
    """The error for an exception of a credentials provider, which may be any: some call services or run programs."""
    from botocore.exceptions import BotoCoreError

    if isinstance(error, BotoCoreError):
        mapped = client_error(error, key="", operation="get", secrets=secrets)
        mapped.path = None  # the caller sets it
        return mapped
    return AccessDenied(hide_secrets(f"no credentials ({type(error).__name__}: {error})", secrets))


def _is_unsent(error: Exception) -> bool:
    """Whether connecting failed. (The client uses one class for that and for a broken pipe.)"""
    import aiohttp
    from botocore import exceptions as botocore

    cause = getattr(error, "kwargs", {}).get("error")
    return isinstance(error, (botocore.ConnectTimeoutError, botocore.ProxyConnectionError)) or isinstance(
        cause, aiohttp.ClientConnectorError
    )


def no_credentials(key: str | None = None) -> AccessDenied:
    """The error for missing credentials."""
    return AccessDenied(
        "no AWS credentials found in storage options, environment, profile or instance role; "
        "set aws_skip_signature to 'true' for a public bucket",
        path=key,
    )
