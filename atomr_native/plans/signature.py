"""Signatures of plans: the names in ``plan.tell(x, w, b, out=y)``."""

from __future__ import annotations

from dataclasses import dataclass

from .spec import WRITE, PlanSpec

__all__ = ["Signature", "signature_of"]


@dataclass(frozen=True, slots=True)
class Signature:
    """Names of a plan's operands and scalars, in message order.

    Attributes
    ----------
    operands : tuple of str
        Every operand, in the order of the message.
    inputs : tuple of str
        Operands passed by position (and by name).
    outputs : tuple of str
        Operands passed by keyword; an operand updated in place is an output.
    scalars : tuple of str
        Names of the message's scalars.
    defaults : tuple of (float or int or None)
        Default of each scalar; ``None`` if the call must name it.
    complexes : tuple of (str, int, int)
        Complex numbers: the name, and which scalars are the real and the imaginary part.
    """

    operands: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scalars: tuple[str, ...] = ()
    defaults: tuple[float | int | None, ...] = ()
    complexes: tuple[tuple[str, int, int], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of operands and scalars."""
        return self.operands + self.scalars


def signature_of(
    spec: PlanSpec,
    scalars: tuple[str, ...] = (),
    defaults: tuple[float | int | None, ...] = (),
    complexes: tuple[tuple[str, int, int], ...] = (),
) -> Signature:
    """Return the signature that a plan specification implies: written operands are outputs."""
    return Signature(
        operands=tuple(operand.name for operand in spec.operands),
        inputs=tuple(operand.name for operand in spec.operands if not operand.access & WRITE),
        outputs=tuple(operand.name for operand in spec.operands if operand.access & WRITE),
        scalars=scalars,
        defaults=defaults,
        complexes=complexes,
    )
