"""How the solver's methods behave on a GPU, as data; `docs/libraries/solver.md` has the same table."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["BEHAVIOUR", "Behaviour"]


class Behaviour(NamedTuple):
    """The behaviour of a method.

    Attributes
    ----------
    waits : bool
        Whether its caller waits for the device, in the most general case.
    lane_waits : bool
        Whether its lane does, with some of its options; others never wait for it.
    captured : bool
        Whether a recorded program has it in its graph, by a route at least.  Failures of the others arrive late.
    deterministic : bool
        Whether it gives equal bits in each run, on one GPU and by one version of the libraries, unless
        ``System(deterministic=True)`` refuses it.
    """

    waits: bool = False
    lane_waits: bool = False
    captured: bool = False
    deterministic: bool = True


BEHAVIOUR: Final[dict[str, Behaviour]] = {
    **dict.fromkeys(
        (
            "cholesky", "lu_factor", "solve", "inv", "det", "slogdet", "solve_triangular", "inv_triangular",
            "qr_multiply", "lstsq", "pinv", "matrix_rank", "polar", "ldl_factor", "svd_low_rank",
        ),
        Behaviour(),
    ),
    **dict.fromkeys(("cholesky_solve", "lu_solve", "ldl_solve", "qr", "qr_factor"), Behaviour(captured=True)),
    **dict.fromkeys(("svd", "svdvals", "eigh", "eigvalsh"), Behaviour(lane_waits=True)),
    **dict.fromkeys(("eig", "eigvals", "solve_refined"), Behaviour(waits=True, lane_waits=True)),
    **dict.fromkeys(("logm", "sqrtm", "expm"), Behaviour(waits=True)),
}  # fmt: skip
