"""Options and environment variables for the clients of all cloud stores.

    option (any case)                         environment           meaning
    allow_http                                the same, upper case, here and below
                                                                    allows an http:// endpoint
    connect_timeout                           the same              a duration: 5s
    timeout, request_timeout                  the same              of one request: 30s (plus 1 s per requested MB)
    read_timeout                              the same              silence after which a connection counts as broken
    headers.NAME                              -                     header of all requests
    client_max_retries, client_retry_timeout  the same              retries (7); their total time (120s)
    download_retry_count                      the same              retries after a truncated answer (unlimited)
    allow_invalid_certificates                the same              true: trust any certificate, for tests only
    pool_idle_timeout                         the same              idle timeout of connections (15s)
    pool_max_idle_per_host                    the same              idle connections beyond this are closed at once
    default_content_type                      the same              Content-Type of written objects
    proxy_url, proxy_excludes                 the same, HTTP_PROXY  http://[user:password@]host:port; excluded hosts
    proxy_ca_certificate                      the same              trusted certificates in place of the system's, as
                                                                    a file or PEM text
    disable_system_certificates               -                     true: requires proxy_ca_certificate

Unprefixed variables such as REGION are not read, as they may belong to other programs.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import field
from functools import cache
from hashlib import blake2b
from ipaddress import ip_address, ip_network
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.redaction import KNOWN_LENGTH_MIN
from lance_io.store.http.proxy import Proxy, parse_proxy
from lance_io.store.http.tls import TlsSettings
from lance_io.store.policies.logical_read import RetryPolicy
from lance_io.store.storage_options import seconds, switch, whole_number

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from lance_io.store.http.exchange import Origin
    from lance_io.store.provided_options import OptionsSource

SLOWEST_BYTES_PER_S: Final = 1_000_000  # request timeouts grow by one second per this many bytes
STALL_S: Final = 10.0  # silence within an answer after which a connection counts as broken
KEEPALIVE_S: Final = 15.0  # idle timeout, shorter than the store's (S3: 20 s)
READ_BUFFER_BYTES: Final = 1 << 18  # aiohttp's buffer; its default of 64 KiB causes four times as many wake-ups
_SECRET_WORDS: Final = ("key", "secret", "token", "sas", "password", "credential")
_NO_SECRETS: Final = frozenset(
    {"aws_sse_kms_key_id", "aws_sse_bucket_key_enabled", "aws_web_identity_token_file", "federated_token_file",
     "aws_container_authorization_token_file", "aws_container_credentials_relative_uri",
     "aws_container_credentials_full_uri", "fabric_token_service_url", "google_application_credentials"}
)  # fmt: skip
TOKEN_CHARACTERS_MAX: Final = 1 << 16
HEADERS: Final = "headers."  # prefix of options for headers
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
    """Identifies secrets without showing them."""
    return blake2b(repr(secrets).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Settings of a bucket before the first request, common to all cloud stores. `repr` hides secrets.

    bucket    or container
    provided  provider of credentials, in place of options and environment
    origins   of each option that is set: its text (`***` for a secret) and the option or variable that sets it

    read_timeout_s  silence after which a connection counts as broken; None for `STALL_S` while reading
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
    content_type: str | None = None  # of written objects
    pool_idle_s: float | None = None  # idle timeout of connections; None for the pool's default
    pool_idle_max: int | None = None  # idle connections beyond this are closed at once; None for the pool's default
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    read_timeout_s: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    download_retries: int | None = None  # truncated answers before a read fails; None for no limit of its own
    provided: OptionsSource | None = None
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def access(self) -> str:
        """Identifies the credentials without a secret: their owner or their source."""
        raise NotImplementedError

    @property
    def header_secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages: each header may hold a credential, with or without a scheme before it."""
        parts = [part for text in self.headers.values() for part in (text, text.partition(" ")[2])]
        return tuple(part for part in parts if len(part) >= KNOWN_LENGTH_MIN)

    @property
    def pool_idle(self) -> tuple[float | None, int | None]:
        """Idle timeout and limit of idle connections."""
        return self.pool_idle_s, self.pool_idle_max

    @property
    def stall_s(self) -> float:
        """Silence after which a connection counts as broken, for reads."""
        return min(STALL_S if self.read_timeout_s is None else self.read_timeout_s, self.request_timeout_s)

    @property
    def silence_s(self) -> float:
        """Like `stall_s` for other requests, whose answers may take longer."""
        return min(
            self.request_timeout_s if self.read_timeout_s is None else self.read_timeout_s, self.request_timeout_s
        )

    def proxy_for(self, host: str) -> str | None:
        """The proxy option for a host; None if `proxy_excludes` has the host, its domain or its network."""
        return None if any(_excludes(entry.strip(), host) for entry in self.proxy_excludes) else self.proxy

    def find_proxy(self, host: str, *, is_plain_http: bool) -> str | None:
        """The proxy for a host, from options or environment."""
        if self.proxy:
            return self.proxy_for(host)
        if sys.platform == "linux" and not _names_proxies():
            return None  # the same result without an import of 15 ms
        from urllib.request import getproxies, proxy_bypass

        proxies = getproxies()
        direct = filter(None, (entry.strip() for entry in proxies.get("no", "").split(",")))
        if proxy_bypass(host) or any(_excludes(entry, host) for entry in direct):
            return None
        return proxies.get("http" if is_plain_http else "https")

    def proxies(self, tls: Callable[[], TlsSettings]) -> Callable[[Origin], Proxy | None] | None:
        """Finds the proxy of an origin; None where neither options nor environment name one.

        tls  gives the settings for proxies whose URL begins with `https://`
        Raises `UsageError` for an unsupported URL of a proxy.
        """
        if not self.proxy and sys.platform == "linux" and not _names_proxies():
            return None
        from urllib.request import getproxies

        urls = [self.proxy] if self.proxy else [getproxies().get(scheme) for scheme in ("http", "https")]
        parsed = {url: parse_proxy(url, tls) for url in urls if url}

        def find(origin: Origin) -> Proxy | None:
            url = self.find_proxy(origin.host, is_plain_http=origin.tls is None)
            return parsed.get(url) if url else None

        return find


