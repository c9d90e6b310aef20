"""The files below a table's own folder that a transaction names (spec: commit, section 2.2).

    small files   its own file, and the deletion files of the fragments that it changes
    data files    of all fragments that it lists, those of earlier versions among them

Files below base paths are not among them: their stores are not the table's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.table.manifest.paths import DATA, deletion_file_place
from lance_io.table.transaction import operations as ops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.transaction.transaction import Transaction


def small_files(transaction: Transaction) -> set[str]:
    """Paths of the transaction's file, and of the deletion files that it names."""
    found = {transaction.path}
    for fragment in _fragments(transaction):
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id is None:
            found.add(deletion_file_place(fragment.id, deletion, {}).relative)
    return found


def named_files(transaction: Transaction) -> set[str]:
    """Paths of the small files and of the data files."""
    found = small_files(transaction)
    operation = transaction.operation
    files = [file for fragment in _fragments(transaction) for file in fragment.files]
    if isinstance(operation, ops.DataReplacement):
        files += [one.new_file for one in operation.replacements]
    return found | {f"{DATA}/{file.path}" for file in files if file.base_id is None}


def _fragments(transaction: Transaction) -> Iterator[Fragment]:
    """The fragments as they are to be, changed and new ones."""
    operation = transaction.operation
    if isinstance(operation, (ops.Append, ops.Overwrite, ops.Merge)):
        yield from operation.fragments
    if isinstance(operation, (ops.Delete, ops.Update)):
        yield from operation.updated_fragments
    if isinstance(operation, ops.Update):
        yield from operation.new_fragments
    if isinstance(operation, ops.Rewrite):
        for group in operation.groups:
            yield from group.new_fragments
