"""Steps of transforms on a GPU, interpreted by NumPy: layouts of cuFFT, copies, buffers.  Needs no device.

Addresses of a call come from the formula of cuFFT's manual, and its rules hold: C2R destroys its input, and adds what a
Hermitian array must not have.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from fft_reference import reference

from atomr_native.libraries.fft.cuda.layouts import MOST_CALLS
from atomr_native.libraries.fft.cuda.steps import Apply, Array, Call, Move, Steps

__all__ = ["Memory", "run_steps"]


class Memory:
    """The operands and the workspace of a message, as bytes."""

    def __init__(self, operands: Sequence[np.ndarray], nbytes: int) -> None:
        self.operands = tuple(operands)
        self.workspace = np.full(nbytes + 16, 0x5A, np.uint8)[:nbytes]

    def view(self, array: Array) -> np.ndarray:
        kind, place = array.source
        dtype = np.dtype(array.dtype)
        strides = tuple(step * dtype.itemsize for step in array.strides)
        if kind == "operand":
            given = self.operands[place]
            assert given.dtype == dtype
            assert all(n <= m for n, m in zip(array.shape, given.shape, strict=True))
            return np.lib.stride_tricks.as_strided(given, array.shape, strides)
        assert place % 256 == 0
        assert place + array.nbytes <= self.workspace.nbytes
        flat = self.workspace[place : place + array.nbytes].view(dtype)
        return np.lib.stride_tricks.as_strided(flat, array.shape, strides)


def line(view: np.ndarray, layout: Any, side: int, shift: int, half: bool, kept: bool) -> np.ndarray:
    """What a call sees from an array's first element on: transforms of a batch, by cuFFT's formula."""
    embed, size = layout.embed[side], view.dtype.itemsize
    steps = [layout.stride[side] * math.prod(embed[i + 1 :]) for i in range(len(embed))]
    strides = [step * size for step in (layout.dist[side], *steps)]
    shape = [layout.batch, *layout.lengths]
    if half:
        shape[-1] = shape[-1] // 2 + 1
    assert all(stride > 0 for stride in strides)
    assert all(n <= m for n, m in zip(shape[2:], embed[1:], strict=True))
    whole = steps[0] * shape[1]  # transforms of a batch lie one after the other, or between the elements of one
    assert kept or layout.batch == 1 or layout.dist[side] >= whole or layout.dist[side] * layout.batch <= steps[-1]
    reach = shift + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + size
    raw = (ctypes.c_char * reach).from_address(view.__array_interface__["data"][0])
    return np.ndarray(shape, view.dtype, raw, shift, strides)


def scratch(array: Array) -> np.ndarray:
    """An array of that layout which holds nothing."""
    reach = 1 + sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True))
    dtype = np.dtype(array.dtype)
    made = np.full(reach * dtype.itemsize, 0x5A, np.uint8).view(dtype)
    return np.lib.stride_tricks.as_strided(made, array.shape, [step * dtype.itemsize for step in array.strides])


def in_parts(view: np.ndarray, other: Array) -> np.ndarray:
    """Complex numbers as an array with the other's axes: by their parts if it has one more."""
    if len(other.shape) == view.ndim:
        return view
    real = view.real.dtype
    return np.lib.stride_tricks.as_strided(view.view(), view.shape, view.strides).view(real).reshape(*view.shape, 2)


def perform_linked(call: Call, memory: Memory) -> None:
    """A call whose functions stand for copies: cuFFT sees arrays that nobody has written, and writes others."""
    functions = {function.which: function.move for function in call.linked}
    source, target = (functions.get(which) for which in ("load", "store"))
    loads = scratch(call.source) if source else memory.view(call.source)
    stores = scratch(call.target) if target else memory.view(call.target)
    if source:
        place = source.source.source if source.source.source[0] == "operand" else call.source.source
        copy(source, memory.view(replace(source.source, source=place)), in_parts(loads, source.target))
    perform(call, loads, stores)
    if call.finishes:
        stores[...] = (stores.conj() if call.conjugated else stores) * call.scale
    if target:
        copy(target, in_parts(stores, target.source), memory.view(target.target))


def perform(call: Call, source: np.ndarray, target: np.ndarray) -> None:
    layout, rank = call.layout, len(call.layout.lengths)
    assert 1 <= rank <= 3
    assert math.prod(n for n, *_ in layout.loops) <= MOST_CALLS
    loops = [*layout.loops, *([(1, 0, 0)] * (2 - len(layout.loops)))]
    for i, j in np.ndindex(loops[0][0], loops[1][0]):
        sides = []
        for side, view in enumerate((source, target)):
            shift = i * loops[0][1 + side] + j * loops[1][1 + side]
            half = view.dtype.kind == "c" and layout_kind(call) != "c2c"
            kept = side == 0 and layout_kind(call) != "c2r"
            sides.append(line(view, layout, side, shift, half, kept))
        compute(layout_kind(call), call.inverse, *sides, layout.lengths)


def layout_kind(call: Call) -> str:
    return "".join("c" if a.dtype.startswith("c") else "r" for a in (call.source, call.target)).replace("", "2")[1:-1]


def compute(kind: str, inverse: bool, x: np.ndarray, out: np.ndarray, lengths: tuple[int, ...]) -> None:
    axes = tuple(range(1, x.ndim))
    wide = x.astype(np.clongdouble)
    if kind == "c2c":
        import scipy.fft

        out[...] = scipy.fft.ifftn(wide, axes=axes, norm="forward") if inverse else scipy.fft.fftn(wide, axes=axes)
    elif kind == "r2c":
        assert not inverse
        out[...] = reference("rfft", x.astype(np.longdouble), lengths, axes)
    else:
        assert inverse
        out[...] = reference("irfft", wide, lengths, axes, "none")
        middle = [0] if lengths[-1] % 2 else [0, lengths[-1] // 2]
        for at in middle:  # what a Hermitian array has not
            plane = wide[..., at]
            mirror = plane[np.ix_(range(len(plane)), *(-np.arange(n) % n for n in lengths[:-1]))]
            out += np.abs(plane - mirror.conj()).max()
        x[...] = -77 + 77j


def copy(step: Move, source: np.ndarray, target: np.ndarray) -> None:
    held = np.zeros(target.shape, np.clongdouble)
    inside = tuple(slice(0, n) for n in source.shape)
    held[inside] = source
    if step.symmetric:
        *others, (axis, n) = step.symmetric
        mirror = np.conj(held)
        for a, m in others:
            mirror = np.take(mirror, -np.arange(m) % m, a)
        for at in [0] if n % 2 else [0, n // 2]:
            place = (*[slice(None)] * axis, at)
            held[place] = (held[place] + mirror[place]) / 2
    held = (held.conj() if step.conjugated else held) * step.scale
    target[...] = held if target.dtype.kind == "c" else held.real


def run_steps(steps: Steps, memory: Memory, aligned: Any, apply: Callable[[Apply], None] | None = None) -> None:
    """Run steps in memory; `aligned` says by operand whether it is, `apply` runs the functions of the user's."""
    for step in steps.steps:
        if isinstance(step, Apply):
            assert apply is not None
            apply(step)
        elif isinstance(step, Move):
            copy(step, memory.view(step.source), memory.view(step.target))
        else:
            for array in (step.source, step.target):
                if array.source[0] == "operand":
                    assert aligned[array.source[1]]
            perform_linked(step, memory)
