"""From plan specifications of ``tensor.*`` to sequences of kernels and calls of cuBLASLt and cuTENSOR.

Each step of a path is a product of a library, with copies of operands that it does not take as they lie, or one kernel.
The last step applies factors and adds C.  Sliced modes run through their indices one after the other; their parts are
added up in scratch memory in the accumulation dtype.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from ...._lib import cublaslt
from ...._lib.cublaslt import Matmul
from ....builders.context import Built
from ....builders.cuda.codegen import value_type
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.reductions import build_reduce as build_plain_reduction
from ....builders.cuda.sequence import Source
from ....builders.cuda.sums import Reduction
from ....dtypes import as_dtype
from ....errors import LibraryError, Unsupported
from ....plans.spec import PlanSpec
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import EinsumAttributes, ElementwiseAttributes, ReduceAttributes
from ..modes import Modes, Subscripts, text_of
from ..path import Contraction, contractions
from ..products import FIRST, Groups, groups_of, route_of
from ..types import EMULATED, accumulator
from .arrays import Array
from .builder import Builder, copied
from .contract import contract, contract_three, elementwise, factors_of, reduce
from .elements import constant, factored, loaded, multiplied, operated, scaled
from .finish import NOTHING, Finish
from .product import find_product, product_outputs
from .task import Task

__all__ = ["build_einsum", "build_elementwise", "build_reduce"]

_ONE: Final = struct.unpack("<Q", struct.pack("<d", 1.0))[0]


class Einsum(Builder):
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
        route = route_of(step, self.extents, self.dtype, self.how.route, self.how.compute)
        groups = groups_of(step)
        text = self.text(step)
        if route != "kernel" and groups is not None:
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
        given = into if finish.is_native else None
        product = find_product(groups, a, b, given, self.extents, conj=(conj_a, conj_b), dtype=self.dtype)
        copies_first = FIRST[any(product.copied)] == "cutensor" and self.how.route == "auto"
        if self.how.route == "cutensor" or self.how.compute in EMULATED or copies_first:
            held = ((a, conj_a), (b, conj_b))
            made = contract(self, step, groups, held, into, finish, wanted=self.how.route == "cutensor")
            if made is not None:
                return made
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
            self.notes.append(f"cuBLASLt does not take {self.text(step)}: {reason}")
            return None
        count = described[0].n_scalars
        scalars: tuple[Source, ...] = tuple(("constant", word) for word in (_ONE, 0, 0, 0)[:count])
        if direct and finish.scalars:
            scalars = tuple(("scalar", j) for j in range(count))
        sources = tuple(array.source for array in described[1])
        factors = factors_of(finish.scalars, is_complex=is_complex)[:1] if direct else ()

        def add() -> str:
            self.scratch.add(native_run, sources, scalars, native_run.workspace)
            return ""

        self.guarded(factors, add, lambda: self.without_product(step.output, d, finish))
        note = f"{self.text(step)}: cuBLASLt"
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
    builder = Einsum(spec, context)
    how = spec.attributes
    if len(how.inputs) == 1 and how.added == "none" and not (how.slices or any(how.conj)):
        reduced = tuple(m for m in dict.fromkeys(how.inputs[0]) if m not in how.output)
        plain = _plain(builder, "any" if how.dtype == "bool" else "sum", builder.summed, reduced)
        if plain is not None:
            return plain
    return builder.build()


#: Reductions as kernels have them: what is done to each value, the reduction, what is done at the end.
_REDUCED: Final = {"mean": ("", "sum"), "norm1": ("abs", "sum"), "norm2": ("square", "sum"), "norm_max": ("abs", "max")}


def _plain(builder: Builder, kind: str, dtype: str, reduced: Modes) -> Built | None:
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
    return replace(built, notes=(*builder.notes, "a kernel"))


def build_reduce(spec: PlanSpec[ReduceAttributes], context: CudaContext) -> Built:
    """Build ``tensor.reduce``.  Waits for the compiler."""
    how = spec.attributes
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    builder = Builder(spec, context, how.inputs, how.output)
    reduced = tuple(m for m in dict.fromkeys(how.inputs[0]) if m not in how.output)
    dtype = "bool" if how.reduction in ("any", "all") else how.dtype
    if how.route == "cutensor" and reduce(builder, how, builder.finish(how.added, zero=how.zero)):
        return builder.built()
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
    builder = Builder(spec, context, how.inputs, how.output, how.padding)
    whole = builder.target
    inside = whole
    if builder.output != how.output:
        builder.map(whole, whole, builder.output, copied(whole.dtype), Finish(zero=True))
        before = sum(step * pad for step, (pad, _) in zip(whole.along(builder.output), how.padding, strict=True))
        inside = replace(whole, modes=how.output, strides=whole.along(builder.output), offset=before)
        builder.notes.append("a kernel for zeros")

    def by_kernel() -> None:
        builder.run(_elementwise_task(builder, how, inside))

    if 0 not in builder.extents and not (how.route == "cutensor" and elementwise(builder, how, inside, by_kernel)):
        by_kernel()
        builder.notes.append("a kernel")
    return builder.built()


def _elementwise_task(builder: Builder, how: ElementwiseAttributes, inside: Array) -> Task:
    """Return the kernel of an elementwise operation."""
    dtype = how.dtype
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
    return Task(inputs, (), inside, how.output, (), dtype, tuple(lines), scalars=builder.spec.scalars)
