"""From a plan specification of a sparse product to a call of cuSPARSE, or to a kernel of our own.

The library gets products of CSR and COO with vectors, and sampled products; CSC is the CSR of the transpose.  Kernels
compute products with matrices, what must be deterministic, and what the library does not take.  cuSPARSE 12.6.3 is not
called for products with matrices: a stencil of 2 million rows times 8 columns ended with an internal error, and a small
matrix with an illegal address.  Nor for more than 2**31 - 1 stored elements, where a product with a vector ended with
an internal error on an H200.
"""

from __future__ import annotations

import math
from typing import Any, Final

from msgspec.structs import replace

from ...._lib import cusparse
from ...._lib.cusparse import CONSTANTS, SparseProduct
from ....builders.context import Built
from ....builders.cuda.codegen import MapOperand, alignment, kernels, map_kernel
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.sequence import SequenceProgram, Step
from ....builders.cuda.workspace import beyond_limit
from ....dtypes import as_dtype
from ....errors import Unsupported
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import ProductAttributes
from ..batches import split
from ..padded import PADDED
from .native import SparseCall
from .padded import build_padded
from .rows import build_rows, build_sampled
from .scatter import build_scatter
from .short_rows import build_short_rows, takes

__all__ = ["build_product", "sparse_call"]

#: The most stored elements of a matrix that the library gets.
_MOST: Final = 2**31 - 1
_TYPES: Final = {
    "int8": "R_8I", "int32": "R_32I", "float16": "R_16F", "bfloat16": "R_16BF", "float32": "R_32F",
    "float64": "R_64F", "complex64": "C_32F", "complex128": "C_64F",
}  # fmt: skip


def _type(dtype: str) -> int:
    return CONSTANTS[f"CUDA_{_TYPES[dtype]}"]


