"""The grammar of text filters, as a dialect of sqlglot: text in, sqlglot's syntax tree out.

    binds loosest   or
                    and
                    not
                    is [not] null, is [not] true, is [not] false, is [not] distinct from
                    =  ==  !=  <>  <  <=  >  >=
                    [not] in, between, like, ilike
                    +  -
                    *  /  %  ||
                    unary -
    binds tightest  .field  [index]  ::type

The tokenizer has few keywords, so that every other word can name a column or a function. Single and double quotes
delimit strings, backticks delimit names. This module uses only the precedence ladder of binary operators of sqlglot's
parser. It parses operands itself, so that no token is skipped and a new release of sqlglot cannot add meanings.

This module imports sqlglot, which is slow to load: import it only for text filters.
"""

# ruff: noqa: RUF012 - the class attributes are settings, which sqlglot declares as class variables

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import IsPredicatePrecedence
from sqlglot.parser import Parser as BaseParser
from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer as BaseTokenizer

from lance_io.errors import BindError
from lance_io.filters.syntax.literal_lists import CutList, cut_lists

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

CUT = "cut"  # key in the `meta` of an IN node: its list is there instead of in the tree
NESTING_MAX = 48  # brackets inside brackets, `not not ...`; a level takes a dozen of the interpreter's thousand frames

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_PREFIX = frozenset({TokenType.NOT, TokenType.DASH})
_WORDS = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
_AFTER_FILTER = frozenset({"LIMIT", "OFFSET", "ORDER"})  # a WHERE clause ends there; pylance ignores the rest
_MAY_END = re.compile(rf";|{'|'.join(_AFTER_FILTER)}", re.IGNORECASE)


