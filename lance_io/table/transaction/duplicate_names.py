"""Checks that a transaction names no fragment or data file twice (spec: commit, sections 2.2 and 2.3).

Replacing a fragment twice, or adding a data file twice or although the table has it, duplicates or loses rows. Repeated
tasks of an engine, and transactions built by hand, may do that.

    added_files        the data files that an operation adds, checked for duplicates
    check_added_once   checks afterwards that the next version has each of these files once

A file is identified by its base path and its path, as in manifests. Harmless repetitions, such as removing a fragment
twice, are no errors.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from lance_io.errors import OperationError
from lance_io.proto import table_pb2
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.effects import effects_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lance_io.table.manifest.fragment import DataFile, Fragment
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.effects import Effects

FileName: TypeAlias = tuple[int | None, str]
SUFFIX: Final = ".lance"  # of every data file with a generated name
SEARCHES_MAX: Final = 32  # searches for single names, each of which scans the whole manifest


def added_files(current: Manifest | None, operation: ops.Operation) -> frozenset[FileName]:
    """The data files that an operation adds: files that the fragments it names do not have in the current version.

    current  the version that it is applied to, None for a new table

    Raises `OperationError` for a fragment that it replaces twice, or replaces and removes; for a file that it adds
    twice, or that another fragment it names already has. An `Overwrite` may use files of the table: it keeps none.
    """
    name = ops.operation_name(operation)
    _check_fragments(name, operation)
    effects = effects_of(operation)
    named = [*_named_files(effects)]
    relevant = {fragment_id for fragment_id, _ in named if fragment_id is not None}
    if not isinstance(operation, ops.Delete):  # a Delete does not replace the fragments it removes
        relevant |= effects.removed
    existing = _files_of(current, relevant)
    added: set[FileName] = set()
    for fragment_id, files in named:
        known = existing.get(fragment_id, ()) if fragment_id is not None else ()
        for file in files:
            new = (file.base_id, file.path)
            if new in known:
                continue
            if new in added:
                raise OperationError(f"{name} adds the data file {new[1]} twice, which would double its rows")
            added.add(new)
    for fragment_id, known in existing.items() if added else ():
        for old in known:
            if old in added:
                raise OperationError(f"{name} adds the data file {old[1]}, which fragment {fragment_id} has already")
    return frozenset(added)


def check_added_once(name: str, added: Collection[FileName], message: table_pb2.Manifest, content: bytes) -> None:
    """Raise `OperationError` if a version has a file twice that an operation adds.

    name     of the operation
    message  the manifest of the new version
    content  the same, serialized: searching its bytes takes milliseconds for a hundred thousand fragments
    """
    if not added or not _may_have_duplicate({path for _, path in added}, content):
        return
    owners: dict[FileName, int] = {}  # fragment ids
    for fragment in message.fragments[:]:
        for file in _stored_names(fragment):
            if file not in added:
                continue
            if file in owners:
                raise OperationError(
                    f"{name} adds the data file {file[1]}, which is there already: fragments {owners[file]} and "
                    f"{fragment.id} would both have its rows. It may have been committed before"
                )
            owners[file] = fragment.id


def _may_have_duplicate(paths: Collection[str], content: bytes) -> bool:
    """Whether a manifest may have one of the paths twice; only False is certain."""
    if len(paths) <= SEARCHES_MAX:
        return any(content.count(table_pb2.DataFile(path=path).SerializeToString()) > 1 for path in paths)
    stems = {path.removesuffix(SUFFIX).encode() for path in paths if path.endswith(SUFFIX)}
    lengths = {len(stem) for stem in stems}
    if len(stems) < len(paths) or len(lengths) > SEARCHES_MAX or 0 in lengths:
        return True
    pieces = content.split(SUFFIX.encode())  # each ends with the rest of a path
    ends = [end for length in lengths for piece in pieces if (end := piece[-length:]) in stems]
    return len(set(ends)) < len(ends)


def _stored_names(fragment: table_pb2.DataFragment) -> list[FileName]:
    return [(file.base_id if file.HasField("base_id") else None, file.path) for file in fragment.files[:]]


def _files_of(current: Manifest | None, fragment_ids: Collection[int]) -> dict[int, list[FileName]]:
    """The data files of some fragments of a version, by fragment id."""
    if current is None or not fragment_ids:
        return {}
    messages: Sequence[table_pb2.DataFragment] = current.message.fragments
    if len(fragment_ids) > len(current.fragments) // 8:
        messages = messages[:]  # a list, which is many times faster than a repeated field
    return {
        fragment_id: _stored_names(messages[index])
        for index, fragment_id in enumerate(current.fragments.ids)
        if fragment_id in fragment_ids
    }


# -- names in operations ---------------------------------------------------------------------------------------------


def _named_files(effects: Effects) -> Iterator[tuple[int | None, Sequence[DataFile]]]:
    """Data files with the id of their fragment; None for a new fragment.

    A changed fragment may be listed twice, but `_check_updated` has refused differing states.
    """
    for fragment in effects.added:
        yield None, fragment.files
    distinct = {fragment.id: fragment for fragment in effects.changed}
    for fragment in chain(distinct.values(), effects.listed):
        yield fragment.id, fragment.files
    for group in effects.replaced:
        yield group.fragment_id, (group.new_file,)


def _check_fragments(name: str, operation: ops.Operation) -> None:
    if isinstance(operation, ops.Rewrite):
        _check_rewritten(operation)
    elif isinstance(operation, ops.Delete):
        _check_updated(name, operation.updated_fragments, operation.deleted_fragment_ids)
    elif isinstance(operation, ops.Update):
        _check_updated(name, operation.updated_fragments, operation.removed_fragment_ids)
    elif isinstance(operation, ops.DataReplacement):
        _check_replaced(operation)


def _check_rewritten(operation: ops.Rewrite) -> None:
    seen: set[int] = set()
    for group in operation.groups:
        for fragment in group.old_fragments:
            if fragment.id in seen:
                raise OperationError(
                    f"a rewrite operation attempts to replace fragment id={fragment.id} more than once, which would "
                    "double its rows: commit one result of each task. A cleanup removes the files of the others"
                )
            seen.add(fragment.id)


def _check_updated(name: str, updated: Iterable[Fragment], removed: Iterable[int]) -> None:
    """Check that each fragment has one new state: a second state could restore rows that the first deletes."""
    seen: dict[int, Fragment] = {}
    for fragment in updated:
        if seen.setdefault(fragment.id, fragment) != fragment:
            raise OperationError(f"{name} changes fragment {fragment.id} twice, each time into another state")
    for fragment_id in removed:
        if fragment_id in seen and seen[fragment_id].num_rows != 0:
            raise OperationError(f"{name} both changes fragment {fragment_id}, which has rows left, and removes it")


def _check_replaced(operation: ops.DataReplacement) -> None:
    fields: dict[int, set[int]] = {}
    for group in operation.replacements:
        known = fields.setdefault(group.fragment_id, set())
        new = {field_id for field_id in group.new_file.fields if field_id >= 0}
        twice = known & new
        if twice:
            raise OperationError(
                f"DataReplacement replaces field {min(twice)} of fragment {group.fragment_id} twice, once by the data "
                f"file {group.new_file.path}"
            )
        known |= new
