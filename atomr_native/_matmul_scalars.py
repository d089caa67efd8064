"""The scalars of a matmul's messages: its factors, in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._matmul_spec import MatmulShape

__all__ = ["scalar_names", "scalar_values"]


def scalar_names(shape: MatmulShape) -> tuple[str, ...]:
    """Return the names of a message's scalars."""
    if shape.on_device:
        return ()
    return ("alpha", "beta", "alpha_imag", "beta_imag") if shape.scale.kind == "c" else ("alpha", "beta")


def scalar_values(shape: MatmulShape, alpha: Any, beta: Any) -> tuple[float, ...]:
    """Return the values of a message's scalars."""
    if shape.on_device:
        return ()
    if shape.scale.kind == "c":
        return complex(alpha).real, complex(beta).real, complex(alpha).imag, complex(beta).imag
    return float(alpha), float(beta)
