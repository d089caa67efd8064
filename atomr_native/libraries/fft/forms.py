"""How the methods of the FFT actor give values, and how these become requests."""

from __future__ import annotations

from typing import Any, Final

from ...plans.calls import CallForm, Forms, form_of
from .request import FftRequest
from .shift import FftShiftRequest

__all__ = ["FORMS", "SHIFT", "TRANSFORM", "alignment"]

_NAMES: Final = ("x", "out", "transform", "s", "axes", "norm", "overwrite", "hermitian")


def alignment(x: Any, out: Any) -> int:
    """Return the last bits of the addresses of x and out: what a call's structure has besides layouts."""
    try:
        at: int = (x.allocation.origin + x.offset) & 15
        if out is not None:
            at |= ((out.allocation.origin + out.offset) & 15) << 4
    except AttributeError:  # no handles, which the request refuses
        return 0
    return at


def _unpack(values: tuple[Any, ...]) -> FftRequest:
    return FftRequest(**dict(zip(_NAMES, values[:-1], strict=True)))


def _pack(r: FftRequest) -> tuple[Any, ...]:
    return (r.x, r.out, r.transform, r.s, r.axes, r.norm, r.overwrite, r.hermitian, alignment(r.x, r.out))


TRANSFORM: Final = CallForm(
    _unpack, _pack, (*_NAMES, "alignment"), b"aaooooooo", (None, None, "fft", None, None, None, False, False, 0)
)

SHIFT: Final = form_of(FftShiftRequest, "x out", "axes inverse")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {FftRequest: TRANSFORM, FftShiftRequest: SHIFT}
