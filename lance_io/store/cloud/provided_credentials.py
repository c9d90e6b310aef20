"""Credentials among storage options that somebody gives anew before they expire (`store/provided_options.py`)."""

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
    """Those of this moment, for the requests of one event loop; all loops of the process share what is given.

    read   finds them among options of lower-case names: None where they are not there; raises our errors
    store  whose they are, for metrics
    """

    def __init__(self, source: OptionsSource, read: Callable[[Mapping[str, str]], T | None], store: str) -> None:
        super().__init__(self._ask, _as_ours, store)
        self._source = source
        self._read = read
        self._known: Provided | None = None
        if source.latest is not None:  # nobody waits for what is here
            with suppress(LanceError):  # it is told when somebody asks
                self._found = self._take(source.latest)

    async def _ask(self) -> tuple[T, float | None]:
        return self._take(await in_thread(self._source.newer, self._known, MARGIN_S))

    def _take(self, given: Provided) -> tuple[T, float | None]:
        self._known, self.ahead_s = given, given.ahead_s
        found = self._read(given.options)
        if found is None:
            raise AccessDenied(
                f"the storage_options_provider gave other credentials before, and now only {sorted(given.options)}"
            )
        return found, given.expires_s


def _as_ours(error: Exception) -> LanceError:
    if isinstance(error, LanceError):  # told to each who waits, with a key of their own
        return type(error)(error.message).asked_as(error)
    return AccessDenied(f"no credentials from the storage_options_provider ({type(error).__name__})")
