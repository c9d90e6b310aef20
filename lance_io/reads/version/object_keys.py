"""Where the objects of a table version are, and what is stored in each: keys of files, files of fragments.

Apart from the state, so that readers hold what they need of a version and not the version, which holds readers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from lance_io.errors import FormatError, UnsupportedError, UsageError
from lance_io.file.open.file_source import FileRef, FragmentSource
from lance_io.format.version import READABLE, V0_1
from lance_io.lazy_names import later
from lance_io.records import dataclass
from lance_io.store.mounted import MountedStore, mounted_key
from lance_io.store.offers import HasOwnPaths
from lance_io.store.url import is_opened_by_fsspec
from lance_io.table.manifest.paths import BRANCH_TREES, data_file_place, deletion_file_place
from lance_io.turns import give_way

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.reads.version.session import Session
    from lance_io.spans import IntArray
    from lance_io.store.api import ObjectReads, ObjectStore
    from lance_io.store.url import Location
    from lance_io.table.manifest import refs
    from lance_io.table.manifest.fragment import DataFile, Fragment
    from lance_io.table.manifest.manifest import BasePath, Manifest
    from lance_io.table.manifest.paths import Place
else:
    refs = later("lance_io.table.manifest.refs")


def branch_location(root: Location, branch: str | None) -> Location:
    """The folder of a branch; None is the main one. Raises `ValueError` for a name that no branch has."""
    if branch is None:
        return root

    if branch == refs.MAIN:
        return root
    return root.below(BRANCH_TREES, *refs.check_branch_name(branch).split("/"))


def table_root(location: Location, branch: str | None) -> Location:
    """The table's folder, of the folder that holds a version: the same, or above it where that is a branch's."""
    if branch is None:
        return location
    steps = (BRANCH_TREES, *branch.split("/"))
    if not f"/{location.path}".endswith("/" + "/".join(steps)):
        return location
    path = location.path.removesuffix("/".join(steps))
    path = path if path == "/" else path.removesuffix("/")
    return replace(location, path=path, uri=location.uri.rsplit("/", len(steps))[0])


def branch_uri(given_uri: str, location: Location, root: Location) -> str:
    """The URI that opens the folder of a version: `given_uri`, or below it where that is the table's, not the branch's.

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
class Places:
    """Keys of a version's objects, and the store that answers for them.

    A file below a base path in another store has that store's name in its key (`store/mounted.py`).

    location         the folder that holds the version
    session          opens the stores of base paths
    storage_options  for those
    base_options     instead of them for base paths that are named here, by URI
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
        """The same with its store."""
        return self._object(data_file_place(file, self.manifest.base_paths))

    def deletion_key(self, fragment: Fragment) -> str:
        """Key of a fragment's deletion file."""
        return self._key(self.deletion_object(fragment))

    def deletion_object(self, fragment: Fragment) -> StoredObject:
        """The same with its store."""
        assert fragment.deletion_file is not None
        return self._object(deletion_file_place(fragment.id, fragment.deletion_file, self.manifest.base_paths))

    def _key(self, found: StoredObject) -> str:
        return found.key if found.store is self.location.store else mounted_key(found.store, found.key)

    def _object(self, place: Place) -> StoredObject:
        folder = self.location if place.base is None else self.base_folder(place.base)
        return StoredObject(folder.store, folder.key(place.relative))

    def base_folder(self, base: BasePath) -> Location:
        """The folder of a base path: a URI, or an absolute path in the table's own store."""
        found = self._bases.get(base.id)
        if found is None:
            options = self.base_options.get(base.path, self.storage_options)
            found = self._bases[base.id] = locate_base(
                base, self.location, self.session, options, is_told=base.path in self.base_options
            )
        return found

    def store(self) -> ObjectReads:
        """What reads the objects at these keys: the table's store, or with it those of the base paths."""
        others = {}
        for base in self.manifest.base_paths.values():
            with suppress(FormatError, UnsupportedError, ModuleNotFoundError):  # raised when a file there is wanted
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
    is_told: bool,
) -> Location:
    """The folder of a base path: a URI, or an absolute path in the table's own store.

    table            the folder of the table, or branch
    storage_options  for the base path's store
    is_told          whether they were given for it
    """
    if not base.path:
        raise FormatError(f"base path {base.id} is empty", path=table.uri)
    if isinstance(table.store, HasOwnPaths) and "://" not in base.path:
        return replace(table, path=table.store.key_of(base.path))
    if "://" not in base.path and table.store.scheme != "file":
        return replace(table, path=base.path.strip("/"))
    if not is_told and is_opened_by_fsspec(base.path):
        scheme, _, rest = base.path.partition("://")
        shown = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"  # without a user's password, or a token
        raise UnsupportedError(
            f"base path {base.id} is in a store that fsspec would open ({shown}): give "
            "base_store_params for it, as it must not be told what the table's own store is opened with",
            path=table.uri,
        )
    try:
        found = session.locate(base.path, storage_options)
    except UsageError as error:
        raise FormatError(f"base path {base.id}: {error.message}", path=table.uri) from error
    is_own = found.store.identity == table.store.identity
    return replace(found, store=table.store) if is_own else found


class Sources:
    """Where the rows of each fragment are, by place; made when they are first asked for.

    physical_rows  rows of every fragment, deleted ones included
    """

    def __init__(self, places: Places, physical_rows: IntArray) -> None:
        self._places = places
        self._physical_rows = physical_rows
        self._made: dict[int, FragmentSource] = {}

    def __getitem__(self, place: int) -> FragmentSource:
        found = self._made.get(place)
        if found is None:
            found = self._made[place] = self._make(place)
        return found

    def _make(self, place: int) -> FragmentSource:
        give_way()  # of a wide file it is milliseconds
        return FragmentSource(int(self._physical_rows[place]), file_refs(self._places, place))


def file_refs(places: Places, place: int) -> tuple[FileRef, ...]:
    """The data files of a fragment. Raises `UnsupportedError` for one of a version that is not read."""
    refs = []
    seen: set[int] = set()
    for file in places.manifest.fragments.passing(place).files:
        if file.version not in READABLE:
            raise UnsupportedError(
                f"the data file has version {file.version.name}; this release reads "
                f"{', '.join(sorted(each.name for each in READABLE))}",
                path=places.data_key(file),
            )
        columns, size_bytes, about_bytes = file.column_indices, file.size_bytes or 0, 0
        if file.version == V0_1:  # which knows fields by their ids; of several files that have one the first counts
            columns = tuple([-1 if each in seen else each for each in file.fields])
            seen.update(file.fields)
            size_bytes, about_bytes = 0, size_bytes  # releases before 12 recorded that of the pages alone
        refs.append(FileRef(places.data_key(file), size_bytes, file.fields, columns, about_bytes))
    return tuple(refs)
