"""Which rows a stream over the versions of a table gives, in which order, and where it stands.

    first        a snapshot: the live rows of the newest version, or nothing with `starting_version`
    afterwards   the fragments that each later version added, as they are in that version

An offset says what has been read. Its parts, with the offset in which a stream begins:

    version    everything up to this version; of a snapshot that is under way: its version        0
    done       fragments that were read besides: of the snapshot, or of those of the next version  0
    snapshot   whether a snapshot is under way                                                     False

A batch never goes past the end of the snapshot, so two offsets say which rows lie between them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import LanceError, NotFound, UsageError
from lance_io.spark.engine import open_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lance_io.dataset.distributed import TableVersion
    from lance_io.spark.options import StreamReadOptions

REMEMBERED_MAX: Final = 64  # versions whose additions are kept: Spark asks for offsets, then for the rows between them


@dataclass(frozen=True)
class Offset:
    """See the module's text."""

    version: int = 0
    done: int = 0
    snapshot: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Offset:
        """The offset in a checkpoint. Raises `UsageError` for one that this source has not written."""
        version, done, snapshot = values.get("version"), values.get("done", 0), values.get("snapshot", False)
        numbers = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in (version, done))
        if not numbers or not isinstance(snapshot, bool):
            raise UsageError(f"the checkpoint's offset is not of this source: {dict(values)}")
        return cls(int(version or 0), int(done), snapshot)

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it; the beginning is always the same."""
        if self == Offset():
            return {"version": 0}
        return {"version": self.version, "done": self.done, "snapshot": self.snapshot}


@dataclass(frozen=True)
class Part:
    """Fragments of one version: those at these places of its manifest."""

    version: int
    places: tuple[int, ...]


@dataclass
class Allowance:
    """What a batch may still take; the first fragment is taken whatever its size."""

    rows: float = float("inf")
    num_bytes: float = float("inf")
    is_fresh: bool = True

    def take(self, rows: int, num_bytes: int) -> bool:
        """Whether a fragment still belongs to the batch."""
        fits = self.is_fresh or (rows <= self.rows and num_bytes <= self.num_bytes)
        self.rows, self.num_bytes, self.is_fresh = self.rows - rows, self.num_bytes - num_bytes, False
        return fits


class VersionRows:
    """The versions of a table as a stream of fragments."""

    def __init__(self, options: StreamReadOptions) -> None:
        self.options = options
        self._opened: OrderedDict[int, TableVersion] = OrderedDict()
        self._added: OrderedDict[int, tuple[int, ...]] = OrderedDict()

    # -- offsets -----------------------------------------------------------------------------------------------------

    def newest(self) -> int:
        """Number of the newest version."""
        found = open_version(self.options)
        _remember(self._opened, found.version, found)
        return found.version

    def after(self, start: Offset, newest: int, allowance: Allowance) -> Offset:
        """The end of the batch that begins at `start`; `start` itself when there is nothing new.

        Raises `UsageError` for a change that is no addition, a version that was cleaned up, and a table that was made
        anew since; `NotFound` when the stream is to begin after a version that does not exist.
        """
        start = self._begin(start, newest)
        self._check_order(start, newest)
        if start.snapshot:
            return self._after_snapshot(start, allowance)
        version, done = start.version, start.done
        while version < newest:
            places = self.added(version + 1)
            for place in places[done:]:
                if not allowance.take(*self._size(version + 1, place)):
                    return Offset(version, done)
                done += 1
            version, done = version + 1, 0
        return Offset(version, done)

    def _begin(self, start: Offset, snapshot_version: int) -> Offset:
        """Where a stream begins that has not read anything."""
        if start != Offset():
            return start
        first = self.options.starting_version
        if first is None:
            return Offset(snapshot_version, snapshot=True)
        if first > snapshot_version:  # the versions up to it would be skipped when they come
            raise NotFound(
                f"starting_version={first}: the newest version of {self.options.path} is {snapshot_version}. Give "
                f"{snapshot_version} for only what comes from now on"
            )
        return Offset(first)

    def _check_order(self, start: Offset, version: int) -> None:
        """Raise for a table that has fewer versions than a stream has read: waiting would pass over those to come."""
        if start.version > version:
            raise UsageError(
                f"this stream has read version {start.version} of {self.options.path}, whose newest version is "
                f"{version}: the table was dropped and made anew. Begin a new stream with a new checkpoint"
            )

    def _after_snapshot(self, start: Offset, allowance: Allowance) -> Offset:
        places = self._all_places(start.version)
        for done in range(start.done, len(places)):
            if not allowance.take(*self._size(start.version, places[done])):
                return Offset(start.version, done, snapshot=True)
        return Offset(start.version)

    def _all_places(self, version: int) -> range:
        return range(len(self.opened(version).fragment_ids))

    def _size(self, version: int, place: int) -> tuple[int, int]:
        """Rows and bytes of a fragment."""
        return self.opened(version).fragment_size(place)

    # -- rows --------------------------------------------------------------------------------------------------------

    def between(self, start: Offset, end: Offset) -> Iterator[Part]:
        """The fragments from one offset to another."""
        if start == end:
            return
        start = self._begin(start, end.version)
        self._check_order(start, end.version)
        if start.snapshot:
            places = tuple(self._all_places(start.version))
            yield Part(start.version, places[start.done : end.done if end.snapshot else None])
            return
        for version in range(start.version, end.version + 1):
            first = start.done if version == start.version else 0
            last = end.done if version == end.version else None
            if last != 0:
                yield Part(version + 1, self.added(version + 1)[first:last])

    def opened(self, version: int) -> TableVersion:
        """A version, open. Raises `UsageError` for one that is not there."""
        found = self._opened.get(version)
        if found is None:
            try:
                found = open_version(self.options, version)
            except NotFound as error:
                raise self._gone_error(version) from error
            _remember(self._opened, version, found)
        return found

    def added(self, version: int) -> tuple[int, ...]:
        """Places of the fragments that a version added."""
        places = self._added.get(version)
        if places is None:
            places = self._read_added(version)
            _remember(self._added, version, places)
        return places

    def _read_added(self, version: int) -> tuple[int, ...]:
        opened = self.opened(version)
        change = opened.change()
        if change is None:
            raise self._gone_error(version)
        if change.added is not None:
            return change.added
        if self.options.skip_changes or (change.may_extend and opened.extends(self.opened(version - 1))):
            return ()
        raise UsageError(
            f"version {version} of {self.options.path} was made by {change.operation}, which changes rows that this "
            "stream has already given. Set skip_changes=true to leave such versions out, or begin a new stream with a "
            "new checkpoint"
        )

    def _gone_error(self, version: int) -> LanceError:
        return UsageError(
            f"version {version} of {self.options.path} was cleaned up before this stream has read it. Begin a new "
            "stream with a new checkpoint, and keep versions for longer than the stream may stand still"
        )


def _remember(values: OrderedDict[int, Any], version: int, value: Any) -> None:
    values[version] = value
    values.move_to_end(version)
    while len(values) > REMEMBERED_MAX:
        values.popitem(last=False)
