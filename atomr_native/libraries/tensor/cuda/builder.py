"""What all builders of tensor operations share: operands, buffers between steps, kernels, and choices by factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...._support.traced import Tree
from ....builders.context import Built
from ....builders.cuda.codegen import value_type
from ....builders.cuda.context import CudaContext
from ....builders.cuda.sequence import Source
from ....builders.cuda.target import KernelProgram
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..modes import Modes
from ..tail import tail_modes
from ..types import accumulator
from .arrays import Array, dense, operand
from .elements import constant, product_value
from .finish import NOTHING, Finish
from .kernel import partial_bytes, task_kernel
from .scratch import Scratch
from .task import Task

__all__ = ["Builder", "copied"]


class Builder:
    """The steps of one plan: inputs, [c], [alpha], [beta], out are its operands."""

    #: Whether scratch memory of libraries stays below what their operands take, since more steps share it.
    is_frugal = False

    def __init__(
        self, spec: PlanSpec[Any], context: CudaContext, inputs: Sequence[Modes], output: Modes,
        padding: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.spec, self.context = spec, context
        found: dict[int, int] = {}
        for modes, given in zip(inputs, spec.operands, strict=False):
            for mode, n in zip(modes, given.shape, strict=True):
                if found.get(mode, 1) == 1:
                    found[mode] = n
        self.extents: Sequence[int] = [found[m] for m in range(len(found))]
        if any(map(any, padding)):  # modes of their own for the axes of a result that is larger
            first = len(self.extents)
            output, inside = tuple(range(first, first + len(output))), output
            self.extents = [
                *self.extents,
                *(self.extents[m] + sum(pad) for m, pad in zip(inside, padding, strict=True)),
            ]
        self.scratch = Scratch(spec.op, context.most)
        self.notes: list[str] = []
        self.tuning: list[str] = []
        self.inputs = [
            operand(i, given, modes, self.extents)
            for i, (modes, given) in enumerate(zip(inputs, spec.operands, strict=False))
        ]
        self.output = output
        self.out = self._named("out", output)
        # Where the result is made: in scratch memory, if operands are read after it is begun.
        self.target = self.buffer(self.out.dtype, output) if spec.op.endswith("_over") else self.out

    def _named(self, name: str, modes: Modes) -> Array:
        at = next(i for i, given in enumerate(self.spec.operands) if given.name == name)
        given = self.spec.operands[at]
        return operand(at, given, modes, self.extents)

    def buffer(self, dtype: str, modes: Modes) -> Array:
        """Return a new contiguous tensor in the workspace."""
        nbytes = math.prod(self.extents[m] for m in modes) * as_dtype(dtype).itemsize
        return dense(self.scratch.take(nbytes), dtype, modes, self.extents)

    def library_limit(self, arrays: Sequence[Array], most: int | None = None) -> int:
        """Return the bytes of workspace that a call of a library may want.

        They hold copies of all operands, the most from which a product gains, and `PREFERRED_WORKSPACE` besides.
        """
        nbytes = sum(
            math.prod(self.extents[m] for m in array.modes) * as_dtype(array.dtype).itemsize for array in arrays
        )
        given = nbytes if self.is_frugal else nbytes + PREFERRED_WORKSPACE
        return min(given, self.context.most if most is None else min(most, self.context.most))

    def finish(self, added: str, *, zero: bool) -> Finish:
        """Return how the message's factors and C are applied."""
        at = {given.name: i for i, given in enumerate(self.spec.operands)}
        factors = [
            Array(("operand", at[name]), self.spec.operands[at[name]].dtype, (), ()) if name in at else None
            for name in ("alpha", "beta")
        ]
        updated = added == "out" and self.target is self.out
        c = None if added == "none" or updated else self._named(added, self.output)
        tail: Tree = getattr(self.spec.attributes, "tail", ())
        names = [str(node[1]) for node in tail if node[0] == "input"][1:]
        others = tuple(
            (name, self._named(name, tail_modes(self.output, len(self.spec.operands[at[name]].shape))))
            for name in names
        )
        return Finish(self.spec.scalars, factors[0], factors[1], c, updated, False, zero, tail, others)

    def run(self, task: Task) -> None:
        """Add a kernel."""
        program = task_kernel(task, self.extents, self.context.target)
        operands = tuple(array.source for array in task.arrays)
        if nbytes := partial_bytes(task, self.extents, self.context.target):
            operands += (("workspace", self.scratch.take(nbytes)),)
        scalars: tuple[Source, ...] = tuple(("scalar", j) for j in range(len(task.scalars)))
        self.scratch.add(program, operands, scalars)

    def map(self, source: Array, into: Array, modes: Modes, dtype: str, finish: Finish, *, conj: bool = False) -> None:
        """Add a kernel that copies a tensor, finished."""
        self.reduce((source,), into, modes, (), dtype, finish, conj=(conj,))

    def reduce(
        self, inputs: tuple[Array, ...], into: Array, kept: Modes, reduced: Modes, dtype: str, finish: Finish, *,
        conj: Sequence[bool],
    ) -> None:  # fmt: skip
        """Add a kernel that sums products of elements."""
        if finish.zero:
            inputs, reduced = (), ()
        value = product_value(inputs, conj, dtype) if inputs else (f"{value_type(dtype)} v = {constant(dtype, 0)};",)
        self.run(
            Task(
                inputs=inputs,
                finals=finish.finals,
                output=into,
                kept=kept,
                reduced=reduced,
                dtype=dtype,
                value=value,
                finish=finish.statements(len(inputs), into, dtype),
                scalars=finish.scalars,
                updated=finish.updated or finish.added,
            )
        )

    def guarded(
        self, factors: tuple[tuple[int, ...], ...], add: Callable[[], str], instead: Callable[[], object]
    ) -> str:
        """Add steps for messages of which no factor is 0, and others for those with one; return why there are none.

        A library multiplies by a factor of 0, so that NaN would spread.

        Parameters
        ----------
        factors
            The message's scalars.
        add
            Adds the former, or returns why it does not.
        instead
            Adds the others.
        """
        if not factors:
            return add()
        with self.scratch.only("nonzero", factors):
            reason = add()
        if not reason:
            with self.scratch.only("zero", factors):
                instead()
        return reason

    def without_product(self, modes: Modes, into: Array, finish: Finish) -> None:
        """Add a kernel for alpha = 0: what is left is ``beta * C``."""
        self.reduce((), into, modes, (), accumulator(into.dtype), replace(finish, zero=True), conj=())

    def built(self) -> Built:
        """Return the plan; a result in scratch memory is copied to where it goes."""
        if self.target is not self.out:
            self.map(self.target, self.out, self.output, copied(self.out.dtype), NOTHING)
        program = self.scratch.program(tuple(self.notes))
        only = program.steps[0]
        alone = len(program.steps) == 1 and not program.workspace and isinstance(only.run, KernelProgram)
        if alone and only.operands == tuple(("operand", i) for i in range(len(self.spec.operands))):
            return Built(only.run, 0, program.notes, "; ".join(self.tuning))
        return Built(program, program.workspace, program.notes, "; ".join(self.tuning))


def copied(dtype: str) -> str:
    """Return the dtype of values of a copy, in which none changes."""
    return accumulator(dtype) if dtype.startswith("float8") or dtype in ("float16", "bfloat16") else dtype
