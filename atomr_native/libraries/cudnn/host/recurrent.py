"""Recurrent networks by NumPy, step by step: the reference.  Gradients go the steps again from the beginning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...._support.philox import philox
from ....builders.context import Built, HostContext
from ....dtypes import DTYPES
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..recurrent_shapes import GATES, RecurrentAttributes

__all__ = ["build_rnn", "build_rnn_backward", "build_rnn_reserve"]

Array = np.ndarray[Any, Any]
#: Seed and offset, from which the gradient makes the same random numbers.
RESERVE_BYTES: Final = 16


def _sigmoid(x: Array) -> Array:
    made: Array = 0.5 * np.tanh(0.5 * x) + 0.5
    return made


class _Cell:
    """One layer in one direction: its weights, and what its steps made."""

    def __init__(self, kind: str, parts: dict[str, Array], end: str) -> None:
        self.kind, self.end = kind, end
        self.w, self.r = parts[f"weight_ih_{end}"], parts[f"weight_hh_{end}"]
        zeros = np.zeros(len(self.w), self.w.dtype)
        self.bw, self.br = parts.get(f"bias_ih_{end}", zeros), parts.get(f"bias_hh_{end}", zeros)
        self.steps: list[tuple[Array, ...]] = []

    def step(self, own: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Go a step with the input's share of the gates, ``W x + b``."""
        other = h @ self.r.T + self.br
        if self.kind == "lstm":
            i, f, g, o = np.split(own + other, 4, axis=1)
            i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
            after = f * c + i * g
            self.steps.append((h, c, i, f, g, o, np.tanh(after)))
            return o * np.tanh(after), after
        if self.kind == "gru":
            (wr, wz, wn), (rr, rz, rn) = np.split(own, 3, axis=1), np.split(other, 3, axis=1)
            r, z = _sigmoid(wr + rr), _sigmoid(wz + rz)
            n = np.tanh(wn + r * rn)
            self.steps.append((h, r, z, n, rn))
            return (1 - z) * n + z * h, c
        a = own + other
        made = np.maximum(a, 0) if self.kind == "relu" else np.tanh(a)
        self.steps.append((h, made))
        return made, c

    def back(self, t: int, dh: Array, dc: Array) -> tuple[Array, Array, Array, Array]:
        """Return the gradients by the input's and the state's shares of a step's gates, then by h and c before it."""
        kept = self.steps[t]
        if self.kind == "lstm":
            _, c, i, f, g, o, wide = kept
            dc = dc + dh * o * (1 - wide * wide)
            di, df, dg, do = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * wide * o * (1 - o)
            gates = np.concatenate((di, df, dg, do), axis=1)
            return gates, gates, gates @ self.r, dc * f
        if self.kind == "gru":
            h, r, z, n, rn = kept
            dn, dz = dh * (1 - z) * (1 - n * n), dh * (h - n) * z * (1 - z)
            dr = dn * rn * r * (1 - r)
            own, other = np.concatenate((dr, dz, dn), axis=1), np.concatenate((dr, dz, dn * r), axis=1)
            return own, other, other @ self.r + dh * z, dc
        made = kept[1]
        a = dh * ((made > 0) if self.kind == "relu" else (1 - made * made))
        return a, a, a @ self.r, dc


