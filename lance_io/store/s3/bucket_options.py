"""What the storage options and the environment say about an S3 bucket.

    option (any case)                         environment          meaning
    aws_region, region                        AWS_REGION, AWS_DEFAULT_REGION
    aws_access_key_id, access_key_id          AWS_ACCESS_KEY_ID    static credentials; else aiobotocore's usual chain:
    aws_secret_access_key, secret_access_key  AWS_SECRET_...       environment, profile, web identity, container,
    aws_session_token, session_token, ...     AWS_SESSION_TOKEN    instance role
    aws_profile                               AWS_PROFILE          a profile of ~/.aws
    aws_endpoint, endpoint, ..._url           AWS_ENDPOINT(_URL)   another service than Amazon's
    aws_virtual_hosted_style_request          the same, upper case bucket in the host name (default: Amazon only)
    aws_skip_signature                        the same             anonymous requests
    allow_http                                (AWS_)ALLOW_HTTP     an http:// endpoint is meant
    connect_timeout, request_timeout          the same             durations: 5s, 30s (plus 1 s per MB asked for)
    client_max_retries, client_retry_timeout  the same             attempts after the first (7); for how long (120s)
    download_retry_count                      the same             of these, after an answer that broke off (any)
    allow_invalid_certificates                the same             true: any certificate is trusted, for trials only
    proxy_url, proxy_excludes                 the same, HTTP_PROXY http://[user:password@]host:port; hosts without it
    proxy_ca_certificate                      the same; or         the certificates to trust instead of the usual
                                              AWS_CA_BUNDLE        ones, as a file or as PEM text
    fast_get                                  -                    aiohttp: GETs go through that; false: through
                                                                   aiobotocore

Unprefixed environment variables such as REGION are not read: they belong to somebody else.
"""

from __future__ import annotations

import os
from dataclasses import field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.store.policies.logical_read import RetryPolicy
from lance_io.store.storage_options import seconds, switch, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALIASES = {
    "aws_region": ("aws_region", "region", "aws_default_region", "default_region"),
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "session_token", "aws_token", "token"),
    "aws_endpoint": ("aws_endpoint", "endpoint", "aws_endpoint_url", "endpoint_url", "aws_endpoint_url_s3"),
    "aws_virtual_hosted_style_request": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
    "aws_skip_signature": ("aws_skip_signature", "skip_signature"),
    "aws_s3_express": ("aws_s3_express", "s3_express"),
    "aws_request_payer": ("aws_request_payer", "request_payer"),
    "allow_http": ("allow_http", "aws_allow_http"),
}
Transport = Literal["http", "aiohttp", "aiobotocore"]
"""What sends ranged GETs: our own client, a bare aiohttp session, or aiobotocore with all that it knows."""

_FROM_CHAIN = frozenset({"aws_access_key_id", "aws_secret_access_key", "aws_session_token"})  # read by aiobotocore
_CLIENT_ENVIRONMENT = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "request_timeout", "user_agent", "proxy_url",
     "proxy_ca_certificate", "proxy_excludes", "client_max_retries", "client_retry_timeout", "download_retry_count"}
)  # fmt: skip


