"""From plan specifications of ``tensor.*`` to sequences of kernels and products of cuBLASLt.

Each step of a path is a product of cuBLASLt, with copies of operands whose modes do not merge, or one kernel.  The last
step applies factors and adds C.  Sliced modes run through their indices one after the other; the parts are added up in
scratch memory in the accumulation dtype.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from ...._lib import cublaslt
from ...._lib.cublaslt import Matmul
from ....builders.context import Built
from ....builders.cuda.codegen import value_type
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.reductions import build_reduce as build_plain_reduction
from ....builders.cuda.sequence import Source
from ....builders.cuda.sums import Reduction
from ....builders.cuda.target import KernelProgram
from ....dtypes import as_dtype
from ....errors import LibraryError, Unsupported
from ....plans.spec import PlanSpec
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import EinsumAttributes, ElementwiseAttributes, ReduceAttributes
from ..modes import Modes, Subscripts, text_of
from ..path import Contraction, contractions
from ..products import Groups, groups_of, route_of
from ..types import accumulator
from .arrays import Array, dense, operand
from .elements import constant, factored, loaded, multiplied, operated, product_value, scaled
from .finish import NOTHING, Finish
from .kernel import partial_bytes, task_kernel
from .product import find_product, product_outputs
from .scratch import Scratch
from .task import Task

__all__ = ["build_einsum", "build_elementwise", "build_reduce"]

_ONE: Final = struct.unpack("<Q", struct.pack("<d", 1.0))[0]


class _Builder:
    """The steps of one plan: inputs, [c], [alpha], [beta], out are its operands."""

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
        self.scratch = Scratch(spec.op, context.workspace_limit)
        self.notes: list[str] = []
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

    def finish(self, added: str, *, zero: bool) -> Finish:
        """Return how the message's factors and C are applied."""
        at = {given.name: i for i, given in enumerate(self.spec.operands)}
        factors = [
            Array(("operand", at[name]), self.spec.operands[at[name]].dtype, (), ()) if name in at else None
            for name in ("alpha", "beta")
        ]
        updated = added == "out" and self.target is self.out
        c = None if added == "none" or updated else self._named(added, self.output)
        return Finish(self.spec.scalars, factors[0], factors[1], c, updated, False, zero)

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

    def built(self) -> Built:
        """Return the plan; a result in scratch memory is copied to where it goes."""
        if self.target is not self.out:
            self.map(self.target, self.out, self.output, _copied(self.out.dtype), NOTHING)
        program = self.scratch.program(tuple(self.notes))
        only = program.steps[0]
        alone = len(program.steps) == 1 and not program.workspace and isinstance(only.run, KernelProgram)
        if alone and only.operands == tuple(("operand", i) for i in range(len(self.spec.operands))):
            return Built(only.run, 0, program.notes)
        return Built(program, program.workspace, program.notes)


def _copied(dtype: str) -> str:
    """Return the dtype of values of a copy, in which none changes."""
    return accumulator(dtype) if dtype.startswith("float8") or dtype in ("float16", "bfloat16") else dtype


