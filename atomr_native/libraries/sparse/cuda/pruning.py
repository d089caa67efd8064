"""Pruning to two numbers in each four as CUDA kernels: a thread takes a four, or a 4 x 4 tile."""

from __future__ import annotations

from string import Template
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, convert, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch
from ....plans.spec import PlanSpec
from ..attributes import PruneAttributes
from ..structured.patterns import GROUP, KEPT, TILES
from .rows import BLOCKS, steps

__all__ = ["build_broken", "build_prune"]

_COMMON: Final = """\
DEVICE float size_of($elem v) {
  const float x = $wide;
  return x != x ? bits_float(0x7f800000u) : x < 0 ? -x : x;
}
"""
_STRIPS: Final = Template(
    _COMMON
    + """\
KERNEL prune(const $elem *x, $elem *y) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    const u64 row = t / $across, first = t % $across * 4;
    $elem v[4];
    float size[4];
    for (int j = 0; j < 4; j++) {
      v[j] = x[row * $x_row + (first + j) * $x_column];
      size[j] = size_of(v[j]);
    }
    for (int j = 0; j < 4; j++) {
      int larger = 0;
      for (int i = 0; i < 4; i++) larger += i != j && (size[i] > size[j] || (size[i] == size[j] && i < j));
      y[row * $y_row + (first + j) * $y_column] = larger < $kept ? v[j] : ($elem)0;
    }
  }
}
"""
)
_TILES: Final = Template(
    _COMMON
    + """\
KERNEL prune(const $elem *x, $elem *y) {
  AWAIT_LAUNCH();
  const unsigned short patterns[$count] = {$patterns};
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    const u64 top = t / $across * 4, left = t % $across * 4;
    float size[16];
    for (int j = 0; j < 16; j++) size[j] = size_of(x[(top + j / 4) * $x_row + (left + j % 4) * $x_column]);
    float best = -1;
    unsigned int chosen = 0;
    for (int p = 0; p < $count; p++) {
      float sum = 0;
      for (int j = 0; j < 16; j++)
        if (patterns[p] >> j & 1) sum += size[j];
      if (sum > best) best = sum, chosen = patterns[p];
    }
    for (int j = 0; j < 16; j++) {
      const $elem v = x[(top + j / 4) * $x_row + (left + j % 4) * $x_column];
      y[(top + j / 4) * $y_row + (left + j % 4) * $y_column] = chosen >> j & 1 ? v : ($elem)0;
    }
  }
}
"""
)
_BROKEN: Final = Template("""\
KERNEL broken(const $elem *x, unsigned char *y) {
  AWAIT_LAUNCH();
  for (u64 t = thread_index(); t < $total; t += thread_count()) {
    const u64 row = t / $across, first = t % $across * 4;
    int stored = 0;
    for (int j = 0; j < 4; j++) {
      const $elem v = x[row * $x_row + (first + j) * $x_column];
      stored += $wide != 0;
    }
    y[row * $y_row + t % $across * $y_column] = stored > $kept;
  }
}
""")


def _built(spec: PlanSpec[PruneAttributes], context: CudaContext, name: str, text: Template, tile: int) -> Built:
    x, y = spec.operands
    rows, columns = x.shape
    total = rows // tile * (columns // GROUP)
    if total == 0:
        return Built("noop")
    (x_row, x_column), (y_row, y_column) = steps(x), steps(y)
    source = text.substitute(
        elem=STORAGE[x.dtype], wide=convert(x.dtype, "float32", "v"), kept=KEPT, total=f"{total}ull",
        across=f"{columns // GROUP}ull", count=len(TILES),
        patterns=", ".join(str(sum(1 << place for place in places)) for places in TILES),
        x_row=f"{x_row}ull", x_column=f"{x_column}ull", y_row=f"{y_row}ull", y_column=f"{y_column}ull",
    )  # fmt: skip
    grid = max(1, min(-(-total // THREADS), context.target.sm_count * BLOCKS))
    pointers: tuple[Argument, ...] = (("operand", 0), ("operand", 1))
    return kernels(
        source, [Launch(name, (grid, 1, 1), (THREADS, 1, 1), 0, pointers)], context.target, dtypes={x.dtype, "float32"},
        alignments=[alignment(o.dtype) for o in spec.operands],
    )  # fmt: skip


def build_prune(spec: PlanSpec[PruneAttributes], context: CudaContext) -> Built:
    """Build ``sparse.prune_24``.  Waits for the compiler."""
    tiles = spec.attributes.method == "tile"
    return _built(spec, context, "prune", _TILES if tiles else _STRIPS, GROUP if tiles else 1)


def build_broken(spec: PlanSpec[PruneAttributes], context: CudaContext) -> Built:
    """Build ``sparse.broken_24``.  Waits for the compiler."""
    return _built(spec, context, "broken", _BROKEN, 1)