class LanceFilter(Dialect):
    """The dialect; see the module."""

    class Tokenizer(BaseTokenizer):
        """Tokens: words, numbers, strings, names and operators; all other keywords of SQL are ordinary words."""

        QUOTES = ["'", '"']
        IDENTIFIERS = ["`"]
        STRING_ESCAPES = ["'", '"']  # a doubled quote stands for the quote; a backslash is an ordinary character
        HEX_STRINGS = [("X'", "'"), ("x'", "'")]
        # `@` and `#` are letters of names
        SINGLE_TOKENS = {sign: kind for sign, kind in BaseTokenizer.SINGLE_TOKENS.items() if sign not in "@#"}
        KEYWORDS = {
            "==": TokenType.EQ,
            "!=": TokenType.NEQ,
            "<>": TokenType.NEQ,
            "<=": TokenType.LTE,
            ">=": TokenType.GTE,
            "<=>": TokenType.NULLSAFE_EQ,
            "||": TokenType.DPIPE,
            "::": TokenType.DCOLON,
            "OR": TokenType.OR,
            "AND": TokenType.AND,
            "NOT": TokenType.NOT,
            "IS": TokenType.IS,
            "IN": TokenType.IN,
            "BETWEEN": TokenType.BETWEEN,
            "LIKE": TokenType.LIKE,
            "ILIKE": TokenType.ILIKE,
            "ESCAPE": TokenType.ESCAPE,
            "NULL": TokenType.NULL,
            "TRUE": TokenType.TRUE,
            "FALSE": TokenType.FALSE,
        }

    class Parser(BaseParser):
        """sqlglot's precedence ladder of binary operators, with our own operands, predicates and end of the filter."""

        IS_PREDICATE_PRECEDENCE = IsPredicatePrecedence.LOW
        DISJUNCTION = {TokenType.OR: exp.Or}
        CONJUNCTION = {TokenType.AND: exp.And}
        EQUALITY = {}  # all comparisons are on one level
        COMPARISON = {
            TokenType.EQ: exp.EQ,
            TokenType.NEQ: exp.NEQ,
            TokenType.LT: exp.LT,
            TokenType.LTE: exp.LTE,
            TokenType.GT: exp.GT,
            TokenType.GTE: exp.GTE,
        }
        BITWISE = {}
        TERM = {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub}
        FACTOR = {
            TokenType.STAR: exp.Mul,
            TokenType.SLASH: exp.Div,
            TokenType.MOD: exp.Mod,
            TokenType.DPIPE: exp.DPipe,
        }
        UNARY_PARSERS = {
            TokenType.NOT: lambda self: self.expression(exp.Not(this=self._parse_equality()), self._prev),
            TokenType.DASH: lambda self: self.expression(exp.Neg(this=self._parse_unary()), self._prev),
        }
        RANGE_PARSERS = {
            TokenType.IN: lambda self, this: self._parse_in(this),
            TokenType.BETWEEN: lambda self, this: self._parse_between(this),
            TokenType.LIKE: lambda self, this: self._pattern(exp.Like, this),
            TokenType.ILIKE: lambda self, this: self._pattern(exp.ILike, this),
            TokenType.IS: lambda self, this: self._parse_is(this),
        }

        ignored_from: Token | None = None
        cuts: dict[int, CutList] = {}  # lists cut out of the text, by their start

        def _parse_statement(self) -> exp.Expr | None:
            expression = self._parse_disjunction()
            if self._curr and not (self._curr.token_type is TokenType.VAR and self._curr.text.upper() in _AFTER_FILTER):
                self._fail("Expected an operator or the end")
            self.ignored_from = self._curr or None
            self._advance(self._tokens_size - self._index)
            return expression

        def _fail(self, expected: str) -> None:
            shown = repr(self._curr.text) if self._curr else "the end"
            self.raise_error(f"{expected}, found {shown}")

        def _expect(self, token_type: TokenType, shown: str) -> None:
            if not self._match(token_type):
                self._fail(f"Expected {shown}")

        # -- predicates ----------------------------------------------------------------------------------------------

        def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
            self._expect(TokenType.L_PAREN, "( after IN")
            cut = self.cuts.get(self._prev.end + 1)
            if cut is not None:
                self._expect(TokenType.R_PAREN, ")")
                result = self.expression(exp.In(this=this, expressions=[]))
                result.meta[CUT] = cut
                return result
            values = self._list_until(TokenType.R_PAREN, ")")
            if not values:
                self._fail("Expected at least one value in the list of IN")
            return self.expression(exp.In(this=this, expressions=values))

        def _parse_between(self, this: exp.Expr | None) -> exp.Between:
            low = self._parse_bitwise()
            self._expect(TokenType.AND, "AND")
            return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

        def _pattern(self, kind: type[exp.Like] | type[exp.ILike], this: exp.Expr | None) -> exp.Expr:
            result: exp.Expr = self.expression(kind(this=this, expression=self._parse_bitwise()))
            if not self._match(TokenType.ESCAPE):
                return result
            self._expect(TokenType.STRING, "a string after ESCAPE")
            return self.expression(exp.Escape(this=result, expression=self._literal(self._prev)))

        def _parse_is(self, this: exp.Expr | None) -> exp.Expr:
            negate = self._match(TokenType.NOT)
            right: exp.Expr | None
            if self._match_text_seq("DISTINCT"):
                if not self._match_text_seq("FROM"):
                    self._fail("Expected FROM after DISTINCT")
                kind = exp.NullSafeEQ if negate else exp.NullSafeNEQ
                return self.expression(kind(this=this, expression=self._parse_bitwise()))
            if self._match(TokenType.NULL):
                right = exp.Null()
            elif self._match_set((TokenType.TRUE, TokenType.FALSE)):
                right = exp.Boolean(this=self._prev.token_type is TokenType.TRUE)
            else:
                right = None
                self._fail("Expected NULL, TRUE, FALSE or DISTINCT FROM after IS")
            result: exp.Expr = self.expression(exp.Is(this=this, expression=right))
            return self.expression(exp.Not(this=result)) if negate else result

        # -- operands ------------------------------------------------------------------------------------------------

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
            result = self._operand()
            while True:
                if self._match(TokenType.DOT):
                    result = self.expression(exp.Dot(this=result, expression=self._member()))
                elif self._match(TokenType.L_BRACKET):
                    index = self._parse_disjunction()
                    self._expect(TokenType.R_BRACKET, "]")
                    result = self.expression(exp.Bracket(this=result, expressions=[index]))
                elif self._match(TokenType.DCOLON):
                    result = self.expression(exp.Cast(this=result, to=self._type_name()))
                else:
                    return result

        def _operand(self) -> exp.Expr | None:
            token = self._curr
            match token.token_type:
                case TokenType.STRING | TokenType.NUMBER | TokenType.HEX_STRING:
                    self._advance()
                    return self._literal(token)
                case TokenType.DOT if self._next.token_type is TokenType.NUMBER:
                    self._advance(2)
                    return self.expression(exp.Literal(this=f".{self._prev.text}", is_string=False), token)
                case TokenType.NULL:
                    self._advance()
                    return exp.Null()
                case TokenType.TRUE | TokenType.FALSE:
                    self._advance()
                    return exp.Boolean(this=token.token_type is TokenType.TRUE)
                case TokenType.L_PAREN:
                    self._advance()
                    inner = self._parse_disjunction()
                    self._expect(TokenType.R_PAREN, ")")
                    return self.expression(exp.Paren(this=inner))
                case TokenType.L_BRACKET:
                    self._advance()
                    return self.expression(exp.Array(expressions=self._list_until(TokenType.R_BRACKET, "]")), token)
                case TokenType.VAR | TokenType.IDENTIFIER:
                    return self._parse_named(token)
                case _:
                    self._fail("Expected an expression")
                    return None

        def _parse_named(self, token: Token) -> exp.Expr:
            """A column, a function call, a cast, or a literal with its type in front."""
            quoted = token.token_type is TokenType.IDENTIFIER
            word = token.text.upper()
            follows = self._next.token_type
            if not quoted and (follows is TokenType.STRING or self._is_typed_literal(word)):
                to = self._type_name()
                self._expect(TokenType.STRING, f"a string after {word}")
                return self.expression(exp.Cast(this=self._literal(self._prev), to=to), token)
            self._advance()
            if word == "ARRAY" and not quoted and self._match(TokenType.L_BRACKET):
                return self.expression(exp.Array(expressions=self._list_until(TokenType.R_BRACKET, "]")), token)
            if quoted or follows is not TokenType.L_PAREN:
                name = self.expression(exp.Identifier(this=token.text, quoted=quoted), token)
                return self.expression(exp.Column(this=name), token)
            self._advance()
            if word in ("CAST", "TRY_CAST"):
                return self._cast(token, exp.Cast if word == "CAST" else exp.TryCast)
            arguments = self._list_until(TokenType.R_PAREN, ")")
            return self.expression(exp.Anonymous(this=token.text, expressions=arguments), token)

        def _is_typed_literal(self, word: str) -> bool:
            """Whether a type with its numbers and then a string follow, such as `timestamp(6) '2024-01-02'`."""
            if self._next.token_type is not TokenType.L_PAREN:
                return False
            ahead = [token.token_type for token in self._tokens[self._index + 2 : self._index + 7]]
            single, pair = [TokenType.NUMBER], [TokenType.NUMBER, TokenType.COMMA, TokenType.NUMBER]
            ends = [TokenType.R_PAREN, TokenType.STRING]
            return word == "DECIMAL" or ahead[:3] == single + ends or ahead == pair + ends

        def _cast(self, token: Token, kind: type[exp.Cast] | type[exp.TryCast]) -> exp.Expr:
            this = self._parse_disjunction()
            if not self._match_text_seq("AS"):
                self._fail("Expected AS")
            to = self._type_name()
            self._expect(TokenType.R_PAREN, ")")
            return self.expression(kind(this=this, to=to), token)

        def _type_name(self) -> exp.Var:
            """The name of a type as a single text such as `DECIMAL(10,2)` or `BIGINT UNSIGNED`."""
            if self._curr.token_type is not TokenType.VAR:
                self._fail("Expected a type")
            start = self._curr
            name = start.text.upper()
            self._advance()
            if self._match(TokenType.L_PAREN):
                numbers: list[str] = []
                while not numbers or self._match(TokenType.COMMA):
                    self._expect(TokenType.NUMBER, "a number")
                    numbers.append(self._prev.text)
                self._expect(TokenType.R_PAREN, ")")
                name += f"({','.join(numbers)})"
            if self._match_text_seq("UNSIGNED"):
                name += " UNSIGNED"
            return self.expression(exp.Var(this=name), start)

        def _member(self) -> exp.Identifier:
            token = self._curr
            if not token or (token.token_type not in _WORDS and not token.text.isidentifier()):
                self._fail("Expected the name of a field")
            self._advance()
            return self.expression(
                exp.Identifier(this=token.text, quoted=token.token_type is TokenType.IDENTIFIER), token
            )

        def _literal(self, token: Token) -> exp.Expr:
            if token.token_type is TokenType.HEX_STRING:
                return self.expression(exp.HexString(this=token.text), token)
            is_string = token.token_type is TokenType.STRING
            if not is_string and self._curr.text in ("L", "l") and self._is_connected():
                self._advance()  # 3L is a 64-bit integer, like 3
            return self.expression(exp.Literal(this=token.text, is_string=is_string), token)

        def _list_until(self, closing: TokenType, shown: str) -> list[exp.Expr]:
            items: list[exp.Expr] = []
            if self._match(closing):
                return items
            while not items or self._match(TokenType.COMMA):
                item = self._parse_disjunction()
                if item is not None:
                    items.append(item)
            self._expect(closing, f", or {shown}")
            return items


