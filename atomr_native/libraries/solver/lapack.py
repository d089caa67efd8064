"""Decompositions of NumPy's arrays, by LAPACK as SciPy has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ...errors import NotConverged
from .attributes import DecompositionAttributes
from .decomposition_rules import DECOMPOSITIONS, OUTPUTS

if TYPE_CHECKING:
    from .decomposition import DecompositionRequest

__all__ = ["decompose", "general"]

Array = np.ndarray[Any, Any]
#: One matrix of each operand, to its info number.
Once = Callable[[DecompositionAttributes, dict[str, Array]], int]
#: Operands that are vectors; the others are matrices.
_VECTORS: Final = ("tau", "tau_out", "s", "w")


def _qr(how: DecompositionAttributes, at: dict[str, Array]) -> int:
    import scipy.linalg

    a = at["a"]
    if how.mode == "r":
        (found,) = scipy.linalg.qr(a, mode="r", check_finite=False) if a.size else (np.zeros_like(at["r"]),)
        at["r"][...] = found[: min(a.shape)]
    elif not a.size:
        at["q"][...] = np.eye(*at["q"].shape)
        at["r"][...] = 0
    else:
        mode = "full" if how.mode == "complete" else "economic"
        at["q"][...], at["r"][...] = scipy.linalg.qr(a, mode=mode, check_finite=False)
    return 0


def _qr_factor(_how: DecompositionAttributes, at: dict[str, Array]) -> int:
    import scipy.linalg

    if at["a"].size:
        (found, tau), _ = scipy.linalg.qr(at["a"], mode="raw", check_finite=False)
        at["packed"][...], at["tau_out"][...] = found, tau
    return 0


def _qr_multiply(how: DecompositionAttributes, at: dict[str, Array]) -> int:
    from scipy.linalg import get_lapack_funcs

    a, c = at["a"], at["c"]
    if not a.shape[1] or not c.size:
        at["out"][...] = c
        return 0
    is_complex = a.dtype.kind == "c"
    multiply: Any = get_lapack_funcs("unmqr" if is_complex else "ormqr", dtype=a.dtype)
    side, trans = "R" if how.right else "L", ("C" if is_complex else "T") if how.adjoint else "N"
    work = multiply(side, trans, a, at["tau"], c, -1)[1]
    at["out"][...] = multiply(side, trans, a, at["tau"], c, max(1, int(work[0].real)))[0]
    return 0


def _svd(how: DecompositionAttributes, at: dict[str, Array]) -> int:
    import scipy.linalg

    a = at["a"]
    if not a.size:
        if "u" in at:
            at["u"][...], at["vh"][...] = np.eye(*at["u"].shape), np.eye(*at["vh"].shape)
        return 0
    if "u" not in at:
        at["s"][...] = scipy.linalg.svd(a, compute_uv=False, check_finite=False)  # by QR
        return 0
    driver = "gesvd" if how.algorithm == "qr" else "gesdd"
    at["u"][...], at["s"][...], at["vh"][...] = scipy.linalg.svd(
        a, full_matrices=how.mode == "complete", check_finite=False, lapack_driver=driver
    )
    return 0


def _eigh(how: DecompositionAttributes, at: dict[str, Array]) -> int:
    import scipy.linalg

    options = {"lower": how.lower, "check_finite": False}
    if not at["a"].size:
        return 0
    if "v" in at:
        at["w"][...], at["v"][...] = scipy.linalg.eigh(at["a"], driver="evd", **options)
    else:
        at["w"][...] = scipy.linalg.eigh(at["a"], eigvals_only=True, driver="evd", **options)
    return 0


def _eig(_how: DecompositionAttributes, at: dict[str, Array]) -> int:
    import scipy.linalg

    if not at["a"].size:
        return 0
    if "vl" in at:
        at["w"][...], at["vl"][...], at["v"][...] = scipy.linalg.eig(at["a"], left=True, check_finite=False)
    elif "v" in at:
        at["w"][...], at["v"][...] = scipy.linalg.eig(at["a"], check_finite=False)
    else:
        at["w"][...] = scipy.linalg.eigvals(at["a"], check_finite=False)
    return 0


_ONCE: Final[dict[str, Once]] = {
    "qr": _qr, "qr_factor": _qr_factor, "qr_multiply": _qr_multiply, "svd": _svd, "svdvals": _svd, "eigh": _eigh,
    "eigvalsh": _eigh, "eig": _eig, "eigvals": _eig,
}  # fmt: skip


def _is_finite(routine: str, how: DecompositionAttributes, a: Array) -> bool:
    if routine in ("eigh", "eigvalsh"):
        a = np.tril(a) if how.lower else np.triu(a)
    return bool(np.isfinite(a).all())


@np.errstate(all="ignore")
def decompose(op: str, how: DecompositionAttributes, given: dict[str, Array]) -> None:
    """Decompose matrices into the outputs among `given`, the arrays of a message by name.

    Raises
    ------
    NotConverged
        After all matrices of the batch, unless the attributes say otherwise.
    """
    from numpy.linalg import LinAlgError

    routine = op.removeprefix("solver.")
    rules, once = DECOMPOSITIONS[routine], _ONCE[routine]
    wanted = [name for name in given if name in rules.reads or (name in OUTPUTS and name != "info")]
    whole = {name: _whole(name, given[name], how) for name in wanted}
    info = given.get("info")
    first: tuple[tuple[int, ...], int] | None = None
    count = 0
    for index in np.ndindex(*how.batch):
        at = {name: array[(*index, ...)] for name, array in whole.items()}
        number = 0
        bad = routine != "qr_multiply" and not _is_finite(routine, how, at["a"])
        if not bad:
            try:
                number = once(how, at)
            except LinAlgError:
                number = 1
        if bad or number:
            for name in rules.writes:
                if name in at:
                    at[name][...] = np.nan
        if info is not None:
            info[index] = number
        if number:
            first, count = first or (index, number), count + 1
    if how.check and first is not None:
        raise NotConverged(op, first[0], first[1], count)


def general(device: Any, request: DecompositionRequest) -> Any:
    """Solve a general eigenproblem of another device's matrices here, and put the results there."""
    lowered = request.lowered
    arrays = {o.name: np.empty(o.spec.shape, o.spec.dtype) for o in lowered.operands if o.name in OUTPUTS}
    decompose(lowered.op, cast("DecompositionAttributes", lowered.attributes), {"a": request.a.numpy(), **arrays})
    return lowered.collect({name: device.put(array) for name, array in arrays.items()})


def _whole(name: str, array: Array, how: DecompositionAttributes) -> Array:
    """Return a view of an operand with all axes of the batch."""
    if name in OUTPUTS:
        return array
    return np.broadcast_to(array, (*how.batch, *array.shape[array.ndim - (1 if name in _VECTORS else 2) :]))
