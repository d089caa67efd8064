"""Transforms along one axis by a kernel of this library, where cuFFT needs copies, passes, or slow functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ....builders.blocks import fold_axes
from ....builders.cuda.codegen import alignment
from ....builders.cuda.cubin import OPTIONS, compile_cubin
from ....builders.cuda.prelude import STORAGE, prelude
from ....builders.cuda.sequence import Source, Step
from ....builders.cuda.target import Argument, KernelProgram, Launch, Target
from ....compile.linking import link
from ....compile.nvrtc import compile_program
from ....dtypes import as_dtype
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes
from ..spec import COMPLEX_OF, COMPUTED, TRANSFORMS, factor
from .callbacks import compiled
from .ends import load_text, store_text
from .line_types import End, Lines
from .lines import geometry, kernel_text
from .sources import C_TYPES, callback_source
from .steps import Array, Steps

__all__ = ["line_source", "lines_step", "plan_lines"]

_NARROW: Final = ("float16", "bfloat16")
#: Products may be added without a rounding before: transforms promise an error bound, and no bits.
_OPTIONS: Final = tuple(option for option in OPTIONS if not option.startswith("--fmad"))
#: Threads of a multiprocessor for which registers are left.
_RESIDENT: Final = {"float32": 1024, "float64": 512}
#: Lines of a launch.
_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Batch:
    """The lines of a transform: extents, the innermost last, and the steps of both ends."""

    extents: tuple[int, ...]
    near: tuple[int, ...]
    far: tuple[int, ...]
    across: bool

    @property
    def count(self) -> int:
        return math.prod(self.extents)


def _along(axis: int, array: Array, axes: Sequence[int]) -> bool | None:
    """Whether lines lie along memory, or across it; None if there is no difference."""
    others = [abs(array.strides[a]) for a in axes if array.strides[a] and array.shape[a] > 1]
    if not others or array.shape[axis] == 1:
        return None
    return abs(array.strides[axis]) <= min(others)


def _batch(axis: int, source: Array, target: Array, own: tuple[Array, Array], rank: int) -> _Batch | None:
    """Return the lines, or None if what is read lies along memory, and what is written across it, or inversely."""
    axes = [a for a in range(rank) if a != axis]
    ways = {_along(axis, array, axes) for array in own} - {None}
    if len(ways) > 1:
        return None
    order = sorted(axes, key=lambda a: -abs(own[1].strides[a]))
    shape = tuple(target.shape[a] for a in order)
    steps = tuple(tuple(array.strides[a] for a in order) for array in (source, target))
    extents, (near, far) = fold_axes(shape, steps) if order else ((1,), ((0,), (0,)))
    return _Batch(extents, near, far, False in ways)


def plan_lines(
    how: FftAttributes,
    x: Array,
    out: Array,
    *,
    load: End | None = None,
    store: End | None = None,
    halves: bool = False,
    scale: float | None = None,
    reason: str = "",
    codes: tuple[str, ...] = (),
    linked: tuple[tuple[str, bytes], ...] = (),
) -> Steps | None:
    """Return a transform by one kernel, or None where there is none.

    Parameters
    ----------
    how : FftAttributes
    x, out : Array
        Operands; complex numbers of 16 bits have a last axis of parts, which `halves` says.
    load, store : End, optional
        Functions in place of x and out, with the dense arrays that they know places of.
    scale : float, optional
        In place of the factor of the transform.
    reason : str
        Why cuFFT does not transform by itself.
    codes, linked : tuple of str
        Functions as text that is compiled with the kernel; names of those that are linked to it.
    """
    kind = TRANSFORMS[how.transform]
    paired = halves and kind != "r2c", halves and kind != "c2r"
    rank = len(out.shape) - paired[1]
    active = [(a, n) for a, n in zip(how.axes, how.lengths, strict=True) if n > 1 or x.shape[a] > 1]
    if len(active) != 1 or (kind != "c2c" and active[0][0] != how.axes[-1]):
        return None
    ((axis, n),) = active
    real = COMPUTED[x.dtype]
    wanted = (*_NARROW, real) if kind == "c2r" else (out.dtype if halves else COMPLEX_OF[real],)
    if n < 2 or (store is None and out.dtype not in wanted):
        return None
    points = n if kind == "c2c" or n % 2 else n // 2
    source, target = load.array if load else x, store.array if store else out
    batch = _batch(axis, source, target, (x, out), rank)
    if batch is None or not 0 < batch.count <= _MOST:
        return None
    found = geometry(points, batch.count, real, batch.across)
    if found is None:
        return None
    if scale is None:
        scale = 1.0 if load or store else factor(how.transform, how.norm, how.lengths)
    first = load or End(x, axis, how.aligned[0])
    first = replace(first, conjugated=how.transform == "hfft")
    last = store or End(out, axis, how.aligned[1], scale=scale)
    last = replace(last, conjugated=how.transform == "ihfft")
    sign = 1 if how.transform == "ifft" or kind == "c2r" else -1
    made = Lines(
        x, out, first, last, kind, n, sign, real, found, batch.extents, batch.near, batch.far, paired, reason, codes,
        linked,
    )  # fmt: skip
    return Steps((made,), 0)


def _lines_of(step: Lines) -> list[str]:
    """Return statements that declare the line of a thread, its place in it, and where the line begins at both ends."""
    how, count = step.geometry, math.prod(step.extents)
    wide = "unsigned int" if count + how.lines < 2**32 else "u64"
    inner = how.lines if how.across else how.threads
    point, line = ("/", "%") if how.across else ("%", "/")
    lines = [
        f"const int t = (int)(threadIdx.x {point} {inner}u), b = (int)(threadIdx.x {line} {inner}u);",
        f"const {wide} line = ({wide})blockIdx.x * {how.lines}u + ({wide})b;",
        f"const bool there = line < {count}u; {wide} rest = line; (void)rest;",
        "long long from = 0, to = 0;",
    ]
    for axis in range(len(step.extents) - 1, -1, -1):
        place = f"rest % {step.extents[axis]}u" if axis else "rest"
        lines.append(
            f"{{ const long long i = (long long)({place}); {f'rest /= {step.extents[axis]}u;' if axis else ''}"
        )
        lines.append(f"from += i * {step.near[axis]}ll; to += i * {step.far[axis]}ll; }}")
    return lines


def line_source(step: Lines, spec: PlanSpec[Any]) -> tuple[str, str]:
    """Return the prelude of a kernel, and its text with that of its functions."""
    functions = step.functions
    dtypes = {array.dtype for array in (step.source, step.target)} | {step.real, COMPLEX_OF[step.real]}
    dtypes |= {operand.dtype for operand in spec.operands} if functions else set()
    head, body = kernel_text(step.geometry, step.kind, step.n, step.sign, step.real)
    ends = load_text(step.load, step.kind, step.n, step.real, step.halves[0])
    ends += store_text(step.store, step.kind, step.n, step.real, step.halves[1])
    parameters = [f"const {STORAGE[step.source.dtype]} *p", f"{STORAGE[step.target.dtype]} *q_"]
    words: list[str] = []
    if functions:
        parameters += [f"const char *o{i}" for i in range(len(spec.operands))]
        kinds = ["long long" if kind == "int64" else "double" for kind in spec.scalars]
        parameters += [f"{kind} v{j}" for j, kind in enumerate(kinds)]
        total = len(spec.operands) + len(kinds)
        words = [f"u64 words[{total}];", *(f"words[{i}] = (u64)o{i};" for i in range(len(spec.operands)))]
        words += [f"(({kind} *)words)[{len(spec.operands) + j}] = v{j};" for j, kind in enumerate(kinds)]
    threads = step.geometry.threads * step.geometry.lines
    bounds = f"__launch_bounds__({threads}, {max(1, _RESIDENT[step.real] // threads)})"
    text = [
        *(step.codes or _declared(step)),
        *head,
        *ends,
        f'extern "C" __global__ void {bounds} lines({", ".join(parameters)}) {{',
        "AWAIT_LAUNCH();",
        *_lines_of(step),
        *words,
        *body,
        "}",
    ]
    return prelude(dtypes), "\n".join(text) + "\n"


def _declared(step: Lines) -> list[str]:
    """Return declarations of functions that are linked to the kernel."""
    found = []
    whole = C_TYPES[COMPLEX_OF[step.real]]
    if step.load.symbol:
        kind = C_TYPES[step.real] if step.kind == "r2c" else whole
        found.append(f"extern __device__ {kind} {step.load.symbol}(void *, unsigned long long, void *, void *);")
    if step.store.symbol:
        kind = C_TYPES[step.real] if step.kind == "c2r" else whole
        found.append(f"extern __device__ void {step.store.symbol}(void *, unsigned long long, {kind}, void *, void *);")
    return found


def lines_step(step: Lines, spec: PlanSpec[Any], target: Target) -> Step:
    """Return the launch of a kernel.  Waits for the compiler, and the linker where functions are in LTO-IR.

    Raises
    ------
    Unsupported
        With the rule ``fft.callback`` if there is no linker.
    LibraryError
        If it does not compile.
    """
    before, text = line_source(step, spec)
    source = before + text
    if step.linked:
        codes = [code or compiled(callback_source(spec, which), target) for which, code in step.linked]
        cubin = _linked(source, codes, target)
    else:
        cubin = compile_cubin(source, target.arch, _OPTIONS)
    count = len(spec.operands) if step.functions else 0
    arguments: list[Argument] = [("operand", i) for i in range(2 + count)]
    arguments += [("int64" if k == "int64" else "float64", j) for j, k in enumerate(spec.scalars)] if count else []
    how = step.geometry
    grid = (-(-math.prod(step.extents) // how.lines), 1, 1)
    launch = Launch("lines", grid, (how.threads * how.lines, 1, 1), 0, tuple(arguments), overlaps=target.overlaps)
    sizes = [_aligned(step.source, step.load, step.halves[0]), _aligned(step.target, step.store, step.halves[1])]
    sizes += [alignment(operand.dtype) for operand in spec.operands] if count else []
    run = KernelProgram(cubin, (launch,), 0, tuple(sizes), source)
    sources: tuple[Source, ...] = (step.source.source, step.target.source)
    sources += tuple(("operand", i) for i in range(count))
    return Step(run, sources, tuple(("scalar", j) for j in range(len(spec.scalars))) if count else ())


def _aligned(array: Array, end: End, halves: bool) -> int:
    """Return to multiples of how many bytes an operand must be aligned."""
    size = as_dtype(array.dtype).itemsize
    if end.symbol:
        return 1
    if array.dtype.startswith("complex"):
        return size if end.aligned else size // 2
    return 2 * size if end.twos(halves) else size


def _linked(source: str, codes: Sequence[bytes], target: Target) -> bytes:
    """Return the kernel with functions in LTO-IR that nvJitLink inlines."""
    kernel = compile_program(source, target.arch, options=_OPTIONS, output="ltoir").code
    try:
        return link([kernel, *codes], target.arch)
    except Unsupported as error:
        raise Unsupported(error.message, rule="fft.callback") from None
