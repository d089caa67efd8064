"""Several routes to one result, of which a plan takes the first that is supported.

A route is one call of a library, a call and a kernel after it, or kernels alone.  A route that is not possible raises
`Unsupported`; later routes see the reason, so that a plan's notes can give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...errors import AtomrError, Unsupported

__all__ = ["NoRoute", "Refusal", "Refusals", "Route", "first_supported"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A route that was refused.

    Attributes
    ----------
    route : str
        Its name.
    message : str
        The reason.
    rule : str
    lifted_by : tuple of str
        As of `Unsupported`.
    """

    route: str
    message: str
    rule: str = ""
    lifted_by: tuple[str, ...] = ()


Refusals = tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Route(Generic[T]):
    """A way to build a plan.

    Attributes
    ----------
    name : str
        For people: ``"one call"``.
    build : callable
        Gets the refusals so far and returns what is built, or raises `Unsupported`.
    """

    name: str
    build: Callable[[Refusals], T]


class NoRoute(Exception):
    """Every route was refused.

    Attributes
    ----------
    refusals : tuple of Refusal
        In the order of the routes.
    """

    def __init__(self, refusals: Refusals) -> None:
        super().__init__("; ".join(f"{refusal.route}: {refusal.message}" for refusal in refusals))
        self.refusals = refusals


def first_supported(routes: Iterable[Route[T]], *, errors: tuple[type[AtomrError], ...] = (Unsupported,)) -> T:
    """Build by the first route that is supported.

    Parameters
    ----------
    routes
        In the order in which they are tried; taken from the iterable only when those before them are refused.
    errors
        The errors that refuse a route.

    Raises
    ------
    NoRoute
        If every route is refused.

    Notes
    -----
    No error is kept: its frames would keep what a route has built, native plans among it.
    """
    refused: Refusals = ()
    for route in routes:
        try:
            return route.build(refused)
        except errors as error:
            rule, lifted_by = (error.rule, error.lifted_by) if isinstance(error, Unsupported) else ("", ())
            message = error.message if isinstance(error, Unsupported) else str(error)
            refused = (*refused, Refusal(route.name, message, rule, lifted_by))
    raise NoRoute(refused)
