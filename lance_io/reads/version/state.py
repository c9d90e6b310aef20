"""One open table version: the manifest's data in the forms that scans and takes need, computed once.

A state is immutable; checking out another version creates another state that shares the session. Data loaded on demand
(deletion vectors, row ids) lives in the session's search cache, not here.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lance_io.errors import BindError, FormatError, NotFound, UnsupportedError, UsageError
from lance_io.file.open.file_source import ReadContext
from lance_io.format.version import V0_1
from lance_io.io.cache import SearchCache
from lance_io.lazy_names import lazy_module
from lance_io.limits import MIB
from lance_io.proto import table_pb2
from lance_io.reads.version.column_lists import PreparedCache, fields_along, prune
from lance_io.reads.version.object_keys import ObjectKeys, Sources, branch_location, branch_uri
from lance_io.records import dataclass
from lance_io.store.offers import offers_sync_reads
from lance_io.store.storage_options import options_of
from lance_io.store.url import uri_of
from lance_io.table.manifest.flags import SPILLED_ROW_LINEAGE
from lance_io.table.manifest.manifest import VERSION_MAX, Manifest, from_message

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.open.kept_ends import KeptEnds
    from lance_io.format.schema import Field, Schema
    from lance_io.io.scheduler import OpenSchedulers
    from lance_io.reads.version import blob_fields
    from lance_io.reads.version.column_lists import OutputColumn, Projection
    from lance_io.reads.version.session import Session
    from lance_io.spans import IntArray
    from lance_io.store.api import ObjectStore
    from lance_io.store.url import Location
else:
    blob_fields = lazy_module("lance_io.reads.version.blob_fields")

ANSWERS_BYTES_MAX: Final = MIB  # of rows that indices named, kept for the same questions again


class FragmentPlace(NamedTuple):
    """A fragment whose id is not unique, named by its index in a version."""

    version: int
    fragment_index: int


@dataclass(frozen=True, eq=False)
class DatasetState:
    """An open table version.

    location              the folder that holds the version: the table's, or a branch's
    root                  the table's folder, where tags and branches are listed
    manifest              the version
    session               shared caches and stores
    given_uri             the URI as given
    storage_options       as given
    default_scan_options  defaults of scan keywords for scans of the dataset
    read_params           as given
    base_store_params     storage options of base paths, by their URI, as given
    commit_lock           the user's lock for commits, or None
    memory_limit          bytes that a change of the table may hold unless its call says so; None for the default
    max_decoded_bytes     maximum bytes of a decoded value; None for the session's limit
    schedulers            of the reads that end when an `AsyncDataset` is closed, or None
    missing_file          the error for a missing data file with the row count of a fragment, or None
    """

    location: Location
    root: Location
    manifest: Manifest
    session: Session
    given_uri: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    default_scan_options: Mapping[str, Any] | None = None
    read_params: Mapping[str, Any] | None = None
    base_store_params: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    commit_lock: Any = None
    memory_limit: int | None = None
    max_decoded_bytes: int | None = None
    schedulers: OpenSchedulers | None = field(default=None, repr=False)
    missing_file: NotFound | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.root.store.scheme == "memory" and self.root.uri.startswith("memory:"):
            raise UsageError("a table at memory:// belongs to one dataset and cannot be pickled; write it to a folder")
        names_branch = branch_uri(self.given_uri, self.location, self.root) == self.given_uri
        values = {
            "uri": uri_of(self.root),
            "given_uri": uri_of(self.location if names_branch else self.root),
            "branch": self.manifest.branch,
            "manifest": self.manifest.message.SerializeToString(),
            "session": self.session,
            "storage_options": None if self.storage_options is None else options_of(self.storage_options),
            "default_scan_options": self.default_scan_options,
            "read_params": self.read_params,
            "base_store_params": self.base_store_params,
            "memory_limit": self.memory_limit,
            "max_decoded_bytes": self.max_decoded_bytes,
        }
        return _unpickled, (values,)

    # -- the store ---------------------------------------------------------------------------------------------------

    @property
    def answers_sync(self) -> bool:
        """Whether the store, and those of all base paths, answer in the caller's thread; decides the driver of a call.

        Every call checks this. Raises `RuntimeError` once the `AsyncDataset` is closed.
        """
        self.check_open()
        return self.is_local

    @cached_property
    def is_local(self) -> bool:
        """The same during a call: whether a read costs microseconds rather than a round trip."""
        return offers_sync_reads(self.context.store)

    def check_open(self) -> None:
        """Raise `RuntimeError` once the `AsyncDataset` is closed."""
        if self.schedulers is not None:
            self.schedulers.check()

    def check_commits(self) -> None:
        """Raise `UnsupportedError` if the store cannot decide commits; nothing may be written then."""
        self.session.handler(self.location, self.commit_lock).check(self.location)

    @cached_property
    def context(self) -> ReadContext:
        """Read context that all reads of this version share."""
        checks_values = bool((self.read_params or {}).get("validate_on_decode"))
        shared = self.session.io_scheduler
        context = ReadContext(
            self.object_keys.store(),
            self.session.cache,
            checks_values=checks_values,
            has_indexes_at_end=self.manifest.is_ours,
            schedulers=self.schedulers,
            shared=shared,
            value_bytes_max=self.max_decoded_bytes or self.session.max_decoded_bytes,
        )
        if shared is not None and shared.io_buffer_size is not None:
            context.io_buffer_bytes = shared.io_buffer_size
        return context

    def context_of(self, store: ObjectStore) -> ReadContext:
        """The read context for objects in one store, by their keys there."""
        return self.context if store is self.context.store else replace(self.context, store=store)

    def scan_context(self, io_buffer_bytes: int | None, ends: KeptEnds | None = None) -> ReadContext:
        """The read context for one scan, with a budget of its own.

        ends  keeps the ends of files for later reads of this scan
        """
        if io_buffer_bytes is None and ends is None:
            return self.context
        budget_bytes = self.context.io_buffer_bytes if io_buffer_bytes is None else io_buffer_bytes
        return replace(self.context, io_buffer_bytes=budget_bytes, ends=ends)

    def release(self) -> None:
        """Drop prepared column lists."""
        self.__dict__.pop("prepared", None)

    @cached_property
    def identity(self) -> tuple[Hashable, ...]:
        """Identity of this version for cache keys; the transaction's name is random."""
        manifest = self.manifest
        return self.location.store.identity, self.location.path, manifest.version, manifest.transaction_file

    # -- schema ------------------------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> Schema:
        """Schema with field ids."""
        return self.manifest.schema

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Schema as users see it."""
        return self.schema.to_arrow()

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Schema of the arrays that the file reader returns; filters are bound against it."""
        import pyarrow as pa

        return pa.schema(
            [pa.field(field.name, field.arrow_type, field.nullable) for field in self.schema.described.fields]
        )

    @property
    def max_field_id(self) -> int:
        """The largest field id in use, in the schema or in a data file."""
        stored = (
            field_id for fragment in self.manifest.fragments for file in fragment.files for field_id in file.fields
        )
        return max(max(stored, default=-1), self.schema.max_field_id)

    @property
    def data_storage_version(self) -> str:
        """File version of new data."""
        return self.manifest.data_version.name

    @property
    def has_index(self) -> bool:
        """Whether the version has an index section."""
        return self.manifest.index_offset is not None

    def shown(self, projection: Projection, blob_handling: str | None) -> Projection:
        """A projection with blobs in the form of `blob_handling`: bytes for "all_binary", else descriptions.

        Raises `BindError` for a member of a description if blobs are bytes, which have no members.
        """
        if blob_handling != "all_binary" or self.schema.described is self.schema:
            return projection
        for path in projection.data_paths:
            self._refuse_members_of_bytes(path)
        return replace(projection, outputs=tuple(self._with_bytes(output) for output in projection.outputs))

    def _refuse_members_of_bytes(self, path: tuple[str, ...]) -> None:
        if any(field.holds_blobs for field in fields_along(self.schema, path)[:-1]):
            raise BindError(
                f"No field named {'.'.join(path)}: blobs are read as bytes here, which have no members. "
                "Read them as descriptions to see these."
            )

    def _with_bytes(self, output: OutputColumn) -> OutputColumn:
        if output.is_system or output.computed is not None:
            return output
        field = self.pruned_fields(output.parts)[0] if output.parts else self.field_at(output.path)
        if field.describe_blobs() is field:
            return output
        arrow = blob_fields.with_binaries(field).to_arrow().with_name(output.name).with_nullable(output.field.nullable)
        return replace(output, field=arrow)

    def field_at(self, path: tuple[str, ...]) -> Field:
        """The field at a projection's path, names from the top-level column down."""
        return fields_along(self.schema, path)[-1]

    def pruned_fields(self, paths: Iterable[tuple[str, ...]]) -> list[Field]:
        """The top-level fields that hold `paths`, pruned to them, in schema order."""
        return prune(self.schema, paths)

    @cached_property
    def prepared(self) -> PreparedCache:
        """Cache of prepared takes and scans."""
        return PreparedCache()

    @cached_property
    def key_turns(self) -> dict[Hashable, Any]:
        """Look-ups of keys that wait for the end of a turn of their loop."""
        return {}

    @cached_property
    def answers(self) -> SearchCache:
        """Answers of indices to filters, for the same question again."""
        return SearchCache(ANSWERS_BYTES_MAX)

    # -- fragments ---------------------------------------------------------------------------------------------------

    @cached_property
    def all_fragment_indexes(self) -> range:
        """Indexes of all fragments, in the order of the manifest."""
        return range(len(self.manifest.fragments))

    @cached_property
    def fragment_ids(self) -> list[int]:
        """Fragment ids by index."""
        return self.manifest.fragments.ids

    @cached_property
    def fragment_index_by_id(self) -> dict[int, int]:
        """Fragment indexes by id. Raises `FormatError` if two fragments share an id."""
        if self.shared_ids:
            raise self._shared_id_error(min(self.shared_ids))
        return self._index_by_id

    @cached_property
    def _index_by_id(self) -> dict[int, int]:
        return {fragment_id: fragment_index for fragment_index, fragment_id in enumerate(self.fragment_ids)}

    @cached_property
    def shared_ids(self) -> frozenset[int]:
        """Ids of several fragments, as in tables of old releases: their rows can be scanned, not addressed."""
        if len(self._index_by_id) == len(self.fragment_ids):
            return frozenset()
        return frozenset(fragment_id for fragment_id, count in Counter(self.fragment_ids).items() if count > 1)

    def _shared_id_error(self, fragment_id: int) -> FormatError:
        return FormatError(
            f"two fragments have one id, {fragment_id}, so ids and row addresses are ambiguous. Release 0.16 and "
            "earlier ones wrote such tables: you can scan the rows and rewrite them with an overwrite; earlier "
            "versions may be whole",
            path=self.location.uri,
        )

    def fragment_index_of(self, fragment_id: int) -> int | None:
        """The index of a fragment; None if no fragment has this id.

        Raises `TypeError` for a non-integer, `FormatError` for an id of two fragments.
        """
        number = operator.index(fragment_id)
        if number < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if number in self.shared_ids:
            raise self._shared_id_error(number)
        return self._index_by_id.get(number)

    def scanned_fragment_indexes(self, fragments: Sequence[int | FragmentPlace] | None) -> Sequence[int]:
        """Indexes of the fragments that a scan names, all of them for None. Raises as `fragment_indexes_of`."""
        if fragments is None:
            return self.all_fragment_indexes
        ids = [item for item in fragments if not isinstance(item, FragmentPlace)]
        if len(ids) == len(fragments):
            return self.fragment_indexes_of(ids)
        version = self.manifest.version
        if ids or any(item.version != version for item in fragments if isinstance(item, FragmentPlace)):
            raise UsageError(f"expected only fragments of version {version}, whose ids are not unique")
        return [item.fragment_index for item in fragments if isinstance(item, FragmentPlace)]

    def fragment_indexes_of(self, fragment_ids: Sequence[int]) -> list[int]:
        """Indexes of fragments given by id, in that order. Raises `ValueError` for an unknown id."""
        missing = [fragment_id for fragment_id in fragment_ids if fragment_id not in self.fragment_index_by_id]
        if missing:
            raise UsageError(f"there is no fragment {missing[0]} in version {self.manifest.version}")
        return [self.fragment_index_by_id[fragment_id] for fragment_id in fragment_ids]

    @cached_property
    def _sorted_ids(self) -> tuple[IntArray, IntArray]:
        ids = np.array(self.fragment_ids, dtype=np.int64)
        order = np.argsort(ids, kind="stable")
        return ids[order], order

    def find_fragment_indexes(self, fragment_ids: IntArray) -> IntArray:
        """Indexes of fragments given by id, -1 for an unknown id. Raises `FormatError` for an id of two fragments."""
        ids, order = self._sorted_ids
        shared = self.shared_ids.intersection(fragment_ids.tolist()) if self.shared_ids else ()
        if shared:
            raise self._shared_id_error(min(shared))
        if not len(ids):
            return np.full(len(fragment_ids), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(ids, fragment_ids), len(ids) - 1)
        return np.where(ids[at] == fragment_ids, order[at], -1)

    def check_files(self) -> None:
        """Raise `NotFound` if a data file with the row count of a fragment is missing."""
        if self.missing_file is not None:
            raise NotFound(self.missing_file.message, path=self.missing_file.path)

    @cached_property
    def physical_rows(self) -> IntArray:
        """Rows of every fragment by index, deleted ones included."""
        rows = np.array(self.manifest.fragments.physical_rows, dtype=np.int64)
        if not rows.all():
            self.check_files()
            fragment_id = self.fragment_ids[int(np.argmin(rows))]
            raise UnsupportedError(
                f"fragment {fragment_id} does not say how many rows it has (a table of file version "
                f"{self.data_storage_version}, from an old release), which this release does not read",
                path=self.location.uri,
            )
        return rows

    @cached_property
    def num_rows(self) -> int | None:
        """Live rows; None if the manifest does not say."""
        return self.manifest.num_rows

    @cached_property
    def has_deletions(self) -> list[bool]:
        """Whether a fragment has a deletion file, by index."""
        return [fragment_index in self.manifest.fragments.deleted_rows for fragment_index in self.all_fragment_indexes]

    @cached_property
    def has_batches(self) -> bool:
        """Whether data files may be of version 0.1, which consist of batches with statistics."""
        return V0_1 in self.manifest.fragments.file_versions

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether row ids survive updates and compaction."""
        return self.manifest.has_stable_row_ids

    @property
    def has_spilled_lineage(self) -> bool:
        """Whether data files, not the manifest, may hold ids and versions of rows (feature flag 2048)."""
        return bool((self.manifest.reader_flags | self.manifest.writer_flags) & SPILLED_ROW_LINEAGE)

    @cached_property
    def sources(self) -> Sources:
        """Data files and row counts of each fragment, by index."""
        return Sources(self.object_keys, self.physical_rows)

    @cached_property
    def object_keys(self) -> ObjectKeys:
        """Keys of the version's objects."""
        return ObjectKeys(
            self.location, self.manifest, self.session, self.storage_options, self.base_store_params or {}
        )

    def storage_options_copy(self) -> dict[str, str] | None:
        """Storage options as given."""
        return None if self.storage_options is None else dict(self.storage_options)


def _unpickled(values: dict[str, Any]) -> DatasetState:
    """The same version in the pickled session, whose cache is empty; no request."""
    message = table_pb2.Manifest()
    message.ParseFromString(values["manifest"])
    session: Session = values["session"]
    root = session.locate(values["uri"], values["storage_options"])
    return DatasetState(
        location=branch_location(root, values["branch"]),
        root=root,
        manifest=from_message(message, VERSION_MAX),
        session=session,
        given_uri=values.get("given_uri", values["uri"]),  # earlier releases pickled no more than `uri`
        storage_options=values["storage_options"],
        default_scan_options=values["default_scan_options"],
        read_params=values["read_params"],
        base_store_params=values["base_store_params"],
        memory_limit=values["memory_limit"],
        max_decoded_bytes=values.get("max_decoded_bytes"),
    )
