"""The small steps of GMRES as CUDA kernels: a rotation of one column, and the solve with the triangle."""

from __future__ import annotations

from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.target import Argument, Launch
from ....plans.spec import PlanSpec
from ..attributes import BasisAttributes
from .arithmetic import arithmetic
from .rows import BLOCKS

__all__ = ["build_basis", "build_solution"]

#: Threads that solve with the triangle.
_SOLVERS: Final = 128

_BASIS: Final = Template("""\
KERNEL basis(const elem *w, const elem *parts, const elem *norm, const long long *place, elem *basis, elem *v,
             elem *triangle, elem *rotations, elem *rest, elem *left) {
  AWAIT_LAUNCH();
  const long long j = place[0];
  if (j < 0 || j >= $rounds) return;
  const elem length = norm[0];
  for (u64 i = thread_index(); i < $n; i += thread_count()) {
    const elem one = length == 0 ? (elem)0 : w[i] / length;
    basis[(u64)(j + 1) * $n + i] = one;
    v[i] = one;
  }
  if (thread_index() == 0) {
    elem carried = parts[0];
    for (long long i = 0; i < j; i++) {
      const elem c = rotations[2 * i], s = rotations[2 * i + 1], next = parts[i + 1];
      triangle[j * $rounds + i] = c * carried + s * next;
      carried = c * next - s * carried;
    }
    const elem radius = hypot$f(carried, length), c = radius == 0 ? (elem)1 : carried / radius;
    const elem s = radius == 0 ? (elem)0 : length / radius, old = rest[j];
    triangle[j * $rounds + j] = radius;
    rotations[2 * j] = c;
    rotations[2 * j + 1] = s;
    rest[j] = c * old;
    rest[j + 1] = -s * old;
    left[0] = -s * old;
  }
}
""")
_SOLUTION: Final = Template("""\
KERNEL solution(const elem *triangle, const elem *rest, const long long *place, elem *weights) {
  AWAIT_LAUNCH();
  SHARED elem known[$more];
  const long long given = place[0], j = given < 0 ? 0 : given > $rounds ? $rounds : given;
  for (unsigned int i = threadIdx.x; i < $more; i += blockDim.x) known[i] = (long long)i < j ? rest[i] : (elem)0;
  SYNC();
  for (long long i = j - 1; i >= 0; i--) {
    if (threadIdx.x == 0) known[i] = known[i] / triangle[i * $rounds + i];
    SYNC();
    for (long long l = threadIdx.x; l < i; l += blockDim.x) known[l] -= triangle[i * $rounds + l] * known[i];
    SYNC();
  }
  for (unsigned int i = threadIdx.x; i < $more; i += blockDim.x) weights[i] = known[i];
}
""")


def _built(spec: PlanSpec[BasisAttributes], context: CudaContext, text: str, launch: Launch) -> Built:
    dtype = spec.operands[0].dtype
    return kernels(
        arithmetic(dtype) + text, [launch], context.target, dtypes={dtype, "int64"},
        alignments=[alignment(o.dtype) for o in spec.operands],
    )  # fmt: skip


def build_basis(spec: PlanSpec[BasisAttributes], context: CudaContext) -> Built:
    """Build ``sparse.basis``: operands as `BasisRequest` has them.  Waits for the compiler."""
    n, dtype = spec.operands[0].shape[0], spec.operands[0].dtype
    text = _BASIS.substitute(rounds=f"{spec.attributes.rounds}ll", n=f"{n}ull", f="f" if dtype == "float32" else "")
    grid = max(1, min(-(-n // THREADS), context.target.sm_count * BLOCKS))
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in range(len(spec.operands)))
    return _built(spec, context, text, Launch("basis", (grid, 1, 1), (THREADS, 1, 1), 0, pointers))


def build_solution(spec: PlanSpec[BasisAttributes], context: CudaContext) -> Built:
    """Build ``sparse.solution``: operands as `SolutionRequest` has them.  Waits for the compiler."""
    rounds = spec.attributes.rounds
    text = _SOLUTION.substitute(rounds=f"{rounds}ll", more=str(rounds + 1))
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in range(len(spec.operands)))
    return _built(spec, context, text, Launch("solution", (1, 1, 1), (_SOLVERS, 1, 1), 0, pointers))
