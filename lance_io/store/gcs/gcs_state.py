"""State of a store on one event loop, apart from connections for GETs: tokens and the client for writes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from lance_io.store.cloud.loop_clients import LoopClients
from lance_io.store.gcs.google_tokens import Tokens
from lance_io.store.gcs.json_client import JsonClient, load_library
from lance_io.store.http.tls import TlsSettings

if TYPE_CHECKING:
    from lance_io.store.gcs.gcs_options import GcsOptions


class GcsState(LoopClients):
    """See the module's docstring."""

    store: ClassVar = "gs"
    variables: ClassVar = ("GOOGLE_", "CLOUDSDK_", "GCE_", "NO_GCE_CHECK")

    def __init__(self, options: GcsOptions, connections_max: int) -> None:
        super().__init__(options, connections_max)
        self._options = options
        self._connections_max = connections_max
        self._client: JsonClient | None = None
        self.tokens = Tokens(options)

    def has_fixed_credentials(self) -> bool:
        """See `LoopClients`."""
        options = self._options
        credentials = (options.token, options.service_account, options.provided)
        return options.skip_signature or any(value is not None for value in credentials)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages."""
        return self.tokens.secrets

    async def refetch(self) -> bool:
        """See `LoopClients`."""
        return not self._options.skip_signature and await self.tokens.refetch()

    async def client(self) -> JsonClient:
        """The client for requests other than ranged GETs, created at first use."""
        if self._client is None:
            await load_library()
        if self._client is None:
            self._client = JsonClient(self._options, self, self._connections_max)
        return self._client

    @cached_property
    def proxy(self) -> str | None:
        """The proxy from options or environment."""
        parts = urlsplit(self._options.base)
        return self._options.find_proxy(parts.hostname or "", is_plain_http=parts.scheme == "http")

    def tls_settings(self) -> TlsSettings:
        """TLS settings of our own HTTP client."""
        options = self._options
        return TlsSettings(authorities=options.ca_certificates) if options.verify else TlsSettings(verify=False)

    async def close(self) -> None:
        """See `LoopClients`."""
        client, self._client = self._client, None
        try:
            if client is not None:
                await client.close()
        finally:
            await self.tokens.close()

    def drop(self) -> None:
        """See `LoopClients`."""
        if self._client is not None:
            self._client.detach()
            self._client = None
