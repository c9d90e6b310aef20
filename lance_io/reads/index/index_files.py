"""Files of index segments: references to them, cache keys of their folders, and steps that read several files at once.

A segment is one build of an index over some fragments. Its files are in one folder, and the index section of the
manifest has an entry (`IndexPart`) for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import FormatError
from lance_io.file.file_steps import FilesSteps, Independent
from lance_io.file.open.file_source import FileRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.take.side_file import SideFile
    from lance_io.reads.index.table_indices import IndexPart
    from lance_io.reads.version.state import DatasetState


def folder_key(state: DatasetState, part: IndexPart[Any]) -> tuple[Any, ...]:
    """A cache key for the folder of a segment. The content of such a folder never changes.

    The key contains the object key of a file "x" in the folder; the folder need not have this file.
    """
    return state.context.store.identity, file_ref(state, part, "x").key


def file_ref(state: DatasetState, part: IndexPart[Any], name: str) -> FileRef:
    """A reference to a file of a segment. All calls with the same state return the same object."""
    refs: dict[tuple[str, str], FileRef] = state.__dict__.setdefault("index_refs", {})
    ref = refs.get((part.uuid, name))
    if ref is None:
        key = state.object_keys.index_key(part.uuid, part.base_id, name)
        ref = refs[part.uuid, name] = FileRef(key, part.sizes.get(name, 0), (), ())
    return ref


def run_together(steps: Sequence[tuple[FileRef, FileSteps[Any]]]) -> FilesSteps[list[Any]]:
    """Run the steps of several files in the same rounds of requests. Returns their results, in order."""
    results: list[Any] = yield Independent(steps)
    return results


def buffer_number(file: SideFile, key: str) -> int | None:
    """The number of a global buffer, from the entry `key` of a file's metadata; None without this entry.

    Raises `FormatError` if the entry is not a number.
    """
    text = file.metadata.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FormatError(f"{key}: expected the number of a global buffer, found {text[:40]!r}", path=file.key)
    return int(text)
