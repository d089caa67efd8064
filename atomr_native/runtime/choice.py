"""The choice of a device for new work: by load, by turns, by a key, or by where its arrays lie."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, Final, Literal, TypeAlias

from .._lib.sender import OPEN, RESTARTING
from .._support.checks import check_choice
from ..arrays.gpu_ref import GpuRef
from ..errors import DeviceLost, InvalidRequest

__all__ = ["Chooser", "Policy", "load_of"]

Policy: TypeAlias = Literal["least_loaded", "round_robin", "by_key"]
_POLICIES: Final = ("least_loaded", "round_robin", "by_key")


def load_of(owner: Any) -> tuple[int, int]:
    """Return (messages that are not resolved, minus the free bytes) of a device: the less, the better for new work."""
    core = owner.core
    stats = [core.lane_stats(lane) for lane in list(core.lane_names)]
    pools = owner.memory.segments.pool_stats()
    used = pools["volatile"]["in_use"] + pools["durable"]["in_use"]
    return sum(lane["sent"] - lane["completed"] for lane in stats), used - owner.memory.limit


class Chooser:
    """Chooses devices for `System.place`."""

    def __init__(self) -> None:
        self._turn = itertools.count()

    def choose(
        self, owners: Sequence[Any], near: GpuRef | Sequence[GpuRef] | None, policy: Policy, key: Hashable
    ) -> Any:
        """Return one of the devices, given by their internal states.

        Raises
        ------
        InvalidRequest, DeviceLost
        """
        check_choice("policy", policy, _POLICIES)
        if (policy == "by_key") != (key is not None):
            raise InvalidRequest(f"policy={policy!r} with key={key!r}; allowed: a key with policy='by_key' only")
        usable = [owner for owner in owners if owner.core.state in (OPEN, RESTARTING)]
        if not usable:
            names = ", ".join(owner.name for owner in owners) or "none"
            raise DeviceLost(f"no device can take work; given: {names}")
        if near is not None:
            usable = _nearest(usable, near)
        if policy == "by_key":
            return max(usable, key=lambda owner: _score(owner.name, key))
        if policy == "round_robin":
            return usable[next(self._turn) % len(usable)]
        return min(usable, key=load_of)


def _nearest(owners: list[Any], near: GpuRef | Sequence[GpuRef]) -> list[Any]:
    """Return the devices that hold the most bytes of some arrays; all, if none holds any."""
    refs = [near] if isinstance(near, GpuRef) else near
    if not isinstance(refs, Sequence) or not all(isinstance(ref, GpuRef) for ref in refs):
        raise InvalidRequest(f"near={near!r:.200}; allowed: a GpuRef, or a sequence of them")
    held = [sum(ref.nbytes for ref in refs if ref.allocation.core is owner.core) for owner in owners]
    return [owner for owner, nbytes in zip(owners, held, strict=True) if nbytes == max(held)]


def _score(name: str, key: Hashable) -> bytes:
    """Rank a device for a key, the same in every process: if a device leaves, only its own keys move."""
    if not isinstance(key, str | bytes | int | tuple):
        raise InvalidRequest(f"key={key!r}; allowed: a str, bytes, int, or a tuple of them")
    import hashlib  # at first use, since it loads OpenSSL

    return hashlib.blake2b(repr((name, key)).encode(), digest_size=8).digest()
