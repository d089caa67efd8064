"""Paths of einsum: in which order operands meet, two at a time, and which modes are sliced to save memory.

Everything here is a function of modes and extents.  Up to `MOST_OPTIMAL` operands the search finds the order with the
fewest multiplications; beyond, ``opt_einsum`` searches where it is installed, else a greedy search does.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..._support.checks import is_integer
from ...errors import InvalidRequest, Unsupported
from .modes import Modes, Subscripts

__all__ = ["MOST_OPTIMAL", "OPTIMIZE", "Contraction", "Path", "contractions", "find_path", "sliced_extents"]

#: Values of `optimize` besides a path.
OPTIMIZE: Final = ("auto", "optimal", "greedy", "left")
#: Operands for which all orders are compared.
MOST_OPTIMAL: Final = 8
#: Slices of an expression, each of which is enqueued on its own.
MOST_SLICES: Final = 256

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """One step of a path.

    Attributes
    ----------
    operands : tuple of int
        One operand or two: those of the expression are numbered from 0, results of steps follow.
    inputs : tuple of tuple of int
        Their modes.
    output : tuple of int
        Modes of the result.
    """

    operands: Ids
    inputs: tuple[Modes, ...]
    output: Modes

    @property
    def modes(self) -> tuple[int, ...]:
        """All modes."""
        return tuple(dict.fromkeys(mode for modes in self.inputs for mode in modes))

    def flops(self, extents: Sequence[int]) -> int:
        """Return multiplications and additions: one operation for an element, two where elements are summed."""
        summed = len(set(self.modes)) > len(self.output)
        return math.prod(extents[m] for m in self.modes) * (len(self.inputs) - 1 + summed)


@dataclass(frozen=True, slots=True)
class Path:
    """How an expression is computed.

    Attributes
    ----------
    steps : tuple of tuple of int
        Operands of each step: those of the expression are numbered from 0, results of steps follow.
    slices : tuple of int
        Modes of which one index is computed at a time.
    """

    steps: tuple[Ids, ...]
    slices: Modes = ()


def contractions(subscripts: Subscripts, steps: Sequence[Ids]) -> tuple[Contraction, ...]:
    """Return the steps of a path with their modes: each result has the modes that are needed afterwards."""
    held: dict[int, Modes] = dict(enumerate(subscripts.inputs))
    found: list[Contraction] = []
    for number, step in enumerate(steps):
        inputs = tuple(held.pop(i) for i in step)
        if number == len(steps) - 1:
            output = subscripts.output
        else:
            later = {*subscripts.output, *(mode for modes in held.values() for mode in modes)}
            output = tuple(dict.fromkeys(mode for modes in inputs for mode in modes if mode in later))
        held[len(subscripts.inputs) + number] = output
        found.append(Contraction(step, inputs, output))
    return tuple(found)


def sliced_extents(extents: Sequence[int], slices: Modes) -> tuple[int, ...]:
    """Return the extents of one slice."""
    return tuple(1 if mode in slices else n for mode, n in enumerate(extents))


def peak_elements(steps: Sequence[Contraction], extents: Sequence[int], operands: int) -> int:
    """Return the most elements of intermediate results that exist at once."""
    live: dict[int, int] = {}
    most = 0
    for number, step in enumerate(steps[:-1]):
        live[operands + number] = math.prod(extents[m] for m in step.output)
        most = max(most, sum(live.values()))
        for i in step.operands:
            live.pop(i, None)
    return most


def find_path(
    subscripts: Subscripts, extents: tuple[int, ...], optimize: Any = "auto", most_elements: int | None = None
) -> Path:
    """Return the path of an expression.

    Parameters
    ----------
    subscripts, extents
        The expression.
    optimize : str or sequence
        ``"auto"``, ``"optimal"``, ``"greedy"``, ``"left"``: from left to right; or a path as `numpy.einsum_path` and
        ``opt_einsum`` write it: positions of the operands of each step, whose result is appended.
    most_elements : int, optional
        Elements that intermediate results may have at once; modes are sliced until they fit.

    Raises
    ------
    InvalidRequest
        For a path that does not fit.
    Unsupported
        If no slicing fits the limit.
    """
    count = len(subscripts.inputs)
    if isinstance(optimize, str):
        if optimize not in OPTIMIZE:
            raise InvalidRequest(
                f"optimize={optimize!r}; allowed: {', '.join(map(repr, OPTIMIZE))}, or a path: pairs of positions"
            )
        steps = _search(subscripts, extents, optimize)
    else:
        steps = _given(optimize, count)
    made = contractions(subscripts, steps)
    slices = () if most_elements is None else _slices(made, extents, subscripts, most_elements)
    return Path(steps, slices)


def _search(subscripts: Subscripts, extents: tuple[int, ...], optimize: str) -> tuple[Ids, ...]:
    count = len(subscripts.inputs)
    if count < 3 or optimize == "left":
        return _pairs(
            [tuple(range(count))] if count < 3 else [(0, 1)] + [(0, n) for n in range(count - 2, 0, -1)], count
        )
    if optimize == "optimal" and count > MOST_OPTIMAL + 2:
        raise InvalidRequest(
            f"optimize='optimal' with {count} operands; allowed: {MOST_OPTIMAL + 2} at most, or 'auto', or a path"
        )
    if optimize == "optimal" or (optimize == "auto" and count <= MOST_OPTIMAL):
        return _optimal(subscripts, extents)
    if optimize == "auto":
        try:
            opt_einsum = importlib.import_module("opt_einsum")
        except ImportError:
            return _greedy(subscripts, extents)
        sets = [frozenset(modes) for modes in subscripts.inputs]
        sizes = dict(enumerate(extents))
        return _pairs(opt_einsum.paths.auto(sets, frozenset(subscripts.output), sizes), count)
    return _greedy(subscripts, extents)


def _given(path: Any, count: int) -> tuple[Ids, ...]:
    """Check a path of the caller's."""
    found = list(path) if isinstance(path, Sequence) else None
    if found and isinstance(found[0], str):  # as numpy.einsum_path returns it
        found = found[1:]
    if found is None or not all(
        isinstance(step, Sequence) and not isinstance(step, str) and step and all(map(is_integer, step))
        for step in found
    ):
        raise InvalidRequest(f"optimize={path!r}; allowed: {', '.join(map(repr, OPTIMIZE))}, or a path: [(0, 1), ...]")
    left = count
    for step in found:
        if len(set(step)) != len(step) or not all(0 <= place < left for place in step):
            raise InvalidRequest(
                f"step {tuple(step)} of the path: {left} operands are left there; allowed: different positions from 0 "
                f"to {left - 1}"
            )
        left += 1 - len(step)
    if left != 1:
        raise InvalidRequest(f"the path {path!r} leaves {left} operands; allowed: one, the result")
    return _pairs([tuple(map(int, step)) for step in found], count)


