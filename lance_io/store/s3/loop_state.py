"""State of an S3 store on one event loop: credentials, an aiobotocore client, an HTTP session for ranged GETs."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lance_io.errors import AccessDenied, LanceError
from lance_io.redaction import quiet_loggers
from lance_io.runtime import in_thread, load_modules
from lance_io.store.cloud.client_options import (
    certificates_file,
    is_header_text,
)
from lance_io.store.cloud.loop_clients import LoopClients
from lance_io.store.http.sigv4 import Signer
from lance_io.store.http.tls import TlsSettings
from lance_io.store.s3.bucket_options import has_profiles, static_keys
from lance_io.store.s3.client_sends import follow_sends
from lance_io.store.s3.credentials import Chain, ProvidedKeys, UsedKeys
from lance_io.store.s3.error_codes import credentials_error, no_credentials
from lance_io.store.s3.plain_profile import find_plain
from lance_io.store.s3.roles import assumed_by, token_secrets
from lance_io.store.s3.server_clock import SKEWED_ELSEWHERE, ServerClock
from lance_io.store.s3.service_clients import ATTEMPTS, LOGGERS, once_only_session, service_config, trusted_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.store.s3.bucket_options import S3Options
    from lance_io.store.s3.plain_profile import PlainProfile

REGION_DEFAULT = "us-east-1"
LOOK_S = 1.0  # check interval of credentials, which stay valid for longer (`MARGIN_S`)


@cache
def _service_data(data_path: str | None) -> Any:
    """botocore's description of S3, parsed once per process: 90 of the 100 ms that creating a client takes."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _read_service_data(session: Any) -> None:
    """Load and cache the data that a client needs, so that no event loop parses it."""
    loader = session.get_component("data_loader")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", kind)
    for name in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        loader.load_data(name)


def _expect_handler() -> Any:
    from botocore.handlers import add_expect_header

    return add_expect_header


async def load_library() -> None:
    """Import the client library, which takes half a second.

    Raises `ModuleNotFoundError`, which names the package to install.
    """
    try:
        await load_modules("aiobotocore.config", "aiobotocore.session", "aiobotocore.client", "aiohttp")
    except ModuleNotFoundError as error:
        raise missing_library(error.name or "aiobotocore") from error
    quiet_loggers(LOGGERS)


def missing_library(name: str) -> ModuleNotFoundError:
    """The error for a missing package of the extra."""
    return ModuleNotFoundError(f"s3:// needs the package {name}: pip install 'lance_io[s3]'", name=name)


def make_session(options: S3Options, store: str) -> tuple[Any, Chain | ProvidedKeys | None]:
    """An aiobotocore session, and its credential resolver unless the options hold credentials; sends no request.

    store  name of the store, for metrics
    Raises our errors.
    """
    from botocore.exceptions import BotoCoreError

    used = UsedKeys()

    def map_error(error: Exception) -> LanceError:
        return credentials_error(error, secrets=(*options.secrets, *token_secrets(options), *used.secrets))

    try:
        session = _open_session(options)
        chain: Chain | ProvidedKeys | None = None
        if options.provided is not None:
            chain = ProvidedKeys(options.provided, store)
            session.register_component("credential_provider", chain)
        elif options.role is not None:
            chain = Chain(_role_search(options, used, session), map_error, store, _role_search(options, used))
            session.register_component("credential_provider", chain)
        elif options.access_key is not None:
            session.set_credentials(options.access_key, options.secret_key, options.token)
        else:
            resolver = session.get_component("credential_provider")
            chain = Chain(resolver.load_credentials, map_error, store, partial(_search_again, options))
            session.register_component("credential_provider", chain)
        session.register_component("data_loader", _service_data(session.get_config_variable("data_path")))
    except BotoCoreError as error:  # missing or invalid profiles
        raise map_error(error) from None
    return session, chain


