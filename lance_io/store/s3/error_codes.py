"""From what S3 answers, and what its clients raise, to our errors. Nothing of the clients' own leaves `store/`.

S3 names a failure twice: by HTTP status and by the code of a small XML document. The code decides where there is one,
since some services answer a 400 or 200 with `SlowDown`.
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
    """S3's own code in the document of a refusal; empty without one."""
    found: dict[str, str] = dict(_ELEMENT.findall(body.decode("utf-8", "replace")))
    return found.get("Code", "")


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
    """The error for a status and S3's own code."""
    if code == "PreconditionFailed":  # some say it with 200, in a document
        status = 412
    is_mute = operation == "head" and status in (400, 403) and code in ("", str(status))  # HEAD has no document
    return refusal(
        _DIALECT,
        status,
        code,
        message,
        headers=headers,
        key=key,
        operation=operation,
        secrets=secrets,
        is_mute=is_mute,
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
    """No answer at all: credentials are missing, or the connection failed."""
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
    if isinstance(error, botocore.SSLError):  # a certificate that is not trusted stays so
        return StoreFailure(hide_secrets(f"cannot connect ({name}: {error})", secrets), path=key, operation=operation)
    if _is_unsent(error):
        return Unsent(hide_secrets(f"no connection ({name}: {error})", secrets), path=key, operation=operation)
    if isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError, botocore.IncompleteReadError)):
        return Transient(hide_secrets(f"no answer ({name}: {error})", secrets), path=key, operation=operation)
    return StoreFailure(hide_secrets(f"the request failed ({name}: {error})", secrets), path=key, operation=operation)


def credentials_error(error: Exception, *, secrets: Iterable[str] = ()) -> LanceError:
    """The error for what a provider of credentials raised, which may be anything: some ask services or run programs."""
    from botocore.exceptions import BotoCoreError

    if isinstance(error, BotoCoreError):
        found = client_error(error, key="", operation="get", secrets=secrets)
        found.path = None  # for whoever asks to say
        return found
    return AccessDenied(hide_secrets(f"no credentials ({type(error).__name__}: {error})", secrets))


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