class OptionSource:
    """Looks options up in the storage options, then in the environment.

    aliases      names of an option, the usual one first
    prefix       of names that are also environment variables (in upper case)
    not_for_us   names that are not read from the environment
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
        self.origins: dict[str, tuple[str, str]] = {}  # see `ClientOptions.origins`

    def text(self, name: str) -> str | None:
        """The text of an option, or None."""
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
        """Record an option's origin, and its text unless it is a secret."""
        is_secret = name not in _NO_SECRETS and any(word in name for word in _SECRET_WORDS)
        self.origins[name] = ("***" if is_secret else _without_user(text), origin)
        return text

    def below(self, prefix: str) -> dict[str, str]:
        """Options with a prefix, by the rest of their names."""
        return {name.removeprefix(prefix): text for name, text in self._options.items() if name.startswith(prefix)}

    def switch(self, name: str, default: bool) -> bool:
        """A boolean option."""
        text = self.text(name)
        return default if text is None else switch(name, text)

    def seconds(self, name: str, default: float) -> float:
        """A duration option, in seconds."""
        text = self.text(name)
        return default if text is None else seconds(name, text)

    def whole_number(self, name: str, default: int) -> int:
        """An integer option."""
        text = self.text(name)
        return default if text is None else whole_number(name, text)


@cache
def _warn_of_fast_get() -> None:
    """Once in a process: the option had a meaning in earlier releases."""
    warnings.warn("storage option 'fast_get' has no effect: there is one way for GETs", UserWarning, stacklevel=2)


def _names_proxies() -> bool:
    """Whether the environment may name a proxy."""
    return any(name.lower().endswith("_proxy") for name in os.environ)


