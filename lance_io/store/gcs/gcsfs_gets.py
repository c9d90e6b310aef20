"""GETs through gcsfs, for what lies between us and Google that our own HTTP client does not know, such as a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.store.gcs.json_client import OBJECT, Request
from lance_io.store.policies.transport import TaskAttempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.gcs.gcs_options import GcsOptions
    from lance_io.store.gcs.gcs_state import GcsState
    from lance_io.store.policies.download import Download


class GcsfsGets:
    """See `GetTransport`."""

    def __init__(self, options: GcsOptions, state: GcsState) -> None:
        self._options = options
        self._state = state

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
        """See `GetTransport`."""
        return TaskAttempt(self._attempt(download), ended)

    async def _attempt(self, download: Download) -> None:
        client = await self._state.client()
        asked = download.headers()
        changed = (412,) if "if-match" in asked else ()
        answer = await client.ask(
            "get",
            download.key,
            Request(
                "GET",
                OBJECT,
                (self._options.bucket, download.key),
                {"alt": "media"},
                headers=asked,
                right=(200, 206, 416, *changed),
                sink=download,
            ),
        )
        if answer.status == 412:
            download.object_changed()
        if answer.status == 416:
            download.no_such_range(answer.headers)

    async def close(self) -> None:
        """See `GetTransport`; the client is the state's."""
