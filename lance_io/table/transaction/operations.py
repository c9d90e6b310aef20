"""What a transaction can do to a table: one frozen value per operation (spec: commit, section 2.2).

    Append Delete Overwrite CreateIndex Rewrite Merge Restore ReserveFragments Update Project
    UpdateConfig DataReplacement UpdateMemWalState Clone UpdateBases
    Unknown: an operation that this release cannot look into; it conflicts with everything

Classes and fields are named as in pylance's `LanceOperation`, whose forms of them users hold (`dataset/changes`). New
fragments have the id 0 until the commit that numbers them. Schemas carry the schema metadata with them.
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
    """Add fragments behind those that are there."""

    fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class Delete:
    """Delete rows.

    updated_fragments     fragments that lost some rows, in their new state as a whole
    deleted_fragment_ids  fragments that lost all
    predicate             which rows, as text for people
    """

    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@dataclass(frozen=True)
class Overwrite:
    """Replace rows and schema; also what creates a table.

    config_upsert_values  merged into the table's config
    initial_bases         base paths, of a table that is being created
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
    """Fragments whose rows were written again, in the same order, and what they became (ids already reserved)."""

    old_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class RewrittenIndex:
    """An index segment that was built anew for moved rows: which, and what took its place (UUIDs as text).

    message  what it was parsed from: details, version and files of the new segment; not to be changed
    """

    old_id: str
    new_id: str
    message: transaction_pb2.Rewrite.RewrittenIndex | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Rewrite:
    """Compaction: the same rows in other fragments.

    moved_rows  addresses of the rows of each group (treemaps; None where they are not known), for the fragment reuse
                index, which says where rows went; None where it does not. Not part of the stored transaction
    defers      True for all indices to stay as they are; otherwise those do that are known to find their rows so
    segments_then  by the version that an earlier recorded compaction was committed on: segments (UUIDs) that there were
                right after it, where those of now that are not among them do not need its record
    """

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    moved_rows: tuple[bytes | None, ...] | None = None
    defers: bool = True
    segments_then: Mapping[int, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """Add columns: all fragments of the table in their new state, and the schema.

    preserves_nullability  no column became required, so that rows written meanwhile stay valid
    """

    fragments: tuple[Fragment, ...]
    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True)
class Restore:
    """Make the content of an earlier version the newest."""

    version: int


@dataclass(frozen=True)
class ReserveFragments:
    """Take fragment ids out of use, for a rewrite that follows."""

    num_fragments: int


@dataclass(frozen=True)
class KeyFilter:
    """Which keys an update inserted, so that two writers of one key are noticed.

    field_ids   fields that make the key
    hashes      of the keys, exactly; None for a Bloom filter
    bitmap      bits of the filter, least significant first; num_bits, num_items, probability: how it was made
    """

    field_ids: tuple[int, ...]
    hashes: frozenset[int] | None
    bitmap: bytes = b""
    num_bits: int = 0
    num_items: int = 0
    probability: float = 0.0


@dataclass(frozen=True)
class Update:
    """Change rows: they are deleted where they are and written again, or some columns of them are.

    removed_fragment_ids  fragments that lost all rows
    updated_fragments     fragments that lost rows or got other columns, in their new state as a whole
    new_fragments         rewritten and inserted rows; with stable row ids they bring those of the rewritten ones
    fields_modified       ids of the fields that were rewritten in place
    fields_for_preserving_frag_bitmap  ids of the fields whose values changed
    inserted_rows         keys that were inserted, None when nobody says
    updated_fragment_offsets  which rows of a fragment were rewritten in place, portable Roaring bitmaps by its id
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
    """Change the schema only: drop, rename, nullability. `preserves_nullability` as in `Merge`."""

    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True)
class UpdateMap:
    """A change of key-value pairs.

    updates  new values; None deletes the key
    replace  forget all other pairs first
    """

    updates: Mapping[str, str | None]
    replace: bool = False

    @property
    def upserted(self) -> frozenset[str]:
        """Keys that get a value."""
        return frozenset(key for key, value in self.updates.items() if value is not None)


@dataclass(frozen=True)
class UpdateConfig:
    """Change config and metadata; None leaves a map alone. Those of fields are by field id."""

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
    """A data file that takes the place of the one with the same fields in a fragment."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True)
class DataReplacement:
    """Put other data files in the place of those that are there."""

    replacements: tuple[DataReplacementGroup, ...]


@dataclass(frozen=True)
class UpdateMemWalState:
    """A step of the write-ahead log, which is not looked into."""


@dataclass(frozen=True)
class Clone:
    """The first version of a clone or branch.

    is_shallow   its files stay where they are
    ref_name, ref_version, ref_path  what was cloned
    branch_name  None for a table of its own
    """

    is_shallow: bool
    ref_name: str | None
    ref_version: int
    ref_path: str
    branch_name: str | None


@dataclass(frozen=True)
class UpdateBases:
    """Declare base paths; those of id 0 get the next free one."""

    new_bases: tuple[BasePath, ...]


@dataclass(frozen=True)
class Unknown:
    """An operation that a later release invented, or none at all."""


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
    """What errors call it."""
    return type(operation).__name__
