"""Sparse matrices of SciPy, PyTorch and CuPy, there and back."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sparse_checks import dense

import atomr_native as an

RNG = np.random.default_rng(8)
A = dense(RNG, RNG.random((6, 8)) < 0.4, "float32")
FORMATS = ("csr", "csc", "coo", "bsr")


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def of_scipy(form: str) -> Any:
    return scipy.sparse.bsr_array(A, blocksize=(2, 2)) if form == "bsr" else scipy.sparse.coo_array(A).asformat(form)


def reached(device: an.Device, engine: str) -> None:
    """Go on where this process sees the GPU of a device: fake ones are none that another library knows."""
    if engine == "fake":  # on a machine with a GPU another library would be given the fake driver's streams
        pytest.skip("the device is none of PyTorch's or CuPy's")
    try:
        _ = device.dlpack_device
    except an.Unsupported as error:
        pytest.skip(str(error))


def holds(device: an.Device, matrix: an.SparseMatrix, form: str) -> None:
    """Hold a matrix against A, by its elements and by a product."""
    assert (matrix.format, matrix.shape) == (form, A.shape)
    np.testing.assert_array_equal(device.sparse.to_dense(matrix).numpy(), A)
    x = RNG.integers(-3, 4, A.shape[1]).astype("f4")
    np.testing.assert_allclose(device.sparse.spmv(matrix, device.put(x)).numpy(), A @ x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_scipy(device: an.Device, form: str) -> None:
    source = of_scipy(form)
    for index, durable in ((None, False), ("int64", True)):
        matrix = device.sparse.matrix(source, index_dtype=index, durable=durable)
        assert matrix.index_dtype == np.dtype(index or "int32")
        holds(device, matrix, form)
        back = matrix.scipy()
        assert back.format == form
        np.testing.assert_array_equal(back.toarray(), A)
    assert device.sparse.matrix(source, dtype="float64").dtype == np.float64


class Tensor:
    """A sparse tensor as PyTorch has it, with parts of NumPy; of coo one that is not coalesced yet."""

    def __init__(self, form: str, source: Any) -> None:
        self.layout, self.shape, self._of, self._form = f"torch.sparse_{form}", source.shape, source, form

    def values(self) -> Any:
        return self._of.data

    def crow_indices(self) -> Any:
        return self._of.indptr

    def col_indices(self) -> Any:
        return self._of.indices

    ccol_indices, row_indices = crow_indices, col_indices

    def coalesce(self) -> Any:
        order = np.lexsort((self._of.col, self._of.row))
        places = [np.ascontiguousarray(part[order]).view(Part) for part in (self._of.row, self._of.col)]
        return types.SimpleNamespace(indices=lambda: places, values=lambda: self._of.data[order])


class Part(np.ndarray[Any, Any]):
    """An array with the method that tensors have."""

    def contiguous(self) -> Any:
        return np.asarray(self)


@pytest.mark.parametrize("form", FORMATS)
def test_what_looks_like_a_tensor(device: an.Device, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules for PyTorch without PyTorch: which parts it is asked for, and what it is given."""
    holds(device, matrix := device.sparse.matrix(Tensor(form, of_scipy(form))), form)
    given: dict[str, Any] = {}
    stand_in: Any = types.ModuleType("torch")
    stand_in.from_dlpack = lambda array: array.numpy()
    stand_in.stack = np.stack

    def made(*parts: Any, name: str, check_invariants: bool) -> None:
        warnings.warn("Sparse invariant checks are implicitly disabled. Memory errors", UserWarning, stacklevel=2)
        given[name] = parts
        assert not check_invariants

    for name in FORMATS:
        setattr(stand_in, f"sparse_{name}_tensor", functools.partial(made, name=name))
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    matrix.torch()
    source, parts = matrix.scipy(), given[form]
    assert parts[-1] == A.shape
    if form == "coo":
        np.testing.assert_array_equal(parts[0], np.stack((source.row, source.col)))
        np.testing.assert_array_equal(parts[1], source.data)
    else:
        for found, want in zip(parts, (source.indptr, source.indices, source.data), strict=False):
            np.testing.assert_array_equal(found, want)


def test_what_no_library_has(device: an.Device) -> None:
    with pytest.raises(an.InvalidRequest, match="matrix of a dict; allowed: sparse matrices of SciPy and CuPy in csr"):
        device.sparse.matrix({})
    with pytest.raises(an.InvalidRequest, match="matrix of a lil_array; allowed"):
        device.sparse.matrix(scipy.sparse.lil_array(A))


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning")
@pytest.mark.parametrize("form", FORMATS)
def test_torch(device: an.Device, cuda_engine: str, form: str) -> None:
    torch = pytest.importorskip("torch")
    if device.kind != "host":
        reached(device, cuda_engine)
    tensor = torch.from_numpy(A).to("cpu" if device.kind == "host" else "cuda")
    source = tensor.to_sparse_bsr((2, 2)) if form == "bsr" else getattr(tensor, f"to_sparse_{form}", tensor.to_sparse)()
    holds(device, matrix := device.sparse.matrix(source), form)
    back = matrix.torch()
    assert back.layout == source.layout
    np.testing.assert_array_equal(back.to_dense().cpu().numpy(), A)


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMATS[:3])
def test_cupy(cuda_system: an.System, cuda_engine: str, form: str) -> None:
    device, cupy = cuda_system.device("cuda:0"), pytest.importorskip("cupy")
    reached(device, cuda_engine)
    theirs = pytest.importorskip("cupyx.scipy.sparse")
    source = getattr(theirs.csr_matrix(cupy.asarray(A)), f"to{form}")()
    matrix = device.sparse.matrix(source)
    if form == "coo":  # CuPy does not say that its rows are in order
        matrix = device.sparse.sort(matrix)
    holds(device, matrix, form)
    back = matrix.cupy()
    assert back.format == form
    np.testing.assert_array_equal(back.toarray().get(), A)
