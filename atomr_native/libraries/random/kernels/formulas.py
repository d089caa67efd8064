"""Distributions: how words become numbers, by operations that an `Arithmetic` has.

Sources of the methods are in docs/libraries/random.md.  A method by inversion has two parts: ``draw`` of a counter's
four words makes four numbers, or two of 53 bits; ``finish`` of a number and an element's parameters makes the element.
A method by rejection has one, ``attempt`` of twelve words and the parameters: whether it is accepted, and the element.
Parameters that a distribution does not have are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .functions import Arithmetic, cosine_and_sine, exponential, logarithm, logarithm_of_complement

__all__ = ["ATTEMPTS", "DRAWS", "FINISHES", "allowed", "below"]

#: sqrt(2 pi), and log(2 pi) / 2: as numbers, since mathematics libraries differ in the last place.
_ROOT_OF_TURN: Final = 2.5066282746310002
_STIRLING: Final = 0.9189385332046727


# ------------------------------------------------------------------------------------- numbers between 0 and 1


def _open(o: Arithmetic) -> Any:
    """Return the function from two words to a number above 0 and at most 1: of the first alone in float32."""
    mul, to_real, of_word, real = o.mul, o.to_real, o.of_word, o.real
    if real is np.float32:
        unit, half = real(2.0**-32), real(2.0**-33)

        def single(a: Any, b: Any) -> Any:
            return mul(of_word(a), unit) + half

        return o.function(single)
    unit, half = real(2.0**-53), real(0.5)

    def double(a: Any, b: Any) -> Any:
        return mul(to_real((a << 21) | (b >> 11)) + half, unit)

    return o.function(double)


def _closed(o: Arithmetic, bits: int) -> Any:
    """Return the function from two words to a multiple of ``2**-bits`` below 1: up to 32, of the first alone."""
    mul, to_real, of_word, unit, drop = o.mul, o.to_real, o.of_word, o.real(2.0**-bits), 32 - bits
    if bits > 32:
        more, drop = bits - 32, 64 - bits

        def double(a: Any, b: Any) -> Any:
            return mul(to_real((a << more) | (b >> drop)), unit)

        return o.function(double)

    def single(a: Any, b: Any) -> Any:
        return mul(of_word(a >> drop), unit)

    return o.function(single)


def _angle(o: Arithmetic, half: bool) -> tuple[Any, int]:
    """Return the function from two words to an angle, and of how many bits it is; of half a turn if `half`."""
    wide = o.real is np.float64

    def single(a: Any, b: Any) -> Any:
        return a

    def double(a: Any, b: Any) -> Any:
        return (a << 20) | (b >> 12)

    inner = o.function(double if wide else single)
    bits = 52 if wide else 32
    if not half:
        return inner, bits

    def middle(a: Any, b: Any) -> Any:
        return 2 * inner(a, b) + 1

    return o.function(middle), bits + 2


# ------------------------------------------------------------------------------------- draws of a counter


def _each(o: Arithmetic, one: Any) -> Any:
    """Return a draw that makes a number of each word, or in float64 of each two."""
    if o.real is np.float32:
        return o.function(lambda w: (one(w[0], w[0]), one(w[1], w[1]), one(w[2], w[2]), one(w[3], w[3])))
    return o.function(lambda w: (one(w[0], w[1]), one(w[2], w[3])))


def _draw_uniform(o: Arithmetic, bits: int) -> Any:
    return _each(o, _closed(o, bits))


def _draw_log(o: Arithmetic, _bits: int) -> Any:
    log, number = logarithm(o), _open(o)
    return _each(o, o.function(lambda a, b: log(number(a, b))))


def _draw_normal(o: Arithmetic, _bits: int) -> Any:
    mul, root, minus_two, log, number = o.mul, o.near_root, o.real(-2), logarithm(o), _open(o)
    angle, turn = _angle(o, False)
    both = cosine_and_sine(o, turn)

    def pair(a: Any, b: Any, c: Any, d: Any) -> Any:
        radius = root(mul(minus_two, log(number(a, b))))
        along, across = both(angle(c, d))
        return mul(radius, along), mul(radius, across)

    pair = o.function(pair)
    if o.real is np.float64:
        return o.function(lambda w: pair(w[0], w[1], w[2], w[3]))

    def quad(w: Any) -> Any:
        a, b = pair(w[0], w[0], w[1], w[1])
        c, d = pair(w[2], w[2], w[3], w[3])
        return a, b, c, d

    return o.function(quad)


def _draw_cauchy(o: Arithmetic, _bits: int) -> Any:
    angle, turn = _angle(o, True)
    both = cosine_and_sine(o, turn)

    def one(a: Any, b: Any) -> Any:
        along, across = both(angle(a, b))
        return along / across

    return _each(o, o.function(one))


def _draw_words(o: Arithmetic, _bits: int) -> Any:
    of_word = o.of_word
    return o.function(lambda w: (of_word(w[0]), of_word(w[1]), of_word(w[2]), of_word(w[3])))


#: By distribution: ``make(arithmetic, bits)``, where uniform numbers have that many.
DRAWS: Final[dict[str, Callable[[Arithmetic, int], Any]]] = {
    "uniform": _draw_uniform,
    "normal": _draw_normal,
    "lognormal": _draw_normal,
    "exponential": _draw_log,
    "cauchy": _draw_cauchy,
    "geometric": _draw_log,
    "bernoulli": _draw_words,
}


# ------------------------------------------------------------------------------------- from draws to elements


def _finish_uniform(o: Arithmetic, rounded: Any, below: Any) -> Any:
    mul, select = o.mul, o.select

    def uniform(z: Any, low: Any, high: Any, _c: Any, _d: Any) -> Any:
        low, high = rounded(low), rounded(high)
        value = rounded(low + mul(high - low, z))
        return select((value >= high) & (high > low), below(high), value)

    return o.function(uniform)


def _finish_scaled(o: Arithmetic, _rounded: Any, _below: Any) -> Any:
    mul = o.mul
    return o.function(lambda z, loc, scale, _c, _d: loc + mul(scale, z))


def _finish_lognormal(o: Arithmetic, _rounded: Any, _below: Any) -> Any:
    mul, exp = o.mul, exponential(o)
    return o.function(lambda z, mean, sigma, _c, _d: exp(mean + mul(sigma, z)))


def _finish_exponential(o: Arithmetic, _rounded: Any, _below: Any) -> Any:
    mul, zero = o.mul, o.real(0)
    return o.function(lambda z, scale, _b, _c, _d: mul(scale, zero - z))


def _finish_geometric(o: Arithmetic, _rounded: Any, _below: Any) -> Any:
    select, floor, one, half, complement = o.select, o.floor, o.real(1), o.real(0.5), logarithm_of_complement(o)

    def geometric(z: Any, p: Any, _b: Any, _c: Any, _d: Any) -> Any:
        trials = one + floor(z / complement(select(p < one, p, half)))
        return select(p < one, trials, one)

    return o.function(geometric)


def _finish_bernoulli(o: Arithmetic, _rounded: Any, _below: Any) -> Any:
    mul, select, words, one, zero = o.mul, o.select, o.real(2.0**32), o.real(1), o.real(0)
    return o.function(lambda z, p, _b, _c, _d: select(z < mul(p, words), one, zero))


#: By distribution: ``make(arithmetic, rounded, below)`` of the functions that round a number to the element's type,
#: and to the largest of it below a number.
FINISHES: Final[dict[str, Callable[[Arithmetic, Any, Any], Any]]] = {
    "uniform": _finish_uniform,
    "normal": _finish_scaled,
    "lognormal": _finish_lognormal,
    "exponential": _finish_exponential,
    "cauchy": _finish_scaled,
    "geometric": _finish_geometric,
    "bernoulli": _finish_bernoulli,
}


def below(o: Arithmetic, dtype: str) -> Any:
    """Return the function to the largest number of a floating-point dtype below a number of that dtype."""
    bits, of_bits, select, real = o.bits, o.of_bits, o.select, o.real
    step = {"float64": 1, "float32": 1, "bfloat16": 1 << 16, "float16": 1 << 13}[dtype]
    sign = -(2**63) if dtype == "float64" else 1 << 31
    zero, subnormal, gap = real(0), real(2.0**-14), real(2.0**-24)

    def neighbour(x: Any) -> Any:
        word = bits(x)
        return of_bits(select(x > zero, word - step, select(x < zero, word + step, sign + step)))

    neighbour = o.function(neighbour)

    def narrow(x: Any) -> Any:
        return select((x <= subnormal) & (x >= zero - subnormal), x - gap, neighbour(x))

    return o.function(narrow) if dtype == "float16" else neighbour


# ------------------------------------------------------------------------------------- rejection


def _attempt_truncated(o: Arithmetic) -> Any:
    """Proposals from the normal, the uniform or the exponential distribution, by the place of the bounds."""
    mul, root, select, real = o.mul, o.root, o.select, o.real
    zero, half, one, two, four = real(0), real(0.5), real(1), real(2), real(4)
    narrow = real(_ROOT_OF_TURN)
    number, closed, log = _open(o), _closed(o, 53), logarithm(o)
    angle, turn = _angle(o, False)
    both = cosine_and_sine(o, turn)

    def truncated(w: Any, mean: Any, std: Any, low: Any, high: Any) -> Any:
        a, b = (low - mean) / std, (high - mean) / std
        flipped = b < zero
        a, b = select(flipped, zero - b, a), select(flipped, zero - a, b)
        tail = a > zero
        start = select(tail, a, zero)
        rate = mul(half, start + root(mul(start, start) + four))
        width = b - a
        flat = select(tail, mul(width, rate) < one, width < narrow)
        chance = log(number(w[0], w[1]))
        along, _ = both(angle(w[2], w[3]))
        normal = mul(root(mul(real_minus_two, chance)), along)
        uniform = a + mul(select(flat, width, one), closed(w[0], w[1]))
        steep = start - chance / rate
        x = select(flat, uniform, select(tail, steep, normal))
        off = x - rate
        bound = select(
            flat, mul(half, mul(start, start) - mul(x, x)), select(tail, mul(real_minus_half, mul(off, off)), zero)
        )
        found = (log(number(w[4], w[5])) <= bound) & (x >= a) & (x <= b)
        value = mean + mul(std, select(flipped, zero - x, x))
        value = select(value < low, low, select(value > high, high, value))
        return found, value

    real_minus_two, real_minus_half = zero - two, zero - half
    return o.function(truncated)


def _gamma_parts(o: Arithmetic) -> Any:
    """Return an attempt at a gamma variate: whether it is accepted, the variate of shape or shape + 1, and a logarithm.

    Of a standard normal number, of logarithms of two uniform numbers, and of the shape.  The variate times e to the
    power of the logarithm has the shape.
    """
    mul, root, select, real, log = o.mul, o.root, o.select, o.real, logarithm(o)
    zero, one, half, nine, third = real(0), real(1), real(0.5), real(9), real(1 / 3)

    def parts(x: Any, chance: Any, boost: Any, shape: Any) -> Any:
        small = shape < one
        d = select(small, shape + one, shape) - third
        t = one + x / root(mul(nine, d))
        fits = t > zero
        t = select(fits, t, one)
        v = mul(t, mul(t, t))
        bound = mul(half, mul(x, x)) + mul(d, (one - v) + log(v))
        return fits & (chance < bound), mul(d, v), select(small, boost / shape, zero)

    return o.function(parts)


def _attempt_gamma(o: Arithmetic) -> Any:
    mul, parts, exp, log, number = o.mul, _gamma_parts(o), exponential(o), logarithm(o), _open(o)
    normal = _draw_normal(o, 0)

    def gamma(w: Any, shape: Any, scale: Any, _c: Any, _d: Any) -> Any:
        x, _ = normal((w[0], w[1], w[2], w[3]))
        found, variate, boost = parts(x, log(number(w[4], w[5])), log(number(w[6], w[7])), shape)
        return found, mul(scale, mul(variate, exp(boost)))

    return o.function(gamma)


def _attempt_beta(o: Arithmetic) -> Any:
    select, parts, exp, log, number = o.select, _gamma_parts(o), exponential(o), logarithm(o), _open(o)
    normal, zero, one = _draw_normal(o, 0), o.real(0), o.real(1)
    mul, of_word, unit, half = o.mul, o.of_word, o.real(2.0**-32), o.real(2.0**-33)

    def chance(word: Any) -> Any:
        return log(mul(of_word(word), unit) + half)

    chance = o.function(chance)

    def beta(w: Any, a: Any, b: Any, _c: Any, _d: Any) -> Any:
        x, y = normal((w[0], w[1], w[2], w[3]))
        first, one_variate, one_boost = parts(x, chance(w[8]), log(number(w[4], w[5])), a)
        second, other_variate, other_boost = parts(y, chance(w[9]), log(number(w[6], w[7])), b)
        apart = (log(other_variate) + other_boost) - (log(one_variate) + one_boost)
        large = apart > zero
        ratio = exp(select(large, zero - apart, apart))
        return first & second, select(large, ratio, one) / (one + ratio)

    return o.function(beta)


def _tail_of_factorial(o: Arithmetic) -> tuple[Any, Any]:
    """Return log(k!) for whole numbers below 10, and log(k!) minus Stirling's formula at k + 1 for all."""
    mul, select, real, log = o.mul, o.select, o.real, logarithm(o)
    half, one, zero, ten = real(0.5), real(1), real(0), real(10)
    root = real(_STIRLING)
    c1, c2, c3, c4 = real(1 / 12), real(1 / 360), real(1 / 1260), real(1 / 1680)
    n2, n3, n4, n5, n6, n7, n8, n9 = (real(n) for n in range(2, 10))

    def small(k: Any) -> Any:
        product = select(k >= n2, n2, one)
        product = mul(product, select(k >= n3, n3, one))
        product = mul(product, select(k >= n4, n4, one))
        product = mul(product, select(k >= n5, n5, one))
        product = mul(product, select(k >= n6, n6, one))
        product = mul(product, select(k >= n7, n7, one))
        product = mul(product, select(k >= n8, n8, one))
        return log(mul(product, select(k >= n9, n9, one)))

    small = o.function(small)

    def tail(k: Any) -> Any:
        y = one + select(k > zero, k, zero)
        square = mul(y, y)
        series = (c1 - (c2 - (c3 - c4 / square) / square) / square) / y
        exact = small(k) - ((mul(y - half, log(y)) - y) + root)
        return select(k < ten, exact, series)

    return small, o.function(tail)


