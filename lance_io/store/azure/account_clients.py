"""State of an Azure store on one event loop: authorisation of requests, and a client of Azure's library."""

from __future__ import annotations

import io
from contextlib import AsyncExitStack
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.errors import LanceError
from lance_io.redaction import quiet_loggers
from lance_io.runtime import load_modules
from lance_io.store.azure.authorization import VERSION, Anonymous, Authorization, Bearer, SharedAccess, SharedKey
from lance_io.store.azure.blob_errors import Refused, no_credentials
from lance_io.store.azure.container_options import Credentials, check_encrypted, provided_credentials, signature_of
from lance_io.store.azure.fabric_tokens import FabricTokens
from lance_io.store.azure.machine_identity import MachineIdentity
from lance_io.store.cloud.client_options import (
    KEEPALIVE_S,
    READ_BUFFER_BYTES,
    certificates_file,
    file_secret,
    tls_context,
)
from lance_io.store.cloud.loop_clients import LoopClients
from lance_io.store.cloud.provided_credentials import ProvidedCredentials
from lance_io.store.cloud.renewal import Renewal
from lance_io.store.http.tls import TlsSettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    import aiohttp

    from lance_io.store.azure.container_options import AzureOptions

AUTHORITY: Final = "https://login.microsoftonline.com"  # the default issuer of tokens
LOGGERS: Final = (  # of azure.identity, which log failed token requests
    "azure.identity.aio._internal.get_token_mixin",
    "azure.identity.aio._internal.decorators",
    "azure.identity.aio._credentials.chained",
    "azure.identity.aio._credentials.default",
)
SCOPE: Final = "https://storage.azure.com/.default"
REDIRECTED: Final = 300  # first status of redirects
_SINGLE_BYTES_MAX: Final = 5000 << 20  # Azure's maximum per request, so that the library does not split a transfer
_STREAMED_BYTES: Final = 1 << 18  # larger bodies are sent in pieces


async def load_library() -> None:
    """Import Azure's library, which takes half a second.

    Raises `ModuleNotFoundError`, which names the package to install.
    """
    try:
        await load_modules("aiohttp", "azure.storage.blob.aio", "azure.core.pipeline.transport")
    except ModuleNotFoundError as error:
        raise missing_library(error.name or "azure.storage.blob") from error


def missing_library(name: str) -> ModuleNotFoundError:
    """The error for a missing package of the extra."""
    return ModuleNotFoundError(f"az:// needs the package {name}: pip install 'lance_io[azure]'", name=name)


@cache
def _our_transport() -> type:
    """The library's transport; passes large bodies to aiohttp in pieces, so that they do not block the loop.

    Raises error answers unchanged as `Refused`, because the library maps them inconsistently. One error reaches the
    library, which expects it: status 416 for a range of an empty blob. Redirects count as errors, too: the library
    would follow them to any host, with the data.
    """
    from azure.core.pipeline.transport import AioHttpTransport

    class OurTransport(AioHttpTransport):  # type: ignore[misc]
        async def send(self, request: Any, **options: Any) -> Any:
            if isinstance(request.data, bytes) and len(request.data) > _STREAMED_BYTES:
                request.data = io.BytesIO(request.data)
            answer = await super().send(request, **options)
            is_empty_blob = answer.status_code == 416 and request.headers.get("x-ms-range", "").startswith("bytes=0-")
            if answer.status_code >= REDIRECTED and not is_empty_blob:
                if options.get("stream"):
                    await answer.load_body()
                raise Refused(answer.status_code, answer.headers, answer.body())
            return answer

    return OurTransport


def content_settings(options: AzureOptions) -> dict[str, Any]:
    """Arguments for the library with the content type of a write."""
    if options.content_type is None:
        return {}
    from azure.storage.blob import ContentSettings

    return {"content_settings": ContentSettings(content_type=options.content_type)}


