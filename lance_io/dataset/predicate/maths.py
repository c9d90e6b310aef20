"""Numeric functions of text filters. Floats keep their width, integers wrap where nothing else is said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io._kernels import float_function
from lance_io.dataset.predicate.rows import arrays, by_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.dataset.predicate.rows import Value

_FLOAT, _INT = pa.float64(), pa.int64()
_WIDE_DIGITS = 36  # the quotient of two such decimals has 73 digits, of 76 that Arrow holds
_FACTORIAL_MAX = 20  # 21! does not fit in 64 bits


def by_kernel(name: str) -> Callable[[Value], pa.Array]:
    """The function of one float of that name, which keeps nulls; the same on every machine."""

    def compute(value: Value) -> pa.Array:
        (array,) = arrays(value)
        values = array.to_numpy(zero_copy_only=False)
        found = np.frombuffer(memoryview(float_function(name, values, values.itemsize)), values.dtype)
        return _masked(found, array)

    return compute


def _masked(found: np.ndarray, *sources: pa.Array) -> pa.Array:
    mask = np.zeros(len(found), dtype=np.bool_)
    for source in sources:
        if source.null_count:
            mask |= source.is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=mask)


def rounded(value: Value, digits: Value | None = None) -> Value:
    """To a number of digits, halves away from zero."""
    return _at_digits(_to_nearest, value, digits)


def truncated(value: Value, digits: Value | None = None) -> Value:
    """Cut after a number of digits."""
    if digits is not None:
        return _at_digits(pc.trunc, value, digits)
    zero = pa.scalar(0, value.type)
    return pc.if_else(pc.equal(value, zero), zero, pc.trunc(value))  # -0.0 gives 0.0, but -0.5 gives -0.0


def _to_nearest(value: Value) -> Value:
    return pc.round(value, round_mode="half_towards_infinity")


def _at_digits(function: Callable[[Value], Value], value: Value, digits: Value | None) -> Value:
    """A function of the value times a power of ten, which the result is divided by: in the value's own width."""
    if digits is None:
        return function(value)
    scale = pc.power(pa.scalar(10, value.type), digits.cast(value.type))
    return pc.divide(function(pc.multiply(value, scale)), scale)


_common_logarithm, _natural_logarithm = by_kernel("log"), by_kernel("ln")


def logarithm(first: Value, second: Value | None = None) -> Value:
    """`log(x)` to the base 10, `log(base, x)` to another."""
    if second is None:
        return _common_logarithm(first)
    base, value = arrays(pc.cast(first, second.type, safe=False), second)
    return pc.divide(_natural_logarithm(value), _natural_logarithm(base))


def is_zero(value: Value) -> Value:
    """True for 0.0 and -0.0."""
    return pc.equal(value, pa.scalar(0, value.type))


def first_number(value: Value, otherwise: Value) -> Value:
    """The second argument where the first is NaN."""
    return pc.if_else(pc.is_nan(value), otherwise, value)


def remainder(left: Value, right: Value) -> Value:
    """What division leaves, with the sign of the dividend. Raises pa.ArrowInvalid for integers divided by zero."""
    if pa.types.is_integer(left.type):
        return pc.subtract(left, pc.multiply(pc.divide(left, right), right))
    if pa.types.is_decimal(left.type):
        wide = pa.decimal256(_WIDE_DIGITS, left.type.scale)
        left, right = pc.cast(left, wide), pc.cast(right, wide)
        whole = pc.cast(pc.trunc(pc.divide(left, right)), pa.decimal256(_WIDE_DIGITS, 0), safe=False)
        return pc.cast(pc.subtract(left, pc.multiply(whole, right)), pa.decimal128(38, wide.scale))
    both = arrays(left, right)
    with np.errstate(all="ignore"):
        found = np.fmod(*[pc.fill_null(one.cast(_FLOAT), 1.0).to_numpy() for one in both])
    return _masked(found, *both).cast(left.type)


def decimal_quotient(left: Value, right: Value) -> Value:
    """Two decimals divided, cut four digits after those of the first. Raises pa.ArrowInvalid for zero."""
    above, below = left.type, right.type
    scale = min(above.scale + 4, 38)
    precision = min(above.precision - above.scale + below.scale + scale, 38)
    divisor = pa.decimal256(max(below.precision, below.scale + 3), below.scale)  # Arrow's scale depends on its digits
    found = pc.divide(pc.cast(left, pa.decimal256(above.precision, above.scale)), pc.cast(right, divisor))
    return pc.cast(found, options=pc.CastOptions(pa.decimal128(precision, scale), allow_decimal_truncate=True))


def _of_integers(function: Callable[[np.ndarray, np.ndarray], np.ndarray], left: Value, right: Value) -> pa.Array:
    both = arrays(left, right)
    return _masked(function(*[pc.fill_null(one, 1).to_numpy() for one in both]), *both)


def greatest_common_divisor(left: Value, right: Value) -> pa.Array:
    """Of the absolute values; gcd(0, 0) is 0."""
    return _of_integers(np.gcd, left, right)


def least_common_multiple(left: Value, right: Value) -> pa.Array:
    """Of the absolute values; 0 when one of them is 0."""
    return _of_integers(np.lcm, left, right)


def factorial(value: Value) -> pa.Array:
    """Of 0 to 20; 1 for negative numbers. Raises pa.ArrowInvalid above."""

    def one(number: int) -> int:
        if number > _FACTORIAL_MAX:
            raise pa.ArrowInvalid(f"Overflow happened on FACTORIAL({number})")
        return math.factorial(max(number, 0))

    return by_value(one, _INT, value)


def pi() -> pa.Scalar:
    """The number."""
    return pa.scalar(math.pi)


def random(num_rows: int) -> pa.Array:
    """Numbers from 0 to 1, another one for each row."""
    return pa.array(np.random.default_rng().random(num_rows))
