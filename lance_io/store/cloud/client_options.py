"""What storage options and environment say about the client of any store in the cloud.

    option (any case)                         environment          meaning
    allow_http                                the same, in capitals, for these and those that follow:
                                                                   an http:// endpoint is meant
    connect_timeout                           the same             a duration: 5s
    timeout, request_timeout                  the same             of one request: 30s (plus 1 s per MB asked for)
    read_timeout                              the same             silence that counts as a broken connection
    headers.NAME                              -                    a header of all requests
    client_max_retries, client_retry_timeout  the same             attempts after the first (7); for how long (120s)
    download_retry_count                      the same             of these, after an answer that broke off (any)
    allow_invalid_certificates                the same             true: any certificate is trusted, for trials only
    pool_idle_timeout                         the same             idle connections are closed after that (15s)
    pool_max_idle_per_host                    the same             and those beyond so many, at once
    default_content_type                      the same             Content-Type of what is written
    proxy_url, proxy_excludes                 the same, HTTP_PROXY http://[user:password@]host:port; hosts without it
    proxy_ca_certificate                      the same             the certificates to trust instead of the usual
                                                                   ones, as a file or as PEM text
    disable_system_certificates               -                    true: that option has to be given

Unprefixed environment variables such as REGION are not read: they belong to somebody else.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import field
from functools import cache
from hashlib import blake2b
from ipaddress import ip_address, ip_network
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.redaction import KNOWN_LENGTH_MIN
from lance_io.store.policies.logical_read import RetryPolicy
from lance_io.store.storage_options import seconds, switch, whole_number

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from lance_io.store.provided_options import OptionsSource

SLOWEST_BYTES_PER_S: Final = 1_000_000  # a request may take a second longer for every so many bytes
STALL_S: Final = 10.0  # silence within an answer that counts as a broken connection
KEEPALIVE_S: Final = 15.0  # idle connections are dropped before a store drops them (S3: 20 s)
READ_BUFFER_BYTES: Final = 1 << 18  # what aiohttp holds of a body; its default of 64 KiB wakes us four times as often
_SECRET_WORDS: Final = ("key", "secret", "token", "sas", "password", "credential")
_NO_SECRETS: Final = frozenset(
    {"aws_sse_kms_key_id", "aws_sse_bucket_key_enabled", "aws_web_identity_token_file", "federated_token_file",
     "aws_container_authorization_token_file", "aws_container_credentials_relative_uri",
     "aws_container_credentials_full_uri", "fabric_token_service_url", "google_application_credentials"}
)  # fmt: skip
TOKEN_CHARACTERS_MAX: Final = 1 << 16
HEADERS: Final = "headers."  # how options begin that are headers
_HEADER_NAME: Final = re.compile("[a-z0-9!#$%&'*+.^_`|~-]+")
_OUR_HEADERS: Final = frozenset(
    {"accept-encoding", "authorization", "connection", "content-length", "content-md5", "date", "expect", "host",
     "if-match", "if-none-match", "range", "te", "transfer-encoding", "upgrade", "user-agent", "x-amz-content-sha256",
     "x-amz-date", "x-amz-security-token", "x-ms-date", "x-ms-version"}
)  # fmt: skip
_ENVIRONMENT: Final = frozenset(
    {"allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "request_timeout", "read_timeout",
     "user_agent", "proxy_url", "pool_idle_timeout", "pool_max_idle_per_host", "default_content_type",
     "proxy_ca_certificate", "proxy_excludes", "client_max_retries", "client_retry_timeout", "download_retry_count"}
)  # fmt: skip


def fingerprint(*secrets: str | None) -> str:
    """Tells secrets from others without showing any."""
    return blake2b(repr(secrets).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What is fixed about a bucket, whatever the store, before the first request. Secrets do not show in `repr`.

    bucket    or container
    provided  who gives credentials, in place of those that options and environment have
    origins   of each option that was given: its text, `***` for a secret, and which option or variable says so

    read_timeout_s  silence that counts as a broken connection; None: `STALL_S` while we read
    """

    bucket: str
    endpoint: str | None = None
    skip_signature: bool = False
    verify: bool = True
    ca_certificates: str | None = None  # a file, or PEM text
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    proxy_excludes: tuple[str, ...] = ()
    user_agent: str = "lance_io"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # of all requests; may hold a secret
    content_type: str | None = None  # of what is written
    pool_idle_s: float | None = None  # connections that carry nothing are closed after that; None: as the pool has it
    pool_idle_max: int | None = None  # and those beyond so many, at once
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    read_timeout_s: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    download_retries: int | None = None  # answers that may break off before a read fails; None: as many as attempts
    provided: OptionsSource | None = None
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def access(self) -> str:
        """What tells these credentials from others, without a secret: whose they are, or where they are looked for."""
        raise NotImplementedError

    @property
    def header_secrets(self) -> tuple[str, ...]:
        """What must not appear in a message: each header may hold a credential, alone or behind its scheme."""
        found = [part for text in self.headers.values() for part in (text, text.partition(" ")[2])]
        return tuple(part for part in found if len(part) >= KNOWN_LENGTH_MIN)

    @property
    def pool_idle(self) -> tuple[float | None, int | None]:
        """When idle connections are closed, and how many there may be."""
        return self.pool_idle_s, self.pool_idle_max

    @property
    def stall_s(self) -> float:
        """Silence that counts as a broken connection while we read."""
        return min(STALL_S if self.read_timeout_s is None else self.read_timeout_s, self.request_timeout_s)

    @property
    def silence_s(self) -> float:
        """The same of all other requests, whose answers may take the store some time."""
        return min(
            self.request_timeout_s if self.read_timeout_s is None else self.read_timeout_s, self.request_timeout_s
        )

    def proxy_for(self, host: str) -> str | None:
        """The proxy that the options name for a host: none if `proxy_excludes` has it, its domain or its network."""
        return None if any(_excludes(entry.strip(), host) for entry in self.proxy_excludes) else self.proxy

    def find_proxy(self, host: str, *, is_plain_http: bool) -> str | None:
        """The proxy for a host, by option or environment."""
        if self.proxy:
            return self.proxy_for(host)
        if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
            return None  # without an import of 15 ms that would come to the same
        from urllib.request import getproxies, proxy_bypass

        return None if proxy_bypass(host) else getproxies().get("http" if is_plain_http else "https")


