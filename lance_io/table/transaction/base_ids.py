"""Base paths of a cloned version's files: a base path, or the table's own folder (spec: table, section 1.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.table.manifest.index_section import encode_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_io.proto import table_pb2
    from lance_io.table.manifest.index_section import IndexMetadata


def refer_to_base(manifest: table_pb2.Manifest, indices: Iterable[IndexMetadata], base_id: int) -> list[IndexMetadata]:
    """Move all files in the table's own folder to a base path; returns the changed index entries.

    Files below other base paths stay there. An id of zero is stored explicitly: no id means the table's folder.
    """
    for file in _files(manifest):
        if not file.HasField("base_id"):
            file.base_id = base_id
    return [index if index.base_id is not None else _moved(index, base_id) for index in indices]


def refer_to_own(
    manifest: table_pb2.Manifest, indices: Iterable[IndexMetadata], *, keeps_bases: bool
) -> list[IndexMetadata]:
    """Move all files to the table's own folder; returns the changed index entries.

    keeps_bases  keep the declared base paths, for values that name them
    """
    for file in _files(manifest):
        file.ClearField("base_id")
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
