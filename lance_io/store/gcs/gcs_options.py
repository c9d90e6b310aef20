"""Storage options and environment variables of a Google Cloud Storage bucket.

    option (any case)                              environment            meaning
    google_service_account, service_account,       GOOGLE_SERVICE_ACCOUNT file of a service account's key
    google_service_account_path, ..._path
    google_service_account_key, service_account_key  GOOGLE_..._KEY       the key itself, as JSON text
    google_application_credentials                 the same, upper case   file of any Google credentials; by default
                                                                          gcloud's file, then the metadata service
    google_storage_token, google_bearer_token      the same, upper case   an OAuth token, used unchanged
    google_skip_signature, skip_signature          the same, upper case   anonymous requests
    google_base_url, base_url                      GOOGLE_BASE_URL        URL of a service other than Google's

`cloud/client_options.py` lists the options of all clients. As in object_store, a service account's key may also name
another service (`gcs_base_url`) and disable tokens (`disable_oauth`). Unprefixed environment variables are not read.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

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
"""Client for ranged GETs: our own, or gcsfs."""


@dataclass(frozen=True, slots=True)
class GcsOptions(ClientOptions):
    """Settings of a bucket before the first request. `repr` hides secrets.

    service_account  a service account's key, as JSON text
    key_file         the file of that key
    credentials      file of any Google credentials
    token            a fixed OAuth token
    """

    service_account: str | None = field(default=None, repr=False)
    key_file: str | None = None
    credentials: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def identity(self) -> str:
        """Bucket and endpoint."""
        return f"gs://{self.bucket}@{self.endpoint or 'google'}"

    @property
    def access(self) -> str:
        """Identifies the credentials without a secret: their owner or their source."""
        if self.skip_signature:
            return "anonymous"
        if self.provided is not None:
            return self.provided.identity
        if self.service_account is not None or self.token is not None:
            return fingerprint(self.service_account, self.token)
        return f"file {self.credentials or os.environ.get('GOOGLE_APPLICATION_CREDENTIALS')}"

    @property
    def base(self) -> str:
        """Base URL of the service, without a final slash."""
        return self.endpoint or GOOGLE


def parse_gcs(bucket: str, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> GcsOptions:
    """Parse storage options (lower-case names), then the environment; reads a service account's file.

    Raises `UsageError` for invalid values, and for an `http://` endpoint without `allow_http`.
    """
    source = OptionSource(options, os.environ if environment is None else environment, _ALIASES, "google_")
    key = source.text("google_service_account_key")
    key_file = source.text("google_service_account") if key is None else None
    if key_file:
        key = read_key("google_service_account", key_file)
    known = {} if key is None else _service_account(key)
    endpoint = source.text("google_base_url") or known.get("gcs_base_url")
    if endpoint:
        endpoint = "{}://{}{}".format(*check_endpoint("google_base_url", endpoint, source))
    return GcsOptions(
        bucket=bucket,
        endpoint=endpoint or None,
        skip_signature=source.switch("google_skip_signature", bool(known.get("disable_oauth"))),
        **parse_client(source),
        service_account=key,
        key_file=key_file,
        credentials=source.text("google_application_credentials"),
        token=_token(source),
    )


def _token(source: OptionSource) -> str | None:
    token = source.text("google_storage_token")
    if token is not None and not is_header_text(token):
        raise UsageError("storage option google_storage_token: expected printable ASCII")
    return token


def provided_token(options: Mapping[str, str]) -> str | None:
    """The token among storage options (lower-case names). Raises `UsageError` for an invalid one."""
    return _token(OptionSource(options, {}, _ALIASES, "google_"))


def read_key(name: str, path: str) -> str:
    """A service account's key from a file. Raises `UsageError` if it cannot be read."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"storage option {name}: expected the file of a service account's key ({error})") from None


def _service_account(text: str) -> dict[str, Any]:
    """The parsed key; errors do not show its content."""
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if not isinstance(key, dict):
        raise UsageError("storage option google_service_account_key: expected a service account's key as a JSON object")
    return key
