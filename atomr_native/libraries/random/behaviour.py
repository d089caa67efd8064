"""How the methods of random numbers behave on a GPU, as data; `docs/libraries/random.md` has the same table."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["BEHAVIOUR", "ENGINE", "Behaviour"]


class Behaviour(NamedTuple):
    """The behaviour of a method, which gives equal bits in each run.

    None waits for the device, apart from the Mersenne Twisters of cuRAND.

    Attributes
    ----------
    captured : str
        Whether a recorded program has it in its graph: ``"always"``, with ``"numbers"`` as parameters only, or
        ``"never"``.  The others are launched step by step.
    fails : bool
        Whether its message may fail on the device, in the most general case.
    """

    captured: Literal["always", "numbers", "never"]
    fails: bool = False


BEHAVIOUR: Final[dict[str, Behaviour]] = {
    **dict.fromkeys(
        (
            "uniform", "integers", "bernoulli", "normal", "lognormal", "truncated_normal", "exponential", "gamma",
            "beta", "cauchy", "geometric", "poisson", "binomial",
        ),
        Behaviour("numbers", fails=True),
    ),
    "discrete": Behaviour("never", fails=True),
    **dict.fromkeys(("permutation", "shuffle"), Behaviour("always")),
}  # fmt: skip
#: Of any method with a `CurandEngine`.
ENGINE: Final = Behaviour("never")
