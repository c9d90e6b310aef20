"""What travels from planner to planner and from there to the tasks: a version, partitions, parts of the manifest.

A source that was loaded carries the manifest, so that planning asks the store for nothing. A partition carries the
entries of the manifest for its fragments, files and deletion files included, and the reader carries the rest of the
manifest (`header_of`). Together they open the part of the table that a task reads, without a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from lance_io.dataset.version.object_keys import branch_location
from lance_io.dataset.version.state import DatasetState
from lance_io.dataset.version.system_columns import SYSTEM_COLUMNS
from lance_io.proto import table_pb2
from lance_io.spark.engine import open_table, process_session, storage_options
from lance_io.table.manifest.flags import STABLE_ROW_IDS
from lance_io.table.manifest.manifest import VERSION_MAX, from_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.spark.options import ReadOptions

Serialized: TypeAlias = bytes  # `bytes` is also the name of a field below
DECODED_PER_BYTE: Final = 16  # memory of what is made of a serialized manifest, about
CARRIED_BYTES_MAX: Final = 1 << 20  # of a manifest; a longer one is read again, not held by every DataFrame in the JVM


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What one task reads.

    number     its place among the partitions
    version    of the table
    ranges     (fragment id, first row, rows), physical rows; each of another fragment, in the order of the table
    bytes      decoded bytes of the columns that are read, estimated
    fragments  the manifest's entries of the fragments of `ranges`, serialized
    """

    number: int
    version: int
    ranges: tuple[tuple[int, int, int], ...]
    bytes: int
    fragments: tuple[Serialized, ...] = field(repr=False)

    @property
    def physical_rows(self) -> int:
        """Rows of the ranges, deleted ones included."""
        return sum(rows for _, _, rows in self.ranges)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The version that a DataFrame reads, whatever is committed later.

    manifest  its manifest, serialized; None for one that is long
    """

    branch: str | None
    version: int
    manifest: Serialized | None = field(default=None, repr=False)


def pinned(state: DatasetState) -> Pinned:
    """What names the version of a state."""
    message = state.manifest.message
    carried = message.SerializeToString() if message.ByteSize() <= CARRIED_BYTES_MAX else None
    return Pinned(state.manifest.branch, state.manifest.version, carried)


def open_pinned(options: ReadOptions, version: Pinned | None) -> DatasetState:
    """The version that was pinned, or None: the one that the options name."""
    if version is None:
        return open_table(options)
    carried = version.manifest
    if carried is None:
        return open_table(options, (version.branch, version.version))
    return _remembered(options, version.branch, (carried,), lambda _: table_pb2.Manifest.FromString(carried))


def _needs_row_ids(options: ReadOptions) -> bool:
    """Whether a task may need the row id sequences, which can be large."""
    named = any(path[0] in SYSTEM_COLUMNS for path in options.columns or ())
    return options.with_row_id or options.filter is not None or named


def fragment_message(state: DatasetState, options: ReadOptions, place: int) -> bytes:
    message = table_pb2.DataFragment()
    message.CopyFrom(state.manifest.message.fragments[place])
    if not _needs_row_ids(options):
        for name in ("inline_row_ids", "inline_created_at_versions", "inline_last_updated_at_versions"):
            message.ClearField(name)
    return message.SerializeToString()


_NOT_FOR_READING: Final = (
    "fragments", "config", "table_metadata", "index_section", "transaction_section", "transaction_section_before_v14",
)  # fmt: skip


def header_of(state: DatasetState, options: ReadOptions) -> bytes:
    """The manifest without its fragments and without what no read needs, serialized."""
    message = table_pb2.Manifest()
    whole = state.manifest.message
    for descriptor, value in whole.ListFields():
        if descriptor.name in _NOT_FOR_READING:
            continue
        part = table_pb2.Manifest(**{descriptor.name: value})
        message.MergeFrom(part)
    if not _needs_row_ids(options):
        message.reader_feature_flags &= ~STABLE_ROW_IDS
        message.writer_feature_flags &= ~STABLE_ROW_IDS
    return message.SerializeToString()


def restored(options: ReadOptions, header: bytes, branch: str | None, part: PartitionPlan) -> DatasetState:
    """The part of a table version that a partition reads, opened without a request.

    header  of the version, as `header_of` gives it
    """
    return _remembered(options, branch, (header, *part.fragments), lambda digest: _joined(header, part, digest))


def _remembered(
    options: ReadOptions, branch: str | None, carried: Sequence[bytes], message: Callable[[str], table_pb2.Manifest]
) -> DatasetState:
    """The state of what was carried here, the same one as long as the process's session remembers it.

    message  makes the manifest of it, given the digest of what was carried
    """
    session, settings = process_session(), storage_options(options)
    root = session.locate(options.path, settings)
    digest = blake2b(b"".join(carried), digest_size=16).hexdigest()
    key = ("carried", root.store.identity, options.path, tuple(sorted(settings.items())), branch, digest)
    found: DatasetState | None = session.cache.get(key)
    if found is None:
        found = DatasetState(
            location=branch_location(root, branch),
            root=root,
            manifest=from_message(message(digest), VERSION_MAX),
            session=session,
            given_uri=options.path,
            storage_options=settings,
        )
        session.cache.put(key, found, DECODED_PER_BYTE * sum(map(len, carried)))
    return found


def _joined(header: bytes, part: PartitionPlan, digest: str) -> table_pb2.Manifest:
    message = table_pb2.Manifest.FromString(header)
    for fragment in part.fragments:
        message.fragments.add().ParseFromString(fragment)
    # what caches know of a version goes by its transaction; here places count from the partition's first fragment
    message.transaction_file = f"{message.transaction_file}#{digest}"
    return message
