"""Polar decompositions and functions of matrices, as messages around the solver's routines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..._support.checks import check_choice, check_flag
from ..._support.public import public
from ...errors import InvalidRequest
from .checks import check_size, matrix_dtype
from .ranges import adjoint
from .spec import complex_of, real_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...arrays.gpu_ref import GpuRef

__all__ = ["PolarResult", "matrix_function", "polar"]

#: Of the exponential: coefficients of Pade's approximant, and the largest 1-norm for it, by Higham (2005).
_PADE: Final = {
    "float32": ((17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0), 3.925724783138660),
    "float64": (
        (
            64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
            10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
        ),
        5.371920351148152,
    ),
}  # fmt: skip
#: Functions of the eigenvalues of a Hermitian matrix.
_OF_EIGENVALUES: Final = {"expm": "exp(w)", "logm": "log(w)", "sqrtm": "sqrt(w)"}
_ASSUME: Final = ("general", "hermitian")
_SIDES: Final = ("right", "left")


@public
class PolarResult(NamedTuple):
    """The polar decomposition of A, ``A = U P``, or of ``side="left"``, ``A = P U``.

    Attributes
    ----------
    u : GpuRef
        Of A's shape, with orthonormal columns, or rows where A is wide.
    p : GpuRef
        Hermitian, and not negative.

    Examples
    --------
    >>> u, p = device.solver.polar(device.put(np.array([[0.0, -2.0], [3.0, 0.0]])))
    >>> u.numpy().round(6) + 0.0, p.numpy().round(6) + 0.0
    (array([[ 0., -1.],
           [ 1.,  0.]]), array([[3., 0.],
           [0., 2.]]))
    """

    u: GpuRef
    p: GpuRef


def polar(solver: Any, a: GpuRef, side: str, check: bool) -> Any:
    """Send a polar decomposition, by the singular values."""
    check_choice("side", side, _SIDES)
    check_flag("check", check, bool | np.bool)
    rows, columns = check_size("a", a)
    matrix_dtype(a)
    device = solver.device
    u, s, vh, *info = solver.svd(a, check=check)
    inner = columns if side == "right" else rows
    if 0 in (rows, columns) or 0 in a.shape:
        found = PolarResult(device.zeros(a.shape, a.dtype), device.zeros((*a.shape[:-2], inner, inner), a.dtype))
        return (*found, *info) if info else found
    product, run = device.blas_lt.matmul, device.elementwise.run
    base = adjoint(vh) if side == "right" else u
    p = product(run("b * s", b=base, s=s[..., None, :]), adjoint(base))
    found = PolarResult(product(u, vh), p)
    return (*found, *info) if info else found


def matrix_function(solver: Any, name: str, a: GpuRef, assume: str, lower: bool) -> GpuRef:
    """Send ``expm``, ``logm`` or ``sqrtm``."""
    check_choice("assume", assume, _ASSUME)
    check_flag("lower", lower, bool | np.bool)
    size = check_size("a", a)
    if size[0] != size[1]:
        raise InvalidRequest(f"a has shape {tuple(a.shape)}; {name} takes square matrices")
    dtype = matrix_dtype(a)
    hermitian = assume == "hermitian"
    if not lower and not hermitian:
        raise InvalidRequest(f"{name} does not take lower=False with assume='general', which reads the whole matrix")
    device = solver.device
    if not a.size:
        made: GpuRef = device.zeros(a.shape, dtype if hermitian or name == "expm" else complex_of(dtype))
        return made
    if hermitian:
        w, v = solver.eigh(a, lower=lower)
        values = device.elementwise.run(_OF_EIGENVALUES[name], w=w)
        scaled = device.elementwise.run("v * f", v=v, f=values[..., None, :])
        made = device.blas_lt.matmul(scaled, adjoint(v))
        return made
    return _exponential(solver, a) if name == "expm" else _on_the_host(device, name, a)


def _exponential(solver: Any, a: GpuRef) -> GpuRef:
    """Send an exponential by scaling and squaring; waits for the norms, which say how often."""
    device, real = solver.device, real_of(a.dtype)
    product, run, reduce = device.blas_lt.matmul, device.elementwise.run, device.elementwise.reduce
    coefficients, largest = _PADE[str(real)]
    norms = reduce("max", reduce("sum", run("abs(a)", a=a), a.ndim - 2), a.ndim - 2).numpy()
    over = np.where(np.isfinite(norms) & (norms > largest), norms / largest, 1.0)
    squarings = np.ceil(np.log2(over)).astype(real)[..., None, None]
    times = device.put(squarings)
    scaled = run("a * s", a=a, s=device.put(np.exp2(-squarings).astype(real)))
    square = product(scaled, scaled)
    powers = [device.put(np.eye(a.shape[-1], dtype=a.dtype)), square]
    while len(powers) < len(coefficients) // 2:
        powers.append(product(powers[-1], square))

    def combined(begin: int) -> GpuRef:
        terms = " + ".join(f"c{i} * p{i}" for i in range(len(powers)))
        numbers = {f"c{i}": coefficients[2 * i + begin] / coefficients[0] for i in range(len(powers))}
        made: GpuRef = run(terms, **{f"p{i}": power for i, power in enumerate(powers)}, **numbers)
        return made

    odd, even = product(scaled, combined(1)), combined(0)
    found: GpuRef = solver.solve(run("e - o", e=even, o=odd), run("e + o", e=even, o=odd))
    for done in range(int(squarings.max(initial=0))):
        square = product(found, found)
        found = run("where(done < times, square, found)", square=square, found=found, times=times, done=done)
    return found


def _on_the_host(device: Any, name: str, a: GpuRef) -> GpuRef:
    """Compute a logarithm or a root by SciPy on the host, matrix by matrix, and put it on the device."""
    import scipy.linalg

    function: Callable[[Any], Any] = getattr(scipy.linalg, name)
    given = a.numpy()
    found = np.empty(given.shape, complex_of(a.dtype))
    with np.errstate(all="ignore"):
        for index in np.ndindex(*given.shape[:-2]):
            found[index] = function(given[index].astype(np.complex128)) if np.isfinite(given[index]).all() else np.nan
    made: GpuRef = device.put(found)
    return made
