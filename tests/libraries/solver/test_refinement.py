"""Solves by factors of less precision, refined: the answers are those of float64, and corrections are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from fake_cuda import using
from solver_checks import check, lent, matrices, put, size

import atomr_native as an
from atomr_native.libraries.solver.refinement_host import rounded
from atomr_native.libraries.solver.refinement_request import FACTORS

WIDE = ("float64", "complex128")


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def system_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return matrices of a condition of a few, which factors of 8 bits suffice for."""
    return np.asarray(matrices(rng, shape, dtype) / 4 + 4 * np.eye(shape[-1]))


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("factor", FACTORS)
def test_a_solve_is_refined(device: an.Device, factor: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = system_of(rng, (2, 12, 12), dtype), matrices(rng, (2, 12, 3), dtype)
    x, iterations, fell_back = device.solver.solve_refined(device.put(a), device.put(b), factor=factor)
    check(a @ x.numpy() - b, size(a) * size(x.numpy()), dtype)
    assert 1 <= iterations < 30
    assert not fell_back
    vector = device.solver.solve_refined(device.put(a[0]), device.put(b[0, :, 0]), factor=factor)
    np.testing.assert_allclose(vector.x.numpy(), x.numpy()[0, :, 0], rtol=1e-10)
    assert not vector.fell_back


def test_less_precision_takes_more_corrections(device: an.Device) -> None:
    rng = np.random.default_rng(4)
    a, b = system_of(rng, (20, 20), "float64"), rng.standard_normal((20, 2))
    taken = [device.solver.solve_refined(device.put(a), device.put(b), factor=factor).iterations for factor in FACTORS]
    assert taken[0] < taken[2]  # float32, bfloat16
    assert taken[1] <= taken[2]  # tf32


def test_matrices_that_a_factor_does_not_suffice_for(device: an.Device) -> None:
    hilbert = scipy.linalg.hilbert(6)
    for factor in FACTORS[1:]:
        b = np.ones((6, 2))
        x, iterations, fell_back = device.solver.solve_refined(
            device.put(hilbert), device.put(b), factor=factor, iterations=7
        )
        assert fell_back
        assert iterations == 7
        check(hilbert @ x.numpy() - b, size(hilbert) * size(x.numpy()) + size(b), "float64")
    for scale, factor in ((1e6, "float16"), (1e100, "bfloat16")):  # beyond its range
        a = scale * (np.eye(3) + 1)
        x, _, fell_back = device.solver.solve_refined(device.put(a), device.put(np.ones(3)), factor=factor)
        assert fell_back or device.kind == "cuda"  # a library may scale it
        np.testing.assert_allclose(a @ x.numpy(), 1, rtol=1e-13)


def test_layouts_batches_and_outputs_of_a_message(device: an.Device) -> None:
    rng = np.random.default_rng(5)
    a, b = system_of(rng, (2, 2, 5, 5), "float64"), rng.standard_normal((2, 5, 2))
    for of_a, of_out in (("rows", None), ("apart", "rows"), ("columns", "wider")):
        out = None if of_out is None else lent(device, (2, 2, 5, 2), "float64", of_out)
        counts, info = device.zeros((2, 2), "int32"), device.zeros((2, 2), "int32")
        request = an.RefinementRequest(
            a=put(device, a, of_a), b=put(device, b, of_a), out=out, iterations_out=counts, info=info, check=False,
            factor="tf32",
        )  # fmt: skip
        x, taken, numbers = device.solver.tell(request)
        assert (x is out) == (out is not None)
        assert taken is counts
        check(a @ x.numpy() - b, size(a) * size(x.numpy()), "float64")
        assert (taken.numpy() > 0).all()
        assert (numbers.numpy() == 0).all()
    scratch = device.solver.scratch(request)
    assert list(scratch) == ["factor", "work"]
    device.solver.plan(request).ask(request.a, request.b, out=out, iterations_out=counts, info=info, **scratch).result(
        60
    )
    check(a @ out.numpy() - b, size(a) * size(out.numpy()), "float64")


def test_singular_and_empty_systems(device: an.Device) -> None:
    a = np.stack([np.eye(3), np.diag([1.0, 0, 1]), np.eye(3)])
    a[2, 0, 1] = np.nan  # over which a library's search for pivots may pass
    request = an.RefinementRequest(a=device.put(a), b=device.put(np.ones(3)), factor="bfloat16")
    with pytest.raises(an.SingularMatrix, match=r"solver\.solve_refined") as caught:
        device.solver.ask(request).result(60)
    assert caught.value.index == (1,)
    x, taken, info = device.solver.tell(
        an.RefinementRequest(a=device.put(a), b=device.put(np.ones(3)), factor="bfloat16", check=False)
    )
    assert (x.numpy()[0] == 1).all()
    assert np.isnan(x.numpy()[1:]).all()
    assert info.numpy().tolist() == [0, 2, 0]
    assert taken.numpy()[1] < 0
    for shape, columns in (((2, 0, 0), 2), ((0, 3, 3), 1), ((2, 3, 3), 0)):
        empty = device.zeros((*shape[:-1], columns), "float64")
        x, taken = device.solver.tell(an.RefinementRequest(a=device.zeros(shape, "float64"), b=empty))
        assert x.numpy().shape == (*shape[:-1], columns)
        assert (taken.numpy() == 0).all()


def test_a_deterministic_system_refuses_what_is_not_documented_so(fake_environment: dict[str, str]) -> None:
    with using(fake_environment), an.System(deterministic=True) as system:
        device = system.device("cuda:0")
        a, b = device.put(np.eye(3)), device.put(np.ones(3))
        with pytest.raises(an.Unsupported, match=r"allowed: the method .*factor='float32'"):
            device.solver.solve_refined(a, b, factor="tf32")
        assert (device.solver.solve_refined(a, b).x.numpy() == 1).all()


def test_notes_say_how_and_that_the_lane_waits(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    a = device.put(np.eye(3))
    for b, how in ((np.ones(3), "GMRES"), (np.ones((3, 2)), "CLASSICAL")):
        plan = device.solver.plan(an.RefinementRequest(a=a, b=device.put(b), factor="float16")).wait(60)
        assert plan.notes[0] == f"refined by {how}, with factors in float16: this lane waits for it"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"factor": "int8"}, "'int8'; allowed: 'float32', 'tf32', 'bfloat16', 'float16'"),
        ({"iterations": 0}, "iterations"), ({"check": 1}, "check=1"), ({"a": np.eye(3, dtype="f4")}, "dtype"),
        ({"a": np.ones((2, 3))}, "square"), ({"iterations_out": np.zeros((2,), "i4")}, "allowed: \\(\\) and int32"),
        ({"iterations_out": np.zeros((), "i8")}, "int64; allowed"), ({"info": np.zeros((), "i4")}, "check=False"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        _ = an.RefinementRequest(**{"a": np.eye(3), "b": np.ones(3), **options}).lowered


def test_roundings_are_to_nearest() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-9 + 2.0**-11 + 2.0**-20, -3.0, 70000.0, 1e39, np.nan, 0.0])
    found = rounded(x, "tf32")
    want = [1, 1 + 2.0**-9, 1 + 2.0**-9 + 2.0**-10, -3, 70016.0, np.inf, np.nan, 0]
    np.testing.assert_array_equal(found, np.array(want, np.float32))
    assert np.isinf(rounded(x, "float16")[4])
    assert rounded(x, "bfloat16")[:2].tolist() == [1, 1]
    assert rounded(x + 1j * x, "tf32")[2].imag == want[2]
