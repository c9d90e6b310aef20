"""Zone maps and Bloom filters: statistics of runs of rows, which exclude runs (spec: indices, 2.6, 3.4 and 3.5).

    zonemap.lance       least and greatest value of each zone
    bloomfilter.lance   a Bloom filter of the values of each zone

Zones name addresses in every table. A zone that may match gives all of its rows, which have to be checked. Nulls are
listed in a global buffer, so that null tests are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import FormatError
from lance_io.index.questions import FileUse, IsNull, OneOf, Prefix, Within
from lance_io.index.rows.row_set import Answer, RowSet
from lance_io.index.rows.tree_maps import decode_nulls
from lance_io.index.scalar.bloom import Filters
from lance_io.index.scalar.files import check_type
from lance_io.index.scalar.key_order import KeySpan, has_keys, keys_of, value_of_key
from lance_io.levels.arrays import values_of
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_io.index.details import IndexDetails, Space
    from lance_io.index.questions import Blocks, Question, Search, TableFile

    Mask = npt.NDArray[np.bool_]
    Keys = npt.NDArray[Any] | list[Any]

ZONE_MAP: Final = "zonemap.lance"
BLOOM: Final = "bloomfilter.lance"
_NULLS: Final = "null_bitmap"
_BOUNDS: Final = ("fragment_id", "zone_start", "zone_length")
ZONE_MAP_USES: Final = (FileUse(ZONE_MAP, ("min", "max", "null_count", "nan_count", *_BOUNDS), (), (_NULLS,)),)
BLOOM_USES: Final = (FileUse(BLOOM, (*_BOUNDS, "has_null", "bloom_filter_data"), (), (_NULLS,)),)


def zone_map_answers(question: Question) -> bool | None:
    """See `Segment`; of a zone map."""
    return True if isinstance(question, IsNull) else False if isinstance(question, Within | OneOf | Prefix) else None


def bloom_answers(question: Question) -> bool | None:
    """See `Segment`; of Bloom filters."""
    return True if isinstance(question, IsNull) else False if isinstance(question, OneOf) else None


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """The rows of zones.

    starts, ends  u64[zones], addresses
    has_null      whether a zone has nulls
    nulls         rows with nulls; None if they are not listed, or are too many
    """

    space: Space
    starts: npt.NDArray[np.uint64]
    ends: npt.NDArray[np.uint64]
    has_null: Mask
    nulls: RowSet | None

    def answer_null(self) -> Answer:
        """The answer to `IsNull`."""
        if self.nulls is not None:
            return Answer(self.nulls, RowSet.none(self.space))
        return Answer.at_most(self.rows(self.has_null))

    def rows(self, mask: Mask) -> RowSet:
        """All rows of some zones."""
        return RowSet.of_runs(self.space, self.starts[mask], self.ends[mask])

    @property
    def num_rows(self) -> int:
        """Rows of all zones, with those that were deleted between live ones."""
        return int((self.ends - self.starts).sum())

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return 17 * len(self.starts) + (0 if self.nulls is None else self.nulls.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class ZoneMap:
    """A segment of a zone map.

    least, greatest  keys of the bounds of the zones that have any
    numbers          the numbers of these zones
    is_open          of each of them: whether it may have a NaN, so that nothing bounds it from below
    """

    zones: Zones
    least: Keys
    greatest: Keys
    numbers: npt.NDArray[np.int64]
    is_open: Mask
    bytes_of_bounds: int

    @property
    def nbytes(self) -> int:
        """See `Segment`."""
        return 512 + self.zones.nbytes + self.bytes_of_bounds

    @property
    def num_rows(self) -> int | None:
        """See `Segment`. Rows of a gap between zones were deleted before; live ones there have no zone."""
        return self.zones.num_rows

    def answers(self, question: Question) -> bool | None:
        """See `Segment`."""
        return self.zones.nulls is not None if isinstance(question, IsNull) else zone_map_answers(question)

    def bounds(self, fragment_ids: frozenset[int], dtype: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
        """The least and the greatest value of the zones of some fragments; None for zones of nulls and of NaN."""
        fragments = (self.zones.starts[self.numbers] >> np.uint64(32)).astype(np.int64)
        inside = np.flatnonzero(np.isin(fragments, np.array([*fragment_ids], np.int64)))
        if not len(inside) or self.is_open[inside].any():
            return None
        least, greatest = min(_some(self.least, inside)), max(_some(self.greatest, inside))
        return value_of_key(least, dtype), value_of_key(greatest, dtype)

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        return None

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`."""
        yield from ()
        match question:
            case IsNull():
                return self.zones.answer_null()
            case Within(interval):
                spans = [KeySpan.of(interval)]
            case Prefix(prefix):
                spans = [KeySpan.of_prefix(prefix)]
            case OneOf(values):
                spans = [KeySpan(key, key) for key in keys_of(values)]
            case _:
                raise AssertionError("it answers no other question")
        mask = np.zeros(len(self.zones.starts), np.bool_)
        for span in spans:
            mask[self.numbers[self._meets(span)]] = True
        return Answer.at_most(self.zones.rows(mask))

    def _meets(self, span: KeySpan) -> Mask:
        """Which of the bounded zones may have a value of a span."""
        least, greatest = self.least, self.greatest
        meets = np.ones(len(self.numbers), np.bool_)
        if span.low is not None:
            meets &= _compare(greatest, span.low, at_least=True, or_equal=span.has_low)
        if span.high is not None:
            meets &= self.is_open | _compare(least, span.high, at_least=False, or_equal=span.has_high)
        return meets


