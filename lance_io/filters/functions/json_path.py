"""Paths into JSON documents, for the `json_` functions of text filters.

    $  (or nothing)            the document            [*]             the items of an array; another value itself
    .name  :name  ."name"      a member of an object   [2]  [1, 3]     items by index, from 0
    ["name"]                   the same                [last]  [last - 1]  [0 to 2]
    .*                         all members             .**             the value and everything inside it
    ?(condition)               values for which the condition holds

A condition compares (`==`, `!=`, `<>`, `<`, `<=`, `>`, `>=`, `starts with`) paths from `@`, the value, or from `$`,
with each other or with literals. `&&`, `||`, `!` and brackets combine conditions; `exists(path)` tests for a value.

Documents are compact JSON text. Every value inside is a piece of the same text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io.filters.syntax.tokens import END, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io._kernels import JsonStep

    Step: TypeAlias = Callable[[str, str], Iterator[str]]  # (value, document) to values
    Condition: TypeAlias = Callable[[str, str], bool]

_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[^\W\d][\w-]*)"""
    r"""|(?P<sign>\*\*|&&|\|\||==|!=|<>|<=|>=|[$@.:\[\](){}?*,!<>-]))""",
    re.DOTALL,
)
_NESTING_MAX: Final = 32
_LITERALS: Final = {"true": True, "false": False, "null": None}
_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<>": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def items(array: str) -> list[str]:
    """The items of an array, as text."""
    return [array[start:end] for start, end in _pieces(array, 1)]


def members(obj: str) -> dict[str, str]:
    """The members of an object, as text, by name."""
    by_name, at = {}, 1
    while obj[at] != "}":
        name, colon = _scan(obj, at)
        end = _end(obj, colon + 1)
        by_name[name] = obj[colon + 1 : end]
        at = end + (obj[end] == ",")
    return by_name


def _pieces(array: str, at: int) -> Iterator[tuple[int, int]]:
    while array[at] != "]":
        end = _end(array, at)
        yield at, end
        at = end + (array[end] == ",")


def _end(text: str, at: int) -> int:
    try:
        end = _scan(text, at)[1]
    except RecursionError:
        raise pa.ArrowInvalid("a JSON document is nested too deeply to be searched") from None
    return end


def select(document: str, path: str) -> list[str]:
    """The values that a path selects. Raises pa.ArrowInvalid for text that is not a path."""
    return _follow(_parse(path), document, document)


def _follow(steps: tuple[Step, ...], value: str, document: str) -> list[str]:
    values = [value]
    for step in steps:
        values = [inner for outer in values for inner in step(outer, document)]
    return values


def plain_steps(path: str) -> list[JsonStep] | None:
    """The steps of a path in the form that kernels take; None for a path with conditions or `**`.

    Raises pa.ArrowInvalid for text that is not a path.
    """
    steps: list[JsonStep] = []
    for step in _parse(path):
        if isinstance(step, _Member):
            steps.append(("member", step.name))
        elif isinstance(step, _ItemsAt):
            steps.append([(*first, *last) for first, last in step.spans])
        elif step in _ALL:
            steps.append((_ALL[step], ""))
        else:
            return None
    return steps


@lru_cache(maxsize=256)
def _parse(path: str) -> tuple[Step, ...]:
    parser = _Parser(path)
    return parser.path(whole=True, bare=not parser.skip("$"))


