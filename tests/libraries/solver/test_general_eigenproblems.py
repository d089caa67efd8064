"""Eigenvalues of general matrices: on the host and on the device, with vectors of both sides."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from solver_checks import DTYPES, check, lent, matrices, op, put, size, wide

import atomr_native as an
from atomr_native.libraries.solver.algorithms import GENERAL_ON_HOST


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["host", "device"])
def test_general_eigenproblems(device: an.Device, dtype: str, where: str) -> None:
    """A defective matrix of the batch has eigenvectors that are not independent."""
    a = matrices(np.random.default_rng(6), (2, 5, 5), dtype)
    a[1] = np.triu(np.ones((5, 5)))
    for layout in ("rows", "apart"):
        w, v = device.solver.eig(put(device, a, layout), where=where)
        assert w.dtype == v.dtype == np.result_type(dtype, np.complex64)
        w, v = w.numpy(), wide(v.numpy())
        check(wide(a) @ v - v * w[:, None], size(wide(a)) * size(v), dtype)
        np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, rtol=1e-5)
        values, info = device.solver.eigvals(put(device, a, layout), check=False, where=where)
        np.testing.assert_allclose(np.sort_complex(values.numpy()[0]), np.sort_complex(w[0]), rtol=1e-3)
        assert info.numpy().tolist() == [0, 0]
    a[0, 0, 0] = np.nan
    w = device.solver.eigvals(device.put(a), where=where).numpy()
    assert np.isnan(w[0]).all()
    assert np.isfinite(w[1]).all()
    assert np.isnan(device.solver.eig(device.put(a), where=where).eigenvectors.numpy()[0]).all()
    assert device.solver.eig(device.zeros((0, 3, 3)), where=where).eigenvalues.shape == (0, 3)
    assert device.solver.eig(device.zeros((2, 0, 0)), where=where).eigenvectors.numpy().shape == (2, 0, 0)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_left_eigenvectors(device: an.Device, dtype: str) -> None:
    a = matrices(np.random.default_rng(7), (2, 6, 6), dtype)
    found = device.solver.eig(device.put(a), left=True)
    assert isinstance(found, an.TwoSidedEigResult)
    w, v, u = (wide(x.numpy()) for x in found)
    check(wide(a) @ v - v * w[:, None], size(wide(a)) * size(v), dtype)
    check(op(u, True, True) @ wide(a) - w[..., None] * op(u, True, True), size(wide(a)) * size(u), dtype)
    np.testing.assert_allclose(np.linalg.norm(u, axis=-2), 1, rtol=1e-5)
    *_, info = device.solver.eig(device.put(a), left=True, check=False)
    assert info.numpy().tolist() == [0, 0]


def test_real_matrices_have_pairs_and_real_vectors_of_real_values(device: an.Device) -> None:
    turn = np.array([[0.0, -2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    w, v = (x.numpy() for x in device.solver.eig(device.put(turn), where="device"))
    assert np.sort_complex(w).round(12).tolist() == [-2j, 2j, 3]
    for j in range(3):
        np.testing.assert_allclose(turn @ v[:, j], w[j] * v[:, j], atol=1e-14)
    assert (v[:, abs(w.imag) < 1e-9].imag == 0).all()


def test_outputs_and_infos_of_a_message(device: an.Device) -> None:
    a = np.random.default_rng(8).standard_normal((2, 4, 4))
    w, v = device.zeros((2, 4), "complex128"), lent(device, (2, 4, 4), "complex128", "apart")
    info = device.zeros((2,), "int32")
    request = an.DecompositionRequest(routine="eig", a=device.put(a), w=w, v=v, check=False, info=info)
    found = device.solver.tell(request)
    assert found[0] is w
    assert found[1] is v
    check(a @ v.numpy() - v.numpy() * w.numpy()[:, None], size(a) * size(v.numpy()), "float64")
    assert info.numpy().tolist() == [0, 0]


def test_large_matrices_go_to_the_device(cuda_system: an.System, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the table; small ones are copied to the host, which sends no message of the solver."""
    device = cuda_system.device("cuda:0")
    a = device.put(np.eye(3))
    assert GENERAL_ON_HOST >= 3
    monkeypatch.setattr("atomr_native.libraries.solver.decompositions.GENERAL_ON_HOST", 2)
    monkeypatch.setattr("atomr_native.libraries.solver.lapack.general", None)
    assert (device.solver.eigvals(a).numpy() == 1).all()
    plan = device.solver.plan(an.DecompositionRequest(routine="eig", a=a)).wait(60)
    assert "cuSOLVER's geev works on the host, too: this lane waits for it" in plan.notes


def test_what_a_general_eigenproblem_cannot_be(device: an.Device, cuda_system: an.System) -> None:
    square = device.put(np.eye(3))
    for call, words in (
        (lambda: device.solver.eig(device.zeros((2, 3))), "square"),
        (lambda: device.solver.eig(square, where="gpu"), "where='gpu'; allowed: 'host', 'device'"),
        (lambda: device.solver.eig(square, left=True, where="device"), "left=True does not take where='device'"),
        (lambda: device.solver.eig(square, left=1), "left=1"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            call()
    gpu = cuda_system.device("cuda:0")
    with pytest.raises(an.Unsupported, match="cuSOLVER has right eigenvectors only"):
        gpu.solver.tell(an.DecompositionRequest(routine="eig", a=gpu.put(np.eye(3)), left=True)).wait()
    with pytest.raises(an.InvalidRequest), gpu.record():
        gpu.solver.eig(gpu.blas_lt.matmul(gpu.put(np.eye(3)), gpu.put(np.eye(3))))


def test_defective_matrices_of_scipy(device: an.Device) -> None:
    a = scipy.linalg.companion([1.0, -3.0, 3.0, -1.0])  # a triple value
    w = device.solver.eigvals(device.put(a), where="device").numpy()
    np.testing.assert_allclose(w, 1, atol=1e-4)