def _dense(operand: OperandSpec) -> tuple[tuple[int, int], int, int] | None:
    """Return extents, leading dimension and order of a matrix, or of a vector; None if no axis is dense."""
    size = as_dtype(operand.dtype).itemsize
    if len(operand.shape) == 1:
        dense = operand.shape[0] < 2 or operand.strides[0] == size
        return ((operand.shape[0], 1), 1, CONSTANTS["CUSPARSE_ORDER_COL"]) if dense else None
    (rows, columns), (row, column) = operand.shape, (s // size for s in operand.strides)
    if (columns < 2 or column == 1) and (rows < 2 or row >= max(columns, 1)):
        return (rows, columns), row if rows > 1 else max(columns, 1), CONSTANTS["CUSPARSE_ORDER_ROW"]
    if (rows < 2 or row == 1) and (columns < 2 or column >= max(rows, 1)):
        return (rows, columns), column if columns > 1 else max(rows, 1), CONSTANTS["CUSPARSE_ORDER_COL"]
    return None


def _turned(dense: tuple[tuple[int, int], int, int]) -> tuple[tuple[int, int], int, int]:
    (rows, columns), step, order = dense
    other = "ROW" if order == CONSTANTS["CUSPARSE_ORDER_COL"] else "COL"
    return (columns, rows), step, CONSTANTS[f"CUSPARSE_ORDER_{other}"]


def sparse_call(spec: PlanSpec[ProductAttributes]) -> SparseCall | None:
    """Return the call of cuSPARSE for a product with a vector or a sampled product, or None if it does not take it."""
    how, routine = spec.attributes, spec.op.removeprefix("sparse.")
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    by_name = {operand.name: operand for operand in spec.operands}
    values = by_name["values"]
    flipped = how.format == "csc"
    transposed = how.trans != flipped
    sampled = routine == "sddmm"
    names = ("x", "y") if sampled else ("x", "out")
    found = [_dense(by_name[name]) for name in names]
    refused = (
        how.format == "bsr"
        or (how.conj and not transposed and how.compute.startswith("complex"))
        or (sampled and how.format == "coo")
    )
    crowded = values.shape[0] > min(how.shape[0] * how.shape[1], _MOST)  # with duplicates, or too many
    if refused or crowded or found[0] is None or found[1] is None:
        return None
    first, second = found[0], found[1]
    places = [at[name] for name in names]
    if sampled and flipped:
        first, second, places = _turned(second), _turned(first), places[::-1]
    rows, columns = how.shape[::-1] if flipped else how.shape
    whole = how.compute.startswith("complex")  # others have no conjugates there
    op = (
        ("CONJUGATE_TRANSPOSE" if how.conj and whole else "TRANSPOSE")
        if transposed and not sampled
        else "NON_TRANSPOSE"
    )
    nothing = ((0, 0), 0, 0)
    dense = (first, nothing, second) if sampled else (first, second, nothing)
    count = len(spec.scalars)
    wide = by_name["indices"].dtype == "int64"
    return SparseCall(
        routine=CONSTANTS[f"ATOMR_SPARSE_{routine.upper()}"],
        format=CONSTANTS["ATOMR_SPARSE_COO" if how.format == "coo" else "ATOMR_SPARSE_CSR"],
        rows=rows, columns=columns, nnz=values.shape[0],
        index_type=CONSTANTS["CUSPARSE_INDEX_64I" if wide else "CUSPARSE_INDEX_32I"],
        value_type=_type(values.dtype), dense_type=_type(by_name["x"].dtype), out_type=_type(by_name["out"].dtype),
        compute_type=_type(how.compute),
        op_a=CONSTANTS[f"CUSPARSE_OPERATION_{op}"],
        algorithm=CONSTANTS[f"CUSPARSE_{routine.upper()}_ALG_DEFAULT"],
        values=at["out"] if sampled else at["values"],
        offsets=at["rows" if how.format == "coo" else "offsets"], indices=at["indices"],
        x=places[0], y=-1 if sampled else places[1], z=places[1] if sampled else -1,
        extent=tuple(n for one in dense for n in one[0]), step=tuple(one[1] for one in dense),
        order=tuple(one[2] for one in dense),
        factor=(0, 1, 2, 3) if count == 4 else (0, 1, -1, -1) if count else (-1, -1, -1, -1),
        factor_at=(at["alpha_at"], at["beta_at"]) if how.factors else (-1, -1),
        n_operands=len(spec.operands), n_scalars=count,
    )  # fmt: skip


def _copy_values(spec: PlanSpec[ProductAttributes], context: CudaContext) -> Any:
    """Return the kernel that copies the values to out, where the library updates them."""
    values, out = (next(o for o in spec.operands if o.name == name) for name in ("values", "out"))
    operands = [
        MapOperand(0, values.dtype, (1,), reads=True, writes=False),
        MapOperand(1, out.dtype, (1,), reads=False, writes=True),
    ]
    text, launch = map_kernel(values.shape, operands, (), (), ("y1 = x0;",), context.target)
    return kernels(
        text, [launch], context.target, dtypes={values.dtype}, alignments=[alignment(values.dtype)] * 2
    ).run  # fmt: skip


def build_product(spec: PlanSpec[ProductAttributes], context: CudaContext) -> Built:
    """Build ``sparse.spmv``, ``sparse.spmm`` or ``sparse.sddmm``; waits for the compiler where it is a kernel.

    Raises
    ------
    Unsupported
        Without cuSPARSE, where it computes the product; for a product whose sums are scattered, if it must be
        deterministic or is of BSR, or needs more workspace than the limit.
    """
    if context.deterministic:
        spec = replace(spec, attributes=replace(spec.attributes, deterministic=True))
    if math.prod(spec.operands[-1].shape) == 0:
        return Built("noop")
    if spec.attributes.format in PADDED:
        return build_padded(spec, context)
    single, batch = split(spec)
    how, routine = spec.attributes, spec.op.removeprefix("sparse.")
    by_name = {operand.name: operand for operand in single.operands}
    out = by_name["out"]
    if routine == "sddmm":
        call = sparse_call(spec) if how.batch is None and by_name["x"].shape[1] else None
        dense = out.shape[0] < 2 or out.strides[0] == as_dtype(out.dtype).itemsize
        return _native(spec, context, call) if call is not None and dense else build_sampled(single, context, batch)
    if 0 in by_name["values"].shape or by_name["x"].shape[0] == 0:
        return build_rows(single, context, empty=True, batch=batch)
    together = how.trans == (how.format == "csc")  # the elements of a row of op(A)
    if how.deterministic and not together:
        other = {"csr": "csc", "csc": "csr"}.get(how.format, "csr")
        raise Unsupported(
            f"{spec.op} of {how.format} with trans={how.trans} adds in an order that varies; with deterministic=True "
            f"store A as {other} (device.sparse.convert)",
            rule="sparse.deterministic",
            lifted_by=("format",),
        )
    if takes(spec):
        return build_short_rows(spec, context)
    call = sparse_call(spec) if routine == "spmv" and how.batch is None and not how.deterministic else None
    if call is not None:
        return _native(spec, context, call)
    if together:
        return build_rows(single, context, empty=False, batch=batch)
    if how.format != "bsr":
        return build_scatter(single, context, batch)
    raise Unsupported(
        f"{spec.op} of bsr with trans=True: convert A to csr", rule="sparse.layout", lifted_by=("format",)
    )


def _native(spec: PlanSpec[ProductAttributes], context: CudaContext, call: SparseCall) -> Built:
    cusparse.load(library_file("cusparse"))
    run = SparseProduct(context.backend, call)
    if run.workspace > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, run.workspace, context.workspace_limit)
    if spec.op != "sparse.sddmm" or not spec.attributes.adds:
        return Built(run, run.workspace)
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    copy = Step(_copy_values(spec, context), (("operand", at["values"]), ("operand", at["out"])))
    every = Step(
        run,
        tuple(("operand", i) for i in range(len(spec.operands))),
        tuple(("scalar", j) for j in range(len(spec.scalars))),
    )
    return Built(SequenceProgram((copy, every), run.workspace, ()), run.workspace)
