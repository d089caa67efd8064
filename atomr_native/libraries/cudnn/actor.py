"""The cuDNN actor, ``device.cudnn``: convolutions and other operations of neural networks as messages.

Requests and their rules are in the modules of the operations; docs/libraries/cudnn.md has the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...plans.actor import LibraryActor
from .forms import DATA_GRADIENT, FILTER_GRADIENT, FORMS, FORWARD

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.lowering import Request
    from ...plans.plan import Plan

__all__ = ["Cudnn"]


@public
class Cudnn(LibraryActor):
    """Operations of neural networks on one device; messages to it run in order.

    Every method enqueues and returns its results at once: the arrays that were given as outputs, or new ones, which are
    their own futures.  None waits for the device, except that the first call of a structure waits for its plan, and
    that a full mailbox blocks or raises as the System was told.  Parameters and errors are those of the requests.

    Examples
    --------
    >>> x = device.put(np.ones((1, 2, 4, 4), "float32"))
    >>> w = device.put(np.ones((3, 2, 3, 3), "float32"))
    >>> y = device.cudnn.convolution(x, w, padding=1, activation="relu")
    >>> y.numpy()[0, 0]
    array([[ 8., 12., 12.,  8.],
           [12., 18., 18., 12.],
           [12., 18., 18., 12.],
           [ 8., 12., 12.,  8.]], dtype=float32)
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "cudnn") -> None:
        super().__init__(device, name)

    def convolution(
        self,
        x: GpuRef,
        w: GpuRef,
        bias: GpuRef | None = None,
        *,
        residual: GpuRef | None = None,
        out: GpuRef | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: Any = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        alpha: float = 1.0,
        beta: float = 0.0,
        activation: str | None = None,
        channels_last: bool = False,
        tf32: bool = False,
        deterministic: bool = False,
    ) -> GpuRef:
        """Send a convolution, see `ConvolutionRequest`."""
        made: GpuRef = self._calls.send(
            self,
            FORWARD,
            (
                x, w, bias, residual, out, stride, padding, dilation, groups, alpha, beta, activation, channels_last,
                tf32, deterministic,
            ),
        )  # fmt: skip
        return made

    def convolution_backward_data(
        self,
        dy: GpuRef,
        w: GpuRef,
        size: int | tuple[int, ...],
        *,
        out: GpuRef | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: Any = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        alpha: float = 1.0,
        beta: float = 0.0,
        channels_last: bool = False,
        tf32: bool = False,
        deterministic: bool = False,
    ) -> GpuRef:
        """Send the gradient of a convolution by its input, see `ConvolutionDataGradientRequest`."""
        made: GpuRef = self._calls.send(
            self,
            DATA_GRADIENT,
            (dy, w, out, size, stride, padding, dilation, groups, alpha, beta, channels_last, tf32, deterministic),
        )
        return made

    def convolution_backward_filter(
        self,
        x: GpuRef,
        dy: GpuRef,
        size: int | tuple[int, ...],
        *,
        out: GpuRef | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: Any = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        alpha: float = 1.0,
        beta: float = 0.0,
        channels_last: bool = False,
        tf32: bool = False,
        deterministic: bool = False,
    ) -> GpuRef:
        """Send the gradient of a convolution by its filters, see `ConvolutionFilterGradientRequest`."""
        made: GpuRef = self._calls.send(
            self,
            FILTER_GRADIENT,
            (x, dy, out, size, stride, padding, dilation, groups, alpha, beta, channels_last, tf32, deterministic),
        )
        return made

    def plan(self, request: Request[Any]) -> Plan:
        """Return the plan of a request: ``plan.tell(x, w, out=y)``.  Does not wait for the worker."""
        return self._plan_of(request)