def _attempt_poisson(o: Arithmetic) -> Any:
    """Below 10 by sums of probabilities; from there on by transformed rejection."""
    mul, root, select, floor, search, real = o.mul, o.root, o.select, o.floor, o.search, o.real
    zero, one, half, ten = real(0), real(1), real(0.5), real(10)
    stirling = real(_STIRLING)
    a0, a1, b0, b1 = real(-0.059), real(0.02483), real(0.931), real(2.53)
    i0, i1, i2, r0, r1, two = real(1.1239), real(1.1328), real(3.4), real(0.9277), real(3.6224), real(2)
    near, edge, middle = real(0.07), real(0.013), real(0.43)
    closed, number, log, exp = _closed(o, 53), _open(o), logarithm(o), exponential(o)
    tail = _tail_of_factorial(o)[1]

    def large(w: Any, rate: Any) -> Any:
        b = b0 + mul(b1, root(rate))
        a = a0 + mul(a1, b)
        u, v = closed(w[0], w[1]) - half, number(w[2], w[3])
        us = half - select(u < zero, zero - u, u)
        inside = us > zero
        us = select(inside, us, half)
        k = floor(mul(mul(two, a) / us + b, u) + (rate + middle))
        quick = (us >= near) & (v <= r0 - r1 / (b - two))
        slow = (k >= zero) & ((us >= edge) | (v <= us))
        k = select(k < zero, zero, k)
        y = k + one
        left = (log(v) + log(i0 + i1 / (b - i2))) - log(a / mul(us, us) + b)
        right = (((k - rate) + one) + mul(k, log(rate / y))) - ((mul(half, log(y)) + stirling) + tail(k))
        return inside & (quick | (slow & (left <= right))), k

    large = o.function(large)

    def poisson(w: Any, rate: Any, _b: Any, _c: Any, _d: Any) -> Any:
        few = rate < ten
        found, k = large(w, select(few, ten, rate))
        less = select(few, rate, zero)
        counted = search(closed(w[0], w[1]), exp(zero - less), zero, less)
        return found | few, select(few, counted, k)

    return o.function(poisson)


