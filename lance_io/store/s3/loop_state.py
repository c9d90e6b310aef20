"""What an S3 store needs per event loop: credentials, an aiobotocore client, an HTTP session for ranged GETs."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lance_io.errors import AccessDenied, LanceError
from lance_io.redaction import quiet_loggers
from lance_io.runtime import in_thread, load_modules
from lance_io.store.cloud.client_options import (
    KEEPALIVE_S,
    READ_BUFFER_BYTES,
    certificates_file,
    is_header_text,
    tls_context,
)
from lance_io.store.cloud.loop_clients import LoopClients
from lance_io.store.http.sigv4 import Signer
from lance_io.store.http.tls import TlsSettings
from lance_io.store.s3.bucket_options import has_profiles, keys_at_hand
from lance_io.store.s3.client_sends import follow_sends
from lance_io.store.s3.credentials import Chain, ProvidedKeys, UsedKeys
from lance_io.store.s3.error_codes import credentials_error, no_credentials
from lance_io.store.s3.plain_profile import find_plain
from lance_io.store.s3.roles import assumed_by, token_secrets
from lance_io.store.s3.server_clock import SKEWED_ELSEWHERE, ServerClock
from lance_io.store.s3.service_clients import ATTEMPTS, LOGGERS, once_only_session, service_config, trusted_by

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    import aiohttp

    from lance_io.store.s3.bucket_options import S3Options
    from lance_io.store.s3.plain_profile import PlainProfile

REGION_DEFAULT = "us-east-1"
LOOK_S = 1.0  # between two looks at credentials, which hold for longer than that (`MARGIN_S`)


@cache
def _service_data(data_path: str | None) -> Any:
    """What botocore knows of S3, read and parsed once per process: 90 of the 100 ms that making a client costs."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _read_service_data(session: Any) -> None:
    """Read what a client will ask for, which is kept from then on: no loop is to parse it."""
    loader = session.get_component("data_loader")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", kind)
    for name in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        loader.load_data(name)


def _expect_handler() -> Any:
    from botocore.handlers import add_expect_header

    return add_expect_header


async def load_library() -> None:
    """Have the client library imported, which takes half a second.

    Raises `ModuleNotFoundError`, which says what to install.
    """
    try:
        await load_modules("aiobotocore.config", "aiobotocore.session", "aiobotocore.client", "aiohttp")
    except ModuleNotFoundError as error:
        raise missing_library(error.name or "aiobotocore") from error
    quiet_loggers(LOGGERS)


def missing_library(name: str) -> ModuleNotFoundError:
    """The error for a package that the extra installs."""
    return ModuleNotFoundError(f"s3:// needs the package {name}: pip install 'lance_io[s3]'", name=name)


def make_session(options: S3Options, store: str) -> tuple[Any, Chain | ProvidedKeys | None]:
    """A session of aiobotocore's, and what finds credentials for it, unless they were given; makes no request.

    store  whom it asks, for metrics
    Raises our errors.
    """
    from botocore.exceptions import BotoCoreError

    used = UsedKeys()

    def failed(error: Exception) -> LanceError:
        return credentials_error(error, secrets=(*options.secrets, *token_secrets(options), *used.secrets))

    try:
        session = _open_session(options)
        chain: Chain | ProvidedKeys | None = None
        if options.provided is not None:
            chain = ProvidedKeys(options.provided, store)
            session.register_component("credential_provider", chain)
        elif options.role is not None:
            chain = Chain(_assume_again(options, used, session), failed, store, _assume_again(options, used))
            session.register_component("credential_provider", chain)
        elif options.access_key is not None:
            session.set_credentials(options.access_key, options.secret_key, options.token)
        else:
            resolver = session.get_component("credential_provider")
            chain = Chain(resolver.load_credentials, failed, store, partial(_find_again, options))
            session.register_component("credential_provider", chain)
        session.register_component("data_loader", _service_data(session.get_config_variable("data_path")))
    except BotoCoreError as error:  # files of profiles that say nothing, or nonsense
        raise failed(error) from None
    return session, chain


