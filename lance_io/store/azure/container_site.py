"""`Site` of a container, for our HTTP client: URLs, authorisation and error answers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lance_io.store.azure.blob_errors import answer_error
from lance_io.store.cloud.client_options import SLOWEST_BYTES_PER_S
from lance_io.store.http.exchange import Origin, Patience
from lance_io.store.http.sigv4 import wire_path, wire_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.store.azure.account_clients import AccountClients
    from lance_io.store.azure.authorization import Authorization
    from lance_io.store.azure.container_options import AzureOptions
    from lance_io.store.http.exchange import Exchange
    from lance_io.store.offers import WantedRange
    from lance_io.store.policies.download import Download

PATHS_MAX = 4096  # size of the cache of encoded paths
_NO_QUERY: Mapping[str, str] = {}


class ContainerSite:
    """A container for `HttpGets`."""

    def __init__(self, options: AzureOptions, clients: AccountClients) -> None:
        self._options = options
        self._clients = clients
        parts = urlsplit(options.endpoint or "")
        is_secure = parts.scheme == "https"
        self._host = parts.netloc
        tls = clients.tls_settings() if is_secure else None
        self._origin = Origin(parts.hostname or "", parts.port or (443 if is_secure else 80), tls)
        self._base = f"{parts.path}/{wire_path(options.bucket)}"
        self._paths: dict[str, str] = {}
        self._head = f" HTTP/1.1\r\nhost: {self._host}\r\n"
        more = "".join([f"{name}: {text}\r\n" for name, text in options.headers.items()])
        self._tail = f"accept-encoding: identity\r\nuser-agent: {options.user_agent}\r\n{more}\r\n"

    def is_ready(self, now_s: float) -> bool:
        """See `Site`."""
        return self._clients.get_nowait() is not None

    async def make_ready(self, key: str) -> None:
        """See `Site`."""
        await self._clients.authorization(key)

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """See `Site`."""
        return self._origin, self._get(self._clients.latest, self._path(download.key), download.headers(), _NO_QUERY)

    def range_requests(self, requests: Sequence[WantedRange]) -> tuple[Origin, list[bytes]]:
        """See `Site`."""
        authorization = self._clients.latest
        return self._origin, [
            self._get(authorization, self._path(key), {"range": f"bytes={start}-{end - 1}"}, _NO_QUERY)
            for key, start, end, *_ in requests
        ]

    def query_request(self, query: Mapping[str, str]) -> tuple[Origin, bytes]:
        """See `Site`."""
        return self._origin, self._get(self._clients.latest, self._base, {}, query)

    def _get(
        self, authorization: Authorization, path: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> bytes:
        """The complete head of a GET."""
        target = authorization.target(path, wire_query(query) if query else "")
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        proof = authorization.lines(path, headers, query)
        return f"GET {target}{self._head}{lines}{proof}{self._tail}".encode("latin-1")

    def _path(self, key: str) -> str:
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= PATHS_MAX:
                self._paths.clear()
            path = self._paths[key] = f"{self._base}/{wire_path(key)}"
        return path

    def patience(self, num_bytes: int) -> Patience:
        """See `Site`."""
        options = self._options
        total_s = options.request_timeout_s + num_bytes / SLOWEST_BYTES_PER_S
        return Patience(options.connect_timeout_s, options.stall_s, total_s)

    def on_failed_get(self, exchange: Exchange, download: Download) -> bool:
        """See `Site`."""
        if exchange.status == 412 and download.received:
            download.object_changed()
        if exchange.status == 416:
            download.no_such_range(exchange.headers)
            return False
        return self.on_failed_query(exchange, download.key, "get")

    def on_failed_query(self, exchange: Exchange, name: str, operation: str) -> bool:
        """See `Site`."""
        raise answer_error(
            exchange.status,
            exchange.headers,
            exchange.body,
            key=name,
            operation=operation,
            secrets=self._clients.secrets,
        )
