"""Tokens of Microsoft Fabric, from a service named by a storage option (`fabric_token_service_url`).

The service takes the token of the running Fabric session and returns a token for storage, which contains its expiry.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.errors import AccessDenied
from lance_io.store.azure.machine_identity import RESOURCE
from lance_io.store.cloud.client_options import certificates_file, is_header_text, tls_context

if TYPE_CHECKING:
    from lance_io.store.azure.container_options import AzureOptions

LIVES_S: Final = 3600.0  # assumed lifetime of a token without an expiry
LEFT_S_MIN: Final = 300.0  # minimum remaining lifetime of a token in the options


class FabricTokens:
    """A credential with the interface of `azure.identity`.

    first  a token to use while it is valid, before fetching any
    """

    def __init__(self, options: AzureOptions, first: str | None = None) -> None:
        self._options = options
        self._first = first

    async def __aenter__(self) -> FabricTokens:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def get_token(self, *_: str) -> Any:
        """The first token, or a new one. Raises our errors."""
        from azure.core.credentials import AccessToken

        first, self._first = self._first, None
        expires_s = None if first is None else _expires_s(first)
        if first is None or expires_s is None or expires_s < time.time() + LEFT_S_MIN:
            first = await self._fetch()
            expires_s = _expires_s(first)
        return AccessToken(first, int(time.time() + LIVES_S if expires_s is None else expires_s))

    async def _fetch(self) -> str:
        import aiohttp

        options = self._options
        headers = {
            "x-ms-partner-token": options.fabric_session_token or "",
            "x-ms-cluster-identifier": options.fabric_cluster_identifier or "",
            "x-ms-workload-resource-moniker": options.fabric_cluster_identifier or "",
            "x-ms-proxy-host": options.fabric_workload_host or "",
        }
        timeout = aiohttp.ClientTimeout(total=options.request_timeout_s, sock_connect=options.connect_timeout_s)
        url, query = options.fabric_token_service_url or "", {"resource": RESOURCE}
        authorities = certificates_file(options.ca_certificates)
        arguments: dict[str, Any] = {
            "proxy": options.proxy_for(urlsplit(url).hostname or ""),
            "ssl": False if not options.verify else True if authorities is None else tls_context(authorities),
        }
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, params=query, headers=headers, allow_redirects=False, **arguments) as answer,
            ):
                if answer.status != 200:
                    raise AccessDenied(f"no token of Fabric's service: HTTP {answer.status}")
                token = (await answer.text()).strip()
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
            raise AccessDenied(f"no token of Fabric's service ({type(error).__name__})") from None
        if not token or not is_header_text(token):
            raise AccessDenied("no token of Fabric's service: the answer is not a token")
        return token


def _expires_s(token: str) -> float | None:
    """Expiry of a token in seconds since 1970; None if the token has none."""
    parts = token.split(".")
    if len(parts) < 2:
        return None
    try:
        return float(json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))["exp"])
    except (ValueError, KeyError, TypeError):
        return None
