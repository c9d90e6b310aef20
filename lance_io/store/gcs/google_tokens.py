"""OAuth tokens, found by google-auth and renewed ahead of their end (`cloud/renewal.py`)."""

from __future__ import annotations

import json
import os
from datetime import UTC
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.errors import AccessDenied, LanceError
from lance_io.redaction import hide_secrets
from lance_io.runtime import in_thread, load_modules
from lance_io.store.cloud.client_options import certificates_file, is_header_text
from lance_io.store.cloud.provided_credentials import ProvidedCredentials
from lance_io.store.cloud.renewal import Renewal
from lance_io.store.failures import Transient
from lance_io.store.gcs.gcs_options import read_key, token_given

if TYPE_CHECKING:
    from lance_io.store.gcs.gcs_options import GcsOptions

_METADATA_HOSTS: Final = ("metadata.google.internal", "169.254.169.254")  # of the machine: no proxy leads there
SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"


class Tokens:
    """The token of each moment, for the requests of one event loop. Never shows it."""

    def __init__(self, options: GcsOptions) -> None:
        self._options = options
        self._credentials: Any = None  # google-auth's
        self._renewal: Renewal[str] = (
            Renewal(self._fetch, self._failure, "gs")
            if options.provided is None
            else ProvidedCredentials(options.provided, token_given, "gs")
        )
        self._key = options.service_account
        self._asked_with: tuple[str, ...] = ()  # of a user's credentials

    def __repr__(self) -> str:
        return "Tokens()"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in a message: tokens, and what they are asked for with."""
        keys = {self._options.service_account or "", self._key or ""}
        lines = [line for key in keys for line in _lines_of_private_key(key)]
        given = (self._options.token, *self._options.header_secrets)
        found = (*given, *self._renewal.recent, *keys, *lines, *self._asked_with)
        return tuple(text for text in found if text)

    def at_hand(self) -> str | None:
        """That of this moment without waiting, or None where it has to be waited for; begins its renewal when due."""
        return self._options.token or self._renewal.at_hand()

    async def token(self, key: str) -> str:
        """The same, waiting for it if need be. Raises our errors, which name `key`."""
        try:
            return self._options.token or await self._renewal.get()
        except LanceError as error:
            error.path = error.path or key
            raise

    async def ask_again(self) -> bool:
        """The store takes this token no more: whether there is another one now. Raises our errors."""
        refused = self._renewal.latest
        if self._options.token is not None or refused is None:
            return False
        self._credentials = None  # files may say something else by now
        self._renewal.forget(refused)
        return await self._renewal.get() != refused

    async def _fetch(self) -> tuple[str, float | None]:
        """Another token, and when it expires, in seconds since 1970."""
        await load_modules("google.auth", "google.auth.transport.requests")
        if self._credentials is None:
            self._credentials = await in_thread(self._find)
        credentials = self._credentials
        held = (getattr(credentials, name, None) for name in ("client_secret", "refresh_token"))
        self._asked_with = tuple(text for text in held if isinstance(text, str))
        try:
            await in_thread(_refresh, credentials, self._options)
        except Exception:
            self._credentials = None  # a key that is taken no more is one of a file that may be another by now
            raise
        token, expiry = credentials.token, credentials.expiry
        if not is_header_text(token):
            raise ValueError("the token holds characters that no header can")
        return token, None if expiry is None else expiry.replace(tzinfo=UTC).timestamp()

    def _find(self) -> Any:
        """Credentials of google-auth's; reads files, may ask whether there is a metadata service."""
        options = self._options
        if options.key_file is not None:
            self._key = read_key("google_service_account", options.key_file)
        if self._key is not None:
            return _read({"type": "service_account", **json.loads(self._key)})
        if options.credentials is not None:
            with open(os.path.expanduser(options.credentials), encoding="utf-8") as file:
                return _read(json.load(file))
        import google.auth

        return google.auth.default(scopes=[SCOPE])[0]

    def _failure(self, error: Exception) -> LanceError:
        from google.auth import exceptions

        text = hide_secrets(f"{type(error).__name__}: {error}", self.secrets)
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


# Kinds of files of credentials, and what reads them: a module of google-auth's, and a method of its `Credentials`.
_KINDS: Final = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
    "impersonated_service_account": (
        "google.auth.impersonated_credentials",
        "from_impersonated_service_account_info",
    ),
    "external_account_authorized_user": ("google.auth.external_account_authorized_user", "from_info"),
}


def _read(found: dict[str, Any]) -> Any:
    """Credentials by what a file of them says."""
    kind = str(found.get("type"))
    if kind == "external_account":
        source = found.get("credential_source") or {}
        by = "aws" if str(source.get("environment_id", "")).startswith("aws") else "identity_pool"
        module, method = f"google.auth.{'pluggable' if 'executable' in source else by}", "from_info"
    elif kind in _KINDS:
        module, method = _KINDS[kind]
    else:
        raise ValueError(f"expected a file of credentials of Google's, found one of type {kind[:100]!r}")
    return getattr(import_module(module).Credentials, method)(found, scopes=[SCOPE])


def _refresh(credentials: Any, options: GcsOptions) -> None:
    """Ask for a token."""
    from google.auth.transport.requests import Request

    with _session_class()(options) as session:
        credentials.refresh(partial(Request(session), timeout=options.request_timeout_s))


@cache
def _session_class() -> type:
    """Of requests, with the proxy and the certificates of our options; there, what the environment says comes first."""
    import requests

    class Session(requests.Session):
        def __init__(self, options: GcsOptions) -> None:
            super().__init__()
            self._options = options

        def merge_environment_settings(self, url: Any, *rest: Any) -> Any:
            found, options = super().merge_environment_settings(url, *rest), self._options
            if not options.verify:
                found["verify"] = False
            elif options.ca_certificates:
                found["verify"] = certificates_file(options.ca_certificates)
            if options.proxy:
                host = urlsplit(url).hostname or ""
                proxy = None if host in _METADATA_HOSTS else options.proxy_for(host)
                found["proxies"] = {} if proxy is None else {"http": proxy, "https": proxy}
            return found

    return Session


def _lines_of_private_key(text: str) -> list[str]:
    """Of a service account's key; one by one, as line ends may be shown in another way."""
    try:
        found = json.loads(text)["private_key"]
    except (ValueError, KeyError, TypeError):
        return []
    return [line for line in str(found).splitlines() if line and not line.startswith("-----")]