def _open_session(options: S3Options) -> Any:
    """A new aiobotocore session without cached credentials."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=options.profile)
    attempts_max = min(ATTEMPTS, options.retry.attempts_max)
    sts_endpoint = None if options.role is None else options.role.sts_endpoint
    session.set_default_client_config(service_config(options, "sts", sts_endpoint, attempts_max))
    if (trust := trusted_by(options)) is not None:
        session.set_config_variable("ca_bundle", trust)
    if options.ignores_configured_endpoints:  # also for STS
        session.set_config_variable("ignore_configured_endpoint_urls", True)
    if options.metadata_endpoint is not None:
        session.set_config_variable("ec2_metadata_service_endpoint", options.metadata_endpoint)
    if not options.imdsv1_fallback:
        session.set_config_variable("ec2_metadata_v1_disabled", True)
    if options.container_variables:
        provider = session.get_component("credential_provider").get_provider("container-role")
        provider._environ = {**os.environ, **options.container_variables}
    clock = ServerClock(SKEWED_ELSEWHERE)
    clock.follow(session, "sts")
    clock.follow_expirations(session, "sts")
    return session


def _role_search(options: S3Options, used: UsedKeys, session: Any = None) -> Callable[[], Awaitable[Any]]:
    """A search for credentials of the role in the options.

    used     records the keys that assume the role
    session  a new session for the first search; None to open one per search
    """

    async def find_source() -> Any:
        from aiobotocore.credentials import AioCredentials

        if options.access_key is not None:
            return AioCredentials(options.access_key, options.secret_key, options.token)
        credentials = await _search_again(options)
        if credentials is not None:
            used.note(await credentials.get_frozen_credentials())
        return credentials

    async def assume() -> Any:
        assert options.role is not None
        own_session = session or await in_thread(partial(_open_session, options))
        region = options.region or own_session.get_config_variable("region") or REGION_DEFAULT
        return await assumed_by(options.role, own_session, region, find_source)()

    return assume


def _plain_profile(options: S3Options) -> PlainProfile | None:
    return find_plain(options, os.environ) if has_profiles(options, os.environ) else None


async def _search_again(options: S3Options) -> Any:
    """Credentials found by a new session, because a used one caches files and assumed roles."""

    def open_resolver() -> Any:
        return _open_session(options).get_component("credential_provider")

    return await (await in_thread(open_resolver)).load_credentials()


async def credentials_of(session: Any) -> Any:
    """The current credentials of a session, renewed if they have expired.

    Raises our errors, without a `path`.
    """
    credentials = await session.get_credentials()
    if credentials is None:
        raise no_credentials()
    return await credentials.get_frozen_credentials()


class LoopState(LoopClients):
    """Clients of one event loop; call every method on that loop."""

    store = "s3"
    variables = ("AWS_", "BOTO")

    def __init__(self, options: S3Options, connections_max: int) -> None:
        super().__init__(options, connections_max)
        self._options = options
        self._connections_max = connections_max
        self._keys = static_keys(options, os.environ)
        self._profile = _plain_profile(options)
        self._used = UsedKeys()
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._session: Any = None  # aiobotocore's session: configuration and credentials
        self._chain: Chain | ProvidedKeys | None = None  # its credential resolver, unless the options hold credentials
        self._client: Any = None
        self._signer: tuple[tuple[str, str, str | None, str], Signer] | None = None
        self._region: str | None = options.region
        self._checked_s = float("-inf")  # when credentials were last checked, by the loop's clock
        self.clock = ServerClock()

    # -- configuration and credentials ------------------------------------------------------------------------------

    def session(self) -> Any:
        """aiobotocore's session; reads the profile files, sends no request. Raises our errors."""
        if self._session is None:
            self._session, self._chain = make_session(self._options, self.store)
        return self._session

    @property
    def region(self) -> str:
        """Region by options, environment or profile; corrected when the store reports the bucket's actual region."""
        if self._region is None:
            self._region = self._setting("region") or REGION_DEFAULT
        return self._region

    @region.setter
    def region(self, region: str) -> None:
        self._region = region
        self._checked_s = float("-inf")

    def _setting(self, name: str) -> str | None:
        """A setting of the profile files."""
        if not has_profiles(self._options, os.environ):
            return None
        if self._profile is not None:
            return self._profile.values.get(name)
        value: str | None = self.session().get_config_variable(name)
        return value

    async def prepare(self) -> None:
        """Import the client library if it is needed for region, credentials or certificates.

        Reading needs no import if options, environment and plain profiles set all of these.
        """
        options = self._options
        has_keys = options.skip_signature or self._static_keys is not None
        if not has_keys or (self._profile is None and has_profiles(options, os.environ)):
            await load_library()

    @property
    def _static_keys(self) -> tuple[str, str, str | None] | None:
        """Keys that need no library: from options and environment, or else from a plain profile."""
        if self._keys is not None or self._profile is None or self._profile.keys is None:
            return self._keys
        keys = self._used.note(self._profile.keys)
        return keys.access_key, keys.secret_key, keys.token

    async def signer(self, key: str) -> Signer | None:
        """Signer with the current credentials, renewed if they have expired; None if anonymous.

        key  for errors
        """
        if self._options.skip_signature:
            return None
        identity = (*(self._static_keys or await self._keys_of_chain(key)), self.region)
        if self._signer is None or self._signer[0] != identity:
            if not all(is_header_text(text) for text in (identity[0], identity[2] or "", self.region)):
                raise AccessDenied("access key, session token or region have characters invalid in a header", path=key)
            self._signer = identity, Signer(*identity)
        self._checked_s = self._loop.time()
        return self._signer[1]

    async def _keys_of_chain(self, key: str) -> tuple[str, str, str | None]:
        """Like `static_keys`, from aiobotocore, renewed before they expire (`credentials.py`)."""
        await load_library()
        try:
            keys = await credentials_of(self.session())
        except LanceError as error:
            error.path = error.path or key
            raise
        return keys.access_key, keys.secret_key, keys.token

    async def refetch(self) -> bool:
        """See `LoopClients`; also rereads the environment."""
        options, chain = self._options, self._chain
        if options.skip_signature or (options.access_key is not None and options.role is None):
            return False
        before = self._static_keys
        self._keys, self._profile = static_keys(options, os.environ), _plain_profile(options)
        self._checked_s = float("-inf")
        is_other = chain is not None and await chain.search_again()
        return is_other or self._static_keys != before

    def has_signer(self, now_s: float) -> bool:
        """Whether `current_signer` is up to date; `now_s` by the loop's clock."""
        if self._options.skip_signature or now_s - self._checked_s < LOOK_S:
            return True
        keys = self._static_keys
        if keys is None and self._chain is not None and (current := self._chain.get_nowait()) is not None:
            keys = current.access_key, current.secret_key, current.token
        if keys is None or self._signer is None or self._signer[0] != (*keys, self.region):
            return False
        self._checked_s = now_s
        return True

    @property
    def current_signer(self) -> Signer | None:
        """The last result of `signer`; None if anonymous."""
        return None if self._signer is None else self._signer[1]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages: credentials from options, and recently used ones."""
        used = self._signer[0][:3] if self._signer is not None else ()
        recent = () if self._chain is None else self._chain.secrets
        return (*self._options.secrets, *recent, *self._used.secrets, *(secret for secret in used if secret))

    # -- clients ----------------------------------------------------------------------------------------------------

    async def client(self) -> Any:
        """aiobotocore's S3 client."""
        if self._client is None:
            await load_library()
            async with self._lock:
                if self._client is None:
                    await in_thread(_read_service_data, self.session())
                    client = await self._stack.enter_async_context(self._open_client())
                    # "Expect: 100-continue" would add a round trip to each write.
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
            "retries": {"mode": "standard", "total_max_attempts": 1},  # we retry and count requests ourselves
            "s3": {"addressing_style": "virtual" if options.virtual_hosted else "path"},
            "user_agent_extra": options.user_agent,
        }
        if options.unsigned_payload:
            config["s3"]["payload_signing_enabled"] = False
        if options.skip_signature:
            config["signature_version"] = UNSIGNED
        if options.proxy:
            proxy = options.proxy_for(self._host)
            config["proxies"] = {"http": proxy, "https": proxy}  # None also disables the environment's proxy
        config["http_session_cls"] = once_only_session()
        if options.checksum_calculation:
            config["request_checksum_calculation"] = options.checksum_calculation
            config["response_checksum_validation"] = options.checksum_calculation
        return self.session().create_client(
            "s3",
            region_name=self.region,
            endpoint_url=options.endpoint,
            verify=self._verify,
            config=AioConfig(**config),
        )

    @property
    def _verify(self) -> str | bool | None:
        """aiobotocore's `verify`: a file of certificates, None for its default, False for no check."""
        if not self._options.verify or self._is_plain_http:
            return False
        return self._ca_file

    @property
    def _ca_file(self) -> str | None:
        return certificates_file(self._options.ca_certificates)

    @property
    def _is_plain_http(self) -> bool:
        return (self._options.endpoint or "").startswith("http://")

    def tls_settings(self) -> TlsSettings:
        """TLS settings of our own HTTP client."""
        options = self._options
        if not options.verify:
            return TlsSettings(verify=False)
        return TlsSettings(authorities=options.ca_certificates or self._bundle)

    @property
    def _bundle(self) -> str | None:
        """File of trusted certificates from environment or profile."""
        return os.environ.get("AWS_CA_BUNDLE") or self._setting("ca_bundle")

    @property
    def _host(self) -> str:
        return urlsplit(self._options.endpoint or "https://s3.amazonaws.com").hostname or ""

    # -- sharing, and the end ---------------------------------------------------------------------------------------

    def has_fixed_credentials(self) -> bool:
        """See `LoopClients`."""
        options = self._options
        return options.skip_signature or options.provided is not None or self._keys is not None

    async def close(self) -> None:
        """See `LoopClients`."""
        self._client = None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        finally:
            if self._chain is not None:
                await self._chain.close()

    def drop(self) -> None:
        """See `LoopClients`; the exit stack holds no socket of its own."""
