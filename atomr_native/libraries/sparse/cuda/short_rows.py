"""Products with a vector of matrices whose rows are all short, as those of stencils: a kernel of our own.

A block has some rows.  Its threads read the stored elements of all of them one after the other in memory, whichever
row they are of, and leave their products in shared memory; then a thread adds up each row, in its order.  So reads are
without gaps however short a row is, and results have equal bits.
"""

from __future__ import annotations

from dataclasses import replace
from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import ProductAttributes
from .arithmetic import FUNCTIONS, arithmetic
from .rows import factors, steps

__all__ = ["build_short_rows", "takes"]

#: The most stored elements of a row, and the fewest rows: fewer do not fill a GPU.
LONGEST: Final = 32
FEWEST: Final = 1024
#: The most elements that a thread reads, and bytes of shared memory for their products.
_EACH: Final = 16
_ROOM: Final = 32768

_SOURCE: Final = Template("""\
DEVICE elem old_of(const $O *out, u64 at) { const $O y = out[at]; return $old; }
DEVICE elem product_of($V v, $X w) { const elem a = $conj($load_v), b = $load_x; return MUL(a, b); }
KERNEL short_rows(const $V *values, const $I *indices, const $I *offsets, const $X *x, $O *out$parameters) {
  AWAIT_LAUNCH();
  SHARED elem products[$each * $threads];
  const elem alpha = $alpha, beta = $beta;
  const u64 first = (u64)blockIdx.x * $lines, row = first + threadIdx.x;
  const u64 behind = first + $lines < $rows ? first + $lines : $rows;
  const bool mine = threadIdx.x < $lines && row < $rows;
  long long begin = (long long)offsets[first], end = (long long)offsets[behind];
  long long from = mine ? (long long)offsets[row] : 0, to = mine ? (long long)offsets[row + 1] : 0;
  if (begin < 0) begin = 0;
  if (end > $nnz) end = $nnz;
  if (from < begin) from = begin;
  if (to > end) to = end;
  elem sum = ZERO;
  if (end - begin <= $each * $threads) {
    $I across[$each];
    $V kept[$each];
    for (int k = 0; k < $each; k++) {
      const long long e = begin + threadIdx.x + k * $threads;
      across[k] = e < end ? indices[e] : -1;
      if (e < end) kept[k] = values[e];
    }
    for (int k = 0; k < $each; k++)
      if (across[k] >= 0 && across[k] < $inner)
        products[threadIdx.x + k * $threads] = product_of(kept[k], x[(long long)across[k] * $x_row]);
      else products[threadIdx.x + k * $threads] = ZERO;
    SYNC();
    for (long long p = from; p < to; p++) sum = ADD(sum, products[p - begin]);
  } else { /* the offsets have been written since */
    for (long long p = from; p < to; p++) {
      const long long c = (long long)indices[p];
      if (c >= 0 && c < $inner) sum = ADD(sum, product_of(values[p], x[c * $x_row]));
    }
  }
  if (mine) {
    elem s = MUL(alpha, sum);
    $keeps
    out[row * $out_row] = $store;
  }
}
""")


def takes(spec: PlanSpec[ProductAttributes]) -> bool:
    """Whether the kernel computes a product: with a vector, of rows that lie together and are known to be short."""
    how = spec.attributes
    rows = spec.operands[-1].shape[0]
    return (
        spec.op == "sparse.spmv"
        and how.format in ("csr", "csc")
        and how.trans == (how.format == "csc")
        and how.batch is None
        and how.longest is not None
        and 0 < how.longest <= LONGEST
        and rows >= FEWEST
    )


def build_short_rows(spec: PlanSpec[ProductAttributes], context: CudaContext) -> Built:
    """Build ``sparse.spmv`` of a matrix with short rows; waits for the compiler."""
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    by_name = {operand.name: operand for operand in spec.operands}
    values, x, out = (by_name[name] for name in ("values", "x", "out"))
    longest = how.longest or 1
    each = min(longest, _EACH, _ROOM // THREADS // as_dtype(how.compute).itemsize)
    lines = min(THREADS, each * THREADS // longest)
    parameters, alpha, beta, arguments = factors(spec)
    keeps = "if (!IS_ZERO(beta)) s = ADD(s, MUL(beta, old_of(out, row * $at)));" if how.adds else ""
    out_row = f"{steps(out)[0]}ull"
    text = arithmetic(how.compute) + _SOURCE.substitute(
        V=STORAGE[values.dtype], I=STORAGE[by_name["indices"].dtype], X=STORAGE[x.dtype], O=STORAGE[out.dtype],
        old=convert(out.dtype, how.compute, "y"), conj="CONJ" if how.conj else "",
        load_v=convert(values.dtype, how.compute, "v"), load_x=convert(x.dtype, how.compute, "w"),
        parameters=parameters, alpha=alpha, beta=beta, each=each, threads=THREADS, lines=f"{lines}ull",
        rows=f"{out.shape[0]}ull", nnz=f"{values.shape[0]}ll", inner=f"{x.shape[0]}ll", x_row=f"{steps(x)[0]}ll",
        out_row=out_row, keeps=keeps.replace("$at", out_row), store=convert(how.compute, out.dtype, "s"),
    )  # fmt: skip
    pointers: list[Argument] = [("operand", at[name]) for name in ("values", "indices", "offsets", "x", "out")]
    grid = (-(-out.shape[0] // lines), 1, 1)
    launch = Launch("short_rows", grid, (THREADS, 1, 1), 0, (*pointers, *arguments))
    made = kernels(
        text, [launch], context.target, dtypes={o.dtype for o in spec.operands} | {how.compute},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS,
    )  # fmt: skip
    return replace(made, notes=("computed by a kernel for short rows, some in a block",))