def _pairs(path: Sequence[Ids], count: int) -> tuple[Ids, ...]:
    """Return positions of operands as their numbers; steps of more than two operands become several."""
    held, steps = list(range(count)), []
    for step in path:
        chosen = [held[place] for place in step]
        held = [i for place, i in enumerate(held) if place not in step]
        first, *others = chosen
        for other in others or [-1]:
            steps.append((first,) if other < 0 else (first, other))
            first = count + len(steps) - 1
        held.append(first)
    return tuple(steps)


def _optimal(subscripts: Subscripts, extents: tuple[int, ...]) -> tuple[Ids, ...]:
    """Return the order with the fewest multiplications, and of these with the smallest results."""
    count = len(subscripts.inputs)
    sets = [sum(1 << m for m in set(modes)) for modes in subscripts.inputs]
    output = sum(1 << m for m in subscripts.output)
    whole = (1 << count) - 1
    sizes: dict[int, int] = {}

    def size(modes: int) -> int:
        if modes not in sizes:
            sizes[modes] = math.prod(max(n, 1) for m, n in enumerate(extents) if modes >> m & 1)
        return sizes[modes]

    union = [0] * (whole + 1)
    for subset in range(1, whole + 1):
        low = (subset & -subset).bit_length() - 1
        union[subset] = union[subset & (subset - 1)] | sets[low]
    result = [union[s] & (union[whole ^ s] | output) for s in range(whole + 1)]
    best: dict[int, tuple[int, int, Any]] = {1 << i: (0, 0, i) for i in range(count)}
    for chosen in range(2, count + 1):
        for members in itertools.combinations(range(count), chosen):
            subset = sum(1 << i for i in members)
            rest = subset ^ (1 << members[-1])
            found = []
            part = rest
            while part:  # subsets that lack one member, so that each pair is seen once
                pair = (part, subset ^ part)
                inputs = 0
                for one in pair:
                    inputs |= result[one] if one & (one - 1) else union[one]
                spent = sum(best[one][0] for one in pair) + size(inputs)
                large = max(*(best[one][1] for one in pair), size(result[subset]))
                found.append((spent, large, pair))
                part = (part - 1) & rest
            best[subset] = min(found)
    steps: list[Ids] = []

    def emit(subset: int) -> int:
        made = best[subset][2]
        if isinstance(made, int):
            return made
        pair = tuple(sorted(map(emit, made)))
        steps.append(pair)
        return count + len(steps) - 1

    emit(whole)
    return tuple(steps)


