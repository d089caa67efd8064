"""Generators of cuRAND that the random actor draws from by the library itself, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ..._support.checks import as_integer, check_choice
from ..._support.public import public
from ...errors import InvalidRequest
from .generator import POSITIONS, SEEDS

__all__ = ["DRAWN", "NAMES", "ORDERINGS", "PAIRED", "RULES", "CurandEngine", "Rules", "engine_of"]

_PREFIX: Final = "curand_"
_DIMENSIONS: Final = 20000


class Rules(NamedTuple):
    """The rules of a generator of cuRAND.

    Attributes
    ----------
    kind : str
        Its name in cuRAND, without ``CURAND_RNG_``.
    orderings : tuple of str
        The orders in which results lie in memory.
    words : str
        The dtype of its words.
    dimensions : int
        At most; 0 of pseudo-random generators.
    seeds : int
        Seeds are below it.
    positions : int
        Offsets, and offsets plus as many positions as are drawn, are at most this; 0 without offsets.
    """

    kind: str
    orderings: tuple[str, ...] = ("default",)
    words: str = "uint32"
    dimensions: int = 0
    seeds: int = SEEDS
    positions: int = POSITIONS

    @property
    def quasi(self) -> bool:
        """Whether its numbers fill a space evenly, in place of being independent."""
        return self.dimensions > 0


def _sobol(kind: str, bits: int) -> Rules:
    return Rules(f"QUASI_{kind}SOBOL{bits}", (), f"uint{bits}", _DIMENSIONS, 1, 2**bits)


#: The generators, by name.
RULES: Final[dict[str, Rules]] = {
    "xorwow": Rules("PSEUDO_XORWOW", ("default", "best", "legacy", "seeded", "dynamic")),
    "mrg32k3a": Rules("PSEUDO_MRG32K3A", ("default", "best", "legacy", "dynamic")),
    "mtgp32": Rules("PSEUDO_MTGP32", ("default", "best", "legacy", "dynamic"), positions=0),
    "mt19937": Rules("PSEUDO_MT19937", ("default", "best"), positions=0),
    "sobol32": _sobol("", 32),
    "scrambled_sobol32": _sobol("SCRAMBLED_", 32),
    "sobol64": _sobol("", 64),
    "scrambled_sobol64": _sobol("SCRAMBLED_", 64),
}
#: What requests may name as their engine.
NAMES: Final = tuple(f"{_PREFIX}{name}" for name in RULES)
ORDERINGS: Final = ("default", "best", "legacy", "seeded", "dynamic")
#: What they draw, with the dtypes of elements; integers are of the words' dtype.
DRAWN: Final[dict[str, tuple[str, ...]]] = {
    "integers": (),
    "uniform": ("float32", "float64"),
    "normal": ("float32", "float64"),
    "lognormal": ("float32", "float64"),
    "poisson": ("uint32",),
}
#: Distributions whose numbers pseudo-random generators make in pairs.
PAIRED: Final = ("normal", "lognormal")


@public
@dataclass(frozen=True, slots=True)
class CurandEngine:
    """A generator of cuRAND, as the `engine` of random numbers.

    Parameters
    ----------
    name : str
        ``"xorwow"``, ``"mrg32k3a"``, ``"mtgp32"``, ``"mt19937"``; ``"sobol32"``, ``"sobol64"``,
        ``"scrambled_sobol32"`` or ``"scrambled_sobol64"``.
    dimensions : int
        Of Sobol points, from 1 to 20000.  All numbers of the first dimension come first, and then those of the next.
    ordering : str
        The order of results in memory: ``"default"``, ``"best"``, ``"legacy"``, which no release of cuRAND changes,
        of XORWOW ``"seeded"``, or ``"dynamic"``, which differs with the GPU and does not exist on the host.  Sobol
        numbers have ``"default"``, MT19937 that and ``"best"``.

    Raises
    ------
    InvalidRequest
        For what the generator does not have; the message names the value and the allowed ones.

    Examples
    --------
    >>> an.CurandEngine("sobol32", dimensions=3)
    CurandEngine(name='sobol32', dimensions=3, ordering='default')
    """

    name: str
    dimensions: int = 1
    ordering: str = "default"

    def __post_init__(self) -> None:
        check_choice("name", self.name, RULES)
        rules = self.rules
        most = rules.dimensions or 1
        try:
            as_integer("dimensions", self.dimensions, 1, most)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error.message} for {self.name}") from None
        orderings = rules.orderings or ("default",)
        if self.ordering not in orderings:
            raise InvalidRequest(
                f"ordering={self.ordering!r}; allowed for {self.name}: {', '.join(map(repr, orderings))}"
            )

    @property
    def rules(self) -> Rules:
        """The rules of the generator."""
        return RULES[self.name]


def engine_of(engine: object) -> CurandEngine | None:
    """Return the generator of cuRAND that a request names, or None: then a kernel of this library draws."""
    if isinstance(engine, CurandEngine):
        return engine
    if isinstance(engine, str) and engine in NAMES:
        return CurandEngine(engine.removeprefix(_PREFIX))
    return None
