"""The registry of functions of text filters. A lookup loads the module of the function.

Each module of functions has a table `FUNCTIONS`, which defines a function with the kinds of its arguments. The binder
checks arguments against the kinds and converts them before the call:

    text, bytes   strings; strings or byte strings      int, float   64-bit integers, 64-bit floats
    shown         anything, converted to a string       number       any number, unchanged
    real          32-bit floats as they are, other      reals        all as 32-bit floats, unless one is a 64-bit
                  numbers as 64-bit floats                           float or a decimal
    bool          conditions                            when         dates and timestamps
    exact         like `real`, but decimals unchanged
    clock         like `when`, and times of day
    any           anything, unchanged                   same         values of one common type
    list          lists                                 item         of the type of the items of the list before it
    lists         lists whose items have one type       word         a string literal
    vector        lists of numbers, as 64-bit floats
    json          stored JSON documents
    steps         integers, or dates and an interval    span         an interval, or a string literal for one

A kind with `?` may be left out, a kind with `*` may be repeated. Functions take Arrow arrays, and scalars for literals,
but at least one array; they return an array. Null arguments give null unless a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.filters.elementwise import Value

_NAMES: Final = {
    "conditions": "coalesce nvl ifnull nvl2 nullif between is_distinct is_not_distinct greatest least",
    "text": """
        upper lower reverse initcap length char_length character_length octet_length bit_length concat concat_ws ||
        like ilike starts_with ends_with contains strpos instr position replace translate left right substr
        substring lpad rpad ltrim rtrim btrim trim repeat split_part substr_index substring_index find_in_set
        levenshtein overlay contains_tokens string_to_array string_to_list
    """,
    "regex": "regexp_like regexp_match regexp_instr regexp_count regexp_replace",
    "encodings": "ascii chr to_hex encode decode",
    "digests": "md5 sha224 sha256 sha384 sha512 digest",
    "numbers": """
        % abs power pow round trunc floor ceil log sin cos tan cot asin acos atan sinh cosh tanh asinh acosh atanh
        sqrt cbrt exp ln log2 log10 degrees radians signum atan2 isnan iszero nanvl gcd lcm factorial
    """,
    "nullary": "uuid pi random version",
    "list_items": """
        array_has array_contains list_has list_contains array_has_any list_has_any arrays_overlap array_has_all
        list_has_all array_length list_length cardinality empty array_empty list_empty array_element array_extract
        list_element list_extract make_array make_list array_ndims list_ndims array_dims list_dims array_to_string
        array_join list_to_string list_join array_distinct list_distinct array_sort list_sort array_min list_min
        array_max list_max
    """,
    "list_edits": """
        array_position array_indexof list_position list_indexof array_positions list_positions array_append
        list_append array_push_back list_push_back array_prepend list_prepend array_push_front list_push_front
        array_concat array_cat list_concat list_cat array_remove list_remove array_remove_n list_remove_n
        array_remove_all list_remove_all array_replace list_replace array_replace_n list_replace_n array_replace_all
        list_replace_all array_union list_union array_intersect list_intersect array_except list_except
        array_reverse list_reverse array_pop_back list_pop_back array_pop_front list_pop_front array_slice
        list_slice array_resize list_resize array_repeat list_repeat array_any_value list_any_value arrays_zip
        list_zip flatten range generate_series
    """,
    "vectors": "array_distance list_distance inner_product dot_product cosine_distance array_normalize list_normalize",
    "dates": """
        date_part datepart date_trunc datetrunc to_date to_timestamp to_timestamp_seconds from_unixtime
        to_timestamp_millis to_timestamp_micros to_timestamp_nanos to_unixtime to_time to_char date_format make_date
        make_time to_local_time now current_timestamp current_date today current_time
    """,
    "date_arithmetic": "date_bin + -",
    "structs": "struct row named_struct map make_map map_keys map_values map_entries map_extract element_at",
    "arrow_types": "arrow_cast arrow_typeof",
    "json_documents": """
        json_extract json_exists json_get json_get_string json_get_int json_get_float json_get_bool
        json_array_contains json_array_length
    """,
}
"""The names of all functions, in lower case, by the module that defines them."""


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function of SQL text.

    kinds     of its arguments, as in the module's table
    compute   computes its values
    at_bind   whether the value is computed once, when the filter is compiled: it is the same for all rows of a scan
    by_count  whether it takes the number of rows instead of values
    lazy      `coalesce` or `nvl2` if operands are computed only for rows that need them
    """

    kinds: tuple[str, ...]
    compute: Callable[..., Value]
    at_bind: bool = False
    by_count: bool = False
    lazy: str = ""

    @property
    def num_arguments(self) -> tuple[int, int | None]:
        """The smallest and the largest number of arguments; None for no limit."""
        least = sum(not kind.endswith(("?", "*")) for kind in self.kinds)
        return least, None if self.kinds and self.kinds[-1].endswith("*") else len(self.kinds)

    def kind(self, position: int) -> str:
        """The kind of the argument at a position, without `?` or `*`."""
        return self.kinds[min(position, len(self.kinds) - 1)].rstrip("?*")

    def run(self, values: list[Any], num_rows: int) -> Value:
        """The values of the function: a scalar if all arguments are scalars, else an array of `num_rows` items."""
        if self.by_count:
            return self.compute(num_rows)
        if not values or any(isinstance(value, pa.Array) for value in values):
            return self.compute(*values)
        words = [self.kind(i) in ("word", "span") for i in range(len(values))]
        return self.compute(*[v if word else pa.repeat(v, 1) for v, word in zip(values, words, strict=True)])[0]


class SqlFunctions(dict[str, SqlFunction]):
    """The functions of one module by name."""

    def define(
        self,
        names: str,
        kinds: str,
        compute: Callable[..., Value],
        *,
        at_bind: bool = False,
        by_count: bool = False,
        lazy: str = "",
    ) -> None:
        """Add a function under its names; both `names` and `kinds` are separated by spaces."""
        function = SqlFunction(tuple(kinds.split()), compute, at_bind, by_count, lazy)
        self.update(dict.fromkeys(names.split(), function))


class _AllFunctions(Mapping[str, SqlFunction]):
    """Every function by name. Only a lookup imports the module that defines a function."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __getitem__(self, name: str) -> SqlFunction:
        functions: SqlFunctions = _load(self._modules[name]).FUNCTIONS
        return functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


FUNCTIONS: Final = _AllFunctions()


def decimal_arithmetic(operation: str) -> SqlFunction:
    """`add`, `subtract`, `multiply`, `divide` or `remainder` of decimals, which have no names in SQL text."""
    functions: dict[str, SqlFunction] = _load("numbers").DECIMALS
    return functions[operation]


def _load(module: str) -> Any:
    return import_module(f"{__package__}.{module}")
