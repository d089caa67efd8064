"""Solves with a sparse triangle as a CUDA kernel, without an analysis of the pattern.

Each warp takes the next row, and waits for the rows that its elements name.  These were taken before, by warps that
run.  Nothing is kept of a pattern, so nothing can be stale, no lane waits, and new values cost nothing.
A row is added up in one order, so equal messages give equal bits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from string import Template
from typing import Final, cast

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, KernelProgram, Launch
from ....builders.cuda.workspace import beyond_limit, padded
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import SolveAttributes
from .arithmetic import FUNCTIONS, arithmetic

__all__ = ["build_solve"]

#: Threads of a block, which is one warp: only those of other blocks are waited for.
_WARP: Final = 32
#: Blocks of a multiprocessor.
_BLOCKS: Final = 32

_SOURCE: Final = Template("""\
#if defined(__CUDA_ARCH__)
#define TAKE(p) atomicAdd(p, 1u)
#else
#define TAKE(p) ((*(p))++) /* blocks run one after the other */
#endif
/* Flags of rows, and in front of them the number of rows that are taken, for each chunk of columns. */
KERNEL clear(unsigned int *state, u64 n) {
  AWAIT_LAUNCH();
  for (u64 i = thread_index(); i < n; i += thread_count()) state[i] = 0;
}
DEVICE elem known(const volatile elem *x) { $read }
KERNEL solve(const elem *values, const $I *indices, const $I *offsets, const elem *b, elem *out, unsigned int *state,
             $scalars) {
  AWAIT_LAUNCH();
  SHARED unsigned int taken[1];
  SHARED elem parts[$warp], diagonals[$warp];
  const unsigned int lane = threadIdx.x;
  unsigned int *const turn = state + (u64)blockIdx.y * $lines;
  volatile unsigned int *const done = turn + 1;
  const u64 column = $chunks == 1 && $k == 1 ? 0 : (u64)blockIdx.y * $warp + lane;
  for (;;) {
    if (lane == 0) taken[0] = TAKE(turn);
    SYNC();
    const unsigned int number = taken[0];
    SYNC();
    if (number >= $n) return;
    const long long row = $forward ? (long long)number : (long long)$n - 1 - number;
    long long first = offsets[row], end = offsets[row + 1];
    if (first < 0) first = 0;
    if (end > $nnz) end = $nnz;
    elem sum = ZERO, diagonal = ZERO;
    for (long long e = first + ($split ? lane : 0); e < end; e += $split ? $warp : 1) {
      const long long c = indices[e];
      const elem a = $element;
      if (c == row) diagonal = ADD(diagonal, a);
      else if ($forward ? (c >= 0 && c < row) : (c > row && c < $n)) {
        while (!done[c]) {}
        WAITED();
        if ($split || column < $k) sum = ADD(sum, MUL(a, known(out + c * $out_row + column * $out_column)));
      }
    }
    if ($split) {
      parts[lane] = sum;
      diagonals[lane] = diagonal;
      SYNC();
      for (unsigned int half = $warp / 2; half; half /= 2) {
        if (lane < half) {
          parts[lane] = ADD(parts[lane], parts[lane + half]);
          diagonals[lane] = ADD(diagonals[lane], diagonals[lane + half]);
        }
        SYNC();
      }
      sum = parts[0];
      diagonal = diagonals[0];
    }
    if ($split ? lane == 0 : column < $k) {
      const elem rest = SUB(MUL($alpha, b[row * $b_row + column * $b_column]), sum);
      out[row * $out_row + column * $out_column] = $unit ? rest : DIV(rest, diagonal);
    }
    WAITED();
    SYNC();
    if (lane == 0) done[row] = 1;
    SYNC();
  }
}
""")
_FENCE: Final = """\
#if defined(__CUDA_ARCH__)
#define WAITED() __threadfence()
#else
#define WAITED() FENCE()
#endif
"""


def build_solve(spec: PlanSpec[SolveAttributes], context: CudaContext) -> Built:
    """Build ``sparse.solve``: operands ``values, indices, offsets, b, out``.  Waits for the compiler."""
    how = spec.attributes
    values, indices, _, b, out = spec.operands
    columns = b.shape[1] if len(b.shape) == 2 else 1
    if how.n == 0 or columns == 0:
        return Built("noop")
    size = as_dtype(out.dtype).itemsize
    split = columns == 1
    chunks = 1 if split else -(-columns // _WARP)
    state = padded(4 * chunks * (how.n + 1))
    if state > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, state, context.workspace_limit)
    is_complex = how.dtype.startswith("complex")
    steps = [(o.strides[0] // size, o.strides[1] // size if len(o.shape) == 2 else 0) for o in (b, out)]
    text = _FENCE + arithmetic(how.dtype) + _SOURCE.substitute(
        I=STORAGE[indices.dtype],
        warp=_WARP,
        n=f"{how.n}ll",
        nnz=f"{values.shape[0]}ll",
        k=columns,
        chunks=chunks,
        lines=how.n + 1,
        split=int(split),
        forward=int(how.lower != how.trans),
        unit=int(how.unit),
        element="CONJ(values[e])" if how.conj else "values[e]",
        read="elem v; v.re = x->re; v.im = x->im; return v;" if is_complex else "return *x;",
        scalars="double alpha_re, double alpha_im" if is_complex else "double alpha_re",
        alpha="FACTOR(alpha_re, alpha_im)" if is_complex else "FACTOR(alpha_re, 0)",
        b_row=f"{steps[0][0]}ll", b_column=f"{steps[0][1]}ll",
        out_row=f"{steps[1][0]}ll", out_column=f"{steps[1][1]}ll",
    )  # fmt: skip
    words = chunks * (how.n + 1)
    every: list[Argument] = [*(("operand", i) for i in range(5)), ("workspace", 0)]
    every += [("float64", j) for j in range(1 + is_complex)]
    blocks = context.target.sm_count * _BLOCKS
    clear = Launch(
        "clear", (max(1, min(-(-words // THREADS), blocks)), 1, 1), (THREADS, 1, 1), 0,
        (("workspace", 0), ("uint64", words)),
    )  # fmt: skip
    grid = (max(1, min(how.n, math.ceil(blocks / chunks))), chunks, 1)
    solve = Launch("solve", grid, (_WARP, 1, 1), 0, tuple(every))
    made = kernels(
        text, [clear, solve], context.target, dtypes={how.dtype, indices.dtype},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS, workspace=state,
    )  # fmt: skip
    notes = ("solved by a kernel that needs no analysis of the pattern",)
    return replace(made, run=cast("KernelProgram", made.run), notes=notes)
