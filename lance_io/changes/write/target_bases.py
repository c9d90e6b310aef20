"""Folders of the files of a write: the table's own, or its declared base paths in turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lance_io.changes.write.data_files import DataFolder
from lance_io.errors import OperationError, UsageError
from lance_io.lazy_names import lazy_module
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
    convert = lazy_module("lance_io.changes.operations.convert")
    lance_operation = lazy_module("lance_io.changes.operations.lance_operation")


@dataclass(frozen=True)
class TargetBases:
    """Base paths of a write.

    initial  base paths that a new table declares, with ids
    names    names or paths of the base paths that receive files in turn; empty for the table's own folder
    all_of   whether files go to all base paths in turn
    has_own  whether `all_of` includes the table's own folder
    """

    initial: tuple[BasePath, ...] = ()
    names: tuple[str, ...] = ()
    all_of: bool = False
    has_own: bool = True

    @classmethod
    def of(cls, initial: Any, names: Any, all_of: Any) -> TargetBases:
        """From the keywords `initial_bases`, `target_bases` and `target_all_bases`.

        Raises `TypeError` for an argument that is no list, `OperationError` for contradicting arguments.
        """
        name_list = _list_of(names, str, "target_bases")
        if name_list and all_of:
            raise OperationError("Cannot specify target_all_bases together with target_bases: use one of them")
        if initial is None:
            return cls((), tuple(name_list), bool(all_of))
        bases = _list_of(initial, lance_operation.DatasetBasePath, "initial_bases")
        return cls(number_bases(bases), tuple(name_list), bool(all_of))

    @property
    def are_given(self) -> bool:
        """Whether files may go outside of the table's own folder."""
        return bool(self.names) or self.all_of

    def folders(self, target: WriteTarget | DatasetState, declared: Mapping[int, BasePath]) -> tuple[DataFolder, ...]:
        """Folders that receive the files in turn; empty for the table's own folder only.

        Raises `OperationError` for a name or path that the table does not declare.
        """
        own = DataFolder.of_table(target.location)
        if self.all_of:
            others = [_folder(target, declared[base_id]) for base_id in sorted(declared)]
            return (own, *others) if self.has_own else tuple(others)
        return tuple(own if _is_own(name, target) else _folder(target, _named(name, declared)) for name in self.names)


def number_bases(bases: Iterable[DatasetBasePath]) -> tuple[BasePath, ...]:
    """Base paths of a new table with ids from 1 on. Raises `OperationError` for a repeated name, path or id."""
    numbered: list[BasePath] = []
    for given in bases:
        base = convert.stored_base(given)
        base = base if base.id else convert.stored_base(given, 1 + max((other.id for other in numbered), default=0))
        for other in numbered:
            if other.id == base.id or other.path == base.path or (base.name and base.name == other.name):
                raise OperationError(f"initial_bases: {base} and {other} have the same id, name or path")
        numbered.append(base)
    return tuple(numbered)


def _list_of(given: Any, kind: type, name: str) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{name}: expected a list, found {given!r}")
    items = list(given)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{name}: expected {kind.__name__}s, found {item!r}")
    return items


def _is_own(name: str, target: WriteTarget | DatasetState) -> bool:
    """Whether a name is the table's own URI."""
    return name.rstrip("/") in (target.location.uri.rstrip("/"), uri_of(target.location))


def _named(name: str, declared: Mapping[int, BasePath]) -> BasePath:
    for base in (
        *(base for base in declared.values() if base.name == name),
        *(base for base in declared.values() if base.path == name),
    ):
        return base
    known = ", ".join(base.name or base.path for base in declared.values()) or "none"
    raise OperationError(f"Base reference {name!r} not found in available bases ({known}); add_bases declares more")


def _folder(target: WriteTarget | DatasetState, base: BasePath) -> DataFolder:
    params = target.base_store_params or {}
    options = params.get(base.path, target.storage_options)
    location = locate_base(base, target.location, target.session, options, has_own_options=base.path in params)
    folder = DataFolder.of_table(location) if base.is_dataset_root else DataFolder(location)
    return DataFolder(folder.location, base.id)