def _some(keys: Keys, positions: npt.NDArray[np.int64]) -> list[Any]:
    return [*keys[positions]] if isinstance(keys, np.ndarray) else [keys[at] for at in positions.tolist()]


def _compare(keys: Keys, key: Any, *, at_least: bool, or_equal: bool) -> Mask:
    """Which keys are above (or below) another, or equal to it if `or_equal`."""
    if isinstance(keys, np.ndarray):
        if at_least:
            return np.asarray(keys >= key if or_equal else keys > key)
        return np.asarray(keys <= key if or_equal else keys < key)
    if at_least:
        return np.array([each >= key if or_equal else each > key for each in keys], np.bool_)
    return np.array([each <= key if or_equal else each < key for each in keys], np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class BloomZones:
    """A segment of Bloom filters."""

    zones: Zones
    filters: Filters

    @property
    def nbytes(self) -> int:
        """See `Segment`."""
        return 512 + self.zones.nbytes + self.filters.nbytes

    @property
    def num_rows(self) -> int | None:
        """See `Segment`. Rows of a gap between zones were deleted before; live ones there have no zone."""
        return self.zones.num_rows

    def answers(self, question: Question) -> bool | None:
        """See `Segment`."""
        return self.zones.nulls is not None if isinstance(question, IsNull) else bloom_answers(question)

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        return None

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`."""
        yield from ()
        if isinstance(question, IsNull):
            return self.zones.answer_null()
        assert isinstance(question, OneOf), "it answers no other question"
        return Answer.at_most(self.zones.rows(self.filters.may_have(question.values)))


def open_zone_map(
    files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space
) -> ZoneMap:
    """See `OpenSegment`."""
    file = files[ZONE_MAP]
    if details.has_null_bitmap and _NULLS not in file.buffers:
        raise FormatError(f"{ZONE_MAP}: {_NULLS} is not in its metadata, but its details say that it has one")
    if dtype is not None and pt.is_dictionary(dtype):
        dtype = dtype.value_type if file.types.get("min") != dtype else dtype
    for name in ("min", "max"):
        check_type(file, ZONE_MAP, name, dtype)
    for name in ("null_count", "nan_count"):
        check_type(file, ZONE_MAP, name, pa.uint32())
    zones = _zones(file, ZONE_MAP, space, values_of(file.columns["null_count"]) > 0)
    least, greatest = _decoded(file.columns["min"]), _decoded(file.columns["max"])
    bounded = np.flatnonzero(greatest.is_valid().to_numpy(zero_copy_only=False))
    if (least.is_valid().to_numpy(zero_copy_only=False) & ~greatest.is_valid().to_numpy(zero_copy_only=False)).any():
        raise FormatError(f"{ZONE_MAP}: a zone has a least value and no greatest one")
    if not has_keys(greatest.type):
        everything = np.empty(0, np.int64)
        return ZoneMap(zones, [], [], everything, np.empty(0, np.bool_), 0)
    taken = pa.array(bounded)
    least, greatest = least.take(taken), greatest.take(taken)
    is_open = least.is_null().to_numpy(zero_copy_only=False)
    low, high = keys_of(pc.coalesce(least, greatest)), keys_of(greatest)
    if pt.is_floating(greatest.type) and isinstance(high, np.ndarray):
        has_nan = pc.is_nan(greatest).to_numpy(zero_copy_only=False) | (
            values_of(file.columns["nan_count"])[bounded] > 0
        )
        is_open = is_open | has_nan  # -NaN is below every number, and bounds do not say the sign
        high = np.where(has_nan, np.iinfo(high.dtype).max, high)
    return ZoneMap(zones, low, high, bounded, is_open, least.nbytes + greatest.nbytes)


def _decoded(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pt.is_dictionary(values.type) else values


def open_bloom_filters(
    files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space
) -> BloomZones:
    """See `OpenSegment`."""
    file = files[BLOOM]
    check_type(file, BLOOM, "has_null", pa.bool_())
    check_type(file, BLOOM, "bloom_filter_data", pa.binary())
    has_null = file.columns["has_null"].to_numpy(zero_copy_only=False)
    zones = _zones(file, BLOOM, space, has_null)
    return BloomZones(zones, Filters.of(file.columns["bloom_filter_data"], dtype, BLOOM))


def _zones(file: TableFile, name: str, space: Space, has_null: Mask) -> Zones:
    """The rows of zones. Raises `FormatError` for zones that overlap or pass the end of a fragment."""
    for bound in _BOUNDS:
        check_type(file, name, bound, pa.uint64())
        if file.columns[bound].null_count:
            raise FormatError(f"{name}: {bound} is null")
    fragments, firsts, lengths = (values_of(file.columns[bound]) for bound in _BOUNDS)
    limit = np.uint64(1 << 32)
    if (fragments >= limit - np.uint64(1)).any() or (firsts >= limit).any() or (lengths > limit - firsts).any():
        raise FormatError(f"{name}: a zone passes the end of any fragment")
    starts = (fragments << np.uint64(32)) + firsts
    ends = starts + lengths
    order = np.argsort(starts, kind="stable")
    if (starts[order][1:] < ends[order][:-1]).any():
        raise FormatError(f"{name}: zones overlap")
    buffer = file.buffers.get(_NULLS)
    nulls = None if buffer is None else decode_nulls(buffer, space)
    return Zones(space, starts, ends, np.asarray(has_null, np.bool_), nulls)
