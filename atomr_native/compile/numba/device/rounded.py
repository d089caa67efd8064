"""Floating-point operations that are each rounded once, whatever the compiler would combine: for equal bits everywhere.

A product is an instruction of its own here, which no compiler contracts with a sum.  Sums need nothing of the kind.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..api import intrinsic, types
from ..api import llvm as ir
from ..copies import twin

__all__ = ["double_bits", "double_of", "floor", "near_quotient", "near_root", "product_of", "root_of"]

_I64, _F32, _F64 = ir.IntType(64), ir.FloatType(), ir.DoubleType()
#: By computation type: Numba's, LLVM's, the constraint of PTX, the suffix of its instructions.
_KINDS: Final = {
    np.float32: (types.float32, _F32, "f", "f32"),
    np.float64: (types.float64, _F64, "d", "f64"),
}


def _instruction(real: Any, text: str, parameters: int) -> Any:
    """Return an intrinsic for an instruction whose result and parameters have one type."""
    kind, native, letter, suffix = _KINDS[real]
    function = ir.FunctionType(native, [native] * parameters)
    operands = ", ".join(f"${i}" for i in range(parameters + 1))
    assembly, constraints = f"{text}.{suffix} {operands};", f"={letter}" + f",{letter}" * parameters

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.asm(function, assembly, constraints, args, False)

    def one(_: Any, a: Any) -> Any:
        return kind(kind), codegen

    def two(_: Any, a: Any, b: Any) -> Any:
        return kind(kind, kind), codegen

    return intrinsic(one if parameters == 1 else two)


def product_of(real: Any) -> Any:
    """Return a device function to the product of two numbers of a computation type."""
    return twin(lambda a, b: real(a) * real(b))(_instruction(real, "mul.rn", 2))


def root_of(real: Any) -> Any:
    """Return a device function to the square root of a number of a computation type."""
    return twin(lambda a: np.sqrt(real(a)))(_instruction(real, "sqrt.rn", 1))


def _sequence(text: str, parameters: int) -> Any:
    """Return an intrinsic for instructions of float32."""
    _, native, _, _ = _KINDS[np.float32]
    function = ir.FunctionType(native, [native] * parameters)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.asm(function, text, "=f" + ",f" * parameters, args, False)

    def one(_: Any, a: Any) -> Any:
        return types.float32(types.float32), codegen

    def two(_: Any, a: Any, b: Any) -> Any:
        return types.float32(types.float32, types.float32), codegen

    return intrinsic(one if parameters == 1 else two)


#: The quotient of two float32, rounded once, where the divisor is from 1/2 to 4 and the dividend 0, or from 2**-30 to 4
#: in size: what ``div.rn.f32`` computes there, without its way for other numbers, which takes a tenth of a kernel.
near_quotient: Final = twin(lambda a, b: np.float32(a) / np.float32(b))(
    _sequence(
        "{ .reg .f32 r, e, n; rcp.approx.ftz.f32 r, $2; neg.f32 n, $2; fma.rn.f32 e, n, r, 0f3F800000; "
        "fma.rn.f32 r, r, e, r; mul.rn.f32 e, $1, r; fma.rn.f32 n, n, e, $1; fma.rn.f32 $0, r, n, e; }",
        2,
    )
)
#: The square root of a float32, rounded once, where it is 0, or from 2**-100 to 2**100: likewise of ``sqrt.rn.f32``.
near_root: Final = twin(lambda a: np.sqrt(np.float32(a)))(
    _sequence(
        "{ .reg .f32 r, g, h; max.f32 r, $1, 0f0D800000; rsqrt.approx.ftz.f32 r, r; mul.rn.f32 g, $1, r; "
        "mul.rn.f32 h, r, 0f3F000000; neg.f32 r, g; fma.rn.f32 r, r, g, $1; fma.rn.f32 $0, r, h, g; }",
        1,
    )
)

#: The largest whole float64 that is not above a float64.
floor = twin(lambda a: np.floor(np.float64(a)))(_instruction(np.float64, "cvt.rmi.f64", 1))


@twin(lambda value: int(np.float64(value).view(np.int64)))
@intrinsic  # type: ignore[untyped-decorator]
def double_bits(_: Any, value: Any) -> Any:
    """Return the bits of a float64, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), codegen


@twin(lambda bits: np.int64(bits).view(np.float64))
@intrinsic  # type: ignore[untyped-decorator]
def double_of(_: Any, bits: Any) -> Any:
    """Return the float64 with these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F64)

    return types.float64(types.int64), codegen
