"""Which conditions of a filter the indices of a table answer (spec: indices, 3 and 4).

    conjunct                                        becomes
    comparison of an indexed column with a value    a condition
    and                                             the conditions of its operands; ranges of one column join
    or                                              the same, if an index answers every operand
    not                                             the same, if the operand is answered exactly
    anything else                                   no condition: rows are checked (`rest`)

A filter's tree is read as it was bound: a comparison that bound a cast of its column has no index. A value inside JSON
documents is compared like a column (`json_targets`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from lance_io.filters.expressions.expression_tree import (
    And,
    Cast,
    Column,
    Comparison,
    Function,
    In,
    IsNull,
    Literal,
    Not,
    Or,
)
from lance_io.index import questions
from lance_io.index.details import Kind
from lance_io.index.scalar.key_order import is_binary, key_of
from lance_io.levels.arrays import scalar
from lance_io.reads.index.json_targets import Target, forms, indexed_steps, json_target
from lance_io.reads.index.patterns import literal_pieces
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_io.filters.expressions.expression_tree import CompareOp, Expr
    from lance_io.index.questions import Question
    from lance_io.reads.index.json_targets import Steps
    from lance_io.reads.index.table_indices import Path, TableIndex

    Answers = Callable[[TableIndex, Question, pa.DataType | None], bool | None]

_FALSE: Final = scalar(False, pa.bool_())
_MIRRORED: Final[dict[CompareOp, CompareOp]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NEGATED: Final[dict[CompareOp, CompareOp]] = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_PREFERRED: Final = (Kind.BTREE, Kind.BITMAP, Kind.LABEL_LIST, Kind.NGRAM, Kind.BLOOM_FILTER, Kind.ZONE_MAP)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A question to an index."""

    index: TableIndex
    question: Question


@dataclass(frozen=True, slots=True, eq=False)
class AllOf:
    """True for rows for which all parts are."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf:
    """True for rows for which one of the parts is."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Opposite:
    """True for rows for which the part is false."""

    part: Node


@dataclass(frozen=True, slots=True, eq=False)
class IsTrue:
    """The part, false where it is null."""

    part: Node


