"""The bytes of workspace that a plan may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["PREFERRED_WORKSPACE", "WorkspaceLimits"]

#: Bytes from which cuBLAS gains on Hopper, as NVIDIA recommends; on other GPUs it gains from fewer.
PREFERRED_WORKSPACE: Final = 32 << 20
#: Part of a device's memory that one plan may need at most.
_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """The two limits of a device.

    A plan is built within `preferred`; only a plan that cannot be built so is built within `most`.

    Attributes
    ----------
    preferred : int
        Bytes within which a library chooses among its algorithms.
    most : int
        Bytes that a plan may need.
    """

    preferred: int
    most: int

    def within(self, nbytes: int | None) -> WorkspaceLimits:
        """Return the limits of a plan that may have so many bytes; None: as many as the device allows."""
        if nbytes is None:
            return self
        return WorkspaceLimits(min(self.preferred, nbytes), min(self.most, nbytes))

    @classmethod
    def of(cls, given: int | None, total_memory: int) -> WorkspaceLimits:
        """Return the limits for ``System(workspace_limit=given)`` on a device with `total_memory` bytes."""
        if given is not None:
            return cls(given, given)
        return cls(PREFERRED_WORKSPACE, max(PREFERRED_WORKSPACE, total_memory // _SHARE))
