"""Sets of 32-bit numbers in the portable Roaring format (spec: table, section 4; the format itself is public).

    u32 cookie            12346: no run containers          12347 in the low 16 bits: with runs
    u32 n                 containers                        (n - 1 in the high 16 bits of the cookie)
    -                                                       ceil(n / 8) bytes: bit i set = container i has runs
    n x (u16, u16)        high 16 bits of the values, number of values - 1; ascending
    n x u32               offset of each container          only if n >= 4
    containers, in order:
      array   up to 4096 values: the low 16 bits of each, u16, ascending
      bitmap  more: 8192 bytes, bit i of byte j set = value 8 j + i
      runs    u16 number of runs, then (u16 first, u16 length - 1) each; ascending, not touching

All little endian. This is our own reader, because a damaged file must raise and never read out of bounds; the writer
follows the same table. It writes run containers only on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lance_io.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.wire import Buffer

_COOKIE: Final = 12346
_COOKIE_RUNS: Final = 12347
_ARRAY_VALUES_MAX: Final = 4096
_BITMAP_BYTES: Final = 8192
_OFFSETS_FROM: Final = 4  # containers; with run containers, fewer have no offset table

U16Array = npt.NDArray[np.uint16]
U32Array = npt.NDArray[np.uint32]
I64Array = npt.NDArray[np.int64]
_NO_VALUES: Final = np.empty(0, np.int64)


class _Cursor:
    """Reads forward through the bytes; every read is checked against their end."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data).cast("B")
        self.position = 0

    def take(self, num_bytes: int) -> memoryview:
        piece = self._view[self.position : self.position + num_bytes]
        if len(piece) < num_bytes:
            raise FormatError(
                f"roaring bitmap: expected {num_bytes} bytes at {self.position}, found {len(piece)}. It is cut off"
            )
        self.position += num_bytes
        return piece

    def u16(self, count: int) -> U16Array:
        return np.frombuffer(self.take(2 * count), dtype="<u2")

    def u32(self, count: int) -> U32Array:
        return np.frombuffer(self.take(4 * count), dtype="<u4")


def decode_roaring(data: Buffer, *, num_values_max: int = 1 << 32) -> U32Array:
    """The values, u32, ascending.

    num_values_max  more values than this are refused before memory is allocated for them

    Raises `FormatError` for anything but a well-formed bitmap.
    """
    cursor = _Cursor(data)
    headers = _headers(cursor, num_values_max)
    values, end = np.empty(int(headers.counts.sum()), dtype=np.uint32), 0
    positions = []
    for key, count, runs in headers.containers():
        positions.append(cursor.position)
        start, end = end, end + count
        low = _container(cursor, count, runs)
        np.bitwise_or(low, np.uint32(key << 16), out=values[start:end], dtype=np.uint32, casting="unsafe")
    headers.check_offsets(positions)
    return values


def decode_runs(data: Buffer) -> tuple[I64Array, I64Array, int]:
    """The values as runs, and the bytes that the bitmap takes of `data`.

    Returns the first value of each run and the one after its last, ascending; runs of neighbouring containers may
    touch. Memory is bounded by the size of `data`, not by the number of values. Raises as `decode_roaring`.
    """
    cursor = _Cursor(data)
    headers = _headers(cursor, 1 << 32)
    if headers.is_arrays:
        return _runs_of_arrays(cursor, headers)
    starts, ends, positions = [_NO_VALUES], [_NO_VALUES], []
    for key, count, runs in headers.containers():
        positions.append(cursor.position)
        if runs:
            first, lengths = _run_pairs(cursor, count)
            if (first[1:] < (first + lengths)[:-1]).any():
                raise FormatError("roaring bitmap: the runs of a container are not in ascending order")
            last = first + lengths
        else:
            low = _container(cursor, count, runs).astype(np.int64)
            cuts = np.flatnonzero(low[1:] != low[:-1] + 1)
            first, last = low[np.r_[0, cuts + 1]], low[np.r_[cuts, len(low) - 1]] + 1
        starts.append(first + (key << 16))
        ends.append(last + (key << 16))
    headers.check_offsets(positions)
    return np.concatenate(starts), np.concatenate(ends), cursor.position


