"""Routes of batches on a GPU, as data: which there are for a routine, and which one a batch takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from ...errors import InvalidRequest
from .algorithms import ALGORITHMS, AUTO, of_the_loop
from .route_figures import FIGURES
from .spec import INDEFINITE

__all__ = ["KNOWN_WRONG", "POSITIVE", "ROUTES", "Limits", "able_routes", "choose_route", "fastest", "kind_of_failure"]

POSITIVE: Final = "positive_definite"
#: Rows and columns of the largest matrix of the kernels for small ones.
_SMALL: Final = 32
#: No limit but that of the libraries' integers.
_ANY: Final = 2**31
#: Rows of the largest matrices that go to the libraries' kernels for batches where no figures say what is faster.
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
    "cholesky": Limits(_SMALL, _ANY),
    "cholesky_solve": Limits(0, _ANY),
    "lu_factor": Limits(_SMALL, _ANY),
    "lu_solve": Limits(0, _ANY),
    "ldl_factor": Limits(_BLOCK),
    "ldl_solve": Limits(_BLOCK),
    "solve": Limits(_SMALL, _ANY),
    "inv": Limits(_SMALL, _ANY),
    "det": Limits(0, _ANY),
    "slogdet": Limits(0, _ANY),
    "solve_triangular": Limits(0, _ANY),
    "inv_triangular": Limits(0, _ANY),
    "qr": Limits(_SMALL),
    "qr_factor": Limits(_SMALL),
    "qr_multiply": Limits(),
    "svd": Limits(_SMALL),
    "svdvals": Limits(_SMALL),
    "eigh": Limits(_SMALL, _ANY),
    "eigvalsh": Limits(_SMALL, _ANY),
}
#: Routine, dtype and route of results that were wrong, and where that is reported; such a batch takes another route.
KNOWN_WRONG: Final[dict[tuple[str, str, str], str]] = {
    (routine, "complex64", "batched"): "results of syevBatched were not orthonormal (pytorch#192483), or wrong "
    "(CUDA.jl#2577)"
    for routine in ("eigh", "eigvalsh")
}
_NAMES: Final = ("kernel", "batched", "loop")
#: Routines that have no figures of their own, and whose they take: those of their factorisation, or of the same calls.
_LIKE: Final = {
    "det": "lu_factor", "slogdet": "lu_factor", "qr_factor": "qr", "svdvals": "svd", "eigvalsh": "eigh",
    **dict.fromkeys(("inv_triangular", "cholesky_solve", "lu_solve"), "solve_triangular"),
}  # fmt: skip


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


def able_routes(request: Any, dtype: str, size: tuple[int, int]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return why a matrix cannot take some routes, and the routes that it can take."""
    assume = getattr(request, "assume", "")
    if assume in INDEFINITE:
        reasons = _indefinite(request.routine, assume, dtype, size[0])
    else:
        mode, algorithm = getattr(request, "mode", ""), getattr(request, "algorithm", AUTO)
        reasons = _reasons(request.routine, dtype, size, mode, algorithm)
    return reasons, tuple(name for name in _NAMES if name not in reasons)


def fastest(routine: str, rows: int, count: int, able: Collection[str]) -> str | None:
    """Return the route that takes the least time, as batches say that were measured around this one.

    Between two of them times grow in proportion to the number of matrices, and as a power of the rows.  Routes that
    were not measured for both do not count, unless fewer than two are left: then the nearer batch decides alone.  None,
    if fewer than two were measured for it.  One matrix has figures of its own only.
    """
    points = [point for point in FIGURES.get(_LIKE.get(routine, routine), ()) if (point.matrices == 1) == (count == 1)]
    if not points:
        return None

    def of_rows(measured: int) -> dict[str, float]:
        batches = {point.matrices: point for point in points if point.rows == measured}

        def times(matrices: int) -> dict[str, float]:
            return {name: getattr(batches[matrices], name) for name in able if getattr(batches[matrices], name)}

        return _between(batches, count, times, lambda low, high, at: low + at * (high - low), float)

    sizes = {point.rows for point in points}
    found = _between(sizes, max(rows, 1), of_rows, lambda low, high, at: low * (high / low) ** at, math.log)
    return min(found, key=found.__getitem__) if len(found) > 1 else None


def _between(
    measured: Collection[int],
    wanted: int,
    times: Callable[[int], dict[str, float]],
    mixed: Callable[[float, float, float], float],
    scale: Callable[[int], float],
) -> dict[str, float]:
    """Return times by route between the two measured numbers around one, or those of the nearer one."""
    low = max((n for n in measured if n <= wanted), default=min(measured))
    high = min((n for n in measured if n >= wanted), default=max(measured))
    if low == high:
        return times(low)
    first, second = times(low), times(high)
    at = (scale(wanted) - scale(low)) / (scale(high) - scale(low))
    both = {name: mixed(time, second[name], at) for name, time in first.items() if name in second}
    if len(both) > 1:
        return both
    return first if wanted * wanted <= low * high else second


def _by_default(able: tuple[str, ...], rows: int) -> str:
    """Return the route of a batch of which there are no figures."""
    if able[0] == "batched" and rows > _MANY and "loop" in able:
        return "loop"
    return able[0]


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
    reasons, able = able_routes(request, dtype, size)
    if asked in reasons:
        raise InvalidRequest(
            f"route={asked!r} of {routine} in {dtype}: {reasons[asked]}; allowed: {', '.join(able)}"
        )  # fmt: skip
    if asked is not None:
        return str(asked)
    assume, rows = getattr(request, "assume", ""), max(size)
    if assume in INDEFINITE:
        return "loop" if count < 2 and rows > _SMALL and "loop" in able else able[0]
    if assume == POSITIVE and routine in ("det", "slogdet"):
        routine = "cholesky"
    algorithm = getattr(request, "algorithm", AUTO)
    if of_the_loop(routine, algorithm) == of_the_loop(routine):  # the loop of which there are figures
        found = fastest(routine, rows, count, able)
        if found is not None:
            return found
    return "loop" if count < 2 and "loop" in able else _by_default(able, rows)


def kind_of_failure(routine: str, assume: str) -> str:
    """Return what an info number of a routine that is not 0 means, by the name of its constant."""
    if routine in ("svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals"):
        return "UNCONVERGED"
    return "INDEFINITE" if routine == "cholesky" or assume == POSITIVE else "SINGULAR"
