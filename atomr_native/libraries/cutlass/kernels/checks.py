"""Kernels that no template of CUTLASS can compute are refused here, by the attribute that is wrong."""

from __future__ import annotations

from typing import Final

from ....errors import Unsupported
from .kernel import FUNCTORS, REDUCTIONS, Kernel, Node, walk
from .types import BITS, CPP

__all__ = ["check"]

_FAMILIES: Final = ("gemm", "grouped", "convolution")
_INPUTS_90: Final = ("float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e5m2", "int8")
_INPUTS_80: Final = ("float64", "float32", "tfloat32", "float16", "bfloat16", "int8")
_ACCUMULATORS: Final = {
    "float64": ("float64",), "float32": ("float32",), "tfloat32": ("float32",), "float16": ("float32", "float16"),
    "bfloat16": ("float32",), "float8_e4m3fn": ("float32",), "float8_e5m2": ("float32",), "int8": ("int32",),
}  # fmt: skip
_LEAVES: Final = ("acc", "source", "scalar", "row", "column", "tensor")
_STORES: Final = ("aux_store", "reduce_row", "reduce_column", "reduce_scalar")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise Unsupported(f"{name}={value!r} of a CUTLASS kernel; allowed: {', '.join(map(repr, allowed))}")


def check(kernel: Kernel) -> None:
    """Refuse a kernel that has no template.

    Raises
    ------
    Unsupported
        Names the attribute or the node, its value and the allowed ones.
    """
    _one_of("family", kernel.family, _FAMILIES)
    _one_of("arch", kernel.arch, ("sm_80", "sm_90a"))
    modern = kernel.arch == "sm_90a"
    for name, operand in (("a", kernel.a), ("b", kernel.b)):
        _one_of(f"{name}.dtype", operand.dtype, _INPUTS_90 if modern else _INPUTS_80)
        _one_of(f"{name}.layout", operand.layout, ("row", "column"))
    if kernel.mixed:
        _check_mixed(kernel)
    elif not modern or BITS[kernel.a.dtype] != 8 or kernel.a.dtype == "int8":
        _one_of("b.dtype", kernel.b.dtype, (kernel.a.dtype,))
    elif kernel.b.dtype == "int8":
        _one_of("b.dtype", kernel.b.dtype, ("float8_e4m3fn", "float8_e5m2"))
    _one_of("accumulator", kernel.accumulator, _ACCUMULATORS[(kernel.b if kernel.mixed else kernel.a).dtype])
    columns = modern and kernel.family == "gemm"
    layouts = ("column",) if kernel.mixed else ("row", "column") if columns else ("row",)
    for name, result in (("c", kernel.c), ("d", kernel.d)):
        if result is not None:
            _one_of(f"{name}.dtype", result.dtype, tuple(CPP.keys() - {"tfloat32", "uint8"}))
            _one_of(f"{name}.layout", result.layout, layouts)
    _check_alignments(kernel)
    if modern:
        _check_sm90(kernel)
    else:
        _check_sm80(kernel)
    _check_tree(kernel)
    if kernel.family == "grouped":
        _check_grouped(kernel)
    if kernel.family == "convolution":
        _check_convolution(kernel)


def _check_mixed(kernel: Kernel) -> None:
    """Refuse operands that are not converted to each other."""
    _one_of("family", kernel.family, ("gemm",))
    _one_of("a.dtype", kernel.a.dtype, ("int8", "float8_e4m3fn", "float8_e5m2"))
    _one_of("b.dtype", kernel.b.dtype, ("float16", "bfloat16"))
    _one_of("a.layout", kernel.a.layout, ("row",))
    _one_of("scale", kernel.scale, ("", kernel.b.dtype))


def _check_alignments(kernel: Kernel) -> None:
    modern = kernel.arch == "sm_90a"
    for name, operand in (("a", kernel.a), ("b", kernel.b), ("c", kernel.c), ("d", kernel.d)):
        if operand is None:
            continue
        bits = operand.alignment * BITS[operand.dtype]
        if modern:
            if operand.alignment < 1 or bits % 128:
                raise Unsupported(
                    f"{name}.alignment={operand.alignment} of a CUTLASS kernel for sm_90a; allowed: multiples of "
                    f"{128 // BITS[operand.dtype]} elements, 16 bytes"
                )
        elif name in "ab" and kernel.stages != 2:
            # cp.async copies 4, 8 or 16 bytes; two stages go through registers.
            _one_of(f"{name}.alignment", operand.alignment, tuple(n // BITS[operand.dtype] for n in (32, 64, 128)
                                                                  if n >= BITS[operand.dtype]))  # fmt: skip
        elif operand.alignment < 1 or operand.alignment & (operand.alignment - 1):
            raise Unsupported(f"{name}.alignment={operand.alignment} of a CUTLASS kernel; allowed: powers of two")


