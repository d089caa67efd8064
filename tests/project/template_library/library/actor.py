"""The blend actor, ``device.blend``: weighted means as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..._support.public import public
from ...plans.actor import LibraryActor
from ...plans.calls import form_of
from .request import MixRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

__all__ = ["Blend"]

_MIX: Final = form_of(MixRequest, "x y out", numbers="weight")


@public
class Blend(LibraryActor):
    """Weighted means on one device; messages to it run in order.

    Every method enqueues and returns its result at once, which is its own future.

    Examples
    --------
    >>> x, y = device.put(np.zeros(3, "float32")), device.put(np.ones(3, "float32"))
    >>> device.blend.mix(x, y, 0.25).numpy()
    array([0.75, 0.75, 0.75], dtype=float32)
    """

    _forms = {MixRequest: _MIX}  # noqa: RUF012 - of the base class

    def __init__(self, device: Any, name: str = "blend") -> None:
        super().__init__(device, name)

    def mix(self, x: GpuRef, y: GpuRef, weight: float, *, out: GpuRef | None = None) -> GpuRef:
        """Send a weighted mean and return its result at once.

        Parameters
        ----------
        x, y, weight, out
            See `MixRequest`.

        Raises
        ------
        InvalidRequest, OutOfMemory, MailboxFull
        """
        mixed: GpuRef = self._calls.send(self, _MIX, (x, y, out, weight))
        return mixed

    def plan(self, request: MixRequest) -> Plan:
        """Return the plan of a request: ``plan.tell(x, y, out=z, weight=0.5)``.  Does not wait for the worker."""
        return self._plan_of(request)
