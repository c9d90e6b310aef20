"""The conditions that indices answer, as text: pylance's form where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.index import questions
from lance_io.levels.arrays import shown_value
from lance_io.reads.index.choose_indices import AllOf, AnyOf, Condition, IsTrue, Opposite

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.reads.index.choose_indices import Choice, Node

_SHOWN = 5
_SHOWN_BYTES = 10


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
            asked = _question(column, question)
            if index.json_path is not None:
                asked = f"Json({asked}->{index.json_path})"
            return f"[{asked}]@{index.name}({index.kind.value})"


def _question(column: str, question: questions.Question) -> str:
    match question:
        case questions.Within(interval):
            above, below = ">=" if interval.has_low else ">", "<=" if interval.has_high else "<"
            low = None if interval.low is None else f"{column} {above} {_shown(interval.low)}"
            high = None if interval.high is None else f"{column} {below} {_shown(interval.high)}"
            return " && ".join(filter(None, (low, high)))
        case questions.OneOf(values):
            shown = [_shown(value) for value in values.slice(0, _SHOWN)]
            if len(values) == 1:
                return f"{column} = {shown[0]}"
            return f"{column} IN [{','.join(shown)}{',...' if len(values) > _SHOWN else ''}]"
        case questions.IsNull():
            return f"{column} IS NULL"
        case questions.Prefix(prefix):
            return f"{column} LIKE '{prefix.decode('utf-8', 'replace')}%'"
        case questions.Contains(needle):
            return f'contains({column}, Utf8("{needle}"))'
        case questions.Labels(items, needs_all):
            name = "array_has_all" if needs_all else "array_has_any"
            return f"{name}({column}, List([{', '.join(str(shown_value(item)) for item in items)}]))"


def _shown(value: pa.Scalar) -> str:
    """A value; of bytes the first ones, in hexadecimal digits."""
    content = shown_value(value)
    if not isinstance(content, bytes):
        return str(content)
    return content[:_SHOWN_BYTES].hex() + ("..." if len(content) > _SHOWN_BYTES else "")
