"""Credentials renewed before they expire, while requests continue with the current ones.

aiobotocore finds credentials in files, the environment or a service, and renews them. But during their last 15 minutes
one caller waits for the renewal; during the last 10 minutes all callers wait, and raise its error although the current
credentials are valid. Here callers wait only during the last `MARGIN_S`. One task renews for all callers; its error is
raised only after the current credentials have expired, too.

After a refusal by the store, credentials are searched again, in the current files or at the service, even if they do
not expire.

`Chain` replaces the credential resolver in an aiobotocore session, so that its clients sign with the same credentials.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from lance_io.store.cloud.provided_credentials import ProvidedCredentials
from lance_io.store.cloud.renewal import AGAIN_FAILED_S, AGAIN_S, MARGIN_S, REMEMBERED, SingleFlight
from lance_io.store.counters import RENEWALS
from lance_io.store.s3.bucket_options import provided_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.errors import LanceError
    from lance_io.store.provided_options import OptionsSource
    from lance_io.store.s3.bucket_options import Keys


class UsedKeys:
    """Recently used signing keys, to hide them in messages."""

    def __init__(self) -> None:
        self._latest: deque[tuple[str, ...]] = deque(maxlen=REMEMBERED)

    def note(self, keys: Any) -> Any:
        """Remember keys (aiobotocore's frozen credentials or `Keys`); returns them."""
        secrets = tuple(text for text in (keys.access_key, keys.secret_key, keys.token) if text)
        if secrets not in self._latest:
            self._latest.append(secrets)
        return keys

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages."""
        return tuple(text for keys in tuple(self._latest) for text in keys)


class RenewableCredentials:
    """Wraps aiobotocore's credentials, which may expire or be refused; forwards all other attributes.

    map_error  maps an error of their provider to one of ours
    store      name of the store, for metrics
    find       searches for others after a refusal
    used       records the used keys
    """

    def __init__(
        self,
        credentials: Any,
        map_error: Callable[[Exception], LanceError],
        store: str,
        find: Callable[[], Awaitable[Any]] | None = None,
        used: UsedKeys | None = None,
    ) -> None:
        self._used = UsedKeys() if used is None else used
        self._credentials = credentials
        self._map_error = map_error
        self._store = store
        self._find = find
        self._renewal = SingleFlight(self._renew)
        self._search = SingleFlight(self._run_search)
        self._is_refused = False  # refused, and no others found yet
        self._not_before_s = float("-inf")  # by the loop's clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._credentials, name)

    async def get_frozen_credentials(self) -> Any:
        """The current credentials. Raises our error if there are no valid ones."""
        if self._is_refused and (failure := await self._search.result()) is not None:
            raise self._map_error(failure) from None
        credentials = self._credentials
        if not _expires(credentials):
            return self._used.note(await credentials.get_frozen_credentials())
        frozen = self.get_nowait()
        if frozen is None:
            error = await self._renewal.result()
            if error is not None and credentials.refresh_needed(0):
                raise self._map_error(error) from None
            frozen = credentials._frozen_credentials
        return self._used.note(frozen)

    def get_nowait(self) -> Any:
        """The current credentials without waiting, or None if a caller must wait; starts their renewal when due."""
        credentials = self._credentials
        if self._is_refused:
            return None
        if not _expires(credentials):
            return credentials
        if credentials.refresh_needed(MARGIN_S):
            return None
        if credentials.refresh_needed() and asyncio.get_running_loop().time() >= self._not_before_s:
            self._renewal.begin()
        # The private attribute bypasses aiobotocore's own renewal.
        return credentials._frozen_credentials

    async def get_account_id(self) -> Any:
        """The account of the current credentials, part of a database's endpoint; may be None."""
        return getattr(await self.get_frozen_credentials(), "account_id", None)  # missing in older versions

    @property
    def _keys(self) -> tuple[str, str, str | None] | None:
        """Access key, secret and token, valid or expired; None before the first fetch."""
        credentials = self._credentials
        frozen = credentials._frozen_credentials if _expires(credentials) else credentials
        return None if frozen is None else (frozen.access_key, frozen.secret_key, frozen.token)

    async def search_again(self) -> bool:
        """Search again after a refusal; returns whether the credentials differ. Raises our errors."""
        before, self._is_refused = self._keys, self._find is not None
        await self.get_frozen_credentials()
        return self._keys != before

    async def _run_search(self) -> Exception | None:
        from botocore.exceptions import NoCredentialsError

        assert self._find is not None
        try:
            credentials = await self._find()
        except Exception as raised:  # providers raise anything
            return raised
        if credentials is None:
            missing: Exception = NoCredentialsError()
            return missing
        self._credentials, self._is_refused = credentials, False
        return None

    async def _renew(self) -> Exception | None:
        credentials = self._credentials
        before = credentials._frozen_credentials
        error = None
        try:
            await credentials.get_frozen_credentials()
        except Exception as raised:  # providers raise anything
            error = raised
        is_new = credentials._frozen_credentials is not before
        if before is not None and (is_new or error is not None):
            RENEWALS.add(self._store, "failed" if error is not None else "renewed")
        self._not_before_s = asyncio.get_running_loop().time() + (AGAIN_S if is_new else AGAIN_FAILED_S)
        return error

    async def close(self) -> None:
        """End work in progress."""
        await self._renewal.close()
        await self._search.close()


def _expires(credentials: Any) -> bool:
    """Whether aiobotocore renews the credentials."""
    from botocore.credentials import RefreshableCredentials

    return isinstance(credentials, RefreshableCredentials)


class ProvidedKeys:
    """Keys from a storage options provider; replaces both resolver and credentials in an aiobotocore session."""

    method = "storage_options_provider"

    def __init__(self, source: OptionsSource, store: str) -> None:
        self._keys = ProvidedCredentials(source, provided_keys, store)
        self._used = UsedKeys()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Recent keys, to hide in messages."""
        return self._used.secrets

    async def load_credentials(self) -> ProvidedKeys:
        """See `aiobotocore.credentials.AioCredentialResolver`."""
        return self

    async def get_frozen_credentials(self) -> Keys:
        """The current keys. Raises our errors."""
        keys: Keys = self._used.note(await self._keys.get())
        return keys

    def get_nowait(self) -> Keys | None:
        """The current keys without waiting, or None if a caller must wait; starts their renewal when due."""
        return self._keys.get_nowait()

    async def search_again(self) -> bool:
        """Ask the provider again after a refusal; returns whether the keys differ. Raises our errors."""
        refused = self._keys.latest
        if refused is None:
            return False
        self._keys.forget(refused)
        return await self._keys.get() != refused

    async def get_account_id(self) -> None:
        """Unknown."""

    def get_deferred_property(self, name: str) -> Callable[[], None]:
        """Unknown, like all other properties that endpoints might depend on."""
        return lambda: None

    async def close(self) -> None:
        """End work in progress; later calls start it again."""
        await self._keys.close()


class Chain:
    """Credential resolver of an aiobotocore session; searches once for all callers.

    find       aiobotocore's own search; returns None without credentials
    map_error  maps an error of a provider to one of ours
    store      name of the store, for metrics
    again      a new search, without the caches of the first one
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[Any]],
        map_error: Callable[[Exception], LanceError],
        store: str,
        again: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        self._find = find
        self._map_error = map_error
        self._store = store
        self._again = again
        self._search = SingleFlight(self._run_search)
        self._renewables: list[RenewableCredentials] = []
        self._latest: RenewableCredentials | None = None
        self._used = UsedKeys()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Recent keys, to hide in messages."""
        return self._used.secrets

    async def load_credentials(self) -> Any:
        """See `aiobotocore.credentials.AioCredentialResolver`. Raises our errors."""
        if self._latest is not None:
            return self._latest
        result = await self._search.result()
        if isinstance(result, Exception):
            raise self._map_error(result) from None
        return result

    def get_nowait(self) -> Any:
        """The current credentials without waiting; None before the search or if a caller must wait."""
        return None if self._latest is None else self._latest.get_nowait()

    async def search_again(self) -> bool:
        """Search again after a refusal; see `RenewableCredentials`."""
        return self._latest is not None and await self._latest.search_again()

    async def _run_search(self) -> Any:
        try:
            credentials = await self._find()
        except Exception as error:
            return error
        if credentials is None:
            return None
        self._latest = RenewableCredentials(credentials, self._map_error, self._store, self._again, self._used)
        self._renewables.append(self._latest)
        return self._latest

    async def close(self) -> None:
        """End work in progress; later calls start it again."""
        await self._search.close()
        for credentials in self._renewables:
            await credentials.close()
