"""Steps of plans that cuTENSOR computes: contractions of two and three tensors, reductions, elementwise operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ...._lib.cutensor import TensorOperation
from ....errors import LibraryError, Unsupported
from ..attributes import ElementwiseAttributes, ReduceAttributes
from ..path import Contraction
from ..products import Groups
from ..types import EMULATED, NARROW
from .arrays import Array
from .compiled import compiled_operation
from .cutensor import ASKED, BEST, TYPES, TensorCall, alike, compute_of, is_taken, open_library, tensor_call
from .finish import NOTHING, Finish

if TYPE_CHECKING:
    from .builder import Builder
    from .einsum import Einsum

__all__ = ["contract", "contract_three", "elementwise", "factors_of", "reduce"]

#: Reductions that cuTENSOR has: what is applied to elements, and what combines them.
_REDUCTIONS: Final = {
    "sum": ("identity", "add"), "prod": ("identity", "mul"), "max": ("identity", "max"), "min": ("identity", "min"),
    "norm1": ("abs", "add"), "norm_max": ("abs", "max"),
}  # fmt: skip
#: Types between which it permutes, besides equal ones.
_CONVERSIONS: Final = (
    ("float16", "float32"), ("float32", "float16"), ("float32", "float64"), ("float64", "float32"),
    ("complex64", "complex128"), ("complex128", "complex64"),
)  # fmt: skip


def factors_of(scalars: Sequence[str], *, is_complex: bool, pairs: bool = False) -> tuple[tuple[int, ...], ...]:
    """Return the scalars of each factor of a message; with `pairs` parts of a complex one are neighbours."""
    if not is_complex:
        return tuple((j,) for j in range(len(scalars)))
    half = len(scalars) // 2
    return tuple((2 * i, 2 * i + 1) if pairs else (i, i + half) for i in range(half))


def _add(
    builder: Builder, call: TensorCall | None, arrays: Sequence[Array], *, scalars: int, force: bool = False
) -> str:
    """Add a call; return why cuTENSOR does not compute it, or nothing.

    Raises
    ------
    Unsupported
        With `force`: if it does not.
    """
    if call is None:
        if force:
            raise Unsupported(
                "cuTENSOR takes 64 modes that do not merge, and this has more; choose route='auto'",
                rule="tensor.modes",
                lifted_by=("route",),
            )
        return "it has more than 64 modes"
    try:
        open_library()
        run = compiled_operation(builder.context, call) if call.jit else TensorOperation(builder.context.backend, call)
    except (Unsupported, LibraryError) as error:
        if force:
            raise
        return str(error)
    sources = tuple(array.source for array in arrays)
    builder.scratch.add(run, sources, tuple(("scalar", j) for j in range(scalars)), run.workspace)
    return ""


def _asked(builder: Builder) -> int:
    """Return the bytes of workspace with which the library chooses a kernel first."""
    part, whole = ASKED
    return int(builder.context.backend.facts()["total_memory"]) * part // whole


def _lies(array: Array, dtype: str, modes: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether an operand of a product lies as cuTENSOR takes it, and has all its modes."""
    complete = all(m in array.modes for m in modes if extents[m] > 1)
    return array.dtype == dtype and complete and is_taken(array, extents)


def _is_direct(into: Array | None, dtype: str, finish: Finish, extents: Sequence[int]) -> bool:
    """Whether the library writes the result itself, with factors and C."""
    if into is None or not finish.is_native or into.dtype != dtype or not is_taken(into, extents):
        return False
    return finish.c is None or alike(finish.c, into, extents)


