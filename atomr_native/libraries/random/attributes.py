"""Attributes of the random operations in plan specifications."""

from __future__ import annotations

from typing import Annotated

from ...plans.spec import ShippedAttributes
from ...protocol.typed import one_of
from .kernels.positions import DISTRIBUTIONS

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
    distribution : str
        As `RandomRequest` has it.
    """

    distribution: Annotated[str, one_of(*DISTRIBUTIONS)]


class PermuteAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``random.permute``; with an operand x its rows are permuted, else the numbers from 0 on."""
