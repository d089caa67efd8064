"""Products of matrices by multistage kernels: ``cp.async`` and ``mma``, from compute capability 8.0 on."""

from __future__ import annotations

from typing import Final

from . import tree
from .kernel import Kernel, walk
from .rendering import ENTRY, Rendered, preparation, source_of
from .types import BITS, CPP, LAYOUTS

__all__ = ["INCLUDES", "INSTRUCTIONS", "launch", "mapped", "operation", "render", "vector", "warps"]

#: Headers of CUTLASS.
INCLUDES: Final = (
    "cutlass/cutlass.h",
    "cutlass/numeric_types.h",
    "cutlass/gemm/kernel/default_gemm_universal_with_visitor.h",
    "cutlass/gemm/threadblock/threadblock_swizzle.h",
    "cutlass/epilogue/threadblock/fusion/visitors.hpp",
)
_FIELDS: Final = (
    ("lda", "int64"), ("ldb", "int64"), ("ldd", "int64"),
    ("batch_a", "int64"), ("batch_b", "int64"), ("batch_d", "int64"),
    ("m", "int32"), ("n", "int32"), ("k", "int32"), ("batch", "int32"), ("sm_count", "int32"),
)  # fmt: skip
_C_FIELDS: Final = (("ldc", "int64"), ("batch_c", "int64"))
#: Fewest elements of int8 that a thread stores at once, where D's type says how threads are spread.
_FEWEST: Final = 4
#: M, N and K of an instruction of the tensor cores, by the dtype of A and B.
INSTRUCTIONS: Final = {
    "float64": (8, 8, 4), "float32": (16, 8, 8), "tfloat32": (16, 8, 8), "float16": (16, 8, 16),
    "bfloat16": (16, 8, 16), "int8": (16, 8, 32), "uint8": (16, 8, 32),
}  # fmt: skip