class AccountClients(LoopClients):
    """Clients of one event loop; call every method on that loop.

    latest  the authorization of the last request
    """

    store = "az"
    variables = ("AZURE_", "AZURITE_", "IDENTITY_", "IMDS_", "MSI_")

    def __init__(self, options: AzureOptions, connections_max: int) -> None:
        super().__init__(options, connections_max)
        self._options = options
        self._connections_max = connections_max
        self._fixed = _fixed_authorization(options)
        self.latest: Authorization = self._fixed or Anonymous()
        self._tokens: Renewal[_ExpiringCredentials] = (
            Renewal(self._fetch_token, self._map_error, self.store)
            if options.provided is None
            else ProvidedCredentials(options.provided, self._read_provided, self.store)
        )
        self._entra: Any = None  # credential of azure.identity or ours, which fetches tokens
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None
        self._container: Any = None
        self._container_credentials: _ExpiringCredentials | None = None  # of a provider, used by `_container`

    # -- authorization ----------------------------------------------------------------------------------------------

    def has_fixed_credentials(self) -> bool:
        """See `LoopClients`."""
        return self._fixed is not None or self._options.provided is not None

    def get_nowait(self) -> Authorization | None:
        """The current authorization; None if a caller must wait."""
        if self._fixed is None:
            token = self._tokens.get_nowait()
            if token is None:
                return None
            self.latest = token.authorization
        return self.latest

    async def authorization(self, key: str) -> Authorization:
        """The current authorization; may request a token. Raises our errors, which name `key`."""
        if self._fixed is None:
            try:
                self.latest = (await self._tokens.get()).authorization
            except LanceError as error:
                error.path = error.path or key
                raise
        return self.latest

    async def refetch(self) -> bool:
        """See `LoopClients`. Replaces the token source and the library's client, because both cache tokens."""
        refused = self._tokens.latest
        if self._fixed is not None or refused is None:
            return False
        self._entra = self._container = None
        old_stack, self._stack = self._stack, AsyncExitStack()
        self._tokens.forget(refused)
        try:
            renewed = await self._tokens.get()
        finally:
            await old_stack.aclose()
        return renewed.credentials != refused.credentials

    def _read_provided(self, options: Mapping[str, str]) -> _ExpiringCredentials | None:
        """Credentials among a provider's options."""
        credentials = provided_credentials(options)
        if credentials is not None and credentials.token is not None:
            check_encrypted(self._options.endpoint or "")
        return None if credentials is None else _ExpiringCredentials(self._options, credentials)

    async def _fetch_token(self) -> tuple[_ExpiringCredentials, float | None]:
        await load_library()
        try:
            await load_modules("azure.identity.aio")
        except ModuleNotFoundError as error:
            raise missing_library(error.name or "azure.identity") from error
        quiet_loggers(LOGGERS)
        if self._entra is None:
            self._entra = await self._stack.enter_async_context(self._open_entra())
        token = await self._entra.get_token(SCOPE)
        return _ExpiringCredentials(self._options, Credentials(None, None, token.token)), token.expires_on

    def _open_entra(self) -> Any:
        """Token source by the options, or azure.identity's default chain."""
        from azure.identity import aio as identity

        options = self._options
        common: dict[str, Any] = {
            "connection_timeout": options.connect_timeout_s,
            "read_timeout": options.silence_s,
            "connection_verify": certificates_file(options.ca_certificates) or True if options.verify else False,
        }
        if options.proxy:
            proxy = options.proxy_for(_host_of(options.authority_host or AUTHORITY))
            common["proxies"] = {} if proxy is None else {"http": proxy, "https": proxy}
        if options.authority_host:
            common["authority"] = options.authority_host
        if options.by_fabric:
            return FabricTokens(options, None if self._tokens.recent else options.token)
        if options.client_id and options.tenant_id and options.federated_token_file:
            return identity.WorkloadIdentityCredential(
                tenant_id=options.tenant_id,
                client_id=options.client_id,
                token_file_path=options.federated_token_file,
                **common,
            )
        if options.client_id and options.tenant_id and options.client_secret:
            return identity.ClientSecretCredential(
                options.tenant_id, options.client_id, options.client_secret, **common
            )
        if options.use_azure_cli:
            return identity.AzureCliCredential()
        if options.msi_endpoint:
            return MachineIdentity(options)
        if options.credential_type == "managed_identity" and not (options.object_id or options.msi_resource_id):
            return identity.ManagedIdentityCredential(client_id=options.client_id)
        if options.object_id or options.msi_resource_id:
            named = {"object_id": options.object_id or ""}
            if not options.object_id:
                named = {"resource_id": options.msi_resource_id or ""}
            return identity.ManagedIdentityCredential(identity_config=named)
        return identity.DefaultAzureCredential(managed_identity_client_id=options.client_id, **common)

    def _map_error(self, error: Exception) -> LanceError:
        if isinstance(error, LanceError):
            return error
        return no_credentials(error, (*self.secrets, *file_secret(self._options.federated_token_file)))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages: credentials from options, and fetched credentials, also the ones before."""
        return (*self._options.secrets, *(secret for renewed in self._tokens.recent for secret in renewed.secrets))

    # -- clients ----------------------------------------------------------------------------------------------------

    async def container(self) -> Any:
        """The library's client of the container; needs no closing because it uses the shared HTTP session."""
        provided = None if self._options.provided is None else await self._tokens.get()
        if self._container is None:
            await load_library()
        if self._container is None or self._container_credentials is not provided:
            self._container, self._container_credentials = self._open_container(provided), provided
        return self._container

    def _open_container(self, provided: _ExpiringCredentials | None) -> Any:
        from azure.storage.blob.aio import ContainerClient

        options = self._options
        return ContainerClient(
            options.endpoint or "",
            options.bucket,
            credential=self._credential(provided),
            api_version=VERSION,
            transport=_our_transport()(
                session=self.http(),
                session_owner=False,
                connection_timeout=options.connect_timeout_s,
                read_timeout=options.silence_s,
            ),
            retry_total=0,  # we retry and count requests ourselves
            proxies=self._proxies,
            max_single_put_size=_SINGLE_BYTES_MAX,
            max_single_get_size=_SINGLE_BYTES_MAX,
            max_chunk_get_size=_SINGLE_BYTES_MAX,
            user_agent=options.user_agent,
            base_headers=dict(options.headers),
        )

    def _credential(self, provided: _ExpiringCredentials | None) -> Any:
        """Credential for the library.

        provided  credentials from a provider
        """
        from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

        options = self._options
        if options.skip_signature:
            return None
        authorization = self._fixed if provided is None else provided.authorization
        if authorization is None or isinstance(authorization, Bearer):
            return _Tokens(self)
        key, sas_token, _ = (options.account_key, options.sas_token, None) if provided is None else provided.credentials
        if isinstance(authorization, SharedKey):
            return AzureNamedKeyCredential(options.account, key or "")
        return AzureSasCredential(sas_token or "")

    def http(self) -> aiohttp.ClientSession:
        """The library's HTTP session: no cookies, no resending of PUTs after a broken connection.

        A resent PUT would find the object that the first one created, so a successful create-if-absent would report a
        conflict.
        """
        if self._http is None:
            import aiohttp

            connector = aiohttp.TCPConnector(
                limit=self._connections_max, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=60, ssl=self._tls()
            )
            self._http = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER_BYTES,
            )
            self._http._retry_connection = False
        return self._http

    @cached_property
    def proxy(self) -> str | None:
        """The proxy from options or environment."""
        parts = urlsplit(self._options.endpoint or "")
        return self._options.find_proxy(parts.hostname or "", is_plain_http=parts.scheme == "http")

    @property
    def _proxies(self) -> dict[str, str]:
        return {} if self.proxy is None else {"http": self.proxy, "https": self.proxy}

    def tls_settings(self) -> TlsSettings:
        """TLS settings of our own HTTP client."""
        options = self._options
        return TlsSettings(authorities=options.ca_certificates) if options.verify else TlsSettings(verify=False)

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._options.verify:
            return False
        file = certificates_file(self._options.ca_certificates)
        return True if file is None else tls_context(file)

    # -- the end ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """See `LoopClients`."""
        http, self._http, self._container, self._entra = self._http, None, None, None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await self._tokens.close()
        finally:
            try:
                await stack.aclose()
            finally:
                if http is not None:
                    await http.close()

    def drop(self) -> None:
        """See `LoopClients`."""
        if self._http is not None:
            self._http.detach()
            self._http = None