def parse_syntax(text: str) -> exp.Expr:
    """The syntax tree of a filter; text from `;`, `limit`, `offset` or `order` on is ignored.

    Lists of literals that were cut out are under `CUT` in the `meta` of their node. Raises BindError if the text is not
    an expression, or nested too deeply.
    """
    dialect = LanceFilter()
    try:
        tokens, cuts = _tokenize(dialect, text)
        tokens = _first_statement(tokens)
        _check_nesting(tokens)
        tree = _parser(dialect, cuts).parse(tokens, text)[0] if tokens else None
    except (ParseError, TokenError) as error:
        raise BindError(f"sql parser error: {_message(error)}; in the filter {_short(text)}") from None
    except RecursionError:
        raise BindError(f"sql parser error: the filter {_short(text)} is nested too deeply") from None
    if tree is None:
        raise BindError(f"sql parser error: Expected an expression, found the end; in the filter {_short(text)}")
    return tree


def check_all_used(text: str) -> None:
    """Raise `BindError` if `parse_syntax` ignores a part of the text other than semicolons at its end.

    Text that is not an expression passes: `parse_syntax` raises for it.
    """
    if not _MAY_END.search(cut_lists(text)[0]):
        return
    dialect = LanceFilter()
    try:
        tokens, cuts = _tokenize(dialect, text)
        used = _first_statement(tokens)
        _check_nesting(used)
        parser = _parser(dialect, cuts)
        parser.parse(used, text)
    except (BindError, ParseError, TokenError, RecursionError):
        return
    rest = [token for token in tokens[len(used) :] if token.token_type is not TokenType.SEMICOLON]
    if parser.ignored_from is not None:
        ignored = f"`{parser.ignored_from.text}` behind it"
    elif rest:
        ignored = f"more behind `;`, {rest[0].text!r}"
    else:
        return
    raise BindError(
        f"sql parser error: expected one expression, found {ignored} in {_short(text)}. A filter of a read ignores "
        "that; a change would touch rows that you did not mean"
    )


