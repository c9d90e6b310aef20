"""Values inside JSON documents as targets of conditions: which index holds them, and which question it gets.

    expression                                    value                          answered
    json_get_int(doc, 'k') and the like           member `k` of the document     exactly
    json_get_int(json_get(doc, 'a'), 'k')         member `k` of its member `a`   exactly
    json_extract(doc, '$.a.k') = '"text"'         the text of that value         at most: NULL is another text here

A key is the name of a member even if it has dots, unlike the path of an index: pylance 14 mixes them up, and then finds
other rows by an index than by a scan.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from lance_io.filters.expressions.expression_tree import Column, Function, Literal
from lance_io.index import questions
from lance_io.lazy_names import lazy_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.filters.functions import json_path
    from lance_io.index.questions import Question
    from lance_io.reads.index.table_indices import Path
else:
    json_path = lazy_module("lance_io.filters.functions.json_path")

_TYPES: Final = {
    "json_get_string": pa.string(),
    "json_get_int": pa.int64(),
    "json_get_float": pa.float64(),
    "json_get_bool": pa.bool_(),
}
_WHOLE_MAX: Final = 1 << 53  # below it, each whole number has a float of its own

Steps: TypeAlias = tuple[Any, ...]


class Target(NamedTuple):
    """The values that a condition is about.

    path     of the column
    steps    into its JSON documents; None for the column's own values
    dtype    of the values inside documents; None for the column's own values, and for JSON text
    """

    path: Path
    steps: Steps | None = None
    dtype: pa.DataType | None = None


class Form(NamedTuple):
    """A form of a condition on values inside documents.

    dtype     that the values of an index must have
    is_exact  whether the question asks neither for more nor for less
    """

    question: Question
    dtype: pa.DataType
    is_exact: bool = True


def indexed_steps(path: str) -> Steps | None:
    """The steps of the path of an index; None for one with conditions, or one that cannot be read."""
    try:
        steps = json_path.plain_steps(path)
    except pa.ArrowInvalid:
        return None
    return None if steps is None else tuple(tuple(step) if isinstance(step, list) else step for step in steps)


def json_target(expr: Expr) -> Target | None:
    """The value inside documents that an expression computes; None for other expressions."""
    match expr:
        case Function("json_extract", (Column(path), Literal(wanted))) if wanted.is_valid:
            steps = indexed_steps(str(wanted.as_py()))
            return None if steps is None else Target(tuple(map(str, path)), steps)
        case Function(name, (document, Literal(key))) if name in _TYPES and key.is_valid:
            above = _members(document)
            member = _member(key)
            return None if above is None or member is None else Target(above[0], (*above[1], member), _TYPES[name])
        case _:
            return None


def _members(expr: Expr) -> tuple[Path, Steps] | None:
    """Column and steps of `json_get(json_get(column, key), key)`."""
    match expr:
        case Column(path):
            return tuple(map(str, path)), ()
        case Function("json_get", (document, Literal(key))) if key.is_valid:
            above, member = _members(document), _member(key)
            return None if above is None or member is None else (above[0], (*above[1], member))
        case _:
            return None


def _member(key: pa.Scalar) -> tuple[str, str] | None:
    """The step to a key; None for a number, which is also the position of an item."""
    text = str(key.as_py())
    return None if text.isdigit() else ("member", text)


def forms(target: Target, question: Question) -> Iterator[Form]:
    """The forms in which an index of the values of documents may be asked."""
    if target.dtype is None:
        if isinstance(question, questions.OneOf):
            yield from _of_texts(question.values)
        return
    yield Form(question, target.dtype)
    if target.dtype == pa.float64():
        whole = _whole(question)
        if whole is not None:
            yield Form(whole, pa.int64())


def _of_texts(texts: pa.Array) -> Iterator[Form]:
    """Which values have one of these JSON texts; other texts of equal values are among them."""
    try:
        values = [json.loads(text) for text in texts.to_pylist()]
    except (ValueError, RecursionError):
        return
    kinds = {type(value) for value in values}
    if kinds == {str}:
        yield Form(questions.OneOf(pa.array(values, pa.string())), pa.string(), is_exact=False)
    elif kinds == {bool}:
        yield Form(questions.OneOf(pa.array(values, pa.bool_())), pa.bool_(), is_exact=False)
    elif kinds and kinds <= {int, float} and all(map(_is_exact, values)):
        if kinds == {int}:
            yield Form(questions.OneOf(pa.array(values, pa.int64())), pa.int64(), is_exact=False)
        floats = [float(value) for value in values]
        both = [*floats, *(-value for value in floats if value == 0)]
        yield Form(questions.OneOf(pa.array(both, pa.float64())), pa.float64(), is_exact=False)


def _is_exact(value: Any) -> bool:
    """Whether a number is read in the same way by every reader of JSON."""
    return abs(value) < _WHOLE_MAX if isinstance(value, int) else math.isfinite(value)


def _whole(question: Question) -> Question | None:
    """A question to floats as one to whole numbers; None unless all of its values are whole and not too large."""
    match question:
        case questions.OneOf(values):
            whole = _whole_numbers(values)
            return None if whole is None else questions.OneOf(whole)
        case questions.Within(interval):
            ends = [None if end is None else _whole_numbers(pa.repeat(end, 1)) for end in (interval.low, interval.high)]
            if [end is None for end in ends] != [interval.low is None, interval.high is None]:
                return None
            low, high = (None if end is None else end[0] for end in ends)
            return questions.Within(questions.Interval(low, high, interval.has_low, interval.has_high))
        case questions.IsNull():
            return question
        case _:
            return None


def _whole_numbers(values: pa.Array) -> pa.Array | None:
    numbers = values.to_pylist()
    if not all(number.is_integer() and abs(number) < _WHOLE_MAX for number in numbers):
        return None
    return pa.array([*dict.fromkeys(map(int, numbers))], pa.int64())
