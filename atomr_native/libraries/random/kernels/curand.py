"""Numbers of cuRAND's Philox4x32-10, by the formulas of its kernels: uniform, normal and lognormal ones.

Words of 32 bits become numbers above 0 and at most 1; normal numbers come in pairs, first the sine and then the cosine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import formulas
from .functions import Arithmetic, cosine_and_sine, logarithm

__all__ = ["DRAWS", "FINISHES"]


def _number(o: Arithmetic) -> Any:
    """Return the function from two words to a number above 0 and at most 1: of the first alone in float32."""
    mul, to_real, of_word, real = o.mul, o.to_real, o.of_word, o.real
    if real is np.float32:
        unit, half = real(2.0**-32), real(2.0**-33)

        def single(a: Any, b: Any) -> Any:
            return mul(of_word(a), unit) + half

        return o.function(single)
    unit, half = real(2.0**-53), real(2.0**-54)

    def double(a: Any, b: Any) -> Any:
        return mul(to_real(a ^ b << 21), unit) + half

    return o.function(double)


def _draw_uniform(o: Arithmetic, _bits: int) -> Any:
    one = _number(o)
    if o.real is np.float32:
        return o.function(lambda w: (one(w[0], w[0]), one(w[1], w[1]), one(w[2], w[2]), one(w[3], w[3])))
    return o.function(lambda w: (one(w[0], w[1]), one(w[2], w[3])))


def _draw_normal(o: Arithmetic, _bits: int) -> Any:
    mul, root, minus_two, log, number = o.mul, o.near_root, o.real(-2), logarithm(o), _number(o)
    single = o.real is np.float32
    both = cosine_and_sine(o, 33 if single else 54)

    def pair(a: Any, b: Any, angle: Any) -> Any:
        radius = root(mul(minus_two, log(number(a, b))))
        along, across = both(2 * angle + 1)
        return mul(radius, across), mul(radius, along)

    pair = o.function(pair)
    if not single:
        return o.function(lambda w: pair(w[0], w[1], w[2] ^ w[3] << 21))

    def quad(w: Any) -> Any:
        a, b = pair(w[0], w[0], w[1])
        c, d = pair(w[2], w[2], w[3])
        return a, b, c, d

    return o.function(quad)


def _finish_uniform(o: Arithmetic, _rounded: Any, _below: Any) -> Any:
    mul = o.mul
    return o.function(lambda z, low, high, _c, _d: low + mul(high - low, z))


#: By distribution, as in `formulas`.
DRAWS: Final[dict[str, Callable[[Arithmetic, int], Any]]] = {
    "uniform": _draw_uniform,
    "normal": _draw_normal,
    "lognormal": _draw_normal,
}
FINISHES: Final[dict[str, Callable[[Arithmetic, Any, Any], Any]]] = {
    "uniform": _finish_uniform,
    "normal": formulas.FINISHES["normal"],
    "lognormal": formulas.FINISHES["lognormal"],
}
