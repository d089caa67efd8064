"""From a graph to the descriptors of cuDNN's backend, as words that the native builder takes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...._lib.cudnn import CONSTANTS
from ....dtypes import DTYPES
from ..attributes import GraphAttributes, NodeSpec, TensorSpec

__all__ = ["GraphDescription", "data_type", "describe_graph"]

_DATA: Final = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16", "int8": "INT8",
    "int32": "INT32", "uint8": "UINT8", "int64": "INT64", "bool": "BOOLEAN", "float8_e4m3fn": "FP8_E4M3",
    "float8_e5m2": "FP8_E5M2",
}  # fmt: skip
#: Bytes of which operands' addresses must be multiples.
_ALIGNMENT: Final = 16

_CONVOLUTIONS: Final = {
    "convolution_forward": ("CONVOLUTION_FORWARD", "CONVOLUTION_FORWARD"),
    "convolution_backward_data": ("CONVOLUTION_BACKWARD_DATA", "CONVOLUTION_BWD_DATA"),
    "convolution_backward_filter": ("CONVOLUTION_BACKWARD_FILTER", "CONVOLUTION_BWD_FILTER"),
}
_POOLING: Final = {
    "max": ("MAXPOOL", "NEG_INF_PAD"),
    "average": ("AVGPOOL_INCLUDE_PADDING", "ZERO_PAD"),
    "average_exclude_padding": ("AVGPOOL_EXCLUDE_PADDING", "ZERO_PAD"),
}
#: Attributes of ports whose names differ from "<PORT>DESC".
_PORTS: Final = {
    "matmul": {"m": "GEMM_M_OVERRIDE_DESC", "n": "GEMM_N_OVERRIDE_DESC", "k": "GEMM_K_OVERRIDE_DESC"},
    "pages": {"x": "CONTAINER_DESC", "table": "PAGE_TABLE_DESC", "lengths": "SEQUENCE_DESC"},
    "rng": {"seed": "SEED", "offset": "OFFSET_DESC"},
    "resample_forward": {"index": "IDXDESC"},
    "resample_backward": {"index": "IDXDESC"},
    "norm_forward": {
        "mean": "MEAN_DESC", "inv_variance": "INV_VARIANCE_DESC", "mean_out": "MEAN_DESC",
        "inv_variance_out": "INV_VARIANCE_DESC", "scale": "SCALE_DESC", "bias": "BIAS_DESC", "epsilon": "EPSILON_DESC",
        "momentum": "EXP_AVG_FACTOR_DESC", "running_mean": "INPUT_RUNNING_MEAN_DESC",
        "running_var": "INPUT_RUNNING_VAR_DESC", "running_mean_out": "OUTPUT_RUNNING_MEAN_DESC",
        "running_var_out": "OUTPUT_RUNNING_VAR_DESC",
    },
    "norm_backward": {
        "mean": "MEAN_DESC", "inv_variance": "INV_VARIANCE_DESC", "scale": "SCALE_DESC", "dscale": "DSCALE_DESC",
        "dbias": "DBIAS_DESC",
    },
}  # fmt: skip
_DESCRIPTORS: Final = {
    "matmul": ("MATMUL", "MATMUL"),
    "reduction": ("REDUCTION", "REDUCTION"),
    "resample_forward": ("RESAMPLE_FWD", "RESAMPLE_FWD"),
    "resample_backward": ("RESAMPLE_BWD", "RESAMPLE_BWD"),
    "norm_forward": ("NORM_FORWARD", "NORM_FWD"),
    "norm_backward": ("NORM_BACKWARD", "NORM_BWD"),
    "transpose": ("RESHAPE", "RESHAPE"),
    "rng": ("RNG", "RNG"),
    "pages": ("PAGED_CACHE_LOAD", "PAGED_CACHE_LOAD"),
    "pointwise": ("POINTWISE", "POINTWISE"),
}

#: An attribute of a descriptor: its name without ``CUDNN_ATTR_``, its type without ``CUDNN_TYPE_``, its elements.
Attribute = tuple[str, str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class GraphDescription:
    """A graph as ``cython/libraries/cudnn/plan.h`` takes it.

    Attributes
    ----------
    words : list of int
        The descriptors.
    tensors : list of (int, int, int, bytes)
        Number, operand, alignment and constant of each tensor that is no intermediate result.
    n_operands : int
    banned : int
        Numerical notes that the engine must not have, a bit each.
    workspace_limit : int
        Bytes that the engine should do with.
    reaches : tuple of (int, str)
        For each operand the bytes that it reaches over, and its dtype; none for a plan that is not measured.
    only : int
        The place in the heuristics' list of the engine that is taken; -1: the first that is good.
    """

    words: list[int]
    tensors: list[tuple[int, int, int, bytes]]
    n_operands: int
    banned: int
    workspace_limit: int
    reaches: tuple[tuple[int, str], ...] = ()
    only: int = -1


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def data_type(dtype: str) -> str:
    """Return the name of cuDNN's constant for a dtype."""
    return f"CUDNN_DATA_{_DATA[dtype]}"


