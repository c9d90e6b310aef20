"""Blob payloads of a file that is being written: they are written first, and their columns store their locations.

    kind          bytes                   location                              description
    first (2.1)   any                     data file, a multiple of 64           position, size
    second (2.2)  0 inline                data file, a multiple of 64           position, size
                  1 packed                a sidecar of many, back to back       position in it, size, blob id
                  2 dedicated             a sidecar of its own                  size, blob id
                  3 external              not written, they exist elsewhere     URI; position and size of a part of it
                  4 managed               a file of the table, as 1 or 2        position in it, size, its path as URI

Blobs may also come as locations in other files: they are copied, a few MiB at a time; external and managed blobs stay
where they are.

Payloads are written as their rows arrive, so they are never held. Sidecars are named by blob id, numbered from 1 on in
each file. If the table manages its blobs, payloads go to files of random names in the table's `_blobs/` instead of
sidecars; several data files may refer to these. Specification: structural encodings 2.1, sections 7 and 10.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lance_io.errors import SchemaError
from lance_io.file.write.uploads import GatheredWrites
from lance_io.format.schema import BLOB_FOLDER
from lance_io.levels.arrays import booleans, mask_of, numbers, texts, values_of
from lance_io.levels.blob_source import BLOB_SOURCE
from lance_io.levels.lists import visible_items, with_items
from lance_io.limits import KIB, MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_io.file.write.file_layout import FileLayout
    from lance_io.file.write.uploads import Sink
    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.spans import IntArray

INLINE_BYTES_MAX: Final = 64 * KIB  # larger blobs would spread the pages of other columns too far
PACKED_BYTES_MAX: Final = 4 * MIB  # larger blobs are worth an object of their own
SIDECAR_BYTES_MAX: Final = 1024 * MIB  # of a sidecar with packed blobs
WRITTEN_AT_ONCE_BYTES: Final = 8 * MIB
COPIED_AT_ONCE_BYTES: Final = 8 * MIB  # of blobs from other files

_INLINE, _PACKED, _DEDICATED, _EXTERNAL, _MANAGED = range(5)
_PREFIX: Final = "lance-encoding:blob-"
_BLOB_ID_DIGITS: Final = 32
_FIELDS: Final = ("kind", "position", "size", "blob_id", "blob_uri")


def managed_blob_name() -> str:
    """A new random name for a file in the table's folder of managed blobs."""
    return f"{uuid4()}.blob"


def sidecar_name(blob_id: int) -> str:
    """Name of the sidecar with this id: its binary digits, the least significant first."""
    return f"{blob_id:0{_BLOB_ID_DIGITS}b}"[::-1] + ".blob"


@dataclass(frozen=True, slots=True)
class _Thresholds:
    inline_bytes_max: int
    packed_bytes_max: int
    sidecar_bytes_max: int


def _thresholds(field: Field) -> _Thresholds:
    def number(name: str, default: int, least: int = 1) -> int:
        text = field.metadata.get(f"{_PREFIX}{name}-threshold")
        if text is None:
            return default
        if not text.isdigit() or int(text) < least:
            raise SchemaError(
                f"{_PREFIX}{name}-threshold of {field.name}: expected a number of bytes from {least} on, found {text!r}"
            )
        return int(text)

    return _Thresholds(
        number("inline-size", INLINE_BYTES_MAX, least=0),
        number("dedicated-size", PACKED_BYTES_MAX),
        number("pack-file-size", SIDECAR_BYTES_MAX),
    )


class PayloadReader(Protocol):
    """Reads blobs of other files, by number."""

    def read(self, source: int, starts: IntArray, lengths: IntArray) -> Plan[Sequence[memoryview]]:
        """Read ascending byte ranges of the file with this number."""


