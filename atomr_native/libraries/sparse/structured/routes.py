"""Whether a product with a structured matrix is computed with its compressed or its dense memory: rules, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...._support.public import public
from ....dtypes import as_dtype, dtype_name
from .figures import near
from .matrix import StructuredMatrix
from .spec import OUTPUTS, misfit

if TYPE_CHECKING:
    from ....arrays.gpu_ref import GpuRef

__all__ = ["ROUTES", "StructuredRoute", "choose"]

ROUTES: Final = ("auto", "structured", "dense")

#: What of a product was not measured, by the names of `StructuredProductRequest`.
_UNMEASURED: Final = ("bias", "scale_a", "scale_x")


@public
class StructuredRoute(NamedTuple):
    """How a product with a structured matrix is computed, from `Sparse.route_24`.

    Attributes
    ----------
    name : str
        ``"structured"``: by sparse tensor cores, from the compressed matrix; ``"dense"``: by `BlasLt.matmul`, from the
        dense one.
    reason : str

    Examples
    --------
    >>> w = device.sparse.structured(device.put(np.eye(32, dtype="float16")))
    >>> device.sparse.route_24(w, device.put(np.ones((8, 32), "float16"))).name
    'dense'
    """

    name: str
    reason: str


def _beyond_dense(a: StructuredMatrix, out: str | None, options: dict[str, Any]) -> str:
    """Return what of a product the dense route does not compute, or nothing."""
    for name in ("row_alpha", "row_beta"):
        if options.get(name) is not None:
            return f"{name} is given"
    dtype = dtype_name(a.dtype)
    scales = [name for name in ("scale_a", "scale_x") if options.get(name) is not None]
    if dtype.startswith("float8"):
        if (scale := options.get("scale_a")) is not None and tuple(scale.shape) not in ((), (1,)):
            return "scale_a has an element for each row"
        return ""
    if scales:
        return f"{scales[0]} is given"
    if dtype == "int8" and (out not in (None, "int32") or options.get("bias") is not None
                            or options.get("activation", "none") != "none"):  # fmt: skip
        return "A is int8, and the result is more than sums"
    return ""


def choose(a: StructuredMatrix, x: GpuRef, route: str, options: dict[str, Any]) -> StructuredRoute:
    """Return the route of a product; `options` are those of `StructuredProductRequest`."""
    if route != "auto":
        return StructuredRoute(route, f"route={route!r}")
    if a.dense is None:
        return StructuredRoute("structured", "the dense matrix was not kept")
    given = options.get("out")
    out = options.get("out_dtype")
    kind = dtype_name(as_dtype(given.dtype if given is not None else out)) if (given is not None or out) else None
    if why := _beyond_dense(a, kind, options):
        return StructuredRoute("structured", why)
    if len(x.shape) != 2:
        return StructuredRoute("structured", "x is not a matrix")  # its request says the same, as an error
    for name, array in (("x", x), ("out", given)):
        if array is not None and len(array.shape) == 2 and (
            why := misfit(name, array, turned=name == "out" or a.dtype.itemsize == 2)
        ):  # fmt: skip
            return StructuredRoute("dense", why)
    dtype = dtype_name(a.dtype)
    extents = (*a.shape, int(x.shape[0]))
    found = near(dtype, kind or OUTPUTS[dtype][0], extents)
    size = " x ".join(map(str, extents))
    if found is None:
        return StructuredRoute("dense", f"no product of {dtype} near {size} was measured")
    more = [name for name in _UNMEASURED if options.get(name) is not None]
    more += [activation] if (activation := options.get("activation", "none")) != "none" else []
    if more:
        return StructuredRoute("dense", f"no product with {more[0]} was measured to be faster compressed")
    measured, figure = found
    times = (
        f"{' x '.join(map(str, measured))} took {figure.compressed:.4g} us compressed and {figure.dense:.4g} us dense"
    )
    return StructuredRoute("structured" if figure.gains else "dense", times)
