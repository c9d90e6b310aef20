"""Checks and parsers for the texts of arguments and options."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module

if TYPE_CHECKING:
    from lance_io.dataset import cli_imports
else:
    cli_imports = lazy_module("lance_io.dataset.cli_imports")

ROW_DIGITS_MAX: Final = 18  # always fits 64 bits
ROWS_MAX: Final = 10_000_000  # of one --take: each is a number in memory


def check_texts(command: Callable[..., None], given: Mapping[str, object]) -> None:
    """Refuse bytes that are no UTF-8, which Python passes on as halves of surrogate pairs. Raises UsageError.

    command  declares its arguments for typer
    given    their values by name
    """
    for name, value in given.items():
        for text in value if isinstance(value, list) else [value]:
            try:
                str(text).encode()
            except UnicodeEncodeError as error:
                raise UsageError(cli_imports.no_unicode(_shown_name(command, name), error)) from None


def _shown_name(command: Callable[..., None], name: str) -> str:
    """An argument's name in the help text of its command."""
    (declared,) = command.__annotations__[name].__metadata__
    words = [
        declared.default,
        *(declared.param_decls or ()),
    ]  # in annotations the first flag has the place of a default
    flags = [word for word in words if str(word).startswith("--")]
    return str(flags[0] if flags else declared.metavar or name.upper())


def storage_options(given: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` texts as a dict. Raises UsageError, without the text: it may hold a secret."""
    options = {}
    for number, text in enumerate(given or [], 1):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--storage-option number {number}: expected KEY=VALUE")
        options[key.strip()] = value
    return options


def assignments(given: list[str]) -> dict[str, str]:
    """`COLUMN=EXPRESSION` texts as a dict. Raises UsageError."""
    parsed: dict[str, str] = {}
    for text in given:
        name, equals, expression = text.partition("=")
        if not equals or not name.strip() or not expression.strip():
            raise UsageError(f'expected COLUMN=EXPRESSION, such as "price=price * 1.1", found {text[:100]!r}')
        if name.strip() in parsed:
            raise UsageError(f"two expressions for column {name.strip()}")
        parsed[name.strip()] = expression.strip()
    return parsed


def column_names(given: list[str] | None) -> list[str] | None:
    """Names from repeated and comma-separated texts; commas inside backticks belong to the name. None for none."""
    if given is None:
        return None
    names = [name for text in given for name in _split(text)]
    return names or None


def _split(text: str) -> list[str]:
    parts, start, quoted = [], 0, False
    for at, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif character == "," and not quoted:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def row_numbers(text: str) -> list[int]:
    """Row positions such as `0,5,100-104` (both ends included). Raises UsageError."""
    rows: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--take: expected row numbers such as 0,5,100-104, found {part.strip()!r}")
        if max(len(first), len(last)) > ROW_DIGITS_MAX:
            raise UsageError(f"--take: {part.strip()[:100]}: no table has that many rows")
        if dash and int(last) < int(first):
            raise UsageError(f"--take: the range {part.strip()} ends before it begins")
        if dash and len(rows) + int(last) - int(first) >= ROWS_MAX:
            raise UsageError(f"--take: more than {ROWS_MAX:,} rows; --take-random N takes a sample")
        rows.extend(range(int(first), int(last) + 1) if dash else [int(first)])
    return rows


def take_sizes(text: str) -> list[int]:
    """Numbers of rows such as `1,10,100`. Raises UsageError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--take-rows: expected numbers such as 1,10,100, found {text!r}")
    return [int(part) for part in parts]