def _attempt_binomial(o: Arithmetic) -> Any:
    """Where the mean is below 10 by sums of probabilities; from there on by transformed rejection."""
    mul, root, select, floor, search, real = o.mul, o.root, o.select, o.floor, o.search, o.real
    zero, one, half, ten, two, twenty = real(0), real(1), real(0.5), real(10), real(2), real(20)
    b0, b1, a0, a1, a2 = real(1.15), real(2.53), real(-0.0873), real(0.0248), real(0.01)
    v0, v1, s0, s1, near = real(0.92), real(4.2), real(2.83), real(5.1), real(0.07)
    closed, number, log, exp = _closed(o, 53), _open(o), logarithm(o), exponential(o)
    complement, tail = logarithm_of_complement(o), _tail_of_factorial(o)[1]

    def large(w: Any, n: Any, p: Any) -> Any:
        spread = root(mul(mul(n, p), one - p))
        b = b0 + mul(b1, spread)
        a = (a0 + mul(a1, b)) + mul(a2, p)
        odds = p / (one - p)
        m = floor(mul(n + one, p))
        u, v = closed(w[0], w[1]) - half, number(w[2], w[3])
        us = half - select(u < zero, zero - u, u)
        inside = us > zero
        us = select(inside, us, half)
        k = floor(mul(mul(two, a) / us + b, u) + (mul(n, p) + half))
        quick = (us >= near) & (v <= v0 - v1 / b)
        within = inside & (k >= zero) & (k <= n)
        k = select(within, k, m)
        left = (log(v) + log(mul(s0 + s1 / b, spread))) - log(a / mul(us, us) + b)
        right = mul(m + half, log((m + one) / mul(odds, (n - m) + one)))
        right = right + mul(n + one, log(((n - m) + one) / ((n - k) + one)))
        right = right + mul(k + half, log(mul(odds, (n - k) + one) / (k + one)))
        right = right + ((tail(m) + tail(n - m)) - (tail(k) + tail(n - k)))
        return within & (quick | (left <= right)), k

    large = o.function(large)

    def binomial(w: Any, n: Any, p: Any, _c: Any, _d: Any) -> Any:
        mirrored = p > half
        q = select(mirrored, one - p, p)
        few = mul(n, q) < ten
        found, k = large(w, select(few, twenty, n), select(few, half, q))
        part, trials = select(few, q, zero), select(few, n, zero)
        odds = part / (one - part)
        none = exp(mul(trials, complement(part)))
        counted = search(closed(w[0], w[1]), none, zero - odds, mul(trials + one, odds))
        counted = select(counted > trials, trials, counted)
        k = select(few, counted, k)
        return found | few, select(mirrored, n - k, k)

    return o.function(binomial)


