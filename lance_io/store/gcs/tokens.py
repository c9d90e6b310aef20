"""OAuth tokens, found by google-auth and renewed ahead of their end (`cloud/renewal.py`)."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied, LanceError
from lance_io.runtime import in_thread, load_modules
from lance_io.store.cloud.client_options import is_header_text
from lance_io.store.cloud.renewal import Renewal
from lance_io.store.failures import Transient
from lance_io.store.gcs.refusals import scrub

if TYPE_CHECKING:
    from lance_io.store.gcs.gcs_options import GcsOptions

SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"


class Tokens:
    """The token of each moment, for the requests of one event loop. Never shows it."""

    def __init__(self, options: GcsOptions) -> None:
        self._options = options
        self._credentials: Any = None  # google-auth's
        self._renewal: Renewal[str] = Renewal(self._fetch, self._failure)
        self._refused: str | None = None

    def __repr__(self) -> str:
        return "Tokens()"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in a message: tokens, and what they are asked for with."""
        key = self._options.service_account or ""
        found = (self._options.token, self._renewal.latest, self._refused, key, _private_key(key))
        return tuple(text for text in found if text)

    def at_hand(self) -> str | None:
        """That of this moment without waiting, or None where it has to be waited for; begins its renewal when due."""
        return self._options.token or self._renewal.at_hand()

    async def token(self, key: str) -> str:
        """The same, waiting for it if need be. Raises our errors, which name `key`."""
        try:
            found = self._options.token or await self._renewal.get()
        except LanceError as error:
            error.path = error.path or key
            raise
        if not is_header_text(found):
            raise AccessDenied("the token holds characters that no header can", path=key)
        return found

    def may_renew(self, refused: str | None) -> bool:
        """The store takes this token no more: whether another one is worth a try, once for each."""
        if self._options.token is not None or refused is None or refused == self._refused:
            return False
        self._refused = refused
        self._renewal.forget(refused)
        return True

    async def _fetch(self) -> tuple[str, float | None]:
        """Another token, and when it expires, in seconds since 1970."""
        await load_modules("google.auth", "google.auth.transport.requests", "google.oauth2.service_account")
        if self._credentials is None:
            self._credentials = await in_thread(_find, self._options)
        await in_thread(_refresh, self._credentials)
        expiry = self._credentials.expiry
        return self._credentials.token, None if expiry is None else expiry.replace(tzinfo=UTC).timestamp()

    def _failure(self, error: Exception) -> LanceError:
        from google.auth import exceptions

        text = scrub(f"{type(error).__name__}: {error}", self.secrets)
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
        await self._renewal.close()


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