class _Einsum(_Builder):
    """The steps of an expression."""

    def __init__(self, spec: PlanSpec[EinsumAttributes], context: CudaContext) -> None:
        self.how = spec.attributes
        super().__init__(spec, context, self.how.inputs, self.how.output)
        self.dtype, self.summed = self.how.dtype, accumulator(self.how.dtype)
        self.path = contractions(Subscripts(self.how.inputs, self.how.output, ()), self.how.steps)

    def build(self) -> Built:
        """Return the plan."""
        how, finish = self.how, self.finish(self.how.added, zero=self.how.zero)
        if how.zero or 0 in self.extents:
            self.notes.append("a kernel: no products")
            self.map(self.inputs[0], self.target, self.output, self.summed, replace(finish, zero=True))
        elif not how.slices:
            self._steps(self.inputs, self.target, finish)
        else:
            self._sliced(finish)
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
        route = route_of(step, self.extents, self.dtype, self.how.route)
        groups = groups_of(step)
        text = text_of(step.inputs, step.output)
        if route == "blas_lt" and groups is not None:
            made = self._product(step, groups, operands, into, finish)
            if made is not None:
                return made
        self.notes.append(f"{text}: a kernel")
        result = self.buffer(self.dtype, step.output) if into is None else into
        reduced = tuple(m for m in step.modes if m not in step.output)
        arrays = tuple(array for array, _ in operands)
        self.reduce(arrays, result, step.output, reduced, self.summed, finish, conj=[flag for _, flag in operands])
        return result

    def _alone(self, array: Array, conj: bool, modes: Modes, alone: Modes) -> tuple[Array, bool]:
        """Sum over the modes that one operand alone has."""
        if not alone:
            return array, conj
        kept = tuple(m for m in dict.fromkeys(modes) if m not in alone)
        made = self.buffer(self.dtype, kept)
        self.reduce((array,), made, kept, alone, self.summed, NOTHING, conj=(conj,))
        return made, False

    def _product(
        self, step: Contraction, groups: Groups, operands: list[tuple[Array, bool]], into: Array | None, finish: Finish
    ) -> Array | None:
        """Add a product of cuBLASLt with its copies; None if the library does not take it."""
        begun = len(self.scratch.steps)
        (a, conj_a), (b, conj_b) = (
            self._alone(array, conj, modes, alone)
            for (array, conj), modes, alone in zip(operands, step.inputs, groups.alone, strict=True)
        )
        given = into if finish.is_native else None
        product = find_product(groups, a, b, given, self.extents, conj=(conj_a, conj_b), dtype=self.dtype)
        direct = given is not None and not product.copied[2]
        direct = direct and (finish.c is None or product.lie_alike(given, finish.c, self.extents))
        d = into if direct and into is not None else self.buffer(
            self.dtype if into is None else product_outputs(self.dtype)[-1], product.layout(2)
        )  # fmt: skip
        copies = []
        for which, (array, conj) in enumerate(((a, conj_a), (b, conj_b))):
            if product.copied[which]:
                copies.append("AB"[which])
                made = self.buffer(self.dtype, product.layout(which))
                self.map(array, made, product.layout(which), self.summed, NOTHING, conj=conj)
                a, conj_a, b, conj_b = (made, False, b, conj_b) if which == 0 else (a, conj_a, made, False)
        is_complex = self.dtype.startswith("complex")
        c = (into if finish.updated else finish.c) if direct else None
        described = product.describe(
            a, b, d, c, self.extents, conj=(conj_a and is_complex, conj_b and is_complex), dtype=self.dtype,
            compute=self.how.compute, limit=min(self.context.workspace_limit, PREFERRED_WORKSPACE),
        )  # fmt: skip
        native_run, reason = None, "cuBLASLt counts in 32 bits"
        if described is not None:
            try:
                cublaslt.load(library_file("cublasLt"))
                native_run = Matmul(self.context.backend, described[0])
            except (Unsupported, LibraryError) as error:
                reason = str(error)
        if native_run is None or described is None:
            del self.scratch.steps[begun:]
            self.notes.append(f"cuBLASLt does not take {text_of(step.inputs, step.output)}: {reason}")
            return None
        count = described[0].n_scalars
        scalars: tuple[Source, ...] = tuple(("constant", word) for word in (_ONE, 0, 0, 0)[:count])
        if direct and finish.scalars:
            scalars = tuple(("scalar", j) for j in range(count))
        self.scratch.add(native_run, tuple(array.source for array in described[1]), scalars, native_run.workspace)
        note = f"{text_of(step.inputs, step.output)}: cuBLASLt"
        if copies:
            note += f", after copies of {' and '.join(copies)}"
        if not direct and into is not None:
            note += ", and a kernel after it"
            self.map(d, into, step.output, self.summed, finish)
        self.notes.append(note)
        return d if into is None else into


def build_einsum(spec: PlanSpec[EinsumAttributes], context: CudaContext) -> Built:
    """Build ``tensor.einsum``.  Waits for the compiler, and for cuBLASLt's heuristic.

    Raises
    ------
    Unsupported
        For more workspace than the limit.
    """
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    builder = _Einsum(spec, context)
    how = spec.attributes
    if len(how.inputs) == 1 and how.added == "none" and not (how.slices or any(how.conj)):
        reduced = tuple(m for m in dict.fromkeys(how.inputs[0]) if m not in how.output)
        plain = _plain(builder, "any" if how.dtype == "bool" else "sum", builder.summed, reduced)
        if plain is not None:
            return plain
    return builder.build()


#: Reductions as kernels have them: what is done to each value, the reduction, what is done at the end.
_REDUCED: Final = {"mean": ("", "sum"), "norm1": ("abs", "sum"), "norm2": ("square", "sum"), "norm_max": ("abs", "max")}


def _plain(builder: _Builder, kind: str, dtype: str, reduced: Modes) -> Built | None:
    """Return a reduction without factors by the kernels that every library shares, where they have it."""
    spec, x, out = builder.spec, builder.inputs[0], builder.out
    if len(spec.operands) != 2 or spec.scalars or builder.target is not out:
        return None
    modes = (*builder.output, *reduced)
    steps = x.along(modes)
    if not reduced or spec.attributes.zero or any(step < 0 for step in steps) or 0 in builder.extents:
        return None
    size = as_dtype(x.dtype).itemsize
    shape = tuple(builder.extents[m] for m in modes)
    source = structs.replace(spec.operands[0], shape=shape, strides=tuple(step * size for step in steps))
    axes = tuple(range(len(builder.output), len(modes)))
    built = build_plain_reduction(Reduction(source, spec.operands[1], kind, axes, dtype), builder.context.target)
    return replace(built, notes=("a kernel",))


