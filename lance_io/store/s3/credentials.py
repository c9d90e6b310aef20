"""Credentials that expire, renewed ahead of that, while those who sign go on with the present ones.

aiobotocore finds them, in files, the environment or a service, and fetches new ones. But of those who ask it within the
last quarter of an hour one waits for the new ones, within the last ten minutes everybody does, and is told of an error,
although the present ones would do. Here nobody waits as long as these hold for another `MARGIN_S`. Their renewal is one
task, whoever asks, and its error is told when they have expired, too.

Credentials that the store refuses, whether they have an end or not, are looked for anew: in the files as they are by
now, at the service again.

`Chain` stands in a session of aiobotocore's for what finds credentials there, so that its client signs with the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from lance_io.store.cloud.provided_credentials import ProvidedCredentials
from lance_io.store.cloud.renewal import AGAIN_FAILED_S, AGAIN_S, MARGIN_S, REMEMBERED, Once
from lance_io.store.counters import RENEWALS
from lance_io.store.s3.bucket_options import keys_given

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.errors import LanceError
    from lance_io.store.provided_options import OptionsSource
    from lance_io.store.s3.bucket_options import Keys


class UsedKeys:
    """What requests were signed with lately, so that no message shows it."""

    def __init__(self) -> None:
        self._latest: deque[tuple[str, ...]] = deque(maxlen=REMEMBERED)

    def note(self, keys: Any) -> Any:
        """Keys that somebody is given, as they are: frozen credentials of aiobotocore's or `Keys`."""
        found = tuple(text for text in (keys.access_key, keys.secret_key, keys.token) if text)
        if found not in self._latest:
            self._latest.append(found)
        return keys

    @property
    def secrets(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(text for keys in tuple(self._latest) for text in keys)


class Renewed:
    """Credentials of aiobotocore's, which may expire and be refused; in all else as they are.

    failed  makes an error of ours of what their provider raised
    store   whose they are, for metrics
    find    looks for others, where these are refused
    used    is told what is signed with
    """

    def __init__(
        self,
        credentials: Any,
        failed: Callable[[Exception], LanceError],
        store: str,
        find: Callable[[], Awaitable[Any]] | None = None,
        used: UsedKeys | None = None,
    ) -> None:
        self._used = UsedKeys() if used is None else used
        self._credentials = credentials
        self._failed = failed
        self._store = store
        self._find = find
        self._renewal = Once(self._renew)
        self._search = Once(self._look)
        self._is_refused = False  # and nothing else was found yet
        self._not_before_s = float("-inf")  # by the loop's clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._credentials, name)

    async def get_frozen_credentials(self) -> Any:
        """Those of this moment. Raises our error where none are left that hold."""
        if self._is_refused and (failure := await self._search.result()) is not None:
            raise self._failed(failure) from None
        held = self._credentials
        if not _expires(held):
            return self._used.note(await held.get_frozen_credentials())
        found = self.at_hand()
        if found is None:
            error = await self._renewal.result()
            if error is not None and held.refresh_needed(0):
                raise self._failed(error) from None
            found = held._frozen_credentials
        return self._used.note(found)

    def at_hand(self) -> Any:
        """The same without waiting, or None where they have to be waited for; begins their renewal when it is time."""
        held = self._credentials
        if self._is_refused:
            return None
        if not _expires(held):
            return held
        if held.refresh_needed(MARGIN_S):
            return None
        if held.refresh_needed() and asyncio.get_running_loop().time() >= self._not_before_s:
            self._renewal.begin()
        # What lies in there is asked for without aiobotocore's own renewal.
        return held._frozen_credentials

    async def get_account_id(self) -> Any:
        """The account of this moment's, which the endpoint of a database depends on; may be None."""
        return getattr(await self.get_frozen_credentials(), "account_id", None)  # older ones do not know it

    @property
    def _keys(self) -> tuple[str, str, str | None] | None:
        """Access key, secret and token, whether they hold or not; None: nobody has fetched any yet."""
        held = self._credentials
        found = held._frozen_credentials if _expires(held) else held
        return None if found is None else (found.access_key, found.secret_key, found.token)

    async def look_again(self) -> bool:
        """These are refused: find those that there are by now, and say whether they are others. Raises our errors."""
        before, self._is_refused = self._keys, self._find is not None
        await self.get_frozen_credentials()
        return self._keys != before

    async def _look(self) -> Exception | None:
        from botocore.exceptions import NoCredentialsError

        assert self._find is not None
        try:
            found = await self._find()
        except Exception as raised:  # as above
            return raised
        if found is None:
            missing: Exception = NoCredentialsError()
            return missing
        self._credentials, self._is_refused = found, False
        return None

    async def _renew(self) -> Exception | None:
        held = self._credentials
        before = held._frozen_credentials
        error = None
        try:
            await held.get_frozen_credentials()
        except Exception as raised:  # of any provider, and what they raise is not one family
            error = raised
        is_new = held._frozen_credentials is not before
        if before is not None and (is_new or error is not None):
            RENEWALS.add(self._store, "failed" if error is not None else "renewed")
        self._not_before_s = asyncio.get_running_loop().time() + (AGAIN_S if is_new else AGAIN_FAILED_S)
        return error

    async def close(self) -> None:
        """End what is under way."""
        await self._renewal.close()
        await self._search.close()


def _expires(credentials: Any) -> bool:
    """Whether aiobotocore renews them."""
    from botocore.credentials import RefreshableCredentials

    return isinstance(credentials, RefreshableCredentials)


class ProvidedKeys:
    """Keys that a provider of storage options gives, as a session of aiobotocore's has them: in place of what finds
    credentials there, and of the credentials.
    """

    method = "storage_options_provider"

    def __init__(self, source: OptionsSource, store: str) -> None:
        self._keys = ProvidedCredentials(source, keys_given, store)
        self._used = UsedKeys()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What was given lately: it must not appear in a message."""
        return self._used.secrets

    async def load_credentials(self) -> ProvidedKeys:
        """See `aiobotocore.credentials.AioCredentialResolver`."""
        return self

    async def get_frozen_credentials(self) -> Keys:
        """Those of this moment. Raises our errors."""
        keys: Keys = self._used.note(await self._keys.get())
        return keys

    def at_hand(self) -> Keys | None:
        """The same without waiting, or None where they have to be waited for; begins their renewal when it is time."""
        return self._keys.at_hand()

    async def look_again(self) -> bool:
        """These are refused: have some given, and say whether they are others. Raises our errors."""
        refused = self._keys.latest
        if refused is None:
            return False
        self._keys.forget(refused)
        return await self._keys.get() != refused

    async def get_account_id(self) -> None:
        """Nobody knows it."""

    def get_deferred_property(self, name: str) -> Callable[[], None]:
        """Nor anything else that endpoints might depend on."""
        return lambda: None

    async def close(self) -> None:
        """End what is under way; whoever asks later begins it anew."""
        await self._keys.close()


class Chain:
    """Finds credentials, once for all that ask; a component of a session of aiobotocore's.

    find    aiobotocore's own search; None where there are none
    failed  makes an error of ours of what a provider raised
    store   whose they are, for metrics
    again   another search, which remembers nothing of the first one
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[Any]],
        failed: Callable[[Exception], LanceError],
        store: str,
        again: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        self._find = find
        self._failed = failed
        self._store = store
        self._again = again
        self._search = Once(self._look)
        self._found: list[Renewed] = []
        self._latest: Renewed | None = None
        self._used = UsedKeys()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What was found lately: it must not appear in a message."""
        return self._used.secrets

    async def load_credentials(self) -> Any:
        """See `aiobotocore.credentials.AioCredentialResolver`. Raises our errors."""
        if self._latest is not None:
            return self._latest
        found = await self._search.result()
        if isinstance(found, Exception):
            raise self._failed(found) from None
        return found

    def at_hand(self) -> Any:
        """The credentials of this moment, if they were found already and need not be waited for; else None."""
        return None if self._latest is None else self._latest.at_hand()

    async def look_again(self) -> bool:
        """What was found is refused: see `Renewed`."""
        return self._latest is not None and await self._latest.look_again()

    async def _look(self) -> Any:
        try:
            found = await self._find()
        except Exception as error:
            return error
        if found is None:
            return None
        self._latest = Renewed(found, self._failed, self._store, self._again, self._used)
        self._found.append(self._latest)
        return self._latest

    async def close(self) -> None:
        """End what is under way; whoever asks later begins it anew."""
        await self._search.close()
        for found in self._found:
            await found.close()