def _check_sm90(kernel: Kernel) -> None:
    _one_of("schedule", kernel.schedule, ("cooperative", "pingpong"))
    _one_of(
        "decomposition", kernel.decomposition, ("tiles", "stream_k") if kernel.schedule == "cooperative" else ("tiles",)
    )
    m, n, k = kernel.tile
    _one_of("tile[0]", m, (128, 256) if kernel.schedule == "cooperative" else (64, 128))
    _one_of("tile[1]", n, (16, 32, 64, 128, 256))
    line = 1024 // BITS[(kernel.b if kernel.mixed else kernel.a).dtype]
    _one_of("tile[2]", k, (line // 2, line, 2 * line))
    _one_of("cluster", kernel.cluster, ((1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1)))
    if BITS[kernel.a.dtype] != 16 and not kernel.mixed:  # other types have no transposed form of wgmma
        _one_of("a.layout", kernel.a.layout, ("row",))
        _one_of("b.layout", kernel.b.layout, ("column",))
    if kernel.fast_accumulation and not kernel.a.dtype.startswith("float8"):
        raise Unsupported(f"fast_accumulation=True with {kernel.a.dtype} of a CUTLASS kernel; allowed: float8 dtypes")


def _check_sm80(kernel: Kernel) -> None:
    _one_of("schedule", kernel.schedule, ("multistage",))
    _one_of("decomposition", kernel.decomposition, ("tiles", "stream_k"))
    _one_of("cluster", kernel.cluster, ((1, 1, 1),))
    _one_of("swizzle", kernel.swizzle, (1, 2, 4, 8))
    _one_of("fast_accumulation", kernel.fast_accumulation, (False,))
    if kernel.a.dtype == "int8":
        _one_of("a.layout", kernel.a.layout, ("row",))
        _one_of("b.layout", kernel.b.layout, ("column",))
    fewest = 3 if kernel.family == "convolution" else 2
    if kernel.stages and not fewest <= kernel.stages <= 8:
        raise Unsupported(f"stages={kernel.stages} of a CUTLASS kernel for sm_80; allowed: 0, {fewest} to 8")
    m, n, k = kernel.tile
    _one_of("tile[0]", m, (32, 64, 128, 256))
    _one_of("tile[1]", n, (32, 64, 128, 256))
    _one_of("tile[2]", k, (8, 16, 32, 64, 128))


def _check_grouped(kernel: Kernel) -> None:
    """Refuse what groups of rows cannot have."""
    _one_of("a.layout", kernel.a.layout, ("row",))
    _one_of("decomposition", kernel.decomposition, ("tiles",))
    _one_of("offsets", kernel.offsets, ("int32", "int64"))
    for node in walk(kernel.tree):
        if node.op == "tensor" or node.op in _STORES:
            raise Unsupported(
                f"node {node.op!r} named {node.name!r} of a grouped product's epilogue; allowed: 'source'"
            )


def _check_convolution(kernel: Kernel) -> None:
    """Refuse what convolutions cannot have."""
    _one_of("arch", kernel.arch, ("sm_80",))
    _one_of("operation", kernel.operation, ("forward", "data_gradient", "filter_gradient"))
    _one_of("spatial", kernel.spatial, (2, 3))
    _one_of("decomposition", kernel.decomposition, ("tiles",))
    if kernel.operation == "data_gradient" and not kernel.unit_strides:
        _one_of("spatial of a data gradient with strides", kernel.spatial, (3,))
    if kernel.spatial == 3:
        for name, operand in (("a", kernel.a), ("b", kernel.b)):
            whole = 1 if operand.dtype == "float64" else 128 // BITS[operand.dtype]  # which is loaded singly
            _one_of(f"{name}.alignment", operand.alignment, (whole,))
    if kernel.a.dtype == "int8":
        _one_of("operation", kernel.operation, ("forward",))


def _check_tree(kernel: Kernel) -> None:
    """Refuse nodes that are unknown, or lack an attribute."""
    names: dict[str, Node] = {}
    for node in walk(kernel.tree):
        where = f"node {node.op!r}" + (f" named {node.name!r}" if node.name else "")
        wanted = FUNCTORS.get(node.op, 1 if node.op in _STORES else 0 if node.op in _LEAVES else None)
        if node.op != "function" and wanted is None:
            raise Unsupported(
                f"{where} of an epilogue; allowed: {', '.join((*_LEAVES, *_STORES, 'function', *FUNCTORS))}"
            )
        if wanted is not None and len(node.args) != wanted:
            raise Unsupported(f"{where} of an epilogue has {len(node.args)} arguments; allowed: {wanted}")
        if node.op == "source" and kernel.c is None:
            raise Unsupported(f"{where} of an epilogue without the operand c")
        if node.op.startswith("reduce_"):
            _one_of(f"value of {where}", node.value, REDUCTIONS)
            _one_of(f"dtype of {where}", node.dtype, (kernel.compute,) if node.value == "add" else ("float32",))
        if node.op == "scalar":
            _one_of(f"value of {where}", node.value, ("host", "pointer"))
            _one_of(f"dtype of {where}", node.dtype, (kernel.compute,))
        if node.op in ("row", "column", "tensor", "aux_store"):
            _one_of(f"dtype of {where}", node.dtype, tuple(CPP.keys() - {"tfloat32", "uint8"}))
        if node.name and names.setdefault(node.name, node) != node and node.op != "function":
            raise Unsupported(f"two different nodes of an epilogue are named {node.name!r}")
    if kernel.c is not None and not any(node.op == "source" for node in walk(kernel.tree)):
        raise Unsupported("c of a CUTLASS kernel whose epilogue has no node 'source'; allowed: None")
