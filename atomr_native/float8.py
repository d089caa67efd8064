"""The float8 actor, ``device.float8``: quantisation to float8_e4m3fn and float8_e5m2, and back, as messages.

Requests and their rules are `QuantizeRequest` and `DequantizeRequest`; docs/float8.md has the conventions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _float8_spec as specs
from . import kernels
from ._float8_spec import DelayedScaling, DequantizeRequest, QuantizeRequest
from ._operands import check_handle
from .dtypes import DTYPES
from .errors import InvalidRequest
from .library_actor import LibraryActor

if TYPE_CHECKING:
    from .gpu_ref import GpuRef
    from .plan import Plan
    from .plan_spec import PlanSpec
    from .reply import Reply

__all__ = ["DelayedScaling", "DequantizeRequest", "Float8", "QuantizeRequest", "QuantizeResult"]


class QuantizeResult(NamedTuple):
    """Outputs of `Float8.quantize`: codes and the scales that bring them back, ``x = q * scale``.

    Attributes
    ----------
    q : GpuRef
        Codes, of x's shape.
    scale : GpuRef
        float32: `a_scale` of a matmul of q, and transposed its `b_scale`.
    transposed : GpuRef or None
        The codes of ``x.T``.
    transposed_scale : GpuRef or None
        Their scales.
    """

    q: GpuRef
    scale: GpuRef
    transposed: GpuRef | None = None
    transposed_scale: GpuRef | None = None


class Float8(LibraryActor):
    """Quantisation on one device; messages to it run in order.

    Every method enqueues and returns its results at once: the handles that were given, or new ones, which are their own
    futures.  None waits for the device, except that the first call of a structure waits for its kernels and its plan,
    and that a full mailbox blocks or raises as the System was told.
    """

    def __init__(self, device: Any, name: str = "float8") -> None:
        super().__init__(device, name)

    def quantize(self, x: GpuRef, dtype: object = None, **options: Any) -> QuantizeResult:
        """Send the quantisation of an array: scales, if they are not given, and codes, in one message.

        Parameters
        ----------
        x : GpuRef
        dtype : str, optional
            ``"float8_e4m3fn"`` (or what `state` says), ``"float8_e5m2"``.
        **options
            scaling, scale, state, saturate, transposed, out, scale_out, transposed_out, transposed_scale_out: see
            `QuantizeRequest`.

        Raises
        ------
        InvalidRequest, Unsupported, LibraryError, OutOfMemory, MailboxFull
        """
        return cast("QuantizeResult", self.tell(_request(x, dtype, options)))

    def dequantize(self, q: GpuRef, scale: GpuRef, dtype: object = "float32", *, out: GpuRef | None = None) -> GpuRef:
        """Send ``q * scale``, rounded once to `dtype` and returned at once; see `DequantizeRequest`."""
        request = DequantizeRequest(q=q, scale=scale, dtype=cast("str", dtype), out=out)
        return cast("GpuRef", self.tell(request))

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
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise InvalidRequest(f"length={length!r}; it must be an integer, 1 or more")
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

    def outputs(self, x: GpuRef, dtype: object = None, **options: Any) -> QuantizeResult:
        """Allocate what a quantisation writes, as `quantize` would, and send nothing: outputs for a plan."""
        return self._result(_request(x, dtype, options))[1]

    def plan(self, x: GpuRef, dtype: object = None, **options: Any) -> Plan:
        """Return the plan of a quantisation; operands given here lend their layouts only.

        ``plan.tell(x, out=q, scale_out=scale)``, with ``scale`` after x, ``transposed_out``,
        ``transposed_scale_out`` and ``state_history``, ``state_position``, ``state_scale`` where the request has them.
        Waits for the compiler, not for the worker.
        """
        return self._prepared(_request(x, dtype, options))

    def plan_dequantize(
        self, q: GpuRef, scale: GpuRef, dtype: object = "float32", *, out: GpuRef | None = None
    ) -> Plan:
        """Return the plan of a dequantisation: ``plan.tell(q, scale, out=x)``.  Waits for the compiler."""
        return self._prepared(DequantizeRequest(q=q, scale=scale, dtype=cast("str", dtype), out=out))

    def tell(self, request: QuantizeRequest | DequantizeRequest) -> QuantizeResult | GpuRef:
        """Send a request and return its result at once."""
        return cast("QuantizeResult | GpuRef", self._request(request, False))

    def ask(self, request: QuantizeRequest | DequantizeRequest) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _spec(self, request: QuantizeRequest | DequantizeRequest) -> PlanSpec:
        code: tuple[tuple[str, Any], ...] = ()
        quantizes = isinstance(request, QuantizeRequest)
        if self.device.name != "host":
            capability = self.device._compute_capability()
            parts = (
                specs.quantize_kernels(request, capability)
                if isinstance(request, QuantizeRequest)
                else specs.dequantize_kernels(request, capability)
            )
            made = kernels.machine_code("float8", parts, capability)
            code = (("entries", made.entries), ("code", made.code))
        if quantizes:
            return specs.quantize_spec(cast("QuantizeRequest", request), code)
        return specs.dequantize_spec(cast("DequantizeRequest", request), code)

    def _prepared(self, request: QuantizeRequest | DequantizeRequest) -> Plan:
        return self._plan(self._spec(request))

    def _result(self, r: QuantizeRequest) -> tuple[tuple[GpuRef, ...], QuantizeResult]:
        """Return what is written in message order, allocated where nothing was given, and what the caller gets."""
        found = {}
        for name, fresh in specs.quantize_outputs(r).items():
            given = getattr(r, name)
            if given is None:
                made = self._empty(fresh.whole, DTYPES[fresh.dtype])
                made = made.T if fresh.turned else made
                given = made if made.shape == fresh.shape else made[:, : fresh.shape[1]]
            found[name] = given
        scale = r.scale if r.scale is not None else found["scale_out"]
        turned = found.get("transposed_scale_out", scale) if r.transposed else None
        return tuple(found.values()), QuantizeResult(found["out"], scale, found.get("transposed_out"), turned)

    def _request(self, request: QuantizeRequest | DequantizeRequest, reply: bool) -> Any:
        refs: tuple[Any, ...]
        result: Any
        if isinstance(request, QuantizeRequest):
            given = ("x", "scale", "out", "scale_out", "transposed_out", "transposed_scale_out")
            _check_handles({name: getattr(request, name) for name in given})
            plan = self._prepared(request)
            outputs, result = self._result(request)
            refs = (request.x, *(() if request.scale is None else (request.scale,)), *outputs)
            if request.state is not None:
                _check_handles(request.state.members)
                refs += tuple(request.state.members.values())
        elif isinstance(request, DequantizeRequest):
            _check_handles({name: getattr(request, name) for name in ("q", "scale", "out")})
            plan = self._prepared(request)
            result = request.out
            if result is None:
                result = self._empty(tuple(request.q.shape), DTYPES[request.dtype])
            refs = (request.q, request.scale, result)
        else:
            raise InvalidRequest(
                f"{type(request).__name__} is no request of Float8; allowed: QuantizeRequest, DequantizeRequest"
            )
        answer = self._send(plan, refs, (), reply, result)
        return answer if reply else result


def _check_handles(given: dict[str, Any]) -> None:
    for name, value in given.items():
        check_handle(name, value)


def _request(x: Any, dtype: object, options: dict[str, Any]) -> QuantizeRequest:
    if dtype is None:
        state = options.get("state")
        dtype = state.dtype if isinstance(state, DelayedScaling) else "float8_e4m3fn"
    return QuantizeRequest(x=x, dtype=cast("str", dtype), **options)