class BlobSink:
    """Writes the blob payloads of one data file, and creates their descriptions.

    layout      assigns offsets in the data file
    sink        takes the bytes
    references  whether blobs may be external, referred to by a URI
    new_name    returns a name for a managed blob file; None if the table does not manage its blobs
    payloads    reads blobs that come as locations in other files; None if there are none
    """

    def __init__(
        self,
        layout: FileLayout,
        sink: Sink,
        *,
        references: bool = True,
        new_name: Callable[[], str] | None = None,
        payloads: PayloadReader | None = None,
    ) -> None:
        self._reader = payloads
        self._layout = layout
        self._sink = sink
        self._may_refer = references
        self._new_name = new_name
        self._payloads = GatheredWrites(sink, WRITTEN_AT_ONCE_BYTES)
        self._sidecars: list[str] = []
        self._packed: str | None = None  # the current sidecar of packed blobs
        self._packed_bytes = 0

    def describe(self, fields: Sequence[Field], arrays: list[pa.Array]) -> Plan[list[pa.Array]]:
        """Write the blobs in stored arrays; returns the arrays with their descriptions instead."""
        described = []
        for field, array in zip(fields, arrays, strict=True):
            described.append((yield from self._field(field, array)) if _has_blobs(field) else array)
        yield from self._payloads.flush()
        return described

    def finish(self) -> Plan[tuple[str, ...]]:
        """Complete the open sidecar; returns the names of all sidecars."""
        yield from self._close_packed()
        return tuple(self._sidecars)

    def _field(self, field: Field, array: pa.Array) -> Plan[pa.Array]:
        if field.holds_blobs and array.type == BLOB_SOURCE:
            return (yield from self._copy_all(field, array))
        if field.is_blob:
            return (yield from self._first_kind(array))
        if field.is_blob_v2:
            return (yield from self._second_kind(field, array))
        if field.logical_type != "struct":
            items, offsets = visible_items(array)
            return with_items(array, offsets, (yield from self._field(field.children[0], items)))
        members = []
        for child, member in zip(field.children, array.flatten(), strict=True):  # null where the struct is null
            members.append((yield from self._field(child, member)) if _has_blobs(child) else member)
        fields = [pa.field(child.name, member.type) for child, member in zip(field.children, members, strict=True)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)

    def _first_kind(self, array: pa.Array) -> Plan[pa.Array]:
        values = _Values(array)
        positions = np.zeros(len(array), np.uint64)
        sizes = np.where(values.is_valid, values.sizes, 0).astype(np.uint64)
        for row in np.flatnonzero(sizes).tolist():
            positions[row] = yield from self._inline(values[row])
        members = [numbers(positions), numbers(sizes)]
        return pa.StructArray.from_arrays(members, ["position", "size"], mask=values.null_mask)

    def _second_kind(self, field: Field, array: pa.StructArray) -> Plan[pa.Array]:
        limits = _thresholds(field)
        values = _Values(array.field("data"))
        is_there = mask_of(array.is_valid())
        rows = {name: np.zeros(len(array), np.uint64) for name in _FIELDS[:4]}
        uris = _uris(field, array, is_there, values)
        external = next((row for row, uri in enumerate(uris) if uri is not None), None)
        if external is not None and not self._may_refer:
            raise SchemaError(
                f"row {external} of blob column `{field.name}` lies outside of the table, which would not be whole "
                "without it. Pass allow_external_blob_outside_bases=True to store such references"
            )
        for row in np.flatnonzero(is_there & values.is_valid).tolist():
            size = int(values.sizes[row])
            rows["size"][row] = size
            if size > limits.packed_bytes_max:
                rows["kind"][row] = _DEDICATED
                rows["blob_id"][row] = yield from self._write_sidecar(values[row])
            elif size > limits.inline_bytes_max:
                rows["kind"][row] = _PACKED
                rows["position"][row], rows["blob_id"][row] = yield from self._pack(values[row], limits)
            elif size:
                rows["position"][row] = yield from self._inline(values[row])
        _add_external(array, uris, rows)
        if self._new_name is not None:
            self._manage(np.flatnonzero(rows["blob_id"]), rows, uris)
        return _descriptions(rows, uris, None if is_there.all() else booleans(~is_there))

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copy_all(self, field: Field, array: pa.StructArray) -> Plan[pa.Array]:
        """Copy the blobs that lie in other files of the table; returns the descriptions of all."""
        limits = _thresholds(field) if field.is_blob_v2 else _Thresholds(0, 0, SIDECAR_BYTES_MAX)
        is_there = mask_of(array.is_valid())
        source, start = values_of(array.field("source")), values_of(array.field("start")).astype(np.int64)
        rows = {name: values_of(array.field(name)).astype(np.uint64) for name in _FIELDS[:4]}
        uris: list[str | None] = array.field("blob_uri").to_pylist()
        size = rows["size"].astype(np.int64)
        copied = np.flatnonzero(is_there & (source >= 0))
        for portion in _portions(copied, size):
            pieces = yield from self._read_portion(portion, source, start, size)
            for row in portion.tolist():
                payload = pieces.get(row)
                kind, num_bytes = int(rows["kind"][row]), int(size[row])
                rows["position"][row] = rows["blob_id"][row] = 0
                if kind == _INLINE:
                    if num_bytes:
                        rows["position"][row], filling = self._layout.reserve(num_bytes)
                        yield from self._copy(payload, source[row], start[row], num_bytes, None)
                        yield from self._payloads.add([filling])
                    continue
                if kind == _PACKED:
                    name = yield from self._packed_sidecar(num_bytes, limits)
                    rows["position"][row] = self._packed_bytes
                    self._packed_bytes += num_bytes
                else:
                    name = self._new_sidecar()
                yield from self._copy(payload, source[row], start[row], num_bytes, name)
                rows["blob_id"][row] = self._sidecars.index(name) + 1
                if kind != _PACKED:
                    yield from self._payloads.flush()
                    yield from self._sink.complete(name)
        if self._new_name is not None:
            self._manage(copied, rows, uris)
        mask = None if is_there.all() else booleans(~is_there)
        if field.is_blob:
            return pa.StructArray.from_arrays(
                [numbers(rows["position"]), numbers(rows["size"])], ["position", "size"], mask=mask
            )
        return _descriptions(rows, uris, mask)

    def _read_portion(
        self, portion: IntArray, source: IntArray, start: IntArray, size: IntArray
    ) -> Plan[dict[int, memoryview]]:
        """The payloads of rows, by row; empty for a single row too large to hold."""
        if len(portion) == 1 and size[portion[0]] > COPIED_AT_ONCE_BYTES:
            return {}
        assert self._reader is not None
        pieces: dict[int, memoryview] = {}
        for number in np.unique(source[portion]).tolist():
            rows = portion[(source[portion] == number) & (size[portion] > 0)]
            rows = rows[np.argsort(start[rows], kind="stable")]
            if len(rows):
                payloads = yield from self._reader.read(number, start[rows], size[rows])
                pieces.update(zip(rows.tolist(), payloads, strict=True))
        return pieces

    def _copy(
        self, payload: memoryview | None, source: int, start: int, num_bytes: int, sidecar: str | None
    ) -> Plan[None]:
        """Write the bytes of one blob; reads it piece by piece if `payload` is None."""
        if payload is not None:
            yield from self._payloads.add([payload], sidecar)
            return
        assert self._reader is not None
        for first in range(0, num_bytes, COPIED_AT_ONCE_BYTES):
            length = min(COPIED_AT_ONCE_BYTES, num_bytes - first)
            at, lengths = np.array([start + first], np.int64), np.array([length], np.int64)
            pieces = yield from self._reader.read(int(source), at, lengths)
            yield from self._payloads.add(pieces, sidecar)
            yield from self._payloads.flush()

    def _manage(self, written: IntArray, rows: dict[str, Any], uris: list[str | None]) -> None:
        """Replace sidecar numbers in descriptions by the names of managed files."""
        for row in written[rows["blob_id"][written] > 0].tolist():
            uris[row] = self._sidecars[int(rows["blob_id"][row]) - 1]
            rows["kind"][row], rows["blob_id"][row] = _MANAGED, 0

    # -- locations -----------------------------------------------------------------------------------------------------

    def _inline(self, payload: memoryview) -> Plan[int]:
        position, buffers = self._layout.append([payload])
        yield from self._payloads.add(buffers)
        return position

    def _pack(self, payload: memoryview, limits: _Thresholds) -> Plan[tuple[int, int]]:
        name = yield from self._packed_sidecar(len(payload), limits)
        position = self._packed_bytes
        self._packed_bytes += len(payload)
        yield from self._payloads.add([payload], name)
        return position, self._sidecars.index(name) + 1

    def _packed_sidecar(self, num_bytes: int, limits: _Thresholds) -> Plan[str]:
        """A sidecar with room for `num_bytes` more, which go to its offset `_packed_bytes`."""
        if self._packed is not None and self._packed_bytes + num_bytes > limits.sidecar_bytes_max:
            yield from self._close_packed()
        if self._packed is None:
            self._packed, self._packed_bytes = self._new_sidecar(), 0
        return self._packed

    def _write_sidecar(self, payload: memoryview) -> Plan[int]:
        name = self._new_sidecar()
        yield from self._payloads.add([payload], name)
        yield from self._payloads.flush()
        yield from self._sink.complete(name)
        return len(self._sidecars)

    def _close_packed(self) -> Plan[None]:
        if self._packed is not None:
            yield from self._payloads.flush()
            yield from self._sink.complete(self._packed)
            self._packed = None

    def _new_sidecar(self) -> str:
        new_name = self._new_name
        name = sidecar_name(len(self._sidecars) + 1) if new_name is None else f"{BLOB_FOLDER}/{new_name()}"
        self._sidecars.append(name)
        return name


