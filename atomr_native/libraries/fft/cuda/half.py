"""Transforms whose input and output have 16 bits: by cuFFT in that type, or in float32 between copies that convert."""

from __future__ import annotations

import math
from dataclasses import replace

from ....builders.context import Built
from ....builders.cuda.context import CudaContext
from ....builders.cuda.target import number_of
from ....builders.cuda.workspace import padded
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes
from ..half import refused, why_wide
from ..spec import TRANSFORMS, factor
from .build import first_built
from .layouts import match
from .line_steps import plan_lines
from .linked import link, parts
from .planner import plan_arrays
from .steps import Array, Call, Move, Steps, in_order, operand

__all__ = ["build_half", "native_steps", "wide_steps"]

_PAIR = "float32"  # of the bytes of a complex number of 16 bits


def _paired(array: Array) -> Array | None:
    """Return an array of pairs without their axis, if the parts of each are neighbours."""
    *strides, last = array.strides
    if last != 1 or any(step % 2 for step in strides):
        return None
    return Array(array.source, _PAIR, array.shape[:-1], tuple(step // 2 for step in strides))


def native_steps(spec: PlanSpec[FftAttributes]) -> Steps | None:
    """Return the steps of a transform that cuFFT computes in 16 bits, or None if it does not take the layouts."""
    how = spec.attributes
    kind, dtype = TRANSFORMS[how.transform], spec.operands[0].dtype
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    source, target = x if kind == "r2c" else _paired(x), _paired(out)
    if source is None or target is None:
        return None
    layout = match(source.side, target.side, how.axes, how.lengths, kind, 4)
    if layout is None or (kind == "r2c" and layout.stride[0] != 1):
        return None
    scale = factor(how.transform, how.norm, how.lengths)
    pass_ = (Move(out, out, "cuFFT does not multiply by a factor", scale),) if scale != 1 else ()
    return Steps((Call(source, target, layout, how.transform == "ifft", narrow=dtype), *pass_), 0)


def wide_steps(spec: PlanSpec[FftAttributes]) -> Steps:
    """Return the steps of a transform in float32."""
    how = spec.attributes
    kind = TRANSFORMS[how.transform]
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    source, target, nbytes = x, out, 0
    first: list[Move] = []
    last: list[Move] = []
    if kind != "r2c":
        source = Array(
            ("workspace", nbytes), "complex64", x.shape[:-1], in_order(x.shape[:-1], range(len(x.shape) - 1))
        )
        nbytes += padded(source.nbytes)
        first.append(Move(x, parts(source), f"x is converted from {x.dtype} to complex64"))
    if kind != "c2r":
        shape = out.shape[:-1]
        target = Array(("workspace", nbytes), "complex64", shape, in_order(shape, range(len(shape))))
        nbytes += padded(target.nbytes)
        scale = factor(how.transform, how.norm, how.lengths)
        last.append(Move(parts(target), out, f"the result is rounded to {out.dtype}", scale))
    inner = FftAttributes(
        transform=how.transform,
        axes=how.axes,
        lengths=how.lengths,
        norm="none" if last else how.norm,
        overwrite=kind == "c2r",
        hermitian=how.hermitian,
        aligned=(kind != "r2c", kind != "c2r"),
    )
    planned = plan_arrays(inner, source, target, nbytes)
    return Steps((*first, *planned.steps, *last), planned.nbytes)


def lines_half(spec: PlanSpec[FftAttributes]) -> Steps | None:
    """Return the transform by one kernel, which converts as it loads and stores."""
    x, out = (operand(i, o) for i, o in enumerate(spec.operands))
    reason = f"it loads and stores {x.dtype}, and computes in float32"
    return plan_lines(spec.attributes, x, out, halves=True, reason=reason)


def build_half(spec: PlanSpec[FftAttributes], context: CudaContext) -> Built:
    """Build ``fft.half``: operands ``x, out``; errors as `build_transform`."""
    x, out = spec.operands
    if math.prod(out.shape) == 0:
        return Built("noop")
    reason = why_wide(spec.attributes, x.dtype, x.shape, int(str(number_of(context.target.arch)).rstrip("abcdef")))
    lines = lines_half(spec) if spec.attributes.converts else None
    if not reason:
        steps = native_steps(spec)
        if steps is None:
            reason = f"cuFFT does not take strides {x.strides} to {out.strides} in {x.dtype}"
        else:
            try:  # one kernel reads and writes as few bytes, and rounds less
                return first_built([], steps, spec, context, lines)
            except Unsupported as error:
                if error.rule != "fft.library":
                    raise
                reason = error.message.splitlines()[0]
    if not spec.attributes.converts:
        raise refused(spec.attributes, x.dtype, x.shape, reason)
    steps = wide_steps(spec)
    linked = link(steps, spec.attributes.aligned, direct=False)
    built = first_built([("functions that convert", linked)], steps, spec, context, lines)
    return replace(built, notes=(f"computed in float32: {reason}", *built.notes))
