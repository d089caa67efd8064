"""The float8 actor, ``device.float8``: quantisation to float8_e4m3fn and float8_e5m2, and back, as messages.

Requests and their rules are `QuantizeRequest` and `DequantizeRequest`; docs/float8.md has the conventions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack, cast, overload

from . import _float8_spec as specs
from . import kernels
from ._checks import as_integer, check_options
from ._float8_spec import DelayedScaling, DequantizeRequest, QuantizeRequest
from ._messages import Form, Message, New, form_of
from ._operands import check_handle
from ._options import QuantizeOptions
from .dtypes import DTYPES
from .gpu_ref import GpuRef, layout_from, layout_of
from .library_actor import LibraryActor

if TYPE_CHECKING:
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


class _Rules(NamedTuple):
    """What of a `DelayedScaling` belongs to the plan, besides layouts."""

    dtype: str
    margin: int
    amax: str


def _made(values: tuple[Any, ...]) -> QuantizeRequest:
    *arrays, history, position, scale, dtype, scaling, saturate, transposed, state = values
    if isinstance(state, _Rules):
        state = DelayedScaling(history=history, position=position, scale=scale, **state._asdict())
    return QuantizeRequest(
        dtype=dtype, scaling=scaling, saturate=saturate, transposed=transposed, state=state,
        **dict(zip(_ARRAYS, arrays, strict=True)),
    )  # fmt: skip


def _taken(r: QuantizeRequest) -> tuple[Any, ...]:
    arrays = tuple([getattr(r, name) for name in _ARRAYS])
    return (*arrays, *_members(r.state), r.dtype, r.scaling, r.saturate, r.transposed, _rules(r.state))


def _members(state: DelayedScaling | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if state is None else (state.history, state.position, state.scale)


def _rules(state: DelayedScaling | None) -> _Rules | None:
    return None if state is None else _Rules(state.dtype, state.margin, state.amax)


_ARRAYS: Final = ("x", "scale", "out", "scale_out", "transposed_out", "transposed_scale_out")
_MEMBERS: Final = ("state_history", "state_position", "state_scale")
_OPTIONS: Final = {"dtype": "float8_e4m3fn", "scaling": "tensor", "saturate": True, "transposed": False, "state": None}
_QUANTIZE: Final = Form(
    _made,
    _taken,
    (*_ARRAYS, *_MEMBERS, *_OPTIONS),
    b"a" * (len(_ARRAYS) + len(_MEMBERS)) + b"o" * len(_OPTIONS),
    (None,) * (len(_ARRAYS) + len(_MEMBERS)) + tuple(_OPTIONS.values()),
)
_DEQUANTIZE: Final = form_of(DequantizeRequest, "q scale out", "dtype")


class Float8(LibraryActor):
    """Quantisation on one device; messages to it run in order.

    Every method enqueues and returns its results at once: the handles that were given, or new ones, which are their own
    futures.  None waits for the device, except that the first call of a structure waits for its kernels and its plan,
    and that a full mailbox blocks or raises as the System was told.
    """

    _forms = {QuantizeRequest: _QUANTIZE, DequantizeRequest: _DEQUANTIZE}  # noqa: RUF012 - of the base class

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
            history, position, next_scale, rules = state.history, state.position, state.scale, _rules(state)
            dtype = state.dtype if dtype is None else dtype
        else:
            rules = state  # None, or what the request will refuse
        dtype = "float8_e4m3fn" if dtype is None else dtype
        made: QuantizeResult = self._calls.send(
            self,
            _QUANTIZE,
            (
                x, scale, out, scale_out, transposed_out, transposed_scale_out, history, position, next_scale,
                dtype, scaling, saturate, transposed, rules,
            ),
        )  # fmt: skip
        return made

    def dequantize(self, q: GpuRef, scale: GpuRef, dtype: object = "float32", *, out: GpuRef | None = None) -> GpuRef:
        """Send ``q * scale``, rounded to float32 and then to `dtype`, and return at once; see `DequantizeRequest`."""
        made: GpuRef = self._calls.send(self, _DEQUANTIZE, (q, scale, out, dtype))
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
        """Allocate what a quantisation writes, as `quantize` would, and send nothing: outputs for a plan."""
        request = _request(x, dtype, options)
        arrays = {}
        for name, one in _outputs(request).items():
            if isinstance(one, New):
                made = self.device._core.empty(GpuRef, one.whole)
                arrays[name] = made if one.view is None else made.view_as(one.view, 0)
            else:
                arrays[name] = one
        return _result(request, arrays)

    def plan(self, x: GpuRef, dtype: object = None, **options: Unpack[QuantizeOptions]) -> Plan:
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

    @overload
    def tell(self, request: QuantizeRequest) -> QuantizeResult: ...
    @overload
    def tell(self, request: DequantizeRequest) -> GpuRef: ...

    def tell(self, request: QuantizeRequest | DequantizeRequest) -> Any:
        """Send a request and return its result at once."""
        return self._request(request, False)

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

    def _message(self, request: QuantizeRequest | DequantizeRequest) -> Message:
        result: Any
        if isinstance(request, DequantizeRequest):
            _check_handles({name: getattr(request, name) for name in ("q", "scale", "out")})
            fresh = New(layout_of(tuple(request.q.shape), DTYPES[request.dtype]))
            result = fresh if request.out is None else request.out
            return Message(self._prepared(request), (request.q, request.scale, result), result)
        _check_handles({name: getattr(request, name) for name in _ARRAYS})
        _check_handles({} if request.state is None else request.state.members)
        outputs = _outputs(request)
        scale = () if request.scale is None else (request.scale,)
        members = () if request.state is None else tuple(request.state.members.values())
        operands = (request.x, *scale, *outputs.values(), *members)
        return Message(self._prepared(request), operands, _result(request, outputs))


def _outputs(r: QuantizeRequest) -> dict[str, Any]:
    """Return what is written in message order: what was given, or what is to be allocated."""
    found = {}
    for name, fresh in specs.quantize_outputs(r).items():
        whole = layout_of(fresh.whole, DTYPES[fresh.dtype])
        view = layout_from(fresh.shape, fresh.strides, fresh.dtype)
        given = getattr(r, name)
        found[name] = New(whole, None if view == whole else view) if given is None else given
    return found


def _result(r: QuantizeRequest, outputs: dict[str, Any]) -> QuantizeResult:
    """Return what the caller gets."""
    scale = r.scale if r.scale is not None else outputs["scale_out"]
    turned = outputs.get("transposed_scale_out", scale) if r.transposed else None
    return QuantizeResult(outputs["out"], scale, outputs.get("transposed_out"), turned)


def _check_handles(given: dict[str, Any]) -> None:
    for name, value in given.items():
        check_handle(name, value)


def _request(x: Any, dtype: object, options: QuantizeOptions) -> QuantizeRequest:
    check_options("a quantisation", options, QuantizeOptions.__optional_keys__)
    if dtype is None:
        state = options.get("state")
        dtype = state.dtype if isinstance(state, DelayedScaling) else "float8_e4m3fn"
    return QuantizeRequest(x=x, dtype=cast("str", dtype), **options)
