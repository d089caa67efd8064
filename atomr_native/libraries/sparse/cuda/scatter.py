"""Products whose terms for a row of op(A) lie apart: a transposed CSR or COO, and a CSC that is not transposed.

A thread takes one stored element and one column of the output, and adds their product to the output atomically.  So the
order of the additions varies.  Outputs narrower than the sums are added up in the workspace.
"""

from __future__ import annotations

import math
from dataclasses import replace
from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....builders.cuda.workspace import beyond_limit
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import ProductAttributes
from ..batches import SINGLE, Batch
from .arithmetic import FUNCTIONS, arithmetic
from .rows import BLOCKS, factors, steps

__all__ = ["build_scatter"]

_SOURCE: Final = Template("""\
#if defined(__CUDA_ARCH__)
#define PLUS(p, x) atomicAdd(p, x)
#else
#define PLUS(p, x) (*(p) += (x)) /* threads run one after the other */
#endif
DEVICE elem old_of(const $O *out, u64 at) { const $O y = out[at]; return $old; }
DEVICE void put(elem *at, elem s) { $plus }
KERNEL begin(const $O *out, elem *sums$parameters) {
  AWAIT_LAUNCH();
  $out_advance $sums_advance
  const elem beta = $beta;
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    const u64 row = t / $k, column = t % $k;
    elem s = ZERO;
    if ($adds && !IS_ZERO(beta)) s = MUL(beta, old_of(out, row * $out_row + column * $out_column));
    sums[row * $sum_row + column * $sum_column] = s;
  }
}
KERNEL scatter(const $V *values, const $I *indices, const $I *lines, const $X *x, elem *sums$parameters) {
  AWAIT_LAUNCH();
  $advance $sums_advance
  const elem alpha = $alpha;
  for (u64 t = thread_index(); t < $terms; t += thread_count()) {
    const u64 e = t / $k, column = t % $k;
    const long long row = indices[e];
    long long line = $coo ? lines[e] : 0;
    if (!$coo) { /* the last line that does not begin behind e */
      if ((long long)e >= (long long)lines[$inner]) continue;
      long long high = $inner;
      while (high - line > 1) {
        const long long middle = line + (high - line) / 2;
        if ((long long)lines[middle] <= (long long)e) line = middle; else high = middle;
      }
    }
    if (row < 0 || row >= $rows || line < 0 || line >= $inner) continue;
    const $V v = values[e];
    const $X w = x[line * $x_row + (long long)column * $x_column];
    const elem a = $conj($load_v), b = $load_x;
    put(sums + (u64)row * $sum_row + column * $sum_column, MUL(alpha, MUL(a, b)));
  }
}
KERNEL end(const elem *sums, $O *out) {
  AWAIT_LAUNCH();
  $out_advance $sums_advance
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    const u64 row = t / $k, column = t % $k;
    const elem s = sums[row * $sum_row + column * $sum_column];
    out[row * $out_row + column * $out_column] = $store;
  }
}
""")


def build_scatter(spec: PlanSpec[ProductAttributes], context: CudaContext, batch: Batch = SINGLE) -> Built:
    """Build a product of CSR, CSC or COO whose terms are scattered to the output; waits for the compiler.

    Raises
    ------
    Unsupported
        If the sums need more workspace than the limit.
    """
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    by_name = {operand.name: operand for operand in spec.operands}
    values, x, out = by_name["values"], by_name["x"], by_name["out"]
    rows, k = out.shape[0], out.shape[1] if len(out.shape) == 2 else 1
    total, terms = rows * k, values.shape[0] * k
    narrow = out.dtype != how.compute
    needed = math.prod(out.shape) * as_dtype(how.compute).itemsize * batch.count
    workspace = -(-needed // 256) * 256 if narrow else 0
    if workspace > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, workspace, context.workspace_limit)
    parameters, alpha, beta, arguments = factors(spec)
    whole = not how.compute.startswith("complex")
    apart = f"sums += (u64)blockIdx.y * {total}ull;"
    sum_steps = (k, 1) if narrow else steps(out)
    text = arithmetic(how.compute) + _SOURCE.substitute(
        V=STORAGE[values.dtype], I=STORAGE[by_name["indices"].dtype], X=STORAGE[x.dtype], O=STORAGE[out.dtype],
        parameters=parameters, alpha=alpha, beta=beta, old=convert(out.dtype, how.compute, "y"),
        plus="PLUS(at, s);" if whole else "PLUS(&at->re, s.re); PLUS(&at->im, s.im);",
        total=f"{total}ull", terms=f"{terms}ull", k=f"{k}ull", rows=f"{rows}ll", inner=f"{x.shape[0]}ll",
        adds=int(how.adds), coo=int(how.format == "coo"), conj="CONJ" if how.conj else "",
        x_row=f"{steps(x)[0]}ll", x_column=f"{steps(x)[1]}ll",
        out_row=f"{steps(out)[0]}ull", out_column=f"{steps(out)[1]}ull",
        advance=batch.advance(values="values", x="x"), out_advance=batch.advance(out="out"),
        sums_advance=apart if narrow else batch.advance(sums="out"),
        sum_row=f"{sum_steps[0]}ull", sum_column=f"{sum_steps[1]}ull",
        load_v=convert(values.dtype, how.compute, "v"), load_x=convert(x.dtype, how.compute, "w"),
        store=convert(how.compute, out.dtype, "s"),
    )  # fmt: skip
    target: Argument = ("workspace", 0) if narrow else ("operand", at["out"])
    result: Argument = ("operand", at["out"])
    names = ("values", "indices", "rows" if how.format == "coo" else "offsets", "x")
    pointers: list[Argument] = [("operand", at[name]) for name in names]

    def launch(name: str, work: int, given: tuple[Argument, ...]) -> Launch:
        grid = max(1, min(-(-work // THREADS), context.target.sm_count * BLOCKS))
        return Launch(name, (grid, batch.count, 1), (THREADS, 1, 1), 0, given)

    launches = [
        launch("begin", total, (result, target, *arguments)),
        launch("scatter", terms, (*pointers, target, *arguments)),
    ]
    if narrow:
        launches.append(launch("end", total, (target, result)))
    made = kernels(
        text, launches, context.target,
        dtypes={o.dtype for o in spec.operands} | {how.compute},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS, workspace=workspace,
    )  # fmt: skip
    return replace(made, notes=("computed by a kernel that adds each stored element to the output atomically",))
