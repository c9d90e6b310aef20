"""What the storage options and the environment say about a bucket of Google Cloud Storage.

    option (any case)                              environment            meaning
    google_service_account, service_account,       GOOGLE_SERVICE_ACCOUNT file of a service account's key
    google_service_account_path, ..._path
    google_service_account_key, service_account_key  GOOGLE_..._KEY       the key itself, as JSON text
    google_application_credentials                 the same, upper case   file of any credentials of Google's; else its
                                                                          usual chain: gcloud's file, metadata service
    google_storage_token, google_bearer_token      the same, upper case   an OAuth token, used as it is
    google_skip_signature, skip_signature          the same, upper case   anonymous requests
    google_base_url, base_url                      GOOGLE_BASE_URL        another service than Google's
    fast_get                                       -                      false: GETs go through gcsfs

`cloud/client_options.py` has those of all clients. A service account's key may name another service, too
(`gcs_base_url`), and say that it wants no token (`disable_oauth`), as object_store has it. Unprefixed environment
variables are not read.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.store.cloud.client_options import (
    ClientOptions,
    OptionSource,
    check_endpoint,
    fingerprint,
    is_header_text,
    parse_client,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

GOOGLE: Final = "https://storage.googleapis.com"
_ALIASES: Final = {
    "google_service_account": (
        "google_service_account",
        "service_account",
        "google_service_account_path",
        "service_account_path",
    ),
    "google_service_account_key": ("google_service_account_key", "service_account_key"),
    "google_application_credentials": ("google_application_credentials", "application_credentials"),
    "google_storage_token": ("google_storage_token", "google_bearer_token", "bearer_token"),
    "google_skip_signature": ("google_skip_signature", "skip_signature"),
    "google_base_url": ("google_base_url", "base_url"),
}
Transport = Literal["http", "gcsfs"]
"""What sends ranged GETs: our own client, or gcsfs."""


@dataclass(frozen=True, slots=True)
class GcsOptions(ClientOptions):
    """Everything that is fixed about a bucket before the first request. Secrets do not show in `repr`.

    service_account  a service account's key, as JSON text
    key_file         that it was read from
    credentials      file of any credentials of Google's
    token            an OAuth token that somebody else renews
    """

    service_account: str | None = field(default=None, repr=False)
    key_file: str | None = None
    credentials: str | None = None
    token: str | None = field(default=None, repr=False)
    transport: Transport = "http"

    @property
    def identity(self) -> str:
        """The bucket and where it is."""
        return f"gs://{self.bucket}@{self.endpoint or 'google'}"

    @property
    def access(self) -> str:
        """What tells these credentials from others, without a secret: whose they are, or where they are looked for."""
        if self.skip_signature:
            return "anonymous"
        if self.provided is not None:
            return self.provided.identity
        if self.service_account is not None or self.token is not None:
            return fingerprint(self.service_account, self.token)
        return f"file {self.credentials or os.environ.get('GOOGLE_APPLICATION_CREDENTIALS')}"

    @property
    def base(self) -> str:
        """The URL that all others begin with, without a slash at its end."""
        return self.endpoint or GOOGLE


def parse_gcs(bucket: str, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> GcsOptions:
    """Read storage options (lower-case names), with the environment behind them; reads a service account's file.

    Raises `UsageError` for values that make no sense, and for an `http://` endpoint without `allow_http`.
    """
    found = OptionSource(options, os.environ if environment is None else environment, _ALIASES, "google_")
    key = found.text("google_service_account_key")
    key_file = found.text("google_service_account") if key is None else None
    if key_file:
        key = read_key("google_service_account", key_file)
    known = {} if key is None else _service_account(key)
    endpoint = found.text("google_base_url") or known.get("gcs_base_url")
    if endpoint:
        endpoint = "{}://{}{}".format(*check_endpoint("google_base_url", endpoint, found))
    return GcsOptions(
        bucket=bucket,
        endpoint=endpoint or None,
        skip_signature=found.switch("google_skip_signature", bool(known.get("disable_oauth"))),
        **parse_client(found),
        service_account=key,
        key_file=key_file,
        credentials=found.text("google_application_credentials"),
        token=_token(found),
        transport="http" if found.switch("fast_get", True) else "gcsfs",
    )


def _token(found: OptionSource) -> str | None:
    token = found.text("google_storage_token")
    if token is not None and not is_header_text(token):
        raise UsageError("storage option google_storage_token: expected printable ASCII")
    return token


def token_given(options: Mapping[str, str]) -> str | None:
    """The one among storage options (lower-case names). Raises `UsageError` for what can be none."""
    return _token(OptionSource(options, {}, _ALIASES, "google_"))


def read_key(name: str, path: str) -> str:
    """A service account's key, of a file. Raises `UsageError` where it cannot be read."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"storage option {name}: expected the file of a service account's key ({error})") from None


def _service_account(text: str) -> dict[str, Any]:
    """The key; its content is not shown."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("storage option google_service_account_key: expected a service account's key as a JSON object")
    return found
