"""Numeric functions of text filters. Floats keep their width; integers wrap unless a docstring says otherwise."""

from __future__ import annotations

import decimal
import math
import operator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io._kernels import float_function
from lance_io.filters.elementwise import broadcast, by_value
from lance_io.filters.functions.function_registry import SqlFunction, SqlFunctions

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value

_FLOAT, _INT = pa.float64(), pa.int64()
_EXACT_DIGITS = 240  # more than any result of two decimals of 76 digits
_FACTORIAL_MAX = 20  # 21! does not fit in 64 bits


def by_kernel(name: str) -> Callable[[Value], pa.Array]:
    """The named kernel for one float. It keeps nulls, and its results are the same on every machine."""

    def compute(value: Value) -> pa.Array:
        (array,) = broadcast(value)
        values = array.to_numpy(zero_copy_only=False)
        results = np.frombuffer(memoryview(float_function(name, values, values.itemsize)), values.dtype)
        return _mask(results, array)

    return compute


def _mask(values: np.ndarray, *sources: pa.Array) -> pa.Array:
    mask = np.zeros(len(values), dtype=np.bool_)
    for source in sources:
        if source.null_count:
            mask |= source.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, mask=mask)


def round_number(value: Value, digits: Value | None = None) -> Value:
    """Round to a number of digits, halves away from zero."""
    if pa.types.is_decimal(value.type):
        return _round_decimal(value, pa.scalar(0) if digits is None else digits)
    return _at_digits(_to_nearest, value, digits)


def _round_decimal(value: Value, digits: Value) -> pa.Array:
    """Round a decimal. A literal sets the scale of the result; for a column the precision grows by one."""
    source = value.type
    make_type = pa.decimal256 if source.bit_width > 128 else pa.decimal128
    if isinstance(digits, pa.Scalar):
        to = make_type(source.precision, min(max(digits.as_py() or 0, 0), source.scale))
    else:
        to = make_type(min(source.precision + 1, 76 if source.bit_width > 128 else 38), source.scale)

    def round_one(number: decimal.Decimal, places: int) -> decimal.Decimal:
        with decimal.localcontext(prec=_EXACT_DIGITS, rounding=decimal.ROUND_HALF_UP):
            unit = decimal.Decimal((0, (1,), -max(min(places, source.scale), -source.precision - 1)))
            return number.quantize(unit).quantize(decimal.Decimal((0, (1,), -to.scale)))

    return by_value(round_one, to, value, digits)


def truncate(value: Value, digits: Value | None = None) -> Value:
    """Cut after a number of digits."""
    if digits is not None:
        return _at_digits(pc.trunc, value, digits)
    zero = pa.scalar(0, value.type)
    return pc.if_else(pc.equal(value, zero), zero, pc.trunc(value))  # -0.0 gives 0.0, but -0.5 gives -0.0


def _to_nearest(value: Value) -> Value:
    return pc.round(value, round_mode="half_towards_infinity")


def _at_digits(function: Callable[[Value], Value], value: Value, digits: Value | None) -> Value:
    """`function(value * 10**digits) / 10**digits`, in the value's own width."""
    if digits is None:
        return function(value)
    scale = pc.power(pa.scalar(10, value.type), digits.cast(value.type))
    return pc.divide(function(pc.multiply(value, scale)), scale)


_common_logarithm, _natural_logarithm = by_kernel("log"), by_kernel("ln")


def logarithm(first: Value, second: Value | None = None) -> Value:
    """`log(x)` to the base 10, `log(base, x)` to any base."""
    if second is None:
        return _common_logarithm(first)
    base, value = broadcast(pc.cast(first, second.type, safe=False), second)
    return pc.divide(_natural_logarithm(value), _natural_logarithm(base))


def is_zero(value: Value) -> Value:
    """True for 0.0 and -0.0."""
    return pc.equal(value, pa.scalar(0, value.type))


def first_number(value: Value, otherwise: Value) -> Value:
    """The second argument where the first is NaN."""
    return pc.if_else(pc.is_nan(value), otherwise, value)


def remainder(left: Value, right: Value) -> Value:
    """The remainder, with the sign of the dividend. Raises pa.ArrowInvalid for integers divided by zero."""
    if pa.types.is_integer(left.type):
        if pa.types.is_signed_integer(left.type):  # the smallest / -1 overflows; its remainder is the same as for 1
            plus_one, minus_one = pa.scalar(1, right.type), pa.scalar(-1, right.type)
            right = pc.if_else(pc.equal(right, minus_one), plus_one, right)
        return pc.subtract(left, pc.multiply(pc.divide(left, right), right))
    both = broadcast(left, right)
    with np.errstate(all="ignore"):
        remainders = np.fmod(*[pc.fill_null(operand.cast(_FLOAT), 1.0).to_numpy() for operand in both])
    return _mask(remainders, *both).cast(left.type)