_CREDENTIAL_SOURCES: Final = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, slots=True)
class S3Options:
    """Everything that is fixed about a bucket before the first request. Secrets do not show in `repr`."""

    bucket: str
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    endpoint: str | None = None
    virtual_hosted: bool = False
    skip_signature: bool = False
    express: bool = False
    transport: Transport = "http"
    verify: bool = True
    ca_certificates: str | None = None  # a file, or PEM text
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    proxy_excludes: tuple[str, ...] = ()
    user_agent: str = "lance_io"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    download_retries: int | None = None  # answers that may break off before a read fails; None: as many as attempts
    read_headers: Mapping[str, str] = field(default_factory=dict)
    put_arguments: Mapping[str, object] = field(default_factory=dict, repr=False)
    checksums: str | None = None  # "when_supported", "when_required", or aiobotocore's default

    @property
    def identity(self) -> str:
        """The bucket and where it is."""
        return f"s3://{self.bucket}@{self.endpoint or 'aws'}"

    @property
    def fast_get(self) -> bool:
        """Are GETs signed here?"""
        return self.transport != "aiobotocore"

    @property
    def is_amazon(self) -> bool:
        """Is the service Amazon's own?"""
        host = urlsplit(self.endpoint or "https://s3.amazonaws.com").hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    def proxy_for(self, host: str) -> str | None:
        """The proxy that the options name for a host: none if `proxy_excludes` has it, its domain or its network."""
        return None if any(_excludes(entry.strip(), host) for entry in self.proxy_excludes) else self.proxy

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never appear in a message."""
        given = (self.secret_key, self.token, self.access_key)
        return tuple(secret for secret in given if secret)


def parse_s3(bucket: str, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> S3Options:
    """Read storage options (lower-case names), with the environment behind them.

    Raises `UsageError` for values that make no sense, for half a set of credentials, and for an `http://` endpoint
    without `allow_http`.
    """
    found = _Found(options, os.environ if environment is None else environment)
    endpoint = _endpoint(found, bucket)
    express = found.switch("aws_s3_express", bucket.endswith("--x-s3"))
    access_key, secret_key = found.text("aws_access_key_id"), found.text("aws_secret_access_key")
    if (access_key is None) != (secret_key is None):
        raise UsageError("storage options: aws_access_key_id and aws_secret_access_key go together, found only one")
    payer = found.text("aws_request_payer")
    return S3Options(
        bucket=bucket,
        region=found.text("aws_region"),
        access_key=access_key,
        secret_key=secret_key,
        token=found.text("aws_session_token"),
        profile=found.text("aws_profile"),
        endpoint=endpoint,
        virtual_hosted=found.switch("aws_virtual_hosted_style_request", endpoint is None and "." not in bucket),
        skip_signature=found.switch("aws_skip_signature", False),
        express=express,
        transport="aiobotocore" if express or bucket.startswith("arn:") else _transport(found),
        verify=not found.switch("allow_invalid_certificates", False),
        ca_certificates=found.text("proxy_ca_certificate"),
        proxy=found.text("proxy_url"),
        proxy_excludes=tuple(filter(None, (found.text("proxy_excludes") or "").split(","))),
        user_agent=_header_text("user_agent", found.text("user_agent") or "lance_io"),
        connect_timeout_s=found.seconds("connect_timeout", 5.0),
        request_timeout_s=found.seconds("request_timeout", 30.0),
        retry=RetryPolicy(
            attempts_max=found.whole_number("client_max_retries", 7) + 1,
            total_s=found.seconds("client_retry_timeout", 120.0),
        ),
        download_retries=(
            found.whole_number("download_retry_count", 0) if found.text("download_retry_count") else None
        ),
        read_headers={"x-amz-request-payer": "requester"} if payer and switch("aws_request_payer", payer) else {},
        put_arguments=_put_arguments(found),
        checksums=found.text("aws_request_checksum_calculation") or ("when_required" if endpoint else None),
    )


def _excludes(entry: str, host: str) -> bool:
    """Does an entry of `proxy_excludes` (`*`, a host, a domain, an address, a network `10.0.0.0/8`) mean the host?"""
    if entry == "*" or host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}"):
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False


class _Found:
    """Options first, then the environment."""

    def __init__(self, options: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment

    def text(self, name: str) -> str | None:
        names = _ALIASES.get(name, (name,))
        for alias in names:
            if alias in self._options:
                return self._options[alias]
        if name in _FROM_CHAIN:
            return None
        for alias in names:
            if alias.startswith("aws_") or alias in _CLIENT_ENVIRONMENT:
                if value := self._environment.get(alias.upper()):
                    return value
        return None

    def switch(self, name: str, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else switch(name, text)

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        return default if text is None else seconds(name, text)

    def whole_number(self, name: str, default: int) -> int:
        text = self.text(name)
        return default if text is None else whole_number(name, text)


def _endpoint(found: _Found, bucket: str) -> str | None:
    """The endpoint without a slash at its end, and without the bucket should it lead the host name."""
    text = found.text("aws_endpoint")
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise UsageError("storage option aws_endpoint: expected http(s)://host[:port] without a user name")
    if parts.scheme == "http" and not found.switch("allow_http", False):
        raise UsageError(f"the endpoint {text} is not encrypted; set the storage option allow_http to 'true' to use it")
    return f"{parts.scheme}://{parts.netloc.removeprefix(f'{bucket}.')}{parts.path.rstrip('/')}"


def _transport(found: _Found) -> Transport:
    """What is to send GETs, as far as that can be chosen."""
    text = found.text("fast_get")
    if text is not None and text.strip().lower() == "aiohttp":
        return "aiohttp"
    return "http" if found.switch("fast_get", True) else "aiobotocore"


def keys_at_hand(options: S3Options, environment: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    """Access key, secret and session token that lie open: in the options or, as botocore reads it, the environment.

    None: a profile, a service or nobody has them, or they will expire, and aiobotocore has to look.
    """
    if options.access_key is not None and options.secret_key is not None:
        return options.access_key, options.secret_key, options.token
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if options.profile is not None or not key or not secret or environment.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    return key, secret, environment.get("AWS_SECURITY_TOKEN") or environment.get("AWS_SESSION_TOKEN")


def access_of(options: S3Options, environment: Mapping[str, str]) -> str:
    """What tells one set of credentials from another, without a secret.

    The access key where it lies open. Where profiles or services give keys that change, where they are looked for.
    """
    if options.skip_signature:
        return "anonymous"
    keys = keys_at_hand(options, environment)
    if keys is not None:
        return f"key {keys[0]}"
    return repr((options.profile, [environment.get(name) for name in _CREDENTIAL_SOURCES]))


def has_profiles(options: S3Options, environment: Mapping[str, str]) -> bool:
    """Whether there is a file of Amazon's that may say something about region or certificates."""
    files = (
        environment.get("AWS_CONFIG_FILE") or "~/.aws/config",
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
    )
    return options.profile is not None or any(os.path.exists(os.path.expanduser(file)) for file in files)


def _header_text(name: str, text: str) -> str:
    if not is_header_text(text):
        raise UsageError(f"storage option {name}: expected printable ASCII, found {text!r}")
    return text


def is_header_text(text: str) -> bool:
    """Whether it can be a header's value without becoming two headers."""
    return text.isascii() and text.isprintable()


def _put_arguments(found: _Found) -> dict[str, object]:
    """Server-side encryption, as aiobotocore names it."""
    arguments: dict[str, object] = {}
    if encryption := found.text("aws_server_side_encryption"):
        arguments["ServerSideEncryption"] = encryption
    if key := found.text("aws_sse_kms_key_id"):
        arguments["SSEKMSKeyId"] = key
    if found.switch("aws_sse_bucket_key_enabled", False):
        arguments["BucketKeyEnabled"] = True
    return arguments
