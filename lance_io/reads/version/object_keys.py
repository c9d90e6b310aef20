"""Keys of the objects of a table version, and the files of its fragments.

This is separate from the state, so that readers hold only parts of a version, and not the state, which holds readers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from lance_io.errors import FormatError, UnsupportedError, UsageError
from lance_io.file.open.file_source import FileRef, FragmentSource
from lance_io.format.version import READABLE, V0_1
from lance_io.gil import yield_gil
from lance_io.lazy_names import lazy_module
from lance_io.records import dataclass
from lance_io.store.mounted import MountedStore, mounted_key
from lance_io.store.offers import HasOwnPaths
from lance_io.store.url import is_opened_by_fsspec
from lance_io.table.manifest.paths import (
    BRANCH_TREES,
    data_file_location,
    deletion_file_location,
    index_file_location,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.reads.version.session import Session
    from lance_io.spans import IntArray
    from lance_io.store.api import ObjectReads, ObjectStore
    from lance_io.store.url import Location
    from lance_io.table.manifest import refs
    from lance_io.table.manifest.fragment import DataFile, Fragment
    from lance_io.table.manifest.manifest import BasePath, Manifest
    from lance_io.table.manifest.paths import FileLocation
else:
    refs = lazy_module("lance_io.table.manifest.refs")


def branch_location(root: Location, branch: str | None) -> Location:
    """The folder of a branch; None is the main one. Raises `ValueError` for a name that no branch can have."""
    if branch is None:
        return root

    if branch == refs.MAIN:
        return root
    return root.below(BRANCH_TREES, *refs.check_branch_name(branch).split("/"))


def table_root(location: Location, branch: str | None) -> Location:
    """The table's folder, given the folder of a version: the same, or above it for a branch."""
    if branch is None:
        return location
    steps = (BRANCH_TREES, *branch.split("/"))
    if not f"/{location.path}".endswith("/" + "/".join(steps)):
        return location
    path = location.path.removesuffix("/".join(steps))
    path = path if path == "/" else path.removesuffix("/")
    return replace(location, path=path, uri=location.uri.rsplit("/", len(steps))[0])


def branch_uri(given_uri: str, location: Location, root: Location) -> str:
    """The URI that opens the folder of a version: `given_uri`, or a path below it if that is the table's and not the
    branch's.

    location, root  folders of the version and of the table
    """
    path, mark, query = given_uri.partition("?")
    steps = location.path.removeprefix(root.path).strip("/")
    if not steps or path.rstrip("/").endswith(f"/{steps}"):
        return given_uri
    return f"{path.rstrip('/')}/{steps}{mark}{query}"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a table: its store, and its key there."""

    store: ObjectStore
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class ObjectKeys:
    """Keys of a version's objects, and the store that reads them.

    The key of a file below a base path in another store contains that store's name (`store/mounted.py`).

    location         the folder that holds the version
    session          opens the stores of base paths
    storage_options  for those
    base_options     instead of them for base paths named here, by URI
    """

    location: Location
    manifest: Manifest
    session: Session
    storage_options: Mapping[str, str] | None = field(repr=False)
    base_options: Mapping[str, Mapping[str, str]] = field(repr=False, default_factory=dict)
    _bases: dict[int, Location] = field(init=False, default_factory=dict)

    def data_key(self, file: DataFile) -> str:
        """Key of a data file. Raises `FormatError` for a path that leaves its base."""
        return self._key(self.data_object(file))

    def data_object(self, file: DataFile) -> StoredObject:
        """Store and key of a data file."""
        return self._object(data_file_location(file, self.manifest.base_paths))

    def deletion_key(self, fragment: Fragment) -> str:
        """Key of a fragment's deletion file."""
        return self._key(self.deletion_object(fragment))

    def deletion_object(self, fragment: Fragment) -> StoredObject:
        """Store and key of a fragment's deletion file."""
        assert fragment.deletion_file is not None
        return self._object(deletion_file_location(fragment.id, fragment.deletion_file, self.manifest.base_paths))

    def index_key(self, uuid: str, base_id: int | None, name: str) -> str:
        """Key of a file of an index. Raises `FormatError` for an undeclared base path."""
        return self._key(self._object(index_file_location(uuid, base_id, name, self.manifest.base_paths)))

    def _key(self, stored: StoredObject) -> str:
        return stored.key if stored.store is self.location.store else mounted_key(stored.store, stored.key)

    def _object(self, path: FileLocation) -> StoredObject:
        folder = self.location if path.base is None else self.base_folder(path.base)
        return StoredObject(folder.store, folder.key(path.relative))

    def base_folder(self, base: BasePath) -> Location:
        """The folder of a base path: a URI, or an absolute path in the table's own store."""
        folder = self._bases.get(base.id)
        if folder is None:
            options = self.base_options.get(base.path, self.storage_options)
            folder = self._bases[base.id] = locate_base(
                base, self.location, self.session, options, has_own_options=base.path in self.base_options
            )
        return folder

    def store(self) -> ObjectReads:
        """The store for these keys: the table's own, or a combination with those of the base paths."""
        others = {}
        for base in self.manifest.base_paths.values():
            # raised later, by a read of a file there
            with suppress(FormatError, UnsupportedError, ModuleNotFoundError):
                store = self.base_folder(base).store
                others[store.identity] = store
        others.pop(self.location.store.identity, None)
        return MountedStore(self.location.store, others.values()) if others else self.location.store


