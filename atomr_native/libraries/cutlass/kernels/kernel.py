"""Descriptions of CUTLASS kernels: everything that decides their source, and nothing that a message decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .types import BITS

__all__ = ["FUNCTORS", "REDUCTIONS", "Kernel", "Node", "Operand", "walk"]

#: Functors of an epilogue, by name: the number of their arguments.
FUNCTORS: Final = {
    "identity": 1, "neg": 1, "abs": 1, "sqrt": 1, "exp": 1, "relu": 1, "gelu": 1, "gelu_tanh": 1, "silu": 1,
    "sigmoid": 1, "tanh": 1, "hardswish": 1,
    "add": 2, "sub": 2, "mul": 2, "div": 2, "max": 2, "min": 2,
    "fma": 3, "clamp": 3,
}  # fmt: skip
#: Reductions of an epilogue, by name.
REDUCTIONS: Final = ("add", "max")


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix of a kernel.

    Attributes
    ----------
    dtype : str
        ``"tfloat32"`` is float32 in memory, rounded to TF32 by the tensor cores.
    layout : {"row", "column"}
        The contiguous direction: along a row, or along a column.
    alignment : int
        Elements of which its address, its leading dimension and its batch stride are multiples.
    """

    dtype: str
    layout: str
    alignment: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an epilogue visitor tree.

    Attributes
    ----------
    op : str
        ``"acc"``, the accumulator; ``"source"``, the matrix C; ``"scalar"``; ``"row"``, a vector of N elements;
        ``"column"``, a vector of M elements; ``"tensor"``, a further M x N matrix; ``"aux_store"``, which stores its
        argument as an M x N matrix, and ``"reduce_row"``, ``"reduce_column"`` and ``"reduce_scalar"``, which reduce
        theirs to N elements, M elements or one: these four pass their argument on; ``"function"``, a Python function;
        or a functor of `FUNCTORS`.
    args : tuple of Node
    dtype : str
        Type in memory of an array, and of a scalar.
    name : str
        Name of an array, a scalar, or the symbol of a function: ``[a-z][a-z0-9_]*``.
    value : str
        Of a scalar, ``"host"`` or ``"pointer"``: where its value is.  Of a reduction, one of `REDUCTIONS`.
    alignment : int
        Of a matrix or a vector, as in `Operand`.
    """

    op: str
    args: tuple[Node, ...] = ()
    dtype: str = ""
    name: str = ""
    value: str = ""
    alignment: int = 1


def walk(node: Node) -> Iterator[Node]:
    """Yield the nodes of a tree, arguments before their function."""
    for one in node.args:
        yield from walk(one)
    yield node


@dataclass(frozen=True, slots=True)
class Kernel:
    """A CUTLASS kernel.

    Attributes
    ----------
    family : {"gemm", "grouped", "convolution"}
    arch : {"sm_80", "sm_90a"}
        Generation of its templates: multistage pipelines of ``cp.async``, or warp-specialised ones of TMA.
    a, b, d : Operand
        A is M x K, B is K x N, and D is M x N, along rows.  A may have smaller elements than B, of 16 bits, to which
        they are converted: then D, and all other M x N matrices, lie along columns.
    c : Operand or None
        The matrix of the tree's node ``"source"``.
    accumulator : str
    tile : tuple of int
        M, N and K of a thread block, or of a cluster's block.
    tree : Node
        The epilogue; its root's value becomes D.
    cluster : tuple of int
    schedule : {"cooperative", "pingpong", "multistage"}
    decomposition : {"tiles", "stream_k"}
        How the blocks share the product; parameters say whether those of ``"stream_k"`` share each tile evenly.
    stages : int
        Of the pipeline; 0 for the most that fit.
    warps : tuple of int
        M, N and K of a warp, for ``sm_80``; empty for the default.
    swizzle : int
        Blocks that neighbour each other along N before the next row of blocks begins, for ``sm_80``.
    fast_accumulation : bool
        Float8 products are summed in the tensor cores' own precision.
    operation : {"forward", "data_gradient", "filter_gradient"}
        Of a convolution.
    spatial : {2, 3}
        Dimensions of a convolution.
    unit_strides : bool
        Whether a convolution's strides are 1; only its data gradient differs by that.
    offsets : {"int32", "int64"}
        Dtype of the ends of groups.
    scale : str
        Dtype of factors for groups of K neighbours in the rows of A, a matrix of M by groups along columns; empty
        without them.
    """

    family: str
    arch: str
    a: Operand
    b: Operand
    c: Operand | None
    d: Operand
    accumulator: str
    tile: tuple[int, int, int]
    tree: Node
    cluster: tuple[int, int, int] = (1, 1, 1)
    schedule: str = "cooperative"
    decomposition: str = "tiles"
    stages: int = 0
    warps: tuple[int, ...] = ()
    swizzle: int = 1
    fast_accumulation: bool = False
    operation: str = "forward"
    spatial: int = 2
    unit_strides: bool = True
    offsets: str = "int32"
    scale: str = ""

    @property
    def compute(self) -> str:
        """Type of the epilogue's arithmetic."""
        return "float64" if self.accumulator == "float64" else "float32"

    @property
    def mixed(self) -> bool:
        """Whether elements of A are converted to those of B."""
        return self.arch == "sm_90a" and BITS[self.a.dtype] < BITS[self.b.dtype]
