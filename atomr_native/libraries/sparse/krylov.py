"""Krylov methods as messages of a recorded program whose loops the device ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...dtypes import dtype_name
from .gmres import BasisRequest, SolutionRequest
from .matrix import SparseMatrix
from .preconditioners import Preconditioner

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["Loop", "conjugate_gradients", "minimal_residuals", "stabilized"]

#: The statement with which a round ends.
_COUNTED: Final = "n = n + 1; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What the methods share: the system, the flag of the loop, and the numbers that set it.

    Attributes
    ----------
    recording
        In which the messages are.
    more : GpuRef
        Whether another round is needed.
    count, left : GpuRef
        Rounds so far, and the relative norm of the residual.
    scale : GpuRef
        Norm of b.
    restart : int
        Of GMRES.
    """

    actor: Any
    a: SparseMatrix
    preconditioner: Preconditioner
    recording: Any
    more: GpuRef
    count: GpuRef
    left: GpuRef
    scale: GpuRef
    tolerance: Any
    limit: int
    restart: int

    @property
    def device(self) -> Any:
        """The device."""
        return self.actor.device

    @property
    def run(self) -> Any:
        """Expressions of arrays."""
        return self.device.elementwise.run

    def zeros(self, *shape: int, dtype: str | None = None) -> GpuRef:
        """Return an array of A's dtype."""
        made: GpuRef = self.device.zeros(shape, dtype or dtype_name(self.a.dtype))
        return made

    def judge(self, square: Any, before: str = "", **more: Any) -> None:
        """Decide whether to go on, by the squared norm of a residual; NaN ends it.

        Statements `before` that, with arrays of their own, are of the same message.
        """
        self.run(
            f"{before}e = sqrt(s) / where(b == 0, 1 + 0 * b, b); more = (e > t) & (n < {self.limit})", s=square,
            b=self.scale, e=self.left, t=self.tolerance, n=self.count, more=self.more, **more,
        )  # fmt: skip

    @contextmanager
    def rounds(self) -> Iterator[None]:
        """Record the messages of a round, which ends with `judge` and `_COUNTED`."""
        with self.recording.while_(self.more, limit=self.limit + 1):
            yield


def conjugate_gradients(loop: Loop, b: GpuRef, x: GpuRef) -> None:
    """Record conjugate gradients from x = 0 on."""
    n, run, plain, dot = loop.a.shape[0], loop.run, loop.preconditioner.plain, loop.device.blas.dot
    r, p, q = (loop.zeros(n) for _ in range(3))
    z = r if plain else loop.zeros(n)
    before = loop.zeros()
    loop.device.copy(b, out=r)
    if not plain:
        loop.preconditioner.apply(r, z)
    loop.device.copy(z, out=p)
    dot(r, z, out=before)
    loop.judge(before if plain else dot(r, r))
    with loop.rounds():
        loop.actor.spmv(loop.a, p, out=q)
        run("a = b / s; x = x + a * p; r = r - a * q", b=before, s=dot(p, q), x=x, p=p, r=r, q=q)
        if not plain:
            loop.preconditioner.apply(r, z)
        now = dot(r, z)
        run("p = z + s / t * p", z=z, s=now, t=before, p=p)
        loop.judge(now if plain else dot(r, r), f"{_COUNTED}old = now; ", old=before, now=now)


def stabilized(loop: Loop, b: GpuRef, x: GpuRef) -> None:
    """Record stabilized biconjugate gradients from x = 0 on."""
    n, run, plain, dot = loop.a.shape[0], loop.run, loop.preconditioner.plain, loop.device.blas.dot
    r, shadow, p, v, s, t = (loop.zeros(n) for _ in range(6))
    y, z = (p, s) if plain else (loop.zeros(n), loop.zeros(n))
    before = loop.zeros()
    for out in (r, shadow, p):
        loop.device.copy(b, out=out)
    dot(r, shadow, out=before)
    loop.judge(before)
    with loop.rounds():
        if not plain:
            loop.preconditioner.apply(p, y)
        loop.actor.spmv(loop.a, y, out=v)
        alpha = run("r / s", r=before, s=dot(shadow, v))
        run("out = r - a * v", r=r, a=alpha, v=v, out=s)
        if not plain:
            loop.preconditioner.apply(s, z)
        loop.actor.spmv(loop.a, z, out=t)
        square = dot(t, t)  # 0 where s is 0: x + alpha y is the solution
        omega = run("where(q == 0, q, p / where(q == 0, 1 + q, q))", q=square, p=dot(t, s))
        run("x = x + a * y + w * z; r = s - w * t", x=x, r=r, a=alpha, y=y, w=omega, z=z, s=s, t=t)
        now = dot(r, shadow)
        run("p = r + n / b * a / w * (p - w * v)", r=r, n=now, b=before, a=alpha, w=omega, p=p, v=v)
        loop.judge(dot(r, r), f"{_COUNTED}old = now; ", old=before, now=now)


def minimal_residuals(loop: Loop, b: GpuRef, x: GpuRef) -> None:
    """Record GMRES, preconditioned from the right, from x = 0 on; a residual is computed whenever it begins anew.

    Rows of the basis that are not there yet are zeros, so products with the whole basis need no number of its rows.
    """
    n, most, run, device = loop.a.shape[0], loop.restart, loop.run, loop.device
    gemv, dot = device.blas.gemv, device.blas.dot
    basis, triangle, rotations = loop.zeros(most + 1, n), loop.zeros(most, most), loop.zeros(most, 2)
    first, again, rest, weights = (loop.zeros(most + 1) for _ in range(4))
    r, v, w, z = (loop.zeros(n) for _ in range(4))
    place, inside, left = loop.zeros(dtype="int64"), loop.zeros(dtype="bool"), loop.zeros()
    device.copy(b, out=r)
    loop.judge(dot(r, r))
    with loop.recording.while_(loop.more, limit=loop.limit + 1):
        length = run("sqrt(s)", s=dot(r, r))
        run("out = r / s", r=r, s=length, out=v)
        for array in (basis, rest, place):
            array.fill(0)
        device.copy(v, out=basis[0])
        device.copy(length, out=rest[0])
        inside.fill(1)
        with loop.recording.while_(inside, limit=most + 1):
            run("out = n + 1", n=loop.count, out=loop.count)
            loop.preconditioner.apply(v, z)
            loop.actor.spmv(loop.a, z, out=w)
            for part in (first, again):  # twice: the second time takes away what roundings left
                gemv(basis, w, out=part)
                gemv(basis, part, trans=True, alpha=-1.0, beta=1.0, out=w)
            run("out = h + g", h=first, g=again, out=first)
            norm = run("sqrt(s)", s=dot(w, w))
            loop.actor.tell(BasisRequest(
                w=w, parts=first, norm=norm, place=place, basis=basis, v=v, triangle=triangle, rotations=rotations,
                rest=rest, left=left,
            ))  # fmt: skip
            run("out = n + 1", n=place, out=place)
            run(
                f"out = (abs(e) > t * s) & (n < {loop.limit}) & (k < {most})", e=left, s=loop.scale, t=loop.tolerance,
                n=loop.count, k=place, out=inside,
            )  # fmt: skip
        loop.actor.tell(SolutionRequest(triangle=triangle, rest=rest, place=place, weights=weights))
        gemv(basis, weights, trans=True, out=w)
        loop.preconditioner.apply(w, z)
        run("out = x + z", x=x, z=z, out=x)
        loop.actor.spmv(loop.a, x, out=r)
        run("out = b - r", b=b, r=r, out=r)
        loop.judge(dot(r, r))