def build_reduce(spec: PlanSpec[ReduceAttributes], context: CudaContext) -> Built:
    """Build ``tensor.reduce``.  Waits for the compiler."""
    how = spec.attributes
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    builder = _Builder(spec, context, how.inputs, how.output)
    reduced = tuple(m for m in dict.fromkeys(how.inputs[0]) if m not in how.output)
    dtype = "bool" if how.reduction in ("any", "all") else how.dtype
    if not how.reduction.startswith("norm") and (plain := _plain(builder, how.reduction, dtype, reduced)) is not None:
        return plain
    finish = builder.finish(how.added, zero=how.zero)
    before, reduction = _REDUCED.get(how.reduction, ("", how.reduction))
    x = builder.inputs[0]
    count = math.prod(builder.extents[m] for m in reduced)
    inputs: tuple[Array, ...] = () if how.zero else (x,)
    kind = value_type(dtype)
    value: tuple[str, ...] = (f"{kind} v = {constant(dtype, 0)};",)
    if inputs:
        made = {"": "v0", "square": multiplied(dtype, "v0", "v0"), "abs": operated("abs", dtype, "v0")}[before]
        value = (loaded(0, x.dtype, dtype), f"{kind} v = {made};")
    after: list[str] = []
    if how.reduction == "mean":
        divided = f"make_{'c64' if dtype == 'complex64' else 'c128'}(v.re / {float(count)!r}, v.im / {float(count)!r})"
        after = [f"v = {divided if dtype.startswith('complex') else f'v / ({kind}){float(count)!r}'};"]
    elif how.reduction == "norm2":
        after = [f"v = {operated('sqrt', dtype, 'v')};"]
    builder.run(
        Task(
            inputs=inputs,
            finals=finish.finals,
            output=builder.target,
            kept=how.output,
            reduced=() if how.zero else reduced,
            dtype=dtype,
            value=value,
            reduction=reduction,
            finish=(*after, *finish.statements(len(inputs), builder.target, dtype)),
            scalars=finish.scalars,
            updated=finish.updated,
        )
    )
    builder.notes.append("a kernel")
    return builder.built()


def build_elementwise(spec: PlanSpec[ElementwiseAttributes], context: CudaContext) -> Built:
    """Build ``tensor.elementwise``: one kernel, and another for zeros around the result.  Waits for the compiler."""
    how = spec.attributes
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    builder = _Builder(spec, context, how.inputs, how.output, how.padding)
    dtype, whole = how.dtype, builder.target
    inside = whole
    if builder.output != how.output:
        builder.map(whole, whole, builder.output, _copied(whole.dtype), Finish(zero=True))
        before = sum(step * pad for step, (pad, _) in zip(whole.along(builder.output), how.padding, strict=True))
        inside = replace(whole, modes=how.output, strides=whole.along(builder.output), offset=before)
        builder.notes.append("a kernel for zeros")
    values, lines = [], []
    inputs = tuple(x for x, zero in zip(builder.inputs, how.zero, strict=True) if not zero)
    parts = 2 if dtype.startswith("complex") else 1
    number = 0
    for i, zero in enumerate(how.zero):
        if zero:
            values.append(constant(dtype, 0))
            continue
        lines.append(loaded(number, inputs[number].dtype, dtype))
        factor = factored(dtype, i * parts, i * parts + 1)
        lines.append(f"const {value_type(dtype)} f{number} = {factor};")
        made = scaled(dtype, operated(how.unary[i], dtype, f"v{number}"), f"f{number}")
        lines.append(f"const {value_type(dtype)} u{number} = {made};")
        values.append(f"u{number}")
        number += 1
    made = values[0]
    for i, value in enumerate(values[1:]):
        lines.append(f"const {value_type(dtype)} w{i} = {multiplied(dtype, made, value, how.binary[i])};")
        made = f"w{i}"
        if i == 0 and len(values) == 3:
            lines.append(f"const {value_type(dtype)} g = {operated(how.unary[3], dtype, 'w0')};")
            made = "g"
    lines.append(f"const {value_type(dtype)} v = {made};")
    if 0 not in builder.extents:
        builder.run(Task(inputs, (), inside, how.output, (), dtype, tuple(lines), scalars=spec.scalars))
    builder.notes.append("a kernel")
    return builder.built()
