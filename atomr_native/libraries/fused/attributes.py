"""Attributes of the fused operations in plan specifications; AdamW and dropout have none of their own."""

from typing import Annotated

from ...plans.spec import Attributes, ShippedAttributes
from ...protocol.typed import one_of

__all__ = [
    "ActivationAttributes", "AdamWListAttributes", "NormAttributes", "RopeAttributes", "SgdAttributes",
    "SgdListAttributes", "ShippedAttributes",
]  # fmt: skip


class ActivationAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``fused.activate`` and ``fused.activate_backward``: see `ActivationRequest`."""

    curve: Annotated[str, one_of("silu", "squared_relu", "gelu", "gelu_tanh")]
    gated: bool


class NormAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``fused.norm`` and ``fused.norm_backward``: see `NormRequest`."""

    layer: bool


class RopeAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``fused.rope``: see `RopeRequest`."""

    interleaved: bool
    inverse: bool


class SgdAttributes(ShippedAttributes, frozen=True, kw_only=True):
    """Of ``fused.sgd``: see `SgdRequest`."""

    nesterov: bool


class AdamWListAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``fused.adamw_list``: for each parameter whether it has master weights."""

    masters: tuple[bool, ...]


class SgdListAttributes(AdamWListAttributes, frozen=True, kw_only=True):
    """Of ``fused.sgd_list``: also whether the step looks ahead."""

    nesterov: bool
