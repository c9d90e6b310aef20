"""`LanceOperation` and `Transaction`: changes of a table as values, with pylance's names (spec: commit, section 2).

`LanceDataset.commit` commits them. The tasks of a distributed job write fragments; the job then commits one operation
that lists all of them.
"""

from __future__ import annotations

import warnings
from dataclasses import field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
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
    fragment_metadata = lazy_module("lance_io.reads.metadata.fragment_metadata")

LANCE_COMMIT_MESSAGE_KEY: Final = COMMIT_MESSAGE_KEY


@dataclass(frozen=True)
class DatasetBasePath:
    """A base path: a folder other than the table's own that contains files of the table.

    Args:
        path: URI of the folder.
        name: Unique name in the table, None for no name.
        is_dataset_root: Whether the folder is that of a table, with data files in its subfolder `data`.
        id: Id in the table, None until it is committed.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None


@dataclass()
class IndexFile:
    """One file of an index.

    Args:
        path: Path relative to the index.
        size_bytes: Size of the file in bytes.
    """

    path: str
    size_bytes: int


@dataclass()
class Index:
    """The entry of an index in a manifest (spec: table, section 10).

    Args:
        uuid: UUID, the name of its folder.
        name: Name of the index.
        fields: Ids of the indexed fields.
        dataset_version: Version that the index was built on.
        fragment_ids: Ids of the fragments that it covers.
        index_version: Version of its format.
        created_at: Time of creation, None if not recorded.
        base_id: Id of the base path that contains it, None for the table's own folder.
        files: Its files, None if not recorded.
        index_details: Type URL and bytes of its details message, None for none.
        covering_fields: Ids of fields whose values it stores.
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
        """Add fragments.

        Args:
            fragments: New fragments with id 0, from `write_fragments`.
        """

        fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            self.fragments = _fragments(self.fragments)

    @dataclass()
    class Delete(BaseOperation):
        """Delete rows.

        Args:
            updated_fragments: Complete new state of fragments that lose rows.
            deleted_fragment_ids: Ids of fragments that lose all rows.
            predicate: Filter of the deleted rows, for information only.
        """

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

        def __post_init__(self) -> None:
            self.updated_fragments = _fragments(self.updated_fragments)
            self.deleted_fragment_ids = list(self.deleted_fragment_ids)

    @dataclass()
    class Overwrite(BaseOperation):
        """Replace schema and rows, or create a table.

        Args:
            new_schema: New schema.
            fragments: New fragments with id 0.
            initial_bases: Base paths of a new table.
        """

        new_schema: LanceSchema | pa.Schema
        fragments: Iterable[FragmentMetadata]
        initial_bases: list[DatasetBasePath] | None = None

        def __post_init__(self) -> None:
            self.fragments = _fragments(self.fragments)

    @dataclass()
    class Update(BaseOperation):
        """Change rows.

        Args:
            removed_fragment_ids: Ids of fragments that lose all rows.
            updated_fragments: Complete new state of changed fragments.
            new_fragments: New fragments with id 0, with the rewritten rows.
            fields_modified: Ids of fields whose files are replaced. Indices over them no longer cover the fragments.
            fields_for_preserving_frag_bitmap: Ids of fields whose values change.
            update_mode: "rewrite_rows" (also if empty) or "rewrite_columns".
            updated_fragment_offsets: Offsets of the changed rows by fragment id, as Roaring bitmaps.

        Raises:
            ValueError: `update_mode` is unknown.
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
        """Add or change columns.

        Args:
            fragments: Complete new state of all fragments of the table.
            schema: Complete new schema with field ids. A pyarrow schema, whose fields are matched by name, is
                deprecated.
            preserves_nullability: Whether no column becomes non-nullable.
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
        """Make an old version the newest.

        Args:
            version: Number of the old version.
        """

        version: int

    @dataclass()
    class RewriteGroup:
        """Fragments, and new ones with the same rows.

        Args:
            old_fragments: Replaced fragments.
            new_fragments: New fragments.
        """

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            self.old_fragments = _fragments(self.old_fragments)
            self.new_fragments = _fragments(self.new_fragments)

    @dataclass()
    class RewrittenIndex:
        """An index that was remapped to rewritten fragments.

        Args:
            old_id: UUID of the replaced index.
            new_id: UUID of the new index.
            new_details_type_url: Type URL of the new details message.
            new_details_value: Bytes of the new details message.
            new_index_version: Version of the new format.
        """

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

    @dataclass()
    class Rewrite(BaseOperation):
        """Replace fragments by others with the same rows (compaction).

        Args:
            groups: Old and new fragments.
            rewritten_indices: Remapped indices.
        """

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex]

        def __post_init__(self) -> None:
            self.groups = _all_of(self.groups, LanceOperation.RewriteGroup, "groups")
            self.rewritten_indices = _all_of(self.rewritten_indices, LanceOperation.RewrittenIndex, "rewritten_indices")

    @dataclass()
    class CreateIndex(BaseOperation):
        """Add and remove index entries.

        Args:
            new_indices: Added entries.
            removed_indices: Removed entries.
        """

        new_indices: list[Index]
        removed_indices: list[Index]

    @dataclass()
    class DataReplacementGroup:
        """A data file that replaces the one with the same fields.

        Args:
            fragment_id: Id of the fragment.
            new_file: The new data file.
        """

        fragment_id: int
        new_file: DataFile

    @dataclass()
    class DataReplacement(BaseOperation):
        """Replace data files.

        Args:
            replacements: New data files.
        """

        replacements: list[LanceOperation.DataReplacementGroup]

        def __post_init__(self) -> None:
            self.replacements = _all_of(self.replacements, LanceOperation.DataReplacementGroup, "replacements")

    @dataclass()
    class Project(BaseOperation):
        """Change only the schema: drop, rename, reorder.

        Args:
            schema: New schema with the field ids of the table.
            preserves_nullability: Whether no column becomes non-nullable.
        """

        schema: LanceSchema
        preserves_nullability: bool = False

    @dataclass()
    class UpdateMap:
        """Changes of a map.

        Args:
            updates: New values by key; None removes the key.
            replace: Start from an empty map.
        """

        updates: dict[str, str | None]
        replace: bool = False

    @dataclass()
    class UpdateConfig(BaseOperation):
        """Change configuration and metadata.

        Args:
            config_updates: Changes of the table's configuration.
            table_metadata_updates: Changes of the table's metadata.
            schema_metadata_updates: Changes of the schema's metadata.
            field_metadata_updates: Changes of the metadata of fields, by field id.
        """

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: dict[int, LanceOperation.UpdateMap] | None = None

    @dataclass()
    class Clone(BaseOperation):
        """The first version of a clone or branch.

        Args:
            is_shallow: Whether the files stay in the source table.
            ref_name: Branch of the source version, None for the main branch.
            ref_version: Number of the source version.
            ref_path: Folder of the source table.
            branch_name: Name of the new branch, None for a table.
        """

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None = None


