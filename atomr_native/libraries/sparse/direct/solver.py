"""A direct solver: its arrays, and the messages of its phases."""

from __future__ import annotations

import itertools
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...._lib.guard import finish
from ...._support.checks import as_integer, check_choice, check_flag
from ...._support.public import public
from ....arrays.layout import layout_from
from ....arrays.operands import (
    check_handle,
    check_input,
    check_output,
    contiguous_strides,
    is_contiguous,
    overlaps,
)
from ....dtypes import DTYPES, as_dtype, dtype_name
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..matrix import SparseMatrix
from .request import DirectRequest

if TYPE_CHECKING:
    from ....arrays.gpu_ref import GpuRef

__all__ = ["KINDS", "TRIANGLES", "DirectSolver"]

KINDS: Final = ("general", "symmetric", "hermitian", "positive")
TRIANGLES: Final = ("full", "lower", "upper")
_DTYPES: Final = ("float32", "float64", "complex64", "complex128")
#: Bytes for an analysis: at first, and for each stored element.
_FIRST: Final = 16 << 20
_EACH: Final = 64
#: Bytes for factors beyond the library's estimate, and the factor for parts that leave gaps.
_SLACK: Final = 16 << 20
_GAPS: Final = 1.25
#: Bytes of which the address of right sides and solutions is a multiple: cuDSS documents none.
_ALIGNED: Final = 16
_numbers = itertools.count(1)


def _end(actor: Any, number: int) -> None:
    """Have the worker drop what a solver has analysed and factored: its actor would remember the plans."""

    def own(spec: PlanSpec[Any]) -> bool:
        return spec.op == "sparse.direct" and spec.attributes.number == number

    finish(partial(actor._forget_plans, own))  # noqa: SLF001 - no method for users