def _open_session(options: S3Options) -> Any:
    """A session of aiobotocore's that has not looked for anything yet."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=options.profile)
    attempts_max = min(ATTEMPTS, options.retry.attempts_max)
    sts_endpoint = None if options.role is None else options.role.sts_endpoint
    session.set_default_client_config(service_config(options, "sts", sts_endpoint, attempts_max))
    if (trust := trusted_by(options)) is not None:
        session.set_config_variable("ca_bundle", trust)
    if options.ignores_endpoints:  # those of STS, too
        session.set_config_variable("ignore_configured_endpoint_urls", True)
    if options.metadata_endpoint is not None:
        session.set_config_variable("ec2_metadata_service_endpoint", options.metadata_endpoint)
    if not options.old_metadata:
        session.set_config_variable("ec2_metadata_v1_disabled", True)
    if options.container:
        provider = session.get_component("credential_provider").get_provider("container-role")
        provider._environ = {**os.environ, **options.container}
    clock = ServerClock(SKEWED_ELSEWHERE)
    clock.follow(session, "sts")
    clock.follow_expirations(session, "sts")
    return session


def _assume_again(options: S3Options, used: UsedKeys, session: Any = None) -> Callable[[], Awaitable[Any]]:
    """What finds credentials of the role that the options name.

    used     gets to know by which keys it is asked for
    session  the first time: nobody has looked with it
    """

    async def find_source() -> Any:
        from aiobotocore.credentials import AioCredentials

        if options.access_key is not None:
            return AioCredentials(options.access_key, options.secret_key, options.token)
        found = await _find_again(options)
        if found is not None:
            used.note(await found.get_frozen_credentials())
        return found

    async def assume() -> Any:
        assert options.role is not None
        asking = session or await in_thread(partial(_open_session, options))
        region = options.region or asking.get_config_variable("region") or REGION_DEFAULT
        return await assumed_by(options.role, asking, region, find_source)()

    return assume


def _plain_profile(options: S3Options) -> PlainProfile | None:
    return find_plain(options, os.environ) if has_profiles(options, os.environ) else None


async def _find_again(options: S3Options) -> Any:
    """Credentials as a new session finds them: one that has looked remembers files and assumed roles."""

    def open_resolver() -> Any:
        return _open_session(options).get_component("credential_provider")

    return await (await in_thread(open_resolver)).load_credentials()


async def credentials_of(session: Any) -> Any:
    """The credentials of a session at this moment, renewed if they have expired.

    Raises our errors, which do not say yet what was to be asked.
    """
    credentials = await session.get_credentials()
    if credentials is None:
        raise no_credentials()
    return await credentials.get_frozen_credentials()


class LoopState(LoopClients):
    """Clients of one event loop; every method runs on that loop."""

    store = "s3"
    variables = ("AWS_", "BOTO")

    def __init__(self, options: S3Options, connections_max: int) -> None:
        super().__init__(options, connections_max)
        self._options = options
        self._connections_max = connections_max
        self._keys = keys_at_hand(options, os.environ)
        self._profile = _plain_profile(options)
        self._used = UsedKeys()
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._session: Any = None  # aiobotocore's session: configuration and credentials
        self._chain: Chain | ProvidedKeys | None = None  # what finds credentials for it, unless they were given
        self._client: Any = None
        self._http: aiohttp.ClientSession | None = None
        self._signer: tuple[tuple[str, str, str | None, str], Signer] | None = None
        self._region: str | None = options.region
        self._looked_s = float("-inf")  # when credentials were last looked at, by the loop's clock
        self.clock = ServerClock()

    # -- configuration and credentials ------------------------------------------------------------------------------

    def session(self) -> Any:
        """aiobotocore's session; reads the profile files, makes no request. Raises our errors."""
        if self._session is None:
            self._session, self._chain = make_session(self._options, self.store)
        return self._session

    @property
    def region(self) -> str:
        """By options, environment or profile; corrected when the store says where the bucket really is."""
        if self._region is None:
            self._region = self._setting("region") or REGION_DEFAULT
        return self._region

    @region.setter
    def region(self, region: str) -> None:
        self._region = region
        self._looked_s = float("-inf")

    def _setting(self, name: str) -> str | None:
        """What the files of profiles say."""
        if not has_profiles(self._options, os.environ):
            return None
        if self._profile is not None:
            return self._profile.values.get(name)
        value: str | None = self.session().get_config_variable(name)
        return value

    async def prepare(self) -> None:
        """Have the client library at hand, if region, credentials or certificates have to be asked of it.

        Where options, environment and plain profiles say all of it, reading does without: nothing of it is imported.
        """
        options = self._options
        has_keys = options.skip_signature or self._keys_at_hand is not None
        if not has_keys or (self._profile is None and has_profiles(options, os.environ)):
            await load_library()

    @property
    def _keys_at_hand(self) -> tuple[str, str, str | None] | None:
        """Keys that need no library: those of options and environment, else those of a plain profile."""
        if self._keys is not None or self._profile is None or self._profile.keys is None:
            return self._keys
        found = self._used.note(self._profile.keys)
        return found.access_key, found.secret_key, found.token

    async def signer(self, key: str) -> Signer | None:
        """Signs with the credentials of this moment, renewed if they have expired; None if anonymous.

        key  named in the error
        """
        if self._options.skip_signature:
            return None
        identity = (*(self._keys_at_hand or await self._keys_of_chain(key)), self.region)
        if self._signer is None or self._signer[0] != identity:
            if not all(is_header_text(text) for text in (identity[0], identity[2] or "", self.region)):
                raise AccessDenied("access key, session token or region hold characters that no header can", path=key)
            self._signer = identity, Signer(*identity)
        self._looked_s = self._loop.time()
        return self._signer[1]

    async def _keys_of_chain(self, key: str) -> tuple[str, str, str | None]:
        """As `keys_at_hand`, by way of aiobotocore, renewed ahead of their end (`credentials.py`)."""
        await load_library()
        try:
            found = await credentials_of(self.session())
        except LanceError as error:
            error.path = error.path or key
            raise
        return found.access_key, found.secret_key, found.token

    async def ask_again(self) -> bool:
        """See `LoopClients`; of credentials in the environment, what it says by now."""
        options, chain = self._options, self._chain
        if options.skip_signature or (options.access_key is not None and options.role is None):
            return False
        before = self._keys_at_hand
        self._keys, self._profile = keys_at_hand(options, os.environ), _plain_profile(options)
        self._looked_s = float("-inf")
        is_other = chain is not None and await chain.look_again()
        return is_other or self._keys_at_hand != before

    def has_signer(self, now_s: float) -> bool:
        """Whether `signer_at_hand` is as good as what `signer` would give; `now_s` by the loop's clock."""
        if self._options.skip_signature or now_s - self._looked_s < LOOK_S:
            return True
        keys = self._keys_at_hand
        if keys is None and self._chain is not None and (found := self._chain.at_hand()) is not None:
            keys = found.access_key, found.secret_key, found.token
        if keys is None or self._signer is None or self._signer[0] != (*keys, self.region):
            return False
        self._looked_s = now_s
        return True

    @property
    def signer_at_hand(self) -> Signer | None:
        """What `signer` gave last; None if anonymous."""
        return None if self._signer is None else self._signer[1]

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in a message: the credentials given, and those last used."""
        used = self._signer[0][:3] if self._signer is not None else ()
        found = () if self._chain is None else self._chain.secrets
        return (*self._options.secrets, *found, *self._used.secrets, *(secret for secret in used if secret))

    # -- clients ----------------------------------------------------------------------------------------------------

    async def client(self) -> Any:
        """aiobotocore's S3 client."""
        if self._client is None:
            await load_library()
            async with self._lock:
                if self._client is None:
                    await in_thread(_read_service_data, self.session())
                    client = await self._stack.enter_async_context(self._open_client())
                    # Asking before a body is sent ("Expect: 100-continue") makes every write two round trips.
                    client.meta.events.unregister("before-call.s3", _expect_handler())
                    self.clock.follow(client.meta.events, "s3")
                    follow_sends(client.meta.events, "s3")
                    if self._options.headers:
                        client.meta.events.register("before-sign.s3", self._add_headers)
                    self._client = client
        return self._client

    def _add_headers(self, request: Any, **_: Any) -> None:
        for name, text in self._options.headers.items():
            request.headers[name] = text

    def _open_client(self) -> Any:
        from aiobotocore.config import AioConfig
        from botocore import UNSIGNED

        options = self._options
        config: dict[str, Any] = {
            "connect_timeout": options.connect_timeout_s,
            "read_timeout": options.silence_s,
            "max_pool_connections": self._connections_max,
            "retries": {"mode": "standard", "total_max_attempts": 1},  # we repeat requests ourselves, and count them
            "s3": {"addressing_style": "virtual" if options.virtual_hosted else "path"},
            "user_agent_extra": options.user_agent,
        }
        if options.unsigned_payload:
            config["s3"]["payload_signing_enabled"] = False
        if options.skip_signature:
            config["signature_version"] = UNSIGNED
        if options.proxy:
            proxy = options.proxy_for(self._host)
            config["proxies"] = {"http": proxy, "https": proxy}  # with None: not even that of the environment
        config["http_session_cls"] = once_only_session()
        if options.checksums:
            config["request_checksum_calculation"] = options.checksums
            config["response_checksum_validation"] = options.checksums
        return self.session().create_client(
            "s3",
            region_name=self.region,
            endpoint_url=options.endpoint,
            verify=self._verify,
            config=AioConfig(**config),
        )

    @property
    def _verify(self) -> str | bool | None:
        """Certificates as aiobotocore wants to be told: a file, its default (None), or no check (nothing to check)."""
        if not self._options.verify or self._is_plain_http:
            return False
        return self._ca_file

    @property
    def _ca_file(self) -> str | None:
        return certificates_file(self._options.ca_certificates)

    @property
    def _is_plain_http(self) -> bool:
        return (self._options.endpoint or "").startswith("http://")

    def http(self) -> aiohttp.ClientSession:
        """The HTTP session of the ranged GETs: no cookies, no decompression, no redirects followed."""
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
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                headers={"Accept-Encoding": "identity", "User-Agent": self._options.user_agent},
            )
            self._http._retry_connection = False  # we repeat requests ourselves, and count them
        return self._http

    @cached_property
    def proxy(self) -> str | None:
        """The proxy of the ranged GETs, by option or environment."""
        return self._options.find_proxy(self._host, is_plain_http=self._is_plain_http)

    def tls_settings(self) -> TlsSettings:
        """Whom our own HTTP client has to trust."""
        options = self._options
        if not options.verify:
            return TlsSettings(verify=False)
        return TlsSettings(authorities=options.ca_certificates or self._bundle)

    @property
    def _bundle(self) -> str | None:
        """The file of trusted certificates that environment or profile name."""
        return os.environ.get("AWS_CA_BUNDLE") or self._setting("ca_bundle")

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._options.verify or self._is_plain_http:
            return False
        bundle = self._ca_file or self._bundle
        if bundle is None:
            return True
        return tls_context(bundle)

    @property
    def _host(self) -> str:
        return urlsplit(self._options.endpoint or "https://s3.amazonaws.com").hostname or ""

    # -- sharing, and the end ---------------------------------------------------------------------------------------

    def is_known(self) -> bool:
        """See `LoopClients`."""
        options = self._options
        return options.skip_signature or options.provided is not None or self._keys is not None

    async def close(self) -> None:
        """See `LoopClients`."""
        http, self._http, self._client = self._http, None, None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            if http is not None:
                await http.close()
        finally:
            await stack.aclose()
            if self._chain is not None:
                await self._chain.close()

    def let_go(self) -> None:
        """See `LoopClients`."""
        if self._http is not None:
            self._http.detach()
            self._http = None
