"""GETs through Azure's own library, which knows proxies, at ten times the cost of our own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import LanceError
from lance_io.store.azure.blob_errors import Refused, library_error, unreadable_answer
from lance_io.store.failures import InvalidRange
from lance_io.store.policies.transport import TaskAttempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.azure.account_clients import AccountClients
    from lance_io.store.policies.download import Download


class SdkGets:
    """See `GetTransport`. The library itself asks once or twice more where an answer breaks off."""

    def __init__(self, clients: AccountClients) -> None:
        self._clients = clients

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
        """See `GetTransport`."""
        return TaskAttempt(self._attempt(download), ended)

    async def close(self) -> None:
        """See `GetTransport`; the client is that of all."""

    async def _attempt(self, download: Download) -> None:
        clients = self._clients
        await clients.authorization(download.key)
        client = await clients.container()
        from email.utils import format_datetime

        import aiohttp
        from azure.core import MatchConditions
        from azure.core.exceptions import AzureError

        asked = download.headers()
        arguments: dict[str, Any] = {}
        if "range" in asked:
            first, end = download.asked()
            arguments = {"offset": first, "length": end - first}
        if "if-match" in asked:
            arguments |= {"etag": asked["if-match"], "match_condition": MatchConditions.IfNotModified}
        try:
            stream = await client.get_blob_client(download.key).download_blob(**arguments)
            said = stream.properties
            modified = format_datetime(said.last_modified, usegmt=True) if said.last_modified else ""
            headers = {"etag": said.etag, "content-length": str(stream.size), "last-modified": modified}
            if "range" in asked:
                total = said.content_range.rpartition("/")[2]
                headers["content-range"] = f"bytes {first}-{first + stream.size - 1}/{total}"
            download.begin(206 if "range" in asked else 200, headers)
            async for chunk in stream.chunks():
                download.add(chunk)
        except LanceError:  # ours are ValueErrors and OSErrors, too; they say all that there is to say
            raise
        except ValueError as error:  # which the library raises where it does not understand an answer
            raise unreadable_answer(error, key=download.key, operation="get", secrets=clients.secrets) from None
        except (Refused, AzureError, aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, Refused) and error.status == 412 and download.received:
                download.object_changed()
            failure = library_error(error, key=download.key, operation="get", secrets=clients.secrets)
            if isinstance(failure, InvalidRange):
                download.no_such_range({})
                return
            raise failure from None
