"""Convolutions as products of matrices whose operands are gathered on the way, by multistage kernels.

A row of D is a pixel or a filter, so an epilogue's visitors are those of a product.  Blocks that share the sums of a
tile add their parts in turn, in the order of their slices, through the workspace; the last one runs the epilogue.
"""

from __future__ import annotations

from typing import Final

from ..attributes import EXTENTS
from . import tree
from .gemm80 import INSTRUCTIONS, mapped, operation, shape, vector, warps
from .kernel import Kernel, walk
from .rendering import ENTRY, Rendered, preparation, source_of
from .types import CPP

__all__ = ["render"]

_INCLUDES: Final = (
    "cutlass/cutlass.h",
    "cutlass/numeric_types.h",
    "cutlass/gemm/threadblock/threadblock_swizzle.h",
    "cutlass/epilogue/thread/linear_combination.h",
    "cutlass/epilogue/threadblock/epilogue_with_visitor_callbacks.h",
    "cutlass/epilogue/threadblock/fusion/visitors.hpp",
)
_OPERATIONS: Final = {"forward": "Fprop", "data_gradient": "Dgrad", "filter_gradient": "Wgrad"}

_CONVOLUTION: Final = """
namespace {
// The kernel of a convolution of CUTLASS, with visitors as its epilogue.
template <class Default, class Callbacks, class Size, class Swizzle>
struct Convolution {
  using Given = typename Default::Mma;
  // The caches of multiprocessors are passed by only in pieces of 16 bytes, which float64 is not loaded in.
  static cutlass::arch::CacheOperation::Kind const kCacheB = sizeof(typename Given::IteratorB::Element) == 8
      ? cutlass::arch::CacheOperation::Always : Given::kCacheOpB;
  using Mma = cutlass::conv::threadblock::ImplicitGemmMultistage<
      typename Given::Shape, typename Given::IteratorA, typename Given::SmemIteratorA,
      sizeof(typename Given::IteratorA::Element) == 8 ? cutlass::arch::CacheOperation::Always : Given::kCacheOpA,
      typename Given::IteratorB, typename Given::SmemIteratorB, kCacheB, typename Given::Policy, Given::Base::kStages>;
  using Epilogue = cutlass::epilogue::threadblock::EpilogueWithVisitorCallbacks<
      typename Default::Epilogue, Callbacks, 1>;
  using Sums = typename Mma::FragmentC;
  static cutlass::conv::Operator const kOperator = Default::kConvolutionalOperator;
  static int const kThreads = 32 * Mma::WarpCount::kCount;
  struct Params {
    Size size;
    cutlass::gemm::GemmCoord tiles;
    int log_tile, iterations, iterations_per_channel;
    typename Mma::IteratorA::Params params_a;
    typename Mma::IteratorB::Params params_b;
    typename Mma::IteratorA::Element const* a;
    typename Mma::IteratorB::Element const* b;
    typename Callbacks::Params output;
    cute::Shape<int32_t, int32_t, int32_t> problem;
    char* workspace;  // a counter for each tile, and then the sums of each tile's threads
    unsigned long long counters;
  };
  union SharedStorage {
    typename Mma::SharedStorage loop;
    typename Epilogue::SharedStorage epilogue;
  };
  __device__ static void run(Params const& params, SharedStorage& shared) {
    Swizzle swizzle;
    auto tile = swizzle.get_tile_offset(params.log_tile);
    if (params.tiles.m() <= tile.m() || params.tiles.n() <= tile.n()) return;
    int thread = threadIdx.x, warp = cutlass::canonical_warp_idx_sync(), lane = threadIdx.x % 32;
    typename Mma::IteratorA a(params.params_a, params.size, params.a, thread,
                              {tile.m() * Mma::Shape::kM, tile.k() * Mma::Shape::kK});
    typename Mma::IteratorB b(params.params_b, params.size, params.b, thread,
                              {tile.k() * Mma::Shape::kK, tile.n() * Mma::Shape::kN});
    Mma mma(shared.loop, thread, warp, lane);
    Sums sums;
    sums.clear();
    mma(params.iterations, sums, a, b, sums, params.iterations_per_channel);
    int slices = params.tiles.k();
    if (slices > 1) {
      int place = tile.m() + tile.n() * params.tiles.m();
      cutlass::Semaphore turn(reinterpret_cast<int*>(params.workspace) + place, thread);
      using Part = typename Sums::Element;
      Part* kept = reinterpret_cast<Part*>(params.workspace + params.counters)
          + (long long)(place) * Sums::kElements * kThreads + thread;
      turn.fetch();
      turn.wait(tile.k());
      if (tile.k() > 0) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < Sums::kElements; ++i) sums[i] += __ldcg(kept + i * kThreads);
      }
      if (tile.k() + 1 < slices) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < Sums::kElements; ++i) __stcg(kept + i * kThreads, sums[i]);
        turn.release(tile.k() + 1);
        return;
      }
      __syncthreads();
    }
    Epilogue epilogue(params.output, shared.epilogue, thread, warp, lane);
    epilogue(sums, {tile.m(), tile.n(), 0}, params.problem, thread);  // of one product, whichever slice is the last
  }
};
// Strides of a dense tensor with its channels innermost.
template <class Layout> CUTE_HOST_DEVICE Layout dense(int depth, int height, int width, int channels) {
  if constexpr (Layout::kStrideRank == 3) {
    return Layout(channels, channels * width, channels * width * height);
  } else {
    return Layout(channels, channels * width, channels * width * height, channels * width * height * depth);
  }
}
}
"""


