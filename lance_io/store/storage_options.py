"""Storage options: texts by name, in any case, with environment variables behind them.

The names are those of pylance. Switches and numbers (`True`, `5`) are taken as their text; all else that is no text is
a `TypeError`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
_ALL_VARIABLES: Final = (*_VARIABLES_OF_PYLANCE.items(), *_VARIABLES.items())  # of two for an option the last counts
_ENCODED_VARIABLES: Final = frozenset(os.fsencode(variable) for variable, _ in _ALL_VARIABLES)
_TRUE = frozenset({"1", "true", "on", "yes", "y"})
_FALSE = frozenset({"0", "false", "off", "no", "n", ""})
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")  # durations are some of these
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
    """Storage options beside which somebody gives others, credentials above all; copies keep that.

    source  who gives them, see `provided_options.py`
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
    """A copy of the options that somebody gave, with whoever gives others. Raises `TypeError` for what is no mapping,
    and for other names than texts and other values than texts, switches and numbers.
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
                f"storage option {name}: expected a text, found a value {_describe(value)}; leave out what is unset"
            )
    return ProvidedOptions(options, options.source) if isinstance(options, ProvidedOptions) else dict(options)


def _describe(value: object) -> str:
    """What a value is, without showing it: it may be a credential."""
    return f"of type {type(value).__name__}"


def planning(options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options with what `LANCE_IO_*` variables say behind them: numbers of a `StoreProfile`, and `durability`.

    Behind these are the variables that pylance reads.
    """
    source = os.environ if environment is None else environment
    found = (
        {name: source[variable] for variable, name in _ALL_VARIABLES if variable in source} if _any_in(source) else {}
    )
    return {**found, **options}


def _any_in(environment: Mapping[str, str]) -> bool:
    """Whether one of the variables may be set.

    Each look into `os.environ` encodes a name, by four calls of functions: thirty of them are a tenth of opening a
    table. So one look goes to what lies behind it, where that is as known here.
    """
    names = getattr(environment, "_data", None) if os.name == "posix" else None
    return not isinstance(names, dict) or not names.keys().isdisjoint(_ENCODED_VARIABLES)


def planning_variables() -> dict[str, str]:
    """The variable that each of these options is read from, the one that counts where there are two."""
    variables = {**_VARIABLES_OF_PYLANCE, **_VARIABLES}
    set_ones = {name: variable for variable, name in variables.items() if variable in os.environ}
    return {**{name: variable for variable, name in _VARIABLES.items()}, **set_ones}


def switch(name: str, text: str) -> bool:
    """A yes or no; `UsageError` for anything else."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise UsageError(f"storage option {name}: expected true or false, found {text!r}")


def seconds(name: str, text: str) -> float:
    """A duration such as `5s`, `500ms`, `2 minutes`, `1h 30m` or `30` (seconds), in seconds."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):  # pylance wants a unit
        return float(text)
    found = _SPAN.findall(text)
    if not found or _SPAN.sub("", text) or any(unit not in _SECONDS for _, unit in found):
        raise UsageError(f"storage option {name}: expected a duration such as '30s', found {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in found)


def durability(options: Mapping[str, str]) -> Durability:
    """The option `durability` of those that `planning` gives: `full`, the default, or `none`."""
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
