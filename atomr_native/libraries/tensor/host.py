"""Tensor operations on the host device: NumPy, in the order of the plan's path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..._support.traced import evaluate
from ...builders.context import Built, HostContext
from ...dtypes import DTYPES
from ...plans.spec import PlanSpec
from .attributes import EinsumAttributes, ElementwiseAttributes, ReduceAttributes
from .modes import Modes, Subscripts, letters, text_of
from .operators import unary_function
from .path import Contraction, contractions
from .tail import RESULT
from .types import accumulator

__all__ = ["build_einsum", "build_elementwise", "build_reduce", "factors_of_call", "store"]

Array = np.ndarray[Any, Any]
#: What NumPy's `einsum` takes as letters.
_LETTERS: Final = 52


def _extents(inputs: Sequence[Modes], shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    found: dict[int, int] = {}
    for modes, shape in zip(inputs, shapes, strict=True):
        for mode, n in zip(modes, shape, strict=True):
            if found.get(mode, 1) == 1:
                found[mode] = n
    return tuple(found[m] for m in range(len(found)))


def _distinct(x: Array, modes: Modes, extents: Sequence[int]) -> tuple[Array, Modes]:
    """Return a tensor with each mode once, without those along which it is broadcast."""
    kept: list[int] = []
    shape, strides = [], []
    for mode in dict.fromkeys(modes):
        axes = [a for a, m in enumerate(modes) if m == mode and x.shape[a] == extents[mode]]
        if axes:
            kept.append(mode)
            shape.append(extents[mode])
            strides.append(sum(x.strides[a] for a in axes))
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False), tuple(kept)


def _aligned(x: Array, modes: Modes, output: Modes) -> Array:
    """Return a view whose axes are those of the output, one element long where it lacks them."""
    order = [modes.index(m) for m in output if m in modes]
    shape = [x.shape[modes.index(m)] if m in modes else 1 for m in output]
    return x.transpose(order).reshape(shape) if x.ndim else x.reshape(shape)


def _product(step: Contraction, arrays: Sequence[Array], extents: Sequence[int]) -> Array:
    """Return the result of one step, in the dtype of its operands."""
    views = [_distinct(x, modes, extents) for x, modes in zip(arrays, step.inputs, strict=True)]
    own = {mode: place for place, mode in enumerate(dict.fromkeys(m for _, modes in views for m in modes))}
    if len(own) <= _LETTERS and set(step.output) <= set(own):
        names = letters(len(own))
        text = ",".join("".join(names[own[m]] for m in modes) for _, modes in views)
        text += "->" + "".join(names[own[m]] for m in step.output)
        found: Array = np.einsum(text, *(x for x, _ in views), optimize=len(views) > 1)
        return found
    # More modes than letters, or a mode that no operand has more than one element of.
    product, modes = views[0]
    if len(views) > 1:
        modes = tuple(own)
        product = np.multiply(*(_aligned(x, m, modes) for x, m in views))
    summed = tuple(a for a, m in enumerate(modes) if m not in step.output)
    add = np.logical_or if product.dtype == bool else np.add
    made = np.asarray(add.reduce(product, axis=summed, dtype=product.dtype))
    rest = tuple(m for m in modes if m in step.output)
    return np.broadcast_to(_aligned(made, rest, step.output), [extents[m] for m in step.output])


def factors_of_call(
    arrays: Sequence[Array], scalars: Sequence[Any], first: int, kind: Any, after: int = -1
) -> tuple[Any, Any]:
    """Return alpha and beta: from the message's scalars, or from arrays from `first` on, up to `after`."""
    if scalars:
        pair = (complex(scalars[0], scalars[2]), complex(scalars[1], scalars[3])) if len(scalars) == 4 else scalars
    else:
        pair = tuple(x.reshape(())[()] for x in arrays[first:after])
    alpha, beta = (*pair, *(1, 0)[len(pair) :])[:2]
    return (int(alpha), int(beta)) if kind.kind in "iub" else (kind.type(alpha), kind.type(beta))


