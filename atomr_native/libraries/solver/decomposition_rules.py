"""Rules of orthogonal decompositions, as pure functions of layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...arrays.operands import Fresh, broadcast_shapes, check_input
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .algorithms import ALGORITHMS, AUTO, algorithms_of
from .checks import check_operands, check_options, check_outputs, check_size, matrix_dtype
from .spec import complex_of, real_of

if TYPE_CHECKING:
    from .decomposition import DecompositionRequest

__all__ = ["DECOMPOSITIONS", "INPUTS", "MODES", "OUTPUTS", "Decomposition", "Parts", "resolve"]


class Decomposition(NamedTuple):
    """The rules of a decomposition.

    Attributes
    ----------
    reads : tuple of str
        Operands that are read, in message order.
    writes : tuple of str
        Outputs besides info, in the order of the result.
    options : tuple of str
        Options that it takes.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    options: tuple[str, ...] = ()


#: By name; `docs/libraries/solver.md` has the same table.
DECOMPOSITIONS: Final[dict[str, Decomposition]] = {
    "qr": Decomposition(("a",), ("q", "r"), ("mode",)),
    "qr_factor": Decomposition(("a",), ("packed", "tau_out")),
    "qr_multiply": Decomposition(("a", "tau", "c"), ("out",), ("right", "adjoint")),
    "svd": Decomposition(("a",), ("u", "s", "vh"), ("mode", "algorithm", "check")),
    "svdvals": Decomposition(("a",), ("s",), ("algorithm", "check")),
    "eigh": Decomposition(("a",), ("w", "v"), ("lower", "algorithm", "check")),
    "eigvalsh": Decomposition(("a",), ("w",), ("lower", "algorithm", "check")),
    "eig": Decomposition(("a",), ("w", "v", "vl"), ("left", "check")),
    "eigvals": Decomposition(("a",), ("w",), ("check",)),
}
INPUTS: Final = ("a", "tau", "c")
OUTPUTS: Final = ("q", "r", "packed", "tau_out", "out", "u", "s", "vh", "w", "v", "vl", "info")
MODES: Final = ("reduced", "complete", "r")
_DEFAULTS: Final = {
    "mode": "reduced", "lower": True, "right": False, "adjoint": False, "check": True, "algorithm": AUTO, "left": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """A request with everything that follows from it.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the matrices.
    batch : tuple of int
        Extents of the batch axes.
    size : tuple of int
        Rows and columns of A.
    fresh : dict of str to Fresh
        Shape and dtype of each output, with the batch axes.
    """

    dtype: np.dtype[Any]
    batch: tuple[int, ...]
    size: tuple[int, int]
    fresh: dict[str, Fresh]


def _written(request: DecompositionRequest, rules: Decomposition) -> tuple[str, ...]:
    """Return the outputs besides info that a request with these options has."""
    without = {"q"} if request.mode == "r" else set() if request.left else {"vl"}
    return tuple(name for name in rules.writes if name not in without)


def _need(request: DecompositionRequest) -> Decomposition:
    if not isinstance(request.routine, str) or request.routine not in DECOMPOSITIONS:
        raise InvalidRequest(f"unknown decomposition {request.routine!r}; allowed: {', '.join(DECOMPOSITIONS)}")
    rules = DECOMPOSITIONS[request.routine]
    check_operands(request, INPUTS, rules.reads)
    choices = {
        "mode": MODES if request.routine == "qr" else MODES[:2],
        "algorithm": (AUTO, *(algorithms_of(request.routine) or ALGORITHMS)),
    }
    check_options(request, _DEFAULTS, choices, rules.options)
    named = ALGORITHMS.get(request.algorithm)
    if named is not None and request.mode == "complete" and not named.complete:
        able = [name for name in algorithms_of(request.routine) if ALGORITHMS[name].complete]
        raise InvalidRequest(
            f"{request.routine} with algorithm={request.algorithm!r} does not take mode='complete', which is made by "
            f"{', '.join(map(repr, able))}; allowed: mode='reduced'"
        )
    writes = _written(request, rules)
    for name in OUTPUTS:
        if getattr(request, name) is None:
            continue
        if name == "info" and request.check:
            raise InvalidRequest("info is given, and check=True raises errors instead; allowed: check=False")
        if name != "info" and name not in writes:
            raise InvalidRequest(f"{request.routine} does not take {name}; its outputs: {', '.join(writes)}")
    return rules


def _check_reflectors(request: DecompositionRequest, size: tuple[int, int]) -> None:
    """Check the operands of `qr_multiply`."""
    rows, columns = size
    if columns > rows:
        raise InvalidRequest(
            f"a has shape {tuple(request.a.shape)}; qr_multiply takes reflectors of at most {rows} columns, "
            f"as a[..., :{rows}]"
        )
    found = tuple(check_input("tau", request.tau).shape)
    if found[-1:] != (columns,):
        raise InvalidRequest(f"tau has shape {found}; allowed: (..., {columns}), since a has {columns} columns")
    of_c = check_size("c", request.c)
    if of_c[1 if request.right else 0] != rows:
        allowed = f"(..., any, {rows})" if request.right else f"(..., {rows}, any)"
        raise InvalidRequest(f"c has shape {tuple(request.c.shape)}; allowed: {allowed}, since Q has {rows} rows")


def _shapes(request: DecompositionRequest, size: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the outputs, without batches."""
    rows, columns = size
    least = min(size)
    complete = request.mode == "complete"
    q = rows if complete else least
    shapes: dict[str, tuple[int, ...]] = {
        "q": (rows, q), "r": (q, columns), "packed": size, "tau_out": (least,), "u": (rows, q), "s": (least,),
        "vh": (columns if complete else least, columns), "w": (rows,), "v": size, "vl": size,
    }  # fmt: skip
    if request.routine == "qr_multiply":
        shapes["out"] = tuple(request.c.shape[-2:])
    return shapes


def resolve(request: DecompositionRequest) -> Parts:
    """Check a request and return all that it says.

    Raises
    ------
    InvalidRequest
        As `DecompositionRequest` says.
    """
    rules = _need(request)
    size = check_size("a", request.a)
    if request.routine.startswith("eig") and size[0] != size[1]:
        raise InvalidRequest(f"a has shape {tuple(request.a.shape)}; {request.routine} takes square matrices")
    dtype = matrix_dtype(request.a)
    if request.routine == "qr_multiply":
        _check_reflectors(request, size)
    leads = []
    for name in rules.reads:
        array = getattr(request, name)
        if as_dtype(array.dtype) != dtype:
            found = dtype_name(as_dtype(array.dtype))
            raise InvalidRequest(f"{name} has dtype {found}; allowed: {dtype_name(dtype)}")
        leads.append((name, tuple(array.shape)[: len(array.shape) - (1 if name == "tau" else 2)]))
    batch = broadcast_shapes(leads, "batch axes")
    shapes = _shapes(request, size)
    of_values = complex_of(dtype) if request.routine in ("eig", "eigvals") else real_of(dtype)
    of_matrices = complex_of(dtype) if request.routine == "eig" else dtype
    fresh = {
        name: Fresh((*batch, *shapes[name]), of_values if name in ("s", "w") else of_matrices)
        for name in _written(request, rules)
    }
    if not request.check:
        fresh["info"] = Fresh(batch, DTYPES["int32"])
    check_outputs(request, OUTPUTS, rules.reads, fresh)
    return Parts(dtype, batch, size, fresh)
