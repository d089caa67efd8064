"""Products of matrices by the warp-specialised kernels of compute capability 9.0: TMA, ``wgmma``, clusters."""

from __future__ import annotations

from typing import Final

from . import tree
from .kernel import Kernel, walk
from .rendering import ENTRY, Rendered, preparation, source_of
from .types import CPP, LAYOUTS

__all__ = ["FIELDS", "HELPERS", "INCLUDES", "POINTERS", "collectives", "entry", "render"]

INCLUDES: Final = (
    "cute/tensor.hpp",
    "cutlass/cutlass.h",
    "cutlass/numeric_types.h",
    "cutlass/gemm/dispatch_policy.hpp",
    "cutlass/gemm/collective/collective_builder.hpp",
    "cutlass/epilogue/collective/collective_builder.hpp",
    "cutlass/gemm/kernel/gemm_universal.hpp",
    "cutlass/device_kernel.h",
)
FIELDS: Final = (
    ("lda", "int64"), ("ldb", "int64"), ("ldd", "int64"),
    ("batch_a", "int64"), ("batch_b", "int64"), ("batch_d", "int64"),
    ("m", "int32"), ("n", "int32"), ("k", "int32"), ("batch", "int32"),
    ("sm_count", "int32"), ("swizzle", "int32"), ("raster", "int32"),
)  # fmt: skip
POINTERS: Final = ("a", "b", "d", "workspace")
_C_FIELDS: Final = (("ldc", "int64"), ("batch_c", "int64"))

#: Strides of CuTe, and the builder of parameters.
HELPERS: Final = """
namespace {
template <class S> CUTE_DEVICE S strides_of(long long leading, long long batch) {
  S s{};
  if constexpr (cute::is_static<cute::remove_cvref_t<decltype(cute::get<0>(s))>>::value) cute::get<1>(s) = leading;
  else cute::get<0>(s) = leading;
  if constexpr (!cute::is_static<cute::remove_cvref_t<decltype(cute::get<2>(s))>>::value) cute::get<2>(s) = batch;
  return s;
}
template <class Kernel>
CUTE_DEVICE void build(atomr::Built* out, typename Kernel::Arguments const& given, void* workspace) {
  out->accepted = Kernel::can_implement(given);
  typename Kernel::Params params = Kernel::to_underlying_arguments(given, workspace);
  atomr::put(out, params);
  using Cluster = typename Kernel::DispatchPolicy::ClusterShape;
  atomr::put_launch(out, Kernel::get_grid_shape(params), Kernel::get_block_shape(),
                    dim3(cute::size<0>(Cluster{}), cute::size<1>(Cluster{}), cute::size<2>(Cluster{})),
                    Kernel::SharedStorageSize);
  out->workspace = Kernel::get_workspace_size(given);
}
}
"""


def shape(values: tuple[int, ...]) -> str:
    """Return a static shape of CuTe."""
    return f"cute::Shape<{', '.join(f'cute::_{value}' for value in values)}>"


def collectives(kernel: Kernel, grouped: bool, written: tree.Tree) -> str:
    """Return the types of main loop and epilogue."""
    star = "*" if grouped else ""
    prefix = "PtrArray" if grouped else ""
    kind = {"cooperative": "Cooperative", "pingpong": "Pingpong"}[kernel.schedule]
    schedule = f"cutlass::gemm::Kernel{prefix}TmaWarpSpecialized{kind}"
    if kernel.fast_accumulation:
        schedule += "FP8FastAccum"
    store = f"cutlass::epilogue::{prefix}TmaWarpSpecialized{kind}"
    if not grouped and kernel.schedule == "pingpong":
        store = "cutlass::epilogue::TmaWarpSpecialized"
    stages = (
        f"cute::Int<{kernel.stages}>"
        if kernel.stages
        else "cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>"
    )
    c, d = kernel.c or kernel.d, kernel.d
    element_c = CPP[c.dtype] if kernel.c else "void"
    a, b = kernel.a, kernel.b
    # Four bytes of float32 are read as TF32.
    element_a, element_b = (CPP["float32" if x.dtype == "tfloat32" else x.dtype] for x in (a, b))
    if kernel.scale:
        element_a = f"cute::tuple<{element_a}, {CPP[kernel.scale]}>"
    types = "\n".join(written.types)
    return f"""
using TileShape = {shape(kernel.tile)};
using ClusterShape = {shape(kernel.cluster)};
using EpilogueSchedule = {store};
using Descriptor = cutlass::epilogue::collective::detail::EpilogueDescriptor<TileShape,
    cutlass::epilogue::collective::EpilogueTileAuto, {element_c}, {CPP[d.dtype]}, EpilogueSchedule>;
{types}
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, {CPP[kernel.accumulator]}, {CPP[kernel.compute]},
    {element_c}, {LAYOUTS[d.layout]}{star}, {c.alignment}, {CPP[d.dtype]}, {LAYOUTS[d.layout]}{star},
    {d.alignment}, EpilogueSchedule, {written.root}>::CollectiveOp;
using MainLoop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, {element_a}, {LAYOUTS[a.layout]}{star}, {a.alignment},
    {element_b}, {LAYOUTS[b.layout]}{star}, {b.alignment}, {CPP[kernel.accumulator]}, TileShape, ClusterShape,
    {stages}, {schedule}>::CollectiveOp;
"""


