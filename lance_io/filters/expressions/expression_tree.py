"""The expression tree of every kind of filter: text, `pyarrow.compute` expression, or pruning rule.

    Column       a column, or a field inside struct columns        Comparison   =  !=  <  <=  >  >=
    Literal      one value with its Arrow type                     And Or Not   three-valued logic
    Cast         conversion to an Arrow type                       IsNull       null test, NaN counted on request
    Call         a function by its Arrow name                      In           membership in a list of values
    Function     a function of SQL text, see functions/           InList       the same before binding, in SQL text
    SqlCast      SQL's conversion                              InLiterals   the same for many literals, by type

Nodes are frozen and hold only their meaning. `binder` checks them against a schema and returns a tree of the same
classes with explicit casts; `evaluate` runs that tree over record batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from typing import Literal as OneOf

import pyarrow as pa

from lance_io.levels.arrays import shown_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.compute as pc

CompareOp: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Column:
    """A column by path: its name, then the names of struct fields; a number is a field's position in its struct.

    any_case  whether a column whose name differs only in case matches if none has exactly this name
    """

    path: tuple[str | int, ...]
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """One value.

    adaptable  True if its type is just the smallest that holds it, as in `pyarrow.compute` expressions: beside another
               operand it takes the narrowest type that keeps the value
    """

    value: pa.Scalar
    adaptable: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left op right`; null when either side is. Floats compare by total order."""

    op: CompareOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class And:
    """False if any operand is false, else null if any is null, else true."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any operand is true, else null if any is null, else false."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null stays null."""

    arg: Expr


@dataclass(frozen=True, slots=True)
class IsNull:
    """True for nulls, and for NaN too when `nan_is_null`; never null itself."""

    arg: Expr
    nan_is_null: bool = False


@dataclass(frozen=True, slots=True)
class In:
    """True when the operand equals one of `values`, else null when the operand or one of them is null, else false.

    values    Arrow array without nulls
    has_null  whether the list contained a null
    """

    arg: Expr
    values: pa.Array
    has_null: bool


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion to an Arrow type. `safe` raises on any loss; otherwise fractions are cut and digits rounded."""

    arg: Expr
    to: pa.DataType
    safe: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `pyarrow.compute` by its registered name, with its options."""

    function: str
    args: tuple[Expr, ...]
    options: pc.FunctionOptions | None = None


@dataclass(frozen=True, slots=True)
class InList:
    """Membership in a list of expressions, from text; binding turns it into `In` or comparisons."""

    arg: Expr
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class LiteralGroup:
    """Literals of one type, none of them null.

    values  Arrow array
    to      the type in front of each literal, to which its text is cast (`date '2024-01-02'`); None without a type
    """

    values: pa.Array
    to: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class InLiterals:
    """`InList` of literals that were cut out of a long text; see `syntax/literal_lists.py`.

    has_null  whether null is among them
    """

    arg: Expr
    groups: tuple[LiteralGroup, ...]
    has_null: bool

    def as_list(self) -> InList:
        """The same list, literal by literal."""
        items: list[Expr] = []
        for group in self.groups:
            literals = map(Literal, group.values)
            items += literals if group.to is None else [SqlCast(literal, group.to) for literal in literals]
        return InList(self.arg, (*items, *([Literal(pa.scalar(None))] * self.has_null)))


@dataclass(frozen=True, slots=True)
class SqlCast:
    """Conversion like `cast`, or like `try_cast` when `lenient`; see `casts`."""

    arg: Expr
    to: pa.DataType
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A function of SQL text by its name in lower case.

    implementation  set by binding
    """

    name: str
    args: tuple[Expr, ...]
    implementation: Implementation | None = None


class Implementation(Protocol):
    """The code that computes a function.

    lazy  `coalesce` or `nvl2` if operands are computed only for rows that need them; else empty
    """

    @property
    def lazy(self) -> str:
        """See above."""

    def run(self, values: list[Any], num_rows: int) -> pa.Array | pa.Scalar:
        """The values for `num_rows` rows."""


Expr: TypeAlias = (
    Column
    | Literal
    | Comparison
    | And
    | Or
    | Not
    | IsNull
    | In
    | InList
    | InLiterals
    | Cast
    | SqlCast
    | Call
    | Function
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of a node, left to right."""
    match expr:
        case Comparison(_, left, right):
            return (left, right)
        case And(args) | Or(args) | Call(_, args) | Function(_, args):
            return args
        case InList(arg, items):
            return (arg, *items)
        case Not(arg) | IsNull(arg) | In(arg) | InLiterals(arg) | Cast(arg) | SqlCast(arg):
            return (arg,)
        case _:
            return ()


def columns(expr: Expr) -> Iterator[Column]:
    """The columns of a tree from left to right, with repetitions."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Column):
            yield node
        pending.extend(reversed(children(node)))


def cannot_fail(expr: Expr) -> bool:
    """Whether evaluation succeeds for any values: the tree has no cast and no function."""
    return not isinstance(expr, (Cast, SqlCast, Call, Function)) and all(cannot_fail(child) for child in children(expr))


def dotted(path: tuple[str | int, ...]) -> str:
    """A column path as text: parts joined by dots, a part that contains a dot in backticks, positions in brackets."""
    parts = [f"[{part}]" if isinstance(part, int) else f"`{part}`" if "." in part else part for part in path]
    return ".".join(parts)


def describe(expr: Expr) -> str:
    """The tree as text, close to SQL; for messages and plans."""
    match expr:
        case Column(path):
            return dotted(path)
        case Literal(value):
            return "null" if not value.is_valid else repr(shown_value(value))
        case Comparison(op, left, right):
            return f"({describe(left)} {op} {describe(right)})"
        case And(args):
            return "(" + " and ".join(map(describe, args)) + ")"
        case Or(args):
            return "(" + " or ".join(map(describe, args)) + ")"
        case Not(arg):
            return f"(not {describe(arg)})"
        case IsNull(arg, nan_is_null):
            return f"({describe(arg)} is null{' or NaN' if nan_is_null else ''})"
        case In(arg, values, has_null):
            shown = [*map(repr, map(shown_value, values[:5])), *["..."] * (len(values) > 5), *["null"] * has_null]
            return f"({describe(arg)} in ({', '.join(shown)}))"
        case InLiterals(arg, groups):
            shown = [*map(repr, map(shown_value, groups[0].values[:5])), "..."] if groups else ["null"]
            return f"({describe(arg)} in ({', '.join(shown)}))"
        case InList(arg, items):
            return f"({describe(arg)} in ({', '.join(map(describe, items))}))"
        case Cast(arg, to):
            return f"cast({describe(arg)} as {to})"
        case SqlCast(arg, to, lenient):
            return f"{'try_' if lenient else ''}cast({describe(arg)} as {to})"
        case Call(function, args) | Function(function, args):
            return f"{function}({', '.join(map(describe, args))})"
