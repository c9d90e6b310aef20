"""What an Azure store needs per event loop: what authorises requests, and a client of Azure's own library."""

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
from lance_io.store.azure.container_options import Credentials, check_encrypted, credentials_given, signature_of
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

AUTHORITY: Final = "https://login.microsoftonline.com"  # who gives tokens, unless another is named
LOGGERS: Final = (  # of azure.identity, for what refuses tokens
    "azure.identity.aio._internal.get_token_mixin",
    "azure.identity.aio._internal.decorators",
    "azure.identity.aio._credentials.chained",
    "azure.identity.aio._credentials.default",
)
SCOPE: Final = "https://storage.azure.com/.default"
REDIRECTED: Final = 300  # the first status of those
_SINGLE_BYTES_MAX: Final = 5000 << 20  # what Azure takes, and gives, in one request: the library is to make only one
_STREAMED_BYTES: Final = 1 << 18  # of a body that is more than a moment's work


async def load_library() -> None:
    """Have Azure's library imported, which takes half a second.

    Raises `ModuleNotFoundError`, which says what to install.
    """
    try:
        await load_modules("aiohttp", "azure.storage.blob.aio", "azure.core.pipeline.transport")
    except ModuleNotFoundError as error:
        raise missing_library(error.name or "azure.storage.blob") from error


def missing_library(name: str) -> ModuleNotFoundError:
    """The error for a package that the extra installs."""
    return ModuleNotFoundError(f"az:// needs the package {name}: pip install 'lance_io[azure]'", name=name)


@cache
def _our_transport() -> type:
    """The library's way to send requests; large bodies go to aiohttp bit by bit, so that the loop goes on.

    Refusals are raised as they came: what the library makes of them differs, and of some of them it makes errors of its
    own. It needs one itself: that an empty blob has no range. Redirections are refusals, too: the library would follow
    them, with the data, wherever they lead.
    """
    from azure.core.pipeline.transport import AioHttpTransport

    class OurTransport(AioHttpTransport):  # type: ignore[misc]
        async def send(self, request: Any, **how: Any) -> Any:
            if isinstance(request.data, bytes) and len(request.data) > _STREAMED_BYTES:
                request.data = io.BytesIO(request.data)
            answer = await super().send(request, **how)
            is_of_all = answer.status_code == 416 and request.headers.get("x-ms-range", "").startswith("bytes=0-")
            if answer.status_code >= REDIRECTED and not is_of_all:
                if how.get("stream"):
                    await answer.load_body()
                raise Refused(answer.status_code, answer.headers, answer.body())
            return answer

    return OurTransport


def content_settings(options: AzureOptions) -> dict[str, Any]:
    """What a write says of its content, as arguments of the library's."""
    if options.content_type is None:
        return {}
    from azure.storage.blob import ContentSettings

    return {"content_settings": ContentSettings(content_type=options.content_type)}


