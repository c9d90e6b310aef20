"""Blob columns: descriptions in the data file, bytes elsewhere (specification: encodings 2.1, 7 and 10.8).

    version 1 (files up to 2.1)   position and size of the bytes in the data file itself
    version 2 (files from 2.2)    kind 0: in the data file; 1: packed into a sidecar; 2: a sidecar of its own;
                                  3: an object outside of the table, by a URI or a path below base path `blob_id`;
                                  position and size 0 mean all of it
                                  4: an object that the table manages, below the folder of the data file's table or
                                  base; 5: the same below base path `blob_id`. Several data files may share it

A sidecar lies at `<data file without .lance>/<blob id as 32 binary digits, least significant first>.blob`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError, UnsupportedError, UsageError
from lance_io.file.take.blob_bytes import PART_BYTES, binaries, numbers_of, parts_of
from lance_io.format.schema import BLOB_FOLDER
from lance_io.levels.arrays import mask_of
from lance_io.levels.arrays import numbers as indices
from lance_io.levels.lists import visible_items, with_items
from lance_io.levels.retype import concat
from lance_io.plans.store_requests import Head
from lance_io.reads.rows.read_rows import read_bytes
from lance_io.reads.version.column_lists import extract
from lance_io.reads.version.object_keys import StoredObject
from lance_io.store.offers import HasOwnPaths
from lance_io.store.url import resolve_uri
from lance_io.table.manifest.paths import check_relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.manifest import BasePath

INLINE: Final = 0
EXTERNAL: Final = 3
MANAGED: Final = 4
MANAGED_IN_BASE: Final = 5
BLOB_BYTES_MAX: Final = 1 << 40


def blob_steps(state: DatasetState, name: str) -> tuple[Field, ...]:
    """The fields from the top-level one down to the blob column `name`.

    Raises `ValueError` if it does not exist, holds no blobs, or lies inside lists, where a row has several blobs;
    `TypeError` for a name that is no string.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a blob column must be a string, got {type(name)}")
    steps = state.schema.resolve(name)
    if not steps[-1].holds_blobs:
        raise UsageError(f"the column '{name}' is not a blob column")
    for field in steps[:-1]:
        if field.logical_type != "struct":
            raise UsageError(f"blobs of '{name}' are in a {field.logical_type}; expected struct before them")
    return steps


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Location of the bytes of some blobs of one data file.

    keys     the object of each blob, by number in `objects`
    objects  objects with bytes: a data file, its sidecars, objects outside of the table
    starts   i64[n], position in the object
    sizes    i64[n], bytes; 0 for null and empty blobs
    valid    which are not null
    """

    keys: IntArray
    objects: tuple[StoredObject, ...]
    starts: IntArray
    sizes: IntArray
    valid: Any

    def slice(self, start: int, end: int) -> Located:
        """Blobs `start` to `end`."""
        keys, starts, sizes, valid = (values[start:end] for values in (self.keys, self.starts, self.sizes, self.valid))
        return replace(self, keys=keys, starts=starts, sizes=sizes, valid=valid)


def locate_blobs(
    state: DatasetState,
    fragment_index: int,
    field_id: int,
    descriptions: pa.StructArray,
    known_sizes: dict[StoredObject, int] | None = None,
) -> Plan[Located]:
    """Locate blobs of one fragment; all are null if it has no file with the column. See `locate_in_file`."""
    file = state.manifest.fragments[fragment_index].file_of(field_id)
    if file is None:
        nothing = np.zeros(len(descriptions), np.int64)
        return Located(nothing, (), nothing, nothing, nothing.astype(np.bool_))
    return (
        yield from locate_in_file(state, state.object_keys.data_object(file), descriptions, file.base_id, known_sizes)
    )


def locate_in_file(
    state: DatasetState,
    file: StoredObject,
    descriptions: pa.StructArray,
    file_base: int | None = None,
    known_sizes: dict[StoredObject, int] | None = None,
) -> Plan[Located]:
    """Locate blobs from their descriptions. Requests the size of outside objects that are blobs as a whole.

    file_base     base path of the data file, None for the table's own
    known_sizes  known sizes of such objects in bytes; new ones are added

    Raises `FormatError` for impossible positions, `UnsupportedError` for objects that may not be followed.
    """
    valid = mask_of(descriptions.is_valid())
    starts = numbers_of(descriptions, "position", valid)
    sizes = numbers_of(descriptions, "size", valid)
    if len(sizes) and (int(starts.max()) > BLOB_BYTES_MAX << 8 or int(sizes.max()) > BLOB_BYTES_MAX):
        raise FormatError("a blob's description names a position or size beyond any file", path=file.key)
    if descriptions.type.get_field_index("kind") < 0:
        return Located(np.zeros(len(sizes), np.int64), (file,), starts, sizes, valid)
    kinds, ids = numbers_of(descriptions, "kind", valid), numbers_of(descriptions, "blob_id", valid)
    if len(kinds) and int(kinds.max()) > MANAGED_IN_BASE:
        raise FormatError(f"blob kind {int(kinds.max())}; known are 0 to {MANAGED_IN_BASE}", path=file.key)
    named = np.flatnonzero(kinds >= EXTERNAL)
    sidecars, numbers = np.unique(np.where((kinds == INLINE) | (kinds >= EXTERNAL), -1, ids), return_inverse=True)
    numbers = numbers.reshape(-1)
    objects = [
        file if blob_id < 0 else replace(file, key=sidecar_key(file.key, blob_id)) for blob_id in sidecars.tolist()
    ]
    if len(named):
        uris = descriptions.field("blob_uri").take(indices(named)).to_pylist()
        asked = list(zip(kinds[named].tolist(), ids[named].tolist(), uris, strict=True))
        known = {named_by: _named_object(state, file_base, *named_by) for named_by in dict.fromkeys(asked)}
        place_of = {
            stored_object: len(objects) + number for number, stored_object in enumerate(dict.fromkeys(known.values()))
        }
        numbers[named] = [place_of[known[named_by]] for named_by in asked]
        objects += place_of
        outside = np.flatnonzero(kinds == EXTERNAL)
        whole = outside[(starts[outside] == 0) & (sizes[outside] == 0)]
        object_sizes = {} if known_sizes is None else known_sizes
        for number in np.unique(numbers[whole]).tolist():
            stored_object = objects[number]
            if stored_object not in object_sizes:
                object_sizes[stored_object] = (yield Head(stored_object.store, stored_object.key)).size_bytes
            sizes[whole[numbers[whole] == number]] = object_sizes[stored_object]
    return Located(numbers, tuple(objects), starts, sizes, valid)


def _named_object(state: DatasetState, file_base: int | None, kind: int, base_id: int, uri: str | None) -> StoredObject:
    """The object that a description names by a path or URI; `file_base` as for `locate_in_file`."""
    if kind == EXTERNAL:
        return outside_object(state, base_id, uri)
    if not (uri or "").startswith(f"{BLOB_FOLDER}/"):
        raise FormatError(
            f"a managed blob is in {uri!r}, expected a path below {BLOB_FOLDER}/", path=state.location.uri
        )
    base = base_id if kind == MANAGED_IN_BASE else file_base
    folder = state.location if base is None else state.object_keys.base_folder(_base(state, base, uri))
    return StoredObject(folder.store, folder.key(check_relative(uri or "", "blob")))


def _base(state: DatasetState, base_id: int, uri: str | None) -> BasePath:
    base = state.manifest.base_paths.get(base_id)
    if base is None:
        raise FormatError(f"a blob lies below base path {base_id}, which the manifest does not declare", path=uri)
    return base


def outside_object(state: DatasetState, base_id: int, uri: str | None) -> StoredObject:
    """The object of a blob of kind 3: a path below a base path of the manifest, or a URI.

    Only URIs of the table's own scheme are followed, so that a table on a server cannot name files of this machine.
    Raises `FormatError` for a path that leaves its base or an undeclared base, `UnsupportedError` for other schemes.
    """
    if not uri:
        raise FormatError("a blob outside of the table has no URI", path=state.location.uri)
    scheme, separator, rest = uri.partition("://")
    if not separator:
        folder = state.object_keys.base_folder(_base(state, base_id, uri))
        return StoredObject(folder.store, folder.key(check_relative(uri, "blob")))
    if scheme.lower() != state.location.store.scheme:
        raise UnsupportedError(
            f"this blob lies outside of the table, in a store of another kind ({scheme}), which reads do not follow",
            path=state.location.uri,
        )
    if isinstance(state.location.store, HasOwnPaths):
        return StoredObject(state.location.store, state.location.store.key_of(uri))
    if scheme.lower() == "file":
        return StoredObject(state.location.store, resolve_uri(uri).path)
    container, _, key = rest.partition("/")
    root = state.session.locate(f"{scheme}://{container}", state.storage_options)
    own = state.location.store
    return StoredObject(own if root.store.identity == own.identity else root.store, key)


def sidecar_key(file_key: str, blob_id: int) -> str:
    """Key of a sidecar file."""
    return f"{file_key.removesuffix('.lance')}/{f'{blob_id:032b}'[::-1]}.blob"


def read_located(state: DatasetState, located: Located) -> Plan[pa.Array]:
    """The bytes of blobs as one large_binary array, null for null blobs.

    Raises `FormatError` for blobs that end beyond their objects, `MemoryError` if memory does not suffice.
    """
    lengths = located.sizes
    offsets = _offsets_of(lengths)
    try:
        out = np.empty(int(offsets[-1]), dtype=np.uint8)
    except (MemoryError, ValueError):  # a negative sum overflowed
        yield from _check_ends(located)
        raise
    for number, stored_object in enumerate(located.objects):
        here = np.flatnonzero((located.keys == number) & (lengths > 0))
        for part in parts_of(located.starts[here], lengths[here], offsets[here]):
            fetched = yield from read_bytes(state.context_of(stored_object.store), stored_object.key, part.ranges)
            part.fill(out, fetched)
            del fetched  # freed before the next part is read
    return binaries(located.valid, offsets, out)


def _offsets_of(lengths: IntArray) -> IntArray:
    """Start offsets of values of these lengths, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _check_ends(located: Located) -> Plan[None]:
    for number, stored_object in enumerate(located.objects):
        here = (located.keys == number) & (located.sizes > 0)
        if here.any():
            meta = yield Head(stored_object.store, stored_object.key)
            end = int((located.starts + located.sizes)[here].max())
            if end > meta.size_bytes:
                raise FormatError(
                    f"a blob ends at {end}, beyond the end of its file at {meta.size_bytes}", path=stored_object.key
                )


