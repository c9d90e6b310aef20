"""Manifest files of newer versions that a commit has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lance_io.commit.latest import read_named
from lance_io.errors import FormatError, NotFound
from lance_io.plans.store_requests import Read
from lance_io.table.manifest.manifest import Manifest, Origin, decode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.commit.target import CommitTarget
    from lance_io.format.wire import Buffer
    from lance_io.plans.plan import Plan

M = TypeVar("M", Manifest, Origin)


class FetchedVersions(dict[int, bytes]):
    """Manifest files that were read, by version."""

    def __init__(self, target: CommitTarget) -> None:
        super().__init__()
        self._target = target

    def read(self, version: int, key: str, *, may_be_gone: bool) -> Plan[None]:
        """Read the file of a version. Raises `NotFound` unless it may be gone."""
        try:
            self[version] = bytes((yield from read_named(self._target.location.store, key)))
        except NotFound:
            if not may_be_gone:
                raise

    def find(self, version: int) -> Plan[None]:
        """Look up the file of a version by its number, and read it."""
        file = yield from self._target.handler.find_version(self._target.location, version)
        self[version] = bytes((yield Read(self._target.location.store, file.key)))

    def manifest(self, version: int) -> Manifest:
        """The manifest of a version that was read."""
        return self.decode(version, decode_manifest)

    def decode(self, version: int, decode: Callable[[Buffer], M]) -> M:
        """Decode a file that was read. Raises `FormatError` if its content is of another version."""
        try:
            content = decode(self[version])
        except FormatError as error:
            raise error.within(f"version {version}") from error.__cause__
        if content.version != version:
            raise FormatError(f"the manifest file of version {version} says that it is version {content.version}")
        return content

    def keep_only(self, version: int | None) -> None:
        """Drop all other versions."""
        for other in [number for number in self if number != version]:
            del self[other]
