"""HTTP proxies between us and an origin.

    origin    request
    http://   `GET http://host/path` on a connection to the proxy, with its authorization
    https://  a tunnel: `CONNECT host:port`, then TLS with the origin through it

A connection to the proxy is encrypted if the proxy's URL begins with `https://`.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from lance_io.errors import UsageError
from lance_io.records import dataclass

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lance_io.store.http.exchange import Origin
    from lance_io.store.http.tls import TlsSettings

HEAD_BYTES_MAX: Final = 1 << 14
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; `repr` hides its authorization.

    tls            of the connection to the proxy itself; None for plain TCP
    authorization  value of the header `Proxy-Authorization`, or None
    """

    host: str
    port: int
    tls: TlsSettings | None = None
    authorization: str | None = field(default=None, repr=False)


def parse_proxy(url: str, tls: Callable[[], TlsSettings]) -> Proxy:
    """The proxy of a URL; `host:port` alone means `http://`.

    tls  gives the settings for a proxy whose URL begins with `https://`
    Raises `UsageError` for other schemes (SOCKS), URLs without a host, and invalid ports.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:  # its text shows a piece of the URL, perhaps of a password that contains a slash
        raise UsageError(
            "a proxy URL: expected http(s)://[user:password@]host[:port] with a number as port; "
            "user and password are percent-encoded"
        ) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError(f"a proxy URL: expected http(s)://[user:password@]host[:port], found scheme {parts.scheme!r}")
    authorization = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(user.encode()).decode()}"
    return Proxy(
        parts.hostname, port or _PORTS[parts.scheme], tls() if parts.scheme == "https" else None, authorization
    )


def absolute_form(head: bytes, origin: Origin) -> bytes:
    """The head of a request for a plain origin, as its proxy expects it."""
    proxy = origin.proxy
    assert proxy is not None
    method, rest = head.split(b" ", 1)
    line, headers = rest.split(b"\r\n", 1)
    added = b"" if proxy.authorization is None else f"Proxy-Authorization: {proxy.authorization}\r\n".encode()
    host = _host(origin)  # with the port that the signed header `Host` has: none if it is the default
    authority = host if origin.port == _PORTS["http"] else f"{host}:{origin.port}"
    return b"%s http://%s%s\r\n%s%s" % (method, authority.encode(), line, added, headers)


def _host(origin: Origin) -> str:
    return f"[{origin.host}]" if ":" in origin.host else origin.host


class TunnelRefused(ConnectionError):
    """The proxy has refused to connect to the origin."""


async def open_tunnel(
    origin: Origin,
    protocol: asyncio.BufferedProtocol,
    address: str,
    proxy_tls: ssl.SSLContext | None,
    origin_tls: ssl.SSLContext,
) -> None:
    """Connects `protocol` to an encrypted origin through its proxy.

    address     of the proxy
    proxy_tls   context of the connection to the proxy, or None
    origin_tls  context of the connection to the origin

    Raises `OSError`; `TunnelRefused` names the proxy and its status.
    """
    proxy, loop = origin.proxy, asyncio.get_running_loop()
    assert proxy is not None
    transport, tunnel = await loop.create_connection(
        _TunnelHead, address, proxy.port, ssl=proxy_tls, server_hostname=proxy.host if proxy_tls else None
    )
    try:
        authority = f"{_host(origin)}:{origin.port}".encode()
        request = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n" % (authority, authority)
        if proxy.authorization is not None:
            request += f"Proxy-Authorization: {proxy.authorization}\r\n".encode()
        transport.write(request + b"\r\n")
        status = await tunnel.status
        if not 200 <= status < 300:
            hint = " (user and password)" if status == 407 else ""
            raise TunnelRefused(f"the proxy {proxy.host}:{proxy.port} answered {status}{hint} to CONNECT")
        encrypted = await loop.start_tls(
            transport,
            protocol,
            origin_tls,
            server_hostname=origin.host,
        )
    except BaseException:
        transport.abort()
        raise
    if encrypted is None:
        raise ConnectionResetError(f"the proxy {proxy.host}:{proxy.port} closed the tunnel")
    protocol.connection_made(encrypted)


class _TunnelHead(asyncio.Protocol):
    """Reads the proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._head = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if self.status.done() or (end < 0 and len(self._head) <= HEAD_BYTES_MAX):
            return
        version, _, rest = self._head.partition(b" ")
        code = rest[:3]
        if end < 0 or not version.startswith(b"HTTP/1.") or not code.isdigit():
            self.status.set_exception(ConnectionError("the proxy's answer to CONNECT is not HTTP"))
        else:
            self._transport.pause_reading()  # the next bytes are the origin's
            self.status.set_result(int(code))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        if not self.status.done():
            self.status.set_exception(exc or ConnectionResetError("the proxy closed the connection"))