def warps(kernel: Kernel) -> tuple[int, ...]:
    """Return M, N and K of a warp: as given, or a block's halves, at most 64 x 64."""
    if kernel.warps:
        return kernel.warps
    m, n, k = kernel.tile
    most = 32 if kernel.accumulator == "float64" else 64
    return min(most, max(32, m // 2)), min(64, max(32, n // 2)), k


def operation(kernel: Kernel) -> str:
    """Return the operation of the instructions."""
    if kernel.accumulator == "int32":
        return "cutlass::arch::OpMultiplyAddSaturate"
    # float32 by three products of TF32.
    return "cutlass::arch::OpMultiplyAddFastF32" if kernel.a.dtype == "float32" else "cutlass::arch::OpMultiplyAdd"


def vector(kernel: Kernel) -> int:
    """Return the number of elements of D that a thread loads and stores at once, which all arrays allow."""
    widths = [kernel.d.alignment, 128 // BITS[kernel.d.dtype]]
    if kernel.c is not None:
        widths.append(kernel.c.alignment)
    widths += [node.alignment for node in walk(kernel.tree) if node.op in ("tensor", "aux_store", "row")]
    return min(widths)


def mapped(kernel: Kernel) -> str:
    """Return the type by which threads are spread over D: CUTLASS has no spread for a few bytes of int8."""
    return CPP["int32" if kernel.d.dtype == "int8" and vector(kernel) < _FEWEST else kernel.d.dtype]


def shape(values: tuple[int, ...]) -> str:
    """Return a shape of CUTLASS 2."""
    return f"cutlass::gemm::GemmShape<{', '.join(map(str, values))}>"


def launch() -> str:
    """Return the kernel."""
    return f"""
extern "C" __global__ void __launch_bounds__(Kernel::kThreadCount)
{ENTRY}(__grid_constant__ typename Kernel::Params const params) {{
  extern __shared__ char shared[];
  Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared));
}}
"""


def render(kernel: Kernel) -> Rendered:
    """Return the source of a product, batched or not."""
    written = tree.rendered(kernel)
    a, b = kernel.a, kernel.b
    width = vector(kernel)
    streams = kernel.decomposition != "tiles"
    swizzle = (
        "cutlass::gemm::threadblock::ThreadblockSwizzleStreamK"
        if streams
        else f"cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<{kernel.swizzle}>"
    )
    none = "cutlass::ComplexTransform::kNone"
    body = f"""{written.text()}
using Block = {shape(kernel.tile)};
using Warp = {shape(warps(kernel))};
using ThreadMap = cutlass::epilogue::threadblock::OutputTileThreadLayout<Block, Warp, {mapped(kernel)}, {width}, 1>;
{chr(10).join(written.types)}
using Kernel = typename cutlass::gemm::kernel::DefaultGemmWithVisitor<
    {CPP[a.dtype]}, {LAYOUTS[a.layout]}, {none}, {a.alignment}, {CPP[b.dtype]}, {LAYOUTS[b.layout]}, {none},
    {b.alignment},
    {mapped(kernel)}, cutlass::layout::RowMajor, {width}, {CPP[kernel.accumulator]}, {CPP[kernel.compute]},
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Block, Warp, {shape(INSTRUCTIONS[a.dtype])}, {written.root},
    {swizzle}, {kernel.stages or 3}, {operation(kernel)}, 1>::GemmKernel;
"""
    fields, pointers = [*_FIELDS, *written.fields], ["a", "b", "d", "workspace", *written.pointers]
    if kernel.c is not None:
        fields += _C_FIELDS
        pointers.append("c")
    arguments = "\n  ".join(written.arguments)
    build = f"""  {arguments}
  auto mode = p.batch > 1 ? cutlass::gemm::GemmUniversalMode::kBatched : cutlass::gemm::GemmUniversalMode::kGemm;
  int shares = p.batch > 1 ? p.batch : {"p.splits" if streams else "1"};
  typename Kernel::Arguments given(mode, {{p.m, p.n, p.k}}, shares, {written.variable},
      reinterpret_cast<void const*>(p.a), reinterpret_cast<void const*>(p.b), nullptr, reinterpret_cast<void*>(p.d),
      p.batch_a, p.batch_b, 0, p.batch_d, p.lda, p.ldb, 0, p.ldd{", p.sm_count" if streams else ""});
  out->accepted = Kernel::can_implement({{p.m, p.n, p.k}}) == cutlass::Status::kSuccess;
"""
    if streams:
        fields.append(("splits", "int32"))
        build += """  struct Opened : Kernel::Params {
    using Kernel::Params::Params;
    unsigned long long partial_bytes() const { return this->get_partials_workspace_size(); }
  } params(given, p.sm_count, 1);
  char* workspace = reinterpret_cast<char*>(p.workspace);
  unsigned long long barriers = params.get_workspace_size() - params.partial_bytes();
  barriers = (barriers + 127) / 128 * 128;
  params.barrier_workspace = workspace;
  params.partials_workspace = workspace + barriers;
"""
    else:
        build += "  typename Kernel::Params params(given, p.sm_count, 1);\n"
    build += """  atomr::put(out, static_cast<typename Kernel::Params const&>(params));
  atomr::put_launch(out, params.get_grid_dims(),
                    dim3(Kernel::kThreadCount, 1, 1), dim3(1, 1, 1), sizeof(typename Kernel::SharedStorage));
"""
    build += f"  out->workspace = {'barriers + params.partial_bytes()' if streams else '0'};\n"
    if streams:
        build += "  out->zeroed = barriers;\n"
    zeroing, takes = preparation(kernel, zeroes=streams)
    scalars = [node.name for node in walk(kernel.tree) if node.op == "scalar" and node.value == "host"]
    return source_of(
        INCLUDES,
        body,
        launch() + zeroing,
        build,
        fields,
        pointers,
        written.declared,
        tuple(dict.fromkeys(scalars)),
        takes,
    )
