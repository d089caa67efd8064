"""How the methods of the elementwise actor give values, and how these become requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...arrays.operands import check_handle
from ...errors import InvalidRequest
from ...plans.calls import CallForm, Forms, form_of
from .expressions import check_program
from .request import PROGRAM_VALUES, ElementwiseRequest, ReduceRequest, SoftmaxCrossEntropyRequest
from .spec import number

__all__ = ["FORMS", "LOSS", "PROGRAM", "REDUCE", "comparable_program", "plain_operands"]


def comparable_program(program: str | Mapping[str, str]) -> Any:
    """Return a program as something that can be compared."""
    return program if isinstance(program, str) else check_program(program)


def plain_operands(operands: Mapping[str, Any]) -> dict[str, Any]:
    """Return operands with NumPy and Boolean scalars as Python numbers; refuse all but numbers and GpuRefs."""
    plain = {}
    for name, value in operands.items():
        scalar = number(value)
        if scalar is None:
            if value is None:
                raise InvalidRequest(f"{name} is None; an operand is a GpuRef or a number")
            check_handle(name, value)
        plain[name] = value if scalar is None else scalar
    return plain


def _unpack_program(values: tuple[Any, ...]) -> ElementwiseRequest:
    out, program, names, *operands = values
    return ElementwiseRequest(
        program=dict(program) if isinstance(program, tuple) else program,
        operands=plain_operands(dict(zip(names, operands, strict=True))),
        out=out,
    )


def _pack_program(r: ElementwiseRequest) -> tuple[Any, ...]:
    """Return the values of a program's call: out, program, names, and the operands of these names."""
    return (r.out, comparable_program(r.program), tuple(r.operands), *r.operands.values())


PROGRAM: Final = CallForm(_unpack_program, _pack_program, PROGRAM_VALUES, b"aoo", (None, None, None), b"n")
REDUCE: Final = form_of(ReduceRequest, "x out", "op axis")
LOSS: Final = form_of(SoftmaxCrossEntropyRequest, "logits labels grad_out loss_out")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    ElementwiseRequest: PROGRAM,
    ReduceRequest: REDUCE,
    SoftmaxCrossEntropyRequest: LOSS,
}