def _type(kernel: Kernel, root: str) -> str:
    """Return the kernel's type."""
    name, rank = _OPERATIONS[kernel.operation], kernel.spatial
    a, b = kernel.a, kernel.b
    tensor = f"cutlass::layout::Tensor{'NHWC' if rank == 2 else 'NDHWC'}"
    width = vector(kernel)
    strides = "kUnity" if kernel.operation == "data_gradient" and kernel.unit_strides else "kStrided"
    algorithm = "kOptimized" if strides == "kUnity" or kernel.operation != "data_gradient" else "kAnalytic"
    aligned = f", {a.alignment}, {b.alignment}" if rank == 2 else ""
    return f"""using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<{kernel.swizzle}>;
using Output = cutlass::epilogue::thread::LinearCombination<{mapped(kernel)}, {width}, {CPP[kernel.accumulator]},
    {CPP[kernel.compute]}>;
using Default = typename cutlass::conv::kernel::DefaultConv{rank}d{name}<
    {CPP[a.dtype]}, {tensor}, {CPP[b.dtype]}, {tensor}, {mapped(kernel)}, {tensor}, {CPP[kernel.accumulator]},
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Block, Warp, {shape(INSTRUCTIONS[a.dtype])}, Output, Swizzle,
    {kernel.stages or 3}, {operation(kernel)}, cutlass::conv::IteratorAlgorithm::{algorithm},
    cutlass::conv::StrideSupport::{strides}{aligned}>::Kernel;
using Tensor = {tensor};
using Size = cutlass::conv::Conv{rank}dProblemSize;
using Kernel = Convolution<Default, {root}, Size, Swizzle>;
"""


def _launch() -> str:
    return f"""
extern "C" __global__ void __launch_bounds__(Kernel::kThreads)
{ENTRY}(__grid_constant__ typename Kernel::Params const params) {{
  extern __shared__ char shared[];
  Kernel::run(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared));
}}
"""


