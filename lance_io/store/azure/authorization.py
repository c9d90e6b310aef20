"""Authorisation of requests for blobs.

    SharedKey   HMAC of the request (method, some headers, path, query) with the account's key
    SAS         a shared access signature in every URL
    Bearer      an Entra token in a header

https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key specifies SharedKey.
"""

from __future__ import annotations

import base64
import hmac
import time
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = "2023-11-03"  # of the protocol, as in other Lance clients
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Authorization(Protocol):
    """Authorises GETs; `repr` hides the credentials."""

    def target(self, path: str, query: str) -> str:
        """Target of the request line for a percent-encoded path and query (may be empty)."""

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """Header lines to add, each with its line end.

        path     percent-encoded
        headers  the sent ones of `range` and `if-match`
        query    unencoded parameters, without those of a shared access signature
        """


def _with_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


class Anonymous:
    """For public containers."""

    def target(self, path: str, query: str) -> str:
        """See `Authorization`."""
        return _with_query(path, query)

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """See `Authorization`."""
        return f"x-ms-version: {VERSION}\r\n"


class SharedAccess(Anonymous):
    """A shared access signature."""

    def __init__(self, sas_token: str) -> None:
        self._sas_token = sas_token

    def target(self, path: str, query: str) -> str:
        """See `Authorization`."""
        return f"{path}?{query}&{self._sas_token}" if query else f"{path}?{self._sas_token}"


class Bearer(Anonymous):
    """A bearer token."""

    def __init__(self, token: str) -> None:
        self._line = f"x-ms-version: {VERSION}\r\nauthorization: Bearer {token}\r\n"

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """See `Authorization`."""
        return self._line


class SharedKey(Anonymous):
    """Signature with the account's key (base64).

    more  additional headers of all requests; those named `x-ms-...` are signed
    """

    def __init__(self, account: str, key: str, more: Mapping[str, str] = MappingProxyType({})) -> None:
        self._account = account
        self._more = {name: text.strip() for name, text in more.items() if name.startswith("x-ms-")}
        self._key = base64.b64decode(key)
        self._second = -1
        self._date = ""

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """See `Authorization`."""
        date = self._date_of(time.time())
        ms_headers = {**self._more, "x-ms-date": date, "x-ms-version": VERSION}
        header_lines = "\n".join([f"{name}:{ms_headers[name]}" for name in sorted(ms_headers)])
        query_lines = "".join([f"\n{name}:{query[name]}" for name in sorted(query)])
        to_sign = (
            f"GET\n\n\n\n\n\n\n\n{headers.get('if-match', '')}\n\n\n{headers.get('range', '')}\n"
            f"{header_lines}\n/{self._account}{path}{query_lines}"
        )
        signature = base64.b64encode(hmac.digest(self._key, to_sign.encode(), sha256)).decode()
        return (
            f"x-ms-date: {date}\r\nx-ms-version: {VERSION}\r\nauthorization: SharedKey {self._account}:{signature}\r\n"
        )

    def _date_of(self, now_s: float) -> str:
        """An HTTP date, independent of the locale."""
        if int(now_s) != self._second:
            self._second = int(now_s)
            day = time.gmtime(now_s)
            self._date = (
                f"{_DAYS[day.tm_wday]}, {day.tm_mday:02} {_MONTHS[day.tm_mon - 1]} {day.tm_year} "
                f"{day.tm_hour:02}:{day.tm_min:02}:{day.tm_sec:02} GMT"
            )
        return self._date