def _data(dtype: str) -> int:
    return CONSTANTS[data_type(dtype)]


class _Words:
    """Descriptors under construction; they are named by their places."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self._n = 0

    def add(self, kind: str, *attributes: Attribute) -> int:
        self.words += (CONSTANTS[f"CUDNN_BACKEND_{kind}_DESCRIPTOR"], len(attributes))
        for name, type_, elements in attributes:
            count = len(elements) // 2 if type_ == "FRACTION" else len(elements)
            self.words += (CONSTANTS[f"CUDNN_ATTR_{name}"], CONSTANTS[f"CUDNN_TYPE_{type_}"], count)
            self.words += (_bits(e) if type_ in ("FLOAT", "DOUBLE") else int(e) for e in elements)
        self._n += 1
        return self._n - 1


def _tensor(words: _Words, number: int, spec: TensorSpec, made: Sequence[int]) -> int:
    attributes: list[Attribute] = [
        ("TENSOR_DATA_TYPE", "DATA_TYPE", [_data(spec.dtype)]),
        ("TENSOR_DIMENSIONS", "INT64", spec.shape),
        ("TENSOR_STRIDES", "INT64", spec.strides),
        ("TENSOR_UNIQUE_ID", "INT64", [number + 1]),
        ("TENSOR_BYTE_ALIGNMENT", "INT64", [_ALIGNMENT]),
    ]
    if spec.is_virtual:
        attributes.append(("TENSOR_IS_VIRTUAL", "BOOLEAN", [1]))
    if spec.value:
        attributes.append(("TENSOR_IS_BY_VALUE", "BOOLEAN", [1]))
    if spec.ragged >= 0:
        attributes.append(("TENSOR_RAGGED_OFFSET_DESC", "BACKEND_DESCRIPTOR", [made[spec.ragged]]))
    return words.add("TENSOR", *attributes)


def _convolution(words: _Words, node: NodeSpec, places: dict[str, int]) -> int:
    kind, prefix = _CONVOLUTIONS[node.op]
    integers, reals = dict(node.integers), dict(node.reals)
    made = words.add(
        "CONVOLUTION",
        ("CONVOLUTION_COMP_TYPE", "DATA_TYPE", [_data(node.compute)]),
        ("CONVOLUTION_CONV_MODE", "CONVOLUTION_MODE", [CONSTANTS["CUDNN_CROSS_CORRELATION"]]),
        ("CONVOLUTION_SPATIAL_DIMS", "INT64", [len(integers["stride"])]),
        ("CONVOLUTION_PRE_PADDINGS", "INT64", integers["before"]),
        ("CONVOLUTION_POST_PADDINGS", "INT64", integers["after"]),
        ("CONVOLUTION_FILTER_STRIDES", "INT64", integers["stride"]),
        ("CONVOLUTION_DILATIONS", "INT64", integers["dilation"]),
    )
    factor = "DOUBLE" if node.compute == "float64" else "FLOAT"
    return words.add(
        f"OPERATION_{kind}",
        (f"OPERATION_{prefix}_CONV_DESC", "BACKEND_DESCRIPTOR", [made]),
        *((f"OPERATION_{prefix}_{port.upper()}", "BACKEND_DESCRIPTOR", [at]) for port, at in places.items()),
        (f"OPERATION_{prefix}_ALPHA", factor, [reals.get("alpha", 1.0)]),
        (f"OPERATION_{prefix}_BETA", factor, [reals.get("beta", 0.0)]),
    )


def _pointwise(words: _Words, node: NodeSpec) -> Attribute:
    attributes: list[Attribute] = [
        ("POINTWISE_MODE", "POINTWISE_MODE", [CONSTANTS[f"CUDNN_POINTWISE_{node.mode.upper()}"]]),
        ("POINTWISE_MATH_PREC", "DATA_TYPE", [_data(node.compute)]),
    ]
    for name, value in node.reals:
        attributes.append((f"POINTWISE_{name.upper()}", "DOUBLE", [value]))
    for name, values in node.integers:
        attributes.append((f"POINTWISE_{name.upper()}", "INT64", values))
    return ("OPERATION_POINTWISE_PW_DESCRIPTOR", "BACKEND_DESCRIPTOR", [words.add("POINTWISE", *attributes)])


def _resample(words: _Words, node: NodeSpec, prefix: str) -> Attribute:
    integers = dict(node.integers)
    mode, padding = _POOLING[node.mode]

    def fractions(values: Sequence[int]) -> list[int]:
        return [part for value in values for part in (value, 1)]

    made = words.add(
        "RESAMPLE",
        ("RESAMPLE_MODE", "RESAMPLE_MODE", [CONSTANTS[f"CUDNN_RESAMPLE_{mode}"]]),
        ("RESAMPLE_COMP_TYPE", "DATA_TYPE", [_data(node.compute)]),
        ("RESAMPLE_SPATIAL_DIMS", "INT64", [len(integers["window"])]),
        ("RESAMPLE_NAN_PROPAGATION", "NAN_PROPOGATION", [CONSTANTS["CUDNN_PROPAGATE_NAN"]]),
        ("RESAMPLE_PADDING_MODE", "PADDING_MODE", [CONSTANTS[f"CUDNN_{padding}"]]),
        ("RESAMPLE_WINDOW_DIMS", "FRACTION", fractions(integers["window"])),
        ("RESAMPLE_STRIDES", "FRACTION", fractions(integers["stride"])),
        ("RESAMPLE_PRE_PADDINGS", "FRACTION", fractions(integers["before"])),
        ("RESAMPLE_POST_PADDINGS", "FRACTION", fractions(integers["after"])),
    )
    return (f"OPERATION_{prefix}_DESC", "BACKEND_DESCRIPTOR", [made])


def _parameters(words: _Words, node: NodeSpec, prefix: str) -> list[Attribute]:
    """Return an operation's attributes besides its tensors."""
    if node.op == "pointwise":
        return [_pointwise(words, node)]
    if node.op == "matmul":
        made = words.add("MATMUL", ("MATMUL_COMP_TYPE", "DATA_TYPE", [_data(node.compute)]))
        return [("OPERATION_MATMUL_DESC", "BACKEND_DESCRIPTOR", [made])]
    if node.op == "reduction":
        made = words.add(
            "REDUCTION",
            (
                "REDUCTION_OPERATOR",
                "REDUCTION_OPERATOR_TYPE",
                [CONSTANTS[f"CUDNN_REDUCE_TENSOR_{node.mode.upper()}"]],
            ),
            ("REDUCTION_COMP_TYPE", "DATA_TYPE", [_data(node.compute)]),
        )
        return [("OPERATION_REDUCTION_DESC", "BACKEND_DESCRIPTOR", [made])]
    if node.op == "rng":
        made = words.add(
            "RNG",
            ("RNG_DISTRIBUTION", "RNG_DISTRIBUTION", [CONSTANTS["CUDNN_RNG_DISTRIBUTION_BERNOULLI"]]),
            ("RNG_BERNOULLI_DIST_PROBABILITY", "DOUBLE", [dict(node.reals)["kept"]]),
        )
        return [("OPERATION_RNG_DESC", "BACKEND_DESCRIPTOR", [made])]
    if node.op.startswith("resample"):
        return [_resample(words, node, prefix)]
    if node.op.startswith("norm"):
        found: list[Attribute] = [
            (f"OPERATION_{prefix}_MODE", "NORM_MODE", [CONSTANTS[f"CUDNN_{node.mode.upper()}_NORM"]])
        ]
        if node.op == "norm_forward":
            training = dict(node.integers)["training"][0]
            phase = CONSTANTS[f"CUDNN_NORM_FWD_{'TRAINING' if training else 'INFERENCE'}"]
            found.append((f"OPERATION_{prefix}_PHASE", "NORM_FWD_PHASE", [phase]))
        return found
    return []


