"""Grouped products by multistage kernels: each block finds its group, and makes the parameters of that product.

The grid has a row of blocks for each tile of rows that the groups can have at most; those left over end at once.
"""

from __future__ import annotations

from typing import Final

from . import tree
from .gemm80 import INCLUDES, INSTRUCTIONS, mapped, operation, shape, vector, warps
from .kernel import Kernel, walk
from .rendering import ENTRY, Rendered, source_of
from .types import BITS, CPP, LAYOUTS

__all__ = ["render"]

_FIELDS: Final = (
    ("lda", "int64"), ("ldb", "int64"), ("ldd", "int64"), ("batch_b", "int64"), ("batch_d", "int64"),
    ("m", "int32"), ("n", "int32"), ("k", "int32"), ("groups", "int32"), ("sm_count", "int32"),
)  # fmt: skip
_C_FIELDS: Final = (("ldc", "int64"), ("batch_c", "int64"))

_FIND: Final = """
namespace {
struct Group { int index, tile, rows; long long begin; };
// The group of a row of blocks, found by each warp; the index is -1 if there is none.
template <class Offset> __device__ Group group_of(Offset const* ends, int groups, long long m, int height, int slot) {
  int lane = threadIdx.x % 32, before = 0;
  for (int first = 0; first < groups; first += 32) {
    int group = first + lane;
    long long begin = group > 0 && group < groups ? ends[group - 1] : 0, end = group < groups ? ends[group] : 0;
    begin = begin < 0 ? 0 : begin > m ? m : begin;
    end = end < begin ? begin : end > m ? m : end;
    int rows = int(end - begin), tiles = (rows + height - 1) / height, sum = before + tiles;
    for (int step = 1; step < 32; step *= 2) {
      int other = __shfl_up_sync(~0u, sum - before, step);
      if (lane >= step) sum += other;
    }
    unsigned reached = __ballot_sync(~0u, sum > slot);
    if (reached) {
      int source = __ffs(reached) - 1;
      return {first + source, slot - __shfl_sync(~0u, sum - tiles, source), __shfl_sync(~0u, rows, source),
              __shfl_sync(~0u, begin, source)};
    }
    before = __shfl_sync(~0u, sum, 31);
  }
  return {-1, 0, 0, 0};
}
// The grid's second axis counts tiles along N; the row of tiles comes with the parameters.
struct Swizzle : cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1> {
  __device__ static cutlass::gemm::GemmCoord get_tile_offset(int tile) { return {tile, int(blockIdx.y), 0}; }
};
}
"""


def render(kernel: Kernel) -> Rendered:
    """Return the source of a grouped product."""
    written = tree.rendered(kernel)
    a, b = kernel.a, kernel.b
    width = vector(kernel)
    none = "cutlass::ComplexTransform::kNone"
    arguments = "\n  ".join(written.arguments)
    body = f"""{_FIND}{written.text()}
using Block = {shape(kernel.tile)};
using Warp = {shape(warps(kernel))};
using ThreadMap = cutlass::epilogue::threadblock::OutputTileThreadLayout<Block, Warp, {mapped(kernel)}, {width}, 1>;
{chr(10).join(written.types)}
using Kernel = typename cutlass::gemm::kernel::DefaultGemmWithVisitor<
    {CPP[a.dtype]}, {LAYOUTS[a.layout]}, {none}, {a.alignment}, {CPP[b.dtype]}, {LAYOUTS[b.layout]}, {none},
    {b.alignment},
    {mapped(kernel)}, cutlass::layout::RowMajor, {width}, {CPP[kernel.accumulator]}, {CPP[kernel.compute]},
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Block, Warp, {shape(INSTRUCTIONS[a.dtype])}, {written.root},
    Swizzle, {kernel.stages or 3}, {operation(kernel)}, 1>::GemmKernel;
namespace {{
CUTE_HOST_DEVICE typename Kernel::Params params_of(Given const& p) {{
  {arguments}
  typename Kernel::Arguments given(cutlass::gemm::GemmUniversalMode::kGemm, {{p.m, p.n, p.k}}, 1, {written.variable},
      reinterpret_cast<void const*>(p.a), reinterpret_cast<void const*>(p.b), nullptr, reinterpret_cast<void*>(p.d),
      0, 0, 0, 0, p.lda, p.ldb, 0, p.ldd);
  return typename Kernel::Params(given, p.sm_count, 1);
}}
}}
"""
    fields, pointers = [*_FIELDS, *written.fields], ["a", "b", "d", "offsets", *written.pointers]
    if kernel.c is not None:
        fields += _C_FIELDS
        pointers.append("c")
    height, columns, _ = kernel.tile
    build = f"""  out->accepted = Kernel::can_implement({{p.m, p.n, p.k}}) == cutlass::Status::kSuccess;
  atomr::put(out, p);
  int rows = p.m / {height} + (p.m < p.groups ? p.m : p.groups);
  atomr::put_launch(out, dim3(rows, (p.n + {columns - 1}) / {columns}, 1), dim3(Kernel::kThreadCount, 1, 1),
                    dim3(1, 1, 1), sizeof(typename Kernel::SharedStorage));
  out->workspace = 0;"""
    scalars = [node.name for node in walk(kernel.tree) if node.op == "scalar" and node.value == "host"]
    return source_of(
        INCLUDES, body, _launch(kernel), build, fields, pointers, written.declared, tuple(dict.fromkeys(scalars))
    )


def _launch(kernel: Kernel) -> str:
    """Return the kernel."""
    offset = {"int32": "int", "int64": "long long"}[kernel.offsets]
    moves = {
        "a": f"group.begin * p.lda * {BITS[kernel.a.dtype] // 8}",
        "b": f"group.index * p.batch_b * {BITS[kernel.b.dtype] // 8}",
        "d": f"group.begin * p.ldd * {BITS[kernel.d.dtype] // 8}",
    }
    if kernel.c is not None:
        moves["c"] = f"group.begin * p.ldc * {BITS[kernel.c.dtype] // 8}"
    for node in walk(kernel.tree):
        size = BITS.get(node.dtype, 0) // 8
        if node.op == "column":
            moves[node.name] = f"group.begin * {size}"
        elif node.op == "row" or (node.op == "scalar" and node.value == "pointer"):
            moves[node.name] = f"group.index * p.batch_{node.name} * {size}"
    moved = "\n".join(f"  p.{name} += {step};" for name, step in moves.items())
    return f"""
extern "C" __global__ void __launch_bounds__(Kernel::kThreadCount)
{ENTRY}(__grid_constant__ Given const given) {{
  extern __shared__ char shared[];
  Given p = given;
  auto ends = reinterpret_cast<{offset} const*>(p.offsets);
  Group group = group_of(ends, p.groups, p.m, Block::kM, blockIdx.x);
  if (group.index < 0) return;
  p.m = group.rows;
{moved}
  typename Kernel::Params params = params_of(p);
  params.swizzle_log_tile = group.tile;
  Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared));
}}
"""
