"""The files below a table's own folder that a transaction names (spec: commit, section 2.2).

    small files   its own file, and the deletion files of the fragments that it changes
    data files    of all fragments that it lists, also those of earlier versions

Files below base paths are left out: they are in other stores.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from lance_io.table.manifest.paths import DATA, deletion_file_location
from lance_io.table.transaction.effects import effects_of

if TYPE_CHECKING:
    from lance_io.table.transaction.transaction import Transaction


def small_files(transaction: Transaction) -> set[str]:
    """Paths of the transaction's file, and of the deletion files that it names."""
    paths = {transaction.path}
    effects = effects_of(transaction.operation)
    for fragment in chain(effects.added, effects.restated):
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id is None:
            paths.add(deletion_file_location(fragment.id, deletion, {}).relative)
    return paths


def named_files(transaction: Transaction) -> set[str]:
    """Paths of the small files and of the data files."""
    named = effects_of(transaction.operation).named
    return small_files(transaction) | {f"{DATA}/{file.path}" for file in named if file.base_id is None}
