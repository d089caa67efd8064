"""Changes to CUTLASS's headers, made in memory, and the headers that the changed ones and all sources include.

NVRTC lacks host functions and parts of the standard library.  Each change replaces a text that must occur exactly once,
so another version of CUTLASS is refused instead of being compiled to other results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import Unsupported

__all__ = ["CHANGES", "Change", "changed", "digest"]


class Change(NamedTuple):
    """A text of a header, and its replacement."""

    header: str
    old: str
    new: str


_DECLARED_BY_CCCL: Final = """\
#if defined(__CUDACC_RTC__)
template <class... _Tp>
struct tuple_size;

template <size_t _Ip, class... _Tp>
struct tuple_element;
#endif
"""
_TUPLE_ELEMENT: Final = """\
template <size_t I, class... T>
struct tuple_element<I, cute::tuple<T...>>
    : CUTE_STL_NAMESPACE::tuple_element<I, CUTE_STL_NAMESPACE::tuple<T...>>
{};

} // end namespace CUTE_STL_NAMESPACE
"""


def _elements(count: int) -> Iterator[str]:
    """Yield specialisations for the first elements of a tuple, which need no recursion: a quarter of the time."""
    for index in range(count):
        before = "".join(f"class T{i}, " for i in range(index))
        names = "".join(f"T{i}, " for i in range(index))
        yield (
            f"template <{before}class T{index}, class... R> struct tuple_element<{index}, "
            f"cute::tuple<{names}T{index}, R...>> {{ using type = T{index}; }};\n"
        )


_TMA: Final = "cute/atom/copy_traits_sm90_tma.hpp"
_SCHEDULER: Final = "cutlass/gemm/kernel/tile_scheduler_params.h"

CHANGES: Final = (
    # CCCL declares these itself, with other parameters in later versions.
    *(
        Change(header, _DECLARED_BY_CCCL, "")
        for header in (
            "cute/container/array.hpp", "cute/container/array_subbyte.hpp", "cute/container/tuple.hpp",
            "cute/container/type_list.hpp", "cute/numeric/arithmetic_tuple.hpp",
        )
    ),
    Change("cute/container/tuple.hpp", _TUPLE_ELEMENT, _TUPLE_ELEMENT.replace(
        "{};\n\n", "{};\n" + "".join(_elements(10)) + "\n")),
    # WMMA would need a header of nvcc's package.
    Change("cutlass/arch/wmma.h", "#define CUTLASS_ARCH_WMMA_ENABLED\n",
           "#if !defined(__CUDACC_RTC__)\n#define CUTLASS_ARCH_WMMA_ENABLED\n#endif\n"),
    # The driver encodes tensor maps, on the host: their place in the parameters gets a description.
    Change(_TMA, "namespace cute\n{\n\ntemplate <class GmemTmaBasisStrides_, class TmaGmemBasis_, class TmaSwizzle_>",
           '#include "atomr/tensor_map.h"\n\nnamespace cute\n{\n\n'
           "template <class GmemTmaBasisStrides_, class TmaGmemBasis_, class TmaSwizzle_>"),
    Change(_TMA, "  #endif // (__CUDACC_VER_MAJOR__ >= 12) && !defined(__CUDACC_RTC__)\n  auto recast_ratio",
           "  #endif // (__CUDACC_VER_MAJOR__ >= 12) && !defined(__CUDACC_RTC__)\n"
           "    atomr::describe<TmaInternalType>(tma_desc, tma_dim, gmem_address, gmem_prob_shape, gmem_prob_stride,\n"
           "        smem_box_shape, smem_box_stride, int(get_tma_swizzle_bits(swizzle)),\n"
           "        int(get_tma_swizzle_base(swizzle)));\n"
           "  auto recast_ratio"),
    # The sizes of stream-K's workspace are computed by host code only.
    Change(_SCHEDULER, "  #if !defined(__CUDACC_RTC__)\n  static void\n  get_workspace_component_sizes(",
           "  #if 1\n  static void\n  get_workspace_component_sizes("),
    Change(_SCHEDULER, "    size_t reduction_workspace_size = 0;\n\n    #if !defined(__CUDACC_RTC__)\n",
           "    size_t reduction_workspace_size = 0;\n\n    #if 1\n"),
    # The number of multiprocessors is an argument.
    Change("cutlass/kernel_hardware_info.h", "    return {device_id, sm_count, max_active_clusters};\n  }\n#endif",
           "    return {device_id, sm_count, max_active_clusters};\n  }\n#else\n"
           "  CUTLASS_HOST_DEVICE static int query_device_multiprocessor_count(int = 0) { return 0; }\n#endif"),
)  # fmt: skip

_PRELUDE: Final = r"""#pragma once
// Names of the standard library that CUTLASS uses, and NVRTC lacks.
#include <cuda/std/array>
#include <cuda/std/cstdint>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
struct CUstream_st;
typedef CUstream_st* cudaStream_t;
namespace std {
using ::cuda::std::is_const_v;
using ::cuda::std::is_integral_v;
using ::cuda::std::is_pointer_v;
template <class... T> using void_t = ::cuda::std::void_t<T...>;
}
#include "cutlass/trace.h"
#include "cute/container/tuple.hpp"
#include "cute/numeric/arithmetic_tuple.hpp"
namespace std {
// For structured bindings of constant tuples.
template <class... T>
struct tuple_size<const cute::tuple<T...>> : ::cuda::std::integral_constant<size_t, sizeof...(T)> {};
template <size_t I, class... T>
struct tuple_element<I, const cute::tuple<T...>> {
  using type = const typename ::cuda::std::tuple_element<I, cute::tuple<T...>>::type;
};
}
"""

_TENSOR_MAP: Final = r"""#pragma once
namespace atomr {
// The arguments of cuTensorMapEncodeTiled, in the place of the map; compile/cutlass/parameters.py reads them.
struct alignas(64) MapDescription {
  unsigned long long mark, address, extent[5], stride[4];
  unsigned box[5];
  unsigned char step[5], type, rank, swizzle;
  unsigned char unused[12];
};
static_assert(sizeof(MapDescription) == 128);

template <class T> CUTE_HOST_DEVICE constexpr unsigned char map_type() {
  using namespace cute;
  if constexpr (is_same_v<T, uint16_t>) return 1;
  else if constexpr (is_same_v<T, uint32_t>) return 2;
  else if constexpr (is_same_v<T, int32_t>) return 3;
  else if constexpr (is_same_v<T, uint64_t>) return 4;
  else if constexpr (is_same_v<T, int64_t>) return 5;
  else if constexpr (is_same_v<T, cutlass::half_t>) return 6;
  else if constexpr (is_same_v<T, float>) return 7;
  else if constexpr (is_same_v<T, double>) return 8;
  else if constexpr (is_same_v<T, cutlass::bfloat16_t>) return 9;
  else if constexpr (is_same_v<T, cutlass::tfloat32_t>) return 11;
  else { static_assert(sizeof(T) == 1, "no tensor map has elements of this type"); return 0; }
}

template <class T, class Map, class Extents, class Strides, class Box, class Steps>
CUTE_HOST_DEVICE void describe(Map& map, int rank, void* address, Extents const& extents, Strides const& strides,
                               Box const& box, Steps const& steps, int swizzle_bits, int swizzle_base) {
  static_assert(sizeof(Map) == sizeof(MapDescription));
  MapDescription d{};
  d.mark = 0x50414d524d4f5441ull;
  d.address = reinterpret_cast<unsigned long long>(address);
  for (int i = 0; i < 5; ++i) {
    d.extent[i] = extents[i];
    d.box[i] = box[i];
    d.step[i] = static_cast<unsigned char>(steps[i]);
    if (i > 0) d.stride[i - 1] = strides[i];
  }
  d.type = map_type<T>();
  d.rank = static_cast<unsigned char>(rank);
  d.swizzle = static_cast<unsigned char>(swizzle_bits + (swizzle_bits == 3 ? swizzle_base : 0));
  reinterpret_cast<MapDescription&>(map) = d;
}
}
"""

_BUILT: Final = r"""#pragma once
namespace atomr {
// The result of a parameter builder; compile/cutlass/parameters.py reads it.
struct Built {
  int accepted;
  unsigned grid[3], block[3], cluster[3];
  unsigned shared, size;
  unsigned long long workspace, zeroed;
  alignas(256) unsigned char data[4096];
};

template <class Params> __device__ void put(Built* out, Params const& params) {
  static_assert(sizeof(Params) <= sizeof(out->data) && sizeof(Params) % 4 == 0);
  auto from = reinterpret_cast<unsigned const*>(&params);
  auto to = reinterpret_cast<unsigned*>(out->data);
  for (unsigned i = 0; i < sizeof(Params) / 4; ++i) to[i] = from[i];
  out->size = sizeof(Params);
  out->zeroed = 0;
}

__device__ inline void put_launch(Built* out, dim3 grid, dim3 block, dim3 cluster, unsigned shared) {
  out->grid[0] = grid.x; out->grid[1] = grid.y; out->grid[2] = grid.z;
  out->block[0] = block.x; out->block[1] = block.y; out->block[2] = block.z;
  out->cluster[0] = cluster.x; out->cluster[1] = cluster.y; out->cluster[2] = cluster.z;
  out->shared = shared;
}
}
"""

#: Headers that are our own, by the names in which they are included.
OWN: Final = {"atomr/prelude.h": _PRELUDE, "atomr/tensor_map.h": _TENSOR_MAP, "atomr/built.h": _BUILT}


def changed(include: Path, changes: Iterable[Change] = CHANGES) -> dict[str, str]:
    """Return the headers for NVRTC, by name: CUTLASS's changed ones, and our own.

    Parameters
    ----------
    include : Path
        The folder of CUTLASS's headers.
    changes : iterable of Change

    Raises
    ------
    Unsupported
        If a header is missing, or does not have a text exactly once.
    """
    texts = dict(OWN)
    for change in changes:
        text = texts.get(change.header)
        if text is None:
            try:
                text = (include / change.header).read_text(encoding="utf-8")
            except OSError as error:
                raise Unsupported(f"CUTLASS's header {change.header} cannot be read: {error}") from None
        count = text.count(change.old)
        if count != 1:
            raise Unsupported(
                f"CUTLASS's header {change.header} has {count} times, instead of once, the text "
                f"{change.old.strip()[:100]!r}; install nvidia-cutlass 4.2"
            )
        texts[change.header] = text.replace(change.old, change.new)
    return texts


def digest(texts: dict[str, str]) -> str:
    """Return a digest of headers."""
    found = hashlib.sha256()
    for name, text in sorted(texts.items()):
        data = text.encode()
        found.update(f"{name} {len(data)}\n".encode() + data)
    return found.hexdigest()
