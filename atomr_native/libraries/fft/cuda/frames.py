"""Short-time transforms by cuFFT: frames that overlap are read by strides, or made by a kernel with the window."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, convert, value_type
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from ....builders.cuda.workspace import padded
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes, FramesAttributes
from ..frames import LEAST, scale_of
from ..spec import COMPLEX_OF, COMPUTED
from .build import built_steps
from .steps import Array, Custom, Steps, operand, plan_arrays

__all__ = ["build_istft", "build_stft", "plan_istft", "plan_stft"]

_BLOCKS: Final = 32  # for each multiprocessor

Axes = tuple[int, ...]


def _swapped(array: Array) -> Array:
    """Return an array with its last two axes exchanged."""
    *shape, a, b = array.shape
    *strides, c, d = array.strides
    return replace(array, shape=(*shape, b, a), strides=(*strides, d, c))


def _dense(dtype: str, shape: Axes) -> Array:
    """Return a buffer at the start of the workspace."""
    return Array(("workspace", 0), dtype, shape, tuple(math.prod(shape[a + 1 :]) for a in range(len(shape))))


def _place(shape: Axes, strides: Axes, row: str, name: str) -> list[str]:
    """Return statements that declare `name`, the offset of a row in an array of these axes."""
    lines = [f"long long {name} = 0, {name}_rest = {row};"]
    for a in range(len(shape) - 1, -1, -1):
        lines.append(f"{name} += {name}_rest % {shape[a]} * {strides[a]}ll; {name}_rest /= {shape[a]};")
    return lines


def _weight(how: FramesAttributes, window: Array | None, real: str) -> list[str]:
    """Return a function of the window's value at a point of a frame."""
    left = (how.n_fft - how.width) // 2
    value = "1" if window is None else convert(window.dtype, real, f"w[(m - {left}) * {window.strides[0]}ll]")
    pointer = f"const {STORAGE[window.dtype]} *w, " if window is not None else ""
    return [
        f"DEVICE {STORAGE[real]} weight_of({pointer}long long m) {{",
        f"return m >= {left} && m < {left + how.width} ? ({STORAGE[real]})({value}) : 0;",
        "}",
        f"#define weight(m) weight_of({'w, ' if window is not None else ''}m)",
    ]


