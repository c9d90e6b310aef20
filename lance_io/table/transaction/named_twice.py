"""What a transaction names twice (spec: commit, sections 2.2 and 2.3).

A fragment that is replaced twice, or a data file that is added twice or is there already, doubles rows or loses some.
Tasks that an engine repeats, and transactions that are put together by hand, come to say so.

    added_files        what an operation adds, once it is known that it names nothing twice
    check_in_once      afterwards: each of these files is in the next version once

A file is known by its base path and its path, as manifests name it. What is only said twice, and changes nothing, such
as the removal of a fragment, is no error.
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
SUFFIX: Final = ".lance"  # of every data file that a writer has named
SEARCHES_MAX: Final = 32  # for names one by one, each of which goes through the whole manifest


def added_files(current: Manifest | None, operation: ops.Operation) -> frozenset[FileName]:
    """The data files that an operation adds to a version: those that a fragment which it names does not have yet.

    current  the version that it is applied to, None for a table that is created

    Raises `OperationError` for a fragment that it replaces twice, or replaces and removes, for a file that it adds
    twice, and for one that another fragment has which it names. Files of an `Overwrite` may be there: it keeps none.
    """
    name = ops.operation_name(operation)
    _check_fragments(name, operation)
    effects = effects_of(operation)
    placed = [*_placed(effects)]
    looked_at = {fragment_id for fragment_id, _ in placed if fragment_id is not None}
    if not isinstance(operation, ops.Delete):  # in the place of what it removes nothing comes
        looked_at |= effects.removed
    there = _files_of(current, looked_at)
    added: set[FileName] = set()
    for fragment_id, files in placed:
        known = there.get(fragment_id, ()) if fragment_id is not None else ()
        for file in files:
            new = (file.base_id, file.path)
            if new in known:
                continue
            if new in added:
                raise OperationError(f"{name} adds the data file {new[1]} twice, which would double its rows")
            added.add(new)
    for fragment_id, known in there.items() if added else ():
        for old in known:
            if old in added:
                raise OperationError(f"{name} adds the data file {old[1]}, which fragment {fragment_id} has already")
    return frozenset(added)


def check_in_once(name: str, added: Collection[FileName], message: table_pb2.Manifest, content: bytes) -> None:
    """Raise `OperationError` where a version has a file twice that an operation adds.

    name     of the operation
    message  the manifest of the version that it makes
    content  the same, serialized: names are looked for in there, where a hundred thousand fragments take milliseconds
    """
    if not added or not _may_be_in_twice({path for _, path in added}, content):
        return
    found: dict[FileName, int] = {}
    for fragment in message.fragments[:]:
        for file in _stored_names(fragment):
            if file not in added:
                continue
            if file in found:
                raise OperationError(
                    f"{name} adds the data file {file[1]}, which is there already: fragments {found[file]} and "
                    f"{fragment.id} would both have its rows. It may have been committed before"
                )
            found[file] = fragment.id


def _may_be_in_twice(paths: Collection[str], content: bytes) -> bool:
    """Whether one of some paths may be twice in a manifest; certain only if not."""
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
    places = [(place, one) for place, one in enumerate(current.fragments.ids) if one in fragment_ids]
    return {fragment_id: _stored_names(messages[place]) for place, fragment_id in places}


# -- what operations name --------------------------------------------------------------------------------------------


def _placed(effects: Effects) -> Iterator[tuple[int | None, Sequence[DataFile]]]:
    """Data files, each time with the fragment that gets them; None for a new one.

    A changed fragment may be said twice: states that differ have been refused.
    """
    for fragment in effects.added:
        yield None, fragment.files
    distinct = {fragment.id: fragment for fragment in effects.changed}
    for fragment in chain(distinct.values(), effects.listed):
        yield fragment.id, fragment.files
    for one in effects.replaced:
        yield one.fragment_id, (one.new_file,)


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
                    "double its rows: commit one result of each task. What others wrote stays for a cleanup"
                )
            seen.add(fragment.id)


def _check_updated(name: str, updated: Iterable[Fragment], removed: Iterable[int]) -> None:
    """Check that each fragment has one new state: a second one would bring back rows that the first one deletes."""
    seen: dict[int, Fragment] = {}
    for fragment in updated:
        if seen.setdefault(fragment.id, fragment) != fragment:
            raise OperationError(f"{name} changes fragment {fragment.id} twice, each time into another state")
    for fragment_id in removed:
        if fragment_id in seen and seen[fragment_id].num_rows != 0:
            raise OperationError(f"{name} both changes fragment {fragment_id}, which has rows left, and removes it")


def _check_replaced(operation: ops.DataReplacement) -> None:
    fields: dict[int, set[int]] = {}
    for one in operation.replacements:
        known, new = fields.setdefault(one.fragment_id, set()), {each for each in one.new_file.fields if each >= 0}
        twice = known & new
        if twice:
            raise OperationError(
                f"DataReplacement replaces field {min(twice)} of fragment {one.fragment_id} twice, once by the data "
                f"file {one.new_file.path}"
            )
        known |= new