class OptionSource:
    """Options first, then the environment.

    aliases      the names that an option has, the usual one first
    prefix       of the names that are read from the environment, in capitals
    not_for_us   names that are not read from there
    """

    def __init__(
        self,
        options: Mapping[str, str],
        environment: Mapping[str, str],
        aliases: Mapping[str, tuple[str, ...]],
        prefix: str,
        not_for_us: frozenset[str] = frozenset(),
    ) -> None:
        self._options = options
        self._environment = environment
        self._aliases = aliases
        self._prefix = prefix
        self._not_for_us = not_for_us
        self.origins: dict[str, tuple[str, str]] = {}  # of what was found: its text, if no secret, and who says so

    def text(self, name: str) -> str | None:
        """What is said, or None."""
        names = self._aliases.get(name, (name,))
        for alias in names:
            if alias in self._options:
                return self.note(name, self._options[alias], f"option {alias}")
        if name in self._not_for_us:
            return None
        for alias in names:
            if alias.startswith(self._prefix) or alias in _ENVIRONMENT:
                if value := self._environment.get(alias.upper()):
                    return self.note(name, value, f"variable {alias.upper()}")
        return None

    def note(self, name: str, text: str, origin: str) -> str:
        """Remember who says something, and what, if it is no secret."""
        is_secret = name not in _NO_SECRETS and any(word in name for word in _SECRET_WORDS)
        self.origins[name] = ("***" if is_secret else _without_user(text), origin)
        return text

    def below(self, prefix: str) -> dict[str, str]:
        """The options whose names begin so, by the rest of these."""
        return {name.removeprefix(prefix): text for name, text in self._options.items() if name.startswith(prefix)}

    def switch(self, name: str, default: bool) -> bool:
        """A yes or no."""
        text = self.text(name)
        return default if text is None else switch(name, text)

    def seconds(self, name: str, default: float) -> float:
        """A duration."""
        text = self.text(name)
        return default if text is None else seconds(name, text)

    def whole_number(self, name: str, default: int) -> int:
        """A count."""
        text = self.text(name)
        return default if text is None else whole_number(name, text)


