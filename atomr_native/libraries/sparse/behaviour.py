"""How the methods of sparse matrices behave, as data; `docs/libraries/sparse.md` has the same table."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["BEHAVIOUR", "Behaviour"]


class Behaviour(NamedTuple):
    """The behaviour of a method.

    Attributes
    ----------
    waits : bool
        Whether its caller waits for a number of the device, in the most general case.  No lane does.
    recorded : bool
        Whether a recorded program takes it.  Methods that wait are refused there with `InvalidRequest`.
    deterministic : str
        ``"always"``: it gives equal bits in each run, on one GPU and by one version of the libraries; ``"asked"``: with
        ``deterministic=True``, which is refused where no algorithm does.
    """

    waits: bool = False
    recorded: bool = True
    deterministic: Literal["always", "asked"] = "always"


BEHAVIOUR: Final[dict[str, Behaviour]] = {
    **dict.fromkeys(("spmv", "spmm"), Behaviour(deterministic="asked")),
    **dict.fromkeys(
        (
            "sddmm", "semiring", "solve_triangular", "ilu0", "ic0", "tell", "sort", "convert", "to_dense",
            "prune_24", "compress_24", "linear_24",
        ),
        Behaviour(),
    ),
    **dict.fromkeys(
        (
            "validate", "coalesce", "prune", "from_dense", "matmul_pattern", "add_pattern", "matmul", "add", "check_24",
            "structured",
        ),
        Behaviour(waits=True, recorded=False),
    ),
    "direct": Behaviour(waits=True, recorded=False, deterministic="asked"),
}  # fmt: skip
