"""Cosine and sine transforms by cuFFT: along each axis a kernel, a transform of rows, and a second kernel.

A transform of N points is a transform of real numbers, or of complex ones for type IV, of what a kernel makes of the
input: for types II and III with the even elements first and the odd ones backwards behind them (Makhoul 1980).  Sine
transforms are cosine transforms of the input, or of its reverse, with alternating signs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import NARROW, THREADS, convert, value_type
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Launch, Target
from ....builders.cuda.workspace import padded
from ....plans.spec import PlanSpec
from ..attributes import CosineAttributes
from ..cosine import cosine_factor, forward_type
from ..spec import COMPLEX_OF, COMPUTED
from .build import built_steps
from .layouts import Layout
from .steps import Array, Call, Custom, Steps, operand

__all__ = ["build_cosine", "plan_cosine"]

_BLOCKS: Final = 32  # for each multiprocessor

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """A transform of rows along one axis.

    Attributes
    ----------
    sine : bool
    kind : int
        The type, 1 to 4.
    axis, n : int
        Points along the axis.
    real : str
        The dtype in which it is computed.
    scale : float
    orthogonal : bool
    """

    sine: bool
    kind: int
    axis: int
    n: int
    real: str
    scale: float
    orthogonal: bool

    @property
    def points(self) -> int:
        """Points of the transform by cuFFT."""
        n = self.n
        return n if self.kind != 1 else 2 * (n + 1) if self.sine else 2 * (n - 1)

    @property
    def before(self) -> tuple[str, int]:
        """Dtype and elements of a row that is transformed."""
        if self.kind == 3:
            return COMPLEX_OF[self.real], self.points // 2 + 1
        return COMPLEX_OF[self.real] if self.kind == 4 else self.real, self.points

    @property
    def after(self) -> tuple[str, int]:
        """Dtype and elements of a transformed row."""
        if self.kind == 3:
            return self.real, self.points
        return COMPLEX_OF[self.real], self.points if self.kind == 4 else self.points // 2 + 1

    # ------------------------------------------------------------------------------------- C statements

    def load(self) -> list[str]:
        """Return statements that assign `made`, element `m` of a row, from ``element(j)``, those of the input."""
        n, points, sine = self.n, self.points, self.sine
        if self.kind == 1 and sine:
            return [
                f"const long long j = m <= {n} ? m - 1 : {points - 1} - m;",
                f"made = m == 0 || m == {n + 1} ? 0 : m <= {n} ? element(j) : -element(j);",
            ]
        if self.kind == 1:
            return [f"made = element(m < {n} ? m : {points} - m);"]
        if self.kind == 2:
            sign = "(j & 1 ? -element(j) : element(j))" if sine else "element(j)"
            return [f"const long long j = m < {(n + 1) // 2} ? 2 * m : {2 * n - 1} - 2 * m;", f"made = {sign};"]
        if self.kind == 3:
            here, there = (f"{n - 1} - m", "m - 1") if sine else ("m", f"{n} - m")
            return [
                f"const double a = element({here}), b = m == 0 ? 0 : element({there});",
                f"const double c = cos({_angle(2 * n)} * m), s = sin({_angle(2 * n)} * m);",
                f"const bool single = m == 0 || 2 * m == {n};",
                "made.re = c * a + s * b; made.im = single ? 0 : s * a - c * b;",
            ]
        here = f"{n - 1} - m" if sine else "m"
        return [
            f"const double a = element({here}), w = {_angle(2 * n)} * m;",
            "made.re = a * cos(w); made.im = -a * sin(w);",
        ]

    def store(self) -> list[str]:
        """Return statements that assign `made`, element `k` of the result, from the transformed row `c`."""
        n, sine = self.n, self.sine
        if self.kind == 1:
            return ["made = -c[k + 1].im;" if sine else "made = c[k].re;"]
        if self.kind == 2:
            return [
                f"const long long g = {f'{n - 1} - k' if sine else 'k'}, h = 2 * g <= {n} ? g : {n} - g;",
                f"const double w = {_angle(2 * n)} * g, im = h == g ? c[h].im : -c[h].im;",
                "made = 2 * (c[h].re * cos(w) + im * sin(w));",
            ]
        if self.kind == 3:
            sign = "made = k & 1 ? -made : made;" if sine else ""
            return [f"made = c[k & 1 ? {n - 1} - k / 2 : k / 2];", sign]
        sign = "k & 1 ? -1 : 1" if sine else "1"
        return [
            f"const bool mirrored = k & 1; const long long h = (mirrored ? {2 * n - 1} - k : k) / 2;",
            f"const double w = {_angle(4 * n)} * (4 * h + 1);",
            f"made = ({sign}) * (mirrored ? -2 : 2) * (c[h].re * cos(w) + c[h].im * sin(w));",
        ]

    def ends(self, before: bool) -> dict[str, float]:
        """Return the elements that `orthogonal` scales: conditions on the index `j`, with factors."""
        first, last = ("j == 0", f"j == {self.n - 1}")
        root = math.sqrt(2)
        if not self.orthogonal:
            return {}
        if self.kind == 1 and not self.sine:
            return dict.fromkeys((first, last), root if before else 1 / root)
        if self.kind == (3 if before else 2):
            return {last if self.sine else first: root if before else 1 / root}
        return {}


def _angle(halves: int) -> str:
    return repr(math.pi / halves)


def _index(shape: Axes, axis: int, strides: Axes) -> list[str]:
    """Return statements that find `at`, the offset of a row in an array, from the number of the row."""
    lines = ["long long at = 0, rest = row;"]
    for a in sorted((a for a in range(len(shape)) if a != axis and shape[a] > 1), reverse=True):
        lines.append(f"at += rest % {shape[a]} * {strides[a]}ll; rest /= {shape[a]};")
    return lines


def _scaled(conditions: dict[str, float], value: str) -> str:
    for condition, by in conditions.items():
        value = f"({condition} ? {by!r} : 1.0) * {value}"
    return value


def _load(rows: Rows, source: Array, shape: Axes, target: Target) -> tuple[str, Launch]:
    """Return the kernel that makes rows of the source, which has zeros where it ends before `shape`."""
    dtype, length = rows.before
    count = math.prod(shape) // rows.n
    step = source.strides[rows.axis]
    value = convert(source.dtype, rows.real, f"p[at + j * {step}ll]")
    inside = f"j < {source.shape[rows.axis]}"
    lines = _index(shape, rows.axis, source.strides)
    for a in range(len(shape)):  # rows that the source lacks are zero
        if a != rows.axis and source.shape[a] < shape[a]:
            inner = math.prod(shape[b] for b in range(a + 1, len(shape)) if b != rows.axis)
            inside += f" && row / {inner} % {shape[a]} < {source.shape[a]}"
    text = [
        f"DEVICE double element_of(const {STORAGE[source.dtype]} *p, long long row, long long at, long long j) {{",
        f"return {inside} ? {_scaled(rows.ends(True), f'(double)({value})')} : 0;",
        "}",
        "#define element(j) element_of(p, row, at, j)",
        f"KERNEL load(const {STORAGE[source.dtype]} *p, {STORAGE[dtype]} *q) {{",
        "AWAIT_LAUNCH();",
        f"for (u64 i = thread_index(); i < {count * length}ull; i += thread_count()) {{",
        f"const long long m = (long long)(i % {length}ull), row = (long long)(i / {length}ull);",
        *lines,
        f"{value_type(dtype)} made;",
        *rows.load(),
        "q[i] = made;",
        "}",
        "}",
    ]
    return _kernel("load", text, count * length, target)


def _store(rows: Rows, result: Array, shape: Axes, target: Target) -> tuple[str, Launch]:
    """Return the kernel that makes elements of the result from transformed rows."""
    dtype, length = rows.after
    total = math.prod(shape)
    scale = "" if rows.scale == 1 else f"{rows.scale!r} * "
    value = f"({value_type(rows.real)})({_scaled(rows.ends(False), f'{scale}made')})"
    text = [
        f"KERNEL store(const {STORAGE[dtype]} *p, {STORAGE[result.dtype]} *q) {{",
        "AWAIT_LAUNCH();",
        f"for (u64 i = thread_index(); i < {total}ull; i += thread_count()) {{",
        f"const long long k = (long long)(i % {rows.n}ull), row = (long long)(i / {rows.n}ull), j = k;",
        *_index(shape, rows.axis, result.strides),
        f"const {STORAGE[dtype]} *const c = p + row * {length}ll;",
        "double made;",
        *rows.store(),
        f"const {value_type(rows.real)} value = {value};",
        f"q[at + j * {result.strides[rows.axis]}ll] = {convert(rows.real, result.dtype, 'value')};",
        "}",
        "}",
    ]
    return _kernel("store", text, total, target)


def _kernel(name: str, text: list[str], threads: int, target: Target) -> tuple[str, Launch]:
    grid = max(1, min(-(-threads // THREADS), target.sm_count * _BLOCKS))
    return "\n".join(text) + "\n", Launch(name, (grid, 1, 1), (THREADS, 1, 1), 0, (("operand", 0), ("operand", 1)))


def plan_cosine(spec: PlanSpec[CosineAttributes], target: Target) -> Steps:
    """Return the steps of a transform: along each axis a kernel, a plan of cuFFT, and a kernel."""
    how = spec.attributes
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    real, shape = COMPUTED[x.dtype], out.shape
    kind, sine = forward_type(how), how.transform.endswith("dst")
    held, start = out, 0
    if len(how.axes) > 1 and out.dtype in NARROW:  # not rounded between axes
        held = Array(("workspace", 0), real, shape, _dense(shape))
        start = padded(held.nbytes)
    made: list[Custom | Call] = []
    most, source = start, x
    for place, (axis, n) in enumerate(zip(how.axes, how.lengths, strict=True)):
        last = place == len(how.axes) - 1
        scale = cosine_factor(how) if last else 1.0
        rows = Rows(sine, kind, axis, n, real, scale, how.orthogonalize)
        count = math.prod(shape) // n
        ends = []
        at = start
        for dtype, length in (rows.before, rows.after):
            ends.append(Array(("workspace", at), dtype, (count, length), (length, 1)))
            at += padded(ends[-1].nbytes)
        most = max(most, at)
        result = out if last else held
        cut = tuple(min(a, b) for a, b in zip(source.shape, shape, strict=True))
        taken = Array(source.source, source.dtype, cut, source.strides)
        before, after = ends
        points = rows.points
        layout = Layout((points,), ((before.shape[1],), (after.shape[1],)), (1, 1), (before.shape[1], after.shape[1]),
                        count, ())  # fmt: skip
        note = f"axis {axis}: {before.nbytes} and {after.nbytes} bytes of rows in the workspace"
        made += [
            Custom(taken, before, *_load(rows, taken, shape, target), note),
            Call(before, after, layout, kind == 3),
            Custom(after, result, *_store(rows, result, shape, target), ""),
        ]
        source = result
    return Steps(tuple(made), most)


def _dense(shape: Axes) -> Axes:
    return tuple(math.prod(shape[a + 1 :]) for a in range(len(shape)))


def build_cosine(spec: PlanSpec[CosineAttributes], context: CudaContext) -> Built:
    """Build ``fft.cosine``: operands ``x, out``; errors as `build_transform`."""
    if math.prod(spec.operands[1].shape) == 0:
        return Built("noop")
    return built_steps(spec, plan_cosine(spec, context.target), context)
