"""Attributes of the random operations in plan specifications."""

from __future__ import annotations

from typing import Annotated

from ...plans.spec import Attributes, ShippedAttributes
from ...protocol.typed import one_of
from .engines import DRAWN, ORDERINGS, RULES
from .kernels.positions import DISTRIBUTIONS, ENGINES

__all__ = ["ChooseAttributes", "DrawAttributes", "FillAttributes", "PermuteAttributes"]


class ChooseAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``random.choose``.

    Attributes
    ----------
    replace : bool
        As `ChoiceRequest` has it.
    """

    replace: bool


class DrawAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``random.draw``.

    Attributes
    ----------
    distribution : str
        As `RandomRequest` has it.
    engine, ordering : str
        Name and ordering of a `CurandEngine`.
    dimensions : int
        As there.
    scaled : bool
        Whether uniform numbers are brought between two bounds.
    """

    distribution: Annotated[str, one_of(*DRAWN)]
    engine: Annotated[str, one_of(*RULES)]
    dimensions: int
    ordering: Annotated[str, one_of(*ORDERINGS)]
    scaled: bool


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
