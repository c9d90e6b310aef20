"""Requests of the JSON API other than ranged GETs: gcsfs sends each once; authorisation and errors are handled here.

Only gcsfs's code that builds and sends requests is used. Its retries would multiply with ours, and could meet the
result of a write whose answer was lost; it refreshes credentials on the event loop; it caches listings; its errors lack
the status. (`gcsfs.core` has the plain file system: the package's own one may try gRPC, and stalls without a gRPC
server.)
"""

from __future__ import annotations

import io
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lance_io.errors import LanceError
from lance_io.redaction import hide_secrets
from lance_io.runtime import load_modules
from lance_io.store.cloud.client_options import (
    KEEPALIVE_S,
    SLOWEST_BYTES_PER_S,
    certificates_file,
    tls_context,
)
from lance_io.store.failures import StoreFailure, Transient, Unsent
from lance_io.store.gcs.refusals import answer_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.store.gcs.gcs_options import GcsOptions
    from lance_io.store.gcs.gcs_state import GcsState


OBJECT: Final = "b/{}/o/{}"
OBJECTS: Final = "b/{}/o"


class Request(NamedTuple):
    """A request.

    path, args  below `storage/v1/`, or a whole URL, with `{}` for each of `args`
    query       parameters
    accepted    statuses that are returned; others are raised as our errors
    """

    method: str
    path: str
    args: tuple[str, ...] = ()
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})
    data: bytes | None = None
    accepted: tuple[int, ...] = (200, 201, 204)


class Answer(NamedTuple):
    """An answer; names of headers are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def missing_library(name: str) -> ModuleNotFoundError:
    """The error for a missing package of the extra."""
    return ModuleNotFoundError(f"gs:// needs the package {name}: pip install 'lance_io[gcs]'", name=name)


async def load_library() -> None:
    """Import the client library, which takes half a second.

    Raises `ModuleNotFoundError`, which names the package to install.
    """
    try:
        await load_modules("aiohttp", "gcsfs.core")
    except ModuleNotFoundError as error:
        raise missing_library(error.name or "gcsfs") from error


@cache
def _plain_file_system() -> type:
    from gcsfs.core import GCSFileSystem

    class PlainFileSystem(GCSFileSystem):  # type: ignore[misc]
        """gcsfs without retries and without its own handling of answers."""

        async def _request(
            self,
            method: str,
            path: str,
            *args: str,
            headers: Any,
            data: io.BytesIO | None,
            timeout: Any,
            **query: Any,
        ) -> Answer:
            """Send one request."""
            request = self._session.request(
                method,
                self._format_path(path, args),
                params=self._get_params(query),
                headers=headers,
                data=data,
                allow_redirects=False,
                timeout=timeout,
            )
            async with request as answer:
                return Answer(answer.status, answer.headers, await answer.read())

    return PlainFileSystem


class JsonClient:
    """Sends requests on one event loop."""

    def __init__(self, options: GcsOptions, state: GcsState, connections_max: int) -> None:
        import aiohttp

        self._options = options
        self._state = state
        connector = aiohttp.TCPConnector(
            limit=connections_max, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=60, ssl=self._tls()
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=state.proxy,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            headers={"Accept-Encoding": "identity", "User-Agent": options.user_agent, **options.headers},
        )
        self._session._retry_connection = False  # aiohttp would resend a DELETE or PUT after a broken connection
        self._gcsfs = _plain_file_system()(
            endpoint_url=options.base, token="anon", asynchronous=True, skip_instance_cache=True
        )
        self._gcsfs._session = self._session

    def _tls(self) -> Any:
        options = self._options
        if not options.verify:
            return False
        bundle = certificates_file(options.ca_certificates)
        return True if bundle is None else tls_context(bundle)

    async def send(self, operation: str, key: str, request: Request) -> Answer:
        """Send a request once.

        operation, key  for errors
        """
        token = None if self._options.skip_signature else await self._state.tokens.token(key)
        answer = await self._send(operation, key, request, token)
        if answer.status in request.accepted:
            return answer
        raise answer_error(*answer, key=key, operation=operation, secrets=self._state.secrets)

    async def _send(self, operation: str, key: str, request: Request, token: str | None) -> Answer:
        import aiohttp

        options, secrets = self._options, self._state.secrets
        num_bytes = len(request.data or b"")
        timeout = aiohttp.ClientTimeout(
            total=options.request_timeout_s + num_bytes / SLOWEST_BYTES_PER_S,
            sock_connect=options.connect_timeout_s,
            sock_read=options.silence_s,
        )
        authorised = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            answer: Answer = await self._gcsfs._request(
                request.method,
                request.path,
                *request.args,
                headers={**request.headers, **authorised},
                data=None if request.data is None else io.BytesIO(request.data),  # zero-copy, sent in pieces
                timeout=timeout,
                **request.query,
            )
            return answer
        except LanceError:
            raise
        except (aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL) as error:
            text = hide_secrets(f"cannot connect ({type(error).__name__}: {error})", secrets)
            raise StoreFailure(text, path=key, operation=operation) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            text = hide_secrets(f"no connection ({type(error).__name__}: {error})", secrets)
            raise Unsent(text, path=key, operation=operation) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            text = hide_secrets(f"no answer ({type(error).__name__}: {error})", secrets)
            raise Transient(text, path=key, operation=operation) from None

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()

    def detach(self) -> None:
        """Release the connections of a loop that is already closed."""
        self._session.detach()
