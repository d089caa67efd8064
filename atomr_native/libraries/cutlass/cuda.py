"""Products with epilogue trees on CUDA: one launch of a compiled kernel, whose parameters each message fills."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

from ...builders.context import Built
from ...builders.cuda.context import CudaContext
from ...builders.cuda.target import Argument, KernelProgram, Launch
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import PlanSpec
from .attributes import CompiledKernel, ConvolutionAttributes, GemmAttributes
from .choice import node_names
from .kernels.rendering import SETUP
from .layouts import Array, Problem, problem_of

if TYPE_CHECKING:
    from ...compile.cutlass.parameters import Built as Parameters

__all__ = ["build_gemm", "field_values"]

#: Threads of a block of the kernel that describes groups, a thread for each.
_SETUP_THREADS: Final = 128
#: Bytes that a thread of the kernel sets to 0 that prepares a workspace.
_ZEROED_BYTES: Final = 16
#: How a message's float64 is stored in a kernel's parameters.
_FORMATS: Final = {"float32": "<f", "float64": "<d"}


def field_values(
    problem: Problem,
    names: dict[tuple[str, str | int], str],
    sm_count: int,
    swizzle: int,
    splits: int = 1,
    source: str = "",
) -> dict[str, int]:
    """Return the numbers of a product by the names that builders of parameters have for them; `source` is C."""
    p = problem
    c = dict(p.arrays).get(source, p.d)
    values = {
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "batch": p.batch,
        "sm_count": sm_count,
        "swizzle": swizzle,
        "raster": 0,
        "splits": splits,
        "groups": p.batch,
    }
    for letter, array in (("a", p.a), ("b", p.b), ("c", c), ("d", p.d)):
        values[f"ld{letter}"], values[f"batch_{letter}"] = array.ld, array.batch
    if p.scale is not None:
        values |= {"ld_scale": p.scale.ld, "batch_scale": p.scale.batch, "group": p.group}
    for name, array in p.arrays:
        known = names.get(("name", name))
        if known is not None:
            values[f"ld_{known}"], values[f"batch_{known}"] = array.ld, array.batch
    return values


def _matrices(problem: Problem, source: str) -> dict[str, Array]:
    """Return the matrices of a product by the names that kernels have for them."""
    c = {"c": dict(problem.arrays)[source]} if source else {}
    return {"a": problem.a, "b": problem.b, "d": problem.d} | c


def _places(
    made: Parameters,
    problem: Problem,
    names: dict[tuple[str, str | int], str],
    scalars: tuple[str, ...],
    source: str,
    *,
    bare: bool,
) -> tuple[bytes, tuple[tuple[Any, ...], ...]]:
    """Return the bytes of a kernel's parameters, with its constants, and the places that each message fills.

    A `bare` message has no scalars: they are 1.
    """
    arrays = dict(problem.arrays)
    own = _matrices(problem, source)
    if problem.offsets is not None:
        own["offsets"] = problem.offsets
    if problem.scale is not None:
        own["scale"] = problem.scale
    operands = {name: array.operand for name, array in own.items()}
    numbers: dict[str, int] = {}
    constants: dict[str, float] = {}
    for (kind, what), known in names.items():
        if kind == "number":
            constants[known] = float.fromhex(str(what))
        elif kind == "name" and what in scalars:
            numbers[known] = scalars.index(str(what))
        elif kind == "name":
            operands[known] = arrays[str(what)].operand
    data = bytearray(made.data)
    places: list[tuple[Any, ...]] = []
    for offset, name, added in made.relocations:
        kind = "workspace" if name == "workspace" else "operand"
        places.append((kind, offset, operands.get(name, 0), added, None))
    for offset, name, dtype in made.scalars:
        if name in constants or bare:
            struct.pack_into(_FORMATS[dtype], data, offset, constants.get(name, 1.0))
        else:
            places.append((dtype, offset, numbers[name], 0, None))
    for record in made.maps:
        rank = record.rank
        strides = (0, *record.strides)
        axes = tuple((record.dims[i], strides[i], record.box[i], record.element_strides[i]) for i in range(rank))
        modes = (record.dtype, record.interleave, record.swizzle, record.l2_promotion, record.oob_fill)
        if record.pointer == "workspace":  # of groups: the kernel replaces the address, which must only be valid
            places.append(("tensor_map", record.offset, operands["a"], 0, (axes, modes)))
        else:
            places.append(("tensor_map", record.offset, operands[record.pointer], record.addend, (axes, modes)))
    return bytes(data), tuple(places)


def _setup(
    kernel: CompiledKernel, problem: Problem, names: dict[tuple[str, str | int], str], values: dict[str, int]
) -> tuple[Launch, ...]:
    """Return the launch that describes the groups to the kernel, or prepares counters and sums, if it needs one."""
    counts = [value for name, value in values.items() if name.startswith("count_")]
    threads = max(-(-values["zeroed"] // _ZEROED_BYTES), *counts, 0) if problem.offsets is None else values["groups"]
    if not kernel.setup or not threads:
        return ()
    arrays = dict(problem.arrays)
    places = _matrices(problem, kernel.source)
    places |= {known: arrays[str(what)] for (kind, what), known in names.items() if kind == "name" and what in arrays}
    if problem.offsets is not None:
        places["offsets"] = problem.offsets
    arguments: list[Argument] = []
    for name in kernel.setup:
        if name == "workspace":
            arguments.append(("workspace", 0))
        elif name in places:
            arguments.append(("operand", places[name].operand))
        else:
            arguments.append(("uint64", values[name]))
    blocks = -(-threads // _SETUP_THREADS)
    return (Launch(SETUP, (blocks, 1, 1), (_SETUP_THREADS, 1, 1), 0, tuple(arguments)),)


def build_gemm(spec: PlanSpec[GemmAttributes], context: CudaContext) -> Built:
    """Build ``cutlass.gemm``, ``cutlass.grouped_gemm`` or ``cutlass.convolution``.

    Raises
    ------
    InvalidRequest
        If it comes without machine code.
    Unsupported
        If the kernel cannot compute the product.
    """
    how = spec.attributes
    kernel = how.kernel
    if kernel is None:
        raise InvalidRequest(f"the specification of {spec.op!r} comes without machine code, which GPUs need")
    if any(0 in operand.shape for operand in spec.operands if operand.name == "out"):
        return Built("noop")
    line = ""
    if how.candidates:
        from .tuning import fastest  # which few plans need

        kernels = (kernel, *how.candidates)
        kernel, line = fastest(context, spec, kernels, lambda one: _program(spec, context, one, bare=True))
    program = _program(spec, context, kernel)
    return Built(program, program.workspace, how.notes, line)


def _program(
    spec: PlanSpec[GemmAttributes], context: CudaContext, kernel: CompiledKernel, *, bare: bool = False
) -> KernelProgram:
    """Return a plan's launches with one of its kernels.

    Raises
    ------
    InvalidRequest
        If the plan lacks numbers that the kernel takes.
    Unsupported
        If the kernel cannot compute the product.
    """
    how = spec.attributes
    from ...compile.cutlass.parameters import parameters  # which no other plan needs

    problem, names = problem_of(spec, turned=kernel.turned), node_names(how)
    values = field_values(problem, names, context.target.sm_count, kernel.swizzle, kernel.splits, kernel.source)
    if isinstance(how, ConvolutionAttributes):
        values |= how.numbers
    given = {name: values[name] for name, _ in kernel.fields if name in values}
    missing = [name for name, _ in kernel.fields if name not in given and name not in kernel.scalars]
    if missing:
        raise InvalidRequest(f"the kernel of {spec.op!r} takes {', '.join(missing)}; allowed: {', '.join(values)}")
    made = parameters(kernel.builder.data, kernel.fields, kernel.pointers, scalars=kernel.scalars, values=given)
    if not made.can_implement:
        raise Unsupported(
            f"CUTLASS cannot compute M={problem.m}, N={problem.n}, K={problem.k}, batch {problem.batch} so",
            rule="cutlass.kernel",
            lifted_by=("shape", "config"),
        )
    values["zeroed"] = made.zeroed_bytes
    for name in (str(node[1]) for node in how.nodes if node[0] == "reduce"):
        operand = spec.operands[dict(problem.arrays)[name].operand]
        values[f"count_{names['name', name]}"] = math.prod(operand.shape)
    data, places = _places(made, problem, names, how.scalars, kernel.source, bare=bare)
    cluster = made.cluster if made.cluster != (1, 1, 1) else None
    launch = Launch(
        kernel.entry, made.grid, made.block, made.shared_bytes, (("filled", (data, places)),), cluster=cluster
    )
    alignments = [1] * len(spec.operands)
    more = [array for _, array in problem.arrays]
    more += [array for array in (problem.offsets, problem.scale) if array is not None]
    for array in (problem.a, problem.b, problem.d, *more):
        alignments[array.operand] = max(alignments[array.operand], array.nbytes)
    return KernelProgram(
        kernel.code.data,
        (*_setup(kernel, problem, names, values), launch),
        workspace=made.workspace_bytes,
        alignments=tuple(alignments),
    )
