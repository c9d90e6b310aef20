"""Credentials from a storage options provider that refreshes them before expiry (`store/provided_options.py`)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from lance_io.errors import AccessDenied, LanceError
from lance_io.runtime import in_thread
from lance_io.store.cloud.renewal import MARGIN_S, Renewal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.store.provided_options import OptionsSource, Provided

T = TypeVar("T")


class ProvidedCredentials(Renewal[T], Generic[T]):
    """Current credentials for the requests of one event loop; all loops of the process share the provider's options.

    read   extracts the credentials from options with lower-case names; None if there are none; raises our errors
    store  name of the store, for metrics
    """

    def __init__(self, source: OptionsSource, read: Callable[[Mapping[str, str]], T | None], store: str) -> None:
        super().__init__(self._ask, _map_error, store)
        self._source = source
        self._read = read
        self._known: Provided | None = None
        if source.latest is not None:  # available without waiting
            with suppress(LanceError):  # the first request raises it
                self._current = self._take(source.latest)

    async def _ask(self) -> tuple[T, float | None]:
        return self._take(await in_thread(self._source.newer, self._known, MARGIN_S))

    def _take(self, provided: Provided) -> tuple[T, float | None]:
        self._known, self.ahead_s = provided, provided.ahead_s
        credentials = self._read(provided.options)
        if credentials is None:
            raise AccessDenied(
                f"the storage_options_provider returned credentials before, but now only {sorted(provided.options)}"
            )
        return credentials, provided.expires_s


def _map_error(error: Exception) -> LanceError:
    if isinstance(error, LanceError):  # a copy per waiter, each with its own key
        return type(error)(error.message).copy_request_info(error)
    return AccessDenied(f"no credentials from the storage_options_provider ({type(error).__name__})")