Node: TypeAlias = Condition | AllOf | AnyOf | Opposite | IsTrue


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The part of a filter that indices answer.

    node   its conditions
    rest   the conjuncts that have to be computed for the rows that the indices name; empty if there are none
    """

    node: Node
    rest: tuple[Expr, ...]

    @property
    def indices(self) -> list[TableIndex]:
        """The indices that it asks, each once."""
        return list(dict.fromkeys(condition.index for condition, _ in conditions(self.node)))


def choose(expression: Expr, indices: Sequence[TableIndex], answers: Answers) -> Choice | None:
    """The part of a filter that indices answer; None if there is none.

    answers  whether all segments of an index answer a question to values of a type (None for the column's type):
             `Segment.answers`
    """
    chooser = _Chooser(indices, answers)
    conjuncts = expression.args if isinstance(expression, And) else (expression,)
    nodes, rest = chooser.conjuncts(conjuncts)
    if not nodes:
        return None
    return Choice(nodes[0] if len(nodes) == 1 else AllOf(tuple(nodes)), tuple(rest))


def conditions(node: Node, *, needs_null: bool = False) -> Iterator[tuple[Condition, bool]]:
    """The conditions of a tree, and of each whether the rows for which it is null matter."""
    match node:
        case Condition():
            yield node, needs_null
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from conditions(part, needs_null=needs_null)
        case Opposite(part):
            yield from conditions(part, needs_null=not isinstance(part, IsTrue))
        case IsTrue(part):
            yield from conditions(part, needs_null=isinstance(part, Opposite))


class _Chooser:
    def __init__(self, indices: Sequence[TableIndex], answers: Answers) -> None:
        self._answers = answers
        self._by_target: dict[tuple[Path, Steps | None], list[TableIndex]] = {}
        for index in sorted(indices, key=lambda index: _PREFERRED.index(index.kind)):
            steps = None if index.json_path is None else indexed_steps(index.json_path)
            if steps is not None or index.json_path is None:
                self._by_target.setdefault((index.path, steps), []).append(index)
        self._has_json = any(steps is not None for _, steps in self._by_target)

    def conjuncts(self, args: Sequence[Expr]) -> tuple[list[Node], list[Expr]]:
        """The conditions of conjuncts, and the conjuncts that these do not decide."""
        nodes: list[Node] = []
        rest: list[Expr] = []
        ranges: dict[Target, list[tuple[Expr, questions.Within]]] = {}
        for arg in _flat(args):
            asked = self._asked(arg)
            within = next((question for _, question in asked if isinstance(question, questions.Within)), None)
            if within is not None:
                ranges.setdefault(asked[0][0], []).append((arg, within))
                continue
            answered = self._node(arg, asked)
            if answered is not None:
                nodes.append(answered[0])
            if answered is None or not answered[1]:
                rest.append(arg)
        for target, parts in ranges.items():
            interval = parts[0][1].interval
            for _, within in parts[1:]:
                interval = _both(interval, within.interval)
            condition = self._condition([(target, questions.Within(interval))])
            if condition is not None:
                nodes.append(condition[0])
            if condition is None or not condition[1]:
                rest += [arg for arg, _ in parts]
        return nodes, rest

    def _node(self, expr: Expr, asked: Sequence[tuple[Target, Question]] | None = None) -> tuple[Node, bool] | None:
        """The conditions of an expression, and whether they decide it; None if there are none."""
        match expr:
            case And(args):
                nodes, rest = self.conjuncts(args)
                return None if not nodes else (nodes[0] if len(nodes) == 1 else AllOf(tuple(nodes)), not rest)
            case Or(args):
                parts = [self._node(arg) for arg in args]
                answered = [part for part in parts if part is not None]
                if len(answered) < len(parts):
                    return None
                return AnyOf(tuple(node for node, _ in answered)), all(is_exact for _, is_exact in answered)
            case Not(Comparison(op, left, right)) if op in _NEGATED:
                return self._node(Comparison(_NEGATED[op], left, right))
            case Not(arg):
                return self._pushed(arg) or self._opposite(self._node(arg))
            case Comparison("!=", left, right):
                return self._opposite(self._node(Comparison("=", left, right)))
            case Function("is_distinct", args):
                return self._opposite(self._node(Function("is_not_distinct", args)))
            case Function("is_not_distinct", (left, right)):
                return self._is_true(self._node(Comparison("=", left, right)))
            case Function("coalesce", (arg, Literal(value))) if value.equals(_FALSE):
                return self._is_true(self._node(arg))
            case _:
                return self._condition(self._asked(expr) if asked is None else asked)

    def _pushed(self, arg: Expr) -> tuple[Node, bool] | None:
        """The conditions of `not` a conjunction or disjunction, by its operands: the ends beside a range are short."""
        match arg:
            case Function("between", (value, low, high)):
                return self._node(Or((Comparison("<", value, low), Comparison(">", value, high))))
            case And(args):
                return self._node(Or(tuple(Not(each) for each in args)))
            case Or(args):
                return self._node(And(tuple(Not(each) for each in args)))
            case Not(inner):
                return self._node(inner)
            case _:
                return None

    def _opposite(self, answered: tuple[Node, bool] | None) -> tuple[Node, bool] | None:
        return None if answered is None or not answered[1] else (Opposite(answered[0]), True)

    def _is_true(self, answered: tuple[Node, bool] | None) -> tuple[Node, bool] | None:
        return None if answered is None else (IsTrue(answered[0]), answered[1])

    def _condition(self, asked: Sequence[tuple[Target, Question]]) -> tuple[Node, bool] | None:
        """The best answer to one of some questions, each of which is a form of the same condition."""
        inexact: Condition | None = None
        for index, question, dtype, may_be_exact in self._asked_of(asked):
            answered = self._answers(index, question, dtype)
            if answered and may_be_exact:
                return Condition(index, question), True
            if answered is not None and inexact is None:
                inexact = Condition(index, question)
        return None if inexact is None else (inexact, False)

    def _asked_of(
        self, asked: Sequence[tuple[Target, Question]]
    ) -> Iterator[tuple[TableIndex, Question, pa.DataType | None, bool]]:
        """The questions to each index, the type that its values must have, and whether the answer may be exact."""
        for target, question in asked:
            for index in self._by_target.get((target.path, target.steps), ()):
                if target.steps is None:
                    yield index, question, None, True
                else:
                    for form in forms(target, question):
                        yield index, *form

    def _asked(self, expr: Expr) -> list[tuple[Target, Question]]:
        """The forms of a condition on one indexed column."""
        match expr:
            case Comparison(op, left, Literal(value)) if value.is_valid:
                return self._compared(op, left, value)
            case Comparison(op, Literal(value), right) if value.is_valid:
                return self._compared(_MIRRORED[op], right, value)
            case In(arg, values, False):
                return self._one_of(arg, values)
            case IsNull(arg, False):
                target = self._target_of(arg, None)
                return [] if target is None else [(target, questions.IsNull())]
            case Column() | Function("json_get_bool"):
                target = self._target_of(expr, pa.bool_())
                return [] if target is None else [(target, questions.OneOf(pa.repeat(scalar(True, pa.bool_()), 1)))]
            case Function("between", (arg, Literal(low), Literal(high))) if low.is_valid and high.is_valid:
                return self._between(arg, low, high)
            case Function(name, (arg, Literal(value))) if value.is_valid:
                return self._of_function(name, arg, value)
            case _:
                return []

    def _compared(self, op: CompareOp, arg: Expr, value: pa.Scalar) -> list[tuple[Target, Question]]:
        target = self._target_of(arg, value.type)
        if target is None or op == "!=":
            return []
        if op == "=":
            return [(target, questions.OneOf(_zeros(value)))]
        if pt.is_floating(value.type) and value.as_py() == 0:
            value = scalar(-0.0 if op in ("<", ">=") else 0.0, value.type)
        if op in (">", ">="):
            interval = questions.Interval(low=value, has_low=op == ">=")
        else:
            interval = questions.Interval(high=value, has_high=op == "<=")
        return [(target, questions.Within(interval))]

    def _between(self, arg: Expr, low: pa.Scalar, high: pa.Scalar) -> list[tuple[Target, Question]]:
        bounds = [*self._compared(">=", arg, low), *self._compared("<=", arg, high)]
        if len(bounds) < 2:
            return []
        above, below = (question.interval for _, question in bounds if isinstance(question, questions.Within))
        return [(bounds[0][0], questions.Within(_both(above, below)))]

    def _one_of(self, arg: Expr, values: pa.Array) -> list[tuple[Target, Question]]:
        target = self._target_of(arg, values.type)
        has_nan = pt.is_floating(values.type) and any(value != value for value in values.to_pylist())
        return [] if target is None or has_nan else [(target, questions.OneOf(values))]

    def _of_function(self, name: str, arg: Expr, value: pa.Scalar) -> list[tuple[Target, Question]]:
        if name in ("array_has", "array_contains"):
            return self._labels(arg, pa.repeat(value, 1), needs_all=False)
        if name in ("array_has_any", "array_has_all"):
            return self._labels(arg, value.values, needs_all=name == "array_has_all")
        target = self._target_of(arg, None)
        if target is None or not is_binary(value.type):
            return []
        if not is_binary(self._type_of(target)):
            return []
        if name == "starts_with":
            return [(target, questions.Prefix(bytes(value.as_buffer())))]
        if name == "contains":
            return [(target, questions.Contains(value.as_py()))] if isinstance(value.as_py(), str) else []
        return [(target, question) for question in _of_like(value)] if name == "like" else []

    def _labels(self, arg: Expr, items: pa.Array, *, needs_all: bool) -> list[tuple[Target, Question]]:
        target = self._target_of(arg, None)
        if target is None or not len(items):
            return []
        dtype = self._type_of(target)
        is_list = pt.is_list(dtype) or pt.is_large_list(dtype)
        if not is_list or dtype.value_type != items.type or (items.null_count and len(items) == 1):
            return []
        return [(target, questions.Labels(items, needs_all))]

    def _type_of(self, target: Target) -> pa.DataType:
        """The type of the values of a target."""
        if target.steps is not None:
            return pa.string() if target.dtype is None else target.dtype
        return self._by_target[target.path, None][0].field.arrow_type

    def _target_of(self, expr: Expr, dtype: pa.DataType | None) -> Target | None:
        """The indexed values that an expression is; None for anything else.

        dtype  of the values that they are compared with; None for any
        """
        is_cast = isinstance(expr, Cast)
        inner = expr.arg if isinstance(expr, Cast) else expr
        if isinstance(expr, Function):
            target = json_target(expr) if self._has_json else None
            is_known = target is not None and (target.path, target.steps) in self._by_target
            return target if target is not None and is_known and dtype in (None, self._type_of(target)) else None
        if not isinstance(inner, Column):
            return None
        path = tuple(map(str, inner.path))
        if (path, None) not in self._by_target:
            return None
        stored = self._by_target[path, None][0].field.arrow_type
        seen: Any = expr.to if isinstance(expr, Cast) else stored
        if is_cast and not _is_same_values(stored, seen):
            return None
        return Target(path) if dtype is None or dtype == seen else None


def _is_same_values(stored: pa.DataType, seen: pa.DataType) -> bool:
    """Whether a cast only shows the stored values in another form."""
    if pt.is_dictionary(stored):
        return bool(stored.value_type == seen)
    return bool(pt.is_float16(stored) and pt.is_float32(seen))


def _flat(args: Sequence[Expr]) -> Iterator[Expr]:
    """Conjuncts, with those of nested ones; comparisons in place of their negation."""
    for arg in args:
        match arg:
            case And(inner):
                yield from _flat(inner)
            case Not(Comparison(op, left, right)) if op in _NEGATED:
                yield Comparison(_NEGATED[op], left, right)
            case _:
                yield arg


def _zeros(value: pa.Scalar) -> pa.Array:
    """A value as an array; both zeros for one of them."""
    if pt.is_floating(value.type) and value.as_py() == 0:
        both = [pa.repeat(scalar(zero, value.type), 1) for zero in (-0.0, 0.0)]
        return pa.concat_arrays(both)
    return pa.repeat(value, 1)


def _both(first: questions.Interval, second: questions.Interval) -> questions.Interval:
    """The values of both intervals."""
    low, has_low = _tighter(first.low, first.has_low, second.low, second.has_low, is_low=True)
    high, has_high = _tighter(first.high, first.has_high, second.high, second.has_high, is_low=False)
    return questions.Interval(low, high, has_low, has_high)


def _tighter(
    first: pa.Scalar | None, has_first: bool, second: pa.Scalar | None, has_second: bool, *, is_low: bool
) -> tuple[pa.Scalar | None, bool]:
    if first is None or second is None:
        return (second, has_second) if first is None else (first, has_first)
    first_key, second_key = key_of(first), key_of(second)
    if first_key == second_key:
        return first, has_first and has_second
    return (first, has_first) if (first_key > second_key) == is_low else (second, has_second)


def _of_like(value: pa.Scalar) -> list[Question]:
    """Questions of `LIKE`: what a text begins with, and what it contains."""
    pattern = value.as_py()
    pieces = literal_pieces(pattern) if isinstance(pattern, str) else None
    if pieces is None:
        return []
    if pieces.is_whole:
        return [questions.OneOf(pa.repeat(scalar(pieces.first, value.type), 1))]
    asked: list[Question] = []
    if pieces.first:
        asked.append(questions.Prefix(pieces.first.encode(), is_exact=pieces.is_prefix))
    longest = max(pieces.all, key=len, default="")
    if longest:
        asked.append(questions.Contains(longest))
    return asked
