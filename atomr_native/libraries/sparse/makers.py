"""Matrices from those of other libraries, and from dense arrays of the host."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..._support.checks import as_flag, check_choice
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from .matrix import FORMATS, SparseMatrix

__all__ = ["make_matrix"]

_INDICES: Final = ("int32", "int64")
#: Layouts of PyTorch, and the methods of their parts.
_TORCH: Final = {
    "torch.sparse_csr": ("csr", "crow_indices", "col_indices"),
    "torch.sparse_csc": ("csc", "ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("bsr", "crow_indices", "col_indices"),
}


def _parts(source: Any) -> tuple[str, tuple[int, int], dict[str, Any]]:
    """Return format, shape and arrays of a matrix of SciPy, CuPy or PyTorch."""
    layout = str(getattr(source, "layout", ""))
    if layout in _TORCH:
        form, offsets, indices = _TORCH[layout]
        parts = {"values": source.values()}
        parts |= {"indices": getattr(source, indices)(), "offsets": getattr(source, offsets)()}
        return form, tuple(source.shape), parts
    if layout == "torch.sparse_coo":
        places = source.coalesce()
        rows, columns = (part.contiguous() for part in places.indices())
        return "coo", tuple(source.shape), {"values": places.values(), "indices": columns, "rows": rows}
    form = str(getattr(source, "format", ""))
    if form in ("csr", "csc", "bsr"):
        parts = {"values": source.data, "indices": source.indices, "offsets": source.indptr}
        return form, tuple(source.shape), parts
    if form == "coo":
        return "coo", tuple(source.shape), {"values": source.data, "indices": source.col, "rows": source.row}
    raise InvalidRequest(
        f"matrix of a {type(source).__name__}; allowed: sparse matrices of SciPy and CuPy in csr, csc, coo or bsr, "
        f"sparse tensors of PyTorch, NumPy arrays of two axes"
    )


def _index_dtype(wanted: str | None, shape: tuple[int, int], parts: dict[str, Any]) -> str:
    if wanted is not None:
        check_choice("index_dtype", wanted, _INDICES)
        return wanted
    fits = max(*shape, int(parts["indices"].shape[0])) < 2**31
    found = {str(parts[name].dtype).removeprefix("torch.") for name in parts if name != "values"}
    return "int32" if fits and found == {"int32"} else "int64"


def _from_dense(source: np.ndarray[Any, Any], form: str) -> Any:
    import scipy.sparse

    if source.ndim != 2:
        raise InvalidRequest(f"matrix of an array of shape {source.shape}; allowed: two axes")
    if form == "bsr":
        raise InvalidRequest("format='bsr' of a dense array; allowed: csr, csc, coo; SciPy's bsr_array has blocks")
    rows, columns = np.nonzero(source)
    made = scipy.sparse.coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=source.shape)
    places = made if form == "coo" else getattr(made, f"to{form}")()
    lines = places.tocoo()
    return places, np.ascontiguousarray(source[lines.coords[0], lines.coords[1]])


def make_matrix(
    device: Any, source: Any, form: str | None, dtype: object, index_dtype: str | None, durable: bool
) -> SparseMatrix:
    """Return a matrix on a device; see `Sparse.matrix`."""
    as_flag("durable", durable)
    if form is not None:
        check_choice("format", form, FORMATS)
    if isinstance(source, np.ndarray):
        places, values = _from_dense(source, form or "csr")
        found, shape, parts = _parts(places)
        parts["values"] = values
        index_dtype = index_dtype or ("int32" if max(*shape, len(values)) < 2**31 else "int64")
    else:
        if form is not None and form != getattr(source, "format", form) and hasattr(source, f"to{form}"):
            source = getattr(source, f"to{form}")()
        found, shape, parts = _parts(source)
    if form not in (None, found):
        raise InvalidRequest(f"format={form!r} of a {type(source).__name__} in {found}; allowed: {found!r}; "
                             f"device.sparse.convert makes others")  # fmt: skip
    kind = _index_dtype(index_dtype, shape, parts)
    if kind == "int32" and max(*shape, int(parts["indices"].shape[0])) > 2**31 - 1:
        raise InvalidRequest(f"index_dtype='int32' for shape={shape} and {parts['indices'].shape[0]} stored elements; "
                             f"allowed: 'int64'")  # fmt: skip
    ordered = found == "coo" and isinstance(parts["rows"], np.ndarray) and bool((np.diff(parts["rows"]) >= 0).all())
    if found == "coo" and not isinstance(parts["rows"], np.ndarray):
        ordered = hasattr(source, "layout")  # PyTorch's are, when they are coalesced
    arrays = {}
    for name, part in parts.items():
        wanted = (
            as_dtype(dtype) if name == "values" and dtype is not None else None if name == "values" else as_dtype(kind)
        )
        arrays[name] = _put(device, part, wanted, durable)
    return SparseMatrix(found, shape, **arrays, ordered=ordered, longest=_longest(found, parts))


def _longest(form: str, parts: dict[str, Any]) -> int | None:
    """Return the most stored elements of a line, where that is known without a wait."""
    offsets = parts.get("offsets")
    if form not in ("csr", "csc") or not isinstance(offsets, np.ndarray):
        return None
    return max(0, int(np.diff(offsets).max(initial=0)))


def _put(device: Any, part: Any, dtype: np.dtype[Any] | None, durable: bool) -> Any:
    if isinstance(part, np.ndarray):
        return device.put(part, None if dtype is None else dtype_name(dtype), durable=durable)
    shared = device.asarray(part)
    if not durable and (dtype is None or as_dtype(shared.dtype) == dtype):
        return shared
    return device.copy(shared, dtype=dtype, durable=durable)
