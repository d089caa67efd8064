"""The steps of a transform with functions of the user's: inside the kernels of cuFFT, or as kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....builders.cuda.workspace import padded
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import FftAttributes, MappedAttributes
from ..callbacks import symbol_of
from ..fusion import dense_dtype, dense_order, is_dense, scale_of, wrong_callback
from ..spec import TRANSFORMS, whole_shape
from .line_axes import Functions, plan_axes
from .line_steps import plan_lines
from .planner import plan_arrays
from .sources import callback_text
from .steps import Apply, Array, Call, Steps, in_order, operand

__all__ = ["lines_mapped", "plan_mapped", "ways"]


def ways(spec: PlanSpec[MappedAttributes]) -> Iterator[frozenset[str]]:
    """Yield which functions are inside cuFFT's kernels: as many as can be first, and none last."""
    names = [which for which in ("load", "store") if getattr(spec.attributes, which) is not None]
    yield frozenset(names)
    if len(names) == 2:
        yield from (frozenset([name]) for name in names)
    yield frozenset()


def plan_mapped(spec: PlanSpec[MappedAttributes], fused: frozenset[str] = frozenset()) -> Steps:
    """Return the steps of a transform with functions of the user's, which also multiply by the factor.

    Parameters
    ----------
    spec
    fused : frozenset of str
        The functions that cuFFT calls.

    Raises
    ------
    Unsupported
        If cuFFT cannot call them in this transform.
    """
    how = spec.attributes
    last_one = len(spec.operands) - 1
    x, out = operand(0, spec.operands[0]), operand(last_one, spec.operands[last_one])
    kind, nbytes = TRANSFORMS[how.transform], 0
    order = dense_order(spec) if fused or how.sources else tuple(range(len(out.shape)))
    source, target, aligned = x, out, how.aligned
    first: list[Apply] = []
    last: list[Apply] = []
    if how.store is not None:
        dtype, shape = dense_dtype(spec, "store"), out.shape
        if not ("store" in fused and aligned[1] and is_dense(spec.operands[last_one], order, shape, dtype)):
            target = Array(("workspace", 0), dtype, shape, in_order(shape, order))
            nbytes += padded(target.nbytes)
        if "store" not in fused:
            last.append(Apply("store", target, out, shape, scale_of(spec, "store")))
        aligned = (aligned[0], True)
    if how.load is not None:
        dtype, shape = dense_dtype(spec, "load"), whole_shape(kind, x.shape, how.axes, how.lengths)
        kept = kind != "c2r" or how.overwrite
        if not ("load" in fused and kept and aligned[0] and is_dense(spec.operands[0], order, shape, dtype)):
            source = Array(("workspace", nbytes), dtype, shape, in_order(shape, order))
            nbytes += padded(source.nbytes)
        if "load" not in fused:
            inside = replace(x, shape=tuple(min(n, m) for n, m in zip(x.shape, shape, strict=True)))
            first.append(Apply("load", inside, source, x.shape, scale_of(spec, "load")))
        aligned = (True, aligned[1])
    inner = FftAttributes(
        transform=how.transform,
        axes=how.axes,
        lengths=how.lengths,
        norm="none",
        overwrite=how.overwrite or (kind == "c2r" and how.load is not None),
        hermitian=how.hermitian,
        aligned=aligned,
    )
    planned = plan_arrays(inner, source, target, nbytes)
    steps = list(planned.steps)
    for which in sorted(fused):
        at = 0 if which == "load" else len(steps) - 1
        steps[at] = _called(which, steps[at], source if which == "load" else target)
    return Steps((*first, *steps, *last), planned.nbytes)


def _called(which: str, step: object, dense: Array) -> Call:
    """Return a step whose kernels call a function."""
    array = None if not isinstance(step, Call) else step.source if which == "load" else step.target
    if not isinstance(step, Call) or array != dense:
        where = "x is copied first" if which == "load" else "the result is copied last"
        raise Unsupported(f"{where}, since cuFFT does not transform it as it is", rule="fft.callback")
    if step.layout.loops:
        raise Unsupported("cuFFT transforms the batch in several calls", rule="fft.callback")
    if wrong := wrong_callback(which, dense.dtype, step.layout.lengths):
        raise Unsupported(wrong, rule="fft.callback")
    return replace(step, callbacks=(*step.callbacks, which))


def lines_mapped(spec: PlanSpec[MappedAttributes]) -> Steps | None:
    """Return the transform by kernels of lines that call the functions, or None where there are none."""
    how = spec.attributes
    last = len(spec.operands) - 1
    x, out = operand(0, spec.operands[0]), operand(last, spec.operands[last])
    order, shapes = dense_order(spec), {"store": out.shape}
    shapes["load"] = whole_shape(TRANSFORMS[how.transform], x.shape, how.axes, how.lengths)
    names = [which for which in ("load", "store") if getattr(how, which) is not None]
    numba, arrays = dict(how.callbacks), {}
    for which in names:
        place, shape = (0 if which == "load" else last), shapes[which]
        arrays[which] = Array(("operand", place), dense_dtype(spec, which), shape, in_order(shape, order))
    functions = Functions(
        arrays,
        {which: symbol_of(which) for which in names},
        {} if numba else {which: callback_text(spec, which) for which in names},
        {which: numba[which].data if which in numba else b"" for which in names} if numba else {},
    )
    axis = next((a for a, n in zip(how.axes, how.lengths, strict=True) if n > 1), how.axes[-1])
    reason = f"it calls the function{'s' if len(names) > 1 else ''} {' and '.join(names)}"
    one = plan_lines(
        how, x, out, reason=reason, codes=functions.texts(*names), linked=functions.programs(*names),
        load=functions.end("load", axis), store=functions.end("store", axis),
    )  # fmt: skip
    return one or plan_axes(how, x, out, reason, functions)
