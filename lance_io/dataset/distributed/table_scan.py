"""`TableScan` and `ScanPart`: what travels from who plans a scan to the tasks that read it, and how these read.

A part carries the manifest's entries of its fragments, files and deletion files included, and the scan the rest of the
manifest. Together they open the part of the table that a task reads, without a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.dataset.distributed.table_place import cleanups_told
from lance_io.dataset.lazy_module import later
from lance_io.dataset.version.column_lists import OutputColumn, Projection, project
from lance_io.dataset.version.object_keys import branch_location
from lance_io.dataset.version.state import DatasetState
from lance_io.dataset.version.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET, SYSTEM_COLUMNS, system_field
from lance_io.errors import BindError, UnsupportedError
from lance_io.table.manifest.partial_manifest import joined, serialized_entry, serialized_header

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from lance_io.dataset.distributed import read_part as reading
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.scan.pipeline import ScanPlan
    from lance_io.table.manifest.manifest import Manifest
else:
    reading = later("lance_io.dataset.distributed.read_part")  # who plans does not read

FRAGMENT_ID: Final = "_fragid"
DECODED_PER_BYTE: Final = 16  # memory of what is made of a serialized manifest, about


@dataclass(frozen=True, slots=True)
class ScanPart:
    """What one task reads of a scan. Values only, to be pickled.

    number     its place among the parts
    version    of the table
    ranges     (fragment id, first row, rows), physical rows; each of another fragment, in the order of the table
    num_bytes  decoded bytes of the columns that are read, estimated
    fragments  the manifest's entries of the fragments of `ranges`, serialized
    """

    number: int
    version: int
    ranges: tuple[tuple[int, int, int], ...]
    num_bytes: int
    fragments: tuple[bytes, ...] = field(repr=False)

    @property
    def physical_rows(self) -> int:
        """Rows of the ranges, deleted ones included."""
        return sum(rows for _, _, rows in self.ranges)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What a scan is asked for; see `TableVersion.scan`."""

    columns: tuple[tuple[str, ...], ...] | None = None
    names: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    with_fragment_id: bool = False
    blobs_as_bytes: bool = True

    @property
    def needs_row_ids(self) -> bool:
        """Whether a task may need the row id sequences, which can be large."""
        named = any(path[0] in SYSTEM_COLUMNS for path in self.columns or ())
        return self.with_row_id or self.filter is not None or named

    @property
    def quoted_columns(self) -> list[str] | None:
        """The columns as a list that every scan takes."""
        if self.columns is None:
            return None
        return [".".join(f"`{name.replace('`', '``')}`" for name in path) for path in self.columns]


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
        return remembered_state(place, self.branch, parts, lambda digest: joined(self.header, part.fragments, digest))

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


def remembered_state(
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


# -- columns -----------------------------------------------------------------------------------------------------------


def scan_projection(state: DatasetState, request: ScanRequest) -> Projection:
    """The output columns of a scan.

    Raises `BindError` for columns that the table lacks, or that occur twice, and `UnsupportedError` for `_rowoffset`,
    which a task cannot know.
    """
    plain = project(state.schema, None) if request.columns is None else _named_columns(state, request)
    outputs = [*state.shown(plain, "all_binary" if request.blobs_as_bytes else None).outputs]
    wanted = (
        (ROW_ID, ROW_ID, request.with_row_id),
        (ROW_ADDRESS, ROW_ADDRESS, request.with_row_address),
        (FRAGMENT_ID, ROW_ADDRESS, request.with_fragment_id),
    )
    outputs += [OutputColumn(name, (source,), system_field(name)) for name, source, asked in wanted if asked]
    by_name = {output.name: output for output in outputs}
    if len(by_name) < len(outputs):
        raise BindError(f"columns occur twice: {', '.join(output.name for output in outputs)}")
    if any(output.path == (ROW_OFFSET,) for output in outputs):
        raise UnsupportedError(f"{ROW_OFFSET} counts the rows of the whole table, which a task does not see")
    missing = [name for name in request.names or () if name not in by_name]
    if missing:
        raise BindError(f"the schema names {', '.join(missing)}; the columns of this read are {', '.join(by_name)}")
    names = request.names
    return replace(plain, outputs=tuple(outputs if names is None else [by_name[name] for name in names]))


def _named_columns(state: DatasetState, request: ScanRequest) -> Projection:
    """Members of structs become columns of their own, called by their path."""
    projection = project(state.schema, request.quoted_columns)
    named = [
        replace(output, name=".".join(output.path), field=output.field.with_name(".".join(output.path)))
        for output in projection.outputs
    ]
    return replace(projection, outputs=tuple(named))


def row_width(dtypes: Sequence[pa.DataType]) -> tuple[float, int]:
    """Bytes of a row of such columns as far as their types say, and how many of its values have no fixed width."""
    widths = [decoded_width(dtype) for dtype in dtypes]
    return sum(fixed for fixed, _ in widths), sum(variable for _, variable in widths)


def decoded_width(dtype: pa.DataType) -> tuple[float, int]:
    """Bytes of a value as far as its type says, and how many parts of it have no fixed width."""
    if isinstance(dtype, pa.BaseExtensionType):
        return decoded_width(dtype.storage_type)
    if pa.types.is_dictionary(dtype):
        return decoded_width(dtype.value_type)
    if pa.types.is_fixed_size_list(dtype):
        fixed, variable = decoded_width(dtype.value_type)
        return dtype.list_size * fixed, dtype.list_size * variable
    if pa.types.is_struct(dtype):
        return row_width([member.type for member in dtype])
    if pa.types.is_null(dtype):
        return 0.0, 0
    try:
        return dtype.bit_width / 8, 0
    except ValueError:  # texts, lists, maps
        return 0.0, 1
