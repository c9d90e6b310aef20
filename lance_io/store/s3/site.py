"""`Site` of a bucket, for our HTTP client: URLs, signatures and error answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lance_io.store.cloud.client_options import SLOWEST_BYTES_PER_S
from lance_io.store.failures import StoreFailure
from lance_io.store.http.exchange import Origin, Patience
from lance_io.store.http.sigv4 import wire_path, wire_query
from lance_io.store.s3.error_codes import answer_error, code_of
from lance_io.store.s3.server_clock import signed_at_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io._kernels import RangeSigner
    from lance_io.store.http.exchange import Exchange
    from lance_io.store.http.sigv4 import Signer
    from lance_io.store.offers import WantedRange
    from lance_io.store.policies.download import Download
    from lance_io.store.s3.bucket_options import S3Options
    from lance_io.store.s3.loop_state import LoopState

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
PATHS_MAX = 4096  # size of the cache of encoded paths

_SIGNED = re.compile(rb"\r\nx-amz-date: (\d{8}T\d{6}Z)\r\n")


class Address:
    """Address of a bucket: scheme, host header, and the path before a key."""

    def __init__(self, options: S3Options, region: str) -> None:
        if options.endpoint is not None:
            parts = urlsplit(options.endpoint)
            self.scheme, host, base = parts.scheme, parts.netloc, parts.path
        else:
            suffix = ".cn" if region.startswith("cn-") else ""
            self.scheme, host, base = "https", f"s3.{region}.amazonaws.com{suffix}", ""
        self.host = f"{options.bucket}.{host}" if options.virtual_hosted else host
        if not _HOST.fullmatch(self.host):  # an answer may name the region; it must not lead to another host
            raise StoreFailure(f"{self.host!r} is not a valid host name", operation="get")
        self.base = base if options.virtual_hosted else f"{base}/{wire_path(options.bucket)}"

    def path(self, key: str) -> str:
        """Path of an object."""
        return f"{self.base}/{wire_path(key)}"


def is_moved(exchange_status: int, moved_to: str | None, options: S3Options, region: str) -> bool:
    """Whether an answer redirects to the bucket's actual region."""
    return bool(moved_to) and moved_to != region and options.endpoint is None and exchange_status != 403


class S3Site:
    """A bucket for `HttpGets`."""

    def __init__(self, options: S3Options, state: LoopState) -> None:
        self._options = options
        self._state = state
        self._object_headers = options.object_headers
        self._bucket_headers = {**options.read_headers, **options.headers}
        self._tail = f"accept-encoding: identity\r\nuser-agent: {options.user_agent}\r\n\r\n"
        self._forget_address()

    def _forget_address(self) -> None:
        """Forget the address; the region has changed."""
        self._region: str | None = None
        self._paths: dict[str, str] = {}
        self._signs_ranges: tuple[Signer, RangeSigner] | None = None  # the signer, and its kernel

    def _set_address(self) -> None:
        """Set the address by the known region."""
        self._region = self._state.region
        self._address = Address(self._options, self._region)
        parts = urlsplit(f"{self._address.scheme}://{self._address.host}")
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        self._origin = Origin(parts.hostname or "", port, self._state.tls_settings() if is_secure else None)

    def is_ready(self, now_s: float) -> bool:
        """See `Site`."""
        return self._region is not None and self._state.has_signer(now_s)

    async def make_ready(self, key: str) -> None:
        """See `Site`."""
        await self._state.prepare()
        if self._region is None:
            self._set_address()
        await self._state.signer(key)

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """See `Site`."""
        return self._origin, self._head(self._path(download.key), {**download.headers(), **self._object_headers})

    def range_requests(self, requests: Sequence[WantedRange]) -> tuple[Origin, list[bytes]]:
        """See `Site`."""
        signer = self._state.current_signer
        if signer is None:
            return self._origin, [
                self._head(self._path(key), {"range": f"bytes={start}-{end - 1}", **self._object_headers})
                for key, start, end, *_ in requests
            ]
        if self._signs_ranges is None or self._signs_ranges[0] is not signer:
            ranges = signer.for_ranges(self._address.host, self._object_headers, self._tail)
            self._signs_ranges = signer, ranges
        spans = [(self._path(key), start, end) for key, start, end, *_ in requests]
        return self._origin, self._signs_ranges[1].heads(spans, *signer.at(self._state.clock.now_s()))

    def _path(self, key: str) -> str:
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= PATHS_MAX:
                self._paths.clear()
            path = self._paths[key] = self._address.path(key)
        return path

    def query_request(self, query: Mapping[str, str]) -> tuple[Origin, bytes]:
        """See `Site`."""
        return self._origin, self._head(self._address.base or "/", self._bucket_headers, wire_query(query))

    def _head(self, path: str, headers: dict[str, str], query: str = "") -> bytes:
        """The complete head of a GET."""
        host = self._address.host
        signer = self._state.current_signer
        if signer is not None:
            headers = signer.headers(host, path, headers, self._state.clock.now_s(), query)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        target = f"{path}?{query}" if query else path
        return f"GET {target} HTTP/1.1\r\nhost: {host}\r\n{lines}{self._tail}".encode("latin-1")

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
        """See `Site`; follows a bucket to its actual region, and adopts the server's time for signatures."""
        status, headers, state = exchange.status, exchange.headers, self._state
        moved_to = headers.get("x-amz-bucket-region")
        if moved_to is not None and is_moved(status, moved_to, self._options, state.region):
            state.region = moved_to
            self._forget_address()
            return True
        signed = _SIGNED.search(exchange.head)
        if status == 403 and signed is not None:
            code, date = code_of(exchange.body), headers.get("date", "")
            if state.clock.adopt_server_time(code, date, signed_at_s(signed[1].decode())):
                return True
        raise answer_error(status, headers, exchange.body, key=name, operation=operation, secrets=state.secrets)
