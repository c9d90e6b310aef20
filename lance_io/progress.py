"""What a write tells while it runs, under the module name that pylance gives it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lance_io.changes.write.write_progress import FragmentWriteProgress, NoopFragmentWriteProgress

if TYPE_CHECKING:
    from os import PathLike

    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata

__all__ = ["FileSystemFragmentWriteProgress", "FragmentWriteProgress", "NoopFragmentWriteProgress"]


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Keeps two files for each fragment in a folder, as pylance does.

        fragment_3.in_progress   {"fragment_id": 3, "metadata": {...}} while it is being written
        fragment_3.json          its metadata: as it began, and once it is complete as it is

    base_uri  the folder, a path or a URI of a filesystem of pyarrow; it is made if need be
    metadata  texts for the first of them
    """

    PROGRESS_EXT: Final = ".in_progress"

    def __init__(self, base_uri: str | PathLike[str], metadata: dict[str, str] | None = None) -> None:
        from pyarrow.fs import FileSystem, LocalFileSystem

        text = str(base_uri)
        given = FileSystem.from_uri(text) if "://" in text else (LocalFileSystem(), text)
        self._filesystem: FileSystem = given[0]
        self._folder: str = given[1]
        self._metadata = dict(metadata or {})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        with self._filesystem.open_output_stream(f"{self._folder}/{name}") as file:
            file.write(json.dumps(content).encode())

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Write both files."""
        self._filesystem.create_dir(self._folder, recursive=True)
        told = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._write(f"fragment_{fragment.id}{self.PROGRESS_EXT}", told)
        self._write(f"fragment_{fragment.id}.json", fragment.to_json())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Write what the fragment has become, and remove the file that says that it is being written."""
        self._write(f"fragment_{fragment.id}.json", fragment.to_json())
        self._filesystem.delete_file(f"{self._folder}/fragment_{fragment.id}{self.PROGRESS_EXT}")
