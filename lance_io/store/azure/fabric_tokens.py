"""Tokens of Microsoft Fabric, of the service that storage options name (`fabric_token_service_url`).

It is asked with the token of the session that runs there, and answers with a token for storage, which says itself when
it expires.
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

LIVES_S: Final = 3600.0  # of a token that does not say it
LEFT_S_MIN: Final = 300.0  # of a token that was given beside these options, so that it is used


class FabricTokens:
    """A credential as those of `azure.identity` are.

    first  a token that is used as long as it holds, before any is asked for
    """

    def __init__(self, options: AzureOptions, first: str | None = None) -> None:
        self._options = options
        self._first = first

    async def __aenter__(self) -> FabricTokens:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def get_token(self, *_: str) -> Any:
        """A token. Raises our errors."""
        from azure.core.credentials import AccessToken

        first, self._first = self._first, None
        expires_s = None if first is None else _expires_s(first)
        if first is None or expires_s is None or expires_s < time.time() + LEFT_S_MIN:
            first = await self._ask()
            expires_s = _expires_s(first)
        return AccessToken(first, int(time.time() + LIVES_S if expires_s is None else expires_s))

    async def _ask(self) -> str:
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
        how: dict[str, Any] = {
            "proxy": options.proxy_for(urlsplit(url).hostname or ""),
            "ssl": False if not options.verify else True if authorities is None else tls_context(authorities),
        }
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, params=query, headers=headers, allow_redirects=False, **how) as answer,
            ):
                if answer.status != 200:
                    raise AccessDenied(f"no token of Fabric's service: HTTP {answer.status}")
                token = (await answer.text()).strip()
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
            raise AccessDenied(f"no token of Fabric's service ({type(error).__name__})") from None
        if not token or not is_header_text(token):
            raise AccessDenied("no token of Fabric's service: the answer is none")
        return token


def _expires_s(token: str) -> float | None:
    """When a token says that it expires, in seconds since 1970; None where it does not."""
    parts = token.split(".")
    if len(parts) < 2:
        return None
    try:
        return float(json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))["exp"])
    except (ValueError, KeyError, TypeError):
        return None
