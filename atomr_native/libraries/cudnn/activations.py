"""Requests of activations and their gradients, and activations as parts of other graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._support.checks import check_choice
from .draft import Draft
from .spec import ACTIVATIONS

if TYPE_CHECKING:
    pass

__all__ = ["activated", "check_activation"]


def check_activation(activation: object) -> None:
    """Refuse what is neither None nor an activation."""
    if activation is not None:
        check_choice("activation", activation, ACTIVATIONS)


def _parameters(activation: str) -> dict[str, float]:
    """Return the numbers of an activation's descriptor, as cuDNN's defaults differ between versions."""
    named = {"elu": "elu_alpha", "softplus": "softplus_beta", "silu": "swish_beta"}
    return {named[activation]: 1.0} if activation in named else {}


def activated(draft: Draft, activation: str, x: int, *, to: int, compute: str) -> int:
    """Add an activation of a tensor; returns its result."""
    mode = f"{ACTIVATIONS[activation]}_fwd"
    return draft.pointwise(mode, x, to=to, compute=compute, reals=_parameters(activation))