def _operation(words: _Words, node: NodeSpec, tensors: Sequence[int]) -> int:
    places = {port: tensors[at] for port, at in node.ports}
    if node.op in _CONVOLUTIONS:
        return _convolution(words, node, places)
    kind, prefix = _DESCRIPTORS[node.op]
    attributes = _parameters(words, node, prefix)
    names = _PORTS.get(node.op, {})
    for port, place in places.items():
        name = names.get(port, f"{port.upper()}DESC")
        attributes.append((f"OPERATION_{prefix}_{name}", "BACKEND_DESCRIPTOR", [place]))
    return words.add(f"OPERATION_{kind}", *attributes)


def _banned(graph: GraphAttributes) -> int:
    """Return the numerical notes that no engine of the graph may have."""
    names = ["DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION"]
    if graph.deterministic:
        names.append("NONDETERMINISTIC")
    products = [node for node in graph.nodes if node.op == "matmul" or node.op in _CONVOLUTIONS]
    read = [graph.tensors[at] for node in products for at in node.reads]
    # Intermediate results of attention are float32 in the graph, and are rounded to the operands' dtype for products.
    if not graph.tf32 and any(tensor.dtype == "float32" and not tensor.is_virtual for tensor in read):
        names.append("TENSOR_CORE")
    return sum(1 << CONSTANTS[f"CUDNN_NUMERICAL_NOTE_{name}"] for name in names)


