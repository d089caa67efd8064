"""How the methods of the random actor give values, and how these become requests."""

from __future__ import annotations

from typing import Any, Final

from ...plans.calls import CallForm, Forms, form_of
from .choices import ChoiceRequest
from .permutations import PermutationRequest, ShuffleRequest
from .request import RandomRequest
from .spec import parameter_names

__all__ = ["CHOICE", "FILL", "FORMS", "PERMUTATION", "SHUFFLE"]

_MOST: Final = 4  # parameters


def _unpack(values: tuple[Any, ...]) -> RandomRequest:
    out, distribution, shape, dtype, engine, *numbers = values
    count = len(parameter_names(distribution))
    return RandomRequest(
        distribution=distribution, shape=shape, dtype=dtype, parameters=tuple(numbers[:count]), out=out,
        engine=engine,
        **dict(zip(("seed", "stream", "offset"), numbers[_MOST:], strict=True)),
    )  # fmt: skip


def _pack(r: RandomRequest) -> tuple[Any, ...]:
    missing = (0.0,) * (_MOST - len(r.parameters))
    return (r.out, r.distribution, r.shape, r.dtype, r.engine, *r.parameters, *missing, r.seed, r.stream, r.offset)


FILL: Final = CallForm(
    _unpack,
    _pack,
    ("out", "distribution", "shape", "dtype", "engine", "p0", "p1", "p2", "p3", "seed", "stream", "offset"),
    b"aoooonnnnnnn",
    (None, "uniform", None, None, "philox", *(0.0,) * 4, 0, 0, 0),
)
CHOICE: Final = form_of(ChoiceRequest, "weights out", "shape dtype replace", "seed stream offset")
PERMUTATION: Final = form_of(PermutationRequest, "out", "n dtype", "seed stream offset")
SHUFFLE: Final = form_of(ShuffleRequest, "x out", numbers="seed stream offset")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    RandomRequest: FILL,
    ChoiceRequest: CHOICE,
    PermutationRequest: PERMUTATION,
    ShuffleRequest: SHUFFLE,
}