#: By distribution: how many counters an attempt takes, and its maker.
ATTEMPTS: Final[dict[str, tuple[int, Callable[[Arithmetic], Any]]]] = {
    "truncated_normal": (2, _attempt_truncated),
    "gamma": (2, _attempt_gamma),
    "beta": (3, _attempt_beta),
    "poisson": (1, _attempt_poisson),
    "binomial": (1, _attempt_binomial),
}


# ------------------------------------------------------------------------------------- parameters of arrays


def allowed(o: Arithmetic, distribution: str) -> Any:
    """Return the function that says of parameters whether they are within the limits of a distribution."""
    zero, one, most, trials, floor = o.real(0), o.real(1), o.real(np.finfo(o.real).max), o.real(2.0**53), o.floor

    def finite(x: Any) -> Any:
        return (x >= zero - most) & (x <= most)

    finite = o.function(finite)

    def located(a: Any, b: Any, _c: Any, _d: Any) -> Any:
        return finite(a) & (b >= zero) & (b <= most)

    def uniform(a: Any, b: Any, _c: Any, _d: Any) -> Any:
        return finite(a) & finite(b) & (a <= b) & finite(b - a)

    def scaled(a: Any, _b: Any, _c: Any, _d: Any) -> Any:
        return (a >= zero) & (a <= most)

    def positive(a: Any, b: Any, _c: Any, _d: Any) -> Any:
        return (a > zero) & (a <= most) & (b >= zero) & (b <= most)

    def both_positive(a: Any, b: Any, _c: Any, _d: Any) -> Any:
        return (a > zero) & (a <= most) & (b > zero) & (b <= most)

    def probability(a: Any, _b: Any, _c: Any, _d: Any) -> Any:
        return (a >= zero) & (a <= one)

    def positive_probability(a: Any, _b: Any, _c: Any, _d: Any) -> Any:
        return (a > zero) & (a <= one)

    def rate(a: Any, _b: Any, _c: Any, _d: Any) -> Any:
        return (a >= zero) & (a <= trials)

    def counted(a: Any, b: Any, _c: Any, _d: Any) -> Any:
        return (a >= zero) & (a <= trials) & (floor(a) == a) & (b >= zero) & (b <= one)

    def bounded(a: Any, b: Any, c: Any, d: Any) -> Any:
        return finite(a) & (b > zero) & (b <= most) & (c < d) & (c <= most) & (d >= zero - most)

    rules = {
        "uniform": uniform, "normal": located, "lognormal": located, "cauchy": located, "exponential": scaled,
        "geometric": positive_probability, "bernoulli": probability, "gamma": positive, "beta": both_positive,
        "poisson": rate, "binomial": counted, "truncated_normal": bounded,
    }  # fmt: skip
    return o.function(rules[distribution])
