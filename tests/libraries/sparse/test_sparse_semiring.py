"""Products with Python functions, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sparse_checks import dense, patterns, values_of

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def plus(a: Any, x: Any) -> Any:
    return a + x


def by_hand(a: np.ndarray, x: np.ndarray, multiply: Any, add: Any, start: float, on_sum: Any) -> np.ndarray:
    made = np.full((a.shape[0], x.shape[1]), start, a.dtype)
    for i, k in zip(*np.nonzero(a), strict=True):
        made[i] = add(made[i], multiply(a[i, k], x[k]))
    return on_sum(made)


@pytest.mark.parametrize("columns", [0, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shortest_paths(device: an.Device, dtype: str, columns: int) -> None:
    """Minimum and addition are exact, so the bits are those of a loop, whatever the order."""
    rng = np.random.default_rng(0)
    for pattern in list(patterns(rng))[:: 1 if device.name == "host" else 4]:
        a = abs(dense(rng, pattern, dtype))
        x = values_of(rng, (a.shape[1], max(columns, 1)), dtype)
        given = x if columns else x[:, 0]
        found = device.sparse.semiring(
            device.sparse.matrix(a), device.put(given), multiply=plus, add=np.minimum, start=np.inf
        )
        want = by_hand(a, x, plus, np.minimum, np.inf, lambda s: s)
        assert (found.numpy() == (want if columns else want[:, 0])).all()


def test_functions_of_values_and_of_sums(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    a = dense(rng, rng.random((30, 20)) < 0.3, "float64")
    x = rng.standard_normal(20)

    def multiply(a: Any, x: Any) -> Any:
        return np.where(a > 0, a**2, np.exp(-abs(a))) * np.maximum(x, 0.25)

    def on_sum(s: Any) -> Any:
        return 1 - np.tanh(s) / 2

    found = device.sparse.semiring(
        device.sparse.matrix(a), device.put(x), multiply=multiply, add=np.add, start=0.0, on_sum=on_sum
    )
    want = by_hand(a, x[:, None], multiply, np.add, 0.0, on_sum)[:, 0]
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-13)


def test_narrow_values(device: an.Device) -> None:
    a = np.array([[1.5, 0.0], [2.0, 3.0]], np.float16)
    out = device.zeros(2, "float32")
    found = device.sparse.semiring(
        device.sparse.matrix(a), device.ones(2, "float16"), multiply=lambda a, x: a * x, add=np.maximum, start=-np.inf,
        out=out,
    )  # fmt: skip
    assert found is out
    assert found.numpy().tolist() == [1.5, 3.0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"multiply": 3}, "multiply is a int; allowed: a Python function of a, x"),
        ({"multiply": lambda a, x: np.arctan2(a, x)}, "numpy.arctan2 is not one of"),
        ({"multiply": lambda a: a}, "positional argument"),
        ({"add": lambda s, t: s + 1j * t}, "1j is no real number"),
        ({"add": lambda s, t: np.sort(s)}, "numpy.sort is not where"),
        ({"on_sum": lambda s: "s"}, "'s' is no real number"),
        ({"start": 1j}, "start=1j"),
    ],
)
def test_functions_that_no_device_computes(cuda_system: an.System, changed: dict[str, Any], words: str) -> None:
    host = cuda_system.device("host")
    a = host.sparse.matrix(np.eye(2))
    options: dict[str, Any] = {"multiply": np.multiply, "add": np.add, "start": 0.0, **changed}
    with pytest.raises(an.InvalidRequest, match=words):
        host.sparse.semiring(a, host.ones(2, "float64"), **options)


def test_other_matrices_are_refused(cuda_system: an.System) -> None:
    host = cuda_system.device("host")
    options: dict[str, Any] = {"multiply": np.multiply, "add": np.add, "start": 0.0}
    with pytest.raises(an.InvalidRequest, match="a is csc; semiring takes csr"):
        host.sparse.semiring(host.sparse.matrix(np.eye(2), format="csc"), host.ones(2, "float64"), **options)
    with pytest.raises(an.InvalidRequest, match="complex64; allowed: float16"):
        host.sparse.semiring(host.sparse.matrix(np.eye(2, dtype="c8")), host.ones(2, "complex64"), **options)
