"""Attributes of the random operations in plan specifications."""

from __future__ import annotations

from typing import Annotated

from ...plans.spec import ShippedAttributes
from ...protocol.typed import one_of
from .kernels.positions import DISTRIBUTIONS, ENGINES

__all__ = ["ChooseAttributes", "FillAttributes", "PermuteAttributes"]


class ChooseAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``random.choose``.

    Attributes
    ----------
    replace : bool
        As `ChoiceRequest` has it.
    """

    replace: bool


class FillAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``random.fill``.

    Attributes
    ----------
    distribution, engine : str
        As `RandomRequest` has them.
    """

    distribution: Annotated[str, one_of(*DISTRIBUTIONS)]
    engine: Annotated[str, one_of(*ENGINES)] = "philox"


class PermuteAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``random.permute``; with an operand x its rows are permuted, else the numbers from 0 on."""