def _tokenize(dialect: LanceFilter, text: str) -> tuple[list[Token], list[CutList]]:
    """The tokens of a text without its cut lists, with their positions in the whole text; and the cut lists."""
    short, cuts = cut_lists(text)
    tokens = dialect.tokenize(short)
    later = iter(cuts)
    cut, offset, lines, same_line, columns = next(later, None), 0, 0, -1, 0
    for token in tokens if cuts else ():
        is_next = cut is not None and token.start + offset >= cut.start
        if is_next and cut is not None:  # the bracket behind the cut list
            broken = cut.text.count("\n")
            last_line = cut.text[cut.text.rfind("\n") + 1 :]
            if token.line != same_line:
                same_line, columns = token.line, 0
            columns = columns + len(cut.text) if not broken else len(last_line) + 1 - token.col
            offset, lines = offset + len(cut.text), lines + broken
            cut = next(later, None)
        if token.line == same_line:
            token.col += columns
        token.line += lines
        token.start += offset
        token.end += offset
    return tokens, cuts


def _parser(dialect: LanceFilter, cuts: list[CutList]) -> LanceFilter.Parser:
    parser = dialect.parser()
    assert isinstance(parser, LanceFilter.Parser), "the dialect's own"
    parser.cuts = {cut.start: cut for cut in cuts}
    return parser


def _first_statement(tokens: list[Token]) -> list[Token]:
    end = next((i for i, token in enumerate(tokens) if token.token_type is TokenType.SEMICOLON), len(tokens))
    return tokens[:end]


def _check_nesting(tokens: list[Token]) -> None:
    """Refuse text that takes too many frames of the parser: nested brackets and long runs of prefix operators."""
    depth, run, runs = 0, 0, [0]  # runs: prefix operators in front of each open bracket
    for token in tokens:
        if token.token_type in _PREFIX:
            run += 1
        elif token.token_type in _OPENING:
            runs.append(runs[-1] + run + 1)
            run = 0
        else:
            if token.token_type in _CLOSING and len(runs) > 1:
                runs.pop()
            run = 0
        depth = max(depth, runs[-1] + run)
    if depth > NESTING_MAX:
        raise BindError(f"sql parser error: the filter is nested {depth} levels deep, at most {NESTING_MAX} are parsed")


def _message(error: ParseError | TokenError) -> str:
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        return f"{first['description']} at line {first['line']}, column {first['col']}"
    return str(error.__cause__ or error).split("\n")[0]


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")
