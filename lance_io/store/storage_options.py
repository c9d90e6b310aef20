"""Storage options: case-insensitive names with text values; environment variables are the fallback.

The names are those of pylance. Booleans and numbers (`True`, `5`) are converted to text; any other value that is not
text is a `TypeError`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.caller_text import utf8
from lance_io.errors import UsageError
from lance_io.store.costs import COST_OPTIONS
from lance_io.store.profile import PROFILE_OPTIONS

if TYPE_CHECKING:
    from lance_io.store.api import Durability

T = TypeVar("T")

_VARIABLES = {
    f"LANCE_IO_{name.upper()}": name for name in ("durability", "store_costs", *PROFILE_OPTIONS, *COST_OPTIONS)
}
_VARIABLES_OF_PYLANCE = {
    "LANCE_IO_THREADS": "requests_start",
    "LANCE_PROCESS_IO_THREADS_LIMIT": "requests_max",
    "LANCE_MAX_IOP_SIZE": "split_bytes",
}
_ALL_VARIABLES: Final = (*_VARIABLES_OF_PYLANCE.items(), *_VARIABLES.items())  # the last one for an option wins
_ENCODED_VARIABLES: Final = frozenset(os.fsencode(variable) for variable, _ in _ALL_VARIABLES)
_TRUE = frozenset({"1", "true", "on", "yes", "y"})
_FALSE = frozenset({"0", "false", "off", "no", "n", ""})
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")  # a duration is a sequence of these
_UNITS = {
    1e-9: "ns nsec nanos nanosecond nanoseconds",
    1e-6: "us µs usec micros microsecond microseconds",
    1e-3: "ms msec millis millisecond milliseconds",
    1.0: "s sec secs second seconds",
    60.0: "m min mins minute minutes",
    3600.0: "h hr hrs hour hours",
    86_400.0: "d day days",
    604_800.0: "w wk wks week weeks",
    2_630_016.0: "M month months",
    31_557_600.0: "y yr yrs year years",
}
_SECONDS = {name: seconds for seconds, names in _UNITS.items() for name in names.split()}


class ProvidedOptions(dict[str, T]):
    """Storage options with a provider that refreshes them, credentials above all; copies keep the provider.

    source  the provider, see `provided_options.py`
    """

    __slots__ = ("source",)

    def __init__(self, options: Mapping[str, T], source: Any) -> None:
        super().__init__(options)
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return ProvidedOptions, (dict(self), self.source)


def normalize(options: Mapping[str, object] | None) -> dict[str, str]:
    """Options with lower-case names and text values. Raises as `options_of` does."""
    return {str(name).lower(): str(value) for name, value in options_of(options).items()}


def options_of(options: Mapping[str, T] | None) -> dict[str, T]:
    """A copy of the user's options, with their provider.

    Raises `TypeError` for anything but a mapping of texts to texts, booleans and numbers, `UsageError` for a text with
    half of a surrogate pair.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"storage_options is a dict of texts, not {type(options).__name__}")  # might hold credentials
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"storage_options is a dict of texts, found a name {_describe(name)}")
        if not isinstance(value, (str, int, float)):
            raise TypeError(
                f"storage option {name}: expected a text, found a value {_describe(value)}; omit unset options"
            )
        utf8(name, "the name of a storage option")
        utf8(str(value), f"storage option {name}")
    return ProvidedOptions(options, options.source) if isinstance(options, ProvidedOptions) else dict(options)


def _describe(value: object) -> str:
    """The type of a value, without the value itself: it may be a credential."""
    return f"of type {type(value).__name__}"


def planning(options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options, with `LANCE_IO_*` variables as fallback: numbers of a `StoreProfile`, and `durability`.

    The variables that pylance reads are the fallback of these.
    """
    source = os.environ if environment is None else environment
    from_variables = (
        {name: source[variable] for variable, name in _ALL_VARIABLES if variable in source} if _any_in(source) else {}
    )
    return {**from_variables, **options}


def _any_in(environment: Mapping[str, str]) -> bool:
    """Whether one of the variables may be set.

    Each lookup in `os.environ` encodes a name with four function calls: thirty of them are a tenth of the time of
    opening a table. So this looks once at the dictionary inside of it, where there is one as expected.
    """
    names = getattr(environment, "_data", None) if os.name == "posix" else None
    return not isinstance(names, dict) or not names.keys().isdisjoint(_ENCODED_VARIABLES)


def planning_variables() -> dict[str, str]:
    """The environment variable of each of these options; of two variables the one that takes effect."""
    variables = {**_VARIABLES_OF_PYLANCE, **_VARIABLES}
    in_use = {name: variable for variable, name in variables.items() if variable in os.environ}
    return {**{name: variable for variable, name in _VARIABLES.items()}, **in_use}


def switch(name: str, text: str) -> bool:
    """A boolean; `UsageError` for anything else."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise UsageError(f"storage option {name}: expected true or false, found {text!r}")


def seconds(name: str, text: str) -> float:
    """A duration such as `5s`, `500ms`, `2 minutes`, `1h 30m` or `30` (seconds), in seconds."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):  # pylance requires a unit
        return float(text)
    spans = _SPAN.findall(text)
    if not spans or _SPAN.sub("", text) or any(unit not in _SECONDS for _, unit in spans):
        raise UsageError(f"storage option {name}: expected a duration such as '30s', found {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in spans)


def durability(options: Mapping[str, str]) -> Durability:
    """The option `durability` among those that `planning` returns: `full`, the default, or `none`."""
    text = options.get("durability", "full").lower()
    if text == "full":
        return "full"
    if text == "none":
        return "none"
    raise UsageError(f"storage option durability: expected 'full' or 'none', found {text!r}")


def whole_number(name: str, text: str) -> int:
    """A count of at least 0."""
    if not text.isdecimal():
        raise UsageError(f"storage option {name}: expected a whole number, found {text!r}")
    return int(text)