class _Parser:
    """Parses a path into steps."""

    def __init__(self, text: str) -> None:
        self._text = text
        parsed = tokens(_TOKEN, text)
        if parsed is None:
            raise self._invalid()
        self._tokens = parsed
        self._at = 0
        self._depth = 0

    def _invalid(self) -> pa.ArrowInvalid:
        return pa.ArrowInvalid(f"Invalid JSONPath {self._text[:200]!r}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += token != END
        return token

    def skip(self, sign: str) -> bool:
        """Skip a sign or word if it comes next; returns whether it did."""
        kind, text = self._peek()
        is_next = kind in ("sign", "word") and text == sign
        self._at += is_next
        return is_next

    def _expect(self, sign: str) -> None:
        if not self.skip(sign):
            raise self._invalid()

    def path(self, *, whole: bool, bare: bool = False) -> tuple[Step, ...]:
        """The steps of a path.

        whole  whether the path must take all of the text; else it ends before the first token that is no step
        bare   whether the path has no `$` in front
        """
        steps: list[Step] = []
        if bare and self._peek()[0] in ("word", "number"):
            steps.append(_Member(self._name()))  # the first name needs no dot
        while True:
            if self.skip("."):
                steps.append(self._after_dot())
            elif self.skip(":"):
                steps.append(_Member(self._name()))
            elif self.skip("["):
                steps.append(self._brackets())
            elif self.skip("?"):
                self._expect("(")
                steps.append(_filter(self._any_of()))
                self._expect(")")
            elif whole and self._peek()[1] in _TESTS:
                return (self._verdict(tuple(steps)),)
            elif whole and self._peek()[0] != "end":
                raise self._invalid()
            else:
                return tuple(steps)

    def _name(self) -> str:
        kind, text = self._next()
        if kind == "string":
            return str(json.loads(text, strict=False))
        if kind not in ("word", "number"):
            raise self._invalid()
        return text

    def _after_dot(self) -> Step:
        if self.skip("**"):
            return _everything
        return _all_members if self.skip("*") else _Member(self._name())

    def _brackets(self) -> Step:
        step: Step
        if self.skip("*"):
            step = _all_items
        elif self._peek()[0] == "string":
            step = _Member(self._name())
        else:
            spans = [self._span()]
            while self.skip(","):
                spans.append(self._span())
            step = _ItemsAt(tuple(spans))
        self._expect("]")
        return step

    def _span(self) -> tuple[tuple[bool, int], tuple[bool, int]]:
        first = self._index()
        return first, self._index() if self.skip("to") else first

    def _index(self) -> tuple[bool, int]:
        """Whether an index counts from the last item, and the index."""
        kind, text = self._next()
        if (kind, text) == ("word", "last"):
            if self.skip("-"):
                return True, -self._integer(self._next())
            kind, text = self._peek()
            return (True, self._integer(self._next())) if kind == "number" and text.startswith("-") else (True, 0)
        if kind == "word" and re.fullmatch(r"last-\d+", text):
            return True, -int(text[5:])
        return False, self._integer((kind, text))

    def _integer(self, token: tuple[str, str]) -> int:
        if token[0] != "number" or not token[1].lstrip("-").isdigit() or len(token[1]) > 10:
            raise self._invalid()
        return int(token[1])

    def _verdict(self, steps: tuple[Step, ...]) -> Step:
        """A path that is a comparison: yields `true`, `false`, or `null` where values cannot be compared."""
        test = _TESTS[self._next()[1]]
        right = self._operand()
        if self._peek()[0] != "end":
            raise self._invalid()

        def step(value: str, document: str) -> Iterator[str]:
            result = _compare(test, _load(_follow(steps, value, document)), right(value, document))
            yield "null" if result is None else json.dumps(result)

        return step

    # -- conditions --------------------------------------------------------------------------------------------------

    def _any_of(self) -> Condition:
        self._depth += 1
        if self._depth > _NESTING_MAX:
            raise self._invalid()
        parts = [self._all_of()]
        while self.skip("||"):
            parts.append(self._all_of())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else lambda value, document: any(part(value, document) for part in parts)

    def _all_of(self) -> Condition:
        parts = [self._condition()]
        while self.skip("&&"):
            parts.append(self._condition())
        return parts[0] if len(parts) == 1 else lambda value, document: all(part(value, document) for part in parts)

    def _condition(self) -> Condition:
        if self.skip("!"):
            self._expect("(")
            inner = self._any_of()
            self._expect(")")
            return lambda value, document: not inner(value, document)
        if self.skip("("):
            inner = self._any_of()
            self._expect(")")
            return inner
        if self.skip("exists"):
            self._expect("(")
            wanted = self._operand()
            self._expect(")")
            return lambda value, document: bool(wanted(value, document))
        return self._comparison()

    def _comparison(self) -> Condition:
        left = self._operand()
        kind, sign = self._next()
        if (kind, sign) == ("word", "starts"):
            self._expect("with")
            test: Callable[[Any, Any], bool] = _starts_with
        elif kind == "sign" and sign in _TESTS:
            test = _TESTS[sign]
        else:
            raise self._invalid()
        right = self._operand()
        return lambda value, document: bool(_compare(test, left(value, document), right(value, document)))

    def _operand(self) -> Callable[[str, str], list[Any]]:
        """A function that returns the Python values of a path or literal."""
        kind, text = self._next()
        if (kind, text) in (("sign", "@"), ("sign", "$")):
            steps = self.path(whole=False)
            here = text == "@"
            return lambda value, document: _load(_follow(steps, value if here else document, document))
        if kind == "word" and text in _LITERALS:
            literal: Any = _LITERALS[text]
        elif kind in ("string", "number"):
            literal = json.loads(text, strict=False)
        else:
            raise self._invalid()
        return lambda value, document: [literal]


def _starts_with(text: Any, start: Any) -> bool:
    return isinstance(text, str) and text.startswith(start)


def _load(values: list[str]) -> list[Any]:
    return [json.loads(value) for value in values]


def _kind(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value).__name__
    return "number"


def _comparable(left: Any, right: Any) -> bool:
    return _kind(left) == _kind(right) and not isinstance(left, dict | list)


def _compare(test: Callable[[Any, Any], bool], left: list[Any], right: list[Any]) -> bool | None:
    """Whether any value on the left passes the test with any on the right. Arrays stand for their items.

    Returns None if an incomparable pair comes first.
    """
    lefts, rights = ([item for value in side for item in _unwrap(value)] for side in (left, right))
    for a in lefts:
        for b in rights:
            if not _comparable(a, b):
                return None
            if test(0, 0) if a is None else test(a, b):
                return True
    return False


def _unwrap(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# -- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Member:
    """The member with this name."""

    name: str

    def __call__(self, value: str, document: str) -> Iterator[str]:
        if value.startswith("{") and (member := members(value).get(self.name)) is not None:
            yield member


def _all_members(value: str, document: str) -> Iterator[str]:
    if value.startswith("{"):
        yield from members(value).values()


def _all_items(value: str, document: str) -> Iterator[str]:
    if value.startswith("["):
        yield from items(value)
    else:
        yield value


_ALL: Final[dict[Step, str]] = {_all_members: "all members", _all_items: "all items"}


def _everything(value: str, document: str) -> Iterator[str]:
    pending = [value]
    while pending:
        value = pending.pop()
        yield value
        if value.startswith("["):
            pending.extend(reversed(items(value)))
        elif value.startswith("{"):
            pending.extend(reversed(members(value).values()))


@dataclass(frozen=True, slots=True)
class _ItemsAt:
    """The items of some spans; each span is the first and last index, in the form of `_Parser._index`."""

    spans: tuple[tuple[tuple[bool, int], tuple[bool, int]], ...]

    def __call__(self, value: str, document: str) -> Iterator[str]:
        if not value.startswith("["):
            return
        all_items = items(value)
        for first, last in self.spans:
            start, stop = ((len(all_items) - 1 if from_end else 0) + index for from_end, index in (first, last))
            yield from all_items[max(start, 0) : max(stop + 1, 0)] if start >= 0 or first != last else []


def _filter(condition: Condition) -> Step:
    def step(value: str, document: str) -> Iterator[str]:
        if condition(value, document):
            yield value

    return step
