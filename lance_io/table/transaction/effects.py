"""The effects of an operation on fragments and data files (spec: commit, section 2.2).

    added      new fragments, which the commit numbers
    changed    fragments in their complete new state
    listed     all fragments of the table in their new state, for a Merge
    removed    ids of fragments that are removed or replaced by others
    replaced   data files that are put into a fragment

Other operations name no fragments. An Overwrite keeps no fragment of the table and a Restore has those of another
version, so their removed fragments are not listed.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from lance_io.records import dataclass
from lance_io.table.transaction import operations as ops

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.table.manifest.fragment import DataFile, Fragment


@dataclass(frozen=True)
class Effects:
    """See the module. Except for `removed`, fragments that the operation lists twice are here twice."""

    added: Sequence[Fragment] = ()
    changed: Sequence[Fragment] = ()
    listed: Sequence[Fragment] = ()
    removed: frozenset[int] = frozenset()
    replaced: Sequence[ops.DataReplacementGroup] = ()

    @property
    def restated(self) -> Iterator[Fragment]:
        """Fragments of the table in their new state."""
        return chain(self.changed, self.listed)

    @property
    def new_rows(self) -> Iterator[DataFile]:
        """Data files of the new fragments."""
        return (file for fragment in self.added for file in fragment.files)

    @property
    def named(self) -> Iterator[DataFile]:
        """All data files of fragments in their new state that the operation names."""
        replaced = (group.new_file for group in self.replaced)
        return chain(self.new_rows, (file for fragment in self.restated for file in fragment.files), replaced)


def effects_of(operation: ops.Operation) -> Effects:
    """The effects of an operation on fragments and data files."""
    match operation:
        case ops.Append() | ops.Overwrite():
            return Effects(added=operation.fragments)
        case ops.Delete():
            return Effects(changed=operation.updated_fragments, removed=frozenset(operation.deleted_fragment_ids))
        case ops.Update():
            removed = frozenset(operation.removed_fragment_ids)
            return Effects(operation.new_fragments, operation.updated_fragments, removed=removed)
        case ops.Merge():
            return Effects(listed=operation.fragments)
        case ops.Rewrite():
            added = [fragment for group in operation.groups for fragment in group.new_fragments]
            gone = frozenset(fragment.id for group in operation.groups for fragment in group.old_fragments)
            return Effects(added=added, removed=gone)
        case ops.DataReplacement():
            return Effects(replaced=operation.replacements)
    return Effects()
