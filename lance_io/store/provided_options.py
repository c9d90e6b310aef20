"""Storage options from a provider that refreshes them before they expire, such as temporary keys of your own service.

A provider has a method `fetch_storage_options()` that returns storage options, among them

    expires_at_millis      when they expire, in milliseconds since 1970; without it: never
    refresh_offset_millis  how long before that they are refreshed (60,000)

like the providers of pylance and of namespaces. It is called in a thread, by one caller at a time in a process.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from lance_io.errors import AccessDenied, LanceError
from lance_io.records import dataclass
from lance_io.redaction import hide_secrets
from lance_io.store.forking import survive_fork
from lance_io.store.storage_options import ProvidedOptions, normalize, options_of, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

EXPIRES_AT: Final = "expires_at_millis"
REFRESH_OFFSET: Final = "refresh_offset_millis"
OFFSET_MS: Final = 60_000
MESSAGE_MAX: Final = 500  # characters of a provider's own message in an error


@runtime_checkable
class StorageOptionsProvider(Protocol):
    """Returns storage options. May also have `provider_id()`: providers with the same id are interchangeable."""

    def fetch_storage_options(self) -> Mapping[str, str]:
        """Current options; may block. The module's docstring says when it is called again."""


@dataclass(frozen=True, slots=True)
class Provided:
    """Options of a provider, with lower-case names.

    expires_s  when they expire, in seconds since 1970; None: never
    ahead_s    how long before that they are refreshed
    """

    options: Mapping[str, str]
    expires_s: float | None
    ahead_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Provided:
        """From normalized options. Raises `UsageError` for times that are not whole numbers."""
        expires = options.get(EXPIRES_AT)
        return cls(
            options={name: text for name, text in options.items() if name not in (EXPIRES_AT, REFRESH_OFFSET)},
            expires_s=None if expires is None else whole_number(EXPIRES_AT, expires) / 1000,
            ahead_s=whole_number(REFRESH_OFFSET, options.get(REFRESH_OFFSET, str(OFFSET_MS))) / 1000,
        )

    def are_valid_for(self, seconds: float) -> bool:
        """Whether they expire later than in `seconds`."""
        return self.expires_s is None or self.expires_s - time.time() > seconds


class OptionsSource:
    """The latest options of a provider, for all stores of this process."""

    def __init__(self, provider: StorageOptionsProvider) -> None:
        self.provider = provider
        self._latest: Provided | None = None
        self._lock = threading.Lock()
        survive_fork(self)

    def start_over(self) -> None:
        """In a forked child: the thread that called the provider may not exist here."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"OptionsSource({type(self.provider).__name__})"

    def __reduce__(self) -> tuple[Any, ...]:
        return source_for, (self.provider,)  # without the options

    @property
    def identity(self) -> str:
        """Identifies its credentials in any process: the provider's own id, else an id of this process only."""
        named = getattr(self.provider, "provider_id", None)
        return f"provider {named()}" if callable(named) else f"provider {id(self)} of one process"

    @property
    def latest(self) -> Provided | None:
        """The latest options, expired or not."""
        return self._latest

    def first(self, given: Mapping[str, str]) -> Provided:
        """The latest options, expired or not; fetches them the first time.

        given  options beside the provider; if they have an expiry, they are its first answer
        Raises our errors.
        """
        if self._latest is not None:
            return self._latest
        with self._lock:
            if self._latest is None:
                known = Provided.of(given) if EXPIRES_AT in given else None
                self._latest = known if known is not None and known.are_valid_for(known.ahead_s) else self._ask()
            return self._latest

    def newer(self, known: Provided | None, margin_s: float) -> Provided:
        """Options newer than `known`; refreshes them if they expire within `margin_s`.

        Raises our errors.
        """
        with self._lock:
            if self._latest is None or self._latest is known or not self._latest.are_valid_for(margin_s):
                self._latest = self._ask()
            return self._latest

    def _ask(self) -> Provided:
        name = type(self.provider).__name__
        try:
            fetched: Any = self.provider.fetch_storage_options()
        except LanceError:
            raise
        except Exception as error:  # from foreign code; the message may contain secrets
            text = self._redact(f"{type(error).__name__}: {error}")[:MESSAGE_MAX]
            raise AccessDenied(f"the storage_options_provider {name} gave no storage options ({text})") from None
        if not fetched:
            raise AccessDenied(f"the storage_options_provider {name} gave no storage options")
        try:
            return Provided.of(normalize(fetched))
        except TypeError as error:
            raise AccessDenied(f"the storage_options_provider {name}: {error}") from None

    def _redact(self, text: str) -> str:
        """A message without the values of the latest options, and without the parts of signatures."""
        values = () if self._latest is None else tuple(self._latest.options.values())
        parts = [*values, *(part for value in values for part in re.split("[&=]", value))]
        # shorter parts are no credentials, and may occur in any word
        return hide_secrets(text, [part for part in parts if len(part) >= 8])


_sources: weakref.WeakValueDictionary[object, OptionsSource] = weakref.WeakValueDictionary()
_sources_lock = threading.Lock()


def _start_over() -> None:
    """In a forked child."""
    global _sources_lock
    _sources_lock = threading.Lock()


os.register_at_fork(after_in_child=_start_over)


def source_for(provider: StorageOptionsProvider) -> OptionsSource:
    """The source that all stores with this provider share, or with another one of the same `provider_id()`."""
    named = getattr(provider, "provider_id", None)
    key: object = str(named()) if callable(named) else id(provider)
    with _sources_lock:
        source = _sources.get(key)
        if source is None:
            source = _sources[key] = OptionsSource(provider)
    return source


def with_provider(options: Mapping[str, T] | None, provider: Any) -> Mapping[str, T] | None:
    """Storage options with their provider; unchanged if there is none.

    Raises `TypeError` for a provider without `fetch_storage_options`.
    """
    if provider is None:
        return options
    if not isinstance(provider, StorageOptionsProvider):
        raise TypeError(
            "storage_options_provider: expected an object with a method fetch_storage_options(), "
            f"found one of type {type(provider).__name__}"
        )
    return ProvidedOptions(options_of(options), source_for(provider))


def gather_provider(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a call with `storage_options_provider` moved into `storage_options`; see `with_provider`."""
    gathered = dict(keywords)
    provider = gathered.pop("storage_options_provider", None)
    if provider is not None:
        gathered["storage_options"] = with_provider(gathered.get("storage_options"), provider)
    return gathered


def source_of(options: Mapping[str, Any] | None) -> OptionsSource | None:
    """The provider of these storage options, or None."""
    if not isinstance(options, ProvidedOptions):
        return None
    source: OptionsSource = options.source
    return source
