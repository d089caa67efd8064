"""Gradients of expressions: one expression for each operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from .request import EinsumRequest
from .spec import check_result, resolve_einsum

__all__ = ["gradient_of"]


def gradient_of(
    request: EinsumRequest,
    grad: Any,
    wanted: Sequence[int],
    ones: Callable[[int, str], Any],
    eye: Callable[[int, str], Any],
) -> tuple[EinsumRequest, ...]:
    """Return the requests for the gradients of operands.

    Parameters
    ----------
    request : EinsumRequest
        The expression, without C and with alpha a number.
    grad : GpuRef
        The gradient of its result.
    wanted : sequence of int
        Operands.
    ones, eye : callable
        Make an array of n ones, and the n by n identity, of a dtype: along modes that one operand alone has, and on
        diagonals.
    """
    problem = resolve_einsum(request)
    check_result("grad", grad, problem.out)
    count = len(request.operands)
    found = []
    for operand in wanted:
        if not -count <= operand < count:
            raise InvalidRequest(f"operand {operand} of {count}; allowed: {-count} to {count - 1}")
        found.append(_of_operand(request, problem, grad, operand % count, ones, eye))
    return tuple(found)


def _of_operand(request: EinsumRequest, problem: Any, grad: Any, chosen: int, ones: Any, eye: Any) -> EinsumRequest:
    """Return the request for one operand: grad times the conjugates of the others."""
    subscripts, extents = problem.subscripts, problem.extents
    x = request.operands[chosen]
    dtype = dtype_name(as_dtype(problem.out.dtype))
    flipped = problem.conj[chosen]
    operands, modes, conj = [grad], [list(subscripts.output)], [flipped]
    for i, other in enumerate(request.operands):
        if i != chosen:
            operands.append(other)
            modes.append(list(subscripts.inputs[i]))
            conj.append(problem.conj[i] == flipped)
    known = {m for given in modes for m in given}
    result: list[int] = []
    new = len(extents)
    for mode, n in zip(subscripts.inputs[chosen], x.shape, strict=True):
        if n != extents[mode]:  # broadcast along this axis: its elements add up
            operands.append(ones(1, dtype))
            modes.append([new])
        elif mode in result:  # off the diagonal the gradient is 0
            operands.append(eye(n, dtype))
            modes.append([mode, new])
        else:
            result.append(mode)
            if mode not in known:
                operands.append(ones(n, dtype))
                modes.append([mode])
            continue
        conj.append(False)
        result.append(new)
        new += 1
    conj += [False] * (len(operands) - len(conj))
    alpha = request.alpha
    if isinstance(alpha, complex):
        alpha = alpha if flipped else alpha.conjugate()
    return EinsumRequest(
        subscripts=[*modes, result],
        operands=operands,
        alpha=alpha,
        conj=conj,
        compute=request.compute if request.compute and problem.compute == request.compute else None,
        route=request.route,
    )
