"""OAuth tokens from google-auth, renewed before they expire (`cloud/renewal.py`)."""

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
from lance_io.store.gcs.gcs_options import provided_token, read_key

if TYPE_CHECKING:
    from lance_io.store.gcs.gcs_options import GcsOptions

_METADATA_HOSTS: Final = ("metadata.google.internal", "169.254.169.254")  # of the machine; never behind a proxy
SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"


class Tokens:
    """The current token, for the requests of one event loop; `repr` hides it."""

    def __init__(self, options: GcsOptions) -> None:
        self._options = options
        self._credentials: Any = None  # google-auth's
        self._renewal: Renewal[str] = (
            Renewal(self._fetch, self._map_error, "gs")
            if options.provided is None
            else ProvidedCredentials(options.provided, provided_token, "gs")
        )
        self._key = options.service_account
        self._grant_secrets: tuple[str, ...] = ()  # client secret and refresh token of a user's credentials

    def __repr__(self) -> str:
        return "Tokens()"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages: tokens, and the secrets that obtain them."""
        keys = {self._options.service_account or "", self._key or ""}
        lines = [line for key in keys for line in _lines_of_private_key(key)]
        from_options = (self._options.token, *self._options.header_secrets)
        secrets = (*from_options, *self._renewal.recent, *keys, *lines, *self._grant_secrets)
        return tuple(text for text in secrets if text)

    def get_nowait(self) -> str | None:
        """The current token without waiting, or None if a caller must wait; starts its renewal when due."""
        return self._options.token or self._renewal.get_nowait()

    async def token(self, key: str) -> str:
        """The current token; waits if needed. Raises our errors, which name `key`."""
        try:
            return self._options.token or await self._renewal.get()
        except LanceError as error:
            error.path = error.path or key
            raise

    async def refetch(self) -> bool:
        """Refetch a refused token; returns whether the new one differs. Raises our errors."""
        refused = self._renewal.latest
        if self._options.token is not None or refused is None:
            return False
        self._credentials = None  # files may have changed
        self._renewal.forget(refused)
        return await self._renewal.get() != refused

    async def _fetch(self) -> tuple[str, float | None]:
        """A new token and its expiry in seconds since 1970."""
        await load_modules("google.auth", "google.auth.transport.requests")
        if self._credentials is None:
            self._credentials = await in_thread(self._find)
        credentials = self._credentials
        secrets = (getattr(credentials, name, None) for name in ("client_secret", "refresh_token"))
        self._grant_secrets = tuple(text for text in secrets if isinstance(text, str))
        try:
            await in_thread(_refresh, credentials, self._options)
        except Exception:
            self._credentials = None  # the file of a refused key may hold another one by now
            raise
        token, expiry = credentials.token, credentials.expiry
        if not is_header_text(token):
            raise ValueError("the token has characters invalid in a header")
        return token, None if expiry is None else expiry.replace(tzinfo=UTC).timestamp()

    def _find(self) -> Any:
        """google-auth credentials; reads files, may probe for a metadata service."""
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

    def _map_error(self, error: Exception) -> LanceError:
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
        """End work in progress, soon."""
        await self._renewal.close()


# Kinds of credentials files, and their readers: a module of google-auth and a method of its `Credentials`.
_KINDS: Final = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
    "impersonated_service_account": (
        "google.auth.impersonated_credentials",
        "from_impersonated_service_account_info",
    ),
    "external_account_authorized_user": ("google.auth.external_account_authorized_user", "from_info"),
}


def _read(content: dict[str, Any]) -> Any:
    """Credentials from the content of a file."""
    kind = str(content.get("type"))
    if kind == "external_account":
        source = content.get("credential_source") or {}
        by = "aws" if str(source.get("environment_id", "")).startswith("aws") else "identity_pool"
        module, method = f"google.auth.{'pluggable' if 'executable' in source else by}", "from_info"
    elif kind in _KINDS:
        module, method = _KINDS[kind]
    else:
        raise ValueError(f"expected a file of Google credentials, found type {kind[:100]!r}")
    return getattr(import_module(module).Credentials, method)(content, scopes=[SCOPE])


def _refresh(credentials: Any, options: GcsOptions) -> None:
    """Fetch a new token."""
    from google.auth.transport.requests import Request

    with _session_class()(options) as session:
        credentials.refresh(partial(Request(session), timeout=options.request_timeout_s))


@cache
def _session_class() -> type:
    """A `requests.Session` whose proxy and certificates come from our options before the environment."""
    import requests

    class Session(requests.Session):
        def __init__(self, options: GcsOptions) -> None:
            super().__init__()
            self._options = options

        def merge_environment_settings(self, url: Any, *rest: Any) -> Any:
            settings, options = super().merge_environment_settings(url, *rest), self._options
            if not options.verify:
                settings["verify"] = False
            elif options.ca_certificates:
                settings["verify"] = certificates_file(options.ca_certificates)
            if options.proxy:
                host = urlsplit(url).hostname or ""
                proxy = None if host in _METADATA_HOSTS else options.proxy_for(host)
                settings["proxies"] = {} if proxy is None else {"http": proxy, "https": proxy}
            return settings

    return Session


def _lines_of_private_key(text: str) -> list[str]:
    """Lines of a service account's key, for separate hiding: a message may show other line ends."""
    try:
        private_key = json.loads(text)["private_key"]
    except (ValueError, KeyError, TypeError):
        return []
    return [line for line in str(private_key).splitlines() if line and not line.startswith("-----")]