def _runs_of_arrays(cursor: _Cursor, headers: _Headers) -> tuple[I64Array, I64Array, int]:
    """`decode_runs` of a bitmap that has arrays only: they lie one after the other, and are decoded at once."""
    counts, start = headers.counts, cursor.position
    low = cursor.u16(int(counts.sum()))
    values = np.repeat(headers.keys.astype(np.int64) << 16, counts) + low.astype(np.int64)
    if (values[1:] <= values[:-1]).any():
        raise FormatError("roaring bitmap: the values of a container are not in ascending order")
    headers.check_offsets((start + 2 * (np.cumsum(counts) - counts)).tolist())
    if not len(values):
        return values, values, cursor.position
    cuts = np.flatnonzero(values[1:] != values[:-1] + 1)
    return values[np.r_[0, cuts + 1]], values[np.r_[cuts, len(values) - 1]] + 1, cursor.position


def runs_max(data: Buffer) -> int:
    """The most runs that the values of a bitmap can be, by its headers; 0 for damaged ones."""
    return measure_bitmap(data)[0]


def measure_bitmap(data: Buffer) -> tuple[int, int]:
    """The most runs that the values of a bitmap can be, and the bytes that it takes of `data`; zeros if damaged.

    By its headers: values are not decoded.
    """
    cursor = _Cursor(data)
    try:
        headers = _headers(cursor, 1 << 32)
        counts = headers.counts
        if any(headers.has_runs):
            for _, count, runs in headers.containers():
                cursor.take(4 * int(cursor.u16(1)[0]) if runs else _container_bytes(count))
        else:
            cursor.take(int(np.where(counts > _ARRAY_VALUES_MAX, _BITMAP_BYTES, 2 * counts).sum()))
    except FormatError:
        return 0, 0
    return int(np.minimum(counts, (1 << 16) + 1 - counts).sum()), cursor.position


def _container_bytes(count: int) -> int:
    """Bytes of a container of values or bits."""
    return _BITMAP_BYTES if count > _ARRAY_VALUES_MAX else 2 * count


class _Headers(NamedTuple):
    """The containers of a bitmap: keys, numbers of values, whether they hold runs, and offsets if there are any."""

    keys: U16Array
    counts: I64Array
    has_runs: list[bool]
    offsets: U32Array | None

    @property
    def is_arrays(self) -> bool:
        """Whether all containers are arrays."""
        return not any(self.has_runs) and not (self.counts > _ARRAY_VALUES_MAX).any()

    def containers(self) -> Iterator[tuple[int, int, bool]]:
        return zip(self.keys.tolist(), self.counts.tolist(), self.has_runs, strict=True)

    def check_offsets(self, positions: list[int]) -> None:
        if self.offsets is not None and self.offsets.tolist() != positions:
            raise FormatError("roaring bitmap: its offset table does not fit its containers")


def _headers(cursor: _Cursor, num_values_max: int) -> _Headers:
    has_runs, has_offsets = _cookie(cursor)
    header = cursor.u16(2 * len(has_runs))
    keys, counts = header[0::2], header[1::2].astype(np.int64) + 1
    if (keys[1:] <= keys[:-1]).any():
        raise FormatError("roaring bitmap: containers are not in ascending order")
    if int(counts.sum()) > num_values_max:
        raise FormatError(f"roaring bitmap: {int(counts.sum())} values, at most {num_values_max}")
    return _Headers(keys, counts, has_runs, cursor.u32(len(has_runs)) if has_offsets else None)