def entry() -> str:
    """Return the kernel."""
    return f"""
extern "C" __global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)
{ENTRY}(__grid_constant__ typename Kernel::Params const params) {{
  extern __shared__ char shared[];
  Kernel kernel;
  kernel(params, shared);
}}
"""


def render(kernel: Kernel) -> Rendered:
    """Return the source of a product, batched or not."""
    written = tree.rendered(kernel)
    scheduler = "cutlass::gemm::StreamKScheduler" if kernel.decomposition == "stream_k" else "void"
    body = f"""{written.text()}
{collectives(kernel, False, written)}
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, MainLoop, Epilogue, {scheduler}>;
{HELPERS}"""
    arguments = "\n  ".join(written.arguments)
    source = ""
    fields, pointers = [*FIELDS, *written.fields], [*POINTERS, *written.pointers]
    if kernel.c is not None:
        source = """given.epilogue.ptr_C = reinterpret_cast<decltype(given.epilogue.ptr_C)>(p.c);
  given.epilogue.dC = strides_of<typename Kernel::StrideC>(p.ldc, p.batch_c);"""
        fields += _C_FIELDS
        pointers.append("c")
    build = f"""  typename Kernel::Arguments given{{}};
  given.mode = p.batch > 1 ? cutlass::gemm::GemmUniversalMode::kBatched : cutlass::gemm::GemmUniversalMode::kGemm;
  given.problem_shape = {{p.m, p.n, p.k, p.batch}};
  given.mainloop.ptr_A = reinterpret_cast<decltype(given.mainloop.ptr_A)>(p.a);
  given.mainloop.ptr_B = reinterpret_cast<decltype(given.mainloop.ptr_B)>(p.b);
  given.mainloop.dA = strides_of<typename Kernel::StrideA>(p.lda, p.batch_a);
  given.mainloop.dB = strides_of<typename Kernel::StrideB>(p.ldb, p.batch_b);
  {source}
  given.epilogue.ptr_D = reinterpret_cast<decltype(given.epilogue.ptr_D)>(p.d);
  given.epilogue.dD = strides_of<typename Kernel::StrideD>(p.ldd, p.batch_d);
  {arguments}
  given.epilogue.thread = {written.variable};
  given.hw_info.sm_count = p.sm_count;
  given.scheduler.max_swizzle_size = p.swizzle;
  given.scheduler.raster_order = static_cast<decltype(given.scheduler.raster_order)>(p.raster);"""
    if kernel.scale:
        fields += [("ld_scale", "int64"), ("batch_scale", "int64"), ("group", "int32")]
        pointers.append("scale")
        build += f"""
  given.mainloop.ptr_S = reinterpret_cast<{CPP[kernel.scale]} const*>(p.scale);
  given.mainloop.dS = {{{{}}, p.ld_scale, p.batch_scale}};
  given.mainloop.group_size = p.group;"""
    if kernel.decomposition == "stream_k":
        fields.append(("splits", "int32"))
        build += "\n  given.scheduler.splits = p.splits;"
        build += """
  using Params = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams;
  given.scheduler.decomposition_mode = p.splits > 1 ? Params::DecompositionMode::SplitK
                                                    : Params::DecompositionMode::StreamK;"""
    build += "\n  build<Kernel>(out, given, reinterpret_cast<void*>(p.workspace));"
    if kernel.decomposition == "stream_k":
        build += "\n  out->zeroed = out->workspace;"
    zeroing, takes = preparation(kernel, zeroes=kernel.decomposition == "stream_k")
    scalars = [node.name for node in walk(kernel.tree) if node.op == "scalar" and node.value == "host"]
    return source_of(
        INCLUDES,
        body,
        entry() + zeroing,
        build,
        fields,
        pointers,
        written.declared,
        tuple(dict.fromkeys(scalars)),
        takes,
    )
