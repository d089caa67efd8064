"""Plans of expressions: sequences of kernels and calls of cuBLASLt and cuTENSOR.

Each step of a path is a product of a library, with copies of operands that it does not take as they lie, or one kernel.
The last step applies factors, adds C, and applies a tail.  Sliced modes run through their indices one after the other;
their parts are added up in scratch memory in the accumulation dtype.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from ....builders.context import Built
from ....builders.cuda.context import CudaContext
from ....builders.cuda.sequence import SequenceProgram
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import EinsumAttributes
from ..modes import Modes, Subscripts, text_of
from ..path import Contraction, contractions
from ..products import Groups, first_library, groups_of, route_of
from ..types import EIGHT, EMULATED, accumulator
from .arrays import Array
from .builder import Builder
from .choice import Choice, step_spec
from .contract import contract, contract_three
from .finish import NOTHING, Finish
from .multiply import multiply
from .plain import plain_reduction
from .product import Product, find_product
from .tuning import StepTuner

__all__ = ["build_einsum"]


class Einsum(Builder):
    """The steps of an expression."""

    def __init__(self, spec: PlanSpec[EinsumAttributes], context: CudaContext) -> None:
        self.how = spec.attributes
        super().__init__(spec, context, self.how.inputs, self.how.output)
        self.dtype, self.summed = self.how.dtype, accumulator(self.how.dtype)
        self.path = contractions(Subscripts(self.how.inputs, self.how.output, ()), self.how.steps)
        self.is_frugal = len(self.path) > 1 or bool(self.how.slices)
        #: How the step that is being added is computed, if that was measured; and the route of the last one.
        self.choice: Choice | None = None
        self.taken = ""

    @property
    def route(self) -> str:
        """The route that the step which is being added should take."""
        return self.how.route if self.choice is None or not self.choice.route else self.choice.route

    @property
    def is_deterministic(self) -> bool:
        """Whether results have the same bits in other processes."""
        return self.how.deterministic or self.context.deterministic

    def build(self) -> Built:
        """Return the plan."""
        how, finish = self.how, self.finish(self.how.added, zero=self.how.zero)
        if how.zero or 0 in self.extents:
            self.notes.append("a kernel: no products")
            self.map(self.inputs[0], self.target, self.output, self.summed, replace(finish, zero=True))
        elif how.slices:
            self._sliced(finish)
        elif how.route != "cutensor" or len(self.inputs) != 3 or not contract_three(self, self.target, finish):
            self._steps(self.inputs, self.target, finish)
        return self.built()

    def _sliced(self, finish: Finish) -> None:
        """Add the steps of each slice, and their sum."""
        whole = self.extents
        total = self.buffer(self.summed, self.output)
        self.extents = [1 if m in self.how.slices else n for m, n in enumerate(whole)]
        summed = [m for m in self.how.slices if m not in self.output]
        for index in itertools.product(*(range(whole[m]) for m in self.how.slices)):
            at = dict(zip(self.how.slices, index, strict=True))
            begun = any(at[m] for m in summed)
            part = [array.at(at) for array in self.inputs]
            self._steps(part, total.at(at), Finish(added=True) if begun else NOTHING)
            if not any(index):
                notes = len(self.notes)
        self.extents = whole
        del self.notes[notes:]
        slices = math.prod(whole[m] for m in self.how.slices)
        self.notes.append(f"the steps above for each of {slices} slices")
        self.map(total, self.target, self.output, self.summed, finish)

    def _steps(self, inputs: Sequence[Array], into: Array, finish: Finish) -> None:
        held = {i: (array, self.how.conj[i]) for i, array in enumerate(inputs)}
        for number, step in enumerate(self.path):
            operands = [held.pop(i) for i in step.operands]
            last = number == len(self.path) - 1
            made = self._step(step, operands, into if last else None, finish if last else NOTHING)
            held[len(inputs) + number] = (made, False)

    def _step(self, step: Contraction, operands: list[tuple[Array, bool]], into: Array | None, finish: Finish) -> Array:
        """Add a step; return where its result is."""
        native = finish.is_native or finish.bias or finish.rounded is not None
        self.choice = self.choose(step, operands, into if native else None)
        route = route_of(step, self.extents, self.dtype, self.route, self.how.compute)
        groups = groups_of(step)
        text = self.text(step)
        if route != "kernel" and groups is not None:
            made = self._product(step, groups, operands, into, finish)
            if made is not None:
                return made
        self.taken = "kernel"
        self.notes.append(f"{text}: a kernel")
        result = self.buffer(self.dtype, step.output) if into is None else into
        reduced = tuple(m for m in step.modes if m not in step.output)
        arrays = tuple(array for array, _ in operands)
        self.reduce(arrays, result, step.output, reduced, self.summed, finish, conj=[flag for _, flag in operands])
        return result

    def choose(self, step: Contraction, operands: list[tuple[Array, bool]], into: Array | None) -> Choice | None:
        """Return how a step is computed the fastest, if the plan asks for that and it is known, or can be measured.

        `into` is where a library could write the result itself, if it could.
        """
        how = self.how
        groups = groups_of(step)
        if not how.tune or how.slices or groups is None or any(groups.alone):
            return None
        if route_of(step, self.extents, self.dtype, "blas_lt") == "kernel":
            return None
        spec = step_spec(self, step, operands, into)

        def trial(choice: Choice) -> tuple[SequenceProgram, int, str]:
            made = _Trial(spec, self.context, choice)
            program = made.step(direct=into is not None)
            return program, program.workspace, made.taken

        tuner = StepTuner(self.context, spec, self.extents_of(step), trial, direct=into is not None)
        found = tuner.tuned(measure=how.tune == "measure", seconds=how.tune_seconds)
        if found is None:
            return None
        self.tuning.append(f"{self.text(step)}: {found[1]}")
        return found[0]

    def extents_of(self, step: Contraction) -> int:
        """Return how many multiplications a step is."""
        return math.prod(self.extents[m] for m in step.modes)

    def _alone(self, array: Array, conj: bool, modes: Modes, alone: Modes) -> tuple[Array, bool]:
        """Sum over the modes that one operand alone has."""
        if not alone:
            return array, conj
        kept = tuple(m for m in dict.fromkeys(modes) if m not in alone)
        made = self.buffer(self.dtype, kept)
        self.reduce((array,), made, kept, alone, self.summed, NOTHING, conj=(conj,))
        return made, False

    @staticmethod
    def text(step: Contraction) -> str:
        """Return the subscripts of a step."""
        return text_of(step.inputs, step.output)

    def _product(
        self, step: Contraction, groups: Groups, operands: list[tuple[Array, bool]], into: Array | None, finish: Finish
    ) -> Array | None:
        """Add a product of a library with its copies; None if none takes it."""
        begun = len(self.scratch.steps)
        (a, conj_a), (b, conj_b) = (
            self._alone(array, conj, modes, alone)
            for (array, conj), modes, alone in zip(operands, step.inputs, groups.alone, strict=True)
        )
        native = finish.is_native or finish.bias or finish.added or finish.rounded is not None
        given = into if native else None
        if self.how.compute == EIGHT and all(array.dtype.startswith(EIGHT) for array in (a, b)):
            eight = find_product(groups, a, b, given, self.extents, conj=(False, False), dtype=EIGHT)
            result = multiply(self, step, eight, ((a, False), (b, False)), into, finish, EIGHT)
            if result is not None:
                self.taken = "blas_lt"
                return result
        held = ((a, conj_a), (b, conj_b))
        for moves in (True, False):
            product = find_product(
                groups, a, b, given, self.extents, conj=(conj_a, conj_b), dtype=self.dtype, moves=moves
            )
            result = self._by_library(step, groups, product, held, into, finish)
            if result is not None:
                return result
            if not any(product.moved):
                break
        del self.scratch.steps[begun:]
        return None

    def _by_library(
        self, step: Contraction, groups: Groups, product: Product, held: tuple[tuple[Array, bool], tuple[Array, bool]],
        into: Array | None, finish: Finish,
    ) -> Array | None:  # fmt: skip
        """Add a product of the library that is asked first, or of the other; None if none takes it."""
        copied = sum(product.elements(which, self.extents) for which in range(3) if product.copied[which])
        first = first_library(self.dtype, self.extents_of(step), copied)
        if copied * as_dtype(self.dtype).itemsize + PREFERRED_WORKSPACE > self.context.most:
            first = "cutensor"  # which does without copies
        asked = first == "cutensor" and any(product.copied) and self.route == "auto" and not self.how.deterministic
        if self.route == "cutensor" or self.how.compute in EMULATED or asked:
            made = contract(self, step, groups, held, into, finish, wanted=self.route == "cutensor")
            if made is not None:
                self.taken = "cutensor"
                return made
        result = multiply(self, step, product, held, into, finish, self.dtype)
        if result is not None:
            self.taken = "blas_lt"
        return result


class _Trial(Einsum):
    """A plan of one step, to be measured."""

    def __init__(self, spec: PlanSpec[EinsumAttributes], context: CudaContext, choice: Choice) -> None:
        super().__init__(spec, context)
        self._chosen = choice

    def choose(self, *_: object) -> Choice | None:
        return self._chosen

    def step(self, *, direct: bool) -> SequenceProgram:
        """Return the step, with its result in its last operand or in the workspace."""
        operands = list(zip(self.inputs, self.how.conj, strict=True))
        self._step(self.path[0], operands, self.out if direct else None, NOTHING)
        return self.scratch.program(())


def build_einsum(spec: PlanSpec[EinsumAttributes], context: CudaContext) -> Built:
    """Build ``tensor.einsum``.  Waits for the compiler, and for cuBLASLt's heuristic.

    Raises
    ------
    Unsupported
        For more workspace than the limit.
    """
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    builder = Einsum(spec, context)
    how = spec.attributes
    if len(how.inputs) == 1 and how.added == "none" and not (how.slices or how.tail or any(how.conj)):
        reduced = tuple(m for m in dict.fromkeys(how.inputs[0]) if m not in how.output)
        plain = plain_reduction(builder, "any" if how.dtype == "bool" else "sum", builder.summed, reduced)
        if plain is not None:
            return plain
    return builder.build()