def store(
    out: Array,
    made: Any,
    c: Array | None,
    factors: tuple[Any, Any],
    kind: Any,
    tail: Callable[[Array], Any] | None = None,
) -> None:
    """Write ``alpha * made + beta * C``; what has a factor of 0 does not count.  A tail is applied to it."""
    alpha, beta = factors
    if kind.kind == "b":
        np.copyto(out, made if alpha else False, casting="unsafe")
        return
    value: Any = 0
    if made is not None and alpha != 0:
        value = made if alpha == 1 else np.multiply(made, alpha, dtype=kind)
    if c is not None and beta != 0:
        value = value + np.multiply(c.astype(kind), beta, dtype=kind)
    if tail is not None:
        value = tail(np.asarray(value, kind))
    if not np.iscomplexobj(out) and np.iscomplexobj(value):
        value = value.real
    np.copyto(out, value, casting="unsafe")


def _places(spec: PlanSpec[Any], inputs: int) -> tuple[int, int | None]:
    """Return where factors of the device begin, and where C is."""
    added = spec.attributes.added
    c = inputs if added == "c" else len(spec.operands) - 1 if added == "out" else None
    return inputs + (added == "c"), c


def _tail_of(spec: PlanSpec[Any], kind: Any) -> tuple[int, Callable[[Sequence[Array]], Callable[[Array], Any] | None]]:
    """Return where operands of the tail begin, and what makes the tail's function of a message's."""
    tree = spec.attributes.tail
    names = [str(node[1]) for node in tree if node[0] == "input"][1:]
    after = len(spec.operands) - 1 - len(names)

    def tail_of(arrays: Sequence[Array]) -> Callable[[Array], Any] | None:
        if not tree:
            return None
        others = {n: x.astype(kind) for n, x in zip(names, arrays[after:-1], strict=True)}
        return lambda value: evaluate(tree, {RESULT: value, **others})

    return after, tail_of


def build_einsum(spec: PlanSpec[EinsumAttributes], _context: HostContext) -> Built:
    """Return the run of ``tensor.einsum``: operands, [c], [alpha], [beta], operands of the tail, out."""
    how, count = spec.attributes, len(spec.attributes.inputs)
    extents = _extents(how.inputs, [o.shape for o in spec.operands[:count]])
    steps = contractions(Subscripts(how.inputs, how.output, ()), how.steps)
    dtype = DTYPES[how.dtype]
    kind = DTYPES[accumulator(how.dtype)]
    first, c_at = _places(spec, count)
    after, tail_of = _tail_of(spec, kind)

    def one(arrays: Sequence[Array]) -> Any:
        held = dict(enumerate(arrays))
        sizes = _extents(how.inputs, [x.shape for x in arrays])
        for number, step in enumerate(steps):
            made = _product(step, [held.pop(i) for i in step.operands], sizes)
            last = number == len(steps) - 1
            held[count + number] = made if last or dtype == kind else made.astype(dtype).astype(kind)
        return held[count + len(steps) - 1]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        made = None
        if not how.zero:
            inputs = [x.astype(kind) for x in arrays[:count]]
            inputs = [x.conj() if conj else x for x, conj in zip(inputs, how.conj, strict=True)]
            made = one(inputs) if not how.slices else _sliced(one, inputs, how, extents, kind)
        c = None if c_at is None else arrays[c_at]
        store(arrays[-1], made, c, factors_of_call(arrays, scalars, first, kind, after), kind, tail_of(arrays))

    note = ", ".join(text_of(step.inputs, step.output) for step in steps)
    return Built(run, notes=(f"numpy.einsum: {note}",))


def _sliced(
    one: Callable[[Sequence[Array]], Any], inputs: Sequence[Array], how: EinsumAttributes, extents: Modes, dtype: Any
) -> Array:
    """Return the sum, or the parts, of one index of each sliced mode at a time."""
    made = np.zeros([extents[m] for m in how.output], dtype)
    for index in itertools.product(*(range(extents[m]) for m in how.slices)):
        at = dict(zip(how.slices, index, strict=True))

        def cut(x: Array, modes: Modes, at: dict[int, int] = at) -> Array:
            where = (slice(at[m], at[m] + 1) if m in at and n > 1 else slice(None)
                     for m, n in zip(modes, x.shape, strict=True))  # fmt: skip
            return x[tuple(where)]

        part = one([cut(x, modes) for x, modes in zip(inputs, how.inputs, strict=True)])
        place = tuple(slice(at[m], at[m] + 1) if m in at else slice(None) for m in how.output)
        made[place] = np.logical_or(made[place], part) if how.dtype == "bool" else made[place] + part
    return made


