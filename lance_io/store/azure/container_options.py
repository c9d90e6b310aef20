"""Settings of a container from URL, storage options and environment.

    option (any case); all also with azure_  environment, in capitals    meaning
    account_name, storage_account_name       those with AZURE_           the account; one in the URL takes precedence
    account_key, access_key, master_key      the same                    signs requests (SharedKey)
    sas_token, sas_key                       the same                    a shared access signature, in URL form
    token, bearer_token                      the same                    an Entra token, used unchanged
    client_id, client_secret, tenant_id      the same                    an Entra service principal
    federated_token_file                     the same                    workload identity, with client and tenant
    object_id, msi_resource_id               the same                    selects a managed identity of this machine
    msi_endpoint, identity_endpoint          the same                    service for the tokens of that identity
    fabric_token_service_url,                the same                    service for tokens within Fabric; needs the
    fabric_session_token, _workload_host,                                other three, otherwise ignored
    _cluster_identifier
    use_azure_cli                            the same                    the account of `az login`
    credential_type                          the same                    the kind of credentials to use: see `_KINDS`
    authority_host                           the same                    issuer of tokens
    skip_signature                           the same                    anonymous requests
    endpoint, storage_endpoint               the same                    URL of another service; includes the account in
                                                                         its path unless the host name has it
    use_emulator                             the same, and               Azurite; by default on this machine and with
                                             AZURITE_BLOB_STORAGE_URL    its built-in account
    use_fabric_endpoint                      the same                    OneLake of Fabric

Without credentials, `azure.identity` searches its default chain: environment, workload, machine, command line.
`cloud/client_options.py` lists the options of all clients, which also work with azure_.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from lance_io.errors import UnsupportedError, UsageError
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

# The fixed account of Azure's emulators; it is no secret.
EMULATOR_ACCOUNT: Final = "devstoreaccount1"
EMULATOR_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR: Final = "http://127.0.0.1:10000"
FABRIC: Final = (
    "fabric_token_service_url",
    "fabric_workload_host",
    "fabric_session_token",
    "fabric_cluster_identifier",
)
_ACCOUNT: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_CONTAINER: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,127}")  # OneLake's workspaces may have upper case
_HOSTS: Final = {  # host suffixes of URLs with an account, and those of its blob endpoint
    "dfs.core.windows.net": "blob.core.windows.net",
    "blob.core.windows.net": "blob.core.windows.net",
    "dfs.fabric.microsoft.com": "blob.fabric.microsoft.com",
    "blob.fabric.microsoft.com": "blob.fabric.microsoft.com",
}


def _aliases() -> dict[str, tuple[str, ...]]:
    """All names of each option, including those of the environment."""
    storage = {  # also with azure_storage_
        "account_name": ("account_name",),
        "account_key": ("account_key", "access_key", "master_key"),
        "sas_token": ("sas_token", "sas_key"),
        "token": ("token",),
        "client_id": ("client_id",),
        "client_secret": ("client_secret",),
        "tenant_id": ("tenant_id", "authority_id"),
        "authority_host": ("authority_host",),
        "endpoint": ("endpoint",),
        "use_emulator": ("use_emulator",),
        "encryption_key": ("encryption_key",),
    }
    plain = {
        name: (name,)
        for name in ("skip_signature", "use_fabric_endpoint", "use_azure_cli", "federated_token_file", "object_id",
                     "msi_resource_id", *FABRIC, "allow_http", "allow_invalid_certificates", "connect_timeout",
                     "timeout", "request_timeout", "read_timeout", "user_agent", "proxy_url",
                     "pool_idle_timeout", "pool_max_idle_per_host", "default_content_type",
                     "proxy_ca_certificate", "proxy_excludes", "disable_system_certificates",
                     "credential_type", "client_max_retries", "client_retry_timeout", "download_retry_count")
    }  # fmt: skip
    aliases = {name: (*names, *(f"azure_{alias}" for alias in names)) for name, names in {**storage, **plain}.items()}
    aliases["msi_endpoint"] = ("msi_endpoint", "azure_msi_endpoint", "identity_endpoint", "azure_identity_endpoint")
    for name, names in storage.items():
        aliases[name] = (*aliases[name], *(f"azure_storage_{alias}" for alias in names))
    aliases["token"] = (*aliases["token"], "bearer_token")
    aliases["use_emulator"] = (*aliases["use_emulator"], "object_store_use_emulator")
    return aliases


_ALIASES: Final = _aliases()
_KINDS: Final[dict[str, tuple[str, ...]]] = {  # by `credential_type`: the options of these credentials
    "bearer_token": ("token",),
    "access_key": ("account_key",),
    "sas_token": ("sas_token",),
    "client_secret": ("client_id", "tenant_id", "client_secret"),
    "workload_identity": ("client_id", "tenant_id", "federated_token_file"),
    "managed_identity": ("client_id", "object_id", "msi_resource_id", "msi_endpoint"),
    "azure_cli": (),
}
_OF_CREDENTIALS: Final = {*FABRIC, "use_azure_cli", *(name for names in _KINDS.values() for name in names)}


class Credentials(NamedTuple):
    """Fixed credentials: the first of token, key and signature applies. All are secrets."""

    account_key: str | None
    sas_token: str | None
    token: str | None


@dataclass(frozen=True, slots=True)
class AzureOptions(ClientOptions):
    """Settings of a container before the first request. `repr` hides secrets.

    endpoint  of the account: scheme, host and path, without a final slash
    """

    account: str = ""
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    authority_host: str | None = None
    federated_token_file: str | None = None
    object_id: str | None = None
    msi_resource_id: str | None = None
    msi_endpoint: str | None = None
    fabric_token_service_url: str | None = None
    fabric_workload_host: str | None = None
    fabric_session_token: str | None = field(default=None, repr=False)
    fabric_cluster_identifier: str | None = None
    use_azure_cli: bool = False
    credential_type: str | None = None  # other kinds are ignored

    @property
    def identity(self) -> str:
        """Container and endpoint."""
        return f"az://{self.bucket}@{self.endpoint}"

    @property
    def access(self) -> str:
        """Identifies the credentials without a secret: their owner or their source."""
        if self.skip_signature:
            return "anonymous"
        if self.provided is not None:
            return self.provided.identity
        if self.by_fabric:
            service = (self.fabric_token_service_url, self.fabric_workload_host, self.fabric_cluster_identifier)
            return f"fabric {service}, {fingerprint(self.fabric_session_token)}"
        if self.client_id is not None or not (self.account_key or self.sas_token or self.token):
            machine = (self.object_id, self.msi_resource_id, self.use_azure_cli, self.msi_endpoint)
            kind = () if self.credential_type is None else (self.credential_type,)
            return repr((self.client_id, self.tenant_id, *machine, *kind))
        return fingerprint(self.account_key, self.sas_token, self.token)

    @property
    def by_fabric(self) -> bool:
        """Whether tokens come from Fabric's service."""
        return None not in [getattr(self, name) for name in FABRIC]

    @property
    def is_microsoft(self) -> bool:
        """Whether the service is Microsoft's own."""
        host = urlsplit(self.endpoint or "").hostname or ""
        return host.endswith((".windows.net", ".fabric.microsoft.com", ".chinacloudapi.cn", ".usgovcloudapi.net"))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages."""
        secrets = (
            *(self.account_key, self.token, self.client_secret, self.fabric_session_token),
            signature_of(self.sas_token),
            *self.header_secrets,
        )
        return tuple(secret for secret in secrets if secret)


def signature_of(sas_token: str | None) -> str | None:
    """The secret part of a shared access signature."""
    match = re.search(r"sig=([^&]+)", sas_token or "")
    return None if match is None else match[1]


def split_authority(authority: str) -> tuple[str, str | None, str | None]:
    """Container, account and account endpoint from the part of a URL before the path.

    Raises `UsageError` for forms other than `container`, `container@account` and `container@account.dfs...`.
    """
    container, at, host = authority.partition("@")
    if not _CONTAINER.fullmatch(container) or (not at and "." in container):
        raise UsageError("expected az://container/path or abfss://container@account.dfs.core.windows.net/path")
    if not at:
        return container, None, None
    account, dot, domain = host.partition(".")
    if not _ACCOUNT.fullmatch(account) or (dot and domain not in _HOSTS):
        raise UsageError(f"expected {container}@account.dfs.core.windows.net, found {container}@{host!r}")
    return container, account, f"https://{account}.{_HOSTS[domain]}" if dot else None


def parse_azure(
    authority: str, options: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> AzureOptions:
    """Parse storage options (lower-case names), then the environment.

    authority  the part of the URL before the path

    Raises `UsageError` for invalid values, without an account, and for an `http://` endpoint without `allow_http`.
    """
    variables = os.environ if environment is None else environment
    source = _ChosenOptions(options, variables)
    container, account, address = split_authority(authority)
    account = account or source.text("account_name")
    is_emulator = source.switch("use_emulator", False)
    if is_emulator:
        account = account or EMULATOR_ACCOUNT
    if account is None:
        raise UsageError(
            "expected the storage option account_name, the variable AZURE_STORAGE_ACCOUNT_NAME, or a URL such as "
            f"abfss://{container}@account.dfs.core.windows.net/path"
        )
    if not _ACCOUNT.fullmatch(account):
        raise UsageError(f"storage option account_name: expected letters, digits and '-', found {account!r}")
    _refuse_encryption(source)
    key, sas, token = _credentials(source)
    if is_emulator and key is None and sas is None and token is None:
        key = EMULATOR_KEY
    endpoint = _endpoint(source, account, address, variables if is_emulator else None)
    skip_signature = source.switch("skip_signature", False)
    fabric: dict[str, Any] = {name: source.text(name) for name in FABRIC}
    by_token = token is not None or None not in fabric.values() or (key is None and sas is None)
    needs_token = not skip_signature and by_token
    if needs_token:
        check_encrypted(endpoint)
    return AzureOptions(
        bucket=container,
        endpoint=endpoint,
        skip_signature=skip_signature,
        **parse_client(source),
        account=account,
        account_key=key,
        sas_token=sas,
        token=token,
        client_id=source.text("client_id"),
        client_secret=source.text("client_secret"),
        tenant_id=source.text("tenant_id"),
        authority_host=source.text("authority_host"),
        federated_token_file=source.text("federated_token_file"),
        object_id=source.text("object_id"),
        msi_resource_id=source.text("msi_resource_id"),
        msi_endpoint=_service("msi_endpoint", source.text("msi_endpoint")),
        **{**fabric, FABRIC[0]: _service(FABRIC[0], fabric[FABRIC[0]])},
        use_azure_cli=source.kind == "azure_cli" or source.switch("use_azure_cli", False),
        credential_type=source.kind,
    )


class _ChosenOptions(OptionSource):
    """Options and environment, without credentials that `credential_type` excludes.

    kind  the kind of credentials to use; None for any

    Raises `UsageError` for an unknown kind, and for one whose options are missing.
    """

    def __init__(self, options: Mapping[str, str], environment: Mapping[str, str]) -> None:
        super().__init__(options, environment, _ALIASES, "azure_")
        self.kind: str | None = None
        kind = (self.text("credential_type") or "auto").strip().lower()
        if kind == "auto":
            return
        if kind not in _KINDS:
            raise UsageError(
                f"storage option credential_type: expected one of auto, {', '.join(_KINDS)}, found {kind!r}"
            )
        self.kind = kind
        missing = [name for name in _KINDS[kind] if self.text(name) is None]
        if missing and kind != "managed_identity":
            raise UsageError(f"storage option credential_type: {kind!r} needs {', '.join(missing)}")

    def text(self, name: str) -> str | None:
        """See `OptionSource`."""
        if self.kind is not None and name in _OF_CREDENTIALS and name not in _KINDS[self.kind]:
            return None
        return super().text(name)


def _refuse_encryption(source: OptionSource) -> None:
    """Raise `UnsupportedError` for a customer-provided key: ignoring it would write objects without that encryption."""
    if source.text("encryption_key") is not None:
        raise UnsupportedError(
            "storage option encryption_key: this release encrypts nothing with keys of one's own on Azure"
        )


def check_encrypted(endpoint: str) -> None:
    """Raise `UsageError` for an unencrypted endpoint, which must not receive Entra tokens."""
    if endpoint.startswith("http://"):
        raise UsageError(
            "tokens of Entra are not sent to an endpoint that is not encrypted; found no other credentials"
        )


def provided_credentials(options: Mapping[str, str]) -> Credentials | None:
    """Credentials among storage options (lower-case names). Raises `UsageError` for invalid ones."""
    credentials = _credentials(OptionSource(options, {}, _ALIASES, "azure_"))
    return credentials if any(credentials) else None


def _credentials(source: OptionSource) -> Credentials:
    credentials = Credentials(source.text("account_key"), _sas(source.text("sas_token")), source.text("token"))
    _check_texts(*credentials)
    return credentials


def _endpoint(
    source: OptionSource, account: str, address: str | None, emulator_variables: Mapping[str, str] | None
) -> str:
    """Endpoint of the account, without a final slash."""
    if emulator_variables is not None:
        base = emulator_variables.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("variable AZURITE_BLOB_STORAGE_URL: expected http(s)://host[:port]")
        return f"{base.rstrip('/').removesuffix(f'/{account}')}/{account}"
    text = source.text("endpoint")
    if text:
        scheme, host, path = check_endpoint("azure_endpoint", text, source)
        return f"{scheme}://{host}{path}"
    if address is not None:
        return address
    domain = "fabric.microsoft.com" if source.switch("use_fabric_endpoint", False) else "core.windows.net"
    return f"https://{account}.blob.{domain}"


def _service(name: str, text: str | None) -> str | None:
    if text and (urlsplit(text).scheme not in ("http", "https") or urlsplit(text).username is not None):
        raise UsageError(f"storage option {name}: expected http(s)://host[:port]/path without a user name")
    return text or None


def _sas(text: str | None) -> str | None:
    """A shared access signature without its leading `?`; escapes an unescaped one."""
    if text is None:
        return None
    pairs = [pair.strip() for pair in text.strip().removeprefix("?").split("&") if pair.strip()]
    if not pairs or not all("=" in pair for pair in pairs):
        raise UsageError("storage option sas_token: expected name=value&name=value..., as in URLs")
    return "&".join(_escaped(pair) for pair in pairs)


def _escaped(pair: str) -> str:
    from urllib.parse import quote

    name, _, value = pair.partition("=")
    return f"{name}={quote(value, safe='%-_.~')}"


def _check_texts(key: str | None, sas: str | None, token: str | None) -> None:
    """Raise `UsageError` for malformed credentials; the message does not show them."""
    if key is not None:
        try:
            base64.b64decode(key, validate=True)
        except binascii.Error:
            raise UsageError("storage option account_key: expected a key in base64") from None
    for name, text in (("sas_token", sas), ("token", token)):
        if text is not None and not is_header_text(text):
            raise UsageError(f"storage option {name}: expected printable ASCII")
