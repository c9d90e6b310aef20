"""`LanceOperation` and `Transaction`: changes of a table as values, with pylance's names (spec: commit, section 2).

A writer makes one, `LanceDataset.commit` makes it true. Distributed jobs make fragments in many places and commit one
operation that lists them all.
"""

from __future__ import annotations

import warnings
from dataclasses import field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.lazy_names import later
from lance_io.not_offered import OperationsNotOffered
from lance_io.records import dataclass
from lance_io.table.transaction.transaction import COMMIT_MESSAGE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lance_io.reads.metadata import fragment_metadata
    from lance_io.reads.metadata.fragment_metadata import DataFile, FragmentMetadata
    from lance_io.reads.metadata.lance_schema import LanceSchema
else:
    fragment_metadata = later("lance_io.reads.metadata.fragment_metadata")

LANCE_COMMIT_MESSAGE_KEY: Final = COMMIT_MESSAGE_KEY


@dataclass(frozen=True)
class DatasetBasePath:
    """A folder, other than the table's own, that files of a table lie below.

    path             URI
    name             unique in the table, None for none
    is_dataset_root  whether it is a table's folder (files lie below its `data/`)
    id               None until it is committed
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None


@dataclass()
class IndexFile:
    """One file of an index. path: relative to the index; size_bytes: whole file."""

    path: str
    size_bytes: int


@dataclass()
class Index:
    """What a manifest says about an index (spec: table, section 10).

    uuid             names its folder
    fields           ids of the indexed fields
    dataset_version  version that it was built on
    fragment_ids     fragments that it covers
    index_version    of its format
    created_at       None when not recorded
    base_id          entry of the base paths, None for the table's own folder
    files            its files, None when not recorded
    index_details    type URL and bytes of its details message, None for none
    covering_fields  ids of fields whose values it stores
    """

    uuid: str
    name: str
    fields: list[int]
    dataset_version: int
    fragment_ids: set[int]
    index_version: int
    created_at: datetime | None = None
    base_id: int | None = None
    files: list[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: list[int] = field(default_factory=list)


class LanceOperation(OperationsNotOffered):
    """The operations that a transaction may carry."""

    class BaseOperation:
        """Base of all operations."""

    @dataclass()
    class Append(BaseOperation):
        """Add fragments. fragments: of id 0, as `write_fragments` returns them."""

        fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            self.fragments = _fragments(self.fragments)

    @dataclass()
    class Delete(BaseOperation):
        """Delete rows.

        updated_fragments     whole new state of fragments that lost rows
        deleted_fragment_ids  fragments that lost all
        predicate             for people
        """

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

        def __post_init__(self) -> None:
            self.updated_fragments = _fragments(self.updated_fragments)
            self.deleted_fragment_ids = list(self.deleted_fragment_ids)

    @dataclass()
    class Overwrite(BaseOperation):
        """Replace schema and rows; also what creates a table.

        initial_bases  base paths, when it creates the table
        """

        new_schema: LanceSchema | pa.Schema
        fragments: Iterable[FragmentMetadata]
        initial_bases: list[DatasetBasePath] | None = None

        def __post_init__(self) -> None:
            self.fragments = _fragments(self.fragments)

    @dataclass()
    class Update(BaseOperation):
        """Change rows.

        removed_fragment_ids  fragments that lost all rows
        updated_fragments     whole new state of fragments that changed
        new_fragments         of id 0, with the rewritten rows
        fields_modified       ids of fields whose files were replaced; indices over them no longer cover the fragments
        fields_for_preserving_frag_bitmap  ids of fields whose values changed
        update_mode           "rewrite_rows" (also when empty) or "rewrite_columns"
        updated_fragment_offsets  per fragment the changed rows, as Roaring bytes
        """

        removed_fragment_ids: list[int] = field(default_factory=list)
        updated_fragments: list[FragmentMetadata] = field(default_factory=list)
        new_fragments: list[FragmentMetadata] = field(default_factory=list)
        fields_modified: list[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: list[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: dict[int, bytes] | None = None

        def __post_init__(self) -> None:
            self.removed_fragment_ids = _all_of(self.removed_fragment_ids, Integral, "removed_fragment_ids")
            self.updated_fragments = _fragments(self.updated_fragments)
            self.new_fragments = _fragments(self.new_fragments)
            if self.update_mode not in ("rewrite_rows", "rewrite_columns", ""):
                raise UsageError(f"update_mode must be rewrite_rows or rewrite_columns, got {self.update_mode!r}")

    @dataclass()
    class Merge(BaseOperation):
        """Add or change columns. fragments: all of the table, whole; schema: the whole new one, with its field ids.

        A schema of pyarrow is taken with a `DeprecationWarning`: its fields are known by their names.
        """

        fragments: Iterable[FragmentMetadata]
        schema: LanceSchema | pa.Schema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            if isinstance(self.schema, pa.Schema):
                warnings.warn(
                    "Passing a pyarrow.Schema to Merge is deprecated. Please use a LanceSchema instead.",
                    DeprecationWarning,
                    stacklevel=3,
                )
            self.fragments = _fragments(self.fragments)

    @dataclass()
    class Restore(BaseOperation):
        """Make an old version the newest. version: its number."""

        version: int

    @dataclass()
    class RewriteGroup:
        """Fragments and those that hold the same rows instead."""

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            self.old_fragments = _fragments(self.old_fragments)
            self.new_fragments = _fragments(self.new_fragments)

    @dataclass()
    class RewrittenIndex:
        """An index that was remapped to rewritten fragments. Ids are UUID texts."""

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

    @dataclass()
    class Rewrite(BaseOperation):
        """Replace fragments by others with the same rows (compaction)."""

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex]

        def __post_init__(self) -> None:
            self.groups = _all_of(self.groups, LanceOperation.RewriteGroup, "groups")
            self.rewritten_indices = _all_of(self.rewritten_indices, LanceOperation.RewrittenIndex, "rewritten_indices")

    @dataclass()
    class CreateIndex(BaseOperation):
        """Add and remove index entries."""

        new_indices: list[Index]
        removed_indices: list[Index]

    @dataclass()
    class DataReplacementGroup:
        """A data file that takes the place of the one with the same fields."""

        fragment_id: int
        new_file: DataFile

    @dataclass()
    class DataReplacement(BaseOperation):
        """Replace data files."""

        replacements: list[LanceOperation.DataReplacementGroup]

        def __post_init__(self) -> None:
            self.replacements = _all_of(self.replacements, LanceOperation.DataReplacementGroup, "replacements")

    @dataclass()
    class Project(BaseOperation):
        """Change the schema only: drop, rename, reorder. schema: with the field ids of the table."""

        schema: LanceSchema
        preserves_nullability: bool = False

    @dataclass()
    class UpdateMap:
        """Changes of a map: a value of None removes the key. replace: start from an empty map."""

        updates: dict[str, str | None]
        replace: bool = False

    @dataclass()
    class UpdateConfig(BaseOperation):
        """Change configuration and metadata; field metadata by field id."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: dict[int, LanceOperation.UpdateMap] | None = None

    @dataclass()
    class Clone(BaseOperation):
        """The first version of a shallow clone."""

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None = None