def locate_base(
    base: BasePath,
    table: Location,
    session: Session,
    storage_options: Mapping[str, str] | None,
    *,
    has_own_options: bool,
) -> Location:
    """The folder of a base path: a URI, or an absolute path in the table's own store.

    table            the folder of the table, or branch
    storage_options  for the base path's store
    has_own_options  whether the caller gave options for this base path
    """
    if not base.path:
        raise FormatError(f"base path {base.id} is empty", path=table.uri)
    if isinstance(table.store, HasOwnPaths) and "://" not in base.path:
        return replace(table, path=table.store.key_of(base.path))
    if "://" not in base.path and table.store.scheme != "file":
        return replace(table, path=base.path.strip("/"))
    if not has_own_options and is_opened_by_fsspec(base.path):
        scheme, _, rest = base.path.partition("://")
        shown = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"  # without a user's password or token
        raise UnsupportedError(
            f"base path {base.id} is in a store that fsspec would open ({shown}): give "
            "base_store_params for it, because the table's own credentials are not passed to another store",
            path=table.uri,
        )
    try:
        location = session.locate(base.path, storage_options)
    except UsageError as error:
        raise FormatError(f"base path {base.id}: {error.message}", path=table.uri) from error
    is_own = location.store.identity == table.store.identity
    return replace(location, store=table.store) if is_own else location


class Sources:
    """Data files and row counts of each fragment, by index; created on first use.

    physical_rows  rows of every fragment, deleted ones included
    """

    def __init__(self, object_keys: ObjectKeys, physical_rows: IntArray) -> None:
        self._object_keys = object_keys
        self._physical_rows = physical_rows
        self._by_index: dict[int, FragmentSource] = {}

    def __getitem__(self, fragment_index: int) -> FragmentSource:
        source = self._by_index.get(fragment_index)
        if source is None:
            source = self._by_index[fragment_index] = self._make(fragment_index)
        return source

    def _make(self, fragment_index: int) -> FragmentSource:
        yield_gil()  # a wide file takes milliseconds
        return FragmentSource(int(self._physical_rows[fragment_index]), file_refs(self._object_keys, fragment_index))


def file_refs(object_keys: ObjectKeys, fragment_index: int) -> tuple[FileRef, ...]:
    """The data files of a fragment. Raises `UnsupportedError` for a file version that this release does not read."""
    refs = []
    seen: set[int] = set()
    for file in object_keys.manifest.fragments.get_uncached(fragment_index).files:
        if file.version not in READABLE:
            raise UnsupportedError(
                f"the data file has version {file.version.name}; this release reads "
                f"{', '.join(sorted(each.name for each in READABLE))}",
                path=object_keys.data_key(file),
            )
        columns, size_bytes, about_bytes = file.column_indices, file.size_bytes or 0, 0
        if file.version == V0_1:  # 0.1 finds fields by id; the first file that has a field counts
            columns = tuple([-1 if each in seen else each for each in file.fields])
            seen.update(file.fields)
            size_bytes, about_bytes = 0, size_bytes  # releases before 12 recorded the size of the pages alone
        refs.append(FileRef(object_keys.data_key(file), size_bytes, file.fields, columns, about_bytes))
    return tuple(refs)
