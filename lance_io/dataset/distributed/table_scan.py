"""`TableScan`: a scan that the planner sends to tasks, which read its parts.

A part carries the manifest entries of its fragments, which name data and deletion files; the scan carries the rest of
the manifest. From both, a task opens its share of the table without a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset.distributed.scan_request import ScanPart, ScanRequest, key_request, row_width, scan_projection
from lance_io.dataset.distributed.table_place import explain_missing_version
from lance_io.lazy_names import lazy_module
from lance_io.reads.scan.scan_statistics import ScanWatch
from lance_io.reads.version.object_keys import branch_location
from lance_io.reads.version.state import DatasetState
from lance_io.table.manifest.partial_manifest import join_parts, serialized_entry, serialized_header

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import pyarrow as pa

    from lance_io.dataset.distributed import read_part as reading
    from lance_io.dataset.distributed import top_rows
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.table.manifest.manifest import Manifest
else:
    reading = lazy_module("lance_io.dataset.distributed.read_part")  # the planner does not read
    top_rows = lazy_module("lance_io.dataset.distributed.top_rows")

DECODED_PER_BYTE: Final = 16  # approximate memory of a decoded manifest, per byte of its message


@dataclass(eq=False)
class TableScan:
    """A scan of one version. `TableVersion.scan` creates it, any number of tasks read its parts. Pickling leaves
    out connections and rows; unpickling does no I/O.

    Attributes:
        request: Parameters of the scan.
        branch: Branch of the version.
        header: The manifest without its fragments, see `partial_manifest`.
        system_columns: Names of the columns that no file holds, such as row ids.
        row_width: Fixed bytes of a row, and the number of its values without a fixed width.
        key_scan: For a scan of the first rows in an order: the scan of its sort keys; else None.
        prepared: The scan plan, which all parts share; None until this process creates it. Not pickled.
    """

    request: ScanRequest
    branch: str | None
    header: bytes = field(repr=False)
    system_columns: frozenset[str]
    row_width: tuple[float, int]
    key_scan: TableScan | None = None
    prepared: ScanPlan | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, state: DatasetState, request: ScanRequest) -> TableScan:
        """The scan of a version; it fails like `scan_projection`. See `TableVersion.scan`."""
        outputs = scan_projection(state, request).outputs
        return cls(
            request=request,
            branch=state.manifest.branch,
            header=serialized_header(state.manifest, row_ids=request.needs_row_ids),
            system_columns=frozenset(output.name for output in outputs if output.is_system),
            row_width=row_width([output.field.type for output in outputs]),
            key_scan=cls.of(state, key_request(request)) if request.order else None,
        )

    def entry(self, state: DatasetState, fragment_index: int) -> bytes:
        """The manifest's entry of a fragment, serialized for a part.

        Args:
            state: The version.
            fragment_index: Index of the fragment in the manifest.
        """
        return serialized_entry(state.manifest, fragment_index, row_ids=self.request.needs_row_ids)

    def state(self, place: TablePlace, part: ScanPart) -> DatasetState:  # plain: public parameter
        """The part's share of the version, opened without a request.

        Args:
            place: The table.
            part: The part.
        """
        parts = (self.header, *part.fragments)
        return recall_state(place, self.branch, parts, lambda digest: join_parts(self.header, part.fragments, digest))

    @staticmethod
    def watch() -> ScanWatch:
        """A counter for one part, see `read`."""
        return ScanWatch()

    def read(
        self,
        place: TablePlace,  # plain: public parameter
        part: ScanPart,
        *,
        batch_bytes: int,
        batch_rows: int | None = None,
        io_buffer_bytes: int | None = None,
        first_rows: int = 0,
        skip_rows: int = 0,
        offer_stop: Callable[[Callable[[], None]], object] | None = None,
        watch: ScanWatch | None = None,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows of a part. Pages are prefetched and decoded ahead.

        Args:
            place: The table.
            part: The part.
            batch_bytes: Approximate bytes of a batch.
            batch_rows: Maximum rows of a batch; None for no bound.
            io_buffer_bytes: Maximum bytes read ahead; None for the default.
            first_rows: Read only this many rows from the start of the first fragment, and only the chunks of pages that
                hold them; 0 for all.
            skip_rows: Skip this many rows. With `first_rows` you can read a part in two steps.
            offer_stop: Called with a function that ends the read, from any thread: the one that waits for a batch gets
                an exception.
            watch: Counts the reads of the part.

        Yields:
            Record batches. Closing the generator ends the scan and cancels the reads under way.

        Raises:
            NotFound: A file does not exist. If a cleanup has removed the version, the message says so.
            OSError: A file is damaged, or the store fails.
        """
        if not part.ranges:
            return
        how: dict[str, Any] = {"io_buffer_bytes": io_buffer_bytes, "offer_stop": offer_stop, "watch": watch}
        how |= {"batch_bytes": batch_bytes, "batch_rows": batch_rows}
        state = self.state(place, part)
        with explain_missing_version(state.location, part.version):
            if self.key_scan is None:
                yield from reading.read_part(self, state, part, **how, first_rows=first_rows, skip_rows=skip_rows)
            else:
                yield from top_rows.read_top(self, self.key_scan, place, part, how)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "prepared": None}


def recall_state(
    table: TablePlace, branch: str | None, parts: Sequence[bytes], build_manifest: Callable[[str], Manifest]
) -> DatasetState:
    """The state of a version from serialized parts of its manifest, without a request. The session caches it.

    build_manifest  builds the manifest, given the digest of the parts
    """
    session, root = table.session, table.location
    digest = blake2b(b"".join(parts), digest_size=16).hexdigest()
    settings = tuple(sorted(table.storage_options.items()))
    key = ("carried", root.store.identity, table.uri, settings, branch, digest)
    state: DatasetState | None = session.cache.get(key)
    if state is None:
        state = DatasetState(
            location=branch_location(root, branch),
            root=root,
            manifest=build_manifest(digest),
            session=session,
            given_uri=table.uri,
            storage_options=table.storage_options,
        )
        session.cache.put(key, state, DECODED_PER_BYTE * sum(map(len, parts)))
    return state