def decimal_type(operation: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The result type of arithmetic with two decimal types; its precision is at most the type's largest.

    Raises pa.ArrowInvalid if the scale alone exceeds that.
    """
    most = 76 if max(left.bit_width, right.bit_width) > 128 else 38
    precision, scale = _digits(operation, left, right, most)
    make = pa.decimal256 if most > 38 else pa.decimal128
    if scale > most:
        raise pa.ArrowInvalid(f"decimals of {left} and {right} have a result of {scale} digits behind the point")
    return make(min(precision, most), scale)


def _digits(operation: str, left: pa.DataType, right: pa.DataType, most: int) -> tuple[int, int]:
    """The precision and scale that fit every result of an operation."""
    whole = left.precision - left.scale, right.precision - right.scale
    scale = max(left.scale, right.scale)
    match operation:
        case "multiply":
            return left.precision + right.precision + 1, left.scale + right.scale
        case "divide":
            scale = min(left.scale + 4, most)
            return whole[0] + right.scale + scale, scale
        case "remainder":
            return min(whole) + scale, scale
        case _:
            return max(whole) + scale + 1, scale


def by_decimals(operation: str) -> Callable[[Value, Value], Value]:
    """Arithmetic of decimals of any number of digits: `add`, `subtract`, `multiply`, `divide` or `remainder`.

    Quotients are cut; Arrow does not compute them, because its long division fails for some powers of two. Raises
    pa.ArrowInvalid for a result that does not fit its type, and for a division by zero.
    """

    def compute(left: Value, right: Value) -> Value:
        to = decimal_type(operation, left.type, right.type)
        fast = _WIDE.get(operation)
        result = fast(left, right, to) if fast else None
        if result is not None:
            return result
        exactly, unit = _EXACT[operation], decimal.Decimal((0, (1,), -to.scale))

        def compute_one(above: decimal.Decimal, below: decimal.Decimal) -> decimal.Decimal:
            if not below and operation in ("divide", "remainder"):
                raise pa.ArrowInvalid("divide by zero")
            return exactly(above, below).quantize(unit)

        with decimal.localcontext(prec=_EXACT_DIGITS, rounding=decimal.ROUND_DOWN):
            return by_value(compute_one, to, left, right)

    return compute


_EXACT: dict[str, Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "remainder": operator.mod,
}


def _wide(value: Value) -> Value:
    return pc.cast(value, pa.decimal256(value.type.precision, value.type.scale))


def _by_arrow(operation: str) -> Callable[[Value, Value, pa.DataType], Value | None]:
    """The operation by Arrow with twice the digits; None if the result may need more."""

    def compute(left: Value, right: Value, to: pa.DataType) -> Value | None:
        if _digits(operation, left.type, right.type, 76)[0] > 76:
            return None
        return pc.cast(getattr(pc, operation)(_wide(left), _wide(right)), to)

    return compute


_WIDE = {
    "add": _by_arrow("add"),
    "subtract": _by_arrow("subtract"),
    "multiply": _by_arrow("multiply"),
}


def _of_integers(function: Callable[[np.ndarray, np.ndarray], np.ndarray], left: Value, right: Value) -> pa.Array:
    both = broadcast(left, right)
    return _mask(function(*[pc.fill_null(operand, 1).to_numpy() for operand in both]), *both)


def greatest_common_divisor(left: Value, right: Value) -> pa.Array:
    """The gcd of the absolute values; gcd(0, 0) is 0."""
    return _of_integers(np.gcd, left, right)


def least_common_multiple(left: Value, right: Value) -> pa.Array:
    """The lcm of the absolute values; 0 if one of them is 0."""
    return _of_integers(np.lcm, left, right)


def factorial(value: Value) -> pa.Array:
    """The factorial of 0 to 20; 1 for negative numbers. Raises pa.ArrowInvalid above 20."""

    def factorial_of(number: int) -> int:
        if number > _FACTORIAL_MAX:
            raise pa.ArrowInvalid(f"Overflow happened on FACTORIAL({number})")
        return math.factorial(max(number, 0))

    return by_value(factorial_of, _INT, value)


DECIMALS = {
    name: SqlFunction(("any", "any"), by_decimals(name))
    for name in ("add", "subtract", "multiply", "divide", "remainder")
}
"""Arithmetic of decimals, which has no names in SQL text."""

FUNCTIONS = SqlFunctions()
FUNCTIONS.define("%", "same same", remainder)
FUNCTIONS.define("abs", "number", pc.abs_checked)
FUNCTIONS.define("power pow", "float float", pc.power)
FUNCTIONS.define("round", "exact int?", round_number)
FUNCTIONS.define("trunc", "real int?", truncate)
FUNCTIONS.define("floor", "real", pc.floor)
FUNCTIONS.define("ceil", "real", pc.ceil)
FUNCTIONS.define("log", "real real?", logarithm)
for _name in (
    "sin cos tan cot asin acos atan sinh cosh tanh asinh acosh atanh sqrt cbrt exp ln log2 log10 degrees radians signum"
).split():
    FUNCTIONS.define(_name, "real", by_kernel(_name))
FUNCTIONS.define("atan2", "reals reals", pc.atan2)
FUNCTIONS.define("isnan", "real", pc.is_nan)
FUNCTIONS.define("iszero", "real", is_zero)
FUNCTIONS.define("nanvl", "reals reals", first_number)
FUNCTIONS.define("gcd", "int int", greatest_common_divisor)
FUNCTIONS.define("lcm", "int int", least_common_multiple)
FUNCTIONS.define("factorial", "int", factorial)
