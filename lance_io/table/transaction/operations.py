"""The operations of transactions, each as a frozen value (spec: commit, section 2.2).

    Append Delete Overwrite CreateIndex Rewrite Merge Restore ReserveFragments Update Project
    UpdateConfig DataReplacement UpdateMemWalState Clone UpdateBases
    Unknown: an operation that this release cannot decode; it conflicts with everything

Classes and fields have the names of pylance's `LanceOperation`; `dataset/changes` has the classes for users. New
fragments have the id 0 until a commit numbers them. Schemas include the schema metadata.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeAlias

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.format.schema import Schema
    from lance_io.proto import transaction_pb2
    from lance_io.table.manifest.fragment import DataFile, Fragment
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.manifest.manifest import BasePath

UpdateMode = Literal["rewrite_rows", "rewrite_columns"]


@dataclass(frozen=True)
class Append:
    """Add fragments behind the existing ones."""

    fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class Delete:
    """Delete rows.

    updated_fragments     fragments that lost some rows, in their complete new state
    deleted_fragment_ids  fragments that lost all rows
    predicate             the deleted rows' condition, as text for people
    """

    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@dataclass(frozen=True)
class Overwrite:
    """Replace rows and schema, or create a table.

    config_upsert_values  merged into the table's config
    initial_bases         base paths of a new table
    """

    fragments: tuple[Fragment, ...]
    new_schema: Schema
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True)
class CreateIndex:
    """Add index segments, remove those with the identifiers of `removed_indices`."""

    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True)
class RewriteGroup:
    """Fragments whose rows were rewritten in the same order, and the new fragments (with reserved ids)."""

    old_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class RewrittenIndex:
    """An index segment that was rebuilt for moved rows: its old and new UUID, as text.

    message  the message that it was parsed from, with details, version and files of the new segment; not to be changed
    names_new_rows  whether its files are known to name the rows by their new addresses alone, so that it needs no
                record of moves. Not part of the stored transaction
    """

    old_id: str
    new_id: str
    message: transaction_pb2.Rewrite.RewrittenIndex | None = field(default=None, repr=False, compare=False)
    names_new_rows: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True)
class Rewrite:
    """Compaction: the same rows in other fragments.

    moved_rows  addresses of the rows of each group (treemaps; None if unknown), for the fragment reuse index; None to
                record nothing there. Not part of the stored transaction
    defers      whether all indices stay unchanged; else only those that are known to find their rows through the record
    segments_then  by the version that an earlier recorded compaction was committed on: the segments (UUIDs) right after
                it; segments not among them do not need its record
    """

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    moved_rows: tuple[bytes | None, ...] | None = None
    defers: bool = True
    segments_then: Mapping[int, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """Add columns: all fragments of the table in their new state, and the schema.

    preserves_nullability  whether no column became required, so that rows written meanwhile stay valid
    """

    fragments: tuple[Fragment, ...]
    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True)
class Restore:
    """Create a version with the content of an earlier version."""

    version: int


@dataclass(frozen=True)
class ReserveFragments:
    """Reserve fragment ids for a later rewrite."""

    num_fragments: int


@dataclass(frozen=True)
class KeyFilter:
    """The keys that an update inserted, to detect two writers of the same key.

    field_ids   fields of the key
    hashes      of the keys, exact; None for a Bloom filter
    bitmap      bits of the Bloom filter, least significant first; num_bits, num_items, probability: its parameters
    """

    field_ids: tuple[int, ...]
    hashes: frozenset[int] | None
    bitmap: bytes = b""
    num_bits: int = 0
    num_items: int = 0
    probability: float = 0.0


@dataclass(frozen=True)
class Update:
    """Change rows: delete and rewrite them, or rewrite some of their columns in place.

    removed_fragment_ids  fragments that lost all rows
    updated_fragments     fragments that lost rows or got other columns, in their complete new state
    new_fragments         rewritten and inserted rows; with stable row ids, rewritten rows have their ids
    fields_modified       ids of the fields that were rewritten in place
    fields_for_preserving_frag_bitmap  ids of the fields whose values changed
    inserted_rows         the inserted keys, None if unknown
    updated_fragment_offsets  rows that were rewritten in place: portable Roaring bitmaps by fragment id
    """

    removed_fragment_ids: tuple[int, ...] = ()
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    update_mode: UpdateMode = "rewrite_rows"
    inserted_rows: KeyFilter | None = None
    updated_fragment_offsets: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Project:
    """Change only the schema: drop or rename columns, change nullability. `preserves_nullability` as in `Merge`."""

    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True)
class UpdateMap:
    """A change of key-value pairs.

    updates  new values; None deletes the key
    replace  whether to remove all other pairs first
    """

    updates: Mapping[str, str | None]
    replace: bool = False

    @property
    def upserted(self) -> frozenset[str]:
        """The keys that get a value."""
        return frozenset(key for key, value in self.updates.items() if value is not None)


@dataclass(frozen=True)
class UpdateConfig:
    """Change config and metadata; None leaves a map unchanged. Metadata of fields is by field id."""

    config_updates: UpdateMap | None = None
    table_metadata_updates: UpdateMap | None = None
    schema_metadata_updates: UpdateMap | None = None
    field_metadata_updates: Mapping[int, UpdateMap] = field(default_factory=dict)

    @property
    def changes_schema(self) -> bool:
        """Whether it changes metadata that is part of the schema."""
        return self.schema_metadata_updates is not None or bool(self.field_metadata_updates)


@dataclass(frozen=True)
class DataReplacementGroup:
    """A data file that replaces the one with the same fields in a fragment."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True)
class DataReplacement:
    """Replace data files of fragments."""

    replacements: tuple[DataReplacementGroup, ...]


@dataclass(frozen=True)
class UpdateMemWalState:
    """A step of the write-ahead log, which is not decoded."""


@dataclass(frozen=True)
class Clone:
    """The first version of a clone or branch.

    is_shallow   whether its files stay in place
    ref_name, ref_version, ref_path  the cloned branch or tag, version and path
    branch_name  None for a separate table
    """

    is_shallow: bool
    ref_name: str | None
    ref_version: int
    ref_path: str
    branch_name: str | None


@dataclass(frozen=True)
class UpdateBases:
    """Declare base paths; base paths with id 0 get the next free id."""

    new_bases: tuple[BasePath, ...]


@dataclass(frozen=True)
class Unknown:
    """An operation of a later release, or no operation."""


Operation: TypeAlias = (
    Append
    | Delete
    | Overwrite
    | CreateIndex
    | Rewrite
    | Merge
    | Restore
    | ReserveFragments
    | Update
    | Project
    | UpdateConfig
    | DataReplacement
    | UpdateMemWalState
    | Clone
    | UpdateBases
    | Unknown
)


def operation_name(operation: Operation) -> str:
    """The name of an operation, for errors."""
    return type(operation).__name__