def parse_client(source: OptionSource) -> dict[str, Any]:
    """Fields of `ClientOptions` that all stores share: all but bucket, endpoint and signature.

    Raises `UsageError` for invalid values.
    """
    if source.text("fast_get") is not None:
        _warn_of_fast_get()
    return {
        "origins": source.origins,
        "verify": not source.switch("allow_invalid_certificates", False),
        "ca_certificates": _certificates(source),
        "proxy": _proxy_url(source),
        "proxy_excludes": tuple(filter(None, (source.text("proxy_excludes") or "").split(","))),
        "user_agent": _header_text("user_agent", source.text("user_agent") or "lance_io"),
        "headers": _headers(source.below(HEADERS)),
        "content_type": _content_type(source.text("default_content_type")),
        "pool_idle_s": source.seconds("pool_idle_timeout", 0.0) if source.text("pool_idle_timeout") else None,
        "pool_idle_max": source.whole_number("pool_max_idle_per_host", 0)
        if source.text("pool_max_idle_per_host")
        else None,
        "connect_timeout_s": source.seconds("connect_timeout", 5.0),
        "request_timeout_s": source.seconds("timeout", source.seconds("request_timeout", 30.0)),
        "read_timeout_s": source.seconds("read_timeout", 0.0) if source.text("read_timeout") else None,
        "retry": RetryPolicy(
            attempts_max=source.whole_number("client_max_retries", 7) + 1,
            total_s=source.seconds("client_retry_timeout", 120.0),
        ),
        "download_retries": (
            source.whole_number("download_retry_count", 0) if source.text("download_retry_count") else None
        ),
    }


def check_endpoint(name: str, text: str, source: OptionSource) -> tuple[str, str, str]:
    """Scheme, host with port, and path without a final slash of the endpoint in option `name`.

    Raises `UsageError` unless it is an http(s) URL without a user, and for http:// without `allow_http`.
    """
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        is_valid = is_valid and parts.port != 0  # raises for others, such as a piece of a password that has a slash
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(f"storage option {name}: expected http(s)://host[:port] without a user name")
    if parts.scheme == "http" and not source.switch("allow_http", False):
        raise UsageError(f"the endpoint {text} is not encrypted; set the storage option allow_http to 'true' to use it")
    return parts.scheme, parts.netloc, parts.path.rstrip("/")


def _excludes(entry: str, host: str) -> bool:
    """Whether an entry of `proxy_excludes` (`*`, a host, domain, address or network `10.0.0.0/8`) matches the host."""
    if entry == "*" or host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}"):
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False


def _proxy_url(source: OptionSource) -> str | None:
    """The URL of a proxy. Raises `UsageError` for an unsupported one, without its password."""
    url = source.text("proxy_url")
    if url:
        parse_proxy(url, TlsSettings)
    return url


def _certificates(source: OptionSource) -> str | None:
    """Trusted certificates in place of the system's."""
    text = source.text("proxy_ca_certificate")
    if source.switch("disable_system_certificates", False) and not text:
        raise UsageError(
            "storage option disable_system_certificates: no certificate would be trusted; "
            "set proxy_ca_certificate to those that you trust in place of the system's"
        )
    return text


def _header_text(name: str, text: str) -> str:
    if not is_header_text(text):
        raise UsageError(f"storage option {name}: expected printable ASCII, found {text!r}")
    return text


def _content_type(text: str | None) -> str | None:
    return _header_text("default_content_type", text) if text else None


def _without_user(text: str) -> str:
    """Removes user and password from a URL; returns other texts unchanged."""
    scheme, slashes, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if slashes and "@" in host else text


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Checked headers from options; errors do not show their values."""
    for name, text in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name in _OUR_HEADERS:
            raise UsageError(f"storage option headers.{name}: expected the name of a header that requests do not set")
        if not is_header_text(text):
            raise UsageError(f"storage option headers.{name}: expected printable ASCII")
    return dict(headers)


def file_secret(path: str | None) -> tuple[str, ...]:
    """The token in a file, to hide it in messages; empty if the file cannot be read.

    Called after a service has refused the token; the sender has just read the same file.
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
    """Whether a text is a valid header value that cannot inject a second header."""
    return text.isascii() and text.isprintable()


def certificates_file(text: str | None) -> str | None:
    """File name of certificates that may be PEM text, for clients that only take files."""
    return _pem_file(text).name if text and text.lstrip().startswith("-----BEGIN") else text


@cache
def _pem_file(text: str) -> IO[str]:
    """A temporary file, deleted when the process ends."""
    import tempfile

    file = tempfile.NamedTemporaryFile("w", prefix="lance-io-ca-", suffix=".pem")
    file.write(text)
    file.flush()
    return file


@cache
def tls_context(bundle: str) -> ssl.SSLContext:
    """Context that trusts the certificates of a file, created once per process: parsing them takes 20 ms."""
    import ssl

    return ssl.create_default_context(cafile=bundle)