class _Values:
    """The values of a binary array as views of its memory, and their sizes."""

    def __init__(self, array: pa.Array) -> None:
        is_large = pa.types.is_large_binary(array.type)
        _, offsets, data = array.buffers()
        width = np.int64 if is_large else np.int32
        count = len(array) + 1
        bounds = (
            np.frombuffer(offsets, width)[array.offset : array.offset + count] if len(array) else np.zeros(1, width)
        )
        self._bounds: IntArray = bounds.astype(np.int64)
        self._data = memoryview(data or b"").cast("B")
        self.sizes: IntArray = np.diff(self._bounds)
        self.is_valid = mask_of(array.is_valid())
        self.null_mask = booleans(~self.is_valid) if array.null_count else None

    def __getitem__(self, row: int) -> memoryview:
        return self._data[int(self._bounds[row]) : int(self._bounds[row + 1])]


def _portions(rows: IntArray, size: IntArray) -> Iterator[IntArray]:
    """Split rows into parts whose blobs are read at once; a larger blob is a part of its own."""
    ends = np.cumsum(size[rows])
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + COPIED_AT_ONCE_BYTES, side="right"))
        yield rows[first : max(end, first + 1)]
        first = max(end, first + 1)


def _descriptions(rows: dict[str, Any], uris: list[str | None], mask: pa.Array | None) -> pa.StructArray:
    members = [
        numbers(rows["kind"].astype(np.uint8)),
        numbers(rows["position"]),
        numbers(rows["size"]),
        numbers(rows["blob_id"].astype(np.uint32)),
        texts([uri or "" for uri in uris]),
    ]
    return pa.StructArray.from_arrays(members, list(_FIELDS), mask=mask)


def _has_blobs(field: Field) -> bool:
    return any(each.holds_blobs for each in field.walk())


def _uris(field: Field, array: pa.StructArray, is_there: Any, values: _Values) -> list[str | None]:
    """The URI of each row that is a reference. Raises `SchemaError` for rows with both or neither of URI and data."""
    has_uri = mask_of(array.field("uri").is_valid()) & is_there
    wrong = np.flatnonzero(is_there & (has_uri == values.is_valid))
    if len(wrong):
        raise SchemaError(f"row {int(wrong[0])} of blob column `{field.name}`: expected either data or a uri")
    uris: list[str | None] = array.field("uri").to_pylist()
    return [uri if there else None for uri, there in zip(uris, has_uri.tolist(), strict=True)]


def _add_external(array: pa.StructArray, uris: list[str | None], rows: dict[str, Any]) -> None:
    for row, uri in enumerate(uris):
        if uri is not None:
            rows["kind"][row] = _EXTERNAL
            if array.type.num_fields > 2:  # a part of the object
                rows["position"][row] = array.field("position")[row].as_py() or 0
                rows["size"][row] = array.field("size")[row].as_py() or 0