@public
class DirectSolver:
    """A solver of ``A X = B`` by factors of a sparse A, for one pattern; `Sparse.direct` makes it.

    It has copies of A's arrays, so what happens to these later is no matter: an analysis is never stale.  Its memory is
    an array like others, and freed with it.

    Attributes
    ----------
    shape, dtype, batch
        As of A.
    nbytes : int
        Bytes of device memory that it holds.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[4.0, 1.0], [1.0, 3.0]]))
    >>> solver = device.sparse.direct(a, kind="positive")
    >>> solver.factor()
    >>> solver.solve(device.put(np.array([1.0, 2.0]))).numpy().round(4)
    array([0.0909, 0.6364])
    >>> solver.refactor(device.put(np.array([2.0, 0.0, 0.0, 2.0])))
    >>> solver.solve(device.put(np.array([1.0, 2.0]))).numpy()
    array([0.5, 1. ])
    """

    def __init__(
        self, actor: Any, a: SparseMatrix, kind: str, triangle: str, columns: int, deterministic: bool, durable: bool
    ) -> None:
        self._actor, self._device = actor, actor.device
        self._number = next(_numbers)
        self._room = as_integer("columns", columns, 1, 2**31 - 1)
        check_choice("kind", kind, KINDS)
        check_choice("triangle", triangle, TRIANGLES)
        check_flag("deterministic", deterministic)
        check_flag("durable", durable)
        if not isinstance(a, SparseMatrix) or a.format != "csr":
            found = a.format if isinstance(a, SparseMatrix) else repr(a)
            raise InvalidRequest(f"a is {found}; direct takes csr, which device.sparse.convert makes")
        if a.shape[0] != a.shape[1] or a.shape[0] < 1 or a.nnz < 1:
            raise InvalidRequest(
                f"shape={a.shape} with {a.nnz} stored elements; direct takes a square matrix with some"
            )
        if dtype_name(a.dtype) not in _DTYPES:
            raise InvalidRequest(f"values has dtype {dtype_name(a.dtype)}; direct allows: {', '.join(_DTYPES)}")
        if triangle != "full" and kind == "general":
            raise InvalidRequest(f"triangle={triangle!r} of kind='general'; allowed: 'full'")
        facts = actor.validate(a)
        if not facts.sorted or facts.duplicates:
            raise InvalidRequest(
                f"a has rows that are not in order, or {facts.duplicates} duplicates; device.sparse.coalesce removes "
                f"both"
            )
        self.shape, self.dtype, self.batch = a.shape, a.dtype, a.batch
        self._how: dict[str, Any] = {
            "number": self._number, "n": a.shape[0], "kind": kind, "triangle": triangle, "room": self._room,
            "deterministic": deterministic,
        }  # fmt: skip
        self._durable = durable
        copy = self._device.copy
        self._arrays = {name: copy(array, durable=durable) for name, array in a.arrays.items()}
        self._values = self._arrays["values"]
        self._factored = False
        weakref.finalize(self, _end, actor, self._number).atexit = False
        self._plans: dict[tuple[Any, ...], Any] = {}
        self._memory: Any = None
        self._analyse()

    def _fixed(self) -> dict[str, Any]:
        return {name: self._arrays[name] for name in ("offsets", "indices", "values")}

    def _request(self, phase: str, *, check: bool = False, **arrays: Any) -> DirectRequest:
        return DirectRequest(phase=phase, check=check, **self._how, **self._fixed(), memory=self._memory, **arrays)

    def _analyse(self) -> None:
        device, n = self._device, self.shape[0]
        nbytes, wanted = _FIRST + _EACH * int(self._arrays["indices"].size), 1
        while wanted:
            self._memory = plan = None  # before there is more of it
            self._memory = device.empty((nbytes,), "uint8", durable=self._durable)
            sizes = device.empty((4,), "int64")
            plan = self._actor.plan(self._request("analyse", sizes=sizes))
            plan.ask(*self._fixed().values(), self._memory, sizes).result()
            taken, permanent, peak, wanted = (int(size) for size in sizes.numpy())
            nbytes = max(2 * nbytes, taken + wanted + _FIRST)
        self._plans["analyse", False] = plan  # the worker keeps the analysis as long as a plan
        solves = 2 * n * self._room * (self.batch or 1) * self.dtype.itemsize
        more = 256 if device.kind == "host" else int(max(permanent, peak) * _GAPS) + solves + _SLACK
        self._factors = device.empty((more,), "uint8", durable=self._durable)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that it holds."""
        return sum(int(array.nbytes) for array in (*self._arrays.values(), self._memory, self._factors))

    def __repr__(self) -> str:
        batch = "" if self.batch is None else f", batch of {self.batch}"
        return f"<DirectSolver {self._how['kind']} {self.shape} {dtype_name(self.dtype)}{batch}>"

    def _factor(self, phase: str, values: GpuRef | None, check: bool) -> None:
        check_flag("check", check)
        if values is not None:
            check_handle("values", values)
            given, wanted = check_input("values", values), tuple(self._values.shape)
            if tuple(given.shape) != wanted or as_dtype(given.dtype) != self.dtype:
                raise InvalidRequest(
                    f"values has shape {tuple(given.shape)} and dtype {dtype_name(as_dtype(given.dtype))}; allowed: "
                    f"{wanted} of {dtype_name(self.dtype)}"
                )
            self._device.copy(values, out=self._values)
        key = (phase, check)
        if key not in self._plans:
            self._plans[key] = self._actor.plan(self._request(phase, check=check, factors=self._factors))
        self._plans[key].tell(*self._fixed().values(), self._memory, self._factors)
        self._factored = True

    def factor(self, values: GpuRef | None = None, *, check: bool = True) -> None:
        """Send a factorization of A.  Enqueues.

        Parameters
        ----------
        values : GpuRef, optional
            New values of A, as the pattern has them, which are copied; (nnz,), or (batch, nnz).
        check : bool
            Whether the lane looks at the outcome.  Without it, a matrix that has no factors gives infinities, NaN or
            nothing useful, and no error.  On a GPU the lane waits either way; other lanes go on.

        Raises
        ------
        InvalidRequest
            For other shapes or dtypes.

        Notes
        -----
        What is solved with a matrix that has no factors raises `NotPositiveDefinite` or `SingularMatrix` when it is
        read; another `factor` ends that.
        """
        self._factor("factor", values, check)

    def refactor(self, values: GpuRef | None = None, *, check: bool = True) -> None:
        """Send a factorization with the pivots of the last one: faster, for values that differ little.  Enqueues.

        Parameters are those of `factor`, which is sent where there was none.
        """
        self._factor("refactor" if self._factored else "factor", values, check)

    def solve(self, b: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send X of ``A X = B``, by the last factorization.  Enqueues.

        Parameters
        ----------
        b : GpuRef
            (n,) or (n, any), of A's dtype; of a batch with an axis more, in front.  Columns that do not follow each
            other in memory, or begin at no multiple of 16 bytes, are copied.  More columns than the solver has room for
            are several messages.
        out : GpuRef, optional
            X, of b's shape; by default a new array, whose columns follow each other in memory.  Another layout, and
            memory of b, is copied to.

        Raises
        ------
        InvalidRequest
            For other shapes or dtypes, and before the first factorization.
        """
        if not self._factored:
            raise InvalidRequest("the solver has no factors; send factor() first")
        front = () if self.batch is None else (self.batch,)
        lead = (*front, self.shape[0])
        check_handle("b", b)
        given = check_input("b", b)
        shape = tuple(given.shape)
        if shape[: len(lead)] != lead or len(shape) not in (len(lead), len(lead) + 1):
            raise InvalidRequest(f"b has shape {shape}; allowed: {lead} or {lead} and an axis more")
        if as_dtype(given.dtype) != self.dtype:
            raise InvalidRequest(f"b has dtype {dtype_name(as_dtype(given.dtype))}; allowed: {dtype_name(self.dtype)}")
        if out is not None:
            check_handle("out", out)
            check_output("out", out)
            if tuple(out.shape) != shape or as_dtype(out.dtype) != self.dtype:
                raise InvalidRequest(
                    f"out has shape {tuple(out.shape)} and dtype {dtype_name(as_dtype(out.dtype))}; allowed: {shape} "
                    f"of {dtype_name(self.dtype)}"
                )
        vector = len(shape) == len(lead)
        columns = 1 if vector else shape[-1]
        if self.batch is not None and columns > self._room:
            raise InvalidRequest(f"b has {columns} columns; the solver of a batch has room for {self._room}: columns=")
        turned = (*front, columns, self.shape[0])
        source = self._view(b, vector, turned)
        if source is None:
            source = self._copied(b, vector, turned)
        target = None if out is None or overlaps((b, out)) else self._view(out, vector, turned)
        made = self._new(turned) if target is None else target
        if 0 not in turned:
            step = self._room if self.batch is None else columns
            for first in range(0, columns, step):
                part = slice(first, first + step)
                self._send(source if columns <= step else source[part], made if columns <= step else made[part])
        if out is not None and target is not None:
            return out
        found: GpuRef = (
            made.reshape(shape) if vector else made.transpose(*range(len(front)), len(front) + 1, len(front))
        )
        if out is None:
            return found
        self._device.copy(found, out=out)
        return out

    def _new(self, shape: tuple[int, ...]) -> GpuRef:
        made: GpuRef = self._device.empty(shape, dtype_name(self.dtype))
        return made

    def _copied(self, b: GpuRef, vector: bool, turned: tuple[int, ...]) -> GpuRef:
        """Return a copy of sides with columns one after the other."""
        if vector:
            dense: GpuRef = self._device.copy(b, out=self._new(b.shape)).reshape(turned)
            return dense
        axes = len(turned)
        made: GpuRef = self._device.copy(b.transpose(*range(axes - 2), axes - 1, axes - 2), out=self._new(turned))
        return made

    @staticmethod
    def _view(given: GpuRef, vector: bool, turned: tuple[int, ...]) -> GpuRef | None:
        """Return sides with columns one after the other, if they lie so, from an even address on."""
        axes = len(turned)
        view = given if vector else given.transpose(*range(axes - 2), axes - 1, axes - 2)
        if not is_contiguous(view) or given.offset % _ALIGNED:
            return None
        name = dtype_name(as_dtype(given.dtype))
        steps = contiguous_strides(turned, DTYPES[name].itemsize)  # those of axes of one element, too
        return given.view_as(layout_from(turned, steps, name), given.offset)

    def _send(self, b: GpuRef, x: GpuRef) -> None:
        columns = int(b.shape[-2])
        plan = self._plans.get(("solve", columns))
        if plan is None:
            plan = self._actor.plan(self._request("solve", factors=self._factors, b=b, x=x))
            self._plans["solve", columns] = plan
        plan.tell(*self._fixed().values(), self._memory, self._factors, b, x)
