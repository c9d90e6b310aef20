"""Fragments as values that can be compared, shown and sent as JSON: pylance's `FragmentMetadata`.

These are copies of the manifest's entry of a fragment (specification: table, section 2.4). Names and JSON follow
pylance, whose distributed jobs exchange them.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.reads import run_plan
    from lance_io.reads.metadata import described_file
    from lance_io.reads.run_plan import AsyncFace, SyncFace
    from lance_io.table.manifest import fragment as stored
else:
    run_plan = lazy_module("lance_io.reads.run_plan")
    described_file = lazy_plans("lance_io.reads.metadata.described_file")


class _CallableText(str):
    """A string that can also be called, for programs of old releases in which `DataFile.path` was a method."""

    __slots__ = ()

    def __call__(self) -> str:
        warnings.warn("DataFile.path() is deprecated, use DataFile.path instead", DeprecationWarning, stacklevel=2)
        return str(self)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class _CallablePath:
    """Descriptor of `path`: stored as plain text, read as callable text."""

    def __get__(self, file: DataFile | None, owner: object = None) -> str | _CallablePath:
        return self if file is None else _CallableText(vars(file)["path"])  # on the class, for documentation tools

    def __set__(self, file: DataFile, path: str) -> None:
        vars(file)["path"] = path


@dataclass()
class DataFile:
    """One data file of a fragment.

    Attributes:
        path: Path relative to `data/`. Calling `path()` also works, with a `DeprecationWarning`.
        fields: Field ids, one for each column listed; -2 marks a dead column.
        column_indices: The file's column numbers, parallel to `fields`; empty in version 0.1.
        file_major_version: Major version of the file format.
        file_minor_version: Minor version of the file format.
        file_size_bytes: Bytes of the whole file; None if unknown.
        base_id: Id of a base path; None for the table's own folder.
    """

    path: str
    fields: list[int]
    column_indices: list[int] = field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = None

    def __repr__(self) -> str:
        shown = "path fields column_indices file_major_version file_minor_version file_size_bytes".split()
        return f"DataFile({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def field_ids(self) -> list[int]:
        """Field ids. Deprecated: use `fields`."""
        warnings.warn("DataFile.field_ids is deprecated, use DataFile.fields instead", DeprecationWarning, stacklevel=2)
        return self.fields

    @classmethod
    def create(cls, dataset: SyncFace, path: str, *, base_id: int | None = None) -> Self:
        """Describe a data file that lies in the table's data folder, for `DataReplacement` and fragments.

        Columns match the table's columns by name; types are not compared.

        Args:
            dataset: The table.
            path: Path below the folder `data`.
            base_id: Id of the base path that the file lies below; None for the table's own folder.

        Returns:
            The description of the file.

        Raises:
            ValueError: The file does not exist, has other columns or members, or the base path is unknown.
            NotImplementedError: The file has version 0.1.
        """
        state = dataset._state
        return cls._of(run_plan.run(state, described_file.describe_file(state, path, base_id)))

    @classmethod
    async def create_async(cls, dataset: AsyncFace, path: str, *, base_id: int | None = None) -> Self:
        """Describe a data file from a coroutine. See `DataFile.create`."""
        state = dataset._state
        return cls._of(await run_plan.run_awaited(state, described_file.describe_file(state, path, base_id)))

    @classmethod
    def _of(cls, file: stored.DataFile) -> Self:
        return cls(
            path=file.path,
            fields=list(file.fields),
            column_indices=list(file.column_indices),
            file_major_version=file.version.major,
            file_minor_version=file.version.minor,
            file_size_bytes=file.size_bytes,
            base_id=file.base_id,
        )


DataFile.path = _CallablePath()  # type: ignore[assignment]  # not in the class, where it would be a default value


@dataclass(frozen=True)
class DeletionFile:
    """The file that lists the deleted rows of a fragment.

    Attributes:
        read_version: Version that the deleting writer had read.
        id: Random number, part of the file's name.
        file_type: "array" (Arrow IPC) or "bitmap" (Roaring).
        num_deleted_rows: Number of deleted rows; 0 if not recorded.
        base_id: Id of a base path; None for the table's own folder.
    """

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int = 0
    base_id: int | None = None

    def __repr__(self) -> str:
        return f"DeletionFile(type={self.file_type!r}, num_deleted_rows={self.num_deleted_rows})"

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """Path of the file.

        Args:
            fragment_id: Id of the fragment.
            base_uri: Folder to prepend; None for a path relative to the table's folder.
        """
        suffix = "arrow" if self.file_type == "array" else "bin"
        relative = f"_deletions/{fragment_id}-{self.read_version}-{self.id}.{suffix}"
        return relative if base_uri is None else f"{base_uri.strip('/')}/{relative}"

    def asdict(self) -> dict[str, Any]:
        """The fields as a dict."""
        return asdict(self)

    def json(self) -> str:
        """The fields as JSON text."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> DeletionFile:
        """The inverse of `json`.

        Args:
            text: JSON text.
        """
        return DeletionFile(**_object(text))