def _all_of(given: Iterable[Any], kind: type, name: str) -> list[Any]:
    """A list of what was given as `name`. Raises `TypeError` for what is no list, and members of another kind."""
    found = list(given)
    for one in found:
        if not isinstance(one, kind):
            raise TypeError(f"{name} must be list[{kind.__name__}], got {type(one)}")
    return found


def _fragments(fragments: Iterable[FragmentMetadata]) -> list[FragmentMetadata]:
    return _all_of(fragments, fragment_metadata.FragmentMetadata, "fragments")


@dataclass()
class Transaction:
    """An operation and what it was based on.

    read_version            version that the writer had read; 0 when it creates the table
    operation               one of `LanceOperation`
    uuid                    names the transaction; committing the same one again is recognised
    transaction_properties  stored with it
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str = field(default_factory=lambda: str(uuid4()))
    transaction_properties: dict[str, str] | None = field(default_factory=dict)


def as_transaction(
    operation: LanceOperation.BaseOperation | Transaction, read_version: int | None, message: str | None = None
) -> Transaction:
    """The transaction of an operation; `ValueError` where an operation needs the version that it was based on."""
    if isinstance(operation, Transaction):
        made = operation
    elif isinstance(operation, LanceOperation.BaseOperation):
        free = isinstance(operation, (LanceOperation.Overwrite, LanceOperation.Restore))
        if read_version is None and not free:
            name = type(operation).__name__
            raise UsageError(f"read_version is required for all operations except Overwrite and Restore, as for {name}")
        made = Transaction(read_version or 0, operation)
    else:
        raise TypeError(f"operation must be a LanceOperation.BaseOperation or Transaction, got {type(operation)}")
    if message is not None:
        properties: dict[str, Any] = dict(made.transaction_properties or {})
        properties[LANCE_COMMIT_MESSAGE_KEY] = message
        made = Transaction(made.read_version, made.operation, made.uuid, properties)
    return made
