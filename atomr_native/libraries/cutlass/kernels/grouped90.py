"""Grouped products by the warp-specialised kernels of compute capability 9.0.

A small kernel describes the groups, with extents, addresses and strides in arrays at the beginning of the workspace.
The persistent kernel reads these, and changes its tensor maps from group to group.
"""

from __future__ import annotations

from typing import Final

from . import tree
from .gemm90 import HELPERS, INCLUDES, collectives, entry
from .kernel import Kernel, Node, walk
from .rendering import SETUP, Rendered, source_of
from .types import BITS

__all__ = ["render"]

_INCLUDES: Final = (*INCLUDES, "cutlass/gemm/group_array_problem_shape.hpp")
_FIELDS: Final = (("groups", "int32"), ("sm_count", "int32"), ("swizzle", "int32"), ("raster", "int32"))
_ARGUMENTS: Final = ("groups", "m", "n", "k", "lda", "ldb", "batch_b", "ldd")


def render(kernel: Kernel) -> Rendered:
    """Return the source of a grouped product."""
    written = tree.rendered(kernel)
    columns = {node.name: node for node in written.columns}
    matrices = ["a", "b", *(["c"] if kernel.c is not None else []), "d"]
    # Arrays of 8 bytes for each group: addresses, strides; then extents.
    arrays = [f"ptr_{name}" for name in (*matrices, *columns)] + [f"stride_{name}" for name in matrices]
    body = f"""{written.text()}
{collectives(kernel, True, written)}
using Groups = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Groups, MainLoop, Epilogue>;
using Extents = typename Groups::UnderlyingProblemShape;
{HELPERS}"""
    pointer = {name: f"address + {place} * groups * 8ull" for place, name in enumerate((*arrays, "extents"))}
    wanted = ["offsets", *matrices, *columns, "workspace", *_ARGUMENTS, *(["ldc"] if kernel.c is not None else [])]
    kernels = f"{entry()}\n{_setup(kernel, wanted, matrices, columns, pointer)}"
    columned = "\n  ".join(f"unsigned long long columns_{name} = {pointer[f'ptr_{name}']};" for name in columns)
    arguments = "\n  ".join(written.arguments)
    source = ""
    if kernel.c is not None:
        source = f"""given.epilogue.ptr_C = reinterpret_cast<decltype(given.epilogue.ptr_C)>({pointer["ptr_c"]});
  given.epilogue.dC = reinterpret_cast<decltype(given.epilogue.dC)>({pointer["stride_c"]});"""
    build = f"""  unsigned long long address = p.workspace, groups = p.groups;
  unsigned long long head = (groups * {8 * len(arrays) + 12}ull + 255) / 256 * 256;
  typename Kernel::Arguments given{{}};
  given.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  given.problem_shape = {{p.groups, reinterpret_cast<Extents*>({pointer["extents"]}), nullptr}};
  given.mainloop.ptr_A = reinterpret_cast<decltype(given.mainloop.ptr_A)>({pointer["ptr_a"]});
  given.mainloop.ptr_B = reinterpret_cast<decltype(given.mainloop.ptr_B)>({pointer["ptr_b"]});
  given.mainloop.dA = reinterpret_cast<decltype(given.mainloop.dA)>({pointer["stride_a"]});
  given.mainloop.dB = reinterpret_cast<decltype(given.mainloop.dB)>({pointer["stride_b"]});
  {source}
  given.epilogue.ptr_D = reinterpret_cast<decltype(given.epilogue.ptr_D)>({pointer["ptr_d"]});
  given.epilogue.dD = reinterpret_cast<decltype(given.epilogue.dD)>({pointer["stride_d"]});
  {columned}
  {arguments}
  given.epilogue.thread = {written.variable};
  given.hw_info.sm_count = p.sm_count;
  given.scheduler.max_swizzle_size = p.swizzle;
  given.scheduler.raster_order = static_cast<decltype(given.scheduler.raster_order)>(p.raster);
  build<Kernel>(out, given, reinterpret_cast<void*>(address + head));
  out->workspace += head;"""
    scalars = [node.name for node in walk(kernel.tree) if node.op == "scalar" and node.value == "host"]
    return source_of(
        _INCLUDES, body, kernels, build, [*_FIELDS, *written.fields], ["workspace", *written.pointers],
        written.declared, tuple(dict.fromkeys(scalars)), wanted,
    )  # fmt: skip


def _setup(
    kernel: Kernel, wanted: list[str], matrices: list[str], columns: dict[str, Node], pointer: dict[str, str]
) -> str:
    """Return the kernel that describes the groups, with a thread for each."""
    names = {"a": "Kernel::InternalStrideA", "b": "Kernel::InternalStrideB", "c": "Kernel::InternalStrideC",
             "d": "Kernel::InternalStrideD"}  # fmt: skip
    types = {"a": kernel.a.dtype, "b": kernel.b.dtype, "c": (kernel.c or kernel.d).dtype, "d": kernel.d.dtype}
    lines = []
    for name in matrices:
        step = "group * batch_b" if name == "b" else f"begin * ld{name}"
        lines.append(
            f"reinterpret_cast<unsigned long long*>({pointer[f'ptr_{name}']})[group] = "
            f"{name} + {step} * {BITS[types[name]] // 8}ll;"
        )
        lines.append(
            f"reinterpret_cast<typename {names[name]}*>({pointer[f'stride_{name}']})[group] = "
            f"strides_of<typename {names[name]}>(ld{name}, 0);"
        )
        lines.append(f"static_assert(sizeof(typename {names[name]}) == 8);")
    lines += [
        f"reinterpret_cast<unsigned long long*>({pointer[f'ptr_{name}']})[group] = "
        f"{name} + begin * {BITS[node.dtype] // 8}ll;"
        for name, node in columns.items()
    ]
    offset = {"int32": "int", "int64": "long long"}[kernel.offsets]
    types_ = ", ".join(
        f"{'long long' if name in _ARGUMENTS or name == 'ldc' else 'unsigned long long'} {name}" for name in wanted
    )
    return f"""
extern "C" __global__ void {SETUP}({types_}) {{
  long long group = blockIdx.x * (long long)(blockDim.x) + threadIdx.x;
  if (group >= groups) return;
  unsigned long long address = workspace;
  auto ends = reinterpret_cast<{offset} const*>(offsets);
  auto bounded = [&](long long end) {{ return end < 0 ? 0 : end > m ? m : end; }};
  long long begin = group ? bounded(ends[group - 1]) : 0, end = bounded(ends[group]);
  reinterpret_cast<Extents*>({pointer["extents"]})[group] = Extents(end > begin ? end - begin : 0, n, k);
  {(chr(10) + "  ").join(lines)}
}}
"""
