"""How requests for blobs are authorised: signed with the account's key, by a part of the URL, by a token, or not.

    SharedKey   HMAC of the request (method, some headers, path, query) with the account's key
    SAS         a shared access signature stands in every URL
    Bearer      a token of Entra in a header

https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key has the first.
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

VERSION: Final = "2023-11-03"  # of the protocol, as other clients of tables have it
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Authorization(Protocol):
    """Authorises GETs. Never shows what by."""

    def target(self, path: str, query: str) -> str:
        """Path and query of the request line, of a percent-encoded path and query (may be empty)."""

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """Header lines to add, each with its end.

        path     percent-encoded
        headers  those of `range` and `if-match` that are sent
        query    its parameters, not encoded; those of a shared access signature are not among them
        """


def _with_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


class Anonymous:
    """For containers that are open to all."""

    def target(self, path: str, query: str) -> str:
        """See `Authorization`."""
        return _with_query(path, query)

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """See `Authorization`."""
        return f"x-ms-version: {VERSION}\r\n"


class SharedAccess(Anonymous):
    """By a shared access signature."""

    def __init__(self, sas_token: str) -> None:
        self._sas_token = sas_token

    def target(self, path: str, query: str) -> str:
        """See `Authorization`."""
        return f"{path}?{query}&{self._sas_token}" if query else f"{path}?{self._sas_token}"


class Bearer(Anonymous):
    """By a token."""

    def __init__(self, token: str) -> None:
        self._line = f"x-ms-version: {VERSION}\r\nauthorization: Bearer {token}\r\n"

    def lines(self, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """See `Authorization`."""
        return self._line


class SharedKey(Anonymous):
    """Signed with the account's key, which is in base64.

    more  headers that all requests have beside those; those of Azure's names are signed
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
        headed = {**self._more, "x-ms-date": date, "x-ms-version": VERSION}
        signed = "\n".join([f"{name}:{headed[name]}" for name in sorted(headed)])
        named = "".join([f"\n{name}:{query[name]}" for name in sorted(query)])
        to_sign = (
            f"GET\n\n\n\n\n\n\n\n{headers.get('if-match', '')}\n\n\n{headers.get('range', '')}\n"
            f"{signed}\n/{self._account}{path}{named}"
        )
        signature = base64.b64encode(hmac.digest(self._key, to_sign.encode(), sha256)).decode()
        return (
            f"x-ms-date: {date}\r\nx-ms-version: {VERSION}\r\nauthorization: SharedKey {self._account}:{signature}\r\n"
        )

    def _date_of(self, now_s: float) -> str:
        """As HTTP wants it, whatever the locale."""
        if int(now_s) != self._second:
            self._second = int(now_s)
            day = time.gmtime(now_s)
            self._date = (
                f"{_DAYS[day.tm_wday]}, {day.tm_mday:02} {_MONTHS[day.tm_mon - 1]} {day.tm_year} "
                f"{day.tm_hour:02}:{day.tm_min:02}:{day.tm_sec:02} GMT"
            )
        return self._date
