"""The epilogues of a matmul, by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ..._support.public import public
from ...errors import InvalidRequest

__all__ = ["Epilogue", "check_epilogue_operands"]


@public
class Epilogue(StrEnum):
    """What is done to ``X = alpha * op(A) @ op(B) + beta * C`` before it is stored: the sixteen of cuBLASLt.

    ``*_aux`` stores what the backward pass needs (GELU: the value before the activation, in D's dtype and shape;
    ReLU: a bit mask, see `MatmulRequest`).  ``d*`` multiplies X by the derivative of the activation, taken from
    `aux`; ``*_bgrad`` also sums D over its rows.  ``bgrada`` and ``bgradb`` sum op(A) and op(B) over k.
    GELU is the tanh approximation.

    Examples
    --------
    >>> an.Epilogue("gelu_bias").uses_bias
    True
    >>> [str(epilogue) for epilogue in an.Epilogue if epilogue.reads_aux]
    ['drelu', 'drelu_bgrad', 'dgelu', 'dgelu_bgrad']
    """

    DEFAULT = "default"
    RELU = "relu"
    BIAS = "bias"
    RELU_BIAS = "relu_bias"
    RELU_AUX = "relu_aux"
    RELU_AUX_BIAS = "relu_aux_bias"
    GELU = "gelu"
    GELU_BIAS = "gelu_bias"
    GELU_AUX = "gelu_aux"
    GELU_AUX_BIAS = "gelu_aux_bias"
    DRELU = "drelu"
    DRELU_BGRAD = "drelu_bgrad"
    DGELU = "dgelu"
    DGELU_BGRAD = "dgelu_bgrad"
    BGRADA = "bgrada"
    BGRADB = "bgradb"

    @property
    def uses_bias(self) -> bool:
        """Whether a bias vector is added."""
        return "bias" in self.value.split("_")

    @property
    def reads_aux(self) -> bool:
        """Whether `aux` is an input (backward)."""
        return self.value.startswith(("drelu", "dgelu"))

    @property
    def writes_aux(self) -> bool:
        """Whether `aux` is an output (forward)."""
        return "aux" in self.value.split("_")

    @property
    def writes_bias_grad(self) -> bool:
        """Whether a bias gradient is an output."""
        return "bgrad" in self.value

    @property
    def activation(self) -> str:
        """``"relu"``, ``"gelu"`` or ``""``, forward or backward."""
        return next((name for name in ("relu", "gelu") if name in self.value), "")


def check_epilogue_operands(request: Any, epilogue: Epilogue) -> None:
    """Raise `InvalidRequest` if a request gives what its epilogue does not use, or lacks what it needs."""
    uses_aux = epilogue.reads_aux or epilogue.writes_aux
    for name, used, needed in (
        ("bias", epilogue.uses_bias, epilogue.uses_bias),
        ("aux", uses_aux, epilogue.reads_aux),
        ("bias_grad", epilogue.writes_bias_grad, False),
    ):
        given = getattr(request, name) is not None
        if needed and not given:
            raise InvalidRequest(f"epilogue {epilogue.value!r} needs {name}, which is missing")
        if given and not used:
            users = {
                "bias": [e for e in Epilogue if e.uses_bias],
                "aux": [e for e in Epilogue if e.reads_aux or e.writes_aux],
                "bias_grad": [e for e in Epilogue if e.writes_bias_grad],
            }[name]
            raise InvalidRequest(
                f"{name} is given, but epilogue {epilogue.value!r} does not use it; those that do: {', '.join(users)}"
            )
