"""Products as kernels of our own: each row of op(A) is one sum in one order, for any layout of the dense arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from string import Template
from typing import Final

import numpy as np

from ...._support.traced import tree_source
from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels, next_power
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....dtypes import as_dtype
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import ProductAttributes, SemiringAttributes
from ..batches import SINGLE, Batch
from .arithmetic import FUNCTIONS, arithmetic

__all__ = ["BLOCKS", "Algebra", "build_rows", "build_sampled", "build_semiring", "factors", "steps"]

#: The most blocks for each multiprocessor.
BLOCKS: Final = 32
#: The most threads that add up a row of a product with a vector.
_TEAM: Final = 32


@dataclass(frozen=True, slots=True)
class Algebra:
    """The C expressions of a product: of an element ``a`` and ``x``, of two sums ``s`` and ``t``, and of the end.

    Attributes
    ----------
    term, join, start : str
        Macros are those of `arithmetic`.
    end : str
        Of the sum ``s``, of ``alpha``, and of the old element ``old`` if `reads` says so.
    head : str
        Functions that they call.
    dtypes, functions : frozenset of str
        What `head` needs of the prelude.
    """

    term: str = "MUL(a, x)"
    join: str = "ADD(s, t)"
    start: str = "ZERO"
    end: str = ""
    head: str = ""
    dtypes: frozenset[str] = frozenset()
    functions: frozenset[str] = field(default=frozenset(FUNCTIONS))


_ROWS: Final = Template("""\
DEVICE elem term(elem a, elem x) { return $term; }
DEVICE elem join(elem s, elem t) { return $join; }
DEVICE elem old_of(const $O *out, u64 at) { const $O y = out[at]; return $old; }
/* The first element of a line and of those behind it, of row numbers in order. */
DEVICE long long first_of(const $I *rows, u64 row) {
  long long low = 0, high = $nnz;
  while (low < high) {
    const long long middle = low + (high - low) / 2;
    if ((long long)rows[middle] < (long long)row) low = middle + 1; else high = middle;
  }
  return low;
}
KERNEL rows(const $V *values, const $I *indices, const $I *offsets, const $X *x, $O *out$parameters) {
  AWAIT_LAUNCH();
  $advance
  $shared
  const elem alpha = $alpha, beta = $beta;
  const u64 team = threadIdx.x / $team, teams = blockDim.x / $team;
  $loop
    elem sum = $start;
    if (row < $rows) {
      long long first = $empty ? 0 : $first, end = $empty ? 0 : $behind;
      if (first < 0) first = 0;
      if (end > $nnz) end = $nnz;
      for (long long p = $begin; p < (end - first) * $b; p += $step) {
        const long long e = first + p / $b, c = (long long)indices[e] * $b + p % $b;
        if (c < 0 || c >= $inner) continue;
        const $V v = values[e * $bb + row % $b * $b + p % $b];
        const $X w = x[c * $x_row + column * $x_column];
        const elem a = $conj($load_v), b = $load_x;
        sum = join(sum, term(a, b));
      }
    }
    $reduce
    if ($writes) {
      const u64 at = row * $out_row + column * $out_column;
      elem s = sum;
      $end
      out[at] = $store;
    }
  }
}
""")
_TEAM_LOOP: Final = """\
const u64 lane = threadIdx.x % $team, column = 0;
  for (u64 base = (u64)blockIdx.x * teams; base < $rows; base += (u64)gridDim.x * teams) {
    const u64 row = base + team;"""
_EACH_LOOP: Final = """\
for (u64 t = thread_index(); t < (u64)$rows * $k; t += thread_count()) {
    const u64 row = $row, column = $column;"""
_REDUCE: Final = """\
parts[threadIdx.x] = sum;
    SYNC();
    for (unsigned int half = $team / 2; half; half /= 2) {
      if (lane < half) parts[threadIdx.x] = join(parts[threadIdx.x], parts[threadIdx.x + half]);
      SYNC();
    }
    sum = parts[threadIdx.x];"""


def steps(operand: OperandSpec) -> tuple[int, int]:
    """Return the strides of a matrix or a vector in elements, 0 along axes of one element."""
    size = as_dtype(operand.dtype).itemsize
    strides = [0 if n == 1 else s // size for n, s in zip(operand.shape, operand.strides, strict=True)]
    return (strides[0], strides[1]) if len(strides) == 2 else (strides[0], 0)


def factors(spec: PlanSpec[ProductAttributes]) -> tuple[str, str, str, list[Argument]]:
    """Return the parameters of the factors, their expressions, and their arguments."""
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    if how.factors:
        kind = STORAGE[how.compute]
        parameters = f", const {kind} *alpha_at, const {kind} *beta_at"
        return parameters, "alpha_at[0]", "beta_at[0]", [("operand", at["alpha_at"]), ("operand", at["beta_at"])]
    count = len(spec.scalars)
    if count == 4:
        parameters = ", double alpha_re, double beta_re, double alpha_im, double beta_im"
        texts = "FACTOR(alpha_re, alpha_im)", "FACTOR(beta_re, beta_im)"
    else:
        parameters, texts = ", double alpha_re, double beta_re", ("FACTOR(alpha_re, 0)", "FACTOR(beta_re, 0)")
    return parameters, *texts, [("float64", j) for j in range(count)]


def build_rows(
    spec: PlanSpec[ProductAttributes],
    context: CudaContext,
    *,
    empty: bool,
    algebra: Algebra | None = None,
    batch: Batch = SINGLE,
) -> Built:
    """Build a product; the elements of a row of op(A) lie together, unless it is `empty`."""
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    by_name = {operand.name: operand for operand in spec.operands}
    values, x, out = by_name["values"], by_name["x"], by_name["out"]
    block = values.shape[1] if how.format == "bsr" else 1
    rows, k = out.shape[0], out.shape[1] if len(out.shape) == 2 else 1
    teams = len(out.shape) == 1
    team = min(_TEAM, next_power(values.shape[0] * block // max(rows, 1))) if teams else 1
    parameters, alpha, beta, arguments = factors(spec) if algebra is None else ("", "ZERO", "ZERO", [])
    algebra = algebra or Algebra()
    by_columns = k > 1 and abs(steps(out)[0]) < abs(steps(out)[1])
    marks = {
        "team": str(team), "rows": f"{rows}ull", "k": f"{k}ull",
        "row": f"t % {rows}ull" if by_columns else f"t / {k}ull",
        "column": f"t / {rows}ull" if by_columns else f"t % {k}ull",
    }  # fmt: skip
    keeps = "if (!IS_ZERO(beta)) s = ADD(s, MUL(beta, old_of(out, at)));" if how.adds else ""
    text = algebra.head + _ROWS.substitute(
        marks,
        V=STORAGE[values.dtype], I=STORAGE[by_name["indices"].dtype], X=STORAGE[x.dtype], O=STORAGE[out.dtype],
        term=algebra.term, join=algebra.join, start=algebra.start,
        old=convert(out.dtype, how.compute, "y"),
        parameters=parameters, alpha=alpha, beta=beta, advance=batch.advance(values="values", x="x", out="out"),
        shared=f"SHARED elem parts[{THREADS}];" if teams else "",
        loop=Template(_TEAM_LOOP if teams else _EACH_LOOP).substitute(marks),
        reduce=Template(_REDUCE).substitute(marks) if teams else "",
        writes=f"row < {rows}ull && lane == 0" if teams else "1",
        begin="lane" if teams else "0", step=str(team),
        first="first_of(offsets, row)" if how.format == "coo" else f"offsets[row / {block}ll]",
        behind="first_of(offsets, row + 1)" if how.format == "coo" else f"offsets[row / {block}ll + 1]",
        empty=int(empty), b=f"{block}ll", bb=f"{block * block}ll", nnz=f"{values.shape[0]}ll", inner=f"{x.shape[0]}ll",
        x_row=f"{steps(x)[0]}ll", x_column=f"{steps(x)[1]}ll",
        out_row=f"{steps(out)[0]}ull", out_column=f"{steps(out)[1]}ull",
        conj="CONJ" if how.conj else "",
        load_v=convert(values.dtype, how.compute, "v"), load_x=convert(x.dtype, how.compute, "w"),
        end=algebra.end or f"s = MUL(alpha, s); {keeps}",
        store=convert(how.compute, out.dtype, "s"),
    )  # fmt: skip
    work = rows * team if teams else rows * k
    grid = max(1, min(-(-work // THREADS), context.target.sm_count * BLOCKS))
    pointers: list[Argument] = [
        ("operand", at[name])
        for name in ("values", "indices", "rows" if how.format == "coo" else "offsets", "x", "out")
    ]
    launch = Launch("rows", (grid, batch.count, 1), (THREADS, 1, 1), 0, (*pointers, *arguments))
    made = kernels(
        arithmetic(how.compute) + text, [launch], context.target,
        dtypes={o.dtype for o in spec.operands} | {how.compute} | algebra.dtypes,
        alignments=[alignment(o.dtype) for o in spec.operands], functions=algebra.functions,
    )  # fmt: skip
    return replace(made, notes=("computed by a kernel, row by row",))


def build_semiring(spec: PlanSpec[SemiringAttributes], context: CudaContext) -> Built:
    """Build ``sparse.semiring``: operands ``values, indices, offsets, x, out``.  Waits for the compiler."""
    how = spec.attributes
    if 0 in spec.operands[-1].shape:
        return Built("noop")
    trees = {"f_multiply": how.multiply, "f_add": how.add, "f_end": how.on_sum}
    start = int(np.float64(float.fromhex(how.start)).view(np.uint64))
    algebra = Algebra(
        term="f_multiply(a, x)",
        join="f_add(s, t)",
        start=f"(elem)__longlong_as_double((long long){start}ull)",
        end="s = f_end(s);",
        head="".join(tree_source(name, tree, how.compute) for name, tree in trees.items()),
    )
    plain = ProductAttributes(
        format="csr", shape=how.shape, compute=how.compute, adds=False, factors=False, trans=False, conj=False,
        deterministic=True,
    )  # fmt: skip
    empty = 0 in spec.operands[0].shape or spec.operands[3].shape[0] == 0
    return build_rows(PlanSpec(spec.op, spec.operands, (), plain), context, empty=empty, algebra=algebra)


_SAMPLED: Final = Template("""\
KERNEL sampled(const $V *values, const $I *indices, const $I *second, const $V *x, const $V *y, $V *out$parameters) {
  AWAIT_LAUNCH();
  $advance
  const elem alpha = $alpha, beta = $beta;
  for (u64 e = thread_index(); e < $nnz; e += thread_count()) {
    long long line = $coo ? second[e] : 0, across = indices[e];
    if (!$coo) { /* the last line that does not begin behind e */
      long long low = 0, high = $lines;
      while (high - low > 1) {
        const long long middle = low + (high - low) / 2;
        if ((u64)second[middle] <= e) low = middle; else high = middle;
      }
      line = low;
    }
    const long long row = $flip ? across : line, column = $flip ? line : across;
    elem s = ZERO;
    if (row >= 0 && row < $rows && column >= 0 && column < $columns)
      for (u64 k = 0; k < $depth; k++) {
        const $V v = x[row * $x_row + k * $x_column], w = y[k * $y_row + column * $y_column];
        s = ADD(s, MUL($load_v, $load_w));
      }
    s = MUL(alpha, s);
    if ($adds) {
      const $V v = values[e];
      if (!IS_ZERO(beta)) s = ADD(s, MUL(beta, $load_v));
    }
    out[e * $out_step] = $store;
  }
}
""")


def build_sampled(spec: PlanSpec[ProductAttributes], context: CudaContext, batch: Batch = SINGLE) -> Built:
    """Build ``sparse.sddmm``: a thread for each stored element."""
    how = spec.attributes
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    by_name = {operand.name: operand for operand in spec.operands}
    values, x, y, out = (by_name[name] for name in ("values", "x", "y", "out"))
    parameters, alpha, beta, arguments = factors(spec)
    lines = how.shape[how.format == "csc"]
    second = "rows" if how.format == "coo" else "offsets"
    text = arithmetic(how.compute) + _SAMPLED.substitute(
        V=STORAGE[values.dtype], I=STORAGE[by_name["indices"].dtype], parameters=parameters, alpha=alpha, beta=beta,
        advance=batch.advance(values="values", x="x", y="y", out="out"),
        nnz=f"{values.shape[0]}ull", coo=int(how.format == "coo"), flip=int(how.format == "csc"), lines=f"{lines}ll",
        rows=f"{how.shape[0]}ll", columns=f"{how.shape[1]}ll", depth=f"{x.shape[1]}ull", adds=int(how.adds),
        x_row=f"{steps(x)[0]}ll", x_column=f"{steps(x)[1]}ll",
        y_row=f"{steps(y)[0]}ll", y_column=f"{steps(y)[1]}ll",
        out_step=f"{out.strides[0] // as_dtype(out.dtype).itemsize if out.shape[0] > 1 else 0}ull",
        load_v=convert(values.dtype, how.compute, "v"), load_w=convert(values.dtype, how.compute, "w"),
        store=convert(how.compute, values.dtype, "s"),
    )  # fmt: skip
    grid = max(1, min(-(-values.shape[0] // THREADS), context.target.sm_count * BLOCKS))
    pointers: list[Argument] = [("operand", at[name]) for name in ("values", "indices", second, "x", "y", "out")]
    launch = Launch("sampled", (grid, batch.count, 1), (THREADS, 1, 1), 0, (*pointers, *arguments))
    made = kernels(
        text, [launch], context.target, dtypes={o.dtype for o in spec.operands} | {how.compute},
        alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS,
    )  # fmt: skip
    return replace(made, notes=("computed by a kernel, a thread for each stored element",))
