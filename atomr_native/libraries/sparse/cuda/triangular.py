"""Solves with a sparse triangle as a CUDA kernel, without an analysis of the pattern.

Each thread takes the next element of X, by rows, and waits for the elements that its row names (`awaited`).  Nothing
is kept of a pattern, so nothing can be stale, no lane waits, and new values cost nothing.  A row is added up in one
order, so equal messages give equal bits.
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
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import SolveAttributes
from ..batches import split
from .arithmetic import FUNCTIONS
from .awaited import GROUP, TAKEN_BLOCKS, awaited, turn_bytes

__all__ = ["build_solve"]

_SOURCE: Final = Template("""\
KERNEL blank(elem *out, u64 *turn) {
  AWAIT_LAUNCH();
  turn += blockIdx.y;
  $out_advance
  if (thread_index() == 0) *turn = 0;
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    clear(out + t / $k * $out_row + t % $k * $out_column);
  }
}
KERNEL solve(const elem *values, const $I *indices, const $I *offsets, const elem *b, elem *out, u64 *turn, $scalars) {
  AWAIT_LAUNCH();
  turn += blockIdx.y;
  $out_advance $advance
  SHARED u64 taken[1];
  for (;;) {
    if (threadIdx.x == 0) taken[0] = TAKE(turn);
    SYNC();
    const u64 first_item = taken[0] * $group, item = first_item + threadIdx.x;
    SYNC();
    if (first_item >= $total) return;
    const long long number = (long long)(item / $k), row = $forward ? number : $n - 1 - number;
    const u64 column = item % $k;
    bool working = item < $total;
    long long e = working ? (long long)offsets[row] : 0, end = working ? (long long)offsets[row + 1] : 0;
    if (e < 0) e = 0;
    if (end > $nnz) end = $nnz;
    elem sum = ZERO, diagonal = ZERO;
    while (working) { /* a thread that waits lets others of its warp go on */
      if (e < end) {
        const long long c = indices[e];
        const bool needed = $forward ? (c >= 0 && c < row) : (c > row && c < $n);
        elem x = ZERO;
        if (!needed || there(out + c * $out_row + column * $out_column, &x)) {
          const elem a = $element;
          if (needed) sum = ADD(sum, MUL(a, x));
          else if (c == row) diagonal = ADD(diagonal, a);
          e++;
        }
      } else {
        const elem rest = SUB(MUL($alpha, b[row * $b_row + column * $b_column]), sum);
        put(out + row * $out_row + column * $out_column, $unit ? rest : DIV(rest, diagonal));
        working = false;
      }
    }
  }
}
""")


def build_solve(spec: PlanSpec[SolveAttributes], context: CudaContext) -> Built:
    """Build ``sparse.solve``: operands ``values, indices, offsets, b, out``.  Waits for the compiler."""
    how = spec.attributes
    spec, batch = split(spec)
    values, indices, _, b, out = spec.operands
    columns = b.shape[1] if len(b.shape) == 2 else 1
    total = how.n * columns
    if total == 0 or batch.count == 0:
        return Built("noop")
    size = as_dtype(out.dtype).itemsize
    is_complex = how.dtype.startswith("complex")
    steps = [(o.strides[0] // size, o.strides[1] // size if len(o.shape) == 2 else 0) for o in (b, out)]
    text = awaited(how.dtype) + _SOURCE.substitute(
        I=STORAGE[indices.dtype],
        advance=batch.advance(values="values", b="b"), out_advance=batch.advance(out="out"),
        n=f"{how.n}ll", nnz=f"{values.shape[0]}ll", k=f"{columns}ull", total=f"{total}ull", group=f"{GROUP}ull",
        forward=int(how.lower != how.trans),
        unit=int(how.unit),
        element="CONJ(values[e])" if how.conj else "values[e]",
        scalars="double alpha_re, double alpha_im" if is_complex else "double alpha_re",
        alpha="FACTOR(alpha_re, alpha_im)" if is_complex else "FACTOR(alpha_re, 0)",
        b_row=f"{steps[0][0]}ll", b_column=f"{steps[0][1]}ll",
        out_row=f"{steps[1][0]}ll", out_column=f"{steps[1][1]}ll",
    )  # fmt: skip
    blocks = context.target.sm_count * TAKEN_BLOCKS
    blank = Launch(
        "blank", (max(1, min(-(-total // THREADS), blocks)), batch.count, 1), (THREADS, 1, 1), 0,
        (("operand", 4), ("workspace", 0)),
    )  # fmt: skip
    every: list[Argument] = [*(("operand", i) for i in range(5)), ("workspace", 0)]
    every += [("float64", j) for j in range(1 + is_complex)]
    solve = Launch("solve", (max(1, min(-(-total // GROUP), blocks)), batch.count, 1), (GROUP, 1, 1), 0, tuple(every))
    made = kernels(
        text, [blank, solve], context.target, dtypes={how.dtype, indices.dtype},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS, workspace=turn_bytes(batch.count),
    )  # fmt: skip
    return replace(made, notes=("solved by a kernel that needs no analysis of the pattern",))
