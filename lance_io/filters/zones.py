"""Which parts of a table a filter may match, from bounds of their values. Pure.

A zone is a run of rows with statistics: a batch of a file with page statistics, or a zone of a zone-map index. For each
of its columns it has a least and a greatest value:

    bounds    every value of the zone, except nulls and NaN, lies between `least` and `greatest` or equals one of them
    no bound  a null `least` or `greatest`: that side is unbounded

`may_match` returns the zones in which a row may pass a filter. It never leaves out a zone with such a row: anything but
a comparison of a column with a value counts as possible. Bounds do not cover NaN, which is above all numbers or, with
its sign bit set, below them. So a zone of floats may always have a row above or below a value; only equality, or two
comparisons of one column that no NaN passes together, leave it out.

Filters that can fail are not pruned: whether a row raises an error must not depend on bounds.
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
_VALUES_MAX: Final = 1000  # longer lists of IN are not compared with bounds


@dataclass(frozen=True, slots=True, eq=False)
class ColumnZones:
    """Bounds of one column: two arrays of its type, with one value per zone."""

    least: pa.Array
    greatest: pa.Array


def zone_columns(expression: Expr) -> set[Path]:
    """The columns whose bounds can make `may_match` leave out a zone, as paths of names."""
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
    """Which zones may have a row that passes the filter, bool[num_zones].

    expression  the filter's bound tree
    columns     bounds by path; other columns may hold anything
    """
    if not cannot_fail(expression):
        return np.ones(num_zones, bool)
    return _Zones(columns, num_zones).may_become(expression, wanted=True)


@dataclass(frozen=True, slots=True, eq=False)
class _PossibleValues:
    """The kinds of value of one column for which a test may have the wanted result.

    value  by zone: a number within the bounds (or any value that is not a float)
    above  a NaN above all numbers
    below  a NaN below all numbers
    """

    value: Mask
    above: bool
    below: bool

    def intersect(self, other: _PossibleValues) -> _PossibleValues:
        return _PossibleValues(self.value & other.value, self.above and other.above, self.below and other.below)

    @property
    def mask(self) -> Mask:
        return self.value | self.above | self.below


class _Zones:
    def __init__(self, columns: Mapping[Path, ColumnZones], num_zones: int) -> None:
        self._columns = columns
        self._num_zones = num_zones

    def _all(self, value: bool) -> Mask:
        return np.full(self._num_zones, value)

    def may_become(self, expression: Expr, *, wanted: bool) -> Mask:
        """The zones in which a row may make the expression equal to `wanted`; null is neither true nor false."""
        match expression:
            case Not(arg):
                return self.may_become(arg, wanted=not wanted)
            case And(args):
                return self._every(args, wanted) if wanted else self._some(args, wanted)
            case Or(args):
                return self._some(args, wanted) if wanted else self._every(args, wanted)
            case Literal(value):
                return self._all(value.is_valid and value.as_py() is wanted)
            case IsNull():
                return self._all(True)
        possible = self._of_column(expression, wanted)
        return self._all(True) if possible is None else possible[1].mask

    def _some(self, args: tuple[Expr, ...], wanted: bool) -> Mask:
        mask = self._all(False)
        for arg in args:
            mask |= self.may_become(arg, wanted=wanted)
        return mask

    def _every(self, args: tuple[Expr, ...], wanted: bool) -> Mask:
        """One row must satisfy all operands, so tests of the same column are intersected."""
        mask, by_column = self._all(True), dict[Any, _PossibleValues]()
        for arg in args:
            inner, is_wanted = (arg.arg, not wanted) if isinstance(arg, Not) else (arg, wanted)
            column_test = self._of_column(inner, is_wanted)
            if column_test is None:
                mask &= self.may_become(arg, wanted=wanted)
            else:
                path, possible = column_test
                by_column[path] = possible.intersect(by_column[path]) if path in by_column else possible
        for possible in by_column.values():
            mask &= possible.mask
        return mask

    def _of_column(self, expression: Expr, wanted: bool) -> tuple[Path, _PossibleValues] | None:
        """The column that a test reads, and its values that may give the wanted result; None for anything else."""
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
            return _names(path), _PossibleValues(self._all(False), above=False, below=False)
        return _names(path), self._compared(op, zones, value)

    def _zones_of(self, path: tuple[str | int, ...], dtype: pa.DataType) -> ColumnZones | None:
        """The bounds of a column, if they have this type."""
        if any(isinstance(part, int) for part in path):  # a member by its position, which has no name of its own
            return None
        zones = self._columns.get(_names(path))
        return zones if zones is not None and zones.least.type == dtype else None

    def _compared(self, op: CompareOp, zones: ColumnZones, value: pa.Scalar) -> _PossibleValues:
        is_float = pa.types.is_floating(value.type)
        if is_float and np.isnan(value.as_py()):
            return _PossibleValues(self._all(True), above=True, below=True)
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
        return _PossibleValues(may, above=is_float and above, below=is_float and below)

    def _within(
        self, path: tuple[str | int, ...], values: pa.Array, *, has_null: bool, wanted: bool
    ) -> tuple[Path, _PossibleValues] | None:
        zones = self._zones_of(path, values.type)
        if zones is None or len(values) > _VALUES_MAX:
            return None
        if not wanted:
            return _names(path), _PossibleValues(self._all(not has_null), above=not has_null, below=not has_null)
        union = _PossibleValues(self._all(False), above=False, below=False)
        for value in values:
            possible = self._compared("=", zones, value)
            union = _PossibleValues(
                union.value | possible.value, union.above or possible.above, union.below or possible.below
            )
        return _names(path), union


def _names(path: tuple[str | int, ...]) -> Path:
    return tuple(map(str, path))


def _unless(mask: pa.BooleanArray) -> Mask:
    """Where a test is false or null."""

    known: Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return ~known