def _reduced(op: str, x: Array, axes: tuple[int, ...], count: int) -> Any:
    if op in ("any", "all"):
        return (np.logical_or if op == "any" else np.logical_and).reduce(x != 0, axis=axes)
    if op in ("max", "min"):
        return (np.maximum if op == "max" else np.minimum).reduce(x, axis=axes) if axes else x
    if op == "prod":
        return np.multiply.reduce(x, axis=axes, dtype=x.dtype)
    if op == "norm_max":
        return np.maximum.reduce(np.abs(x), axis=axes, initial=0) if axes else np.abs(x)
    if op == "norm1":
        return np.add.reduce(np.abs(x), axis=axes)
    if op == "norm2":
        return np.sqrt(np.add.reduce(x * x, axis=axes))
    made = np.add.reduce(x, axis=axes, dtype=x.dtype)
    return np.divide(made, x.dtype.type(count)) if op == "mean" else made


def build_reduce(spec: PlanSpec[ReduceAttributes], _context: HostContext) -> Built:
    """Return the run of ``tensor.reduce``: x, [c], [alpha], [beta], operands of the tail, out."""
    how, kind = spec.attributes, DTYPES[spec.attributes.dtype]
    extents = _extents(how.inputs, [spec.operands[0].shape])
    first, c_at = _places(spec, 1)
    after, tail_of = _tail_of(spec, kind)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        made: Any = None
        if not how.zero:
            x, modes = _distinct(arrays[0].astype(kind), how.inputs[0], extents)
            axes = tuple(a for a, m in enumerate(modes) if m not in how.output)
            made = _reduced(how.reduction, x, axes, math.prod(x.shape[a] for a in axes))
            made = _aligned(np.asarray(made), tuple(m for m in modes if m in how.output), how.output)
        if how.reduction in ("any", "all"):
            np.copyto(arrays[-1], made, casting="unsafe")
            return
        c = None if c_at is None else arrays[c_at]
        store(arrays[-1], made, c, factors_of_call(arrays, scalars, first, kind, after), kind, tail_of(arrays))

    return Built(run)


_COMBINE: Final = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def build_elementwise(spec: PlanSpec[ElementwiseAttributes], _context: HostContext) -> Built:
    """Return the run of ``tensor.elementwise``: operands, out."""
    how, count, kind = spec.attributes, len(spec.attributes.inputs), DTYPES[spec.attributes.dtype]
    extents = _extents(how.inputs, [o.shape for o in spec.operands[:count]])
    inside = tuple(slice(before, before + extents[m]) for m, (before, _) in zip(how.output, how.padding, strict=True))

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        if kind.kind == "c":
            scalars = tuple(map(complex, scalars[::2], scalars[1::2]))
        values = []
        for number, modes in enumerate(how.inputs):
            factor = int(scalars[number]) if kind.kind in "iub" else kind.type(scalars[number])
            if how.zero[number] or factor == 0:  # what has a factor of 0 does not count, NaN neither
                values.append(kind.type(0))
                continue
            x, own = _distinct(arrays[number].astype(kind), modes, extents)
            x = unary_function(how.unary[number])(_aligned(x, own, how.output))
            values.append(x if factor == 1 else np.multiply(x, factor, dtype=kind))
        made = values[0]
        if count > 1:
            made = _COMBINE[how.binary[0]](made, values[1])
        if count > 2:
            made = _COMBINE[how.binary[1]](unary_function(how.unary[3])(made), values[2])
        if any(map(any, how.padding)):
            arrays[-1][...] = np.zeros((), arrays[-1].dtype)
        np.copyto(arrays[-1][inside], made, casting="unsafe")

    return Built(run)