class BlobBinaries:
    """Replaces descriptions of blobs by their bytes.

    blobs  paths of the blobs to read as bytes, from the top-level column down, and their field ids
    """

    def __init__(self, state: DatasetState, blobs: dict[tuple[str, ...], int]) -> None:
        self._state = state
        self._blobs = blobs
        self._object_sizes: dict[StoredObject, int] | None = None  # of rows that were measured and not yet read

    def cuts(self, columns: dict[str, pa.Array], runs: list[tuple[int, int]]) -> Plan[list[int]]:
        """Row numbers, from 0 to all, that cut rows into parts with at most `PART_BYTES` of blobs, or one row.

        runs  as for `replace`, which reads the parts one by one
        """
        self._object_sizes = {}
        num_rows = sum(count for _, count in runs)
        sizes = np.zeros(num_rows, np.int64)
        for path, field_id in self._blobs.items():
            sizes += yield from self._sizes(columns[path[0]], path[1:], field_id, runs)
        ends = np.cumsum(sizes)
        borders, before = [0], 0
        while borders[-1] < num_rows:
            borders.append(max(borders[-1] + 1, int(ends.searchsorted(before + PART_BYTES, side="right"))))
            before = int(ends[borders[-1] - 1])
        return borders

    def _sizes(
        self, column: pa.Array, path: tuple[str, ...], field_id: int, runs: list[tuple[int, int]]
    ) -> Plan[IntArray]:
        """Bytes of the blobs at `path` below each row of a column."""
        if not path:
            return (yield from self._lengths(column, field_id, runs))
        if isinstance(column, pa.StructArray):
            return (yield from self._sizes(extract(column, path[:1]), path[1:], field_id, runs))
        items, offsets = visible_items(column)
        sizes = yield from self._sizes(items, path[1:], field_id, _item_runs(offsets, runs))
        return np.diff(_offsets_of(sizes)[offsets])

    def _lengths(self, descriptions: pa.StructArray, field_id: int, runs: list[tuple[int, int]]) -> Plan[IntArray]:
        sizes, start = [np.zeros(0, np.int64)], 0
        for fragment_index, count in runs:
            rows = descriptions.slice(start, count)
            located = yield from locate_blobs(self._state, fragment_index, field_id, rows, self._object_sizes)
            sizes.append(np.where(located.valid, located.sizes, 0))
            start += count
        return np.concatenate(sizes)

    def replace(self, columns: dict[str, pa.Array], runs: list[tuple[int, int]]) -> Plan[None]:
        """Replace descriptions in `columns` by bytes, or by the result of a subclass's `_bytes`.

        runs  `(fragment index, number of rows)`, in order
        """
        for path, field_id in self._blobs.items():
            columns[path[0]] = yield from self._fill_in(columns[path[0]], path[1:], field_id, runs)

    def _fill_in(
        self, column: pa.Array, path: tuple[str, ...], field_id: int, runs: list[tuple[int, int]]
    ) -> Plan[pa.Array]:
        """A column, or part of one, with bytes instead of the descriptions at `path` below it."""
        if not path:
            return (yield from self._bytes(column, field_id, runs))
        if isinstance(column, pa.StructArray):
            member = yield from self._fill_in(extract(column, path[:1]), path[1:], field_id, runs)
            return _with_member(column, path[0], member)
        items, offsets = visible_items(column)
        filled = yield from self._fill_in(items, path[1:], field_id, _item_runs(offsets, runs))
        return with_items(column, offsets, filled)

    def _bytes(self, descriptions: pa.StructArray, field_id: int, runs: list[tuple[int, int]]) -> Plan[pa.Array]:
        pieces = []
        start = 0
        for fragment_index, count in runs:
            rows = descriptions.slice(start, count)
            located = yield from locate_blobs(self._state, fragment_index, field_id, rows, self._object_sizes)
            pieces.append((yield from read_located(self._state, located)))
            start += count
        return concat(pieces) if pieces else pa.nulls(0, pa.large_binary())


