"""Products of float32 by cuBLASLt, as cuDNN rounds their factors to TF32."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...._lib import cublaslt
from ...._lib.cublaslt import CONSTANTS, Matmul
from ....builders.cuda.context import library_file
from ....builders.cuda.product import ProductDescription
from ....builders.cuda.sequence import Source
from ....errors import Unsupported
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..attributes import GraphAttributes, TensorSpec

__all__ = ["FACTORS", "Matrix", "matrix_of", "product_run"]

#: The bits of alpha = 1 and beta = 0.
FACTORS: Final[tuple[Source, ...]] = (("constant", 0x3FF0000000000000), ("constant", 0))
#: cuBLASLt counts extents and batches in 32 bits.
_LARGEST: Final = 2**31 - 1


class Matrix(NamedTuple):
    """Matrices in memory, the last two axes of a tensor.

    Attributes
    ----------
    by_rows : bool
        Whether rows are dense, not columns.
    leading : int
        Elements from one row, or column, to the next.
    step : int
        Elements from one matrix of the batch to the next.
    batch : int
    """

    by_rows: bool
    leading: int
    step: int
    batch: int


def matrix_of(tensor: TensorSpec) -> Matrix | None:
    """Return how the matrices of a tensor lie, or None if cuBLASLt does not take them so."""
    *outer, m, n = tensor.shape
    *steps, row, column = tensor.strides
    step, batch = 0, 1
    for extent, stride in zip(reversed(outer), reversed(steps), strict=True):
        if extent == 1:
            continue
        if batch > 1 and stride != step * batch:
            return None
        step, batch = (stride, extent) if batch == 1 else (step, batch * extent)
    for by_rows, (inner, dense), (count, leading) in (
        (True, (n, column), (m, row)),
        (False, (m, row), (n, column)),
    ):
        if (inner == 1 or dense == 1) and (count == 1 or leading >= inner):
            return Matrix(by_rows, leading if count > 1 else inner, step, batch)
    return None


def product_run(graph: GraphAttributes, backend: Any, limit: int) -> Matmul:
    """Return the native run of the graph of one matmul, whose scalars are `FACTORS`.

    Its result is dense, and it uses at most `limit` bytes of workspace.

    Raises
    ------
    Unsupported
        For extents beyond 32 bits.
    """
    ports = dict(graph.nodes[0].ports)
    a, b, c = (graph.tensors[ports[port]] for port in "abc")
    left, right, result = (matrix_of(tensor) for tensor in (a, b, c))
    (m, k), n = a.shape[-2:], b.shape[-1]
    if left is None or right is None or result is None or max(m, n, k, result.batch) > _LARGEST:
        raise Unsupported(
            f"a product of shapes {a.shape} and {b.shape}; cuBLASLt counts in 32 bits", lifted_by=("shape",)
        )
    cublaslt.load(library_file("cublasLt"))
    plain, turned = CONSTANTS["CUBLAS_OP_N"], CONSTANTS["CUBLAS_OP_T"]
    columns, real = CONSTANTS["CUBLASLT_ORDER_COL"], CONSTANTS["CUDA_R_32F"]
    # To cuBLASLt, whose matrices have dense columns, this is the transposed product of the transposed factors.
    description = ProductDescription(
        m=n,
        n=m,
        k=k,
        batch=result.batch,
        type_a=real,
        type_b=real,
        type_c=real,
        type_d=real,
        compute=CONSTANTS["CUBLAS_COMPUTE_32F"],
        scale=real,
        trans_a=plain if right.by_rows else turned,
        trans_b=plain if left.by_rows else turned,
        order_a=columns,
        order_b=columns,
        ld_a=right.leading,
        ld_b=left.leading,
        ld_c=result.leading,
        ld_d=result.leading,
        step_a=right.step,
        step_b=left.step,
        step_c=result.step,
        step_d=result.step,
        epilogue=CONSTANTS["CUBLASLT_EPILOGUE_DEFAULT"],
        reduced_precision=1,
        a=b.operand,
        b=a.operand,
        c=-1,
        d=c.operand,
        alpha_imag=-1,
        beta_imag=-1,
        n_operands=1 + max(tensor.operand for tensor in (a, b, c)),
        n_scalars=2,
        workspace_bytes=min(limit, PREFERRED_WORKSPACE),
    )
    return Matmul(backend, description)
