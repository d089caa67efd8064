"""Collectives whose layouts are known: their further messages go without the checks of `lower`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._lib.sender import VOLATILE, in_one_place
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of
from ..dtypes import as_dtype
from .request import CollectiveRequest, Lowered, Use

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .._lib.sender import Layout, RanksMessage
    from ..plans.plan import Plan
    from .communicator import Communicator

__all__ = ["Prepared", "structure_of"]

#: Where an operand comes from.
_ARRAYS, _OUT, _FRESH = range(3)
#: Methods that leave one array, by the field of the step that says on which rank.
_OF_ONE_RANK: Final = {"reduce": "root", "gather": "root", "send": "target"}


def _layouts(given: object) -> Hashable:
    if given is None:
        return None
    if type(given) is GpuRef:
        return given.layout, given.allocation.core
    if type(given) is list or type(given) is tuple:
        return tuple([ref.layout for ref in given])
    raise TypeError


def structure_of(request: CollectiveRequest) -> Hashable:
    """Return what requests have in common that become messages of the same plans; None if it would take long to say."""
    if type(request) is not CollectiveRequest:
        return None
    factor = request.factor
    if request.counts is not None or type(request.root) is not int or type(factor) not in (int, float, type(None)):
        return None
    try:
        exact = None if factor is None else repr(factor)  # 0.0 and -0.0 are equal, and so are 2 and 2.0
        key = (request.kind, request.op, request.root, exact, _layouts(request.arrays), _layouts(request.out))
        hash(key)
    except (TypeError, AttributeError):
        return None  # `lower` says what is wrong with it
    return key


class Prepared:
    """A collective of known layouts.  It holds no array.

    Attributes
    ----------
    plans : list of Plan
        That of each rank.
    numbers : tuple of (int or float)
        Scalars.
    """

    __slots__ = ("__weakref__", "_apart", "_factors", "_fresh", "_given", "_one", "_ranks", "_root", "numbers", "plans")

    def __init__(self, lowered: Lowered, request: CollectiveRequest, plans: list[Plan]) -> None:
        self.plans = plans
        self.numbers = lowered.numbers
        step = lowered.step
        self._one: int | None = getattr(step, _OF_ONE_RANK[step.kind]) if step.kind in _OF_ONE_RANK else None
        self._root = step.root if step.kind == "broadcast" else None
        self._apart = step.kind not in ("all_reduce", "reduce")
        self._fresh = request.out is None
        self._factors = any(use.name == "factor" for uses in lowered.uses for use in uses)
        #: Whether lists are given: of the arrays, and of the outputs.
        self._given = (not isinstance(request.arrays, GpuRef), not isinstance(request.out, GpuRef))
        self._ranks = [
            (plan.core, tuple(self._place(use, rank) for use in uses))
            for rank, (plan, uses) in enumerate(zip(plans, lowered.uses, strict=True))
        ]

    def arm(self, message: RanksMessage, communicator: Communicator) -> None:
        """Have a message of this collective send by itself what needs none of the checks of `operands`."""
        places = [mine for _, mine in self._ranks]
        if self._factors or any(source == _FRESH for mine in places for source, _, _ in mine):
            return
        message.arm(
            *communicator.key,
            self.plans,
            [[(int(source == _OUT), layout) for source, _, layout in mine] for mine in places],
            self.numbers,
            self._given,
            self._apart,
            -1 if self._root is None else self._root,
            GpuRef,
        )

    def _place(self, use: Use, rank: int) -> tuple[int, int, Layout]:
        """Return where an operand comes from, at which place, and its layout."""
        if use.ref is None:
            return _FRESH, 0, layout_of(use.shape, as_dtype(use.dtype))
        source = _ARRAYS if use.name == "x" else _OUT
        return source, rank if self._given[source] else 0, use.ref.layout

    def operands(self, arrays: Any, out: Any) -> list[tuple[GpuRef, ...]] | None:
        """Return the operands of each rank, for arrays of this structure; None if `lower` has to check them.

        It also has to if a factor is an array.
        """
        given = (arrays if self._given[_ARRAYS] else (arrays,), out if self._given[_OUT] else (out,))
        n = len(self._ranks)
        if self._factors or (out is None) != self._fresh:
            return None
        for some, lists in zip(given, self._given, strict=True):
            if lists and some is not None and (type(some) not in (list, tuple) or len(some) != n):
                return None
        found = []
        for core, places in self._ranks:
            mine = tuple(
                [
                    given[source][at] if source != _FRESH else core.empty(GpuRef, layout, VOLATILE)
                    for source, at, layout in places
                ]
            )
            for ref, (_, _, layout) in zip(mine, places, strict=True):
                if type(ref) is not GpuRef or ref.layout is not layout or ref.allocation.core is not core:
                    return None
            if len(mine) == 2 and mine[0].allocation is mine[1].allocation and (self._apart or mine[0] is not mine[1]):
                return None
            found.append(mine)
        if not in_one_place(found):
            return None
        root = self._root
        if root is not None and out is not None and (out[root] is arrays) != (len(found[root]) == 1):
            return None
        return found

    def result(self, refs: list[tuple[GpuRef, ...]]) -> Any:
        """Return what the method returns: the output of a rank, or of each."""
        if self._one is not None:
            return refs[self._one][-1]
        return [mine[-1] for mine in refs]
