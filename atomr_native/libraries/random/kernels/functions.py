"""Elementary functions of steps that are each rounded once, in one order: the same bits on every device.

Each function here makes one for an `Arithmetic`: NumPy's for arrays, or that of a kernel for one number.  Nothing is
contracted, and no mathematics library is asked.  Series are those of Taylor, cut where the next term is below a quarter
of a rounding.  Angles are whole numbers, so that their reduction is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import factorial
from typing import Any, Final, NamedTuple

import numpy as np

__all__ = ["Arithmetic", "cosine_and_sine", "exponential", "logarithm", "logarithm_of_complement"]

_LN2: Final = Fraction("0.6931471805599453094172321214581765680755001343602552541206800")
_PI: Final = Fraction("3.1415926535897932384626433832795028841971693993751058209749446")


class Arithmetic(NamedTuple):
    """Operations of a computation type on one kind of device.

    Attributes
    ----------
    real : type
        ``np.float32`` or ``np.float64``.
    function : callable
        Decorator of functions that use the operations.
    mul, root : callable
        Product and square root.
    quotient : callable
        Quotient, of a divisor from 1/2 to 4, and a dividend of 0 or from ``2**-30`` to 4 in size.
    near_root : callable
        Square root of 0 and of numbers from ``2**-100`` to ``2**100``.
    floor : callable
        Largest whole number that is not larger; float64 only.
    select : callable
        ``select(condition, a, b)``: a where it holds, else b.
    bits, of_bits : callable
        A number's bits as int64, and back.
    to_real, to_int : callable
        From int64, and to it from a whole number; float32 only from numbers of 32 bits with a sign.
    of_word : callable
        From a word: int64 from 0 to ``2**32 - 1``.
    search : callable
        ``search(u, first, a, b)``: how many terms of a series have a sum that is not above u; the first is given, the
        k-th is ``a + b / k`` times the one before; at most 200.  float64 only.
    """

    real: Any
    function: Callable[[Any], Any]
    mul: Any
    root: Any
    quotient: Any
    near_root: Any
    floor: Any
    select: Any
    bits: Any
    of_bits: Any
    to_real: Any
    to_int: Any
    of_word: Any
    search: Any


class _Format(NamedTuple):
    """A computation type: bits of the mantissa, bias; terms of series; bits of the first part of ln 2."""

    mantissa: int
    bias: int
    half_root: int  # bits of sqrt(1/2)
    logarithm: int
    exponential: int
    sine: int
    least: float  # exp of less is 0
    most: float  # exp of more is infinite
    magic: float  # a sum with it is rounded to a whole number
    head: int


_FORMATS: Final = {
    np.float32: _Format(23, 127, 0x3F3504F3, 4, 7, 5, -104.0, 89.0, 1.5 * 2.0**23, 12),
    np.float64: _Format(52, 1023, 0x3FE6A09E667F3BCD, 10, 13, 8, -746.0, 710.0, 1.5 * 2.0**52, 32),
}


def _two_parts(number: Fraction, real: Any, bits: int) -> tuple[Any, Any]:
    """Return a number as the sum of two, the first of which has so many bits after the point."""
    head = Fraction(int(number * 2**bits), 2**bits)
    return real(float(head)), real(float(number - head))


def _polynomial(o: Arithmetic, coefficients: list[Fraction]) -> Any:
    """Return the function ``c0 + x * (c1 + x * (c2 + ...))``, by Horner's rule."""
    mul = o.mul
    first, *others = (o.real(float(c)) for c in reversed(coefficients))
    rest = tuple(others)

    def polynomial(x: Any) -> Any:
        total = first
        for c in rest:
            total = mul(total, x) + c
        return total

    return o.function(polynomial)


def logarithm(o: Arithmetic) -> Any:
    """Return the natural logarithm of positive numbers that are not subnormal.

    The mantissa is 1 + f, from sqrt(1/2) to sqrt(2); with s = f / (2 + f), its logarithm is 2 artanh(s).
    """
    form, real, mul, bits, of_bits, to_real = _FORMATS[o.real], o.real, o.mul, o.bits, o.of_bits, o.to_real
    shift, half_root, one, two, half = form.mantissa, form.half_root, real(1), real(2), real(0.5)
    quotient = o.quotient
    high, low = _two_parts(_LN2, real, form.head)
    series = _polynomial(o, [Fraction(2, 2 * i + 3) for i in range(form.logarithm)])

    def log(x: Any) -> Any:
        word = bits(x)
        exponent = (word - half_root) >> shift
        power = to_real(exponent)
        f = of_bits(word - (exponent << shift)) - one
        s = quotient(f, two + f)
        z = mul(s, s)
        square = mul(half, mul(f, f))
        rest = mul(s, square + mul(z, series(z))) + mul(power, low)
        return mul(power, high) - ((square - rest) - f)

    return o.function(log)


def logarithm_of_complement(o: Arithmetic) -> Any:
    """Return log(1 - x) for x from 0 to less than 1, exact also where x is small (W. Kahan's correction)."""
    mul, select, one, zero, log = o.mul, o.select, o.real(1), o.real(0), logarithm(o)

    def complement(x: Any) -> Any:
        rounded = one - x
        lost = one - rounded
        whole = select(lost == zero, one, lost)
        return select(lost == zero, zero - x, mul(log(rounded), x / whole))

    return o.function(complement)


def exponential(o: Arithmetic) -> Any:
    """Return e to the power of any number but NaN, which becomes 0: 2**k times a series in the rest of x / ln 2."""
    form, real, mul, select, of_bits, to_int = _FORMATS[o.real], o.real, o.mul, o.select, o.of_bits, o.to_int
    least, most, magic, unit = real(form.least), real(form.most), real(form.magic), real(float(1 / _LN2))
    shift, bias = form.mantissa, form.bias
    high, low = _two_parts(_LN2, real, form.head)
    series = _polynomial(o, [Fraction(1, factorial(i)) for i in range(form.exponential + 1)])

    def exp(x: Any) -> Any:
        x = select(x > least, x, least)
        x = select(x < most, x, most)
        count = (mul(x, unit) + magic) - magic
        value = series((x - mul(count, high)) - mul(count, low))
        power = to_int(count)
        first = power >> 1
        return mul(mul(value, of_bits((first + bias) << shift)), of_bits((power - first + bias) << shift))

    return o.function(exp)


def cosine_and_sine(o: Arithmetic, turn: int) -> Any:
    """Return cosine and sine of the angle of which ``2**turn`` are a full turn, from 0 to less than one."""
    form, real, mul, select, to_real = _FORMATS[o.real], o.real, o.mul, o.select, o.to_real
    eighth, quarter, unit, zero = 1 << (turn - 3), turn - 2, real(float(2 * _PI / 2**turn)), real(0)
    sine = _polynomial(o, [Fraction((-1) ** i, factorial(2 * i + 1)) for i in range(1, form.sine + 1)])
    cosine = _polynomial(o, [Fraction((-1) ** i, factorial(2 * i)) for i in range(form.sine + 1)])

    def both(angle: Any) -> Any:
        number = (angle + eighth) >> quarter
        x = mul(to_real(angle - (number << quarter)), unit)
        square = mul(x, x)
        s, c = x + mul(x, mul(square, sine(square))), cosine(square)
        odd, back, down = (number & 1) == 1, ((number + 1) & 2) == 2, (number & 2) == 2
        along, across = select(odd, s, c), select(odd, c, s)
        return select(back, zero - along, along), select(down, zero - across, across)

    return o.function(both)
