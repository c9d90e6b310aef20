"""The files that one change writes for its commit, and the outcome of that commit (decision 011).

Two invariants: all files that a manifest names exist, and files that no version can name are removed. This module keeps
the state for both; the change that writes data files and the commit loop share it:

    files     files of the change, and which of them were removed
    outcome   of the deciding write, which creates the version: `unsent`, `sent` (it may have taken effect), `lost`
              (another writer was faster, or the store refused it), `committed`

Files may be removed only if the outcome is `unsent` or `lost`. Errors after the deciding write do not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from lance_io.errors import InternalError, LanceError
from lance_io.plans.plan import Shielded, ask
from lance_io.plans.store_requests import Put, PutMany, Remove
from lance_io.redaction import get_logger
from lance_io.store.offers import offers_put_many

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Durability, ObjectStore
    from lance_io.store.offers import PutsMany
    from lance_io.store.url import Location

Outcome = Literal["unsent", "sent", "lost", "committed"]

_logger = get_logger(__name__)

_TOGETHER_MAX: Final = 1024  # files per batch; a change can be cancelled between batches


class CommitFiles:
    """The files of one change and the outcome of its commit; see the module. Keys are those of the table's store.

    contents  small files that the commit writes in its first round (deletion files), by key
    outcome   of the deciding write
    """

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.contents = dict(contents or {})
        self.outcome: Outcome = "unsent"
        self._written: dict[str, bool] = {}  # by key, in order of creation: whether it is a small file
        self._removed: set[str] = set()

    @property
    def may_remove(self) -> bool:
        """Whether no version names the files, now or later."""
        return self.outcome in ("unsent", "lost")

    # -- data files, which the change writes and removes ---------------------------------------------------------------

    def add_data(self, keys: Iterable[str]) -> None:
        """Record data files that exist and that the transaction will name."""
        self._add(keys, is_small=False)

    def drop_data(self, keys: Iterable[str]) -> None:
        """Record that data files are about to be removed."""
        self._drop(keys)

    # -- small files, which the commit writes and removes --------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether a small file was written (or its write was started) and not removed."""
        return key in self._written

    def puts(
        self, store: ObjectStore, contents: Mapping[str, bytes], durability: Durability | None = None
    ) -> list[Plan[Any]]:
        """Plans that write small files. A file counts as written as soon as its plan starts.

        One plan per file, or per batch if the store writes several files at once.
        """
        if len(contents) > 1 and offers_put_many(store):
            items = list(contents.items())
            batches = [dict(items[start : start + _TOGETHER_MAX]) for start in range(0, len(items), _TOGETHER_MAX)]
            return [self._put_many(store, batch, durability) for batch in batches]
        return [self._put(store, key, data, durability) for key, data in contents.items()]

    def _put(self, store: ObjectStore, key: str, data: bytes, durability: Durability | None) -> Plan[None]:
        self._add([key], is_small=True)
        yield Put(store, key, data, durability=durability)

    def _put_many(self, store: PutsMany, contents: Mapping[str, bytes], durability: Durability | None) -> Plan[None]:
        self._add(contents, is_small=True)
        yield PutMany(store, contents, durability)

    def remove_except(self, store: ObjectStore, kept: Collection[str]) -> Plan[None]:
        """Remove the small files except those in `kept`. If that fails, a cleanup removes them later."""
        keys = [key for key, is_small in self._written.items() if is_small and key not in kept]
        if not keys:
            return
        self._drop(keys)
        try:
            yield Shielded(ask(Remove(store, tuple(keys))))
        except LanceError as error:
            _logger.warning("files of a lost attempt stay behind for cleanup: %s", error)

    def roll_back(self, store: ObjectStore, kept: Collection[str] = ()) -> Plan[None]:
        """Remove the small files of a failed change, if no version can name them."""
        if self.may_remove:
            yield from self.remove_except(store, kept)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_named(self, location: Location, paths: Callable[[], Iterable[str]]) -> None:
        """Check that the transaction names no removed file. Raises `InternalError`: such a table would be unreadable.

        location  folder of the table
        paths     returns the files that the transaction names, relative to that folder
        """
        if not self._removed:
            return
        removed = sorted(path for path in paths() if location.key(path) in self._removed)
        if removed:
            raise InternalError(
                f"the commit names {', '.join(removed)}, which it has removed itself; nothing was committed. This is a "
                "fault of lance_io: please report it, with the operations that were under way",
                path=location.uri,
            )

    def _add(self, keys: Iterable[str], *, is_small: bool) -> None:
        for key in keys:
            self._written[key] = is_small
            self._removed.discard(key)

    def _drop(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._written.pop(key, None)
            self._removed.add(key)
