"""Incomplete factorizations as a CUDA kernel, without an analysis of the pattern.

Each thread takes the next stored element and waits for those before it that its sum has (`awaited`).  Nothing is kept
of a pattern.  A sum is in one order, so equal messages give equal bits.
"""

from __future__ import annotations

from dataclasses import replace
from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....plans.spec import PlanSpec
from ..attributes import FactorAttributes
from ..batches import split
from .arithmetic import FUNCTIONS
from .awaited import GROUP, TAKEN_BLOCKS, awaited, turn_bytes

__all__ = ["build_factors"]

_SOURCE: Final = Template("""\
/* The last row that does not begin behind an element. */
DEVICE long long row_of(const $I *offsets, long long e) {
  long long low = 0, high = $n;
  while (high - low > 1) {
    const long long middle = low + (high - low) / 2;
    if ((long long)offsets[middle] <= e) low = middle; else high = middle;
  }
  return low;
}
/* The place of a column in a row, among the elements before `behind`; -1 if it is not stored. */
DEVICE long long place_of(const $I *indices, const $I *offsets, long long row, long long column, long long behind) {
  long long low = offsets[row], high = offsets[row + 1];
  if (low < 0) low = 0;
  if (high > behind) high = behind;
  const long long end = high;
  while (low < high) {
    const long long middle = low + (high - low) / 2;
    if ((long long)indices[middle] < column) low = middle + 1; else high = middle;
  }
  return low < end && (long long)indices[low] == column ? low : -1;
}
KERNEL blank(const $I *indices, const $I *offsets, elem *out, u64 *turn) {
  AWAIT_LAUNCH();
  turn += blockIdx.y;
  $out_advance
  if (thread_index() == 0) *turn = 0;
  for (u64 e = thread_index(); e < $nnz; e += thread_count()) {
    if ($cholesky && (long long)indices[e] > row_of(offsets, (long long)e)) out[e] = ZERO;
    else clear(out + e);
  }
}
KERNEL factor(const elem *values, const $I *indices, const $I *offsets, elem *out, u64 *turn) {
  AWAIT_LAUNCH();
  turn += blockIdx.y;
  $out_advance $advance
  SHARED u64 taken[1];
  for (;;) {
    if (threadIdx.x == 0) taken[0] = TAKE(turn);
    SYNC();
    const u64 first_item = taken[0] * $group;
    const long long e = (long long)(first_item + threadIdx.x);
    SYNC();
    if (first_item >= $nnz) return;
    bool working = e < (long long)$nnz, bad = false;
    const long long row = working ? row_of(offsets, e) : 0, column = working ? (long long)indices[e] : 0;
    const long long end = working ? (long long)offsets[row + 1] : 0;
    long long p = working ? (long long)offsets[row] : 0, q = -2;
    if (p < 0) p = 0;
    if (working) {
      bad = e >= end || column < 0 || column >= $n || (e > p && (long long)indices[e - 1] >= column);
      if ($cholesky && column == row) /* nothing of the sum has the order of the rest of the row */
        for (long long r = e + 1; r < end && r < (long long)$nnz; r++) bad = bad || indices[r - 1] >= indices[r];
      if ($cholesky && column > row) working = false; /* the element below writes it */
    }
    const long long limit = row < column ? row : column;
    elem sum = working ? values[e] : ZERO;
    while (working) { /* a thread that waits lets others of its warp go on */
      if (bad) {
        put(out + e, NOT_A_NUMBER);
        working = false;
      } else if (p < e && (long long)indices[p] < limit) {
        const long long k = indices[p];
        if (q == -2) q = k < 0 ? -1 : $partner;
        elem l = ZERO, u = ZERO;
        if (q < 0) p++, q = -2;
        else if (there(out + p, &l) && there(out + q, &u)) {
          sum = SUB(sum, MUL(l, $right));
          p++, q = -2;
        }
      } else if (column < row) {
        if (q == -2) q = place_of(indices, offsets, column, column, e);
        elem pivot = ZERO;
        if (q < 0 || there(out + q, &pivot)) {
          const elem found = DIV(sum, pivot);
          put(out + e, found);
          $mirror
          working = false;
        }
      } else {
        put(out + e, $diagonal);
        working = false;
      }
    }
  }
}
""")
_MIRROR: Final = """\
const long long above = place_of(indices, offsets, column, row, (long long)$nnz);
          if (above >= 0) put(out + above, CONJ(found));"""
_NAN: Final = {
    "float32": "bits_float(0x7fc00000u)",
    "float64": "__longlong_as_double(0x7ff8000000000000ll)",
}


def build_factors(spec: PlanSpec[FactorAttributes], context: CudaContext) -> Built:
    """Build ``sparse.ilu0`` or ``sparse.ic0``: operands ``values, indices, offsets, out``.  Waits for the compiler."""
    how = spec.attributes
    spec, batch = split(spec)
    nnz = spec.operands[0].shape[0]
    if not nnz or not how.n or not batch.count:
        return Built("noop")
    cholesky, is_complex = spec.op == "sparse.ic0", how.dtype.startswith("complex")
    single = how.dtype in ("float32", "complex64")
    nan, root = _NAN["float32" if single else "float64"], "sqrtf" if single else "sqrt"
    make = f"make_{STORAGE[how.dtype]}"
    diagonal = (f"{make}({root}(sum.re), 0)" if is_complex else f"{root}(sum)") if cholesky else "sum"
    count = f"{nnz}ull"
    text = f"{awaited(how.dtype)}#define NOT_A_NUMBER {f'{make}({nan}, {nan})' if is_complex else nan}\n"
    text += _SOURCE.substitute(
        I=STORAGE[spec.operands[1].dtype], n=f"{how.n}ll", nnz=count, group=f"{GROUP}ull",
        cholesky=int(cholesky), advance=batch.advance(values="values"), out_advance=batch.advance(out="out"),
        partner=f"place_of(indices, offsets, {'column, k' if cholesky else 'k, column'}, e)",
        right="CONJ(u)" if cholesky else "u",
        mirror=Template(_MIRROR).substitute(nnz=count) if cholesky else "",
        diagonal=f"column == row ? {diagonal} : sum",
    )  # fmt: skip
    blocks = context.target.sm_count * TAKEN_BLOCKS
    turn: Argument = ("workspace", 0)
    operands: list[Argument] = [("operand", i) for i in range(4)]
    wide, narrow = (max(1, min(-(-nnz // threads), blocks)) for threads in (THREADS, GROUP))
    launches = [
        Launch("blank", (wide, batch.count, 1), (THREADS, 1, 1), 0, (*operands[1:], turn)),
        Launch("factor", (narrow, batch.count, 1), (GROUP, 1, 1), 0, (*operands, turn)),
    ]
    made = kernels(
        text, launches, context.target, dtypes={o.dtype for o in spec.operands},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS, workspace=turn_bytes(batch.count),
    )  # fmt: skip
    return replace(made, notes=("factored by a kernel that needs no analysis of the pattern",))
