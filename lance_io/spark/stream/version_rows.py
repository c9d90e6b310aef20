"""The rows and offsets of a stream over the versions of a table.

    first        a snapshot: the live rows of the newest version, or nothing with `starting_version`
    afterwards   the fragments that each later version added, as they are in that version

An offset records the rows read so far. Its parts, and their values at the beginning of a stream:

    version    all versions up to this one; during a snapshot: its version                          0
    done       number of fragments read in addition: of the snapshot, or of the next version's      0
    snapshot   whether the snapshot is still being read                                             False

A batch never goes past the end of the snapshot, so two offsets determine the rows between them.
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

CACHED_VERSIONS_MAX: Final = 64  # Spark requests offsets, and later the rows between them


@dataclass(frozen=True)
class Offset:
    """An offset of the stream, see the module's text."""

    version: int = 0
    done: int = 0
    snapshot: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Offset:
        """The offset in a checkpoint. Raises `UsageError` for an offset of another source."""
        version, done, snapshot = values.get("version"), values.get("done", 0), values.get("snapshot", False)
        counts = (version, done)
        is_valid = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)
        if not is_valid or not isinstance(snapshot, bool):
            raise UsageError(f"the checkpoint's offset is not of this source: {dict(values)}")
        return cls(int(version or 0), int(done), snapshot)

    def to_json(self) -> dict[str, Any]:
        """The offset in Spark's checkpoint; the beginning is always the same."""
        if self == Offset():
            return {"version": 0}
        return {"version": self.version, "done": self.done, "snapshot": self.snapshot}


@dataclass(frozen=True)
class Part:
    """Fragments of one version, by their indices in its manifest."""

    version: int
    fragment_indices: tuple[int, ...]


@dataclass
class Allowance:
    """The remaining size of a batch; the first fragment is always taken."""

    rows: float = float("inf")
    num_bytes: float = float("inf")
    is_fresh: bool = True

    def take(self, rows: int, num_bytes: int) -> bool:
        """Add a fragment of this size; returns whether it still belongs to the batch."""
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
        opened = open_version(self.options)
        _cache(self._opened, opened.version, opened)
        return opened.version

    def after(self, start: Offset, newest: int, allowance: Allowance) -> Offset:
        """The end of the batch that begins at `start`; `start` itself if there is nothing new.

        Raises `UsageError` for a change other than added rows, a version that was cleaned up, and a table that was
        dropped and created again; `NotFound` if `starting_version` does not exist yet.
        """
        start = self._begin(start, newest)
        self._check_order(start, newest)
        if start.snapshot:
            return self._after_snapshot(start, allowance)
        version, done = start.version, start.done
        while version < newest:
            added = self.added(version + 1)
            for index in added[done:]:
                if not allowance.take(*self._size(version + 1, index)):
                    return Offset(version, done)
                done += 1
            version, done = version + 1, 0
        return Offset(version, done)

    def _begin(self, start: Offset, snapshot_version: int) -> Offset:
        """The first offset of a stream that has not read anything; other offsets unchanged."""
        if start != Offset():
            return start
        first = self.options.starting_version
        if first is None:
            return Offset(snapshot_version, snapshot=True)
        if first > snapshot_version:  # it would skip the next versions
            raise NotFound(
                f"starting_version={first}: the newest version of {self.options.path} is {snapshot_version}. Give "
                f"{snapshot_version} for only rows that are added from now on"
            )
        return Offset(first)

    def _check_order(self, start: Offset, version: int) -> None:
        """Raise for a table with fewer versions than the stream has read: waiting would skip the next versions."""
        if start.version > version:
            raise UsageError(
                f"this stream has read version {start.version} of {self.options.path}, whose newest version is "
                f"{version}: the table was dropped and created again. Begin a new stream with a new checkpoint"
            )

    def _after_snapshot(self, start: Offset, allowance: Allowance) -> Offset:
        indices = self._all_fragments(start.version)
        for done in range(start.done, len(indices)):
            if not allowance.take(*self._size(start.version, indices[done])):
                return Offset(start.version, done, snapshot=True)
        return Offset(start.version)

    def _all_fragments(self, version: int) -> range:
        return range(len(self.opened(version).fragment_ids))

    def _size(self, version: int, index: int) -> tuple[int, int]:
        """Rows and bytes of a fragment."""
        return self.opened(version).fragment_size(index)

    # -- rows --------------------------------------------------------------------------------------------------------

    def between(self, start: Offset, end: Offset) -> Iterator[Part]:
        """The fragments from one offset to another."""
        if start == end:
            return
        start = self._begin(start, end.version)
        self._check_order(start, end.version)
        if start.snapshot:
            indices = tuple(self._all_fragments(start.version))
            yield Part(start.version, indices[start.done : end.done if end.snapshot else None])
            return
        for version in range(start.version, end.version + 1):
            first = start.done if version == start.version else 0
            last = end.done if version == end.version else None
            if last != 0:
                yield Part(version + 1, self.added(version + 1)[first:last])

    def opened(self, version: int) -> TableVersion:
        """An open version, cached. Raises `UsageError` if it does not exist."""
        opened = self._opened.get(version)
        if opened is None:
            try:
                opened = open_version(self.options, version)
            except NotFound as error:
                raise self._gone_error(version) from error
            _cache(self._opened, version, opened)
        return opened

    def added(self, version: int) -> tuple[int, ...]:
        """Indices of the fragments that a version added."""
        indices = self._added.get(version)
        if indices is None:
            indices = self._read_added(version)
            _cache(self._added, version, indices)
        return indices

    def _read_added(self, version: int) -> tuple[int, ...]:
        opened = self.opened(version)
        change = opened.change()
        if change is None:
            raise self._gone_error(version)
        if change.added is not None:
            return change.added
        if change.may_extend and opened.extends(self.opened(version - 1)):
            added = opened.added_to(self.opened(version - 1))  # rows may come together with columns
            if added is not None:
                return added
        if self.options.skip_changes:
            return ()
        raise UsageError(
            f"version {version} of {self.options.path} was made by {change.operation}, which changes rows that this "
            "stream has already returned. Set skip_changes=true to skip such versions, or begin a new stream with a "
            "new checkpoint"
        )

    def _gone_error(self, version: int) -> LanceError:
        return UsageError(
            f"version {version} of {self.options.path} was cleaned up before this stream has read it. Begin a new "
            "stream with a new checkpoint, and keep versions longer than the stream may be stopped"
        )


def _cache(values: OrderedDict[int, Any], version: int, value: Any) -> None:
    values[version] = value
    values.move_to_end(version)
    while len(values) > CACHED_VERSIONS_MAX:
        values.popitem(last=False)
