"""Products with functions that Numba compiles: on the host, in Numba's simulator, and as machine code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import special
from sparse_checks import dense, patterns, tolerance, values_of

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import numba
from numba import cuda
from shipped_kernels import simulate

from atomr_native._support import traced
from atomr_native.compile import linker, shipped
from atomr_native.libraries.sparse.compiled import compiled_part
from atomr_native.plans.lowering import Target

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


@cuda.jit(device=True)
def halved(x: Any) -> Any:
    return x / 2


def multiply(a: Any, x: Any) -> Any:
    if a > 0:
        return a * halved(x)
    return math.atan(a) + x


def add(s: Any, t: Any) -> Any:
    return s if s > t else t


def on_sum(s: Any) -> Any:
    for _ in range(2):
        s = s * 0.5 if s > 1 else s
    return s


PLAIN: dict[str, Any] = {
    "multiply": lambda a, x: a * x / 2 if a > 0 else math.atan(a) + x, "add": max, "on_sum": on_sum,
}  # fmt: skip


def reference(a: np.ndarray, x: np.ndarray, start: float) -> np.ndarray:
    made = np.full((a.shape[0], x.shape[1]), start)
    for i, k in zip(*np.nonzero(a), strict=True):
        for j in range(x.shape[1]):
            made[i, j] = PLAIN["add"](made[i, j], PLAIN["multiply"](float(a[i, k]), float(x[k, j])))
    return np.vectorize(on_sum, otypes=[float])(made)


def test_branches_and_functions_of_numbers(device: an.Device) -> None:
    rng = np.random.default_rng(0)
    for dtype, columns in (("float64", 0), ("float32", 3), ("float16", 2)):
        a = dense(rng, rng.random((20, 30)) < 0.3, dtype)
        x = values_of(rng, (30, max(columns, 1)), dtype)
        found = device.sparse.semiring(
            device.sparse.matrix(a), device.put(x if columns else x[:, 0]), multiply=multiply, add=add, start=-9.0,
            on_sum=numba.njit(on_sum),
        )  # fmt: skip
        want = reference(a, x, -9.0)
        np.testing.assert_allclose(
            found.numpy().astype(float), want if columns else want[:, 0], rtol=tolerance(dtype), atol=tolerance(dtype)
        )


@pytest.mark.parametrize(
    ("dtype", "out", "index", "columns"),
    [("float64", "float64", "int32", 0), ("float32", "float32", "int64", 3), ("float16", "float32", "int32", 0),
     ("bfloat16", "bfloat16", "int32", 2)],
)  # fmt: skip
def test_the_kernel_by_the_simulator(dtype: str, out: str, index: str, columns: int) -> None:
    rng = np.random.default_rng(1)
    for pattern in list(patterns(rng))[2:]:
        a = dense(rng, pattern, dtype)
        rows, places = np.nonzero(a)
        x = values_of(rng, (2 * a.shape[1], max(columns, 1)), dtype)[::2]
        given = x if columns else x[:, 0]
        result = np.zeros((a.shape[0], *given.shape[1:]), values_of(rng, (1,), out).dtype)
        request = an.SparseSemiringRequest(
            shape=a.shape, values=a[rows, places], indices=places.astype(index),
            offsets=np.searchsorted(rows, np.arange(a.shape[0] + 1)).astype(index), x=given, multiply=multiply, add=add,
            on_sum=on_sum, start=-9.0, out=result,
        )  # fmt: skip
        made = {name: linker.pickled(f) for name, f in request.lowered.code.functions}
        spec = request.lowered.spec()
        part = shipped.Part(*compiled_part(spec, made))
        arrays = [request.values, request.indices, request.offsets, given, result]
        if result.size:
            simulate("sparse.semiring", [part], spec, arrays)
            want = reference(a, x, -9.0)
            bound = max(tolerance(dtype), tolerance(out))
            np.testing.assert_allclose(result.astype(float), want if columns else want[:, 0], rtol=bound, atol=bound)


def test_the_kernel_is_machine_code_for_gpus() -> None:
    plan = an.SparseSemiringRequest(
        shape=(2, 2), values=np.ones(2), indices=np.arange(2, dtype="i4"), offsets=np.arange(3, dtype="i4"),
        x=np.ones(2), multiply=multiply, add=np.minimum, start=np.inf,
    ).lowered  # fmt: skip
    code = plan.code.attributes(plan.spec(), Target((9, 0), 0)).shipped
    assert code.code.data.startswith(b"\x7fELF")
    assert replace(plan.spec().attributes, shipped=code).functions == ()


def test_functions_of_trees_are_the_trees() -> None:
    """Functions that have a tree, beside others that have none, are computed as Python of their trees."""
    rng = np.random.default_rng(2)
    a, x = rng.uniform(0.1, 2, (2, 50))
    names = {"a": a, "x": x}
    for name in (*traced.UNARY, *traced.BINARY):
        inputs = (0,) if name in traced.UNARY else (0, 1)
        tree = traced.trace(
            "f", lambda a, x, n=name, i=inputs: getattr(special if n == "erf" else np, n)(*(a, x)[: len(i)]), ("a", "x")
        )
        python = traced.tree_function("f", tree)
        found = [float(python(*pair)) for pair in zip(a.tolist(), x.tolist(), strict=True)]
        np.testing.assert_allclose(found, traced.evaluate(tree, names), rtol=1e-14, err_msg=name)
    tree = traced.trace("f", lambda s: np.where(s > 1, np.minimum(s, -np.inf), np.nan), ("s",))
    assert traced.tree_function("f", tree)(2.0) == -math.inf
    assert math.isnan(traced.tree_function("f", tree)(0.0))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"multiply": lambda a, x, y=0: a if a > 0 else x}, "has the parameters a, x, y=0; allowed: 2 positional ones"),
        ({"add": math.dist}, "add: .* is not iterable; allowed: a function of s, t"),
        ({"on_sum": math.sqrt}, "on_sum is a builtin_function_or_method; allowed: a Python function of s"),
    ],
)
def test_functions_that_numba_does_not_take(device: an.Device, changed: dict[str, Any], words: str) -> None:
    a = device.sparse.matrix(np.eye(2))
    options: dict[str, Any] = {"multiply": np.multiply, "add": np.add, "start": 0.0, **changed}
    with pytest.raises(an.InvalidRequest, match=words):
        device.sparse.semiring(a, device.ones(2, "float64"), **options)


def test_errors_of_the_compiler_are_errors_of_the_plan(device: an.Device) -> None:
    def strange(a: Any, x: Any) -> Any:
        return "text" if a > x else a

    a = device.sparse.matrix(np.eye(2))
    with pytest.raises(an.LibraryError, match="strange"):
        device.sparse.semiring(a, device.ones(2, "float64"), multiply=strange, add=np.add, start=0.0).numpy()