def contract(
    builder: Einsum, step: Contraction, groups: Groups, operands: Sequence[tuple[Array, bool]], into: Array | None,
    finish: Finish, *, wanted: bool,
) -> Array | None:  # fmt: skip
    """Add a contraction, with copies of operands that the library does not take; None if it does not take the step.

    `operands` have no modes that only one of them sums over.  With `wanted` the caller has chosen the library.
    """
    extents, text = builder.extents, builder.text(step)
    must = builder.how.compute in EMULATED
    direct = _is_direct(into, builder.dtype, finish, extents)
    # A narrow result that a kernel finishes is rounded there, once.
    dtype = "float32" if builder.dtype in NARROW and into is not None and not direct else builder.dtype
    inner = [
        [m for m in dict.fromkeys(modes) if m not in alone]
        for modes, alone in zip(step.inputs, groups.alone, strict=True)
    ]
    copied = [not _lies(array, dtype, modes, extents) for (array, _), modes in zip(operands, inner, strict=True)]
    if dtype not in TYPES or (any(copied) and not (wanted or must)):
        return None
    if wanted or must:
        open_library()
    begun = len(builder.scratch.steps)
    held = []
    for (array, conj), modes, copy in zip(operands, inner, copied, strict=True):
        if copy:
            made = builder.buffer(dtype, tuple(modes))
            builder.map(array, made, made.modes, builder.summed, NOTHING, conj=conj)
            array, conj = made, False
        held.append((array, conj))
    result = into if direct and into is not None else builder.buffer(dtype, step.output)
    added = finish.c if direct and finish.c is not None else result
    is_complex = builder.dtype.startswith("complex")
    factors = factors_of(finish.scalars, is_complex=is_complex) if direct else ()
    arrays = (held[0][0], held[1][0], added, result)
    scalars = len(finish.scalars) if direct else 0
    call = tensor_call(
        "CONTRACT", arrays, extents, compute=compute_of(builder.how.compute), limit=builder.library_limit(arrays),
        unary=["conj" if conj and is_complex else "identity" for _, conj in held], factors=factors, scalars=scalars,
        algo=(builder.choice and builder.choice.algo) or BEST, asked=_asked(builder),
    )  # fmt: skip
    reason = builder.guarded(
        factors[:1],
        lambda: _add(builder, call, arrays, scalars=scalars, force=must),
        lambda: builder.without_product(step.output, result, finish),
    )
    if reason:
        del builder.scratch.steps[begun:]
        builder.notes.append(f"cuTENSOR does not take {text}: {reason}")
        return None
    note = f"{text}: cuTENSOR"
    if any(copied):
        note += f", after copies of {' and '.join(name for name, copy in zip('AB', copied, strict=True) if copy)}"
    if into is not None and not direct:
        note += ", and a kernel after it"
        builder.map(result, into, step.output, builder.summed, finish)
    builder.notes.append(note)
    return result if into is None else into


def contract_three(builder: Einsum, into: Array, finish: Finish) -> bool:
    """Add a contraction of three tensors in one call, if all of them lie as the library takes them."""
    extents, how = builder.extents, builder.how
    open_library()
    if not _is_direct(into, builder.dtype, finish, extents):
        return False
    used: dict[int, int] = {}
    for array, modes in zip(builder.inputs, how.inputs, strict=True):
        if not _lies(array, builder.dtype, modes, extents):
            return False
        for mode in set(modes):
            used[mode] = used.get(mode, 0) + 1
    if any(count < 2 and mode not in how.output for mode, count in used.items()):
        return False
    is_complex = builder.dtype.startswith("complex")
    factors = factors_of(finish.scalars, is_complex=is_complex)
    added = finish.c if finish.c is not None else into
    arrays = (*builder.inputs, added, into)
    call = tensor_call(
        "CONTRACT_TRINARY", arrays, extents, compute=compute_of(how.compute), limit=builder.library_limit(arrays),
        unary=["conj" if conj and is_complex else "identity" for conj in how.conj], factors=factors,
        scalars=len(finish.scalars), algo=BEST, asked=_asked(builder),
    )  # fmt: skip
    reason = builder.guarded(
        factors[:1],
        lambda: _add(builder, call, arrays, scalars=len(finish.scalars)),
        lambda: builder.without_product(how.output, into, finish),
    )
    builder.notes.append(
        f"cuTENSOR does not take three tensors at once: {reason}" if reason else "three tensors: cuTENSOR"
    )
    return not reason