@dataclass(frozen=True)
class _InlineBytes:
    """Serialized bytes in a manifest; pylance writes them as `{KEY: [byte, ...]}`.

    Attributes:
        data: The bytes; None if the values are a column of a data file instead (feature flag 2048).
    """

    data: bytes | None

    _KEY: ClassVar[str]
    _COLUMN: ClassVar[Any]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'a column' if self.data is None else f'{len(self.data)} bytes'})"

    def asdict(self) -> Any:
        """The value in pylance's form."""
        return self._COLUMN if self.data is None else {self._KEY: list(self.data)}

    def json(self) -> str:
        """The value in pylance's form, as JSON text."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `json`.

        Args:
            text: JSON text.
        """
        return cls.from_dict(cls._COLUMN if json.loads(text) == cls._COLUMN else _object(text))

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The inverse of `asdict`.

        Args:
            values: Value in pylance's form.
        """
        return cls(None if values == cls._COLUMN else bytes(values[cls._KEY]))


@dataclass(frozen=True, repr=False)
class RowIdMeta(_InlineBytes):
    """The serialized row id sequence of a fragment (specification: table, section 6.1)."""

    _KEY = "Inline"
    _COLUMN = "Column"


@dataclass(frozen=True, repr=False)
class RowDatasetVersionMeta(_InlineBytes):
    """The serialized version sequence of a fragment (specification: table, section 6.5)."""

    _KEY = "inline"
    _COLUMN: ClassVar[Any] = {"column": {}}


@dataclass()
class FragmentMetadata:
    """The manifest's entry of one fragment.

    Attributes:
        id: Id, unique in the table.
        files: Data files.
        physical_rows: Rows in the data files, including deleted ones.
        deletion_file: File of deleted rows; None if no row is deleted.
        row_id_meta: Stable row ids; None in a table without them.
        created_at_version_meta: Versions that inserted the rows; None if not recorded.
        last_updated_at_version_meta: Versions that last changed the rows; None if not recorded.
        overlays: Always empty; tables with overlay files are refused.
    """

    id: int
    files: list[DataFile]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_meta: RowIdMeta | None = None
    created_at_version_meta: RowDatasetVersionMeta | None = None
    last_updated_at_version_meta: RowDatasetVersionMeta | None = None
    overlays: list[Any] = field(default_factory=list)

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows, as recorded in the manifest."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Number of rows that are not deleted."""
        return self.physical_rows - self.num_deletions

    def data_files(self) -> list[DataFile]:
        """Data files. Deprecated: use `files`."""
        warnings.warn(
            "FragmentMetadata.data_files is deprecated. Use .files instead.", DeprecationWarning, stacklevel=2
        )
        return self.files

    def to_json(self) -> dict[str, Any]:
        """A dict for `json.dumps`."""
        return {
            "id": self.id,
            "files": [_file_json(file) for file in self.files],
            "overlays": list(self.overlays),
            "physical_rows": self.physical_rows,
            "deletion_file": self.deletion_file and self.deletion_file.asdict(),
            "row_id_meta": self.row_id_meta and self.row_id_meta.asdict(),
            "created_at_version_meta": self.created_at_version_meta and self.created_at_version_meta.asdict(),
            "last_updated_at_version_meta": self.last_updated_at_version_meta
            and self.last_updated_at_version_meta.asdict(),
        }

    @staticmethod
    def from_json(json_data: str) -> FragmentMetadata:
        """The inverse of `to_json`, from text.

        Args:
            json_data: JSON text.

        Raises:
            ValueError: The text is no JSON object of a fragment.
        """
        values = _object(json_data)
        try:
            deletion, ids = values.get("deletion_file"), values.get("row_id_meta")
            created, updated = values.get("created_at_version_meta"), values.get("last_updated_at_version_meta")
            return FragmentMetadata(
                id=values["id"],
                files=[DataFile(**file) for file in values["files"]],
                physical_rows=values["physical_rows"],
                deletion_file=None if deletion is None else DeletionFile(**deletion),
                row_id_meta=None if ids is None else RowIdMeta.from_dict(ids),
                created_at_version_meta=None if created is None else RowDatasetVersionMeta.from_dict(created),
                last_updated_at_version_meta=None if updated is None else RowDatasetVersionMeta.from_dict(updated),
                overlays=list(values.get("overlays", ())),
            )
        except (KeyError, TypeError) as error:
            raise UsageError(f"not the JSON of a fragment's metadata: {error}") from error


def _file_json(file: DataFile) -> dict[str, Any]:
    return {
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.file_major_version,
        "file_minor_version": file.file_minor_version,
        "file_size_bytes": file.file_size_bytes,
        "base_id": file.base_id,
        "path": file.path,
    }


def _object(text: str) -> dict[str, Any]:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise UsageError(f"expected a JSON object, found {type(values).__name__}")
    return values
