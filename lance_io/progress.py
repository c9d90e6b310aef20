"""Progress of writes, by fragment. Module and names are those of pylance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lance_io.changes.index.build_progress import IndexProgress
from lance_io.changes.write.write_progress import FragmentWriteProgress, NoopFragmentWriteProgress

if TYPE_CHECKING:
    from os import PathLike

    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata

__all__ = ["FileSystemFragmentWriteProgress", "FragmentWriteProgress", "IndexProgress", "NoopFragmentWriteProgress"]


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Keeps two files for each fragment in a folder, as pylance does.

        fragment_3.in_progress   {"fragment_id": 3, "metadata": {...}} while it is being written
        fragment_3.json          its metadata: initial, and final once it is complete

    Args:
        base_uri: The folder, a path or a URI of a pyarrow filesystem; created if necessary.
        metadata: The "metadata" of the `.in_progress` files.
    """

    PROGRESS_EXT: Final = ".in_progress"

    def __init__(self, base_uri: str | PathLike[str], metadata: dict[str, str] | None = None) -> None:
        from pyarrow.fs import FileSystem, LocalFileSystem

        text = str(base_uri)
        location = FileSystem.from_uri(text) if "://" in text else (LocalFileSystem(), text)
        self._filesystem: FileSystem = location[0]
        self._folder: str = location[1]
        self._metadata = dict(metadata or {})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        with self._filesystem.open_output_stream(f"{self._folder}/{name}") as file:
            file.write(json.dumps(content).encode())

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Write both files of a fragment.

        Args:
            fragment: Metadata of the fragment, so far without its rows.
            kwargs: Ignored.
        """
        self._filesystem.create_dir(self._folder, recursive=True)
        content = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._write(f"fragment_{fragment.id}{self.PROGRESS_EXT}", content)
        self._write(f"fragment_{fragment.id}.json", fragment.to_json())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Write the final metadata of a fragment, and remove its `.in_progress` file.

        Args:
            fragment: Metadata of the complete fragment.
            kwargs: Ignored.
        """
        self._write(f"fragment_{fragment.id}.json", fragment.to_json())
        self._filesystem.delete_file(f"{self._folder}/fragment_{fragment.id}{self.PROGRESS_EXT}")
