"""Tests whether a bucket supports create-if-absent: once per process and bucket, before a commit relies on it.

    PUT _versions/.probe-<uuid>, If-None-Match: *     applied
    PUT the same again                                412: kept; 200: ignored, two writers would both win
    DELETE it

Amazon's own endpoints are trusted; memory and the local disk always support it. An inconclusive answer (a lost
connection, 409, 5xx) decides nothing: the second PUT is repeated until two conclusive answers agree or contradict.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Final

from lance_io.errors import AlreadyExists, LanceError, UnsupportedError
from lance_io.redaction import get_logger
from lance_io.runtime import to_the_end
from lance_io.store.failures import ConflictRetry, OutcomeUnknown, StoreFailure

if TYPE_CHECKING:
    from lance_io.store.api import ObjectStore

PROBE_PREFIX: Final = ".probe-"
_PUTS_MAX: Final = 8
_FIRST_PAUSE_S: Final = 0.1

_logger = get_logger(__name__)
_kept: dict[str, bool] = {}  # by the identity of the store


def refuse_undecided(store: ObjectStore) -> None:
    """Raise `UnsupportedError` if the store is already known not to support create-if-absent; makes no request."""
    able = store.capabilities
    if not able.conditional_create or _kept.get(store.identity) is False:
        raise UnsupportedError(f"{store.identity} {able.create_refusal}")


class ConditionalProbe:
    """The test for one store. `run` may run beside other requests, and more than once at a time.

    folder  key prefix of the table's `_versions` folder, without a trailing slash: writers may write there
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    async def run(self) -> None:
        """Return if the store supports create-if-absent; makes no request if that is known.

        Raises `UnsupportedError` if it does not, and the store's own error if the answers are inconclusive.
        """
        able = self._store.capabilities
        kept = able.conditional_create
        if kept and able.create_unproven:
            known = _kept.get(self._store.identity)
            kept = await self._try() if known is None else known
            _kept[self._store.identity] = kept
        if not kept:
            raise UnsupportedError(f"{self._store.identity} {able.create_refusal}")

    async def _try(self) -> bool:
        key = f"{self._folder}/{PROBE_PREFIX}{uuid.uuid4().hex}"
        try:
            return await self._create_twice(key)
        finally:
            await to_the_end(self._delete(key))

    async def _create_twice(self, key: str) -> bool:
        is_there = False  # for certain
        for attempt in range(_PUTS_MAX):
            try:
                await self._store.put(key, b"probe", if_absent=True, durability="none")
            except AlreadyExists:
                return True
            except (OutcomeUnknown, ConflictRetry):
                if attempt + 1 == _PUTS_MAX:
                    raise
                await asyncio.sleep(random.random() * _FIRST_PAUSE_S * 2**attempt)
            except StoreFailure as error:
                if error.status != 501:
                    raise
                return False  # the server does not implement the header
            else:
                if is_there:
                    return False
                is_there = True
        raise AssertionError("two certain answers decide")

    async def _delete(self, key: str) -> None:
        try:
            await self._store.delete([key])
        except LanceError as error:  # the answer is known; the object is five bytes that no reader looks at
            _logger.warning("%s: the probe stays behind: %s", key, error)