def _kernel(name: str, text: list[str], source: Array, into: Array, window: Array | None, target: Target,
            note: str) -> Custom:  # fmt: skip
    total = math.prod(into.shape)
    pointers = f"const {STORAGE[source.dtype]} *p, {STORAGE[into.dtype]} *q"
    if window is not None:
        pointers += f", const {STORAGE[window.dtype]} *w"
    place = next(i for i, line in enumerate(text) if line == "@")
    text[place : place + 1] = [
        f"KERNEL {name}({pointers}) {{",
        "AWAIT_LAUNCH();",
        f"for (u64 i = thread_index(); i < {total}ull; i += thread_count()) {{",
    ]
    grid = max(1, min(-(-total // THREADS), target.sm_count * _BLOCKS))
    others = () if window is None else (window,)
    arguments: tuple[Argument, ...] = tuple(("operand", place) for place in range(2 + len(others)))
    launch = Launch(name, (grid, 1, 1), (THREADS, 1, 1), 0, arguments)
    return Custom(source, into, "\n".join(text) + "\n}\n}\n", launch, note, others)


def _frames(how: FramesAttributes, x: Array, window: Array | None, into: Array, target: Target) -> Custom:
    """Return the kernel that makes windowed frames of a signal, continued on both sides."""
    n, samples = how.n_fft, x.shape[-1]
    real = COMPUTED[x.dtype]
    frames, pad = into.shape[-2], n // 2 if how.center else 0
    step = x.strides[-1]
    kind = value_type(into.dtype)
    scale = scale_of(how)
    by = "weight(m)" if scale == 1 else f"(({STORAGE[real]}){scale!r} * weight(m))"
    value = convert(x.dtype, into.dtype, f"p[at + j * {step}ll]")
    made = f"x * {by}"
    if into.dtype.startswith("complex"):
        made = f"make_{'c64' if into.dtype == 'complex64' else 'c128'}(x.re * {by}, x.im * {by})"
    reflect = how.pad == "reflect"
    zero = f"make_{'c64' if into.dtype == 'complex64' else 'c128'}(0, 0)" if into.dtype.startswith("complex") else "0"
    text = [
        *_weight(how, window, real),
        "@",
        f"const long long m = (long long)(i % {n}ull), t = (long long)(i / {n}ull % {frames}ull);",
        f"const long long row = (long long)(i / {n * frames}ull);",
        *_place(x.shape[:-1], x.strides[:-1], "row", "at"),
        f"long long j = t * {how.hop}ll + m - {pad};",
        *([f"j = j < 0 ? -j : j >= {samples} ? {2 * samples - 2} - j : j;"] if reflect and pad else []),
        f"{kind} x = {zero};",
        f"if (j >= 0 && j < {samples}) x = {value};",
        f"q[i] = {made};",
    ]
    reason = "x is continued, and multiplied by the window" if how.center else "x is multiplied by the window"
    note = f"{into.nbytes} bytes are copied to the workspace: frames of x, since {reason}"
    return _kernel("frames", text, x, into, window, target, note)


def plan_stft(spec: PlanSpec[FramesAttributes], target: Target) -> Steps:
    """Return the steps of short-time transforms: one plan of cuFFT for all frames, and a kernel before it if needed."""
    how = spec.attributes
    arrays = [operand(i, o) for i, o in enumerate(spec.operands)]
    x, out = arrays[0], _swapped(arrays[-1])
    window = arrays[1] if len(arrays) == 3 else None
    shape = (*out.shape[:-1], how.n_fft)
    inner = FftAttributes(
        transform="rfft" if how.onesided else "fft",
        axes=(len(shape) - 1,),
        lengths=(how.n_fft,),
        norm=how.norm,
        aligned=how.aligned,
    )
    if window is None and not how.center and how.width == how.n_fft:
        *strides, step = x.strides
        return plan_arrays(inner, replace(x, shape=shape, strides=(*strides, how.hop * step, step)), out)
    real = COMPUTED[x.dtype]
    made = _dense(real if how.onesided else COMPLEX_OF[real], shape)
    inner = FftAttributes(
        transform=inner.transform, axes=inner.axes, lengths=inner.lengths, norm="none", aligned=(True, how.aligned[1])
    )
    steps = plan_arrays(inner, made, out, padded(made.nbytes))
    return Steps((_frames(how, x, window, made, target), *steps.steps), steps.nbytes)


def _sums(how: FramesAttributes, made: Array, window: Array | None, out: Array, target: Target) -> Custom:
    """Return the kernel that adds windowed frames, and divides by the sum of squared windows."""
    n, hop, frames, samples = how.n_fft, how.hop, made.shape[-2], out.shape[-1]
    real = "float64" if made.dtype in ("float64", "complex128") else "float32"
    whole = made.dtype.startswith("complex")
    first = n // 2 if how.center else 0
    add = "re += c[t * {n}ll + m].re * v; im += c[t * {n}ll + m].im * v;" if whole else "re += c[t * {n}ll + m] * v;"
    value = f"make_{'c64' if real == 'float32' else 'c128'}(re * by, im * by)" if whole else "re * by"
    kind = made.dtype if whole else real
    text = [
        *_weight(how, window, real),
        "@",
        f"const long long j = (long long)(i % {samples}ull) + {first}, row = (long long)(i / {samples}ull);",
        *_place(out.shape[:-1], out.strides[:-1], "row", "to"),
        f"const {STORAGE[made.dtype]} *const c = p + row * {frames * n}ll;",
        f"{STORAGE[real]} re = 0, im = 0;",
        "double sum = 0;",
        f"long long t = j < {n} ? 0 : (j - {n}) / {hop} + 1;",
        f"for (; t < {frames} && t * {hop} <= j; t++) {{",
        f"const long long m = j - t * {hop};",
        f"const {STORAGE[real]} v = weight(m);",
        add.format(n=n),
        "sum += (double)v * v;",
        "}",
        f"const {STORAGE[real]} by = sum > {LEAST!r} ? ({STORAGE[real]})(1 / sum) : 0;",
        f"const {value_type(kind)} made = {value};",
        *([] if whole else ["(void)im;"]),
        f"q[to + (j - {first}) * {out.strides[-1]}ll] = {convert(kind, out.dtype, 'made')};",
    ]
    return _kernel("sums", text, made, out, window, target, f"frames of {made.nbytes} bytes lie in the workspace")


def plan_istft(spec: PlanSpec[FramesAttributes], target: Target) -> Steps:
    """Return the steps of the inverse: frames by cuFFT, and their sum by a kernel."""
    how = spec.attributes
    arrays = [operand(i, o) for i, o in enumerate(spec.operands)]
    x, out = _swapped(arrays[0]), arrays[-1]
    window = arrays[1] if len(arrays) == 3 else None
    real = COMPUTED[x.dtype]
    made = _dense(real if how.onesided else COMPLEX_OF[real], (*x.shape[:-1], how.n_fft))
    inner = FftAttributes(
        transform="irfft" if how.onesided else "ifft",
        axes=(len(x.shape) - 1,),
        lengths=(how.n_fft,),
        norm=how.norm,
        aligned=(how.aligned[0], True),
    )
    steps = plan_arrays(inner, x, made, padded(made.nbytes))
    return Steps((*steps.steps, _sums(how, made, window, out, target)), steps.nbytes)


def build_stft(spec: PlanSpec[FramesAttributes], context: CudaContext) -> Built:
    """Build ``fft.stft``: operands x, window if there is one, and out; errors as `build_transform`."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    return built_steps(spec, plan_stft(spec, context.target), context)


def build_istft(spec: PlanSpec[FramesAttributes], context: CudaContext) -> Built:
    """Build ``fft.istft``: operands x, window if there is one, and out; errors as `build_transform`."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    return built_steps(spec, plan_istft(spec, context.target), context)