def _cookie(cursor: _Cursor) -> tuple[list[bool], bool]:
    """Whether each container consists of runs, and whether there is an offset table."""
    cookie = int(cursor.u32(1)[0])
    if cookie & 0xFFFF == _COOKIE_RUNS:
        num_containers = (cookie >> 16) + 1
        flags = np.frombuffer(cursor.take((num_containers + 7) // 8), dtype=np.uint8)
        bits = np.unpackbits(flags, bitorder="little")[:num_containers]
        return bits.astype(bool).tolist(), num_containers >= _OFFSETS_FROM
    if cookie != _COOKIE:
        raise FormatError(f"roaring bitmap: expected the cookie {_COOKIE} or {_COOKIE_RUNS}, found {cookie & 0xFFFF}")
    num_containers = int(cursor.u32(1)[0])
    if num_containers > 1 << 16:
        raise FormatError(f"roaring bitmap: {num_containers} containers, at most {1 << 16}")
    return [False] * num_containers, True


def _container(cursor: _Cursor, count: int, runs: bool) -> npt.NDArray[np.unsignedinteger | np.signedinteger]:
    """The low halves of one container's values, `count` of them, ascending."""
    values: npt.NDArray[np.unsignedinteger | np.signedinteger]
    if not runs and count > _ARRAY_VALUES_MAX:
        bits = np.unpackbits(np.frombuffer(cursor.take(_BITMAP_BYTES), dtype=np.uint8), bitorder="little")
        values = np.flatnonzero(bits.view(np.bool_))  # several times faster for booleans than for numbers
        is_ascending = True
    else:
        values = _runs(cursor, count) if runs else cursor.u16(count)
        is_ascending = not (values[1:] <= values[:-1]).any()
    if len(values) != count or not is_ascending:
        raise FormatError(f"roaring bitmap: a container holds {len(values)} values, expected {count} ascending ones")
    return values


def _runs(cursor: _Cursor, count: int) -> U16Array:
    starts, lengths = _run_pairs(cursor, count)
    values: U16Array = (np.arange(count) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)).astype(
        np.uint16
    )
    return values


def _run_pairs(cursor: _Cursor, count: int) -> tuple[I64Array, I64Array]:
    """First value and length of each run of a container."""
    pairs = cursor.u16(2 * int(cursor.u16(1)[0])).astype(np.int64)
    starts, lengths = pairs[0::2], pairs[1::2] + 1
    if int(lengths.sum()) != count or ((starts + lengths) > 1 << 16).any():
        raise FormatError(f"roaring bitmap: runs of {int(lengths.sum())} values, expected {count}")
    return starts, lengths


def encode_roaring(values: U32Array, *, runs: bool = False) -> bytes:
    """The bitmap of `values`, u32, ascending and without duplicates.

    runs  whether to write containers of runs where these are smaller
    """
    low, high = values.astype("<u2"), values >> 16
    starts = np.flatnonzero(np.r_[len(values) > 0, high[1:] != high[:-1]])
    keys, counts = high[starts], np.diff(starts, append=len(values))
    parts = np.split(low, starts)[1:]
    containers = [_encode_container(part) for part in parts]
    header = np.empty((len(keys), 2), dtype="<u2")
    header[:, 0], header[:, 1] = keys, counts - 1
    prefix = np.array([_COOKIE, len(keys)], dtype="<u4").tobytes() + header.tobytes()
    in_runs = [_encode_runs(part) for part in parts] if runs else []
    is_shorter = [len(run) < len(plain) for run, plain in zip(in_runs, containers, strict=False)]
    if any(is_shorter):
        chosen = zip(is_shorter, in_runs, containers, strict=True)
        containers = [run if shorter else plain for shorter, run, plain in chosen]
        flags = np.packbits(is_shorter, bitorder="little").tobytes()
        prefix = (_COOKIE_RUNS | len(keys) - 1 << 16).to_bytes(4, "little") + flags + header.tobytes()
        if len(keys) < _OFFSETS_FROM:
            return b"".join([prefix, *containers])
    sizes = np.array([len(container) for container in containers], dtype=np.int64)
    offsets = len(prefix) + 4 * len(keys) + np.cumsum(sizes) - sizes
    return b"".join([prefix, offsets.astype("<u4").tobytes(), *containers])


def _encode_runs(low: U16Array) -> bytes:
    values = low.astype(np.int64)
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1] + 1])
    pairs = np.empty((len(starts), 2), dtype="<u2")
    pairs[:, 0], pairs[:, 1] = values[starts], np.diff(starts, append=len(values)) - 1
    return len(starts).to_bytes(2, "little") + pairs.tobytes()


def _encode_container(low: U16Array) -> bytes:
    if len(low) <= _ARRAY_VALUES_MAX:
        return low.tobytes()
    bits = np.zeros(8 * _BITMAP_BYTES, dtype=np.bool_)
    bits[low] = True
    return np.packbits(bits, bitorder="little").tobytes()