class _Network:
    """A network and its sequences as (steps, batch, elements), in the arithmetic of its dtype."""

    def __init__(self, how: RecurrentAttributes, scalars: tuple[Any, ...], weights: Array) -> None:
        self.how = how
        self.real = np.float64 if how.dtype == "float64" else np.float32
        self.lengths = np.full(how.batch, how.steps)
        if how.length_bits:
            each, mask = 64 // how.length_bits, (1 << how.length_bits) - 1
            words = [int(word) & (2**64 - 1) for word in scalars]
            numbers = [words[i // each] >> i % each * how.length_bits & mask for i in range(how.batch)]
            self.lengths = np.array(numbers)
        self.parts = how.weights.parts(weights.astype(self.real))
        step = np.arange(how.steps)[:, None]
        self.seen = (step < self.lengths)[:, :, None]
        self._turned = np.where(step < self.lengths, self.lengths - 1 - step, step)[:, :, None]
        self.cells: list[_Cell] = []
        self.read: list[Array] = []  # by each layer

    def taken(self, array: Array) -> Array:
        """Return an operand as (steps, batch, elements), with zeros behind the ends."""
        how = self.how
        if how.layout == "packed":
            made = np.zeros((how.steps, how.batch, array.shape[-1]), self.real)
            made[np.broadcast_to(self.seen[:, :, 0], made.shape[:2])] = array
            return made
        wide = array.astype(self.real)
        wide = wide.swapaxes(0, 1) if how.layout == "ntc" else wide
        return np.where(self.seen, wide, self.real(0))

    def given(self, value: Array, array: Array) -> None:
        """Store (steps, batch, elements) in an operand."""
        if self.how.layout == "packed":
            array[...] = value[np.broadcast_to(self.seen[:, :, 0], value.shape[:2])].astype(array.dtype)
        else:
            array[...] = value.swapaxes(0, 1) if self.how.layout == "ntc" else value

    def turned(self, x: Array) -> Array:
        """Return sequences from their ends."""
        return np.take_along_axis(x, self._turned, 0)

    def kept(self, layer: int, seed: int, offset: int) -> Array:
        """Return the factors of the elements between two layers: 0 for those that are dropped."""
        how = self.how
        shape = (how.steps, how.batch, how.directions * how.hidden)
        if not how.draws:
            return np.ones((1, 1, 1), self.real)
        place: Array = np.arange(math.prod(shape), dtype=np.uint64)
        others = [np.array(number, np.uint64) for number in (layer, offset & 0xFFFFFFFF, offset >> 32)]
        word = philox((place, others[0], others[1], others[2]), (seed & 0xFFFFFFFF, seed >> 32))[0]
        return (word >= np.uint64(round(how.dropout * 2**32))).reshape(shape) / self.real(1 - how.dropout)

    def forward(self, x: Array, hx: Array, cx: Array, seed: int, offset: int) -> tuple[Array, Array, Array]:
        """Return the result and the last states; keeps what the gradient needs."""
        how = self.how
        hy, cy = hx.astype(self.real), cx.astype(self.real)
        for layer in range(how.layers):
            if layer:
                x = x * self.kept(layer - 1, seed, offset)
            self.read.append(x)
            made = []
            for way in range(how.directions):
                place = layer * how.directions + way
                cell = _Cell(how.kind, self.parts, f"l{layer}{'_reverse' * way}")
                self.cells.append(cell)
                own = (self.turned(x) if way else x) @ cell.w.T + cell.bw
                h, c, out = hy[place].copy(), cy[place].copy(), np.zeros((how.steps, how.batch, how.hidden), self.real)
                for t in range(how.steps):
                    after = cell.step(own[t], h, c)
                    h, c = (np.where(self.seen[t], new, old) for new, old in zip(after, (h, c), strict=True))
                    out[t] = np.where(self.seen[t], h, 0)
                hy[place], cy[place] = h, c
                made.append(self.turned(out) if way else out)
            x = np.concatenate(made, axis=2)
        return x, hy, cy

    def backward(
        self, dy: Array, dhy: Array, dcy: Array, seed: int, offset: int
    ) -> tuple[Array, Array, Array, dict[str, Array]]:
        """Return the gradients by x, the first states, and the parts of the weights, after `forward`."""
        how = self.how
        dhx, dcx = dhy.astype(self.real), dcy.astype(self.real)
        slopes: dict[str, Array] = {}
        for layer in reversed(range(how.layers)):
            x, dx = self.read[layer], np.zeros_like(self.read[layer])
            for way in range(how.directions):
                place = layer * how.directions + way
                cell, source = self.cells[place], self.turned(x) if way else x
                part = dy[:, :, way * how.hidden : (way + 1) * how.hidden]
                part = self.turned(part) if way else part
                dh, dc = dhx[place], dcx[place]
                rows = GATES[how.kind] * how.hidden
                own: Array = np.zeros((how.steps, how.batch, rows), self.real)
                dr: Array = np.zeros_like(cell.r)
                dbr: Array = np.zeros(rows, self.real)
                for t in reversed(range(how.steps)):
                    gates, other, to_h, to_c = cell.back(t, dh + part[t], dc)
                    own[t], other = np.where(self.seen[t], gates, 0), np.where(self.seen[t], other, 0)
                    dr += other.T @ cell.steps[t][0]
                    dbr += other.sum(0)
                    dh, dc = np.where(self.seen[t], to_h, dh), np.where(self.seen[t], to_c, dc)
                dhx[place], dcx[place] = dh, dc
                back = own @ cell.w
                dx += self.turned(back) if way else back
                slopes[f"weight_ih_{cell.end}"] = np.tensordot(own, source, ((0, 1), (0, 1)))
                slopes |= {
                    f"weight_hh_{cell.end}": dr,
                    f"bias_ih_{cell.end}": own.sum((0, 1)),
                    f"bias_hh_{cell.end}": dbr,
                }
            dy = dx * self.kept(layer - 1, seed, offset) if layer else dx
        return dy, dhx, dcx, slopes


def _states(how: RecurrentAttributes, arrays: dict[str, Array], h: str, c: str) -> tuple[Array, Array]:
    """Return the states of all layers that operands have, or zeros."""
    zeros: Array = np.zeros((how.layers * how.directions, how.batch, how.hidden), DTYPES[how.dtype])
    return arrays.get(h, zeros), arrays.get(c, zeros)


def _built(spec: PlanSpec[RecurrentAttributes], body: Callable[[dict[str, Array], tuple[Any, ...]], None]) -> Built:
    names = [operand.name for operand in spec.operands]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        body(dict(zip(names, arrays, strict=True)), scalars)

    return Built(run)


def build_rnn(spec: PlanSpec[RecurrentAttributes], _context: HostContext) -> Built:
    """Return the run of ``cudnn.rnn``."""
    how = spec.attributes
    for operand in spec.operands:
        if operand.name == "reserve" and operand.shape[0] < RESERVE_BYTES:
            raise InvalidRequest(f"reserve has {operand.shape[0]} bytes; allowed: {RESERVE_BYTES} or more")

    def body(arrays: dict[str, Array], scalars: tuple[Any, ...]) -> None:
        numbers, words = (scalars[:2], scalars[2:]) if how.draws else ((0, 0), scalars)
        network = _Network(how, words, arrays["weights"])
        seed, offset = map(int, numbers)
        made = network.forward(network.taken(arrays["x"]), *_states(how, arrays, "hx", "cx"), seed, offset)
        network.given(made[0], arrays["out"])
        for name, value in zip(("hy", "cy"), made[1:], strict=True):
            if name in arrays:
                arrays[name][...] = value
        if "reserve" in arrays:
            arrays["reserve"][:RESERVE_BYTES] = np.array(numbers, np.int64).view(np.uint8)

    return _built(spec, body)


def build_rnn_backward(spec: PlanSpec[RecurrentAttributes], _context: HostContext) -> Built:
    """Return the run of ``cudnn.rnn_backward``."""
    how = spec.attributes

    def body(arrays: dict[str, Array], scalars: tuple[Any, ...]) -> None:
        seed, offset = map(int, arrays["reserve"][:RESERVE_BYTES].view(np.int64))
        network = _Network(how, scalars, arrays["weights"])
        network.forward(network.taken(arrays["x"]), *_states(how, arrays, "hx", "cx"), seed, offset)
        last = _states(how, arrays, "dhy", "dcy")
        dx, dhx, dcx, slopes = network.backward(network.taken(arrays["dy"]), *last, seed, offset)
        network.given(dx, arrays["dx"])
        for name, value in (("dhx", dhx), ("dcx", dcx)):
            if name in arrays:
                arrays[name][...] = value
        for name, part in how.weights.parts(arrays["dweights"]).items():
            part[...] = slopes[name]

    return _built(spec, body)


def build_rnn_reserve(spec: PlanSpec[RecurrentAttributes], _context: HostContext) -> Built:
    """Return the run of ``cudnn.rnn_reserve``."""

    def body(arrays: dict[str, Array], _scalars: tuple[Any, ...]) -> None:
        arrays["out"][...] = RESERVE_BYTES

    return _built(spec, body)