def render(kernel: Kernel) -> Rendered:
    """Return the source of a convolution."""
    written = tree.rendered(kernel)
    body = f"""{_CONVOLUTION}{written.text()}
using Block = {shape(kernel.tile)};
using Warp = {shape(warps(kernel))};
using ThreadMap = cutlass::epilogue::threadblock::OutputTileThreadLayout<Block, Warp, {mapped(kernel)},
    {vector(kernel)}, 1>;
{chr(10).join(written.types)}
{_type(kernel, written.root)}"""
    deep = kernel.spatial == 3
    axes = ("depth", "height", "width") if deep else ("height", "width")
    sizes = [
        "p.images", *(f"p.{axis}" for axis in axes), "p.channels", "p.filters",
        *(f"p.filter_{axis}" for axis in axes), *(f"p.out_{axis}" for axis in axes),
        *(f"p.{what}_{axis}" for what in ("pad", "stride", "dilation") for axis in axes),
    ]  # fmt: skip
    images = "dense<Tensor>(p.depth, p.height, p.width, p.channels)"
    filters = "dense<Tensor>(p.filter_depth, p.filter_height, p.filter_width, p.channels)"
    results = "dense<Tensor>(p.out_depth, p.out_height, p.out_width, p.filters)"
    a, b = {
        "forward": (images, filters),
        "data_gradient": (results, filters),
        "filter_gradient": (results, images),
    }[kernel.operation]
    arguments = "\n  ".join(written.arguments)
    height, columns, _ = kernel.tile
    build = f"""  {arguments}
  Size size({", ".join(sizes)}, cutlass::conv::Mode::kCrossCorrelation, p.splits, 1);
  typename Kernel::Params params{{size, {{}}, 0, 0, 0, Kernel::Mma::IteratorA::getParams(size, {a}),
      typename Kernel::Mma::IteratorB::Params(size, {b}),
      reinterpret_cast<typename Kernel::Mma::IteratorA::Element const*>(p.a),
      reinterpret_cast<typename Kernel::Mma::IteratorB::Element const*>(p.b), {{}}, {{}},
      reinterpret_cast<char*>(p.workspace), 0}};
  auto product = cutlass::conv::implicit_gemm_problem_size(Kernel::kOperator, size);
  Swizzle swizzle;
  params.tiles = swizzle.get_tiled_shape(product, {{{height}, {columns}, {kernel.tile[2]}}}, p.splits);
  params.log_tile = swizzle.get_log_tile(params.tiles);
  params.iterations = cutlass::conv::implicit_gemm_k_iterations(Kernel::kOperator, {kernel.tile[2]}, size,
      Kernel::Mma::IteratorA::kIteratorAlgorithm);
  params.iterations_per_channel = {"0" if deep else "cutlass::conv::implicit_gemm_k_iterations_per_channel("}
      {"" if deep else "Kernel::kOperator, size, Kernel::Mma::IteratorA::kIteratorAlgorithm)"};
  params.output = {written.root}::to_underlying_arguments(product, {written.variable}, nullptr);
  params.problem = {{product.m(), product.n(), 1}};
  unsigned long long tiles = (unsigned long long)(params.tiles.m()) * params.tiles.n();
  params.counters = (tiles * 4 + 255) / 256 * 256;
  out->accepted = Kernel::Mma::IteratorA::can_implement(size) == cutlass::Status::kSuccess
      && Kernel::Mma::IteratorB::can_implement(size) == cutlass::Status::kSuccess;
  atomr::put(out, params);
  atomr::put_launch(out, swizzle.get_grid_shape(params.tiles), dim3(Kernel::kThreads, 1, 1), dim3(1, 1, 1),
                    sizeof(typename Kernel::SharedStorage));
  out->workspace = p.splits > 1
      ? params.counters + tiles * Kernel::kThreads * sizeof(typename Kernel::Sums) : 0;
  out->zeroed = p.splits > 1 ? params.counters : 0;"""
    fields = [("ldd", "int64"), ("batch_d", "int64"), *written.fields]
    fields += [(name, "int32") for name in (*EXTENTS, "splits")]
    pointers = ["a", "b", "d", "workspace", *written.pointers]
    if kernel.c is not None:
        fields += [("ldc", "int64"), ("batch_c", "int64")]
        pointers.append("c")
    scalars = [node.name for node in walk(kernel.tree) if node.op == "scalar" and node.value == "host"]
    zeroing, takes = preparation(kernel, zeroes=True)
    header = f"cutlass/conv/kernel/default_conv{kernel.spatial}d_{_OPERATIONS[kernel.operation].lower()}.h"
    return source_of(
        [header, *_INCLUDES], body, _launch() + zeroing, build, fields, pointers, written.declared,
        tuple(dict.fromkeys(scalars)), takes,
    )  # fmt: skip
