"""What a user may fix of a kernel: generation, tile, cluster, schedule, stages."""

from __future__ import annotations

from dataclasses import dataclass

from ..._support.checks import as_integer, check_choice, is_integer
from ..._support.public import public
from ...errors import InvalidRequest
from .attributes import KernelChoice

__all__ = ["GemmConfig"]

_MOST_TILE, _MOST_CLUSTER, _MOST_STAGES, _MOST_SWIZZLE, _MOST_SPLITS = 512, 4, 16, 8, 4096


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConfig:
    """How a product is computed, as far as the heuristics shall not choose it.

    Attributes
    ----------
    arch : {None, "sm_80", "sm_90a"}
        Generation of the templates: asynchronous copies by threads, which every supported GPU runs, or tensor memory
        accesses by a warp of their own, for compute capability 9.0.
    tile : tuple of int, optional
        Rows and columns of D, and extent of K, that a block works on.
    cluster : tuple of int, optional
        Blocks of a cluster along D's rows and columns, and 1; of ``"sm_90a"``.
    schedule : {None, "cooperative", "pingpong", "multistage"}
        Whether two groups of warps share a tile, or take turns with tiles, for ``"sm_90a"``; ``"multistage"`` for
        ``"sm_80"``.
    stages : int, optional
        Of the pipeline of loads.
    swizzle : int, optional
        1, 2, 4 or 8: how tiles follow each other, so that those at work together share operands in the cache.
    decomposition : {None, "tiles", "stream_k", "split_k"}
        Whether a block computes tiles alone; or all blocks get equal shares of the work, so that two or more may share
        a tile's sums; or `splits` blocks share each tile.
    splits : int, optional
        Of ``"split_k"``, which it implies: 1 to 4096.  Blocks sum a part of K each, so the order of sums is another.

    Raises
    ------
    InvalidRequest
        For values out of these ranges.  Whether a kernel of this form exists is known when it is rendered.

    Examples
    --------
    >>> an.GemmConfig(tile=(128, 128, 64), cluster=(2, 1, 1), schedule="pingpong").tile
    (128, 128, 64)
    >>> an.GemmConfig(tile=(100, 128, 64))
    Traceback (most recent call last):
        ...
    atomr_native.InvalidRequest: tile is (100, 128, 64); it must be 3 multiples of 8 up to 512
    """

    arch: str | None = None
    tile: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    schedule: str | None = None
    stages: int | None = None
    swizzle: int | None = None
    decomposition: str | None = None
    splits: int | None = None

    def __post_init__(self) -> None:
        if self.arch is not None:
            check_choice("arch", self.arch, ("sm_80", "sm_90a"))
        if self.schedule is not None:
            check_choice("schedule", self.schedule, ("cooperative", "pingpong", "multistage"))
        if self.tile is not None:
            object.__setattr__(self, "tile", _three("tile", self.tile, 8, _MOST_TILE, "3 multiples of 8 up to 512"))
        if self.cluster is not None:
            found = _three("cluster", self.cluster, 1, _MOST_CLUSTER, "(1, 2 or 4, 1, 2 or 4, 1)")
            if found[2] != 1 or 3 in found:
                raise InvalidRequest(f"cluster is {self.cluster}; it must be (1, 2 or 4, 1, 2 or 4, 1)")
            object.__setattr__(self, "cluster", found)
        if self.decomposition is not None:
            check_choice("decomposition", self.decomposition, ("tiles", "stream_k", "split_k"))
        if self.splits is not None:
            object.__setattr__(self, "splits", as_integer("splits", self.splits, 1, _MOST_SPLITS))
            if self.decomposition not in (None, "split_k"):
                raise InvalidRequest(f"splits={self.splits} with decomposition={self.decomposition!r}; allowed: "
                                     "'split_k'")  # fmt: skip
        elif self.decomposition == "split_k":
            raise InvalidRequest("splits is None with decomposition='split_k'; allowed: 1 to 4096")
        for name, allowed in (("stages", range(2, _MOST_STAGES + 1)), ("swizzle", (1, 2, 4, _MOST_SWIZZLE))):
            value = getattr(self, name)
            if value is not None and (not is_integer(value) or value not in allowed):
                raise InvalidRequest(f"{name}={value!r}; allowed: None, {', '.join(map(str, allowed))}")

    def choice(self) -> KernelChoice:
        """Return it as plans have it."""
        return KernelChoice(
            self.arch or "", self.tile, self.cluster, self.schedule or "", self.stages or 0, self.swizzle or 0,
            self.decomposition or ("split_k" if self.splits else ""), self.splits or 0,
        )  # fmt: skip


def _three(option: str, value: object, unit: int, most: int, allowed: str) -> tuple[int, int, int]:
    items = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(items) != 3 or any(not is_integer(item) or item % unit or not unit <= item <= most for item in items):
        raise InvalidRequest(f"{option} is {value!r}; it must be {allowed}")
    return int(items[0]), int(items[1]), int(items[2])
