"""The float8 actor, ``device.float8``: quantisation to float8_e4m3fn and float8_e5m2, and back, as messages.

Requests and their rules are `QuantizeRequest` and `DequantizeRequest`; docs/libraries/float8.md has the conventions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from ..._support.checks import as_integer
from ..._support.public import public
from ...plans.actor import LibraryActor
from .forms import DEQUANTIZE, FORMS, QUANTIZE, state_rules
from .request import DelayedScaling, DequantizeRequest, QuantizeOptions, QuantizeResult, quantize_request

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

__all__ = ["Float8"]


@public
class Float8(LibraryActor):
    """Quantisation on one device; messages to it run in order.

    Every method enqueues and returns its results at once: the handles that were given, or new ones, which are their own
    futures.  None waits for the device, except that the first call of a structure waits for its kernels and its plan,
    and that a full mailbox blocks or raises as the System was told.

    Examples
    --------
    >>> x = device.put(np.array([1.0, -2.0, 448.0], "float32"))
    >>> made = device.float8.quantize(x)
    >>> made.q.dtype, made.scale.shape
    (dtype(float8_e4m3fn), ())
    >>> device.float8.dequantize(made.q, made.scale).numpy()
    array([   1.,   -2.,  448.], dtype=float32)
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "float8") -> None:
        super().__init__(device, name)

    def quantize(
        self,
        x: GpuRef,
        dtype: object = None,
        *,
        scaling: str = "tensor",
        scale: GpuRef | None = None,
        state: DelayedScaling | None = None,
        saturate: bool = True,
        transposed: bool = False,
        out: GpuRef | None = None,
        scale_out: GpuRef | None = None,
        transposed_out: GpuRef | None = None,
        transposed_scale_out: GpuRef | None = None,
    ) -> QuantizeResult:
        """Send the quantisation of an array: scales, if they are not given, and codes, in one message.

        Parameters
        ----------
        x : GpuRef
        dtype : str, optional
            ``"float8_e4m3fn"`` (or what `state` says), ``"float8_e5m2"``.
        scaling, scale, state, saturate, transposed, out, scale_out, transposed_out, transposed_scale_out
            See `QuantizeRequest`.

        Raises
        ------
        InvalidRequest, Unsupported, LibraryError, OutOfMemory, MailboxFull
        """
        history = position = next_scale = None
        rules: object
        if isinstance(state, DelayedScaling):
            history, position, next_scale, rules = state.history, state.position, state.scale, state_rules(state)
            dtype = state.dtype if dtype is None else dtype
        else:
            rules = state  # None, or what the request will refuse
        dtype = "float8_e4m3fn" if dtype is None else dtype
        made: QuantizeResult = self._calls.send(
            self,
            QUANTIZE,
            (
                x, scale, out, scale_out, transposed_out, transposed_scale_out, history, position, next_scale,
                dtype, scaling, saturate, transposed, rules,
            ),
        )  # fmt: skip
        return made

    def dequantize(self, q: GpuRef, scale: GpuRef, dtype: object = "float32", *, out: GpuRef | None = None) -> GpuRef:
        """Send ``q * scale``, rounded to float32 and then to `dtype`, and return at once; see `DequantizeRequest`."""
        made: GpuRef = self._calls.send(self, DEQUANTIZE, (q, scale, out, dtype))
        return made

    def delayed(
        self,
        dtype: object = "float8_e4m3fn",
        *,
        length: int = 1024,
        margin: int = 0,
        amax: str = "max",
        durable: bool = False,
    ) -> DelayedScaling:
        """Return the state of delayed scaling for one tensor: an empty history of `length` amaxes, and the scale 1.

        With `durable` its arrays can be members of a durable group: ``device.durable_group(state.members)``.  The
        other parameters are those of `DelayedScaling`.  Waits for nothing.
        """
        length = as_integer("length", length, 1, 2**31 - 1)
        device = self.device
        scale = device.empty((1,), "float32", durable=durable)
        scale.fill(1.0)
        return DelayedScaling(
            history=device.zeros((length,), "float32", durable=durable),
            position=device.zeros((1,), "int32", durable=durable),
            scale=scale,
            dtype=cast("str", dtype),
            margin=margin,
            amax=amax,
        )

    def outputs(self, x: GpuRef, dtype: object = None, **options: Unpack[QuantizeOptions]) -> QuantizeResult:
        """Allocate the outputs of a quantisation for a plan, as `quantize` would; send nothing."""
        lowered = quantize_request(x, dtype, options).lowered
        arrays = {o.name: self._allocate(o) if o.given is None else o.given for o in lowered.operands}
        return cast("QuantizeResult", lowered.collect(arrays))

    def plan(self, x: GpuRef, dtype: object = None, **options: Unpack[QuantizeOptions]) -> Plan:
        """Return the plan of a quantisation; operands given here lend their layouts only.

        ``plan.tell(x, out=q, scale_out=scale)``, with ``scale`` after x, ``transposed_out``,
        ``transposed_scale_out`` and ``state_history``, ``state_position``, ``state_scale`` where the request has them.
        Waits for the compiler, not for the worker.
        """
        return self._plan_of(quantize_request(x, dtype, options))

    def plan_dequantize(
        self, q: GpuRef, scale: GpuRef, dtype: object = "float32", *, out: GpuRef | None = None
    ) -> Plan:
        """Return the plan of a dequantisation: ``plan.tell(q, scale, out=x)``.  Waits for the compiler."""
        return self._plan_of(DequantizeRequest(q=q, scale=scale, dtype=cast("str", dtype), out=out))
