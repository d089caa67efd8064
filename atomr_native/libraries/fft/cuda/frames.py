"""Short-time transforms by cuFFT: frames that overlap are read by strides, or made by a kernel with the window."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as changed

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, convert, value_type
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE, prelude
from ....builders.cuda.target import Argument, Launch, Target
from ....builders.cuda.workspace import padded
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes, FramesAttributes
from ..frames import LEAST, scale_of
from ..fusion import wrong_callback
from ..spec import COMPLEX_OF, COMPUTED
from .build import first_built
from .line_steps import plan_lines
from .line_types import End
from .linked import function_text, link, linked_symbol, pointer
from .planner import plan_arrays
from .steps import Array, Call, Custom, Linked, Steps, operand

__all__ = ["build_istft", "build_stft", "link_stft", "plan_istft", "plan_stft"]

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


def _place(shape: Axes, strides: Axes, row: str, name: str, index: str = "u64") -> list[str]:
    """Return statements that declare `name`, the offset of a row in an array of these axes, counted by `index`."""
    lines = [f"long long {name} = 0; {index} {name}_rest = ({index}){row}; (void){name}_rest;"]
    for a in range(len(shape) - 1, -1, -1):
        rest = f"{name}_rest % {shape[a]}u" if a else f"{name}_rest"
        lines.append(f"{name} += (long long)({rest}) * {strides[a]}ll; {name}_rest /= {shape[a]}u;")
    return lines


def _weight(how: FramesAttributes, window: Array | None, real: str) -> list[str]:
    """Return a function of the window's value at a point of a frame."""
    left = (how.n_fft - how.width) // 2
    value = "1" if window is None else convert(window.dtype, real, f"w[(m - {left}) * {window.strides[0]}ll]")
    pointer = f"const {STORAGE[window.dtype]} *w, " if window is not None else ""
    inside = "1" if how.width == how.n_fft else f"m >= {left} && m < {left + how.width}"
    return [
        f"DEVICE {STORAGE[real]} weight_of({pointer}int m) {{",
        f"return {inside} ? ({STORAGE[real]})({value}) : 0;",
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


def _element(how: FramesAttributes, x: Array, dtype: str, frames: int, place: str) -> list[str]:
    """Return statements that declare `made`, point `m` of frame `t` of a signal, continued on both sides.

    `place` is the name of the element's place in a dense array of frames.
    """
    n, samples, real = how.n_fft, x.shape[-1], COMPUTED[x.dtype]
    pad, step, scale = n // 2 if how.center else 0, x.strides[-1], scale_of(how)
    index = "unsigned int" if math.prod(x.shape[:-1]) * frames * n < 2**32 else "u64"
    wide = "int" if samples + 2 * n < 2**31 else "long long"  # of samples, with what is continued
    by = "weight(m)" if scale == 1 else f"(({STORAGE[real]}){scale!r} * weight(m))"
    made, zero = f"x * {by}", "0"
    if dtype.startswith("complex"):
        make = f"make_{'c64' if dtype == 'complex64' else 'c128'}"
        made, zero = f"{make}(x.re * {by}, x.im * {by})", f"{make}(0, 0)"
    kind = value_type(dtype)
    return [
        f"const {index} in_all = ({index}){place} / {n}u;",
        f"const int m = (int)(({index}){place} % {n}u);",
        *_place(x.shape[:-1], x.strides[:-1], f"(in_all / {frames}u)", "at", index),
        f"{wide} j = ({wide})(in_all % {frames}u) * {how.hop} + m - {pad};",
        *([f"j = j < 0 ? -j : j >= {samples} ? {2 * samples - 2} - j : j;"] if how.pad == "reflect" and pad else []),
        f"{kind} x = {zero};",
        f"if (j >= 0 && j < {samples}) x = {convert(x.dtype, dtype, f'p[at + (long long)j * {step}]')};",
        f"const {kind} made = {made};",
    ]


def _why(how: FramesAttributes) -> str:
    return "x is continued, and multiplied by the window" if how.center else "x is multiplied by the window"


def _frames(how: FramesAttributes, x: Array, window: Array | None, into: Array, target: Target) -> Custom:
    """Return the kernel that makes windowed frames of a signal, continued on both sides."""
    body = _element(how, x, into.dtype, into.shape[-2], "i")
    text = [*_weight(how, window, COMPUTED[x.dtype]), "@", *body, "q[i] = made;"]
    note = f"{into.nbytes} bytes are copied to the workspace: frames of x, since {_why(how)}"
    return _kernel("frames", text, x, into, window, target, note)


def _loading(how: FramesAttributes, x: Array, window: Array | None, into: Array) -> str:
    """Return the function that loads windowed frames of a signal, continued on both sides, without its prelude."""
    body = [pointer("p", STORAGE[x.dtype], x.source)]
    body += [] if window is None else [pointer("w", STORAGE[window.dtype], window.source)]
    body += _element(how, x, into.dtype, into.shape[-2], "place")
    return function_text("load", into.dtype, body, _weight(how, window, COMPUTED[x.dtype]))


def _linked(how: FramesAttributes, x: Array, window: Array | None, into: Array) -> Linked:
    """Return that function for cuFFT's kernels."""
    dtypes = {x.dtype, into.dtype, COMPUTED[x.dtype], *([] if window is None else [window.dtype])}
    code = prelude(dtypes) + _loading(how, x, window, into)
    return Linked("load", code, f"cuFFT's kernels load frames of x without a copy: {_why(how)}", True)


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
    inner = changed(inner, norm="none", aligned=(True, how.aligned[1]))
    made = _made(how, x, shape)
    steps = plan_arrays(inner, made, out, padded(made.nbytes))
    return Steps((_frames(how, x, window, made, target), *steps.steps), steps.nbytes)


def _made(how: FramesAttributes, x: Array, shape: Axes) -> Array:
    """Return the buffer of frames."""
    real = COMPUTED[x.dtype]
    return _dense(real if how.onesided else COMPLEX_OF[real], shape)


def lines_stft(spec: PlanSpec[FramesAttributes], steps: Steps) -> Steps | None:
    """Return the transform of all frames by one kernel, which makes them as it loads."""
    how, first = spec.attributes, steps.steps[0]
    if not isinstance(first, Custom):
        return None
    made, out = (
        replace(first.target, source=("operand", 0)),
        _swapped(operand(len(spec.operands) - 1, spec.operands[-1])),
    )
    axis = len(made.shape) - 1
    inner = FftAttributes(
        transform="rfft" if how.onesided else "fft",
        axes=(axis,),
        lengths=(how.n_fft,),
        norm="none",
        aligned=(True, how.aligned[1]),
    )
    window = first.others[0] if first.others else None
    load = End(made, axis, symbol=linked_symbol("load"))
    code = _loading(how, first.source, window, made)
    return plan_lines(inner, made, out, load=load, reason=_why(how), codes=(code,))


def link_stft(spec: PlanSpec[FramesAttributes], steps: Steps) -> Steps:
    """Return the steps of `plan_stft` with frames that cuFFT's kernels make as they load, where they can."""
    how = spec.attributes
    first, *rest = steps.steps
    call = rest[0] if isinstance(first, Custom) else None
    if not isinstance(first, Custom) or not isinstance(call, Call) or call.layout.loops or call.source != first.target:
        return link(steps, how.aligned)
    x, window = first.source, first.others[0] if first.others else None
    if wrong_callback("load", first.target.dtype, call.layout.lengths):
        return link(steps, how.aligned)
    # The address that cuFFT gets stands for no array: that of x, if it is one of complex elements.
    source = replace(first.target, source=x.source) if how.aligned[0] else first.target
    loaded = replace(call, source=source, linked=(_linked(how, x, window, first.target),))
    return link(Steps((loaded, *rest[1:]), steps.nbytes), how.aligned)


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
        f"const int m = (int)(j - t * {hop});",
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


def plan_istft(spec: PlanSpec[FramesAttributes], target: Target) -> tuple[Steps, Steps | None]:
    """Return the steps of the inverse, by cuFFT and a sum of frames, and by one kernel before it if there is one."""
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
    sums = _sums(how, made, window, out, target)
    alone = plan_lines(inner, x, made, reason=steps.reason) if steps.reason else None
    lines = None if alone is None else Steps((*alone.steps, sums), padded(made.nbytes))
    return Steps((*steps.steps, sums), steps.nbytes), lines


def build_stft(spec: PlanSpec[FramesAttributes], context: CudaContext) -> Built:
    """Build ``fft.stft``: operands x, window if there is one, and out; errors as `build_transform`."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    steps = plan_stft(spec, context.target)
    linked = [("frames inside cuFFT", link_stft(spec, steps))]
    return first_built(linked, steps, spec, context, lines_stft(spec, steps))


def build_istft(spec: PlanSpec[FramesAttributes], context: CudaContext) -> Built:
    """Build ``fft.istft``: operands x, window if there is one, and out; errors as `build_transform`."""
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    steps, lines = plan_istft(spec, context.target)
    return first_built([], steps, spec, context, lines)
