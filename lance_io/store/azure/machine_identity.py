"""Tokens of a machine's identity, from a service named by a storage option (`msi_endpoint`).

azure.identity only supports Azure's metadata service or one named by variables. This module uses the same protocol with
another service: GET with `resource`, and the identity if there are several.
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
    """A credential with the interface of `azure.identity`."""

    def __init__(self, options: AzureOptions) -> None:
        self._options = options

    async def __aenter__(self) -> MachineIdentity:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def get_token(self, *_: str) -> Any:
        """A new token. Raises our errors."""
        import aiohttp
        from azure.core.credentials import AccessToken

        options = self._options
        ids = {"object_id": options.object_id, "client_id": options.client_id, "msi_res_id": options.msi_resource_id}
        query = {"api-version": API_VERSION, "resource": RESOURCE}
        query |= next(({name: text} for name, text in ids.items() if text), {})
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
                token = await answer.json(content_type=None)
            lives_s = float(token["expires_in"]) if "expires_in" in token else float(token["expires_on"]) - time.time()
            return AccessToken(str(token["access_token"]), int(time.time() + lives_s))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise AccessDenied(f"no token of the machine's identity ({type(error).__name__})") from None
        except (KeyError, TypeError, ValueError):
            raise AccessDenied("no token of the machine's identity: the service sent an invalid answer") from None
