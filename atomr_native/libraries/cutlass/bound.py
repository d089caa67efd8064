"""Products with operands that stay: weights bound to a plan, and replaced between messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..._lib.guard import Lock
from ..._support.options import check_options
from ..._support.public import public
from ...arrays.operands import check_handle
from ...dtypes import dtype_name
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan
    from ...plans.reply import Reply

__all__ = ["BoundGemm", "BoundGemms"]

#: Bound products that an actor knows by name.
_MOST: Final = 64


@public
class BoundGemm:
    """A plan of a product together with some of its operands; made by `Cutlass.bind`.

    Messages take the operands that are bound when they are sent, all of one `refit`: those in flight keep theirs.

    Attributes
    ----------
    plan : Plan

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 4), "float32")), device.put(np.eye(4, dtype="float32"))
    >>> layer = device.cutlass.bind("up", x, w, epilogue="relu(acc)")
    >>> layer.tell(x).numpy()[0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    >>> layer.refit(b=device.put(np.full((4, 4), 2, dtype="float32")))
    >>> layer.tell(x).numpy()[0].tolist()
    [8.0, 8.0, 8.0, 8.0]
    """

    def __init__(self, plan: Plan, fixed: Mapping[str, Any], allocate: Callable[[], GpuRef]) -> None:
        self.plan = plan
        self._inputs = tuple(o.name for o in plan.spec.operands if o.name != "out")
        self._allocate = allocate
        self._fixed = dict(fixed)
        self._lock = Lock()

    @property
    def operands(self) -> dict[str, GpuRef]:
        """What is bound now, by name."""
        return dict(self._fixed)

    def tell(self, a: GpuRef, *, out: GpuRef | None = None, **numbers: float) -> GpuRef:
        """Send a product of `a` and what is bound; returns D at once, which is allocated unless it is given.

        Numbers of the epilogue, such as ``alpha=2.0``, are for this message only.
        """
        made = self._allocate() if out is None else out
        self.plan.tell(*self._operands(a), out=made, **numbers)
        return made

    def ask(self, a: GpuRef, *, out: GpuRef | None = None, **numbers: Any) -> Reply:
        """Send a product as `tell` does; returns its reply."""
        return self.plan.ask(*self._operands(a), out=self._allocate() if out is None else out, **numbers)

    def _operands(self, a: GpuRef) -> tuple[GpuRef, ...]:
        fixed = self._fixed  # one reading: a refit puts another mapping there
        return tuple(a if name == "a" else fixed[name] for name in self._inputs)

    def refit(self, **operands: GpuRef) -> None:
        """Bind other arrays of the same layouts, all at once; messages that were sent before keep theirs.

        Compiles and builds nothing, and waits for nothing.

        Raises
        ------
        InvalidRequest
            For an operand that is not bound, or an array of another shape, dtype or strides; nothing is bound then.
        """
        check_options("what is bound", operands, self._fixed)
        for name, array in operands.items():
            check_handle(name, array)
            old = self._fixed[name]
            if array is None or array.layout != old.layout:
                given = None if array is None else (tuple(array.shape), dtype_name(array.dtype), array.strides)
                raise InvalidRequest(
                    f"{name} has shape, dtype and strides {given}; allowed: those of what is bound, "
                    f"{(tuple(old.shape), dtype_name(old.dtype), old.strides)}"
                )
        with self._lock:
            self._fixed = self._fixed | operands


class BoundGemms:
    """The bound products of an actor by name; the least recently used is forgotten first, and stays usable."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, BoundGemm] = OrderedDict()
        self._lock = Lock()

    def add(self, name: str, made: BoundGemm) -> None:
        """Keep a bound product under a name."""
        if not isinstance(name, str) or not name:
            raise InvalidRequest(f"name is {name!r:.100}; allowed: a string that is not empty")
        with self._lock:
            self._known[name] = made
            self._known.move_to_end(name)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def find(self, name: str) -> BoundGemm:
        """Return the product of a name.

        Raises
        ------
        InvalidRequest
            If there is none.
        """
        with self._lock:
            found = self._known.get(name)
            if found is None:
                raise InvalidRequest(
                    f"no product is bound as {name!r:.100}; bound: {', '.join(self._known) or 'none'} (at most {_MOST})"
                )
            self._known.move_to_end(name)
            return found
