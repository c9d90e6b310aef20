"""OAuth tokens: found by google-auth, renewed ahead of their end, while requests go on with the present one.

A token holds for an hour, mostly. Its renewal is one task, whoever asks, begun `AHEAD_S` before the end: a metadata
service gives a new one from then on. Nobody waits as long as the present one holds for another `MARGIN_S`, and the
error of a renewal is told when it has expired, too.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied
from lance_io.runtime import in_thread, load_modules
from lance_io.store.cloud.client_options import is_header_text
from lance_io.store.failures import Transient
from lance_io.store.gcs.refusals import scrub

if TYPE_CHECKING:
    from lance_io.store.gcs.gcs_options import GcsOptions

SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
AHEAD_S: Final = 225.0  # before its end a metadata service has another token
MARGIN_S: Final = 5.0  # a request is on its way for a while, and in line before that
AGAIN_S: Final = 5.0  # between two renewals ahead of time of which the first one failed
CLOSE_S: Final = 1.0  # what is under way has so much time left when a store is closed


class Tokens:
    """The token of each moment, for the requests of one event loop."""

    def __init__(self, options: GcsOptions) -> None:
        self._options = options
        self._is_fixed = options.token is not None
        self._token = options.token
        self._ends_s = float("inf")  # when it expires, by the clock of the loop
        self._credentials: Any = None  # google-auth's
        self._renewal: asyncio.Task[AccessDenied | Transient | None] | None = None
        self._not_before_s = float("-inf")
        self._refused: str | None = None

    def __repr__(self) -> str:
        return "Tokens()"

    @property
    def known(self) -> str | None:
        """The one given last."""
        return self._token

    def at_hand(self, now_s: float) -> str | None:
        """That of this moment without waiting, or None where it has to be waited for; begins its renewal when due."""
        if self._token is None or self._ends_s - now_s < MARGIN_S:
            return None
        if self._ends_s - now_s < AHEAD_S and now_s >= self._not_before_s:
            self._begin()
        return self._token

    async def token(self, key: str) -> str:
        """The same, waiting for it if need be. Raises our errors, which name `key`."""
        loop = asyncio.get_running_loop()
        found = self.at_hand(loop.time())
        if found is None:
            renewal = self._begin()
            await asyncio.wait([renewal])
            error = None if renewal.cancelled() else renewal.result()
            found = self._token
            if found is None or self._ends_s <= loop.time():
                raise _told(error, key)
        if not is_header_text(found):
            raise AccessDenied("the token holds characters that no header can", path=key)
        return found

    def may_renew(self, refused: str | None) -> bool:
        """The store refused this token: whether another one is worth a try. Of each only once."""
        if self._is_fixed or refused is None or refused == self._refused:
            return False
        if refused == self._token:
            self._token, self._refused = None, refused
        return True

    def _begin(self) -> asyncio.Task[AccessDenied | Transient | None]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew())
        return self._renewal

    async def _renew(self) -> AccessDenied | Transient | None:
        """Get another token; gives what went wrong, which each who waits is told in an error of its own."""
        loop = asyncio.get_running_loop()
        try:
            await load_modules("google.auth", "google.auth.transport.requests", "google.oauth2.service_account")
            if self._credentials is None:
                self._credentials = await in_thread(_find, self._options)
            await in_thread(_refresh, self._credentials)
        except Exception as error:  # of any provider, and what they raise is not one family
            self._not_before_s = loop.time() + AGAIN_S
            return self._failure(error)
        found, expiry = self._credentials.token, self._credentials.expiry
        rest_s = float("inf") if expiry is None else (expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        self._token, self._ends_s = found, loop.time() + rest_s
        self._not_before_s = loop.time() + min(AGAIN_S, max(0.0, rest_s))
        return None

    def _failure(self, error: Exception) -> AccessDenied | Transient:
        from google.auth import exceptions

        key = self._options.service_account or ""
        secrets = [text for text in (key, self._token, _private_key(key)) if text]
        text = scrub(f"{type(error).__name__}: {error}", secrets)
        if isinstance(error, exceptions.DefaultCredentialsError) and self._options.credentials is None:
            return AccessDenied(
                "no Google credentials found in storage options, environment, gcloud's files or metadata service; "
                f"set google_skip_signature to 'true' for a public bucket ({text})"
            )
        if isinstance(error, exceptions.TransportError) or getattr(error, "retryable", False):
            return Transient(f"no token ({text})", operation="get")
        return AccessDenied(f"no token ({text})")

    async def close(self) -> None:
        """End what is under way, soon."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None and not (await asyncio.wait([renewal], timeout=CLOSE_S))[0]:
            renewal.cancel()
            await asyncio.wait([renewal])


def _told(error: AccessDenied | Transient | None, key: str) -> AccessDenied | Transient:
    """An error of one's own."""
    if isinstance(error, Transient):
        return Transient(error.message, path=key, operation=error.operation)
    return AccessDenied("no token" if error is None else error.message, path=key)


def _find(options: GcsOptions) -> Any:
    """Credentials of google-auth's; reads files, may ask whether there is a metadata service."""
    import google.auth
    from google.oauth2 import service_account

    if options.service_account is not None:
        found = json.loads(options.service_account)
        return service_account.Credentials.from_service_account_info(found, scopes=[SCOPE])  # type: ignore[no-untyped-call]
    if options.credentials is not None:
        return google.auth.load_credentials_from_file(options.credentials, scopes=[SCOPE])[0]  # type: ignore[no-untyped-call]
    return google.auth.default(scopes=[SCOPE])[0]


def _refresh(credentials: Any) -> None:
    """Ask for a token."""
    import requests
    from google.auth.transport.requests import Request

    with requests.Session() as session:
        credentials.refresh(Request(session))


def _private_key(text: str) -> str | None:
    try:
        found = json.loads(text)["private_key"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
