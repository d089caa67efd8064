"""The context of builders of CUDA plans."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import AtomrError, Unsupported
from ...plans.workspace_limits import PREFERRED_WORKSPACE
from .target import Target

if TYPE_CHECKING:
    from ..._lib.cuda import CudaBackend

__all__ = ["CudaContext", "library_file"]


@dataclass(frozen=True, slots=True)
class CudaContext:
    """A CUDA device as builders see it: the target of compilation, and the backend on which libraries are opened.

    Attributes
    ----------
    target : Target
        Architecture and number of multiprocessors.
    workspace_limit : int
        Bytes of workspace that the plan may need.  A builder that needs more raises `Unsupported` with ``lifted_by=``
        ``("workspace_limit", ...)``; it is called again with more, if the device allows that.
    facts : mapping
        Facts about the device, as `DeviceFacts`.
    notify : callable, optional
        Sends a notification to the program, without waiting.
    device : CudaBackend, optional
        The native device; without it kernels can be compiled, and no library can be called: see `backend`.
    plan : int
        Number of the plan that is built.
    deterministic : bool
        Whether nothing may be chosen by measurements.
    special : callable, optional
        Builds operations of tests; None for any other.
    meetings : mapping of int to Seat
        The worker's places in communicators, by number.
    most_workspace : int
        Bytes of workspace that a plan may need at all.  A builder that knows how much a plan gains from may use them
        without raising.
    """

    kind: ClassVar = "cuda"

    target: Target
    workspace_limit: int = PREFERRED_WORKSPACE
    facts: Mapping[str, Any] = field(default_factory=dict)
    notify: Callable[[dict[str, Any]], object] | None = None
    device: CudaBackend | None = None
    plan: int = -1
    deterministic: bool = False
    special: Callable[[Any], Any] | None = None
    meetings: Mapping[int, Any] = field(default_factory=dict)
    most_workspace: int = 0

    @property
    def most(self) -> int:
        """The bytes of workspace that a plan may need at all."""
        return max(self.most_workspace, self.workspace_limit)

    @property
    def backend(self) -> CudaBackend:
        """The native device, for plans that call a library.

        Raises
        ------
        Unsupported
            Where kernels are only compiled, without a device.
        """
        if self.device is None:
            raise Unsupported("this plan calls a CUDA library; it is built only where there is a CUDA device")
        return self.device

    def progress(self, done: int, total: int, text: str) -> None:
        """Report the progress of the build to the program."""
        if self.notify is not None:
            self.notify({"op": "progress", "plan": self.plan, "done": done, "total": total, "text": text})


@functools.cache
def library_file(key: str) -> str:
    """Return the file of one of NVIDIA's libraries, or "" to leave it to the loader.

    What is found is loaded, and its symbols stand before those of other copies.  So nothing is looked for where the
    environment names a file: calls inside of that one would go to the copy that was found.
    """
    if os.environ.get(f"ATOMR_NATIVE_{key.upper()}"):
        return ""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(key).abs_path
    except (ImportError, RuntimeError, AtomrError):
        return ""
    return found or ""
