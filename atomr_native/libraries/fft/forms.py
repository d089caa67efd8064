"""How the methods of the FFT actor give values, and how these become requests."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...plans.calls import CallForm, Forms, form_of
from .cosine import DctRequest
from .frames import IstftRequest, StftRequest
from .half import HalfFftRequest
from .request import TRANSFORM_VALUES, FftRequest
from .shift import FftShiftRequest

__all__ = ["COSINE", "FORMS", "HALF", "ISTFT", "SHIFT", "STFT", "TRANSFORM", "Mapped", "alignment"]

_NAMES: Final = TRANSFORM_VALUES[:-1]


class Mapped(NamedTuple):
    """A transform with functions, and the names of their operands: the option `transform` of such a call."""

    transform: Any
    load: Any
    store: Any
    names: tuple[str, ...]


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
    given = dict(zip(_NAMES, values, strict=False))
    mapped = given["transform"]
    if isinstance(mapped, Mapped):
        operands = tuple(zip(mapped.names, values[len(TRANSFORM_VALUES) :], strict=True))
        given |= {"transform": mapped.transform, "load": mapped.load, "store": mapped.store, "operands": operands}
    return FftRequest(**given)


def _pack(r: FftRequest) -> tuple[Any, ...]:
    transform: Any = r.transform
    if r.load is not None or r.store is not None:
        transform = Mapped(transform, r.load, r.store, tuple(name for name, _ in r.operands))
    values = (value for _, value in r.operands)
    return (r.x, r.out, transform, r.s, r.axes, r.norm, r.overwrite, r.hermitian, alignment(r.x, r.out), *values)


TRANSFORM: Final = CallForm(
    _unpack, _pack, TRANSFORM_VALUES, b"aaooooooo", (None, None, "fft", None, None, None, False, False, 0), b"n"
)

_HALF_NAMES: Final = ("x", "out", "transform", "s", "axes", "norm", "hermitian", "convert")


def _half(r: HalfFftRequest) -> tuple[Any, ...]:
    return (*(getattr(r, name) for name in _HALF_NAMES), alignment(r.x, r.out))


HALF: Final = CallForm(
    lambda values: HalfFftRequest(**dict(zip(_HALF_NAMES, values[:-1], strict=True))),
    _half,
    (*_HALF_NAMES, "alignment"),
    b"aaooooooo",
    (None, None, "fft", None, None, None, False, True, 0),
)

SHIFT: Final = form_of(FftShiftRequest, "x out", "axes inverse")

COSINE: Final = form_of(DctRequest, "x out", "transform type s axes norm orthogonalize")

_OPTIONS: Final = ("n_fft", "hop_length", "win_length", "center", "pad_mode", "normalized", "onesided")
_INVERSE: Final = ("n_fft", "hop_length", "win_length", "center", "normalized", "onesided", "length")


def _framed(request: Any, options: tuple[str, ...], defaults: tuple[Any, ...]) -> CallForm:
    """Return the form of requests of frames: arrays, options, and the alignment of x and out."""
    names = ("x", "window", "out", *options)

    def unpack(values: tuple[Any, ...]) -> Any:
        return request(**dict(zip(names, values[:-1], strict=True)))

    def pack(r: Any) -> tuple[Any, ...]:
        return (*(getattr(r, name) for name in names), alignment(r.x, r.out))

    kinds = b"aaa" + b"o" * (len(options) + 1)
    return CallForm(unpack, pack, (*names, "alignment"), kinds, (None, None, None, *defaults, 0))


STFT: Final = _framed(StftRequest, _OPTIONS, (None, None, None, True, "reflect", False, None))
ISTFT: Final = _framed(IstftRequest, _INVERSE, (None, None, None, True, False, True, None))

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    DctRequest: COSINE,
    FftRequest: TRANSFORM,
    FftShiftRequest: SHIFT,
    HalfFftRequest: HALF,
    IstftRequest: ISTFT,
    StftRequest: STFT,
}
