"""`TableScan`: what travels from who plans a scan to the tasks that read it, and how these read.

A part carries the manifest's entries of its fragments, files and deletion files included, and the scan the rest of the
manifest. Together they open the part of the table that a task reads, without a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset.distributed.scan_request import ScanPart, ScanRequest, row_width, scan_projection
from lance_io.dataset.distributed.table_place import cleanups_told
from lance_io.lazy_names import later
from lance_io.reads.version.object_keys import branch_location
from lance_io.reads.version.state import DatasetState
from lance_io.table.manifest.partial_manifest import join_parts, serialized_entry, serialized_header

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import pyarrow as pa

    from lance_io.dataset.distributed import read_part as reading
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.table.manifest.manifest import Manifest
else:
    reading = later("lance_io.dataset.distributed.read_part")  # who plans does not read

DECODED_PER_BYTE: Final = 16  # memory of what is made of a serialized manifest, about


@dataclass(eq=False)
class TableScan:
    """A scan of one version of a table, whose parts are read by any number of tasks. To be pickled, with no request,
    no connection and no rows in it; unpickling it does nothing. `TableVersion.scan` makes it.

    request         what it was asked for
    branch, header  of the version, see `partial_manifest`
    system_columns  names of those columns that no file holds, such as row ids
    row_width       bytes of a row as far as its types say, and how many of its values have no fixed width
    prepared        what tasks do with the rows of any part, once one of this process has found out; does not travel
    """

    request: ScanRequest
    branch: str | None
    header: bytes = field(repr=False)
    system_columns: frozenset[str]
    row_width: tuple[float, int]
    prepared: ScanPlan | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, state: DatasetState, request: ScanRequest) -> TableScan:
        """The scan of a version. Raises as `scan_projection`."""
        outputs = scan_projection(state, request).outputs
        return cls(
            request=request,
            branch=state.manifest.branch,
            header=serialized_header(state.manifest, row_ids=request.needs_row_ids),
            system_columns=frozenset(output.name for output in outputs if output.is_system),
            row_width=row_width([output.field.type for output in outputs]),
        )

    def entry(self, state: DatasetState, place: int) -> bytes:
        """What a part carries of the fragment at a place of a version."""
        return serialized_entry(state.manifest, place, row_ids=self.request.needs_row_ids)

    def state(self, place: TablePlace, part: ScanPart) -> DatasetState:
        """The part of the version that a task reads, opened without a request."""
        parts = (self.header, *part.fragments)
        return recall_state(place, self.branch, parts, lambda digest: join_parts(self.header, part.fragments, digest))

    def read(
        self,
        place: TablePlace,
        part: ScanPart,
        *,
        batch_bytes: int,
        batch_rows: int | None = None,
        io_buffer_bytes: int | None = None,
        first_rows: int = 0,
        skip_rows: int = 0,
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of a part, page after page read and decoded ahead while earlier ones are on their way.

        batch_bytes, batch_rows  about so many bytes, at most so many rows, per batch
        io_buffer_bytes          bytes that may have been read ahead, None for the default
        first_rows               only so many rows from the first on, of the first fragment: of pages only the chunks
                                 that hold them are read. 0 for all
        skip_rows                all but these; a part can be read in two steps

        Closing the generator ends the scan, and cancels what is under way. Raises what reading raises, `NotFound` with
        the reason where a cleanup has removed the version.
        """
        if part.ranges:
            state = self.state(place, part)
            with cleanups_told(state.location, part.version):
                yield from reading.read_part(
                    self,
                    state,
                    part,
                    batch_bytes=batch_bytes,
                    batch_rows=batch_rows,
                    io_buffer_bytes=io_buffer_bytes,
                    first_rows=first_rows,
                    skip_rows=skip_rows,
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "prepared": None}


def recall_state(
    place: TablePlace, branch: str | None, parts: Sequence[bytes], manifest: Callable[[str], Manifest]
) -> DatasetState:
    """The state of a version that came in parts, the same one as long as the session remembers it; no request.

    manifest  makes the version, given the digest of the parts
    """
    session, root = place.session, place.location
    digest = blake2b(b"".join(parts), digest_size=16).hexdigest()
    settings = tuple(sorted(place.storage_options.items()))
    key = ("carried", root.store.identity, place.uri, settings, branch, digest)
    found: DatasetState | None = session.cache.get(key)
    if found is None:
        found = DatasetState(
            location=branch_location(root, branch),
            root=root,
            manifest=manifest(digest),
            session=session,
            given_uri=place.uri,
            storage_options=place.storage_options,
        )
        session.cache.put(key, found, DECODED_PER_BYTE * sum(map(len, parts)))
    return found