def _greedy(subscripts: Subscripts, extents: tuple[int, ...]) -> tuple[Ids, ...]:
    """Return an order that next joins the pair whose result adds the least memory."""
    held = {i: frozenset(modes) for i, modes in enumerate(subscripts.inputs)}
    uses: dict[int, int] = {}
    for modes in held.values():
        for mode in modes:
            uses[mode] = uses.get(mode, 0) + 1
    output = frozenset(subscripts.output)

    def size(modes: frozenset[int]) -> int:
        return math.prod(extents[m] for m in modes)

    def joined(i: int, j: int) -> frozenset[int]:
        both = held[i] | held[j]
        return frozenset(m for m in both if m in output or uses[m] > (m in held[i]) + (m in held[j]))

    steps: list[Ids] = []
    number = len(held)
    while len(held) > 1:
        pairs = list(itertools.combinations(held, 2))
        found = []
        for i, j in [pair for pair in pairs if held[pair[0]] & held[pair[1]]] or pairs:
            made = joined(i, j)
            found.append((size(made) - size(held[i]) - size(held[j]), size(held[i] | held[j]), i, j))
        *_, i, j = min(found)
        made = joined(i, j)
        for mode in tuple(held[i] | held[j]):
            uses[mode] += (mode in made) - (mode in held[i]) - (mode in held[j])
        del held[i], held[j]
        held[number] = made
        steps.append((i, j))
        number += 1
    return tuple(steps)


def _slices(steps: tuple[Contraction, ...], extents: tuple[int, ...], subscripts: Subscripts, limit: int) -> Modes:
    """Return the modes to slice until intermediate results fit; each time the mode that helps most."""
    count = len(subscripts.inputs)
    chosen: Modes = ()
    while (peak := peak_elements(steps, sliced_extents(extents, chosen), count)) > limit:
        left = MOST_SLICES // math.prod(extents[m] for m in chosen)
        options = []
        for mode, extent in enumerate(extents):
            if mode in chosen or not 1 < extent <= left:
                continue
            trial = sliced_extents(extents, (*chosen, mode))
            after = peak_elements(steps, trial, count)
            if after < peak:
                options.append((after > limit, extent * sum(s.flops(trial) for s in steps), after, mode))
        if not options:
            raise Unsupported(
                f"intermediate results of {peak} elements at once, of which {limit} fit the memory limit, and at most "
                f"{MOST_SLICES} slices do not make them fit; raise memory_limit, or give another path",
                rule="tensor.memory_limit",
                lifted_by=("memory_limit", "optimize"),
            )
        chosen = (*chosen, min(options)[-1])
    return chosen
