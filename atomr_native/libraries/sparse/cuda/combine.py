"""Values of products and sums of two sparse matrices: a thread adds up the terms of an element, in their order."""

from __future__ import annotations

from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import CombineAttributes
from .arithmetic import FUNCTIONS, arithmetic

__all__ = ["build_combine"]

#: Blocks for each multiprocessor.
_BLOCKS: Final = 32

_SOURCE: Final = Template("""\
KERNEL combine(const $V *a, const $V *b, const long long *left, const long long *right, const long long *starts,
               $V *out, u64 count, $parameters) {
  AWAIT_LAUNCH();
  const elem alpha = $alpha, beta = $beta;
  for (u64 k = thread_index(); k < count; k += thread_count()) {
    elem s = ZERO;
    for (long long p = starts[k]; p < starts[k + 1]; p++) {
      const long long i = left[p], j = right[p];
      $term
    }
    $end
    out[k * $step] = $store;
  }
  (void)beta;
}
""")
_PRODUCT: Final = "const $V v = a[i], w = b[j]; s = ADD(s, MUL($v, $w));"
_SUM: Final = """\
if (i >= 0) { const $V v = a[i]; s = ADD(s, MUL(alpha, $v)); }
      if (j >= 0) { const $V w = b[j]; s = ADD(s, MUL(beta, $w)); }"""


def build_combine(spec: PlanSpec[CombineAttributes], context: CudaContext) -> Built:
    """Build ``sparse.product`` or ``sparse.sum``: operands ``a, b, left, right, starts, out``."""
    a, out, compute = spec.operands[0], spec.operands[-1], spec.attributes.compute
    count = out.shape[0]
    if not count:
        return Built("noop")
    marks = {
        "V": STORAGE[a.dtype], "v": convert(a.dtype, compute, "v"), "w": convert(a.dtype, compute, "w"),
    }  # fmt: skip
    is_product, is_complex = spec.op == "sparse.product", len(spec.scalars) == 4
    parameters = ", ".join(f"double {n}" for n in ("alpha_re", "beta_re", "alpha_im", "beta_im")[: len(spec.scalars)])
    text = arithmetic(compute) + _SOURCE.substitute(
        marks,
        parameters=parameters,
        alpha="FACTOR(alpha_re, alpha_im)" if is_complex else "FACTOR(alpha_re, 0)",
        beta="FACTOR(beta_re, beta_im)" if is_complex else "FACTOR(beta_re, 0)",
        term=Template(_PRODUCT if is_product else _SUM).substitute(marks),
        end="s = MUL(alpha, s);" if is_product else "",
        step=f"{out.strides[0] // as_dtype(out.dtype).itemsize if count > 1 else 1}ull",
        store=convert(compute, a.dtype, "s"),
    )
    grid = max(1, min(-(-count // THREADS), context.target.sm_count * _BLOCKS))
    arguments: list[Argument] = [*(("operand", i) for i in range(6)), ("uint64", count)]
    arguments += [("float64", j) for j in range(len(spec.scalars))]
    return kernels(
        text, [Launch("combine", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments))], context.target,
        dtypes={a.dtype, compute}, alignments=[alignment(o.dtype) for o in spec.operands], functions=FUNCTIONS,
    )  # fmt: skip
