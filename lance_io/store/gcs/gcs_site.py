"""`Site` of a bucket, for our HTTP client: URLs, authorisation and error answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from lance_io.store.cloud.client_options import SLOWEST_BYTES_PER_S
from lance_io.store.gcs.refusals import answer_error
from lance_io.store.http.exchange import Origin, Patience
from lance_io.store.http.sigv4 import wire_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.store.gcs.gcs_options import GcsOptions
    from lance_io.store.gcs.gcs_state import GcsState
    from lance_io.store.http.exchange import Exchange
    from lance_io.store.offers import WantedRange
    from lance_io.store.policies.download import Download

PATHS_MAX: Final = 4096  # size of the cache of encoded paths


class GcsSite:
    """A bucket for `HttpGets`, through the JSON API, which reads objects with `alt=media`."""

    def __init__(self, options: GcsOptions, state: GcsState) -> None:
        self._options = options
        self._state = state
        parts = urlsplit(options.base)
        is_secure = parts.scheme == "https"
        self._origin = Origin(
            parts.hostname or "", parts.port or (443 if is_secure else 80), state.tls_settings() if is_secure else None
        )
        self._host = parts.netloc
        self._objects = f"{parts.path}/storage/v1/b/{quote(options.bucket, safe='')}/o"
        more = "".join([f"{name}: {text}\r\n" for name, text in options.headers.items()])
        self._tail = f"accept-encoding: identity\r\nuser-agent: {options.user_agent}\r\n{more}\r\n"
        self._paths: dict[str, str] = {}
        self._token: str | None = None
        self._common = ""  # lines common to all requests

    def is_ready(self, now_s: float) -> bool:
        """See `Site`."""
        if self._options.skip_signature:
            return self._use_token(None)
        token = self._state.tokens.get_nowait()
        return token is not None and self._use_token(token)

    async def make_ready(self, key: str) -> None:
        """See `Site`."""
        self._use_token(None if self._options.skip_signature else await self._state.tokens.token(key))

    def _use_token(self, token: str | None) -> bool:
        if token is not self._token or not self._common:
            authorised = "" if token is None else f"authorization: Bearer {token}\r\n"
            self._token, self._common = token, f" HTTP/1.1\r\nhost: {self._host}\r\n{authorised}"
        return True

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """See `Site`."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in download.headers().items()])
        return self._origin, f"GET {self._path(download.key)}{self._common}{lines}{self._tail}".encode("latin-1")

    def range_requests(self, requests: Sequence[WantedRange]) -> tuple[Origin, list[bytes]]:
        """See `Site`."""
        common, tail = self._common, self._tail
        return self._origin, [
            f"GET {self._path(key)}{common}range: bytes={start}-{end - 1}\r\n{tail}".encode("latin-1")
            for key, start, end, *_ in requests
        ]

    def query_request(self, query: Mapping[str, str]) -> tuple[Origin, bytes]:
        """See `Site`."""
        return self._origin, f"GET {self._objects}?{wire_query(query)}{self._common}{self._tail}".encode("latin-1")

    def _path(self, key: str) -> str:
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= PATHS_MAX:
                self._paths.clear()
            path = self._paths[key] = f"{self._objects}/{quote(key, safe='')}?alt=media"
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
            secrets=self._state.secrets,
        )
