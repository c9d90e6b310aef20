"""AWS Signature Version 4 for requests without a body, much faster than a general signer.

    canonical request   GET \\n path \\n query \\n header lines \\n\\n signed header names \\n hash of the empty body
    string to sign      AWS4-HMAC-SHA256 \\n time \\n day/region/s3/aws4_request \\n hash of the canonical request
    signature           HMAC(day key, string to sign); the day key is a chain of four HMACs over day and scope

The day key depends only on secret, day and region and is cached; each request then costs two hashes and one HMAC.
S3 signs the path as sent: percent-encoded once, dots and slashes unchanged.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from lance_io import _kernels

if TYPE_CHECKING:
    from collections.abc import Mapping

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def wire_path(key: str) -> str:
    """A key as sent in a request line: percent-encodes all but letters, digits, `-._~` and `/`."""
    return quote(key, safe="/-_.~")


def wire_query(parameters: Mapping[str, str]) -> str:
    """A query as signed: sorted by name, percent-encodes all but letters, digits and `-._~`."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parameters.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


class Signer:
    """Signs GET requests with one set of credentials; `repr` hides them."""

    def __init__(self, access_key: str, secret_key: str, token: str | None, region: str) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._token = token
        self._region = region
        self._day = ""
        self._day_key = b""
        self._second = -1
        self._time = ""
        self._layouts: dict[tuple[str, ...], tuple[list[str], str]] = {}  # sorted names, `SignedHeaders`

    def __repr__(self) -> str:
        return f"Signer(region={self._region!r})"

    def headers(
        self, host: str, path: str, extra: dict[str, str], now_s: float | None = None, query: str = ""
    ) -> dict[str, str]:
        """All headers of a signed GET except `host`.

        host   as sent in the `host` header
        path   percent-encoded, see `wire_path`
        extra  further headers to send and sign, such as `range`; lower-case names, no surplus spaces
        now_s  seconds since 1970; None for now
        query  the part after `?` of the request line, see `wire_query`
        """
        amz_time = self._amz_time(time.time() if now_s is None else now_s)
        day = amz_time[:8]
        headers = {"host": host, "x-amz-content-sha256": EMPTY_SHA256, "x-amz-date": amz_time, **extra}
        if self._token:
            headers["x-amz-security-token"] = self._token
        names, signed = self._layout(tuple(headers))
        lines = "".join([f"{name}:{headers[name]}\n" for name in names])
        canonical = f"GET\n{path}\n{query}\n{lines}\n{signed}\n{EMPTY_SHA256}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{amz_time}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key_of(day), to_sign.encode(), "sha256").hex()
        del headers["host"]
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        return headers

    def for_ranges(self, host: str, extra: Mapping[str, str], tail: str) -> _kernels.RangeSigner:
        """A kernel that signs GETs of ranges; `at` computes its time and key.

        extra  further headers, as for `headers`
        tail   further unsigned lines and the final empty line
        """
        headers = {**extra, "x-amz-security-token": self._token} if self._token else extra
        return _kernels.RangeSigner(host, self._access_key, self._region, [*headers.items()], tail)

    def at(self, now_s: float) -> tuple[str, bytes]:
        """Time and day key of a request at `now_s` seconds since 1970."""
        amz_time = self._amz_time(now_s)
        return amz_time, self._key_of(amz_time[:8])

    def _layout(self, names: tuple[str, ...]) -> tuple[list[str], str]:
        """Sorted header names and the text of `SignedHeaders`. A store uses only a handful of header sets."""
        layout = self._layouts.get(names)
        if layout is None:
            ordered = sorted(names)
            layout = self._layouts[names] = ordered, ";".join(ordered)
        return layout

    def _amz_time(self, now_s: float) -> str:
        if int(now_s) != self._second:
            self._second = int(now_s)
            self._time = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
        return self._time

    def _key_of(self, day: str) -> bytes:
        if day != self._day:
            key = f"AWS4{self._secret_key}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._day_key = day, key
        return self._day_key
