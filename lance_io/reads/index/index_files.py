"""Files of segments, by the entries of the index section: their keys, the buffers that they name, steps on several."""

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
    """Identifies the folder of a segment in the cache; its content never changes."""
    return state.context.store.identity, file_ref(state, part, "x").key


def file_ref(state: DatasetState, part: IndexPart[Any], name: str) -> FileRef:
    """A file of a segment; the same object for each call of a version."""
    refs: dict[tuple[str, str], FileRef] = state.__dict__.setdefault("index_refs", {})
    ref = refs.get((part.uuid, name))
    if ref is None:
        key = state.object_keys.index_key(part.uuid, part.base_id, name)
        ref = refs[part.uuid, name] = FileRef(key, part.sizes.get(name, 0), (), ())
    return ref


def independent(steps: Sequence[tuple[FileRef, FileSteps[Any]]]) -> FilesSteps[list[Any]]:
    """Steps on several files, in the same rounds."""
    results: list[Any] = yield Independent(steps)
    return results


def buffer_number(file: SideFile, key: str) -> int | None:
    """The global buffer that the metadata of a file names; None without one. Raises `FormatError`."""
    text = file.metadata.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FormatError(f"{key}: expected the number of a global buffer, found {text[:40]!r}", path=file.key)
    return int(text)
