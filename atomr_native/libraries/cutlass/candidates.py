"""The kernels among which a tuned plan chooses: the heuristic's first, then other tiles, schedules and orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ...dtypes import as_dtype
from ...errors import Unsupported
from .attributes import KernelChoice
from .choice import ROW, Chosen, kernel_of
from .kernels import check
from .kernels.kernel import Kernel

if TYPE_CHECKING:
    from ...plans.spec import PlanSpec
    from .attributes import GemmAttributes

__all__ = ["MOST", "candidates"]

#: Most kernels that compile for a plan.
MOST: Final = 9
#: Tiles in M and N, clusters and schedules of sm_90a.
_SM90: Final = (
    ((128, 256), (2, 1, 1), "cooperative"),
    ((64, 256), (2, 1, 1), "pingpong"),
    ((128, 128), (2, 1, 1), "pingpong"),
    ((128, 128), (2, 1, 1), "cooperative"),
    ((256, 128), (2, 1, 1), "cooperative"),
    ((64, 128), (1, 1, 1), "pingpong"),
)
#: Tiles in M and N of sm_80.
_SM80: Final = ((128, 128), (128, 64), (64, 128), (64, 64))
#: Tiles whose sums are shared, if blocks would have at most so many each.
_SHARED: Final = ((128, 256), (128, 128))
_ORDERS: Final = (1, 2, 4, 8)
#: Blocks that share the sums of a tile of a convolution.
_SPLITS: Final = (1, 2, 4, 8, 16)
#: Fewest steps along K of each of them.
_STEPS: Final = 4


def _options(first: Chosen) -> Iterator[KernelChoice]:
    """Yield forms beside the heuristic's, which need not exist."""
    kernel = first.kernel
    k = ROW // as_dtype(first.problem.a.dtype).itemsize if first.turned else kernel.tile[2]
    if kernel.arch == "sm_80":
        for m, n in _SM80:
            yield KernelChoice(arch="sm_80", tile=(m, n, k))
        if kernel.family == "convolution":
            for splits in (n for n in _SPLITS if n * _STEPS * k <= first.problem.k):
                yield KernelChoice(arch="sm_80", tile=kernel.tile, decomposition="split_k", splits=splits)
        return
    same = "yes" if first.turned else "no"
    form = KernelChoice(arch="sm_90a", tile=kernel.tile, cluster=kernel.cluster, schedule=kernel.schedule, turned=same)
    if first.turned:
        columns = kernel.tile[1]
        for how in ("tiles", "stream_k"):
            yield replace(form, tile=(128, columns, k), schedule="cooperative", decomposition=how)
        for depth in (k, 2 * k):
            yield replace(form, tile=(64, columns, depth), schedule="pingpong", decomposition="tiles")
    for tile, cluster, schedule in _SM90:
        yield KernelChoice(arch="sm_90a", tile=(*tile, k), cluster=cluster, schedule=schedule, decomposition="tiles")
    for tile in _SHARED:
        yield KernelChoice(
            arch="sm_90a", tile=(*tile, k), cluster=(2, 1, 1), schedule="cooperative", decomposition="stream_k"
        )
    for order in _ORDERS:  # of tiles, which is no matter of the kernel
        yield replace(form, swizzle=order, decomposition="tiles")


def _agrees(one: KernelChoice, fixed: KernelChoice) -> bool:
    """Whether a form has all that the user fixed."""
    fields = KernelChoice.__struct_fields__
    return all(not getattr(fixed, name) or getattr(fixed, name) == getattr(one, name) for name in fields)


def candidates(spec: PlanSpec[GemmAttributes], capability: tuple[int, int]) -> tuple[KernelChoice, ...]:
    """Return the forms among which a plan chooses, the heuristic's first; each is another kernel, or another order.

    Raises
    ------
    Unsupported
        If no kernel computes the plan.
    """
    fixed = spec.attributes.choice
    first = kernel_of(spec, capability)
    found = {_key(first): fixed}
    for one in _options(first):
        if not _agrees(one, fixed):
            continue
        try:
            made = kernel_of(replace(spec, attributes=replace(spec.attributes, choice=one)), capability)
            check(made.kernel)
        except Unsupported:
            continue
        kernels = {kernel for kernel, *_ in found}
        if not _spills(made) and (made.kernel in kernels or len(kernels) < MOST):
            found.setdefault(_key(made), one)
    return tuple(found.values())


def _key(one: Chosen) -> tuple[Kernel, int, int]:
    return one.kernel, one.splits, one.swizzle


def _spills(one: Chosen) -> bool:
    """Whether the accumulators of a thread leave it no registers: exact sums of float8 have two sets of them."""
    kernel = one.kernel
    exact = kernel.arch == "sm_90a" and kernel.a.dtype.startswith("float8") and not kernel.fast_accumulation
    groups = 2 if kernel.schedule == "cooperative" else 1
    return exact and not kernel.mixed and kernel.tile[0] * kernel.tile[1] // (128 * groups) > 64
