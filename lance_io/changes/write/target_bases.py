"""Where the files of a write go: the table's own folder, or base paths that it declares, in turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lance_io.changes.write.data_files import FilePlace
from lance_io.errors import OperationError, UsageError
from lance_io.lazy_names import later
from lance_io.reads.version.object_keys import locate_base
from lance_io.records import dataclass
from lance_io.store.url import uri_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.changes.operations import convert, lance_operation
    from lance_io.changes.operations.lance_operation import DatasetBasePath
    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.manifest import BasePath
else:
    convert = later("lance_io.changes.operations.convert")
    lance_operation = later("lance_io.changes.operations.lance_operation")


@dataclass(frozen=True)
class TargetBases:
    """Base paths of a write.

    initial  those that a new table declares, with ids
    names    names or paths of those that files go to, in turn; none for the table's own folder
    all_of   whether they go to all base paths
    has_own  whether, then, also to the table's own folder
    """

    initial: tuple[BasePath, ...] = ()
    names: tuple[str, ...] = ()
    all_of: bool = False
    has_own: bool = True

    @classmethod
    def of(cls, initial: Any, names: Any, all_of: Any) -> TargetBases:
        """From the keywords `initial_bases`, `target_bases` and `target_all_bases`.

        Raises `TypeError` for what is no list, `OperationError` for what contradicts itself.
        """
        asked = _list_of(names, str, "target_bases")
        if asked and all_of:
            raise OperationError("Cannot specify target_all_bases together with target_bases: take one of them")
        if initial is None:
            return cls((), tuple(asked), bool(all_of))
        bases = _list_of(initial, lance_operation.DatasetBasePath, "initial_bases")
        return cls(number_bases(bases), tuple(asked), bool(all_of))

    @property
    def are_asked_for(self) -> bool:
        """Whether files may go elsewhere than to the table's own folder."""
        return bool(self.names) or self.all_of

    def places(self, target: WriteTarget | DatasetState, declared: Mapping[int, BasePath]) -> tuple[FilePlace, ...]:
        """Where files go; nowhere else than the table's own folder, if nothing is asked for.

        Raises `OperationError` for a name or path that the table does not declare.
        """
        own = FilePlace.of_table(target.location)
        if self.all_of:
            others = [_place(target, declared[base_id]) for base_id in sorted(declared)]
            return (own, *others) if self.has_own else tuple(others)
        return tuple(own if _is_own(name, target) else _place(target, _named(name, declared)) for name in self.names)


def number_bases(bases: Iterable[DatasetBasePath]) -> tuple[BasePath, ...]:
    """Base paths of a new table with ids from 1 on. Raises `OperationError` for two of one name, path or id."""
    found: list[BasePath] = []
    for given in bases:
        base = convert.stored_base(given)
        base = base if base.id else convert.stored_base(given, 1 + max((one.id for one in found), default=0))
        for one in found:
            if one.id == base.id or one.path == base.path or (base.name and base.name == one.name):
                raise OperationError(f"initial_bases: {base} and {one} have one id, name or path")
        found.append(base)
    return tuple(found)


def _list_of(given: Any, kind: type, name: str) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{name}: expected a list, found {given!r}")
    found = list(given)
    for one in found:
        if not isinstance(one, kind):
            raise TypeError(f"{name}: expected {kind.__name__}s, found {one!r}")
    return found


def _is_own(name: str, target: WriteTarget | DatasetState) -> bool:
    """Whether a name is that of the table itself."""
    return name.rstrip("/") in (target.location.uri.rstrip("/"), uri_of(target.location))


def _named(name: str, declared: Mapping[int, BasePath]) -> BasePath:
    for found in (
        *(base for base in declared.values() if base.name == name),
        *(base for base in declared.values() if base.path == name),
    ):
        return found
    known = ", ".join(base.name or base.path for base in declared.values()) or "none"
    raise OperationError(f"Base reference {name!r} not found in available bases ({known}); add_bases declares more")


def _place(target: WriteTarget | DatasetState, base: BasePath) -> FilePlace:
    told = target.base_store_params or {}
    options = told.get(base.path, target.storage_options)
    folder = locate_base(base, target.location, target.session, options, is_told=base.path in told)
    place = FilePlace.of_table(folder) if base.is_dataset_root else FilePlace(folder)
    return FilePlace(place.folder, base.id)