def _reach(graph: GraphAttributes, operand: int) -> tuple[int, str]:
    """Return the bytes that an operand's tensors reach over, and their dtype."""
    found = [tensor for tensor in graph.tensors if tensor.operand == operand]
    ends = [1 + sum((n - 1) * step for n, step in zip(one.shape, one.strides, strict=True)) for one in found]
    dtype = found[0].dtype if found else "uint8"
    return max(ends, default=1) * DTYPES[dtype].itemsize, dtype


def describe_graph(graph: GraphAttributes, n_operands: int, workspace_limit: int) -> GraphDescription:
    """Return a graph as the native builder takes it."""
    words = _Words()
    tensors: list[int] = []
    for number, spec in enumerate(graph.tensors):
        tensors.append(_tensor(words, number, spec, tensors))
    operations = [_operation(words, node, tensors) for node in graph.nodes]
    words.add("OPERATIONGRAPH", ("OPERATIONGRAPH_OPS", "BACKEND_DESCRIPTOR", operations))
    bound = [
        (
            number + 1,
            spec.operand,
            _ALIGNMENT,
            np.array(float.fromhex(spec.value)).astype(DTYPES[spec.dtype]).tobytes() if spec.value else b"",
        )
        for number, spec in enumerate(graph.tensors)
        if not spec.is_virtual
    ]
    reaches = tuple(_reach(graph, operand) for operand in range(n_operands))
    return GraphDescription(words.words, bound, n_operands, _banned(graph), workspace_limit, reaches)
