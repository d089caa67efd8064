"""Algorithms of singular values and eigenvalues on a GPU, as data; `docs/libraries/solver.md` has the table."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ALGORITHMS", "AUTO", "GENERAL_ON_HOST", "Algorithm", "algorithms_of", "call_of", "of_the_loop"]

#: The algorithm of the route that a matrix takes.
AUTO: Final = "auto"

_SVD: Final = ("svd", "svdvals")
_EIGH: Final = ("eigh", "eigvalsh")
#: Rows of the largest matrix whose general eigenproblem the host solves by default.  Not measured: cuSOLVER works on
#: both sides, and was 18 to 130 times slower than a processor for small matrices (pytorch#183806).
GENERAL_ON_HOST: Final = 1024


class Algorithm(NamedTuple):
    """An algorithm that a request may name.

    Attributes
    ----------
    calls : dict of str to str
        By routine, the function of cuSOLVER without its prefix; other routines do not have the algorithm.
    routes : tuple of str
        Routes that compute it, in the order in which a batch takes them.
    waits : bool
        Whether the function waits for the device, so that its lane does; others go on.
    complete : bool
        Whether it makes complete bases, ``mode="complete"``.
    """

    calls: dict[str, str]
    routes: tuple[str, ...]
    waits: bool = False
    complete: bool = False


ALGORITHMS: Final[dict[str, Algorithm]] = {
    "qr": Algorithm(dict.fromkeys(_SVD, "gesvd"), ("loop",), complete=True),
    "divide": Algorithm(dict.fromkeys(_EIGH, "syevd"), ("batched", "loop")),
    "jacobi": Algorithm(
        dict.fromkeys(_SVD, "gesvdj") | dict.fromkeys(_EIGH, "syevj"), ("kernel", "loop"), waits=True
    ),
    "polar": Algorithm(dict.fromkeys(_SVD, "gesvdp"), ("loop",), waits=True),
    "approximate": Algorithm({"svd": "gesvda"}, ("batched",), waits=True),
}  # fmt: skip


def algorithms_of(routine: str) -> tuple[str, ...]:
    """Return the algorithms that a routine may name."""
    return tuple(name for name, algorithm in ALGORITHMS.items() if routine in algorithm.calls)


def of_the_loop(routine: str, algorithm: str = AUTO) -> str:
    """Return the algorithm of the function of cuSOLVER for single matrices."""
    if algorithm == AUTO:
        return "qr" if routine in _SVD else "divide" if routine in _EIGH else AUTO
    return algorithm


def call_of(routine: str, algorithm: str) -> str:
    """Return the function of cuSOLVER for single matrices, without its prefix."""
    return ALGORITHMS[of_the_loop(routine, algorithm)].calls[routine]