def _host_of(authority: str) -> str:
    """Host of a URL, or of a plain name, which `azure.identity` also accepts."""
    return urlsplit(authority if "://" in authority else f"https://{authority}").hostname or ""


class _ExpiringCredentials:
    """Credentials that expire: an Entra token, or credentials from a provider."""

    def __init__(self, options: AzureOptions, credentials: Credentials) -> None:
        self.credentials = credentials
        self.authorization = _authorization(options, credentials)

    @property
    def secrets(self) -> list[str]:
        """Texts to hide in messages."""
        key, sas_token, token = self.credentials
        return [secret for secret in (key, signature_of(sas_token), token) if secret]


class _Tokens:
    """Token credential for the library; shares the tokens of our own requests."""

    def __init__(self, clients: AccountClients) -> None:
        self._clients = clients

    async def get_token(self, *scopes: str, **_: Any) -> Any:
        """The current token with its expiry. The library calls again before a token expires."""
        import time

        from azure.core.credentials import AccessToken

        clients = self._clients
        if clients._fixed is not None:
            return AccessToken(clients._options.token or "", int(time.time()) + 3600)
        renewed = await clients._tokens.get()
        return AccessToken(renewed.credentials.token or "", int(clients._tokens.expires_s or time.time() + 3600))


def _fixed_authorization(options: AzureOptions) -> Authorization | None:
    """Authorization from options alone, in pylance's order of precedence; None if tokens must be fetched."""
    if options.skip_signature:
        return Anonymous()
    if options.provided is not None or options.by_fabric:
        return None
    is_entra = options.client_id and options.tenant_id and (options.client_secret or options.federated_token_file)
    sas_token = None if is_entra else options.sas_token
    if options.token is None and options.account_key is None and sas_token is None:
        return None
    return _authorization(options, Credentials(options.account_key, sas_token, options.token))


def _authorization(options: AzureOptions, credentials: Credentials) -> Authorization:
    """Authorization by token, key or SAS, the first that is set."""
    if credentials.token is not None:
        return Bearer(credentials.token)
    if credentials.account_key is not None:
        return SharedKey(options.account, credentials.account_key, options.headers)
    return SharedAccess(credentials.sas_token or "")
