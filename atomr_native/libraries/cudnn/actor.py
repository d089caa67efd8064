"""The cuDNN actor, ``device.cudnn``: convolutions and other operations of neural networks as messages.

Requests and their rules are in the modules of the operations; docs/libraries/cudnn.md has the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._support.public import public
from .attention import SCRATCH
from .defaults import EPSILON, MOMENTUM, ONE, RESPONSE_POWER, RESPONSE_SCALE, ZERO
from .forms import (
    ACTIVATION,
    ACTIVATION_GRADIENT,
    ATTENTION,
    ATTENTION_GRADIENT,
    DATA_GRADIENT,
    FILTER_GRADIENT,
    FORMS,
    FORWARD,
    GRAPH,
    NORM,
    NORM_GRADIENT,
    POOLING,
    POOLING_GRADIENT,
    RESPONSE_NORM,
    RESPONSE_NORM_GRADIENT,
    SOFTMAX,
    SOFTMAX_GRADIENT,
    real,
)
from .sequences_actor import SequencesActor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...arrays.gpu_ref import GpuRef
    from ...plans.lowering import Request
    from ...plans.plan import Plan

__all__ = ["Cudnn"]


@public
class Cudnn(SequencesActor):
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
        x_scale: GpuRef | None = None,
        w_scale: GpuRef | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: Any = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        alpha: float = ONE,
        beta: float = ZERO,
        activation: str | None = None,
        channels_last: bool = False,
        tf32: bool = False,
        deterministic: bool = False,
        tune: bool | str = False,
    ) -> GpuRef:
        """Send a convolution, see `ConvolutionRequest`."""
        made: GpuRef = self._calls.send(
            self,
            FORWARD,
            (
                x, w, bias, residual, out, x_scale, w_scale, stride, padding, dilation, groups,
                alpha if alpha is ONE else real(alpha), beta if beta is ZERO else real(beta), activation, channels_last,
                tf32, deterministic, tune,
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
        alpha: float = ONE,
        beta: float = ZERO,
        channels_last: bool = False,
        tf32: bool = False,
        deterministic: bool = False,
        tune: bool | str = False,
    ) -> GpuRef:
        """Send the gradient of a convolution by its input, see `ConvolutionDataGradientRequest`."""
        made: GpuRef = self._calls.send(
            self,
            DATA_GRADIENT,
            (
                dy, w, out, size, stride, padding, dilation, groups, alpha if alpha is ONE else real(alpha),
                beta if beta is ZERO else real(beta), channels_last, tf32, deterministic, tune,
            ),
        )  # fmt: skip
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
        alpha: float = ONE,
        beta: float = ZERO,
        channels_last: bool = False,
        tf32: bool = False,
        deterministic: bool = False,
        tune: bool | str = False,
    ) -> GpuRef:
        """Send the gradient of a convolution by its filters, see `ConvolutionFilterGradientRequest`."""
        made: GpuRef = self._calls.send(
            self,
            FILTER_GRADIENT,
            (
                x, dy, out, size, stride, padding, dilation, groups, alpha if alpha is ONE else real(alpha),
                beta if beta is ZERO else real(beta), channels_last, tf32, deterministic, tune,
            ),
        )  # fmt: skip
        return made

    def activation(self, x: GpuRef, activation: str, *, out: GpuRef | None = None) -> GpuRef:
        """Send an activation of each element, see `ActivationFunctionRequest`."""
        made: GpuRef = self._calls.send(self, ACTIVATION, (x, out, activation))
        return made

    def activation_backward(self, dy: GpuRef, x: GpuRef, activation: str, *, out: GpuRef | None = None) -> GpuRef:
        """Send the gradient of an activation by its input, see `ActivationFunctionGradientRequest`."""
        made: GpuRef = self._calls.send(self, ACTIVATION_GRADIENT, (dy, x, out, activation))
        return made

    def pooling(
        self,
        x: GpuRef,
        mode: str,
        window: int | tuple[int, ...],
        *,
        stride: int | tuple[int, ...] | None = None,
        padding: Any = 0,
        index: bool = False,
        out: GpuRef | None = None,
        channels_last: bool = False,
    ) -> Any:
        """Send the maxima or averages of windows, see `PoolingRequest`; with `index` also the places of maxima."""
        return self._calls.send(self, POOLING, (x, out, mode, window, stride, padding, index, channels_last))

    def pooling_backward(
        self,
        dy: GpuRef,
        size: int | tuple[int, ...],
        mode: str,
        window: int | tuple[int, ...],
        *,
        index: GpuRef | None = None,
        stride: int | tuple[int, ...] | None = None,
        padding: Any = 0,
        out: GpuRef | None = None,
        channels_last: bool = False,
    ) -> GpuRef:
        """Send the gradient of pooling by its input, see `PoolingGradientRequest`."""
        made: GpuRef = self._calls.send(
            self, POOLING_GRADIENT, (dy, index, out, size, mode, window, stride, padding, channels_last)
        )
        return made

    def norm(
        self,
        kind: str,
        x: GpuRef,
        scale: GpuRef,
        bias: GpuRef | None = None,
        *,
        running_mean: GpuRef | None = None,
        running_var: GpuRef | None = None,
        out: GpuRef | None = None,
        groups: int | None = None,
        training: bool = True,
        epsilon: float = EPSILON,
        momentum: float = MOMENTUM,
        channels_last: bool = False,
    ) -> Any:
        """Send a norm, see `NormalizationRequest`: the result, with the statistics for the gradient in training."""
        return self._calls.send(
            self,
            NORM,
            (
                x,
                scale,
                bias,
                running_mean,
                running_var,
                out,
                kind,
                groups,
                training,
                epsilon if epsilon is EPSILON else real(epsilon),
                momentum if momentum is MOMENTUM else real(momentum),
                channels_last,
            ),
        )

    def norm_backward(
        self,
        kind: str,
        dy: GpuRef,
        x: GpuRef,
        scale: GpuRef,
        inverse: GpuRef,
        mean: GpuRef | None = None,
        *,
        out: GpuRef | None = None,
        groups: int | None = None,
        channels_last: bool = False,
    ) -> Any:
        """Send the gradients of a norm by x, scale and bias, see `NormalizationGradientRequest`."""
        return self._calls.send(self, NORM_GRADIENT, (dy, x, scale, inverse, mean, out, kind, groups, channels_last))

    def response_norm(
        self,
        x: GpuRef,
        *,
        size: int = 5,
        alpha: float = RESPONSE_SCALE,
        beta: float = RESPONSE_POWER,
        k: float = ONE,
        out: GpuRef | None = None,
        channels_last: bool = False,
    ) -> GpuRef:
        """Send a local response norm across channels, see `ResponseNormalizationRequest`."""
        made: GpuRef = self._calls.send(
            self,
            RESPONSE_NORM,
            (
                x, out, size, alpha if alpha is RESPONSE_SCALE else real(alpha),
                beta if beta is RESPONSE_POWER else real(beta), k if k is ONE else real(k), channels_last,
            ),
        )  # fmt: skip
        return made

    def response_norm_backward(
        self,
        x: GpuRef,
        y: GpuRef,
        dy: GpuRef,
        *,
        size: int = 5,
        alpha: float = RESPONSE_SCALE,
        beta: float = RESPONSE_POWER,
        k: float = ONE,
        out: GpuRef | None = None,
        channels_last: bool = False,
    ) -> GpuRef:
        """Send the gradient of a local response norm by x, see `ResponseNormalizationGradientRequest`."""
        made: GpuRef = self._calls.send(
            self,
            RESPONSE_NORM_GRADIENT,
            (
                x, y, dy, out, size, alpha if alpha is RESPONSE_SCALE else real(alpha),
                beta if beta is RESPONSE_POWER else real(beta), k if k is ONE else real(k), channels_last,
            ),
        )  # fmt: skip
        return made

    def softmax(
        self, x: GpuRef, axis: int | tuple[int, ...] = -1, *, log: bool = False, out: GpuRef | None = None
    ) -> GpuRef:
        """Send a softmax along axes, or its logarithm, see `SoftmaxRequest`."""
        made: GpuRef = self._calls.send(self, SOFTMAX, (x, out, axis, log))
        return made

    def softmax_backward(
        self,
        dy: GpuRef,
        y: GpuRef,
        axis: int | tuple[int, ...] = -1,
        *,
        log: bool = False,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send the gradient of a softmax by its input, see `SoftmaxGradientRequest`."""
        made: GpuRef = self._calls.send(self, SOFTMAX_GRADIENT, (dy, y, out, axis, log))
        return made

    def dropout(self, x: GpuRef, p: float, seed: int, offset: int = 0, *, out: GpuRef | None = None) -> GpuRef:
        """Send dropout, whose gradient is the same call on the gradient by its result.

        A message of the fused actor: what is dropped depends on seed and offset only, on every kind of device, while
        cuDNN's own generator needs a state in device memory.

        Parameters
        ----------
        x, p, seed, offset, out
            As of `Fused.dropout`.

        Examples
        --------
        >>> x = device.put(np.ones((2, 4), "float32"))
        >>> bool((device.cudnn.dropout(x, 0.5, seed=3) == device.cudnn.dropout(x, 0.5, seed=3)).numpy().all())
        True
        """
        made: GpuRef = self.device.fused.dropout(x, p, seed, offset, out=out)
        return made

    def graph(
        self,
        function: Callable[..., Any],
        *operands: GpuRef,
        out: GpuRef | None = None,
        tf32: bool = False,
        deterministic: bool = False,
        tune: bool | str = False,
    ) -> Any:
        """Send a graph that a function of tensors describes, see `GraphRequest`; returns what the function returns."""
        return self._calls.send(self, GRAPH, (out, function, tf32, deterministic, tune, *operands))

    def attention(
        self,
        q: GpuRef,
        k: GpuRef,
        v: GpuRef,
        *,
        out: GpuRef | None = None,
        bias: GpuRef | None = None,
        slopes: GpuRef | None = None,
        sink: GpuRef | None = None,
        q_lengths: GpuRef | None = None,
        kv_lengths: GpuRef | None = None,
        q_offsets: GpuRef | None = None,
        kv_offsets: GpuRef | None = None,
        k_pages: GpuRef | None = None,
        v_pages: GpuRef | None = None,
        mask: str = "none",
        window: int | None = None,
        scale: float | None = None,
        statistics: bool = False,
        layout: str = "bhsd",
        max_queries: int | None = None,
        max_keys: int | None = None,
        dropout: float = ZERO,
        seed: int = 0,
        offset: int = 0,
        tune: bool | str = False,
    ) -> Any:
        """Send scaled dot-product attention, see `AttentionRequest`; with `statistics` also those for the gradients."""
        return self._calls.send(
            self,
            ATTENTION,
            (
                q, k, v, out, bias, slopes, sink, q_lengths, kv_lengths, q_offsets, kv_offsets, k_pages, v_pages, mask,
                window, scale if scale is None else real(scale), statistics, layout, max_queries, max_keys,
                dropout if dropout is ZERO else real(dropout), tune, seed, offset,
            ),
        )  # fmt: skip

    def attention_backward(
        self,
        q: GpuRef,
        k: GpuRef,
        v: GpuRef,
        y: GpuRef,
        statistics: GpuRef,
        dy: GpuRef,
        *,
        dq: GpuRef | None = None,
        dk: GpuRef | None = None,
        dv: GpuRef | None = None,
        bias: GpuRef | None = None,
        slopes: GpuRef | None = None,
        sink: GpuRef | None = None,
        q_lengths: GpuRef | None = None,
        kv_lengths: GpuRef | None = None,
        q_offsets: GpuRef | None = None,
        kv_offsets: GpuRef | None = None,
        mask: str = "none",
        window: int | None = None,
        scale: float | None = None,
        layout: str = "bhsd",
        max_queries: int | None = None,
        max_keys: int | None = None,
        deterministic: bool = False,
        dropout: float = ZERO,
        seed: int = 0,
        offset: int = 0,
        tune: bool | str = False,
    ) -> Any:
        """Send the gradients of attention by q, k, v, bias and sink, see `AttentionGradientRequest`."""
        return self._calls.send(
            self,
            ATTENTION_GRADIENT,
            (
                q, k, v, y, statistics, dy, dq, dk, dv, bias, slopes, sink, q_lengths, kv_lengths, q_offsets,
                kv_offsets, mask, window, scale if scale is None else real(scale), layout, max_queries, max_keys,
                deterministic, dropout if dropout is ZERO else real(dropout), tune, seed, offset,
            ),
        )  # fmt: skip

    def plan(self, request: Request[Any]) -> Plan:
        """Return the plan of a request: ``plan.tell(x, w, out=y)``.  Does not wait for the worker."""
        return self._plan_of(request)

    def scratch(self, request: Request[Any]) -> dict[str, GpuRef]:
        """Allocate the arrays that messages of a request's plan need besides the request's own, by name.

        Those of `AttentionGradientRequest` have some, and of `AttentionRequest` without statistics.  Messages that run
        one after the other may share them; their content means nothing.

        Examples
        --------
        >>> q, k, v = (device.put(np.ones((1, 2, 3, 8), "float16")) for _ in range(3))
        >>> y, statistics = device.cudnn.attention(q, k, v, statistics=True)
        >>> request = an.AttentionGradientRequest(q=q, k=k, v=v, y=y, statistics=statistics, dy=y)
        >>> list(device.cudnn.scratch(request))
        ['sums', 'wide']
        """
        return {o.name: self._allocate(o) for o in request.lowered.operands if o.name in SCRATCH}
