"""The files that one change makes for its commit, and the outcome of that commit (decision 011).

Whatever a commit names must exist when its manifest does, and whatever no version can name goes. Both follow from two
facts that are kept here, and shared by the change that writes data files and by the commit loop:

    made, kept   files of the change, and those of them that were not removed
    outcome      of the deciding write: `unsent`, `sent` (it may have taken effect), `lost` (another writer was faster,
                 or the store refused it), `committed`

Files may be removed while nothing was sent, and after the write was lost. An error that comes later decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from lance_io.errors import InternalError, LanceError
from lance_io.plans.plan import Shielded, ask
from lance_io.plans.store_requests import Put, PutMany, Remove
from lance_io.redaction import get_logger
from lance_io.store.offers import puts_together

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Durability, ObjectStore
    from lance_io.store.offers import PutsTogether
    from lance_io.store.url import Location

Outcome = Literal["unsent", "sent", "lost", "committed"]

_logger = get_logger(__name__)

_TOGETHER_MAX: Final = 1024  # files that are written as one: between such portions a change can be stopped


class CommitFiles:
    """See the module. All files are keys in the table's store.

    contents  small files that the commit writes with its first round (deletion files), by key
    outcome   of the deciding write
    """

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.contents = dict(contents or {})
        self.outcome: Outcome = "unsent"
        self._kept: dict[str, bool] = {}  # in the order in which they were made; whether the commit removes them
        self._gone: set[str] = set()

    @property
    def may_remove(self) -> bool:
        """Whether no version names the files, now and in future."""
        return self.outcome in ("unsent", "lost")

    # -- data files, which the change writes and removes ---------------------------------------------------------------

    def add_data(self, keys: Iterable[str]) -> None:
        """Data files are there, which the transaction will name."""
        self._add(keys, is_own=False)

    def drop_data(self, keys: Iterable[str]) -> None:
        """Data files are about to be removed."""
        self._drop(keys)

    # -- small files, which the commit writes and removes --------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether a small file was written, or its writing was begun, and it was not removed."""
        return key in self._kept

    def puts(
        self, store: ObjectStore, contents: Mapping[str, bytes], durability: Durability | None = None
    ) -> list[Plan[Any]]:
        """Plans that write small files; a file counts as made from the moment at which its plan begins.

        One plan each, but where a store writes several for less.
        """
        if len(contents) > 1 and puts_together(store):
            items = list(contents.items())
            parts = [dict(items[at : at + _TOGETHER_MAX]) for at in range(0, len(items), _TOGETHER_MAX)]
            return [self._put_many(store, part, durability) for part in parts]
        return [self._put(store, key, data, durability) for key, data in contents.items()]

    def _put(self, store: ObjectStore, key: str, data: bytes, durability: Durability | None) -> Plan[None]:
        self._add([key], is_own=True)
        yield Put(store, key, data, durability=durability)

    def _put_many(
        self, store: PutsTogether, contents: Mapping[str, bytes], durability: Durability | None
    ) -> Plan[None]:
        self._add(contents, is_own=True)
        yield PutMany(store, contents, durability)

    def remove_but(self, store: ObjectStore, kept: Collection[str]) -> Plan[None]:
        """Remove the small files except for those that are named; what cannot be removed is garbage for a cleanup."""
        keys = [key for key, is_own in self._kept.items() if is_own and key not in kept]
        if not keys:
            return
        self._drop(keys)
        try:
            yield Shielded(ask(Remove(store, tuple(keys))))
        except LanceError as error:
            _logger.warning("files of a lost attempt stay behind for cleanup: %s", error)

    def roll_back(self, store: ObjectStore, kept: Collection[str] = ()) -> Plan[None]:
        """Remove the small files of a change that has failed, if no version can name them."""
        if self.may_remove:
            yield from self.remove_but(store, kept)

    # -- what a commit relies on ---------------------------------------------------------------------------------------

    def check_named(self, place: Location, paths: Callable[[], Iterable[str]]) -> None:
        """Make sure that no file which was removed is about to be named by a manifest.

        place  folder of the table
        paths  gives the files that the transaction names, below that folder

        Raises `InternalError`: it would be published otherwise, and nobody could read the table.
        """
        if not self._gone:
            return
        lost = sorted(path for path in paths() if place.key(path) in self._gone)
        if lost:
            raise InternalError(
                f"the commit names {', '.join(lost)}, which it has removed itself; nothing was committed. This is a "
                "fault of lance_io: please report it, with the operations that were under way",
                path=place.uri,
            )

    def _add(self, keys: Iterable[str], *, is_own: bool) -> None:
        for key in keys:
            self._kept[key] = is_own
            self._gone.discard(key)

    def _drop(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._kept.pop(key, None)
            self._gone.add(key)