def reduce(builder: Builder, how: ReduceAttributes, finish: Finish) -> bool:
    """Add a reduction of the library's, if it has it."""
    x, into, extents = builder.inputs[0], builder.target, builder.extents
    open_library()
    modes = dict.fromkeys(how.inputs[0])
    reduced = [m for m in modes if m not in how.output]
    taken = how.reduction in _REDUCTIONS and x.dtype in TYPES and bool(reduced) and not how.zero and 0 not in extents
    if not taken or not _lies(x, x.dtype, tuple(modes), extents) or not _is_direct(into, x.dtype, finish, extents):
        builder.notes.append(f"cuTENSOR does not take {how.reduction} of these tensors")
        return False
    is_complex = x.dtype.startswith("complex")
    factors = factors_of(finish.scalars, is_complex=is_complex)
    unary, binary = _REDUCTIONS[how.reduction]
    arrays = (x, finish.c if finish.c is not None else into, into)
    call = tensor_call(
        "REDUCE", arrays, extents, compute=compute_of("float32" if x.dtype in NARROW else x.dtype),
        limit=builder.library_limit(arrays), unary=(unary,), binary=(binary,), factors=factors,
        scalars=len(finish.scalars),
    )  # fmt: skip
    reason = builder.guarded(
        factors[:1],
        lambda: _add(builder, call, arrays, scalars=len(finish.scalars)),
        lambda: builder.without_product(how.output, into, finish),
    )
    builder.notes.append(f"cuTENSOR does not take this: {reason}" if reason else "cuTENSOR")
    return not reason


def elementwise(builder: Builder, how: ElementwiseAttributes, into: Array, by_kernel: Callable[[], object]) -> bool:
    """Add a permutation or an elementwise operation of the library's, if it has it; `by_kernel` adds ours.

    The library's last input has the descriptor of the result.  Both operands of a binary operation may be that.
    """
    open_library()
    extents, count = builder.extents, len(how.inputs)
    order = list(range(count))
    if count == 2 and not alike(builder.inputs[1], into, extents):
        order = [1, 0]
    inputs = [builder.inputs[i] for i in order]
    allowed = ("identity", "conj") if how.dtype.startswith("complex") else None
    types = {array.dtype for array in (*inputs, into)}
    taken = (
        types <= set(TYPES)
        and not any(how.zero)
        and all(is_taken(array, extents) for array in (*inputs, into))
        and (len(types) == 1 or (count == 1 and (inputs[0].dtype, into.dtype) in _CONVERSIONS))
        and (count == 1 or alike(inputs[-1], into, extents))
        and (allowed is None or all(name in allowed for name in how.unary))
        and (count < 3 or how.unary[3] == "identity")
    )
    if not taken:
        builder.notes.append("cuTENSOR does not take these tensors")
        return False
    wide = any(dtype in ("float64", "complex128") for dtype in types)
    factors = factors_of(builder.spec.scalars, is_complex=how.dtype.startswith("complex"), pairs=True)
    call = tensor_call(
        ("PERMUTE", "BINARY", "TRINARY")[count - 1], (*inputs, into), extents,
        compute=compute_of("float64" if wide else "float32"), limit=0, unary=[how.unary[i] for i in order],
        binary=how.binary, factors=[factors[i] for i in order] if factors else (), numbers=(1, 1, 1),
        scalars=len(builder.spec.scalars),
    )  # fmt: skip
    reason = builder.guarded(
        factors, lambda: _add(builder, call, (*inputs, into), scalars=len(builder.spec.scalars)), by_kernel
    )
    builder.notes.append(f"cuTENSOR does not take this: {reason}" if reason else "cuTENSOR")
    return not reason
