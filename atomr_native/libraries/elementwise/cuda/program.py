"""Elementwise programs as one CUDA kernel: each thread computes all statements for its elements.

Arithmetic is NumPy's, operation by operation and without contraction into fused multiply-adds.  Where NumPy raises, a
kernel cannot: an integer to a negative power is truncated to an integer.  A message with a number that does not fit the
integers which it meets is refused when it is launched; what numbers of the message have been computed to before they
meet them wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ....builders.context import Built
from ....builders.cuda.codegen import MapOperand, alignment, broadcast_strides, convert, kernels, map_kernel, value_type
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import INTEGERS
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import ProgramAttributes
from ..expressions import Node, argument_types, loop_dtypes

__all__ = ["build_elementwise", "operation"]

_WEAK: Final = {"int": "int64", "float": "float64"}
_SYMBOLS: Final = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=", "equal": "==", "not_equal": "!=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
_COMPARISONS: Final = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
#: Operations of one dtype whose C function has another name than its C counterpart, or the same.
_MATH: Final = {
    "abs": "fabs", "exp": "exp", "log": "log", "sqrt": "sqrt", "tanh": "tanh", "sin": "sin", "cos": "cos", "erf": "erf",
    "floor": "floor", "ceil": "ceil", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh",
    "cosh": "cosh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "expm1": "expm1", "log1p": "log1p",
    "log2": "log2", "log10": "log10", "rint": "rint", "trunc": "trunc", "atan2": "atan2", "hypot": "hypot",
    "copysign": "copysign", "nextafter": "nextafter",
}  # fmt: skip
#: Floating-point operations that call no function, or one with a constant.
_TESTS: Final = {
    "isnan": "{a} != {a}", "isfinite": "{a} - {a} == 0", "isinf": "{a} == {a} && {a} - {a} != 0",
    "signbit": "copysign{suffix}(1.0{suffix}, {a}) < 0", "real": "{a}", "conj": "{a}", "imag": "0",
}  # fmt: skip
#: Operations that call a helper named after them and their dtype.
_HELPERS: Final = ("floor_divide", "remainder", "power")


def _compare(symbol: str, loop: tuple[str, ...], a: str, b: str) -> str:
    if loop[0] == loop[1] or "float" in loop[0]:
        return f"{a} {symbol} {b}"
    # int64 with uint64: NumPy compares the numbers.
    if loop[0] == "int64":
        return f"({a} < 0 ? -1 : (u64){a} < {b} ? -1 : (u64){a} > {b}) {symbol} 0"
    return f"0 {symbol} ({b} < 0 ? -1 : (u64){b} < {a} ? -1 : (u64){b} > {a})"


def _integer(name: str, dtype: str, arguments: list[str]) -> str:
    kind, wide, a = value_type(dtype), INTEGERS[dtype], arguments[0]
    if name in ("add", "subtract", "multiply"):
        return f"({kind})(({wide}){a} {_SYMBOLS[name]} ({wide}){arguments[1]})"
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return f"({kind})({a} {_SYMBOLS[name]} {arguments[1]})"
    unsigned = dtype.startswith("u")
    if name in ("left_shift", "right_shift"):  # by more bits than there are: nothing is left but the sign, as in NumPy
        b, bits = arguments[1], as_dtype(dtype).itemsize * 8
        shifted = f"({kind})(({wide}){a} << {b})" if name == "left_shift" else f"({kind})({a} >> {b})"
        rest = "0" if unsigned or name == "left_shift" else f"({a} < 0 ? ({kind})-1 : ({kind})0)"
        return f"((u64){b} < {bits}u ? {shifted} : {rest})"
    simple = {
        "negative": f"({kind})(({wide})0 - ({wide}){a})",
        "invert": f"({kind})~{a}",
        "abs": a if unsigned else f"({a} < 0 ? ({kind})(({wide})0 - ({wide}){a}) : {a})",
        "sign": f"({kind})({a} > 0)" if unsigned else f"({kind})(({a} > 0) - ({a} < 0))",
        "floor": a,
        "ceil": a,
        "trunc": a,
        "real": a,
        "imag": "0",
        "conj": a,
        "isnan": "false",
        "isinf": "false",
        "isfinite": "true",
    }
    return simple[name]


def _boolean(name: str, a: str, b: str) -> str:
    return {
        "add": f"{a} || {b}", "maximum": f"{a} || {b}", "bitwise_or": f"{a} || {b}", "multiply": f"{a} && {b}",
        "minimum": f"{a} && {b}", "bitwise_and": f"{a} && {b}", "bitwise_xor": f"{a} != {b}", "invert": f"!{a}",
        "abs": a, "floor": a, "ceil": a, "trunc": a, "real": a, "imag": "false", "isnan": "false", "isinf": "false",
        "isfinite": "true",
    }[name]  # fmt: skip


def operation(name: str, loop: tuple[str, ...], arguments: list[str]) -> str:
    """Return the C expression of an operation.

    Parameters
    ----------
    name : str
        A node's operation.
    loop : tuple of str
        Dtypes of the arguments and of the result, as `loop_dtypes` has them.
    arguments : list of str
        Names of variables of these dtypes.
    """
    dtype, a, b = loop[0], arguments[0], arguments[1] if len(arguments) > 1 else ""
    suffix = "f" if dtype == "float32" else ""
    if name == "where":
        return f"{a} ? {b} : {arguments[2]}"
    if dtype.startswith("complex"):
        return f"{name}_{value_type(dtype)}({', '.join(arguments)})"
    if name in _COMPARISONS:
        return _compare(_SYMBOLS[name], loop, a, b)
    if name == "relu":
        return f"{a} >= 0 || {a} != {a} ? {a} : 0"
    if dtype == "bool":
        return _boolean(name, a, b)
    if name in ("maximum", "minimum"):  # NaN wins
        return f"{a} {'>=' if name == 'maximum' else '<='} {b} || {a} != {a} ? {a} : {b}"
    if name == "power" and dtype not in INTEGERS:
        return f"pow{suffix}({a}, {b})"
    if name in _HELPERS:
        return f"{name}_{dtype}({a}, {b})"
    if dtype in INTEGERS:
        return _integer(name, dtype, arguments)
    if name == "sigmoid":
        return f"1 / (1 + exp{suffix}(-{a}))"
    if name in _TESTS:
        return _TESTS[name].format(a=a, suffix=suffix)
    if name == "logaddexp":
        return (
            f"{a} == {b} ? {a} + {math.log(2)!r} : {a} > {b} ? {a} + log1p{suffix}(exp{suffix}({b} - {a})) : "
            f"{a} < {b} ? {b} + log1p{suffix}(exp{suffix}({a} - {b})) : {a} + {b}"
        )
    if name == "sign":
        return f"{a} > 0 ? 1 : {a} < 0 ? -1 : {a} == 0 ? 0 : {a}"
    if name == "negative":
        return f"-{a}"
    return f"{_MATH[name]}{suffix}({', '.join(arguments)})" if name in _MATH else f"{a} {_SYMBOLS[name]} {b}"


def _literal(kind: str, text: str) -> str:
    """Return the C literal of a constant node."""
    if kind == "int":
        return f"(long long){int(text) % 2**64}ull"
    return f"__longlong_as_double((long long){int(np.float64(float.fromhex(text)).view(np.uint64))}ull)"


class _Lowering:
    """Turns nodes into C statements: `head` for numbers, once a thread, and `body` for arrays, for each element."""

    def __init__(self, nodes: Sequence[Node], operands: Mapping[str, tuple[int, str]], scalars: Sequence[str]) -> None:
        self.nodes = nodes
        self.operands = operands
        self.scalars = scalars
        self.head: list[str] = []
        self.body: list[str] = []
        self.dtypes = {dtype for _, dtype in operands.values()} | {"int64", "float64"}
        self.functions: set[str] = set()
        self.ranges: dict[int, str] = {}  # by number of the message, the narrow integers that it meets
        for index, node in enumerate(nodes):
            lines = self.head if node[1] in _WEAK else self.body
            dtype = self.dtype(index)
            self.dtypes.add(dtype)
            lines.append(f"const {value_type(dtype)} n{index} = {self.value(index, lines)};")

    def dtype(self, index: int) -> str:
        kind: str = self.nodes[index][1]
        return _WEAK.get(kind, kind)

    def _check(self, index: int, dtype: str) -> None:
        """Have a message's number checked when it is sent, against the integers which it meets."""
        name, kind, *rest = self.nodes[index]
        if name == "scalar" and kind == "int" and dtype in INTEGERS and not dtype.endswith("64"):
            number = self.scalars.index(rest[0])
            known = self.ranges.get(number, dtype)
            self.ranges[number] = min(known, dtype, key=lambda name: int(np.iinfo(as_dtype(name)).max))

    def value(self, index: int, lines: list[str]) -> str:
        name, kind, *rest = self.nodes[index]
        if name == "const":
            return _literal(kind, rest[0])
        if name == "scalar":
            return f"s{self.scalars.index(rest[0])}"
        if name == "operand":
            number, dtype = self.operands[rest[0]]
            return convert(dtype, kind, f"(x{number} != 0)" if dtype == "bool" else f"x{number}")
        if name == "cast":
            return convert(self.dtype(rest[0]), kind, f"n{rest[0]}")
        types = argument_types(self.nodes, self.nodes[index])
        loop = loop_dtypes(name, types)
        self.dtypes.update(loop)
        self.functions.add(name)
        if name == "power":
            exponent = self.nodes[rest[1]]
            if exponent[0] == "const" and exponent[2] in ("2", (2.0).hex()) and types[0] == loop[0] == kind:
                name, rest, loop = "multiply", [rest[0], rest[0]], (kind, kind, kind)
        arguments = []
        for position, (argument, dtype) in enumerate(zip(rest, loop, strict=False)):
            if self.dtype(argument) == dtype:
                arguments.append(f"n{argument}")
                continue
            if self.nodes[argument][1] in _WEAK:
                self._check(argument, dtype)
            arguments.append(f"n{index}_{position}")
            text = convert(self.dtype(argument), dtype, f"n{argument}")
            once = self.head if self.nodes[argument][1] in _WEAK else lines
            once.append(f"const {value_type(dtype)} {arguments[-1]} = {text};")
        return convert(loop[-1], self.dtype(index), f"({operation(name, loop, arguments)})")

    def store(self, name: str, index: int) -> None:
        number, dtype = self.operands[name]
        text = convert(self.dtype(index), dtype, f"n{index}")
        self.body.append(f"y{number} = {text};")


def build_elementwise(spec: PlanSpec[ProgramAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.program``: operands and numbers in the order of the specification.

    Waits for the compiler, unless the kernel is in the cache.
    """
    shape, stores = spec.attributes.shape, dict(spec.attributes.stores)
    operands = {o.name: (i, o.dtype) for i, o in enumerate(spec.operands)}
    nodes: Sequence[Node] = spec.attributes.nodes
    lowering = _Lowering(nodes, operands, spec.attributes.scalar_names)
    for name, index in stores.items():
        lowering.store(name, index)
    read = {node[2] for node in nodes if node[0] == "operand"}
    if math.prod(shape) == 0:
        return Built("noop")
    mapped = [
        MapOperand(i, o.dtype, broadcast_strides(o, shape), o.name in read, o.name in stores)
        for i, o in enumerate(spec.operands)
    ]
    source, launch = map_kernel(
        shape, mapped, spec.scalars, lowering.head, lowering.body, context.target, ranges=lowering.ranges
    )
    return kernels(
        source,
        [launch],
        context.target,
        dtypes=lowering.dtypes,
        functions=lowering.functions,
        alignments=[alignment(o.dtype) for o in mapped],
    )