def parse_client(found: OptionSource) -> dict[str, Any]:
    """The fields of `ClientOptions` that every client has; not bucket, endpoint and signature.

    Raises `UsageError` for values that make no sense.
    """
    return {
        "origins": found.origins,
        "verify": not found.switch("allow_invalid_certificates", False),
        "ca_certificates": _certificates(found),
        "proxy": found.text("proxy_url"),
        "proxy_excludes": tuple(filter(None, (found.text("proxy_excludes") or "").split(","))),
        "user_agent": _header_text("user_agent", found.text("user_agent") or "lance_io"),
        "headers": _headers(found.below(HEADERS)),
        "content_type": _content_type(found.text("default_content_type")),
        "pool_idle_s": found.seconds("pool_idle_timeout", 0.0) if found.text("pool_idle_timeout") else None,
        "pool_idle_max": found.whole_number("pool_max_idle_per_host", 0)
        if found.text("pool_max_idle_per_host")
        else None,
        "connect_timeout_s": found.seconds("connect_timeout", 5.0),
        "request_timeout_s": found.seconds("timeout", found.seconds("request_timeout", 30.0)),
        "read_timeout_s": found.seconds("read_timeout", 0.0) if found.text("read_timeout") else None,
        "retry": RetryPolicy(
            attempts_max=found.whole_number("client_max_retries", 7) + 1,
            total_s=found.seconds("client_retry_timeout", 120.0),
        ),
        "download_retries": (
            found.whole_number("download_retry_count", 0) if found.text("download_retry_count") else None
        ),
    }


def check_endpoint(name: str, text: str, found: OptionSource) -> tuple[str, str, str]:
    """Scheme, host with port, and path without a slash at its end, of the endpoint that the option `name` gives.

    Raises `UsageError` for another thing than a URL without a user, and for http:// without `allow_http`.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise UsageError(f"storage option {name}: expected http(s)://host[:port] without a user name")
    if parts.scheme == "http" and not found.switch("allow_http", False):
        raise UsageError(f"the endpoint {text} is not encrypted; set the storage option allow_http to 'true' to use it")
    return parts.scheme, parts.netloc, parts.path.rstrip("/")


def _excludes(entry: str, host: str) -> bool:
    """Does an entry of `proxy_excludes` (`*`, a host, a domain, an address, a network `10.0.0.0/8`) mean the host?"""
    if entry == "*" or host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}"):
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False


def _certificates(found: OptionSource) -> str | None:
    """Those to trust in place of the system's."""
    text = found.text("proxy_ca_certificate")
    if found.switch("disable_system_certificates", False) and not text:
        raise UsageError(
            "storage option disable_system_certificates: no certificate would be trusted; "
            "proxy_ca_certificate names those that are, in place of the system's"
        )
    return text


def _header_text(name: str, text: str) -> str:
    if not is_header_text(text):
        raise UsageError(f"storage option {name}: expected printable ASCII, found {text!r}")
    return text


def _content_type(text: str | None) -> str | None:
    return _header_text("default_content_type", text) if text else None


def _without_user(text: str) -> str:
    """A URL without user and password; other texts as they are."""
    scheme, slashes, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if slashes and "@" in host else text


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    """Headers of the user's own; their values are not shown."""
    for name, text in given.items():
        if not _HEADER_NAME.fullmatch(name) or name in _OUR_HEADERS:
            raise UsageError(f"storage option headers.{name}: expected the name of a header that requests do not have")
        if not is_header_text(text):
            raise UsageError(f"storage option headers.{name}: expected printable ASCII")
    return dict(given)


def file_secret(path: str | None) -> tuple[str, ...]:
    """The token that a file holds, so that no message shows it; nothing where it cannot be read.

    Asked for after a service has refused it: whoever sent it has just read the file.
    """
    if not path:
        return ()
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            text = file.read(TOKEN_CHARACTERS_MAX).strip()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(part for part in (text, text.partition(" ")[2]) if len(part) >= KNOWN_LENGTH_MIN)


def is_header_text(text: str) -> bool:
    """Whether it can be a header's value without becoming two headers."""
    return text.isascii() and text.isprintable()


def certificates_file(text: str | None) -> str | None:
    """Certificates, which may be PEM text, as the name of a file, for clients that take nothing else."""
    return _pem_file(text).name if text and text.lstrip().startswith("-----BEGIN") else text


@cache
def _pem_file(text: str) -> IO[str]:
    """It goes when the process ends."""
    import tempfile

    file = tempfile.NamedTemporaryFile("w", prefix="lance-io-ca-", suffix=".pem")
    file.write(text)
    file.flush()
    return file


@cache
def tls_context(bundle: str) -> ssl.SSLContext:
    """Trust in the certificates of one file, read once per process: parsing them costs 20 ms."""
    import ssl

    return ssl.create_default_context(cafile=bundle)
