"""The conditions that indices answer, as text: pylance's form where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.index import api
from lance_io.reads.index.choose import AllOf, AnyOf, Condition, IsTrue, Opposite

if TYPE_CHECKING:
    from lance_io.reads.index.choose import Choice, Node

_SHOWN = 5


def describe_choice(choice: Choice) -> str:
    """The conditions, such as `AND([i = 5]@i_idx(BTree),NOT([c = 2]@c_idx(Bitmap)))`."""
    return _describe(choice.node)


def _describe(node: Node) -> str:
    match node:
        case AllOf(parts):
            return f"AND({','.join(map(_describe, parts))})"
        case AnyOf(parts):
            return f"OR({','.join(map(_describe, parts))})"
        case Opposite(part):
            return f"NOT({_describe(part)})"
        case IsTrue(part):
            return f"IS TRUE({_describe(part)})"
        case Condition(index, question):
            column = ".".join(index.path)
            return f"[{_question(column, question)}]@{index.name}({index.kind.value})"


def _question(column: str, question: api.Question) -> str:
    match question:
        case api.Within(interval):
            low = None if interval.low is None else f"{column} {'>=' if interval.has_low else '>'} {interval.low}"
            high = None if interval.high is None else f"{column} {'<=' if interval.has_high else '<'} {interval.high}"
            return " && ".join(filter(None, (low, high)))
        case api.OneOf(values):
            shown = [str(value) for value in values.slice(0, _SHOWN)]
            if len(values) == 1:
                return f"{column} = {shown[0]}"
            return f"{column} IN [{','.join(shown)}{',...' if len(values) > _SHOWN else ''}]"
        case api.IsNull():
            return f"{column} IS NULL"
        case api.Prefix(prefix):
            return f"{column} LIKE '{prefix.decode('utf-8', 'replace')}%'"
        case api.Contains(needle):
            return f"contains({column}, {needle!r})"
        case api.Labels(items, needs_all):
            name = "array_has_all" if needs_all else "array_has_any"
            return f"{name}({column}, [{','.join(map(str, items))}])"
