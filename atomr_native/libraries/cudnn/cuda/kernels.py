"""Generated kernels for pointwise nodes for which cuDNN has no engine: a run of such nodes is one kernel."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

from ....builders.cuda.codegen import MapOperand, alignment, convert, kernels, map_kernel, value_type
from ....builders.cuda.target import Launch, Target
from ....errors import Unsupported
from ..attributes import GraphAttributes, NodeSpec, TensorSpec

__all__ = ["pointwise_kernel", "pointwise_source"]

_SQRT_HALF: Final = math.sqrt(0.5)
_NORMAL: Final = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE: Final = math.sqrt(2 / math.pi)
_CUBIC: Final = 0.044715

_UNARY: Final = {
    "abs": "fabs{f}({x})", "ceil": "ceil{f}({x})", "cos": "cos{f}({x})", "exp": "exp{f}({x})",
    "floor": "floor{f}({x})", "log": "log{f}({x})", "neg": "-({x})", "rsqrt": "{one} / sqrt{f}({x})",
    "sin": "sin{f}({x})", "sqrt": "sqrt{f}({x})", "tan": "tan{f}({x})", "erf": "erf{f}({x})", "identity": "{x}",
    "reciprocal": "{one} / {x}", "relu_fwd": "({x} > 0 || {x} != {x} ? {x} : 0)", "tanh_fwd": "tanh{f}({x})",
    "sigmoid_fwd": "({x} >= 0 ? {one} : exp{f}({x})) / ({one} + exp{f}(-fabs{f}({x})))",
    "gelu_fwd": "{x} * {half} * ({one} + erf{f}({x} * {root}))",
    "gelu_approx_tanh_fwd": "{half} * {x} * ({one} + tanh{f}({scale} * ({x} + {cubic} * {x} * {x} * {x})))",
    "elu_fwd": "({x} > 0 ? {x} : {number} * expm1{f}({x}))",
    "softplus_fwd": "(fmax{f}({number} * {x}, 0) + log1p{f}(exp{f}(-fabs{f}({number} * {x})))) / {number}",
    "swish_fwd": "{x} / ({one} + exp{f}(-{number} * {x}))",
}  # fmt: skip
_SLOPES: Final = {
    "relu_bwd": "({x} > 0 ? {one} : 0)",
    "tanh_bwd": "({one} - tanh{f}({x}) * tanh{f}({x}))",
    "sigmoid_bwd": "exp{f}(-fabs{f}({x})) / (({one} + exp{f}(-fabs{f}({x}))) * ({one} + exp{f}(-fabs{f}({x}))))",
    "gelu_bwd": "({half} * ({one} + erf{f}({x} * {root})) + {x} * {normal} * exp{f}(-{half} * {x} * {x}))",
    "elu_bwd": "({x} > 0 ? {one} : {number} * exp{f}({x}))",
    "softplus_bwd": "{one} / ({one} + exp{f}(-{number} * {x}))",
}
_BINARY: Final = {
    "add": "{x} + {b}", "add_square": "{x} + {b} * {b}", "div": "{x} / {b}", "max": "fmax{f}({x}, {b})",
    "min": "fmin{f}({x}, {b})", "mul": "{x} * {b}", "pow": "pow{f}({x}, {b})", "sub": "{x} - {b}",
    "cmp_eq": "{x} == {b}", "cmp_neq": "{x} != {b}", "cmp_gt": "{x} > {b}", "cmp_ge": "{x} >= {b}",
    "cmp_lt": "{x} < {b}", "cmp_le": "{x} <= {b}", "logical_and": "{x} && {b}", "logical_or": "{x} || {b}",
}  # fmt: skip


def _literal(value: float, real: str) -> str:
    """Return a number in C."""
    if real == "float32":
        return f"bits_float({struct.unpack('<I', struct.pack('<f', value))[0]}u)"
    if math.isinf(value) or math.isnan(value):
        raise Unsupported(f"a constant {value} in float64; allowed: finite numbers", rule="cudnn.constant")
    return repr(value)


def _statements(node: NodeSpec, name: str, arguments: dict[str, str], real: str) -> list[str]:
    """Return statements that declare the value of a node."""
    number = next((value for _, value in node.reals), 1.0)
    words = {
        "f": "f" if real == "float32" else "", "number": _literal(number, real), "one": _literal(1.0, real),
        "half": _literal(0.5, real), "root": _literal(_SQRT_HALF, real), "normal": _literal(_NORMAL, real),
        "scale": _literal(_TANH_SCALE, real), "cubic": _literal(_CUBIC, real), **arguments,
    }  # fmt: skip
    kind = value_type(real)
    if node.mode == "swish_bwd":
        return [
            f"const {kind} s{name} = {words['one']} / ({words['one']} + "
            f"exp{words['f']}(-{words['number']} * {words['x']}));",
            f"const {kind} {name} = {words['dy']} * s{name} * ({words['one']} + {words['number']} * {words['x']} * "
            f"({words['one']} - s{name}));",
        ]
    if node.mode == "gelu_approx_tanh_bwd":
        x, one, half = words["x"], words["one"], words["half"]
        inner = f"{words['scale']} * ({x} + {words['cubic']} * {x} * {x} * {x})"
        slope = f"{words['scale']} * ({one} + {_literal(3 * _CUBIC, real)} * {x} * {x})"
        return [
            f"const {kind} t{name} = tanh{words['f']}({inner});",
            f"const {kind} {name} = {words['dy']} * {half} * ({one} + t{name} + {x} * ({one} - t{name} * t{name}) * "
            f"{slope});",
        ]
    if node.mode in _SLOPES:
        return [f"const {kind} {name} = {words['dy']} * {_SLOPES[node.mode].format(**words)};"]
    if node.mode == "binary_select":
        return [f"const {kind} {name} = {words['t']} != 0 ? {words['x']} : {words['b']};"]
    if node.mode == "logical_not":
        return [f"const {kind} {name} = {words['x']} == 0;"]
    formula = _UNARY.get(node.mode) or _BINARY.get(node.mode)
    if formula is None:
        raise Unsupported(f"no kernel for the pointwise mode {node.mode}", rule="cudnn.pointwise")
    return [f"const {kind} {name} = {formula.format(**words)};"]


def _steps(tensor: TensorSpec, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(0 if n == 1 else s for n, s in zip(tensor.shape, tensor.strides, strict=True)) if shape else ()


def pointwise_source(
    graph: GraphAttributes, nodes: Sequence[NodeSpec], bound: Sequence[int], target: Target
) -> tuple[str, Launch]:
    """Return the kernel of a run of pointwise nodes, and its launch; `bound` are the tensors that are in memory."""
    real = "float64" if any(node.compute == "float64" for node in nodes) else "float32"
    shape = graph.tensors[nodes[0].writes[0]].shape
    if any(graph.tensors[node.writes[0]].shape != shape for node in nodes):
        raise Unsupported("pointwise results of several shapes in one kernel", rule="cudnn.pointwise")
    mapped = []
    values: dict[int, str] = {}
    body: list[str] = []
    read: set[int] = set()
    made: set[int] = set()
    for node in nodes:
        read |= {at for at in node.reads if at not in made}
        made |= set(node.writes)
    for place, at in enumerate(bound):
        tensor = graph.tensors[at]
        mapped.append(MapOperand(place, tensor.dtype, _steps(tensor, shape), at in read, at in made))
        if at in read:
            body.append(f"const {value_type(real)} in_{at} = {convert(tensor.dtype, real, f'x{place}')};")
            values[at] = f"in_{at}"
    for at in read - set(bound):
        if graph.tensors[at].value:
            values[at] = _literal(float.fromhex(graph.tensors[at].value), real)
    for place, node in enumerate(nodes):
        arguments = {port: values[at] for port, at in node.ports if at in values and port not in ("y", "dx")}
        into = node.writes[0]
        body += _statements(node, f"made_{place}", arguments, real)
        values[into] = f"made_{place}"
        if into in bound:
            stored = _rounded(f"made_{place}", graph.tensors[into].dtype, real)
            body.append(f"y{bound.index(into)} = {stored};")
    return map_kernel(shape, mapped, (), (), body, target)


def _rounded(value: str, dtype: str, real: str) -> str:
    """Return a value as it is stored; integers are rounded to nearest and saturated."""
    if dtype == "int8":
        f = "f" if real == "float32" else ""
        value = f"fmin{f}(fmax{f}(rint{f}({value}), {_literal(-128.0, real)}), {_literal(127.0, real)})"
    return convert(real, dtype, value)


def pointwise_kernel(graph: GraphAttributes, nodes: Sequence[NodeSpec], bound: Sequence[int], target: Target) -> Any:
    """Compile the kernel of a run of pointwise nodes, a `KernelProgram`.  Waits for the compiler."""
    source, launch = pointwise_source(graph, nodes, bound, target)
    dtypes = [graph.tensors[at].dtype for at in bound]
    return kernels(source, [launch], target, dtypes={*dtypes, "float32"}, alignments=[alignment(d) for d in dtypes]).run
