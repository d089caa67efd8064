"""Routes of batches on a GPU, as data: which there are for a routine, and which one a batch takes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...errors import InvalidRequest
from .algorithms import ALGORITHMS, AUTO
from .spec import INDEFINITE

__all__ = ["KNOWN_WRONG", "POSITIVE", "ROUTES", "Limits", "choose_route", "kind_of_failure"]

POSITIVE: Final = "positive_definite"
#: Rows and columns of the largest matrix of the kernels for small ones.
_SMALL: Final = 32
#: Rows of the largest matrices of a batch that go to the libraries' kernels for batches, which are made for small ones.
_MANY: Final = 256


#: Rows of the largest symmetric matrices of a batch that a block of threads factors, in one kernel; not measured.
_BLOCK: Final = 512


class Limits(NamedTuple):
    """The rows, or columns, of the largest matrices of a batch for a route; 0: it does not have the routine.

    Attributes
    ----------
    kernel : int
        One kernel of this package, in which a part of a warp has each matrix.
    batched : int
        One call of the library for many matrices.
    """

    kernel: int = 0
    batched: int = 0


#: By routine.  The third route, ``loop``, calls the library for each matrix, in one message.
ROUTES: Final[dict[str, Limits]] = {
    "cholesky": Limits(_SMALL, _MANY),
    "cholesky_solve": Limits(0, _MANY),
    "lu_factor": Limits(_SMALL, _MANY),
    "lu_solve": Limits(0, _MANY),
    "ldl_factor": Limits(_BLOCK),
    "ldl_solve": Limits(_BLOCK),
    "solve": Limits(_SMALL, _MANY),
    "inv": Limits(_SMALL, _MANY),
    "det": Limits(0, _MANY),
    "slogdet": Limits(0, _MANY),
    "solve_triangular": Limits(0, _MANY),
    "inv_triangular": Limits(0, _MANY),
    "qr": Limits(_SMALL),
    "qr_factor": Limits(_SMALL),
    "qr_multiply": Limits(),
    "svd": Limits(_SMALL),
    "svdvals": Limits(_SMALL),
    "eigh": Limits(_SMALL, 2**31),
    "eigvalsh": Limits(_SMALL, 2**31),
}
#: Routine, dtype and route of results that were wrong, and where that is reported; such a batch takes another route.
KNOWN_WRONG: Final[dict[tuple[str, str, str], str]] = {
    (routine, "complex64", "batched"): "results of syevBatched were not orthonormal (pytorch#192483), or wrong "
    "(CUDA.jl#2577)"
    for routine in ("eigh", "eigvalsh")
}
_NAMES: Final = ("kernel", "batched", "loop")


def _unable(routine: str, assume: str, dtype: str) -> str:
    """Return why cuSOLVER does not factor such a matrix, or nothing."""
    symmetric = assume == "symmetric" or not dtype.startswith("complex")
    return "" if symmetric else f"cuSOLVER 12.0 factors symmetric matrices, and {routine} is for assume={assume!r}"


def _indefinite(routine: str, assume: str, dtype: str, rows: int) -> dict[str, str]:
    """Return the routes of a matrix that may be indefinite."""
    limit = ROUTES["ldl_factor"].kernel
    found = {"batched": f"{routine} with assume={assume!r} has no such route"}
    if why := _unable(routine, assume, dtype):
        found["loop"] = why
    elif rows < 2:
        found["loop"] = "cuSOLVER took a matrix of one row that is 0 for regular"  # 12.0, on an H100
    elif rows > limit:
        found["kernel"] = f"its matrices have at most {limit} rows and columns, and A has {rows}"
    return found


def _reasons(routine: str, dtype: str, size: tuple[int, int], mode: str, algorithm: str) -> dict[str, str]:
    """Return the routes that a matrix cannot take, and why."""
    limits, largest, found = ROUTES[routine], max(size), {}
    if algorithm != AUTO:
        routes = ALGORITHMS[algorithm].routes
        found = {name: f"algorithm={algorithm!r} has no such route" for name in _NAMES if name not in routes}
        if "batched" in routes and not limits.batched:  # it has a function for batches that others have not
            return found
    for name, limit in zip(_NAMES, limits, strict=False):
        if name in found:
            continue
        if not limit:
            found[name] = f"{routine} has no such route"
        elif largest > limit:
            found[name] = f"its matrices have at most {limit} rows and columns, and A has shape {size}"
        elif (routine, dtype, name) in KNOWN_WRONG:
            found[name] = KNOWN_WRONG[routine, dtype, name]
    if size[0] != size[1] and routine == "lu_factor":
        found.setdefault("batched", f"its matrices are square, and A has shape {size}")
    if size[0] != size[1] and routine == "svd" and mode == "complete":
        found.setdefault("kernel", f"it makes min(m, n) columns, and mode is {mode!r} for A of shape {size}")
    return found


def choose_route(request: Any, dtype: str, size: tuple[int, int], count: int) -> str:
    """Return the route of a request for `count` matrices: the one that it names, or that of the table.

    Raises
    ------
    InvalidRequest
        If the route that it names is none for such matrices.
    """
    routine, asked = request.routine, request.route
    if asked is not None and (not isinstance(asked, str) or asked not in _NAMES):
        raise InvalidRequest(f"route={asked!r}; allowed: {', '.join(_NAMES)}, or None for that of the table")
    if routine not in ROUTES:
        if asked is not None:
            raise InvalidRequest(f"{routine} does not take route={asked!r}; it has one way: omit it")
        return "loop"
    assume = getattr(request, "assume", "")
    if assume in INDEFINITE:
        reasons = _indefinite(routine, assume, dtype, size[0])
    else:
        reasons = _reasons(routine, dtype, size, getattr(request, "mode", ""), getattr(request, "algorithm", AUTO))
    if asked in reasons:
        allowed = ", ".join(name for name in _NAMES if name not in reasons)
        raise InvalidRequest(f"route={asked!r} of {routine} in {dtype}: {reasons[asked]}; allowed: {allowed}")
    if asked is not None:
        return str(asked)
    able = [name for name in _NAMES if name not in reasons]
    single = count < 2 and not (assume in INDEFINITE and size[0] <= _SMALL)
    return "loop" if single and "loop" in able else able[0]


def kind_of_failure(routine: str, assume: str) -> str:
    """Return what an info number of a routine that is not 0 means, by the name of its constant."""
    if routine in ("svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals"):
        return "UNCONVERGED"
    return "INDEFINITE" if routine == "cholesky" or assume == POSITIVE else "SINGULAR"
