"""What a store needs per event loop beside connections for GETs: tokens, and the client that writes.

Stores of the same options share it (`share_state`): finding credentials and making a client cost more than a write.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lance_io.store.forking import never_finalize
from lance_io.store.gcs.json_client import JsonClient, load_library
from lance_io.store.gcs.tokens import Tokens
from lance_io.store.http.tls import TlsSettings

if TYPE_CHECKING:
    from lance_io.store.gcs.gcs_options import GcsOptions

SHARED_S = 15.0  # after which a new store looks for credentials itself: files may say something else by now
_ENVIRONMENT = ("GOOGLE_", "CLOUDSDK_", "GCE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HOME")


class GcsState:
    """See the module's description; every method runs on its loop."""

    def __init__(self, options: GcsOptions, connections_max: int) -> None:
        self._options = options
        self._connections_max = connections_max
        self._environment = _read_environment()
        self._loop = asyncio.get_running_loop()
        self._made_s = self._loop.time()
        self._users: set[object] = set()
        self._client: JsonClient | None = None
        self.tokens = Tokens(options)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in a message."""
        token = self.tokens.known
        return () if token is None else (token,)

    async def client(self) -> JsonClient:
        """What sends requests other than ranged GETs."""
        if self._client is None:
            await load_library()
        if self._client is None:
            self._client = JsonClient(self._options, self, self._connections_max)
        return self._client

    @cached_property
    def proxy(self) -> str | None:
        """By option or environment."""
        parts = urlsplit(self._options.base)
        return self._options.find_proxy(parts.hostname or "", is_plain_http=parts.scheme == "http")

    def tls_settings(self) -> TlsSettings:
        """Whom our own HTTP client has to trust."""
        options = self._options
        return TlsSettings(authorities=options.ca_certificates) if options.verify else TlsSettings(verify=False)

    def fits(self, options: GcsOptions, connections_max: int, environment: list[tuple[str, str]]) -> bool:
        """Whether a new store on the running loop may share this, which then is as good as one of its own."""
        if self._loop is not asyncio.get_running_loop() or environment != self._environment:
            return False
        is_known = options.skip_signature or options.token is not None or options.service_account is not None
        is_new = is_known or self._loop.time() - self._made_s < SHARED_S
        return is_new and connections_max == self._connections_max and options == self._options

    def join(self, user: object) -> None:
        """One more uses this, until it leaves."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Close everything if nobody else uses it; what is asked for afterwards opens anew."""
        self._users.discard(user)
        if self._users:
            return
        with suppress(ValueError):
            _shared.remove(self)
        client, self._client = self._client, None
        try:
            if client is not None:
                await client.close()
        finally:
            await self.tokens.close()

    def detach(self) -> None:
        """The loop is closed already: let go without a word."""
        with suppress(ValueError):
            _shared.remove(self)
        if self._client is not None:
            self._client.detach()
            self._client = None


_shared: list[GcsState] = []  # few: a process knows few buckets


def share_state(options: GcsOptions, connections_max: int, user: object) -> GcsState:
    """The state of a store on the running loop: that of another one which was told the same, or a new one.

    user  leaves it again
    """
    environment = _read_environment()
    for state in _shared:
        if state.fits(options, connections_max, environment):
            break
    else:
        state = GcsState(options, connections_max)
        _shared.append(state)
    state.join(user)
    return state


def _read_environment() -> list[tuple[str, str]]:
    """What credentials and proxies depend on."""
    return [(name, value) for name, value in os.environ.items() if name.upper().startswith(_ENVIRONMENT)]


def _forget_all() -> None:
    """In a forked child: they are the parent's."""
    never_finalize(list(_shared))
    _shared.clear()


os.register_at_fork(after_in_child=_forget_all)
