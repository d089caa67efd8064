"""One-dimensional transforms by a kernel of this library: read once, exchanged in shared memory, written once.

cuFFT transforms faster where it takes arrays as they are.  Here elements are converted, continued by zeros, multiplied,
and given to functions, on their way, for every layout.  A few threads transform a line together: in each pass a thread
has points of a butterfly in registers, and between passes they are exchanged (Stockham's order, which needs no
reversal of bits).  Transforms of an even number n of real ones are complex ones of n / 2 points, and a pass that takes
their halves apart, or joins them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from .butterflies import LARGEST, WHOLE, butterfly, literal, splits, table, whole_type

__all__ = ["Geometry", "geometry", "kernel_text"]

#: Threads of a block, about, and where lines of a power of two points lie along memory; bytes of shared memory at most;
#: numbers that a thread holds.
_THREADS: Final = 256
_FEWER: Final = 128
_SHARED: Final = 48 << 10
_HELD: Final = 16
#: Lines of a block that are read across memory, at least: fewer would use a part of what is fetched.
_LEAST: Final = 4
#: Points whose places in shared memory are followed by an empty one, so that strides of powers of two differ in banks.
_EVERY: Final = 16


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a block transforms.

    Attributes
    ----------
    points : int
        Of the complex transform.
    passes : tuple of int
        Points of the butterflies.
    threads : int
        That transform a line together.
    lines : int
        Of a block.
    across : bool
        Whether neighbouring threads have neighbouring lines, not neighbouring points.
    """

    points: int
    passes: tuple[int, ...]
    threads: int
    lines: int
    across: bool

    @property
    def held(self) -> int:
        """Complex numbers that a thread holds."""
        return max(radix * self.turns(radix) for radix in self.passes)

    @property
    def pitch(self) -> int:
        """Places of a line in shared memory."""
        return self.points if self.across else self.points + self.points // _EVERY + 1

    def turns(self, radix: int) -> int:
        """Return how many butterflies of a pass a thread has."""
        return -(-self.points // radix // self.threads)


@functools.lru_cache(maxsize=256)
def _passes(points: int) -> tuple[tuple[int, ...], int] | None:
    """Return points of butterflies, and threads of a line."""
    best: tuple[float, tuple[int, ...], int] | None = None
    found = list(splits(points))
    least = min((len(each) for each in found), default=0)
    for passes in found:
        if len(passes) > least + 1:
            continue
        for threads in range(-(-points // _HELD), points // passes[-1] + 1):
            counts = [(-(-points // radix // threads), radix) for radix in passes]
            held = max(turns * radix for turns, radix in counts)
            if held > _HELD or threads > _THREADS:
                continue
            waste = sum(turns * radix * threads / points - 1 for turns, radix in counts) / len(passes)
            few = 0.5 if threads < 4 and len(passes) < 2 else 0.0  # neighbours in memory are read together
            cost = len(passes) + 0.03 * held + 2 * waste + few
            if best is None or cost < best[0]:
                best = cost, passes, threads
    return best and best[1:]


def geometry(points: int, batch: int, real: str, across: bool) -> Geometry | None:
    """Return how a block transforms lines of so many complex points, or None if it cannot."""
    size = 8 if real == "float32" else 16
    found = _passes(points) if 1 < points <= _SHARED // size else None
    if found is None:
        return None
    passes, threads = found
    pitch = Geometry(points, passes, threads, 1, across).pitch
    room = _SHARED // (pitch * size)
    if room < (_LEAST if across else 1):
        return None
    wanted = _THREADS if across or points & (points - 1) else _FEWER
    lines = max(1, min(room, wanted // threads))
    if across:  # a power of two, of which each has its part of what is read together
        lines = min(1 << (room.bit_length() - 1), max(lines, 64 // size))
        lines = 1 << (lines.bit_length() - 1)
    lines = min(lines, 1024 // threads)
    return Geometry(points, passes, threads, min(lines, batch) if not across else lines, across)


def _powers(radix: int) -> list[str]:
    """Return statements that multiply points of a butterfly by powers of `w1`."""
    lines = []
    for q in range(2, radix):
        lines.append(f"const {WHOLE} w{q} = product(w{(q + 1) // 2}, w{q // 2});")
    return [*lines, *(f"u[{q}] = product(u[{q}], w{q});" for q in range(1, radix))]


def _each(turns: int, threads: int, condition: str) -> list[str]:
    """Return the heads of a loop over a thread's butterflies, and of what it does for those that there are."""
    return [
        "#pragma unroll",
        f"for (int g = 0; g < {turns}; g++) {{",
        f"const int j = t + g * {threads};",
        f"if ({condition or '1'}) {{",
    ]


def _spot(how: Geometry, base: str, step: int, radix: int = LARGEST + 1) -> str:
    """Return the place in shared memory of point `base` + `step` * q, with q below `radix` apart where that can be."""
    if how.across:
        return f"held[{base} * {how.lines} + b + q * {step * how.lines}]"
    if step % _EVERY == 0:
        return f"held[b * {how.pitch} + {base} + {base} / {_EVERY} + q * {step + step // _EVERY}]"
    if step == 1 and _EVERY % radix == 0:  # the base is a multiple of the radix
        return f"held[b * {how.pitch} + {base} + {base} / {_EVERY} + q]"
    return f"AT({base} + q * {step})"


def _ends(points: int, threads: int, text: list[str]) -> list[str]:
    """Return statements for k and its mirror, `points` - k, of which each thread has some; k = 0 is the mirror of 0."""
    pairs = (points + 1) // 2  # without the one that is its own mirror, if there is
    lines = ["#pragma unroll", f"for (int k = t; k < {pairs}; k += {threads}) {{", *text, "}"]
    if points % 2 == 0:
        lines += ["if (t == 0) {", f"const int k = {points // 2};", *text, "}"]
    return lines


def _joined(points: int) -> list[str]:
    """Return statements that make points k and its mirror of the complex transform whose halves are real numbers."""
    return [
        f"{WHOLE} x = LOAD(k), y = LOAD({points} - k);",
        "if (k == 0) x.im = y.im = 0;",  # a real result has no such parts
        f"const {WHOLE} sum = made_of(x.re + y.re, x.im - y.im);",
        f"const {WHOLE} turned = product(made_of(x.re - y.re, x.im + y.im), halves[k]);",
        "AT(k) = made_of(sum.re - turned.im, sum.im + turned.re);",
        f"if (k != 0) AT({points} - k) = made_of(sum.re + turned.im, turned.re - sum.im);",
    ]


def _parted(points: int, real: str) -> list[str]:
    """Return statements that store points k and its mirror of a transform of real numbers, given that of the halves."""
    half = literal(0.5, real)
    return [
        f"const {WHOLE} x = AT(k), y = AT((k == 0 ? 0 : {points} - k)), w = halves[k];",
        f"const {WHOLE} sum = made_of({half} * (x.re + y.re), {half} * (x.im - y.im));",
        f"const {WHOLE} turned = product(made_of({half} * (x.im + y.im), {half} * (y.re - x.re)), w);",
        "STORE(k, made_of(sum.re + turned.re, sum.im + turned.im));",
        f"if (2 * k != {points}) STORE({points} - k, made_of(sum.re - turned.re, turned.im - sum.im));",
    ]


def kernel_text(how: Geometry, kind: str, n: int, sign: int, real: str) -> tuple[list[str], list[str]]:
    """Return text before a kernel, and the statements of its body that transform.

    The body finds declared: ``t`` and ``b``, thread of the line and line of the block, ``there``, whether the line is
    one, and functions: ``LOAD(k)``, a complex number of x, for real ones those at 2 k and 2 k + 1 (at k, if n is odd);
    ``STORE(k, z)`` likewise.

    Parameters
    ----------
    how : Geometry
    kind : str
        ``"c2c"``, ``"r2c"`` or ``"c2r"``.
    n : int
        Points.
    sign : int
        Of the exponent.
    real : str
        ``"float32"`` or ``"float64"``.
    """
    points, threads = how.points, how.threads
    split = kind != "c2c" and n % 2 == 0
    head = whole_type(real)
    for radix in sorted(set(how.passes)):
        head += butterfly(f"transform_{radix}", radix, sign, real)
    before = 1
    for i, radix in enumerate(how.passes):
        head += table(f"roots_{i}", before, before * radix, sign, real) if i else []
        before *= radix
    head += table("halves", points // 2 + 1, n, sign, real) if split else []
    place = f"held[(k) * {how.lines} + b]" if how.across else f"held[b * {how.pitch} + (k) + (k) / {_EVERY}]"
    head.append(f"#define AT(k) {place}")
    body = [f"SHARED {WHOLE} held[{how.lines * how.pitch}];", f"{WHOLE} v[{how.held}];"]
    if kind == "c2r" and split:
        body += ["if (there) {", *_ends(points, threads, _joined(points)), "}", "SYNC();"]
    before = 1
    for i, radix in enumerate(how.passes):
        count, turns = points // radix, how.turns(radix)
        whole = "" if count == turns * threads else f"j < {count}"
        first, last = i == 0 and not (kind == "c2r" and split), i == len(how.passes) - 1
        kept = kind == "r2c" and split and last
        read = f"u[q] = LOAD(j + q * {count})" if first else f"u[q] = {_spot(how, 'j', count)}"
        body += [
            *_each(turns, threads, " && ".join(filter(None, ("there" if first else "", whole)))),
            f"{WHOLE} *const u = v + g * {radix};",
            "#pragma unroll",
            f"for (int q = 0; q < {radix}; q++) {read};",
            *([f"const {WHOLE} w1 = roots_{i}[j % {before}];", *_powers(radix)] if i else []),
            f"transform_{radix}(u);",
            "}",
            "}",
        ]
        put = f"STORE(j + q * {count}, u[q])"
        if not last or kept:
            body += ["SYNC();"] if not first else []
            to = f"(j / {before} * {before * radix} + j % {before})" if before > 1 else f"(j * {radix})"
            put = f"{_spot(how, to, before, radix)} = u[q]"
        body += [
            *_each(turns, threads, " && ".join(filter(None, ("there" if last and not kept else "", whole)))),
            f"const {WHOLE} *const u = v + g * {radix};",
            "#pragma unroll",
            f"for (int q = 0; q < {radix}; q++) {put};",
            "}",
            "}",
        ]
        body += ["SYNC();"] if not last or kept else []
        before *= radix
    if kind == "r2c" and split:
        body += ["if (there) {", *_ends(points, threads, _parted(points, real)), "}"]
    return head, body
