"""How the methods of the float8 actor give values, and how these become requests."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...plans.calls import CallForm, Forms, form_of
from .request import DelayedScaling, DequantizeRequest, QuantizeRequest

__all__ = ["DEQUANTIZE", "FORMS", "QUANTIZE", "StateRules", "state_rules"]


class StateRules(NamedTuple):
    """The part of a `DelayedScaling` that belongs to the plan, besides layouts."""

    dtype: str
    margin: int
    amax: str


def _unpack_quantize(values: tuple[Any, ...]) -> QuantizeRequest:
    *arrays, history, position, scale, dtype, scaling, saturate, transposed, state = values
    if isinstance(state, StateRules):
        state = DelayedScaling(history=history, position=position, scale=scale, **state._asdict())
    return QuantizeRequest(
        dtype=dtype, scaling=scaling, saturate=saturate, transposed=transposed, state=state,
        **dict(zip(_ARRAYS, arrays, strict=True)),
    )  # fmt: skip


def _pack_quantize(r: QuantizeRequest) -> tuple[Any, ...]:
    arrays = tuple([getattr(r, name) for name in _ARRAYS])
    return (*arrays, *_members(r.state), r.dtype, r.scaling, r.saturate, r.transposed, state_rules(r.state))


def _members(state: DelayedScaling | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if state is None else (state.history, state.position, state.scale)


def state_rules(state: DelayedScaling | None) -> StateRules | None:
    """Return the part of delayed scaling that belongs to the plan."""
    return None if state is None else StateRules(state.dtype, state.margin, state.amax)


_ARRAYS: Final = ("x", "scale", "out", "scale_out", "transposed_out", "transposed_scale_out")
_MEMBERS: Final = ("state_history", "state_position", "state_scale")
_OPTIONS: Final = {"dtype": "float8_e4m3fn", "scaling": "tensor", "saturate": True, "transposed": False, "state": None}
QUANTIZE: Final = CallForm(
    _unpack_quantize,
    _pack_quantize,
    (*_ARRAYS, *_MEMBERS, *_OPTIONS),
    b"a" * (len(_ARRAYS) + len(_MEMBERS)) + b"o" * len(_OPTIONS),
    (None,) * (len(_ARRAYS) + len(_MEMBERS)) + tuple(_OPTIONS.values()),
)
DEQUANTIZE: Final = form_of(DequantizeRequest, "q scale out", "dtype")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {QuantizeRequest: QUANTIZE, DequantizeRequest: DEQUANTIZE}
