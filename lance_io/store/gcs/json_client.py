"""Requests of the JSON API other than ranged GETs: sent by gcsfs, once each, authorised and judged here.

Of gcsfs stays what forms and sends a request. Its repetitions would multiply with ours, and meet the result of a
write whose answer was lost; its search for credentials refreshes them on the event loop; its listings are cached;
its errors have lost the status. (`gcsfs.core` has the plain file system: what the package itself offers may speak gRPC
to a bucket, and stalls where nothing does.)
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
    from lance_io.store.http.exchange import Sink


OBJECT: Final = "b/{}/o/{}"
OBJECTS: Final = "b/{}/o"


class Request(NamedTuple):
    """What is to be done.

    method
    path, args  below `storage/v1/`, or a whole URL; `{}` in it for each of `args`
    query       parameters
    right       statuses that are an answer; all others are raised as errors of ours
    sink        takes the body of 200 and 206
    """

    method: str
    path: str
    args: tuple[str, ...] = ()
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})
    data: bytes | None = None
    right: tuple[int, ...] = (200, 201, 204)
    sink: Sink | None = None


class Answer(NamedTuple):
    """What was answered; headers are found by their names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def missing_library(name: str) -> ModuleNotFoundError:
    """The error for a package that the extra installs."""
    return ModuleNotFoundError(f"gs:// needs the package {name}: pip install 'lance_io[gcs]'", name=name)


async def load_library() -> None:
    """Have the client library imported, which takes half a second.

    Raises `ModuleNotFoundError`, which says what to install.
    """
    try:
        await load_modules("aiohttp", "gcsfs.core")
    except ModuleNotFoundError as error:
        raise missing_library(error.name or "gcsfs") from error


@cache
def _plain_file_system() -> type:
    from gcsfs.core import GCSFileSystem

    class PlainFileSystem(GCSFileSystem):  # type: ignore[misc]
        """gcsfs, which sends each request once and leaves it to us what an answer means."""

        async def _request(
            self,
            method: str,
            path: str,
            *args: str,
            headers: Any,
            data: io.BytesIO | None,
            timeout: Any,
            sink: Sink | None,
            **query: Any,
        ) -> Answer:
            """One request; a body that is right goes into the sink, piece by piece."""
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
                if sink is None or answer.status not in (200, 206):
                    return Answer(answer.status, answer.headers, await answer.read())
                sink.begin(answer.status, answer.headers)
                async for chunk in answer.content.iter_any():
                    sink.add(chunk)
                return Answer(answer.status, answer.headers, b"")

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
        self._session._retry_connection = False  # aiohttp would send a DELETE or PUT again whose connection broke
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

    async def ask(self, operation: str, key: str, request: Request) -> Answer:
        """Make a request, once.

        operation, key  for errors
        """
        token = None if self._options.skip_signature else await self._state.tokens.token(key)
        answer = await self._send(operation, key, request, token)
        if answer.status in request.right:
            return answer
        raise answer_error(*answer, key=key, operation=operation, secrets=self._state.secrets)

    async def _send(self, operation: str, key: str, request: Request, token: str | None) -> Answer:
        import aiohttp

        options, secrets, sink = self._options, self._state.secrets, request.sink
        num_bytes = len(request.data or b"") if sink is None else sink.num_bytes
        timeout = aiohttp.ClientTimeout(
            total=options.request_timeout_s + num_bytes / SLOWEST_BYTES_PER_S,
            sock_connect=options.connect_timeout_s,
            sock_read=options.silence_s if sink is None else options.stall_s,
        )
        authorised = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            answer: Answer = await self._gcsfs._request(
                request.method,
                request.path,
                *request.args,
                headers={**request.headers, **authorised},
                data=None if request.data is None else io.BytesIO(request.data),  # sent in pieces, not copied
                timeout=timeout,
                sink=sink,
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
        """The loop is closed already: let go without a word."""
        self._session.detach()
