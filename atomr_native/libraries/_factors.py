"""The factors alpha and beta in a message: vocabulary that the BLAS libraries share."""

from __future__ import annotations

from ..plans.lowering import Scalar

__all__ = ["FACTORS", "factor_scalars", "split_factors"]

#: Names of the factors in a request.
FACTORS = ("alpha", "beta")


def factor_scalars(alpha: complex, beta: complex, *, is_complex: bool) -> tuple[Scalar, ...]:
    """Return the scalars of a message: both factors, and their imaginary parts where they are complex.

    Immediate calls share a plan whatever their factors: its defaults are 1 and 0.
    """
    if not is_complex:
        return Scalar("alpha", "float64", float(alpha), 1.0), Scalar("beta", "float64", float(beta), 0.0)  # type: ignore[arg-type]
    real, added, imaginary, added_imaginary = split_factors(alpha, beta)
    return (
        Scalar("alpha", "float64", real, 1.0),
        Scalar("beta", "float64", added, 0.0),
        Scalar("alpha_imag", "float64", imaginary, 0.0, imaginary_of="alpha"),
        Scalar("beta_imag", "float64", added_imaginary, 0.0, imaginary_of="beta"),
    )


def split_factors(alpha: complex, beta: complex) -> tuple[float, ...]:
    """Return the scalars of a complex message."""
    first, second = complex(alpha), complex(beta)
    return first.real, second.real, first.imag, second.imag
