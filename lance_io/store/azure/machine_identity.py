"""Tokens of a machine's identity, of a service that storage options name (`msi_endpoint`).

azure.identity asks the service that Azure's machines have, or one that variables name; this asks another by the same
protocol: GET with `resource`, and which identity where there are several.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import AccessDenied

if TYPE_CHECKING:
    from lance_io.store.azure.container_options import AzureOptions

API_VERSION: Final = "2019-08-01"
RESOURCE: Final = "https://storage.azure.com"


class MachineIdentity:
    """A credential as those of `azure.identity` are."""

    def __init__(self, options: AzureOptions) -> None:
        self._options = options

    async def __aenter__(self) -> MachineIdentity:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def get_token(self, *_: str) -> Any:
        """A token. Raises our errors."""
        import aiohttp
        from azure.core.credentials import AccessToken

        options = self._options
        named = {"object_id": options.object_id, "client_id": options.client_id, "msi_res_id": options.msi_resource_id}
        query = {"api-version": API_VERSION, "resource": RESOURCE}
        query |= next(({name: text} for name, text in named.items() if text), {})
        headers = {"metadata": "true"}
        if identity := os.environ.get("IDENTITY_HEADER"):
            headers["x-identity-header"] = identity
        timeout = aiohttp.ClientTimeout(total=options.request_timeout_s, sock_connect=options.connect_timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(options.msi_endpoint or "", params=query, headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise AccessDenied(f"no token of the machine's identity: HTTP {answer.status}")
                found = await answer.json(content_type=None)
            lives_s = float(found["expires_in"]) if "expires_in" in found else float(found["expires_on"]) - time.time()
            return AccessToken(str(found["access_token"]), int(time.time() + lives_s))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise AccessDenied(f"no token of the machine's identity ({type(error).__name__})") from None
        except (KeyError, TypeError, ValueError):
            raise AccessDenied("no token of the machine's identity: the answer is none of such a service") from None
