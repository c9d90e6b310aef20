"""Where the files of a cloned version lie: below a base path, or in its own folder (spec: table, section 1.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.table.manifest.index_section import encode_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_io.proto import table_pb2
    from lance_io.table.manifest.index_section import IndexMetadata


def refer_to_base(manifest: table_pb2.Manifest, indices: Iterable[IndexMetadata], base_id: int) -> list[IndexMetadata]:
    """Let everything that lies in the table's own folder lie below a base path; gives the index entries.

    What lies below another base path stays there. An id of zero is stored too: its absence means the table's folder.
    """
    for one in _files(manifest):
        if not one.HasField("base_id"):
            one.base_id = base_id
    return [index if index.base_id is not None else _moved(index, base_id) for index in indices]


def refer_to_own(
    manifest: table_pb2.Manifest, indices: Iterable[IndexMetadata], *, keeps_bases: bool
) -> list[IndexMetadata]:
    """Let everything lie in the table's own folder; gives the index entries.

    keeps_bases  leave the base paths declared, for values that name them
    """
    for one in _files(manifest):
        one.ClearField("base_id")
    if not keeps_bases:
        manifest.ClearField("base_paths")
    return [index if index.base_id is None else _moved(index, None) for index in indices]


def _files(manifest: table_pb2.Manifest) -> Iterator[Any]:
    """The messages of all data and deletion files."""
    for fragment in manifest.fragments:
        yield from fragment.files
        if fragment.HasField("deletion_file"):
            yield fragment.deletion_file


def _moved(index: IndexMetadata, base_id: int | None) -> IndexMetadata:
    message = encode_index(index)
    if base_id is None:
        message.ClearField("base_id")
    else:
        message.base_id = base_id
    return replace(index, message=message)