def _item_runs(offsets: IntArray, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of the items of rows: the same fragments, with the number of items."""
    bounds = offsets[np.cumsum([0, *(num_rows for _, num_rows in runs)])]
    return [(fragment_index, count) for (fragment_index, _), count in zip(runs, np.diff(bounds).tolist(), strict=True)]


def _with_member(column: pa.StructArray, name: str, values: pa.Array) -> pa.Array:
    """A column with another member of this name."""
    fields = list(column.type)
    members = [column.field(number) for number in range(len(fields))]
    number = column.type.get_field_index(name)
    members[number] = values
    fields[number] = fields[number].with_type(values.type)
    return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null() if column.null_count else None)


def wanted_binaries(state: DatasetState, projection: Projection) -> BlobBinaries | None:
    """Reader of the blobs that a projection shows as bytes; None if there are none."""
    if not state.schema.has_blobs:
        return None
    blobs: dict[tuple[str, ...], int] = {}
    for output in projection.outputs:
        if not output.is_system and output.computed is None:
            blobs.update(_show_as_bytes(state.field_at(output.path), output.field.type, output.path))
    return BlobBinaries(state, blobs) if blobs else None


def _show_as_bytes(field: Field, shown: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    if field.holds_blobs:
        if shown == pa.large_binary():
            yield path, field.id
        return
    for child in field.children:
        if (below := _type_with(field, child, shown)) is not None:
            yield from _show_as_bytes(child, below, (*path, child.name))


def _type_with(field: Field, child: Field, shown: pa.DataType) -> pa.DataType | None:
    """The type of `child` if `field`, above it, has the type `shown`; None if it was pruned."""
    if field.logical_type == "struct":
        number = shown.get_field_index(child.name)
        return shown.field(number).type if number >= 0 else None
    if field.logical_type == "map":
        return pa.struct([shown.key_field, shown.item_field])
    return shown.field(0).type