class AccountClients(LoopClients):
    """Clients of one event loop; every method runs on that loop.

    latest  what authorised last
    """

    store = "az"
    variables = ("AZURE_", "AZURITE_", "IDENTITY_", "IMDS_", "MSI_")

    def __init__(self, options: AzureOptions, connections_max: int) -> None:
        super().__init__(options, connections_max)
        self._options = options
        self._connections_max = connections_max
        self._fixed = _given(options)
        self.latest: Authorization = self._fixed or Anonymous()
        self._tokens: Renewal[_Renewed] = (
            Renewal(self._fetch_token, self._failed, self.store)
            if options.provided is None
            else ProvidedCredentials(options.provided, self._read_provided, self.store)
        )
        self._entra: Any = None  # what gets tokens
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None
        self._container: Any = None
        self._container_by: _Renewed | None = None  # what a provider gave it

    # -- authorization ----------------------------------------------------------------------------------------------

    def is_known(self) -> bool:
        """See `LoopClients`."""
        return self._fixed is not None or self._options.provided is not None

    def at_hand(self) -> Authorization | None:
        """What authorises requests at this moment; None where it has to be waited for."""
        if self._fixed is None:
            token = self._tokens.at_hand()
            if token is None:
                return None
            self.latest = token.authorization
        return self.latest

    async def authorization(self, key: str) -> Authorization:
        """The same, which may take a request of another service's. Raises our errors, which name the key."""
        if self._fixed is None:
            try:
                self.latest = (await self._tokens.get()).authorization
            except LanceError as error:
                error.path = error.path or key
                raise
        return self.latest

    async def ask_again(self) -> bool:
        """See `LoopClients`. What gets tokens is made anew: it keeps them, and so does the library's client."""
        refused = self._tokens.latest
        if self._fixed is not None or refused is None:
            return False
        self._entra = self._container = None
        before, self._stack = self._stack, AsyncExitStack()
        self._tokens.forget(refused)
        try:
            found = await self._tokens.get()
        finally:
            await before.aclose()
        return found.credentials != refused.credentials

    def _read_provided(self, options: Mapping[str, str]) -> _Renewed | None:
        """What a provider gave."""
        found = credentials_given(options)
        if found is not None and found.token is not None:
            check_encrypted(self._options.endpoint or "")
        return None if found is None else _Renewed(self._options, found)

    async def _fetch_token(self) -> tuple[_Renewed, float | None]:
        await load_library()
        try:
            await load_modules("azure.identity.aio")
        except ModuleNotFoundError as error:
            raise missing_library(error.name or "azure.identity") from error
        quiet_loggers(LOGGERS)
        if self._entra is None:
            self._entra = await self._stack.enter_async_context(self._open_entra())
        found = await self._entra.get_token(SCOPE)
        return _Renewed(self._options, Credentials(None, None, found.token)), found.expires_on

    def _open_entra(self) -> Any:
        """What gets tokens, by the options or where all tools of Azure look."""
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

    def _failed(self, error: Exception) -> LanceError:
        if isinstance(error, LanceError):
            return error
        return no_credentials(error, (*self.secrets, *file_secret(self._options.federated_token_file)))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in a message: the credentials given, and those of this moment and before."""
        return (*self._options.secrets, *(secret for one in self._tokens.recent for secret in one.secrets))

    # -- clients ----------------------------------------------------------------------------------------------------

    async def container(self) -> Any:
        """The library's client of the container. It has nothing to close: the HTTP session below it is that of all."""
        by = None if self._options.provided is None else await self._tokens.get()
        if self._container is None:
            await load_library()
        if self._container is None or self._container_by is not by:
            self._container, self._container_by = self._open_container(by), by
        return self._container

    def _open_container(self, by: _Renewed | None) -> Any:
        from azure.storage.blob.aio import ContainerClient

        options = self._options
        return ContainerClient(
            options.endpoint or "",
            options.bucket,
            credential=self._credential(by),
            api_version=VERSION,
            transport=_our_transport()(
                session=self.http(),
                session_owner=False,
                connection_timeout=options.connect_timeout_s,
                read_timeout=options.silence_s,
            ),
            retry_total=0,  # we repeat requests ourselves, and count them
            proxies=self._proxies,
            max_single_put_size=_SINGLE_BYTES_MAX,
            max_single_get_size=_SINGLE_BYTES_MAX,
            max_chunk_get_size=_SINGLE_BYTES_MAX,
            user_agent=options.user_agent,
            base_headers=dict(options.headers),
        )

    def _credential(self, by: _Renewed | None) -> Any:
        """What authorises us, as the library wants to have it.

        by  what a provider gave
        """
        from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

        options = self._options
        if options.skip_signature:
            return None
        authorization = self._fixed if by is None else by.authorization
        if authorization is None or isinstance(authorization, Bearer):
            return _Tokens(self)
        key, sas_token, _ = (options.account_key, options.sas_token, None) if by is None else by.credentials
        if isinstance(authorization, SharedKey):
            return AzureNamedKeyCredential(options.account, key or "")
        return AzureSasCredential(sas_token or "")

    def http(self) -> aiohttp.ClientSession:
        """The HTTP session below the library: no cookies, and no repetition of PUTs whose connection broke.

        A second one would meet the first one's result: a create-if-absent that won would be told that it lost.
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
        """By option or environment."""
        parts = urlsplit(self._options.endpoint or "")
        return self._options.find_proxy(parts.hostname or "", is_plain_http=parts.scheme == "http")

    @property
    def _proxies(self) -> dict[str, str]:
        return {} if self.proxy is None else {"http": self.proxy, "https": self.proxy}

    def tls_settings(self) -> TlsSettings:
        """Whom our own HTTP client has to trust."""
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

    def let_go(self) -> None:
        """See `LoopClients`."""
        if self._http is not None:
            self._http.detach()
            self._http = None


def _host_of(authority: str) -> str:
    """Of a URL, or of a name, which `azure.identity` takes for one."""
    return urlsplit(authority if "://" in authority else f"https://{authority}").hostname or ""


class _Renewed:
    """What authorises requests for a while: a token of Entra, or what a provider gave."""

    def __init__(self, options: AzureOptions, credentials: Credentials) -> None:
        self.credentials = credentials
        self.authorization = _authorization(options, credentials)

    @property
    def secrets(self) -> list[str]:
        """What must not appear in a message."""
        key, sas_token, token = self.credentials
        return [one for one in (key, signature_of(sas_token), token) if one]


class _Tokens:
    """Tokens as the library asks for them: those by which we read."""

    def __init__(self, clients: AccountClients) -> None:
        self._clients = clients

    async def get_token(self, *scopes: str, **_: Any) -> Any:
        """The token of this moment, which the library asks for again soon."""
        import time

        from azure.core.credentials import AccessToken

        clients = self._clients
        if clients._fixed is not None:
            return AccessToken(clients._options.token or "", int(time.time()) + 3600)
        found = await clients._tokens.get()
        return AccessToken(found.credentials.token or "", int(clients._tokens.expires_s or time.time() + 3600))


def _given(options: AzureOptions) -> Authorization | None:
    """What authorises requests by the options alone, in the order in which pylance looks at them."""
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
    """By the first of what there is."""
    if credentials.token is not None:
        return Bearer(credentials.token)
    if credentials.account_key is not None:
        return SharedKey(options.account, credentials.account_key, options.headers)
    return SharedAccess(credentials.sas_token or "")