def _all_of(given: Iterable[Any], kind: type, name: str) -> list[Any]:
    """The argument `name` as a list. Raises `TypeError` if it is not iterable, and for members of another type."""
    items = list(given)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{name} must be list[{kind.__name__}], got {type(item)}")
    return items


def _fragments(fragments: Iterable[FragmentMetadata]) -> list[FragmentMetadata]:
    return _all_of(fragments, fragment_metadata.FragmentMetadata, "fragments")


@dataclass()
class Transaction:
    """An operation, and the version that it is based on.

    Args:
        read_version: Version that the writer has read, 0 if the operation creates the table.
        operation: One of the operations of `LanceOperation`.
        uuid: Id of the transaction. A repeated commit with the same id is recognised.
        transaction_properties: Properties that are stored with the transaction.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str = field(default_factory=lambda: str(uuid4()))
    transaction_properties: dict[str, str] | None = field(default_factory=dict)


def as_transaction(
    operation: LanceOperation.BaseOperation | Transaction, read_version: int | None, message: str | None = None
) -> Transaction:
    """The transaction of an operation. Raises `UsageError` if the operation needs a `read_version`."""
    if isinstance(operation, Transaction):
        transaction = operation
    elif isinstance(operation, LanceOperation.BaseOperation):
        free = isinstance(operation, (LanceOperation.Overwrite, LanceOperation.Restore))
        if read_version is None and not free:
            name = type(operation).__name__
            raise UsageError(f"read_version is required for all operations except Overwrite and Restore, as for {name}")
        transaction = Transaction(read_version or 0, operation)
    else:
        raise TypeError(f"operation must be a LanceOperation.BaseOperation or Transaction, got {type(operation)}")
    if message is not None:
        properties: dict[str, Any] = dict(transaction.transaction_properties or {})
        properties[LANCE_COMMIT_MESSAGE_KEY] = message
        transaction = Transaction(transaction.read_version, transaction.operation, transaction.uuid, properties)
    return transaction
