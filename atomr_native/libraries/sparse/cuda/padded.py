"""Products with sliced ELL and Blocked-ELL as a kernel: each row is one sum in one order, a thread for each element."""

from __future__ import annotations

from dataclasses import replace
from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....plans.spec import PlanSpec
from ..attributes import ProductAttributes
from .arithmetic import FUNCTIONS, arithmetic
from .rows import BLOCKS, factors, steps

__all__ = ["build_padded"]

_PADDED: Final = Template("""\
KERNEL padded(const $V *values, const $I *indices, $offsets const $X *x, $O *out$parameters) {
  AWAIT_LAUNCH();
  const elem alpha = $alpha, beta = $beta;
  for (u64 t = thread_index(); t < $rows * $k; t += thread_count()) {
    const u64 row = $row, column = $column;
    elem sum = ZERO;
    $range
    for (long long p = 0; p < count; p++) {
      $place
      if (c < 0 || c >= $inner) continue;
      const $V v = values[at];
      const $X w = x[c * $x_row + (long long)column * $x_column];
      const elem a = $conj($load_v), b = $load_x;
      sum = ADD(sum, MUL(a, b));
    }
    const u64 to = row * $out_row + column * $out_column;
    elem s = MUL(alpha, sum);
    if ($adds) {
      const $O y = out[to];
      if (!IS_ZERO(beta)) s = ADD(s, MUL(beta, $old));
    }
    out[to] = $store;
  }
}
""")
#: Columns of a row's slice; `first` is where the slice begins.
_SLICED: Final = (
    "long long first = (long long)offsets[row / {size}ull];\n"
    "    if (first < 0 || first > {total}ll) first = {total}ll;\n"
    "    long long count = ((long long)offsets[row / {size}ull + 1] - first) / {size}ll;\n"
    "    if (count > ({total}ll - first) / {size}ll) count = ({total}ll - first) / {size}ll;",
    "const long long at = first + p * {size}ll + (long long)(row % {size}ull), c = (long long)indices[at];",
)
#: Elements of a row in all blocks of its row of blocks.
_BLOCKED: Final = (
    "const long long count = {width}ll * {b}ll;",
    "const long long named = (long long)indices[row / {b}ull * {width}ull + (u64)p / {b}ull],\n"
    "        c = named * {b}ll + p % {b}ll, at = (long long)row * count + p;",
)


def build_padded(spec: PlanSpec[ProductAttributes], context: CudaContext) -> Built:
    """Build ``sparse.spmv`` or ``sparse.spmm`` of a format with padding; waits for the compiler."""
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    by_name = {operand.name: operand for operand in spec.operands}
    values, indices, x, out = (by_name[name] for name in ("values", "indices", "x", "out"))
    sliced = how.format == "sliced_ell"
    numbers = {"size": values.shape[1], "total": values.shape[0] * values.shape[1], "b": 1, "width": 0}
    if not sliced:
        numbers |= {"b": values.shape[1], "width": values.shape[2]}
    reach, place = (text.format(**numbers) for text in (_SLICED if sliced else _BLOCKED))
    rows, k = out.shape[0], out.shape[1] if len(out.shape) == 2 else 1
    by_columns = k > 1 and abs(steps(out)[0]) < abs(steps(out)[1])
    parameters, alpha, beta, arguments = factors(spec)
    text = _PADDED.substitute(
        V=STORAGE[values.dtype], I=STORAGE[indices.dtype], X=STORAGE[x.dtype], O=STORAGE[out.dtype],
        offsets=f"const {STORAGE[indices.dtype]} *offsets," if sliced else "", parameters=parameters,
        alpha=alpha, beta=beta, rows=f"{rows}ull", k=f"{k}ull",
        row=f"t % {rows}ull" if by_columns else f"t / {k}ull",
        column=f"t / {rows}ull" if by_columns else f"t % {k}ull",
        range=reach, place=place, inner=f"{x.shape[0]}ll",
        x_row=f"{steps(x)[0]}ll", x_column=f"{steps(x)[1]}ll",
        out_row=f"{steps(out)[0]}ull", out_column=f"{steps(out)[1]}ull",
        conj="CONJ" if how.conj else "", adds=int(how.adds), old=convert(out.dtype, how.compute, "y"),
        load_v=convert(values.dtype, how.compute, "v"), load_x=convert(x.dtype, how.compute, "w"),
        store=convert(how.compute, out.dtype, "s"),
    )  # fmt: skip
    grid = max(1, min(-(-rows * k // THREADS), context.target.sm_count * BLOCKS))
    names = ("values", "indices", *(("offsets",) if sliced else ()), "x", "out")
    pointers: list[Argument] = [("operand", at[name]) for name in names]
    launch = Launch("padded", (grid, 1, 1), (THREADS, 1, 1), 0, (*pointers, *arguments))
    made = kernels(
        arithmetic(how.compute) + text, [launch], context.target,
        dtypes={o.dtype for o in spec.operands} | {how.compute},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS,
    )  # fmt: skip
    return replace(made, notes=("computed by a kernel, row by row",))
