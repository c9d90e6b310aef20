"""Which parts of a table a filter may match, from bounds of their values. Pure.

A zone is a run of rows of which something is known beforehand: a batch of a file with page statistics, or a zone of a
zone-map index. For each column that is known it has a least and a greatest value:

    bounds    every value of the zone, but for nulls and NaN, lies between `least` and `greatest`, or is one of them
    no bound  null in either: nothing is known on that side

`may_match` tells of which zones a row may pass a filter. It never leaves out a zone with such a row: what is not a
comparison of a column with a value counts as possible. NaN is in no bounds, and above all numbers or, if its sign bit
is set, below them: so a zone of floats may always have a row that is above or below a value, and what leaves it out is
equality, or two comparisons of one column that no NaN passes together.

Filters that can fail are not judged: an error that a row of a zone would give must not depend on bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.expressions.expression_tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    cannot_fail,
)
from lance_io.levels.arrays import scalar
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.filters.expressions.expression_tree import CompareOp, Expr

    Path = tuple[str, ...]

Mask: TypeAlias = npt.NDArray[np.bool_]
_NEGATED: Final[dict[CompareOp, CompareOp]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: Final[dict[CompareOp, CompareOp]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_VALUES_MAX: Final = 1000  # of a list that is looked at one by one


@dataclass(frozen=True, slots=True, eq=False)
class ColumnZones:
    """What is known of one column: two arrays of its type, of as many values as there are zones."""

    least: pa.Array
    greatest: pa.Array


def zone_columns(expression: Expr) -> set[Path]:
    """The columns whose bounds can make `may_match` leave something out, as paths of names."""
    return {path for path in _compared(expression) if path} if cannot_fail(expression) else set()


def _compared(expression: Expr) -> set[Path]:
    match expression:
        case And(args) | Or(args):
            return set().union(*map(_compared, args))
        case Not(arg):
            return _compared(arg)
        case Comparison(_, Column(path), Literal()) | Comparison(_, Literal(), Column(path)) | In(Column(path)):
            return {_names(path)}
        case Column(path):
            return {_names(path)}
        case _:
            return set()


def may_match(expression: Expr, columns: Mapping[Path, ColumnZones], num_zones: int) -> Mask:
    """bool[num_zones]: whether a row of each may pass a filter, a bound tree.

    columns  bounds by path; columns that are missing may hold anything
    """
    if not cannot_fail(expression):
        return np.ones(num_zones, bool)
    return _Zones(columns, num_zones).may_be(expression, wanted=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Worlds:
    """Whether a row may give what is wanted, by what its column holds: a value, a positive or a negative NaN."""

    value: Mask
    above: bool
    below: bool

    def joined(self, other: _Worlds) -> _Worlds:
        return _Worlds(self.value & other.value, self.above and other.above, self.below and other.below)

    @property
    def mask(self) -> Mask:
        return self.value | self.above | self.below


class _Zones:
    def __init__(self, columns: Mapping[Path, ColumnZones], num_zones: int) -> None:
        self._columns = columns
        self._num_zones = num_zones

    def _all(self, value: bool) -> Mask:
        return np.full(self._num_zones, value)

    def may_be(self, expression: Expr, *, wanted: bool) -> Mask:
        """Of which zones a row may make the expression true (or false); null is neither."""
        match expression:
            case Not(arg):
                return self.may_be(arg, wanted=not wanted)
            case And(args):
                return self._every(args, wanted) if wanted else self._some(args, wanted)
            case Or(args):
                return self._some(args, wanted) if wanted else self._every(args, wanted)
            case Literal(value):
                return self._all(value.is_valid and value.as_py() is wanted)
            case IsNull():
                return self._all(True)
        worlds = self._of_column(expression, wanted)
        return self._all(True) if worlds is None else worlds[1].mask

    def _some(self, args: tuple[Expr, ...], wanted: bool) -> Mask:
        mask = self._all(False)
        for arg in args:
            mask |= self.may_be(arg, wanted=wanted)
        return mask

    def _every(self, args: tuple[Expr, ...], wanted: bool) -> Mask:
        """One row must give it in all operands: those about one column are looked at together."""
        mask, by_column = self._all(True), dict[Any, _Worlds]()
        for arg in args:
            inner, is_wanted = (arg.arg, not wanted) if isinstance(arg, Not) else (arg, wanted)
            found = self._of_column(inner, is_wanted)
            if found is None:
                mask &= self.may_be(arg, wanted=wanted)
            else:
                path, worlds = found
                by_column[path] = worlds.joined(by_column[path]) if path in by_column else worlds
        for worlds in by_column.values():
            mask &= worlds.mask
        return mask

    def _of_column(self, expression: Expr, wanted: bool) -> tuple[Path, _Worlds] | None:
        """What a test of one column may give; None for anything else."""
        match expression:
            case Comparison(op, Column(path), Literal(value)):
                op = op if wanted else _NEGATED[op]
            case Comparison(op, Literal(value), Column(path)):
                op = _MIRRORED[op] if wanted else _NEGATED[_MIRRORED[op]]
            case Column(path):
                op, value = "=", scalar(wanted, pa.bool_())
            case In(Column(path), values, has_null):
                return self._within(path, values, has_null=has_null, wanted=wanted)
            case _:
                return None
        zones = self._zones_of(path, value.type)
        if zones is None:
            return None
        if not value.is_valid:
            return _names(path), _Worlds(self._all(False), above=False, below=False)
        return _names(path), self._compared(op, zones, value)

    def _zones_of(self, path: tuple[str | int, ...], dtype: pa.DataType) -> ColumnZones | None:
        """The bounds of a column, if they are of this type."""
        if any(isinstance(part, int) for part in path):  # a member by its position, which has no name of its own
            return None
        zones = self._columns.get(_names(path))
        return zones if zones is not None and zones.least.type == dtype else None

    def _compared(self, op: CompareOp, zones: ColumnZones, value: pa.Scalar) -> _Worlds:
        is_float = pa.types.is_floating(value.type)
        if is_float and np.isnan(value.as_py()):
            return _Worlds(self._all(True), above=True, below=True)
        match op:
            case "=":
                may = _unless(pc.greater(zones.least, value)) & _unless(pc.less(zones.greatest, value))
            case "<":
                may = _unless(pc.greater_equal(zones.least, value))
            case "<=":
                may = _unless(pc.greater(zones.least, value))
            case ">":
                may = _unless(pc.less_equal(zones.greatest, value))
            case ">=":
                may = _unless(pc.less(zones.greatest, value))
            case "!=":
                may = self._all(True)
        above, below = op in (">", ">=", "!="), op in ("<", "<=", "!=")
        return _Worlds(may, above=is_float and above, below=is_float and below)

    def _within(
        self, path: tuple[str | int, ...], values: pa.Array, *, has_null: bool, wanted: bool
    ) -> tuple[Path, _Worlds] | None:
        zones = self._zones_of(path, values.type)
        if zones is None or len(values) > _VALUES_MAX:
            return None
        if not wanted:
            return _names(path), _Worlds(self._all(not has_null), above=not has_null, below=not has_null)
        found = _Worlds(self._all(False), above=False, below=False)
        for value in values:
            one = self._compared("=", zones, value)
            found = _Worlds(found.value | one.value, found.above or one.above, found.below or one.below)
        return _names(path), found


def _names(path: tuple[str | int, ...]) -> Path:
    return tuple(map(str, path))


def _unless(mask: pa.BooleanArray) -> Mask:
    """Where a test is not known to be true."""
    known: Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return ~known
